"""Running the command line as a user does, with ceilings from a file so that nothing is measured but the run."""

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rooflines.cli import main
from tests import warm
from tests.samples import ceilings

TIMEOUT_S = 300


@dataclass(frozen=True)
class Answer:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> list[str]:
        """The lines of standard error from our own line on: the message and its hint."""
        lines = self.err.splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith("rooflines: ")), len(lines))
        return lines[first:]


def write_ceilings(folder: Path) -> Path:
    """A file for ``--ceilings`` in ``folder``."""
    import msgspec

    path = folder / "ceilings.json"
    record = {"device": "test CPU", "kind": "cpu", "ceilings": [msgspec.to_builtins(ceiling) for ceiling in ceilings()]}
    path.write_text(json.dumps(record))
    return path


def traced_processes(folder: Path) -> list[set[int]]:
    """The processes in each trace of the points in ``folder``."""
    traces = (json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.glob("points/*/round-0/run/*.trace.json.gz")))
    return [{event["pid"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"} for trace in traces]


def quick(folder: Path) -> list[str]:
    """Options of a run that takes as few steps as there are."""
    return ["--ceilings", str(write_ceilings(folder)), "--formats", "json", "--steps", "2", "--warmup", "1", "--device", "cpu"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "rooflines", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Ours, with one thread so that tests disturb each other little, and no colors."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}


def run(*arguments: object, cwd: Path, given: str = "") -> Answer:
    """``rooflines ARGUMENTS`` in a process of its own that has torch loaded, with ``given`` as its input."""
    return Answer(*warm.run([*map(str, arguments)], cwd=cwd, environment=environment(), given=given, timeout_s=TIMEOUT_S))


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """``rooflines ARGUMENTS`` in a new process, left running, in a session of its own."""
    return subprocess.Popen(
        command(*arguments), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def call(capsys, monkeypatch, *arguments: object) -> Answer:
    """``rooflines ARGUMENTS`` in this process, which has loaded torch already: the entry point itself, its exit and its output."""
    monkeypatch.setattr(sys, "argv", ["rooflines", *map(str, arguments)])
    capsys.readouterr()
    code: object = 0
    try:
        main()
    except SystemExit as ending:
        code = ending.code or 0
    out, err = capsys.readouterr()
    assert isinstance(code, int)
    return Answer(code, out, err)


@contextlib.contextmanager
def mounted(*arguments):
    """A mount for the length of a test; skips where that is not allowed."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip() if done else 'no mount command'}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(arguments[-1])], check=True)
