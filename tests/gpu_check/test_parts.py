"""The parts of the GPU check: their order, their share of the time, and what becomes of one that fails or hangs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from rooflines.errors import UsageError
from rooflines.gpu_check import parts, process
from rooflines.gpu_check.parts import EVIDENCE_S, PARTS, TOTAL_S, PartPlan, chosen, limit_s
from rooflines.gpu_check.process import result, run_part
from rooflines.gpu_check.records import Check, Device, Findings, LeftOut
from rooflines.profiler.records import Environment
from rooflines.serial import write_json
from tests.processes import ended, wait_until

CODE = """
import os, pathlib, subprocess, sys, time
from rooflines.errors import DeviceError
from rooflines.gpu_check import laws, parts

def hangs(recorder):
    recorder.figure("first", 1)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (recorder.folder / "child").write_text(str(child.pid))
    time.sleep(600)

def raises(recorder):
    recorder.figure("first", 1)
    raise ZeroDivisionError("no steps")

def refuses(recorder):
    raise DeviceError("cuda:0 is busy: another program holds 3 GiB.", hint="Wait.")

def dies(recorder):
    os._exit(3)

def works(recorder):
    recorder.figure("first", recorder.torch_device)
    recorder.check(laws.judged("a law", "works", True, "found"))
"""


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Runs a function of ``CODE`` as a part."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sitecustomize.py").write_text(
        "import rooflines.gpu_check.parts as parts\n"
        "names = ('hangs', 'raises', 'refuses', 'dies', 'works')\n"
        "parts.PARTS = tuple(parts.PartPlan(name, f'cases_of_parts:{name}', 1, '') for name in names)\n"
    )
    (tmp_path / "modules" / "cases_of_parts.py").write_text(CODE)
    root = str(Path(parts.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "modules"), root]))
    monkeypatch.setattr("rooflines.gpu_check.process.environment", lambda: dict(os.environ))
    write_json(tmp_path / "device.json", Device(environment=Environment(rooflines="0", device="cpu", device_name="a CPU")))

    def run(name, limit=60.0):
        folder = tmp_path / name
        folder.mkdir()
        return run_part(PartPlan(name, "", 1, ""), folder, limit)

    return run


def test_order_and_time_of_a_whole_check():
    assert [one.name for one in PARTS] == ["ceilings", "profiles", "energy", "networks", "counters", "tests"]
    assert sum(one.share_s for one in PARTS) + EVIDENCE_S <= TOTAL_S == 600
    for one in PARTS:
        assert callable(process.function_of(one))


def test_the_documentation_has_the_parts_and_their_time():
    text = (Path(parts.__file__).parents[2] / "docs" / "gpu-check.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) s \|$", text, re.MULTILINE)
    assert [(name, float(share_s)) for name, share_s in rows] == [(one.name, one.share_s) for one in PARTS]


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


def test_parts_are_chosen_by_name_and_run_in_their_order():
    assert chosen(None) == PARTS
    assert [one.name for one in chosen("tests, ceilings")] == ["ceilings", "tests"]
    with pytest.raises(UsageError, match="unknown part 'test' of the GPU check"):
        chosen("tests,test")
    with pytest.raises(UsageError, match="no part of the GPU check was named"):
        chosen(",")


def test_a_part_that_works_is_recorded(part):
    found = part("works")
    assert (found.outcome, found.reason) == ("ok", "")
    assert found.findings.figures == {"first": "cpu"}
    assert [check.law for check in found.findings.checks] == ["a law"]


def test_a_part_that_fails_keeps_what_it_measured_and_says_why(part, tmp_path):
    found = part("raises")
    assert (found.outcome, found.reason) == ("failed", "ZeroDivisionError: no steps")
    assert found.findings.figures == {"first": 1}
    assert "Traceback" in (tmp_path / "raises" / "log.txt").read_text()
    assert part("refuses").reason == "cuda:0 is busy: another program holds 3 GiB. Wait."
    assert part("dies").reason == "its process ended with exit code 3"


def test_a_part_that_hangs_is_stopped_with_all_of_its_processes(part, tmp_path):
    begun = time.monotonic()
    found = part("hangs", 10.0)
    assert (found.outcome, found.reason) == ("failed", "stopped after 10 s")
    assert found.findings.figures == {"first": 1}
    assert time.monotonic() - begun < 60  # not the ten minutes that it would take
    wait_until(lambda: ended(int((tmp_path / "hangs" / "child").read_text())))  # a killed process may take a moment


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch):
    """As one that waits inside a driver that does not answer."""
    sent, waited = [], []

    class Stuck:
        pid = 4711

        def wait(self, seconds=None):
            waited.append(seconds)
            raise subprocess.TimeoutExpired("worker", seconds)

    monkeypatch.setattr(process.os, "killpg", lambda pid, number: sent.append((pid, number)))
    process._end(Stuck())
    assert sent == [(4711, signal.SIGTERM), (4711, signal.SIGKILL)]
    assert None not in waited


def test_the_outcome_of_a_part():
    plan = PartPlan("a", "", 1, "")
    check = Check(law="a law", subject="run", outcome="ok", found="")
    bad = msgspec.structs.replace(check, outcome="failed")
    absent = LeftOut(what="counters", reason="ncu is not installed")

    def outcome(error="", **fields):
        found = result(plan, Findings(**fields), error, 1.0, 2.0)
        return found.outcome, found.reason

    assert outcome(figures={"a": 1}, checks=[check]) == ("ok", "")
    assert outcome(figures={"a": 1}, checks=[check, bad]) == ("failed", "1 of 2 checks failed")
    assert outcome("stopped after 2 s", figures={"a": 1}, checks=[check, bad]) == ("failed", "stopped after 2 s")
    assert outcome(left_out=[absent]) == ("left out", "ncu is not installed")
    assert outcome(figures={"a": 1}, left_out=[absent]) == ("ok", "")
    assert outcome() == ("left out", "it measured nothing")
