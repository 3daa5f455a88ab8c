"""rooflines analyze and report on several ranks: sources, processes, Dask, what is refused."""

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

import rooflines
import rooflines.cli
from rooflines import pipeline
from rooflines.errors import TraceError, UsageError
from rooflines.profiler.read.sources import find_traces
from tests.commands import call, start
from tests.processes import wait_until

DLRM = Path(__file__).parents[1] / "data" / "traces" / "dlrm_8ranks"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rank in (0, 7):
        Path("job").mkdir(exist_ok=True)
        shutil.copy(DLRM / f"rank{rank}.json.gz", "job")
    return tmp_path


@pytest.fixture
def ask(capsys, monkeypatch):
    return functools.partial(call, capsys, monkeypatch)


@pytest.mark.parametrize("sources", [["job"], ["job/*.gz"], ["job/rank7.json.gz", "job/rank0.json.gz"], ["**/rank*"]])
def test_a_directory_a_pattern_and_files_are_one_job(place, ask, sources):
    answer = ask("analyze", *sources, "--format", "json", "-o", "out.json")
    assert (answer.code, answer.out) == (0, "")
    plain = json.loads(Path("out.json").read_text())
    assert plain["schema"] == "rooflines.ranks/1"
    assert [row["rank"] for row in plain["ranks"]] == [0, 7]


@pytest.mark.ci
def test_one_source_is_analysed_as_ever(place, ask):
    shutil.copytree("job", "alone", ignore=shutil.ignore_patterns("rank7*"))
    for source in ("job/rank0.json.gz", "job/rank0*", "alone"):
        assert json.loads(ask("analyze", source, "--format", "json").out)["schema"] == "rooflines.analysis/2"


@pytest.mark.ci
def test_analyze_names_the_function_for_several_ranks(place):
    for sources in (["job/rank0.json.gz", "job/rank7.json.gz"], "job", Path("job")):
        with pytest.raises(UsageError, match="got 2; use analyze_ranks for the ranks of a job"):
            rooflines.analyze(sources)
    shutil.copytree("job", "alone", ignore=shutil.ignore_patterns("rank7*"))
    assert rooflines.analyze("alone").totals == rooflines.analyze("job/rank0.json.gz").totals
    assert [row.rank for row in rooflines.analyze_ranks("job", jobs=1).ranks] == [0, 7]
    assert rooflines.report("job", ["json"], jobs=1)["analysis"].name == "ranks.json"


def test_a_table_and_the_json_in_a_directory(place, ask):
    Path("out").mkdir()
    assert "Which rank is late cannot be told" in " ".join(ask("analyze", "job", "-o", "out").out.split())
    assert json.loads(Path("out/ranks.json").read_text())["world_size"] == 8


@pytest.mark.ci
def test_reports(place, ask):
    assert ask("report", "job", "-o", "out").code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "collectives.csv", "ranks.csv", "ranks.json", "report.html", "report.json",
    ]  # fmt: skip
    assert ask("report", "job", "--formats", "csv").code == 0
    (directory,) = Path("runs").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == ["collectives.csv", "ranks.csv", "ranks.json"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["report", "job", "--formats", "doc"], "unknown report format 'doc'"),
    (["analyze", "job", "--ceilings", "spec"], "--ceilings does not apply to several ranks"),
    (["analyze", "job", "--jobs", "0"], "--jobs must be at least 1"),
    (["analyze", "job/rank0.json.gz", "--jobs", "2"], "--jobs does not apply to one run or trace"),
    (["analyze", "job/rank0.json.gz", "--dask", "tcp://x:1"], "--dask does not apply to one run or trace"),
    (["analyze", "job", "job/rank7.json.gz"], "two traces belong to rank 7"),
    (["analyze", "none*.json"], "no file matches the pattern 'none*.json'"),
    (["analyze", "job", "empty"], "no traces in the directory 'empty'"),
    (["analyze", "job/rank0.json.gz", "missing.json"], "cannot read the trace 'missing.json'"),
])  # fmt: skip
def test_what_is_refused(place, ask, arguments, message):
    Path("empty").mkdir()
    answer = ask(*arguments)
    assert answer.code == 2
    assert message in answer.err


def test_traces_are_found_by_number_and_ours_are_not(tmp_path):
    for name in ("rank10.json", "rank2.json.gz", "rank1.json.zst", "ranks.json", "analysis.json", "notes.txt"):
        (tmp_path / name).write_text("")
    # What is whole and has no events is another file; a damaged one is reported where it is read.
    (tmp_path / "config.json").write_text(' {"layers": [1, 2]}\n')
    (tmp_path / "rank3.json").write_text('{"schemaVersion": 1, "traceEv')
    found = ["rank1.json.zst", "rank2.json.gz", "rank3.json", "rank10.json"]
    assert [Path(path).name for path in find_traces([tmp_path])] == found


@pytest.mark.ci
def test_traces_behind_urls():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for rank in (0, 7):
        memory.pipe(f"/several/rank{rank}.json.gz", (DLRM / f"rank{rank}.json.gz").read_bytes())
    try:
        for source in ("memory://several/", "memory://several/*.gz"):
            assert [row.rank for row in pipeline.analyze_ranks([source], jobs=1).ranks] == [0, 7]
        with pytest.raises(UsageError, match="no file matches"):
            find_traces(["memory://several/*.zst"])
    finally:
        memory.rm("/several", recursive=True)


@pytest.mark.ci
def test_processes_say_what_one_says(place):
    traces = ["job/rank0.json.gz", "job/rank7.json.gz"]
    assert pipeline.analyze_ranks(traces, jobs=2) == pipeline.analyze_ranks(traces, jobs=1)


@pytest.mark.ci
def test_a_rank_that_cannot_be_read_is_named_whoever_reads_it(place):
    Path("job/rank3.json.gz").write_bytes((DLRM / "rank3.json.gz").read_bytes()[:20_000])
    for jobs in (1, 2):
        with pytest.raises(TraceError, match=r"rank3\.json\.gz.*damaged gzip file") as caught:
            pipeline.analyze_ranks(["job"], jobs=jobs)
        assert "partial=True" in caught.value.hint


@pytest.mark.ci
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_an_interrupt_ends_the_processes(place):
    # Traces that never come: pipes into which nobody writes.
    paths = ["rank1.json", "rank2.json"]
    for path in paths:
        os.mkfifo(path)
    child = start("analyze", *paths, "--jobs", 2, cwd=place)
    writers = []
    try:
        writers = [_once_it_is_read(path) for path in paths]
        processes = psutil.Process(child.pid).children(recursive=True)
        assert len(processes) >= 2
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert child.returncode == 130
        psutil.wait_procs(processes, timeout=1)
        assert not [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    finally:
        child.kill()
        child.wait()
        for writer in writers:
            os.close(writer)


def _once_it_is_read(path):
    """The open end to write of a pipe: it opens once a process waits at the other."""
    opened = []

    def opens():
        with contextlib.suppress(OSError):
            opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return opened

    wait_until(opens, timeout_s=120)
    return opened[0]


@pytest.mark.ci
def test_dask_reads_where_it_is_installed_and_is_said_to_be_missing_elsewhere(place, monkeypatch):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
    ) as cluster:  # fmt: skip
        found = pipeline.analyze_ranks(["job"], dask=cluster.scheduler_address)
    assert found == pipeline.analyze_ranks(["job"], jobs=1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        pipeline.analyze_ranks(["job"], dask="tcp://127.0.0.1:1")
    assert caught.value.hint == "pip install 'rooflines[dask]'"
