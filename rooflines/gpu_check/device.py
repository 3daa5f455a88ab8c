"""The GPU of a check, found in a process of its own: a driver that hangs stops nothing, and this process holds no memory on the GPU."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from rooflines.device_specs import catalog, detect
from rooflines.errors import DeviceError, UsageError
from rooflines.gpu_check.commands import environment
from rooflines.gpu_check.records import Device
from rooflines.profiler.environment import collect_environment
from rooflines.serial import to_plain

GPU = "cuda:0"
_LIMIT_S = 120.0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The device, or the reason why there is none."""

    device: Device | None = None
    reason: str = ""


def find(name: str = GPU) -> Device:
    """The facts about the device that torch calls ``name``. Raises DeviceError with the reason where torch cannot use it."""
    command = [sys.executable, "-m", "rooflines.gpu_check.device", name]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"torch or the driver did not answer within {_LIMIT_S:.0f} s.") from None
    try:
        answer = msgspec.json.decode((done.stdout.splitlines() or [""])[-1], type=_Answer)
    except msgspec.DecodeError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise DeviceError(f"the process that asks torch ended with exit code {done.returncode}: {last}") from None
    if answer.device is None:
        raise DeviceError(answer.reason)
    return answer.device


def _here(name: str) -> _Answer:
    """The answer of this process."""
    try:
        import torch
    except ImportError as error:
        return _Answer(reason=f"torch cannot be imported: {error}.")
    if name == "cpu":
        return _Answer(device=Device(environment=msgspec.structs.replace(collect_environment(name), host=None)))
    if torch.version.hip is not None:
        return _Answer(reason="this torch is built for AMD GPUs.")
    if torch.version.cuda is None:
        return _Answer(reason="this torch is built without CUDA.")
    if not torch.cuda.is_available():
        return _Answer(reason="torch finds no usable NVIDIA GPU or driver.")
    device = Device(environment=msgspec.structs.replace(collect_environment(name), host=None))
    clock_hz = full_clock_hz(device, detect.gpu(torch.device(name).index or 0).sm_clock_hz)
    return _Answer(device=msgspec.structs.replace(device, max_clock_hz=clock_hz))


def full_clock_hz(device: Device, driver_hz: float | None) -> float | None:
    """The SM clock that ``device`` should hold, where the driver's highest is ``driver_hz``; None without either (see ``Device``)."""
    try:
        clocks = catalog.identify(device.environment.device_name, device.facts).sheet.clocks
    except UsageError:
        return driver_hz
    boost_hz = clocks["boost"].mhz * 1e6 if "boost" in clocks else None
    return min((one for one in (driver_hz, boost_hz) if one), default=None)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(to_plain(_here(sys.argv[1]))).decode() + "\n")
