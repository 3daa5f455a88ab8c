"""The tests part: the tests marked ``gpu``, where the repository is there."""

from __future__ import annotations

import importlib.util
import sys

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import checkout, run_logged
from rooflines.gpu_check.recorder import Recorder


def run(recorder: Recorder) -> None:
    """Run the tests marked ``gpu`` in a process of their own."""
    root = checkout()
    if root is None:
        recorder.leave_out(
            "the tests that need a GPU", "an installed package does not contain the tests; run make gpu-check in the repository"
        )
        return
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        recorder.leave_out("the tests that need a GPU", f"{' and '.join(missing)} not installed")
        return
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "--tb=short"]
    done = run_logged(command, recorder.folder / "pytest.txt", cwd=root)
    summary = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    recorder.figure("summary", summary)
    recorder.check(laws.judged("the tests that need a GPU pass", "tests", done.returncode == 0, summary))
