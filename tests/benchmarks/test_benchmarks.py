"""``benchmarks/trace_coverage.py``: which files count, and the page of results shows what it wrote."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "data" / "traces"
RESULTS = ROOT / "benchmarks" / "results" / "trace_coverage.json"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("trace_coverage", ROOT / "benchmarks" / "trace_coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_copies_count_once_and_other_files_are_refused(benchmark, tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    for name in ("a/one.json.gz", "b/copy.json.gz"):
        (clone / name).parent.mkdir(parents=True)
        shutil.copy(TRACES / "triton_kernel.json.gz", clone / name)
    (clone / "package.json").write_text('{"name": "no trace"}')
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text("before\n<!-- coverage -->\nold\n<!-- end -->\nafter\n")
    arguments = ["trace_coverage.py", f"owner/name={clone}", "-o", str(output), "--page", str(page)]
    monkeypatch.setattr(sys, "argv", arguments)
    benchmark.main()
    result = json.loads(output.read_text())
    assert [row["path"] for row in result["traces"]] == ["a/one.json.gz"]
    assert [row["path"] for row in result["refused"]] == ["package.json"]
    assert str(tmp_path) not in output.read_text()
    text = page.read_text()
    assert text.startswith("before\n<!-- coverage -->\n| trace |")
    assert "name `a/one.json.gz`" in text
    assert text.endswith("<!-- end -->\nafter\n")


def git(clone, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", "-C", str(clone), *identity, *arguments], check=True, capture_output=True, text=True).stdout


def test_archives_are_unpacked_and_deleted_traces_are_named_with_the_commit_that_added_them(benchmark, tmp_path):
    clone, old = tmp_path / "clone", Path("tests") / "old.json.gz"
    (clone / "tests").mkdir(parents=True)
    git(clone, "init", "-q")
    shutil.copy(TRACES / "triton_kernel.json.gz", clone / old)
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "one")
    added = git(clone, "rev-parse", "--short=8", "HEAD").strip()
    (clone / old).unlink()
    with tarfile.open(clone / "more.tar.gz", "w:gz") as archive:
        archive.add(TRACES / "event_sync_multi_stream.json.gz", "cases/sync/trace.json.gz")
    (clone / "absent.json.gz").write_bytes(b"")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "two")
    (clone / "absent.json.gz").unlink()
    names = [one.name for one in benchmark.traces_in(clone, tmp_path / "work")]
    assert names == ["more.tar.gz: sync/trace.json.gz", f"tests/old.json.gz at {added}"]
    assert benchmark.absent(clone) == ["absent.json.gz"]


def test_the_page_shows_the_results(benchmark):
    rows = json.loads(RESULTS.read_text())["traces"]
    assert f"<!-- coverage -->\n{benchmark.table(rows)}\n<!-- end -->" in RESULTS.with_suffix(".md").read_text()
