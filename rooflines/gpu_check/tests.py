"""The tests part: the tests marked ``gpu``, except slow ones that other parts repeat, where the repository is there."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import checkout, run_logged
from rooflines.gpu_check.recorder import Recorder

_WHAT = "the tests that need a GPU"
_LAW = "the tests that need a GPU pass"
# Before the end of the part, so that what was run until then is recorded.
_SPARE_S = 5.0
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED)\b")


def run(recorder: Recorder) -> None:
    """Run the tests marked ``gpu`` in a process of their own."""
    root = checkout()
    if root is None:
        recorder.leave_out(_WHAT, "an installed package has no tests; run make gpu-check in the repository")
        return
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        recorder.leave_out(_WHAT, f"{' and '.join(missing)} not installed")
        return
    # Only files with such a test: collecting all of them takes as long as some tests.
    marked = [str(path.relative_to(root)) for path in sorted((root / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    run_tests(recorder, root, ["-m", "gpu and not slow", *marked], recorder.left_s - _SPARE_S)


def run_tests(recorder: Recorder, root: Path, arguments: list[str], limit_s: float) -> None:
    """Run pytest in ``root`` and record how many tests had which result, also if it is stopped after ``limit_s`` seconds."""
    options = ("-v", "-p", "no:cacheprovider", "--tb=short", "--show-capture=stdout", "--durations=15")
    command = [sys.executable, "-m", "pytest", *arguments, *options]
    log = recorder.folder / "pytest.txt"
    code = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = run_logged(command, log, cwd=root, timeout_s=limit_s).returncode
    lines = [line for line in log.read_text(errors="replace").splitlines() if "::" in line]
    results = Counter(result.lower() for line in lines for result in _RESULT.findall(line))
    recorder.figure("results", dict(results))
    ended = f"exit code {code}"
    if code is None:
        running = lines[-1].split()[0] if lines and not _RESULT.search(lines[-1]) else "the collection of tests"
        ended = f"stopped after {limit_s:.0f} s in {running}"
    found = ", ".join([*(f"{count} {result}" for result, count in sorted(results.items())), *([] if code == 0 else [ended])])
    if not results["passed"] and code in (0, 5):  # 5: no test was collected
        recorder.check(laws.left_out(_LAW, "tests", f"none ran: {found or ended}"))
    else:
        recorder.check(laws.judged(_LAW, "tests", code == 0, found))
