"""The tests part: what is recorded of a run of pytest, also of one that is stopped, and of a package without tests."""

import pytest

from rooflines.gpu_check import tests as part
from rooflines.gpu_check.records import Device, Recorder
from rooflines.profiler.records import Environment

CODE = """
import pytest, time
def test_one(): pass
def test_two(): pass
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
def test_bad(): assert 1 == 2
def test_slow(): time.sleep(600)
"""


@pytest.fixture
def recorder(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "test_cases.py").write_text(CODE)
    return Recorder(tmp_path / "part", Device(environment=Environment(rooflines="0", device="cpu", device_name="a CPU")))


def run(recorder, *arguments, limit_s=120.0):
    part.run_tests(recorder, recorder.folder.parent, [*arguments, "-p", "no:randomly", "test_cases.py"], limit_s)
    findings = recorder.findings
    (check,) = findings.checks
    return findings.figures["results"], check.outcome, check.found


@pytest.mark.parametrize(("names", "results", "outcome", "words"), [
    ("one or two or skipped", {"passed": 2, "skipped": 1}, "ok", "2 passed, 1 skipped"),
    ("one or bad", {"passed": 1, "failed": 1}, "failed", "1 failed, 1 passed, exit code 1"),
    # tests that hang leave the results so far
    ("one or slow", {"passed": 1}, "failed", "1 passed, stopped after 6 s in test_cases.py::test_slow"),
    ("skipped", {"skipped": 1}, "left out", "none ran: 1 skipped"),
    ("nothing", {}, "left out", "none ran: exit code 5"),
])  # fmt: skip
def test_results_are_counted(recorder, names, results, outcome, words):
    assert run(recorder, "-k", names, limit_s=6 if "slow" in names else 120) == (results, outcome, words)


def test_only_files_with_such_tests_are_collected(recorder, monkeypatch):
    asked = []
    monkeypatch.setattr(part, "run_tests", lambda recorder, root, arguments, limit_s: asked.append((arguments, limit_s)))
    part.run(recorder)
    ((arguments, limit_s),) = asked
    assert arguments[:2] == ["-m", "gpu and not slow"]
    assert {"tests/pipeline/test_gpu.py", "tests/studies/networks/test_cnn_cuda.py"} <= set(arguments)
    assert "tests/test_units.py" not in arguments
    assert limit_s == recorder.left_s  # no limit: that of the part less what recording takes


def test_an_installed_package_has_none(recorder, monkeypatch):
    monkeypatch.setattr(part, "checkout", lambda: None)
    part.run(recorder)
    (omitted,) = recorder.findings.left_out
    assert "an installed package has no tests" in omitted.reason
    assert recorder.findings.figures == {}


def test_pytest_may_be_missing(recorder, monkeypatch):
    monkeypatch.setattr(part.importlib.util, "find_spec", lambda name: None)
    part.run(recorder)
    (omitted,) = recorder.findings.left_out
    assert omitted.reason == "pytest and hypothesis not installed"
