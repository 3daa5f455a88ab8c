"""The parts of the GPU check: their order, their share of the time, and the result of one that fails or hangs."""

import re
import time
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from rooflines.errors import DeviceError, UsageError
from rooflines.gpu_check import EVIDENCE_S, PARTS, TOTAL_S, PartPlan, check, chosen, limit_s
from rooflines.gpu_check.records import Check, Device, Findings, LeftOut
from rooflines.profiler.records import Environment
from rooflines.sweeps.process import JobError
from tests.processes import ended, wait_until

CPU = Device(environment=Environment(rooflines="0", device="cpu", device_name="a CPU"))


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Runs a function of ``parts_cases`` as a part."""
    monkeypatch.chdir(Path(__file__).parents[2])

    def run(name, limit=60.0):
        return check.run_part(PartPlan(name, f"tests.gpu_check.parts_cases:{name}", 1, ""), CPU, tmp_path / name, limit)

    return run


def test_order_and_time_of_the_parts():
    # Order and time of a whole check.
    assert [one.name for one in PARTS] == ["ceilings", "profiles", "energy", "networks", "counters", "tests"]
    assert sum(one.share_s for one in PARTS) + EVIDENCE_S <= TOTAL_S == 600
    for one in PARTS:
        module, _, name = one.function.partition(":")
        assert callable(getattr(import_module(module), name))
    # The documentation has the parts and their time.
    text = (Path(__file__).parents[2] / "docs" / "gpu-check.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) s \|$", text, re.MULTILINE)
    assert [(name, float(share_s)) for name, share_s in rows] == [(one.name, one.share_s) for one in PARTS]
    # Parts are chosen by name and run in their order.
    assert chosen(None) == PARTS
    assert [one.name for one in chosen("tests, ceilings")] == ["ceilings", "tests"]
    with pytest.raises(UsageError, match="unknown part 'test' of the GPU check"):
        chosen("tests,test")
    with pytest.raises(UsageError, match="no part of the GPU check was named"):
        chosen(",")


def test_a_part_may_use_what_others_left_over_but_nothing_of_those_that_follow():
    plans = [PartPlan("a", "", 100, ""), PartPlan("b", "", 200, ""), PartPlan("c", "", 60, "")]
    most = TOTAL_S - EVIDENCE_S
    assert limit_s(plans, 0, 0) == most - 260
    assert limit_s(plans, 1, 20) == most - 20 - 60
    assert limit_s(plans, 2, most - 60) == 60
    assert limit_s(plans, 2, most + 60) > 0  # never none: it fails at once instead of running without a limit
    # however long each takes of its limit, the whole takes no longer
    elapsed = 0.0
    for index in range(3):
        elapsed += limit_s(plans, index, elapsed)
    assert elapsed == most


def test_a_part_that_works_is_recorded(part, tmp_path):
    found = part("works")
    assert (found.outcome, found.reason) == ("ok", "")
    assert found.findings.figures == {"first": "cpu"}
    assert [check.law for check in found.findings.checks] == ["a law"]
    assert msgspec.json.decode((tmp_path / "works" / "findings.json").read_bytes(), type=Findings) == found.findings


def test_a_part_that_fails_keeps_what_it_measured_and_says_why(part, tmp_path):
    found = part("raises")
    assert (found.outcome, found.reason) == ("failed", "its process ended (exit code 1): ZeroDivisionError: no steps")
    assert found.findings.figures == {"first": 1}
    assert "Traceback" in (tmp_path / "raises" / "log.txt").read_text()
    assert part("refuses").reason == "cuda:0 is busy: another program holds 3 GiB. Wait."
    assert part("dies").reason == "its process ended (exit code 3)"


@pytest.mark.slow
def test_a_part_that_hangs_is_stopped_with_all_of_its_processes(part, tmp_path):
    begun = time.monotonic()
    found = part("hangs", 10.0)
    assert (found.outcome, found.reason) == ("failed", "its process was stopped after 10 s")
    assert found.findings.figures == {"first": 1}
    assert time.monotonic() - begun < 60  # not the ten minutes that it would take
    wait_until(lambda: ended(int((tmp_path / "hangs" / "child").read_text())))  # a killed process may take a moment


def test_the_outcome_of_a_part():
    ok = Check(law="a law", subject="run", outcome="ok", found="")
    bad = msgspec.structs.replace(ok, outcome="failed")
    absent = LeftOut(what="counters", reason="ncu is not installed")

    def outcome(error="", **fields):
        return check.outcome_of(Findings(**fields), error)

    assert outcome(figures={"a": 1}, checks=[ok]) == ("ok", "")
    assert outcome(figures={"a": 1}, checks=[ok, bad]) == ("failed", "1 of 2 checks failed")
    assert outcome("stopped after 2 s", figures={"a": 1}, checks=[ok, bad]) == ("failed", "stopped after 2 s")
    assert outcome(left_out=[absent]) == ("left out", "ncu is not installed")
    assert outcome(figures={"a": 1}, left_out=[absent]) == ("ok", "")
    assert outcome() == ("left out", "it measured nothing")


@pytest.mark.parametrize(("name", "units", "driver_hz", "expected"), [
    ("NVIDIA H100 80GB HBM3", 132, 1.98e9, 1.98e9),
    ("NVIDIA H100 80GB HBM3", 132, 1.7e9, 1.7e9),  # an administrator's limit
    ("NVIDIA GeForce RTX 4090", 128, 3.105e9, 2.52e9),  # its driver names a clock that it does not reach under load
    ("NVIDIA H100 80GB HBM3", 132, None, 1.98e9),
    ("a GPU without a sheet", 7, 2e9, 2e9),
    ("a GPU without a sheet", 7, None, None),
])  # fmt: skip
def test_the_clock_that_a_device_should_hold(name, units, driver_hz, expected):
    gpu = Device(environment=Environment(rooflines="0", device="cuda:0", device_name=name, device_units=units))
    assert check.full_clock_hz(gpu, driver_hz) == expected


@pytest.mark.parametrize(("error", "message"), [
    (JobError("this torch is built without CUDA."), "this torch is built without CUDA."),
    (JobError("its process ended (killed by signal 11): x"), r"the process that asks torch ended \(killed by signal 11\): x"),
    (JobError("its process was stopped after 120 s"), "the process that asks torch was stopped after 120 s"),
])  # fmt: skip
def test_a_device_that_cannot_be_used_has_a_reason(monkeypatch, error, message):
    def run_job(job, progress):
        assert job.limit_s == 120
        raise error

    monkeypatch.setattr(check, "run_job", run_job)
    with pytest.raises(DeviceError, match=message):
        check.find_device()


def test_the_facts_pass_through_the_process(monkeypatch):
    answer = b'{"environment": {"rooflines": "0", "device": "cuda:0", "device_name": "NVIDIA H200"}, "max_clock_hz": 1.98e9}'
    monkeypatch.setattr(check, "run_job", lambda job, progress: answer)
    assert check.find_device().max_clock_hz == 1.98e9
