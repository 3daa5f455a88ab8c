"""The tests part: the tests marked ``gpu`` elsewhere, except slow ones, in their own process with a time limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from tests.gpu.parts import ROOT, Device, Findings, Judge, NotMeasured, Recorder, Verdict, named, python, run_logged

_SUBJECT, _LAW = "tests", "the tests that need a GPU pass"
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED)\b")


def run_commands(recorder: Recorder) -> None:
    """Run the tests of every file that has one: collecting all files takes as long as some tests."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    elsewhere = [str(path.relative_to(ROOT)) for path in files if "gpu" not in path.parent.relative_to(ROOT).parts]
    run_tests(recorder, ["-m", "gpu and not slow", *elsewhere])


def run_tests(recorder: Recorder, arguments: list[str]) -> None:
    """Run pytest and record how many tests had which result, also if it is stopped."""
    options = ("-v", "-p", "no:cacheprovider", "--tb=short", "--show-capture=stdout", "--durations=15")
    done = run_logged(python("pytest", *arguments, *options), recorder.folder / "pytest.txt", recorder.left_s)
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    results = Counter(result.lower() for line in lines for result in _RESULT.findall(line))
    recorder.figure("results", dict(results))
    if done.code is None:
        last = lines[-1].split()[0] if lines and not _RESULT.search(lines[-1]) else "the collection of tests"
        recorder.error = f"{done.how} in {last}"
    elif done.code not in (0, 1, 5):  # 1: a test failed, 5: no test was collected
        recorder.error = done.how


def all_pass(found: Findings, device: Device) -> Verdict:
    results = found.figure("results", dict[str, int])
    if not results:
        raise NotMeasured("no test ran")
    counts = ", ".join(f"{count} {result}" for result, count in sorted(results.items()))
    if set(results) == {"skipped"}:
        return f"none ran: {counts}"
    return not {"failed", "error"} & set(results), counts


@pytest.mark.gpu
@pytest.mark.parametrize("law", named(_SUBJECT, {_LAW: all_pass}))
def test_tests(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)
