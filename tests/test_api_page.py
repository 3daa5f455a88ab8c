"""docs/api.md names everything that is public, and its examples run."""

import dataclasses
import html
import inspect
import re
import shutil
from pathlib import Path

import pytest
import torch

import rooflines
from rooflines import serial
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.profiler.records import RunFile
from rooflines.profiler.samplers.fields import DeviceSample
from tests import commands
from tests.samples import ceilings

TRACES = Path(__file__).parent / "data" / "traces"
PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# What an example states in a comment: a value, as repr shows it.
STATED = re.compile(r"^(\S.*?)  # (\(.*\)|[\d.]+|'.*'|PosixPath\(.*\)|True|False)$", re.MULTILINE)


@pytest.mark.ci
def test_the_page_names_every_public_name_and_the_help_every_option(tmp_path):
    # The page names every public name.
    table = PAGE.partition("\n## ")[0]
    listed = {
        name for cell in re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE) for name in re.findall(r"\b(?!md\b)\w+(?=[`,])", cell)
    }
    assert listed >= set(rooflines.__all__)
    assert {name for name in listed - {"name"} if not hasattr(rooflines, name)} == set()
    for name in rooflines.__all__:
        assert name == "__version__" or getattr(rooflines, name).__doc__, f"{name} has no docstring"
        assert name in dir(rooflines)
    # The signature has every option, and the command line those that the page leaves to its help.
    names = [field.name for field in dataclasses.fields(rooflines.ProfileOptions)]
    assert list(inspect.signature(rooflines.profile).parameters) == ["model", "inputs", *names]
    shown = commands.run("profile", "--help", cwd=tmp_path).out
    for name in set(names) - {"progress", "trace"}:
        assert f"--{name.replace('_', '-')}" in shown, name
    assert "--no-trace" in shown


@pytest.mark.ci
def test_the_examples_run_and_give_what_they_state(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(TRACES / "cpu_only.json.gz", "trace.json.gz")
    Path("traces").mkdir()
    for rank in (0, 7):
        shutil.copy(TRACES / "dlrm_8ranks" / f"rank{rank}.json.gz", "traces")
    measured = Ceilings(device="test CPU", kind="cpu", ceilings=ceilings())
    monkeypatch.setattr("rooflines.pipeline.recording.given_ceilings", lambda *_: lambda *_: measured)
    monkeypatch.setattr(rooflines, "measure_ceilings", lambda: measured)
    scope = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/api.md", "exec"), scope)
        for expression, value in STATED.findall(example):
            assert repr(eval(expression, scope)) == value, expression
    assert "steps must be at least 1, got 0" in capsys.readouterr().out


def test_records_show_themselves(tmp_path):
    analysis = rooflines.analyze(TRACES / "cpu_only.json.gz")
    comparison = rooflines.compare(analysis, analysis)
    counted = rooflines.count(torch.nn.Linear(3, 5), torch.rand(2, 3))
    run = rooflines.Run(directory=tmp_path, facts=RunFile(workload=analysis.workload, environment=analysis.environment))
    for record in (analysis, comparison, counted, run):
        lines = str(record).splitlines()
        assert 2 <= len(lines) <= 6
        assert all(html.escape(line) in record._repr_html_() for line in lines)
        assert type(record).from_dict(record.to_dict()) == record
        # The title and the first sentence.
        assert repr(record) == f"<{type(record).__name__}: {lines[0]} · {lines[1].split('. ')[0]}>"
        assert len(repr(record)) < 300
    assert str(tmp_path) in repr(run)
    assert analysis.verdict in str(analysis)
    assert all(finding.title in str(analysis) for finding in analysis.findings[:3])
    assert "<table>" in analysis._repr_html_()
    serial.write_json(tmp_path / "analysis.json", analysis)
    assert run._repr_html_() == analysis._repr_html_(), "a run shows the analysis in its directory"


def test_rows_as_a_dataframe(tmp_path):
    analysis = rooflines.analyze(TRACES / "cpu_only.json.gz")
    frame = analysis.to_dataframe()
    assert list(frame["name"]) == [row.name for row in analysis.operators]
    assert list(frame["time_s"]) == [row.time_s for row in analysis.operators]
    assert len(analysis.to_dataframe("modules")) == len(analysis.modules)
    assert len(analysis.to_dataframe("steps")) == len(analysis.steps.durations_s if analysis.steps else ())
    with pytest.raises(UsageError, match="unknown rows 'kernels'"):
        analysis.to_dataframe("kernels")
    comparison = rooflines.compare(analysis, analysis)
    assert list(comparison.to_dataframe()["before_time_s"]) == [row.before.time_s for row in comparison.rows]
    counted = rooflines.count(torch.nn.Linear(3, 5), torch.rand(2, 3))
    assert counted.to_dataframe()["flops"].sum() == counted.flops
    assert list(counted.to_dataframe("modules")["path"]) == [row.path for row in counted.modules]
    samples = (DeviceSample(time_ns=1, source="psutil", cpu_utilization=0.5),)
    run = rooflines.Run(
        directory=tmp_path, facts=RunFile(workload=analysis.workload, environment=analysis.environment), samples=samples
    )
    assert list(run.to_dataframe()["cpu_utilization"]) == [0.5]
