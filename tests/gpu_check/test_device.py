"""The device of a check: the clock that it should hold, and what becomes of a driver that fails."""

from __future__ import annotations

import subprocess

import pytest

from rooflines.errors import DeviceError
from rooflines.gpu_check import device
from rooflines.gpu_check.records import Device
from rooflines.profiler.records import Environment


def gpu(name, units):
    return Device(environment=Environment(rooflines="0", device="cuda:0", device_name=name, device_units=units))


@pytest.mark.parametrize(
    ("name", "units", "driver_hz", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 132, 1.98e9, 1.98e9),
        ("NVIDIA H100 80GB HBM3", 132, 1.7e9, 1.7e9),  # an administrator's limit
        ("NVIDIA GeForce RTX 4090", 128, 3.105e9, 2.52e9),  # its driver names a clock that it does not reach under load
        ("NVIDIA H100 80GB HBM3", 132, None, 1.98e9),
        ("a GPU without a sheet", 7, 2e9, 2e9),
        ("a GPU without a sheet", 7, None, None),
    ],
)
def test_the_clock_that_a_device_should_hold(name, units, driver_hz, expected):
    assert device.full_clock_hz(gpu(name, units), driver_hz) == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"stdout": '{"reason": "this torch is built without CUDA."}'}, "this torch is built without CUDA."),
        (
            {"stdout": "a warning of a driver\n", "stderr": "x\nSegmentation fault", "returncode": -11},
            "exit code -11: Segmentation fault",
        ),
        ({"stdout": ""}, "ended with exit code 0"),
    ],
)
def test_a_device_that_cannot_be_used_has_a_reason(monkeypatch, answer, message):
    done = subprocess.CompletedProcess([], **{"returncode": 0, "stdout": "", "stderr": ""} | answer)
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(DeviceError, match=message):
        device.find()


def test_a_driver_that_hangs_stops_nothing(monkeypatch):
    def run(*_, timeout, **__):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(device.subprocess, "run", run)
    with pytest.raises(DeviceError, match="did not answer within 120 s"):
        device.find()


def test_the_facts_pass_through_the_process(monkeypatch):
    answer = '{"device": {"environment": {"rooflines": "0", "device": "cuda:0", "device_name": "NVIDIA H200"}, "max_clock_hz": 1.98e9}}'
    done = subprocess.CompletedProcess([], 0, f"a warning\n{answer}\n", "")
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: done)
    assert device.find().max_clock_hz == 1.98e9
