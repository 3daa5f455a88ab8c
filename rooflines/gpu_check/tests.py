"""The tests part: the tests marked ``gpu``, except slow ones that other parts repeat, where the repository is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path

from rooflines.gpu_check.records import Recorder, judged, run_logged

_WHAT = "the tests that need a GPU"
_LAW = f"{_WHAT} pass"
# Before the end of the part, so that what was run until then is recorded.
_SPARE_S = 5.0
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED)\b")


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from; None for an installed one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "tests").is_dir() else None


def run(recorder: Recorder) -> None:
    """Run the tests marked ``gpu`` in their own process."""
    root = checkout()
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if root is None or missing:
        absent = f"{' and '.join(missing)} not installed"
        recorder.leave_out(_WHAT, absent if root else "an installed package has no tests; run make gpu-check in the repository")
        return
    # Only files with such a test: collecting all of them takes as long as some tests.
    marked = [str(path.relative_to(root)) for path in sorted((root / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    run_tests(recorder, root, ["-m", "gpu and not slow", *marked], recorder.left_s - _SPARE_S)


def run_tests(recorder: Recorder, root: Path, arguments: list[str], limit_s: float) -> None:
    """Run pytest in ``root`` and record how many tests had which result, also if it is stopped after ``limit_s`` seconds."""
    options = ("-v", "-p", "no:cacheprovider", "--tb=short", "--show-capture=stdout", "--durations=15")
    done = run_logged([sys.executable, "-m", "pytest", *arguments, *options], recorder.folder / "pytest.txt", limit_s, cwd=root)
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    results = Counter(result.lower() for line in lines for result in _RESULT.findall(line))
    recorder.figure("results", dict(results))
    ended = done.how
    if done.code is None:
        ended += f" in {lines[-1].split()[0] if lines and not _RESULT.search(lines[-1]) else 'the collection of tests'}"
    found = ", ".join([*(f"{count} {result}" for result, count in sorted(results.items())), *([] if done.code == 0 else [ended])])
    nothing_ran = not results["passed"] and done.code in (0, 5)  # 5: no test was collected
    recorder.check(judged(_LAW, "tests", f"none ran: {found or ended}" if nothing_ran else (done.code == 0, found)))
