"""How a part measures in its own process: what is recorded of one that fails, dies or hangs; and which device is tested."""

import sys
import time

import msgspec
import numpy as np
import pytest

from rooflines.errors import DeviceError
from rooflines.profiler.records import Environment
from tests.gpu import parts
from tests.gpu.parts import Check, Device, Findings, LeftOut, NotMeasured, Recorder, measured, outcome_of, run_logged
from tests.gpu.rehearsal import CPU
from tests.processes import ended, wait_until

FIRST = {"first": 1}


@pytest.fixture
def run(tmp_path):
    return lambda name, limit_s=60.0: measured(f"tests.gpu.rehearsal.parts_cases:{name}", CPU, tmp_path, limit_s)


def test_a_part_that_works_is_recorded(run, tmp_path):
    found, error = run("works")
    assert error == ""
    assert found == Findings(figures={"first": "cpu"}, left_out=[LeftOut(what="second", reason="there is one GPU")])
    assert msgspec.json.decode((tmp_path / "findings.json").read_bytes(), type=Findings) == found


@pytest.mark.ci
def test_a_part_that_fails_keeps_what_it_measured_and_says_why(run, tmp_path):
    found, error = run("raises")
    assert (found.figures, error) == (FIRST, "exit code 1: ZeroDivisionError: no steps")
    assert "Traceback" in (tmp_path / "log.errors.txt").read_text()
    assert run("refuses")[1] == "exit code 1: cuda:0 is busy: another program holds 3 GiB. Wait."
    assert run("dies")[1] == "exit code 3"


@pytest.mark.ci
def test_a_part_that_hangs_is_stopped_with_all_of_its_processes(run, tmp_path):
    begun = time.monotonic()
    found, error = run("hangs", 8.0)
    assert (found.figures, error) == (FIRST, "stopped after 8 s")
    assert time.monotonic() - begun < 60  # not the ten minutes that it would take
    wait_until(lambda: ended(int((tmp_path / "child").read_text())))  # a killed process may take a moment


def test_the_outcome_of_a_part():
    ok = Check(law="a law", subject="run", outcome="ok", found="")
    bad = msgspec.structs.replace(ok, outcome="failed")
    absent = LeftOut(what="counters", reason="ncu is not installed")
    assert outcome_of(Findings(figures=FIRST, checks=[ok]), "") == ("ok", "")
    assert outcome_of(Findings(figures=FIRST, checks=[ok, bad]), "") == ("failed", "1 of 2 checks failed")
    assert outcome_of(Findings(figures=FIRST, checks=[bad]), "stopped after 2 s") == ("failed", "stopped after 2 s")
    assert outcome_of(Findings(left_out=[absent]), "") == ("left out", "ncu is not installed")
    assert outcome_of(Findings(), "") == ("left out", "it measured nothing")


def test_figures_are_plain_and_those_that_are_missing_have_a_reason(tmp_path):
    recorder = Recorder(tmp_path, CPU, 60.0)
    recorder.figure("a", {"one": np.float32(0.5), "two": np.int64(2), "three": np.arange(2)})
    assert recorder.findings.figure("a", dict) == {"one": 0.5, "two": 2, "three": [0, 1]}
    with pytest.raises(TypeError, match="a figure cannot be object"):
        recorder.figure("b", object())
    with pytest.raises(NotMeasured, match="b was not measured"):
        recorder.findings.figure("b", dict)
    recorder.leave_out("b", "there is no b")
    with pytest.raises(NotMeasured, match="there is no b"):
        recorder.findings.figure("b", dict)


def test_variables_are_added_to_those_of_this_process(tmp_path):
    exits = "import os; raise SystemExit(int(os.environ['X']))"
    done = run_logged([sys.executable, "-c", exits], tmp_path / "log.txt", 60.0, variables={"X": "3"})
    assert (done.code, done.how) == (3, "exit code 3")


# --- the device


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
    assert parts.full_clock_hz(gpu, driver_hz) == expected


@pytest.mark.ci
def test_the_facts_pass_through_the_process_and_a_device_that_cannot_be_used_has_a_reason():
    assert parts.find_device("cpu").rehearsed
    with pytest.raises(DeviceError, match=r"torch was asked for cuda:99: exit code 1: \S+"):
        parts.find_device("cuda:99")


def test_visible_gpus_are_as_set_or_as_nvml_names_them(monkeypatch, stand_in_here):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stand_in_here("gpu\nuuid GPU-1\ngpu\nuuid GPU-2\n")
    assert parts.visible_gpus(2) == ("GPU-1", "GPU-2")
    assert parts.visible_gpus(1) == ("GPU-1",), "torch sees one slice of two boards with MIG"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-1")
    assert parts.visible_gpus(2) == ("3", "GPU-1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert parts.visible_gpus(0) == ()
