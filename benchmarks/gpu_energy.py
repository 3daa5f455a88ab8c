"""The energy of a matrix product held for 20 s, by the GPU's energy counter and by integrating its power: part of ``make gpu-check``.

Prints one JSON. The two must agree within 3 %.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HELD_S = 20.0
# The load goes on for longer than the driver averages power, before the window and behind it.
BESIDE_S = 1.5
AGREE = 0.03
SIZE = 8192
POWERS = ("power_w", "power_instant_w")


def main() -> int:
    """Measure on the first GPU and print what was found; 1 when the two disagree or one of them is not known."""
    sys.path.insert(0, str(ROOT))
    import torch

    from rooflines.profiler.samplers.process import torch_gpus

    one = torch.randn(SIZE, SIZE, device="cuda:0", dtype=torch.bfloat16)
    other = torch.randn(SIZE, SIZE, device="cuda:0", dtype=torch.bfloat16)
    out = torch.empty_like(one)

    def work(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(10):
                torch.matmul(one, other, out=out)
            torch.cuda.synchronize()

    work(1.0)
    found = measure(work, torch_gpus("cuda:0"), HELD_S)
    print(json.dumps({**found, "sentence": sentence(found)}))
    return 0 if found["agrees"] else 1


def measure(work: Callable[[float], None], gpus: dict[str, str], held_s: float) -> dict[str, Any]:
    """What the samples of the GPU say of ``held_s`` seconds of ``work``: energy by its counter and by its power, and how far apart."""
    import msgspec

    from rooflines.profiler.samplers.process import SamplerProcess
    from rooflines.roofline.usage.device_usage import Window, usage_of
    from rooflines.serial import to_plain

    with tempfile.TemporaryDirectory() as folder:
        # As often as the counters change: the sampler knows how often that is.
        sampler = SamplerProcess(os.getpid(), Path(folder) / "samples.jsonl", period_s=0.01, gpus=gpus)
        with sampler:
            work(BESIDE_S)
            begin_ns = time.time_ns()
            work(held_s)
            end_ns = time.time_ns()
            work(BESIDE_S)
        samples, counters, problem = sampler.samples(), sampler.counters(), sampler.problem
    (device,) = gpus
    taken = [sample for sample in samples if sample.device == device]
    found: dict[str, Any] = {"device": device, "window_s": (end_ns - begin_ns) / 1e9, "problem": problem, "readings": len(taken)}
    found["counters"] = [to_plain(counter) for counter in counters if counter.device == device]
    joules = {}
    for method, absent in (("counter", POWERS), ("power", ("energy_j",))):
        without = [msgspec.structs.replace(sample, **dict.fromkeys(absent)) for sample in taken]
        usage = usage_of(without, counters, Window(begin_ns, end_ns)).of(device) if without else None
        energy = usage.energy if usage is not None else None
        found[method] = to_plain(energy or (usage.no_energy if usage is not None else None) or {"reason": "it was not sampled"})
        if energy is not None:
            joules[method] = energy.energy_j
    found["agrees"] = False
    if len(joules) == 2:
        found["difference"] = joules["power"] / joules["counter"] - 1
        found["agrees"] = abs(found["difference"]) <= AGREE
    return found


def sentence(found: dict[str, Any]) -> str:
    """What was found, in a line."""
    texts = [
        f"{found[method]['energy_j']:.0f} J ±{found[method]['error_j']:.0f} by {method}"
        if "energy_j" in found[method]
        else f"nothing by {method}: {found[method]['reason']}"
        for method in ("counter", "power")
    ]
    apart = f", {found['difference'] * 100:+.1f} % apart" if "difference" in found else ""
    return f"{' and '.join(texts)} in {found['window_s']:.1f} s{apart}"


if __name__ == "__main__":
    sys.exit(main())
