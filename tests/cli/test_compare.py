"""``rooflines compare``: what it takes, what it refuses, and what it tells a script by its exit code."""

import csv
import gzip
import io
import json

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import rooflines
from rooflines.errors import UsageError
from rooflines.serial import write_json
from tests.commands import call, write_ceilings
from tests.samples import analysis as sample
from tests.traces import add, mm, span


def slower_sample(factor, **environment):
    steps = sample().steps
    durations = tuple(factor * value for value in steps.durations_s)
    steps = replace(steps, median_s=factor * steps.median_s, durations_s=durations)
    return replace(sample(), steps=steps, environment=replace(sample().environment, **environment))


@pytest.fixture
def compare(tmp_path, capsys, monkeypatch):
    """The command in a folder with a.json, slower.json (1.5 times), threads.json (4 of them) and trace.json.gz, trace2.json.gz."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_json(tmp_path / "a.json", sample())
    write_json(tmp_path / "slower.json", slower_sample(1.5))
    write_json(tmp_path / "threads.json", slower_sample(1.0, threads=4))
    for name, product_us in (("trace", 200), ("trace2", 260)):
        events = [
            event
            for start in (0, 1000, 2000)
            for event in (span(f"ProfilerStep#{start}", start, 1000), mm(start + 100, product_us, 4, 5, 6), add(start + 900, 50))
        ]
        text = json.dumps({"schemaVersion": 1, "traceEvents": events})
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(text.encode()))
    whole = {"schemaVersion": 1, "traceEvents": [mm(100, 200, 4, 5, 6)]}
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    (tmp_path / "count.json").write_text('{"schema": "rooflines.count/1"}')
    (tmp_path / "newer.json").write_text('{"schema": "rooflines.analysis/3"}')
    (tmp_path / "corrupt.json").write_text('{"schema": "rooflines.analysis/2", "workload": 3}')

    return lambda *arguments: call(capsys, monkeypatch, "compare", *arguments)


def test_two_analyses_or_traces(compare):
    # Two analyses.
    answer = compare("a.json", "slower.json")
    assert (answer.code, answer.complaint) == (0, [])
    text = " ".join(answer.out.split())
    assert "B takes 50 % more time than A: 126 ms a step instead of 84.0 ms" in text
    assert "medians of 12 and 12 timed steps; ratio 1.50, 95 % interval 1.4" in text
    assert max(len(line) for line in answer.out.splitlines()) <= 80
    # Two traces.
    found = json.loads(compare("trace.json.gz", "trace2.json.gz", "--format", "json").out)
    assert (found["schema"], found["a"]["source"]) == ("rooflines.comparison/2", "trace.json.gz")
    product = next(row for row in found["rows"] if row["name"] == "aten::mm")
    assert product["difference_s"] == pytest.approx(60e-6)
    assert any("timed without the profiler" in note for note in found["notes"])


@pytest.mark.ci
def test_a_run_with_itself_a_trace_and_an_analysis(tmp_path, compare):
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    rooflines.profile(
        network, torch.randn(3, 8), steps=2, warmup=1, device="cpu", output=tmp_path / "run", formats=("json",),
        ceilings=str(write_ceilings(tmp_path)),
    )  # fmt: skip
    answer = compare("run", "run/analysis.json", "--by", "module")
    assert answer.code == 0
    assert "B takes as long as A" in answer.out
    found = json.loads(compare("run", "trace.json.gz", "--format", "json").out)
    assert not [fact for fact in found["differs"] if fact["unlike"]]
    compared = rooflines.compare(tmp_path / "run", rooflines.load(tmp_path / "run"))
    assert isinstance(compared, rooflines.Comparison)
    assert {row.direction for row in compared.rows} == {"same"}


def test_several_against_the_first(compare):
    found = json.loads(compare("a.json", "slower.json", "a.json", "--format", "json").out)
    assert [(one["a"]["source"], one["b"]["source"], one["pace"]["ratio"]) for one in found] == [
        ("a.json", "slower.json", 1.5), ("a.json", "a.json", 1.0),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(compare("a.json", "slower.json", "a.json", "--format", "csv").out)))
    assert {row["b"] for row in rows} == {"a.json", "slower.json"}


def test_output_goes_into_a_file_in_the_format_of_its_name(compare, tmp_path):
    answer = compare("a.json", "slower.json", "-o", "out.json")
    assert (answer.code, answer.out) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text())["pace"]["ratio"] == 1.5
    compare("a.json", "slower.json", "-o", "out.txt")
    assert "B takes 50 % more time" in (tmp_path / "out.txt").read_text()
    for name, start in (("out.html", b"<!doctype html>"), ("out.PDF", b"%PDF"), ("out.md", b"# "), ("out.xml", b"<?xml")):
        assert compare("a.json", "slower.json", "-o", name).complaint == []
        assert (tmp_path / name).read_bytes().lower().startswith(start.lower())


def test_unlike_conditions_are_refused_by_name_and_compared_anyway(compare):
    answer = compare("a.json", "threads.json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.complaint[0] == "rooflines: 'a.json' and 'threads.json' ran under different conditions: threads '2' and '4'."
    assert "--anyway" in answer.complaint[1]
    answer = compare("a.json", "threads.json", "--anyway")
    assert answer.code == 0
    assert "differs: threads 2 → 4" in answer.out
    with pytest.raises(UsageError, match="different conditions: threads"):
        rooflines.compare(sample(), slower_sample(1, threads=4))
    assert rooflines.compare(sample(), slower_sample(1, threads=4), anyway=True).unlike


@pytest.mark.parametrize(("arguments", "code"), [
    (["a.json", "slower.json", "--fail-above", "40"], 1),
    (["a.json", "slower.json", "--fail-above", "60"], 0),
    (["slower.json", "a.json", "--fail-above", "0"], 0),
    (["a.json", "a.json", "--fail-above", "0"], 0),
    (["a.json", "a.json", "slower.json", "--fail-above", "10"], 1),
    (["trace.json.gz", "trace2.json.gz", "--fail-above", "10"], 0),  # the span of a step is the same
])  # fmt: skip
def test_the_exit_code_for_continuous_integration(compare, arguments, code):
    answer = compare(*arguments)
    assert answer.code == code
    assert "B takes" in answer.out, "the table is printed before the verdict of the exit code"
    if code:
        assert answer.complaint == [
            f"rooflines: slower than 'a.json' by more than {arguments[-1]} %: 'slower.json' by 50.0 %."
        ]  # fmt: skip


def test_noise_does_not_fail_a_build(compare, tmp_path):
    """1 % more where the steps scatter by several."""
    write_json(tmp_path / "noise.json", slower_sample(1.001))
    assert compare("a.json", "noise.json", "--fail-above", "0").code == 0


@pytest.mark.parametrize(("arguments", "message"), [
    (["a.json"], "compare needs at least two runs or traces, got 1."),
    (["a.json", "missing.json"], "missing.json"),
    (["a.json", "count.json"], "'count.json' has schema 'rooflines.count/1'; this version compares 'rooflines.analysis/2'."),
    (["a.json", "newer.json"], "'newer.json' has schema 'rooflines.analysis/3'"),
    (["a.json", "corrupt.json"], "the analysis 'corrupt.json' is corrupt: Expected `object`, got `int`"),
    (["trace.json.gz", "whole.json"], "'whole.json' has no step marks"),
    (["a.json", "trace.json.gz", "--ceilings", "spec"], "'a.json' is an analysis; --ceilings requires the run or trace."),
    (["a.json", "slower.json", "--top", "0"], "invalid value for '--top'"),
    (["a.json", "slower.json", "--by", "kernel"], "invalid value for '--by'"),
    (["a.json", "slower.json", "--fail-above", "-1"], "invalid value for '--fail-above'"),
    (["a.json", "slower.json", "-o", "nowhere/out.json"], "directory not found: 'nowhere'."),
    (["a.json", "slower.json", "-o", "out.doc"], "--output 'out.doc': unknown file type."),
    (["a.json", "slower.json", "--formats", "html,pdf", "-o", "out.html"], "--output 'out.html' is one file, for 2 formats."),
])  # fmt: skip
def test_what_is_refused(compare, arguments, message):
    answer = compare(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.complaint[0]
    assert len(answer.complaint) <= 2


def test_every_format_of_the_page(compare, tmp_path):
    answer = compare("a.json", "slower.json", "--formats", "html,pdf,markdown,text,json,csv", "-o", "out")
    assert answer.code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "report.html", "report.pdf", "report.md", "report.txt", "report.json", "changes.csv",
    }  # fmt: skip
