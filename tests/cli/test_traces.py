"""``rooflines analyze`` and ``rooflines report`` on traces that other people recorded."""

import functools
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import call, environment
from tests.traces import add, kernel, launch

TRACES = Path(__file__).parents[1] / "data" / "traces"
BERT = TRACES / "bert-small_h100_inference.json.gz"
_WITHOUT_TORCH = """
import sys
import rooflines.cli
sys.argv = ["rooflines", "analyze", sys.argv[1], "--format", "json", "-o", sys.argv[2]]
try:
    rooflines.cli.main()
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules and "pandas" not in sys.modules, "a heavy library was imported"
"""


@pytest.fixture
def rooflines(capsys, monkeypatch):
    """``rooflines ARGUMENTS`` in this process."""
    return functools.partial(call, capsys, monkeypatch)


@pytest.fixture
def analyzed(rooflines):
    """The JSON that ``rooflines analyze ARGUMENTS --format json`` prints."""

    def answer(*arguments):
        found = rooflines("analyze", *arguments, "--format", "json")
        assert found.code == 0, found.err
        return json.loads(found.out)

    return answer


def test_the_analysis_of_a_trace_is_that_of_a_run(analyzed, rooflines, tmp_path):
    found = analyzed(BERT)
    written = rooflines("analyze", BERT, "--format", "json", "-o", tmp_path / "out.json")
    assert (written.code, written.out) == (0, "")
    assert {**found, "command": None} == {**json.loads((tmp_path / "out.json").read_text()), "command": None}


@pytest.mark.ci
def test_an_output_that_is_a_directory_gets_the_usual_name(rooflines, tmp_path):
    for output in (tmp_path, tmp_path / "page.html"):
        answer = rooflines("analyze", BERT, "-o", output)
        assert "Host-bound" in answer.out
        assert "the host had launched nothing" in " ".join(answer.out.split())
    written = rooflines("report", BERT, "-o", tmp_path / "report.md")
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "report.md").read_text().startswith("# ")
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")
    assert (tmp_path / "analysis.json").is_file()


def test_nothing_is_written_beside_somebody_s_trace(analyzed, tmp_path):
    copy = tmp_path / "t.json.gz"
    copy.write_bytes(BERT.read_bytes())
    analyzed(copy)
    assert [path.name for path in tmp_path.iterdir()] == ["t.json.gz"]


def test_a_trace_behind_a_url_and_with_partial_is_the_same(analyzed):
    import fsspec

    with fsspec.open("memory://bert.json.gz", "wb") as file:
        file.write(BERT.read_bytes())
    whole, partial = analyzed(BERT), analyzed(BERT, "--partial")
    assert analyzed("memory://bert.json.gz")["timeline"] == whole["timeline"]
    # The command and the time of the analysis.
    assert {**partial, "command": whole["command"], "created": whole["created"]} == whole


def test_torch_is_not_imported_while_the_table_has_every_operator(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, str(BERT), str(tmp_path / "a.json")], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr


def test_traces_without_a_device_or_sheet_are_not_judged(rooflines, analyzed, tmp_path):
    # A device without a sheet is named with the nearest and nothing is judged.
    text = gzip.decompress(BERT.read_bytes()).replace(b"NVIDIA H100 80GB HBM3", b"NVIDIA H900 80GB HBM9")
    (tmp_path / "t.json").write_bytes(text)
    found = analyzed(tmp_path / "t.json")
    assert not found["ceilings"]
    assert any("no data sheet for 'NVIDIA H900 80GB HBM9'; nearest:" in note for note in found["notes"])
    answer = rooflines("analyze", tmp_path / "t.json", "--ceilings", "spec")
    assert (answer.code, "no data sheet" in answer.err) == (2, True)
    # As its driver prints it, or some words of it; what the trace says of its device tells devices of one name apart.
    found = analyzed(BERT, "--ceilings", "MI300X")
    assert next(c["value"] for c in found["ceilings"] if c["name"] == "HBM HBM3") == 5.3e12
    assert analyzed(BERT, "--ceilings", "H100")["ceilings"] == analyzed(BERT)["ceilings"]
    answer = rooflines("analyze", BERT, "--ceilings", "MI3000X")
    assert (answer.code, "--ceilings MI3000X is neither a file nor a single device" in answer.err, "Instinct MI300X" in answer.err) == (
        2,
        True,
        True,
    )
    answer = rooflines("analyze", BERT, "--ceilings", "RTX 3060")
    assert (answer.code, "may be GeForce RTX 3060" in answer.err) == (2, True)


@pytest.mark.parametrize("command", ["analyze", "report", "compare", "profile", "study backends", "study from-scratch"])
def test_every_command_with_ceilings_says_what_they_may_be(rooflines, command):
    answer = rooflines(*command.split(), "--help")
    said = " ".join("".join(letter if letter not in "│┃" else " " for letter in answer.out).split())
    assert "Ceilings to use: `measured`, `spec`, a device name or a JSON file." in said


@pytest.mark.parametrize(("content", "says"), [
    (b"{}", "has no list of 'traceEvents'"),
    (b'{"traceEvents": [{"ph": "X", "name": "jit_f", "pid": 1, "ts": 1, "dur": 2}]}', "a Chrome trace, but not from PyTorch"),
])  # fmt: skip
def test_what_is_no_trace_is_one_line_and_exit_code_2(rooflines, tmp_path, content, says):
    (tmp_path / "t.json").write_bytes(content)
    answer = rooflines("analyze", tmp_path / "t.json")
    assert answer.code == 2
    assert says in answer.complaint[0]
    assert len(answer.complaint) <= 2


@pytest.mark.parametrize(("arguments", "says"), [
    (["none.json.gz"], "no such run or trace"),
    ([BERT, "--memory-limit", "10kB"], "more than the memory limit of 10.0 kB"),
    ([BERT, "--memory-limit", "lots"], "is not a size"),
])  # fmt: skip
def test_a_missing_file_and_the_memory_limit(rooflines, arguments, says):
    answer = rooflines("analyze", *arguments)
    assert (answer.code, says in answer.complaint[0]) == (2, True), answer.err


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + "/t.json", "n" * 300 + "*"])
def test_a_name_that_no_file_can_have_is_said(rooflines, name):
    for arguments in (("analyze", name), ("report", name), ("compare", name, name), ("analyze", name, name, "--jobs", "1")):
        answer = rooflines(*arguments)
        assert (answer.code, len(answer.complaint)) in ((2, 1), (2, 2)), answer.err


def test_the_reports_of_a_trace(rooflines, tmp_path):
    answer = rooflines("report", BERT, "--output", tmp_path / "out", "--formats", "html,csv,json")
    assert answer.code == 0, answer.err
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.html", "analysis.json", "operators.csv"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "the host had launched nothing" in page
    again = rooflines("report", BERT, "--output", tmp_path / "out", "--formats", "json")
    assert (again.code, "not empty" in again.err) == (2, True)


@pytest.fixture
def cut(tmp_path):
    """A file with the first ``fraction`` of a trace."""

    def write(name, fraction, source="toy_mi250_training"):
        text = gzip.decompress((TRACES / f"{source}.json.gz").read_bytes())
        (tmp_path / name).write_bytes(text[: int(fraction * len(text))])
        return tmp_path / name

    return write


def test_a_trace_that_is_cut_off_is_read_up_to_the_cut(rooflines, analyzed, cut):
    path = cut("t.json", 0.6)
    answer = rooflines("analyze", path)
    assert (answer.code, "is cut off after 32,900 bytes" in answer.complaint[0], "--partial" in answer.complaint[1]) == (2, True, True)
    assert "- The trace is cut off after 32,900 bytes" in rooflines("summary", path, "--partial").out
    found = analyzed(path, "--partial")
    assert any("cut off after 32,900 bytes" in note and "the last step may be incomplete" in note for note in found["notes"])
    # The marks of steps are behind the cut, but an optimizer has ended one.
    others = dict.fromkeys(("start_up", "stacks", "timed", "steady", "served", "is_complex"), False)
    assert found["basis"] == {"per": "step", "steps": 1, "devices": 1, **others}


def test_without_device_events_nothing_is_judged(analyzed, tmp_path):
    whole = json.loads(gzip.decompress(BERT.read_bytes()))
    text = json.dumps({"deviceProperties": whole["deviceProperties"], **whole})
    (tmp_path / "t.json").write_text(text[: text.index('"kernel"')])
    found = analyzed(tmp_path / "t.json", "--partial", "--ceilings", "spec")
    assert found["environment"]["device"] == "cuda:0"
    assert any("no device event was read: device time is unknown" in note for note in found["notes"])
    assert not any("efficiency" in row for row in found["operators"])


@pytest.mark.ci
def test_a_gzip_that_ends_early_is_reported_and_compared(rooflines, tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(BERT.read_bytes()[:-5_000])
    assert "--partial" in rooflines("report", path, "--output", tmp_path / "out").complaint[1]
    answer = rooflines("report", path, "--partial", "--output", tmp_path / "out", "--formats", "html,json")
    assert answer.code == 0, answer.err
    assert "unexpected end of file" in (tmp_path / "out" / "report.html").read_text()
    answer = rooflines("compare", path, path, "--partial")
    assert answer.code == 0, answer.err


def test_host_times_are_not_compared_with_device_times(rooflines, tmp_path):
    text = json.dumps({"deviceProperties": [{"name": "GPU"}], "traceEvents": [add(0, 9), launch(1, 2, 1), kernel("k", 5, 9, 1)]})
    (tmp_path / "whole.json").write_text(text)
    (tmp_path / "cut.json").write_text(text[:-100])
    answer = rooflines("compare", tmp_path / "cut.json", tmp_path / "whole.json", "--partial")
    assert (answer.code, "times 'host' and 'device'" in answer.complaint[0]) == (2, True), answer.err


@pytest.mark.ci
def test_ranks_that_are_cut_off(rooflines, cut):
    ranks = [cut("rank0.json", 1, "ddp_rank0"), cut("rank1.json", 0.8, "ddp_rank1")]
    assert "--partial" in rooflines("analyze", *ranks, "--jobs", 1).complaint[1]
    for jobs in (1, 2):
        answer = rooflines("analyze", *ranks, "--jobs", jobs, "--partial", "--format", "json")
        assert answer.code == 0, answer.err
        assert any(note.startswith("rank 1: the trace is cut off after") for note in json.loads(answer.out)["notes"])
    answer = rooflines("analyze", ranks[0], cut("rank1.json", 0.2, "ddp_rank1"), "--jobs", 1, "--partial")
    assert (answer.code, "ends before its device events" in answer.complaint[0]) == (2, True)
