"""What the early traced step costs the timed steps behind it: steps before it and after it, profiler off, in many rounds.

A program's second step is traced, and its timed steps follow (``record/passes.py``). Each round times some steps before and as
many after one step in between. In every second round that step is traced and its trace written as in a run; in the others it is an
ordinary step. As in a run, the first step after it is not timed. The overhead is the ratio after / before with the trace, divided by
the same ratio without: medians with bootstrap intervals. Writes ``results/early_trace.json`` with the machine's facts. Fails if the
whole interval of the overhead lies above zero.

    python benchmarks/early_trace.py [--rounds 60] [--steps 6]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from sampling_overhead import CONFIDENCE, interval, training_step

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.module_hooks import ModuleRanges
from rooflines.profiler.record.tracer import Tracer

RESULTS = Path(__file__).parent / "results" / "early_trace.json"


def small_step() -> Callable[[], None]:
    """A training step of many small operators, where a leftover of the profiler would show most: a transformer's layer, Adam."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    tokens = torch.randn(4, 16, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    return step


def median_s(step: Callable[[], None], steps: int) -> float:
    """The median step of ``steps``, behind one that is not timed."""
    step()
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def traced(step: Callable[[], None], path: Path) -> None:
    """One step under the profiler, with ranges around modules, and its trace written."""
    import torch

    tracer = Tracer(lambda: torch.device("cpu"), cuda=False, steps=1, modules=ModuleRanges(), guard=Guard())
    tracer.start()
    step()
    tracer.step()
    tracer.write(path)


def measure(step: Callable[[], None], rounds: int, steps: int, path: Path) -> dict[str, object]:
    """Median and interval of after / before, with a traced step between them, without, and of the one over the other."""
    ratios: dict[str, list[float]] = {"traced": [], "ordinary": []}
    for _ in range(10):
        step()
    for number in range(2 * rounds):
        side = "traced" if number % 2 else "ordinary"
        before = median_s(step, steps)
        if side == "traced":
            traced(step, path)
        else:
            step()
        ratios[side].append(median_s(step, steps) / before)
    pairs = [a / b for a, b in zip(ratios["traced"], ratios["ordinary"], strict=True)]
    found = {}
    for name, values in (*ratios.items(), ("overhead", pairs)):
        low, high = interval(values)
        found[name] = {"median": round(statistics.median(values) - 1, 5), "interval": [round(low - 1, 5), round(high - 1, 5)]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each kind")
    parser.add_argument("--steps", type=int, default=6, help="steps timed before and after")
    options = parser.parse_args()
    workloads = {"ResNet-18, training, batch 4, 224 x 224": training_step(4), "transformer layer, training, Adam": small_step()}
    with tempfile.TemporaryDirectory() as directory:
        found = {
            name: measure(step, options.rounds, options.steps, Path(directory) / "trace.json.gz") for name, step in workloads.items()
        }

    from rooflines.profiler.machine.environment import collect_environment
    from rooflines.serial import to_plain

    result = {
        "benchmark": "early_trace",
        "rounds": options.rounds,
        "steps": options.steps,
        "confidence": CONFIDENCE,
        "workloads": found,
        "load_average": [round(load, 2) for load in psutil.getloadavg()],
        "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    certain = False
    for name, sides in found.items():
        print(name)
        for side, one in sides.items():
            low, high = one["interval"]
            print(f"  {side:<9} {one['median']:+.2%}  ({CONFIDENCE:.0%} interval {low:+.2%} to {high:+.2%})")
        certain = certain or sides["overhead"]["interval"][0] > 0
    if certain:
        sys.exit("the early traced step slows the steps behind it")
    print("no overhead beyond noise")


if __name__ == "__main__":
    main()
