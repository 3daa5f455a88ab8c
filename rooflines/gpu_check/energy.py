"""The energy part: a matrix product held for 20 s, its energy by the GPU's energy counter and by integrating its power."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rooflines.gpu_check import laws
from rooflines.gpu_check.recorder import Recorder
from rooflines.profiler.samplers.process import SamplerProcess, torch_gpus
from rooflines.roofline.usage.device_usage import Window, usage_of
from rooflines.serial import to_plain

HELD_S = 20.0
# The load goes on for longer than the driver averages power, before the window and behind it.
_BESIDE_S = 1.5
_SIZE = 8192
_POWERS = ("power_w", "power_instant_w")


def run(recorder: Recorder) -> None:
    """Hold a bf16 product on the GPU and compare its two energies."""
    import torch

    one = torch.randn(_SIZE, _SIZE, device=recorder.device, dtype=torch.bfloat16)
    other = torch.randn(_SIZE, _SIZE, device=recorder.device, dtype=torch.bfloat16)
    out = torch.empty_like(one)

    def work(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(10):
                torch.matmul(one, other, out=out)
            torch.cuda.synchronize()

    work(1.0)
    found = measured(work, torch_gpus(recorder.device), HELD_S, recorder.folder / "samples.jsonl")
    recorder.figure("held", found)
    recorder.check(laws.energies_agree("a matrix product held for 20 s", found))


def measured(work: Callable[[float], None], gpus: dict[str, str], held_s: float, journal: Path) -> dict[str, Any]:
    """What the samples of the GPU, kept in ``journal``, say of ``held_s`` seconds of ``work``.

    ``counter`` and ``power`` are the energy by either method, or the reason why there is none.
    """
    # As often as the counters change: the sampler knows how often that is.
    sampler = SamplerProcess(os.getpid(), journal, period_s=0.01, gpus=gpus)
    with sampler:
        work(_BESIDE_S)
        begin_ns = time.time_ns()
        work(held_s)
        end_ns = time.time_ns()
        work(_BESIDE_S)
    samples, counters, problem = sampler.samples(), sampler.counters(), sampler.problem
    (device,) = gpus
    taken = [sample for sample in samples if sample.device == device]
    found: dict[str, Any] = {"device": device, "window_s": (end_ns - begin_ns) / 1e9, "problem": problem, "readings": len(taken)}
    found["counters"] = [to_plain(counter) for counter in counters if counter.device == device]
    for method, absent in (("counter", _POWERS), ("power", ("energy_j",))):
        without = [msgspec.structs.replace(sample, **dict.fromkeys(absent)) for sample in taken]
        usage = usage_of(without, counters, Window(begin_ns, end_ns)).of(device) if without else None
        energy = usage.energy if usage is not None else None
        found[method] = to_plain(energy or (usage.no_energy if usage is not None else None) or {"reason": "it was not sampled"})
    return found
