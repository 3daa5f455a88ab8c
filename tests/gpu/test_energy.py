"""The energy part: a matrix product held for 20 s, its energy by the GPU's energy counter and by integrating its power."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.process import SamplerProcess, torch_gpus
from rooflines.roofline.analysis import Energy, Unresolved
from rooflines.roofline.judge.usage.device_usage import Window, usage_of
from rooflines.serial import from_plain
from tests.gpu.laws import ENERGY_LAW, energy_verdict
from tests.gpu.parts import Device, Findings, Judge, Recorder, Verdict, named

HELD_S = 20.0
# The load goes on for longer than the driver averages power, before the window and behind it.
_BESIDE_S = 1.5
_SIZE = 8192
_POWERS = ("power_w", "power_instant_w")


def measure(recorder: Recorder) -> None:
    """Hold a bf16 product on the GPU."""
    import torch

    left, right = (torch.randn(_SIZE, _SIZE, device=recorder.torch_device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)

    def work(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(10):
                torch.matmul(left, right, out=out)
            torch.cuda.synchronize()

    work(1.0)
    samples = recorder.folder / "samples.jsonl"
    recorder.figure("held", held(work, torch_gpus(recorder.torch_device), HELD_S, samples))


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of a held load by its counter and by integrated power, or the reason why there is none (None: it was not sampled)."""

    device: str
    window_s: float
    readings: int
    counters: tuple[Counter, ...] = ()
    problem: str = ""
    counter: Energy | Unresolved | None = None
    power: Energy | Unresolved | None = None


def held(work: Callable[[float], None], gpus: dict[str, str], held_s: float, journal: Path) -> Held:
    """Return the energy of ``held_s`` seconds of ``work`` by the samples of the one GPU in ``gpus``, which are kept in ``journal``."""
    # As often as the counters change: the sampler knows how often that is.
    sampler = SamplerProcess(os.getpid(), journal, period_s=0.01, gpus=gpus)
    with sampler:
        work(_BESIDE_S)
        begin_ns = time.time_ns()
        work(held_s)
        end_ns = time.time_ns()
        work(_BESIDE_S)
    (device,) = gpus
    samples = [sample for sample in sampler.samples() if sample.device == device]
    counters = sampler.counters()
    window = Window(begin_ns, end_ns)
    return Held(
        device=device, window_s=window.length_s, readings=len(samples), problem=sampler.problem,
        counters=tuple(counter for counter in counters if counter.device == device),
        counter=_energy(samples, counters, window, device, without=_POWERS),
        power=_energy(samples, counters, window, device, without=("energy_j",)),
    )  # fmt: skip


def _energy(
    samples: Sequence[DeviceSample], counters: Sequence[Counter], window: Window, device: str, without: tuple[str, ...]
) -> Energy | Unresolved | None:
    """The energy by the fields of ``samples`` other than those in ``without``."""
    left = [msgspec.structs.replace(sample, **dict.fromkeys(without)) for sample in samples]
    usage = usage_of(left, counters, window).of(device) if left else None
    return None if usage is None else usage.energy or usage.no_energy


def energies_agree(found: Findings, device: Device) -> Verdict:
    held = found.figure("held", dict[str, Any])
    return energy_verdict(*(_recorded(held.get(method)) for method in ("counter", "power")))


def _recorded(plain: dict[str, Any] | None) -> Energy | Unresolved | None:
    return None if plain is None else from_plain(plain, Unresolved if "reason" in plain else Energy)


@pytest.mark.gpu
@pytest.mark.parametrize("law", named(f"a matrix product held for {HELD_S:.0f} s", {ENERGY_LAW: energies_agree}))
def test_energy(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)
