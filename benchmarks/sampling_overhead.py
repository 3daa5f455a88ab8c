"""What sampling costs the run beside it: a ResNet-18 training step on the CPU with and without a sampler process.

Each round runs three sides in turn, in an order that rotates: with everything sampled at the default rate, without, and without once
more. The first over the mean of the other two is the slowdown, the ratio of those two shows what the machine does by itself. A side
is a number of steps, timed as a whole. Starting and stopping the sampler is outside, as it is in a run, and one step more is outside on
every side: it finds the caches as the other side or the start left them. Rounds are short, because this kind of machine changes its
speed from one second to the next, and many. Medians over the rounds, with bootstrap
intervals. Also the sampler's memory and its share of a core. Writes ``results/sampling_overhead.json`` with the machine's facts, and
fails where the slowdown is above 1 % for certain, or the memory above 60 MB.

    python benchmarks/sampling_overhead.py [--rounds 120] [--steps 4] [--batch 4]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil

from rooflines.profiler.samplers.process import SamplerProcess

LIMIT_SLOWDOWN = 0.01
LIMIT_BYTES = 60_000_000
CONFIDENCE, RESAMPLES = 0.95, 10_000
RESULTS = Path(__file__).parent / "results" / "sampling_overhead.json"
SIDES = ("sampled", "alone", "again")


def training_step(batch: int) -> Callable[[], None]:
    """A step of ResNet-18 in fp32 with SGD on images of 224 pixels."""
    import torch
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], steps: int, before: Callable[[], None] = lambda: None) -> float:
    """What the steps take after one that is not timed; ``before`` is called between."""
    step()
    before()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - begun


class Sampled:
    """The side with a sampler, and what it found of the sampler itself."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "samples.jsonl"
        self.rss_bytes = 0
        self.shares: list[float] = []
        self.readings: list[float] = []
        self.sources: set[str] = set()
        self.problem = ""

    def seconds(self, step: Callable[[], None], steps: int) -> float:
        with SamplerProcess(os.getpid(), self._path, low_overhead=True) as sampler:
            process = psutil.Process(sampler.pid)
            spent, taken = [], []

            def note() -> None:
                spent.append(sum(process.cpu_times()[:2]))
                taken.append(sum(sample.source == "psutil" for sample in sampler.samples()))

            took_s = seconds(step, steps, note)
            note()
            self.rss_bytes = max(self.rss_bytes, process.memory_info().rss)
        self.shares.append((spent[1] - spent[0]) / took_s)
        self.readings.append((taken[1] - taken[0]) / took_s)
        self.sources |= {f"{sample.source} {sample.device}" for sample in sampler.samples()}
        self.problem = sampler.problem
        return took_s


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The bootstrap interval of the median."""
    random = np.random.default_rng(0)
    medians = np.median(random.choice(np.asarray(ratios), (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def summary(over: Sequence[float], under: Sequence[float]) -> dict[str, object]:
    """How much longer one side took than the other, round by round."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    low, high = interval(ratios)
    return {"median": round(statistics.median(ratios) - 1, 5), "interval": [round(low - 1, 5), round(high - 1, 5)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=120, help="how often every side is run")
    parser.add_argument("--steps", type=int, default=4, help="training steps of a side in a round")
    parser.add_argument("--batch", type=int, default=4, help="images in a step")
    options = parser.parse_args()

    step = training_step(options.batch)
    seconds(step, 2)  # the first steps allocate and choose kernels
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as directory:
        sampled = Sampled(Path(directory))
        for number in range(options.rounds):
            turn = number % len(SIDES)
            for side in SIDES[turn:] + SIDES[:turn]:
                times[side].append(sampled.seconds(step, options.steps) if side == "sampled" else seconds(step, options.steps))

    from rooflines.profiler.machine.environment import collect_environment
    from rooflines.serial import to_plain

    without = [statistics.mean(pair) for pair in zip(times["alone"], times["again"], strict=True)]
    slowdown, control = summary(times["sampled"], without), summary(times["again"], times["alone"])
    result = {
        "benchmark": "sampling_overhead",
        "workload": f"ResNet-18, training, batch {options.batch}, fp32, 224 x 224, CPU",
        "rounds": options.rounds,
        "steps": options.steps,
        "step_s": round(statistics.median(times["alone"]) / options.steps, 4),
        "slowdown": slowdown,
        "control": control,
        "confidence": CONFIDENCE,
        "limit_slowdown": LIMIT_SLOWDOWN,
        "sampler_rss_bytes": sampled.rss_bytes,
        "limit_rss_bytes": LIMIT_BYTES,
        "sampler_share_of_a_core": round(statistics.mean(sampled.shares), 5),
        "readings_per_s": round(statistics.mean(sampled.readings), 2),
        "sampled": sorted(sampled.sources),
        "not_sampled": sampled.problem,
        "load_average": [round(load, 2) for load in psutil.getloadavg()],
        "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    for name, found in (("slowdown", slowdown), ("without, twice", control)):
        low, high = found["interval"]
        print(f"{name:<15} {found['median']:+.2%}  ({CONFIDENCE:.0%} interval {low:+.2%} to {high:+.2%}; {options.rounds} rounds)")
    print(f"sampler         {sampled.rss_bytes / 1e6:.1f} MB, {result['sampler_share_of_a_core']:.2%} of a core", end="")
    print(f", {result['readings_per_s']} readings a second of {', '.join(result['sampled'])}")
    low, high = slowdown["interval"]
    if low > LIMIT_SLOWDOWN or sampled.rss_bytes > LIMIT_BYTES:
        sys.exit(f"above the limits of {LIMIT_SLOWDOWN:.0%} and {LIMIT_BYTES / 1e6:.0f} MB")
    print("below 1 %" if high < LIMIT_SLOWDOWN else "undecided whether below 1 %: run more rounds, on a quieter machine")


if __name__ == "__main__":
    main()
