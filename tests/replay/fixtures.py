"""Puts a replayed device where the pipeline looks for one, over the stand-in NVML driver, and runs the command line on it."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rooflines.cli import main
from rooflines.device_specs.catalog import SheetFacts
from tests.commands import Answer
from tests.profiler.samplers.nvml_driver.fixtures import install, loaded_here
from tests.profiler.samplers.nvml_driver.signals import Term, lines
from tests.replay.device import POWER, UUID, AmdReplayDevice, ReplayDevice

# Where a name becomes a device.
_FIND_DEVICE = (
    "rooflines.pipeline.recording",
    "rooflines.pipeline.ceilings",
    "rooflines.profiler.workloads.prepare",
    "rooflines.profiler.record.device",
)
WORKLOAD = "def step():\n    from tests.replay import fixtures\n    return lambda: fixtures.replayed.run_step()\n"

EPOCH_S = float(int(time.time()))  # zero of the scripted signals
replayed: ReplayDevice  # the device that is replayed now


def driver_script(device: ReplayDevice, power: tuple[Term, ...] = POWER) -> str:
    """The stand-in driver's script of a GPU that is the device's and draws ``power``; none of NVIDIA's for one of AMD's."""
    if isinstance(device, AmdReplayDevice):
        return "error nvmlInit LIBRARY_NOT_FOUND\n"
    facts = device.recorded.facts
    major, minor = facts.capability
    return (
        f"epoch {EPOCH_S!r}\ndriver 575.51.03\ngpu\nname {facts.name}\nuuid {UUID}\ncapability {major}.{minor}\n"
        f"memory_total {facts.memory_bytes}\nmemory_used constant {facts.memory_bytes // 4}\n"
        f"{lines('power', *power)}update energy 0.01\nlimit constant 700\n"
        "utilization square 0.91 0.95 0.2\nupdate utilization 0.1\n"
        "temperature constant 61\nsm_clock constant 1.755e9\nmemory_clock constant 2.619e9\nthrottle constant 0\n"
    )


@contextlib.contextmanager
def replaying(device: ReplayDevice, folder: Path, library: Path, script: str | None = None) -> Iterator[Path]:
    """Inside, ``cuda`` is ``device``, and ``script`` is its driver's. Gives the file of a workload of its steps (``FILE:step``)."""
    global replayed
    facts = device.recorded.facts
    with pytest.MonkeyPatch.context() as patch:
        install(script or driver_script(device), library=library, folder=folder, patch=patch)
        patch.setattr("rooflines.profiler.record.collect.RecordedDevice", lambda _: device)
        for module in _FIND_DEVICE:
            patch.setattr(f"{module}.find_device", lambda _: device.torch_device)
        # The times of events are made up, and this machine may be late: their sum is not the wall time that it is on a GPU.
        patch.setattr("rooflines.profiler.record.device.EVENTS_SHARE", 1e9)
        named = facts.name, SheetFacts(kind="cuda", units=facts.units, memory_bytes=facts.memory_bytes)
        patch.setattr("rooflines.device_specs.live.named", lambda _: named)
        patch.setattr(torch.cuda, "get_rng_state", lambda *_: torch.get_rng_state())
        patch.setattr(torch.cuda, "set_rng_state", lambda *_: None)
        workload = folder / "replayed.py"
        workload.write_text(WORKLOAD)
        replayed = device
        with loaded_here(library, patch):
            yield workload


def rooflines(*arguments: object) -> Answer:
    """``rooflines ARGUMENTS`` in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["rooflines", *map(str, arguments)])
        patch.setenv("COLUMNS", "120")
        try:
            main()
        except SystemExit as ending:
            code = int(ending.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def every(step_ns: int) -> Callable[[int], int]:
    """Timed steps of this length, ±2 % in turn."""
    return lambda index: step_ns + step_ns * (index % 5 - 2) // 100


def profiled(device: ReplayDevice, folder: Path, library: Path, *options: object, script: str | None = None) -> Answer:
    """``rooflines profile`` of the steps of ``device``, judged by its data sheet, into ``folder``/run."""
    with replaying(device, folder, library, script) as workload:
        given = ("--device", "cuda", "--ceilings", "spec", "--warmup", 1, "--output", folder / "run")
        return rooflines("profile", f"{workload}:step", *given, *options)
