"""How often ``rooflines compare`` is wrong: two runs of the same network, and two runs of which one has a layer that is 20 % slower.

Every try records three runs of a small convolutional network, one after another: A, B, and one in which a layer computes a sixth part
where the others compute five. A and B must not differ; the comparison of A with the third must call that layer slower. Each run builds
its network anew and records as ``rooflines.profile`` does. Writes ``results/compare_noise.json`` with the counts and the machine's
facts. Fails if A and B differ in more than 5 % of the tries, or if the slower layer is named in fewer than half of the tries that other
programs did not disturb so much that nothing is said.

    python benchmarks/compare_noise.py [--tries 100] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch
from torch import nn

from rooflines.profiler.record.collect import Recording, collect
from rooflines.profiler.records import Settings, Workload
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze
from rooflines.roofline.compare.compare import compare
from rooflines.roofline.compare.records import Comparison
from rooflines.serial import to_plain

RESULTS = Path(__file__).parent / "results" / "compare_noise.json"
PARTS = 5
CHANNELS, LAYERS = 24, 6


class Layer(nn.Module):
    """A convolution that takes its batch in parts, the first one twice if it is ``slow``: 20 % more time for one operator."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(into, out, 3, padding=1)
        self.slow = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        parts = batch.chunk(PARTS)
        if self.slow:
            self.convolution(parts[0])
        return torch.cat([self.convolution(part) for part in parts])


def network() -> nn.Sequential:
    """Such layers of the same size, each with a normalization and a ReLU."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [Layer(CHANNELS, CHANNELS), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(*layers).eval()


def recorded(directory: Path, slow: int | None = None) -> Analysis:
    """A run of the network, in which the layer ``slow`` is slower."""
    model, batch = network(), torch.randn(PARTS, CHANNELS, 32, 32)
    if slow is not None:
        model[slow].slow = True

    def step() -> None:
        with torch.inference_mode():
            model(batch)

    workload = Workload(name="network", mode="inference", batch_size=len(batch), source="step")
    return analyze(collect(step, Recording(directory, workload, torch.device("cpu"), settings=Settings(steps=10, warmup=3)))).analysis


def named(comparison: Comparison) -> set[str]:
    """The modules of the operators that are called slower or faster."""
    changes = [row for row in comparison.rows if row.direction in ("slower", "faster")]
    return {(row.after or row.before).module if row.kind == "operator" else row.kind for row in changes}


def differ(comparison: Comparison) -> bool:
    """Whether anything is called slower or faster: an operator, a module, or the step."""
    modules = [row for row in comparison.modules if row.direction in ("slower", "faster")]
    return bool(named(comparison) or modules or (comparison.pace is not None and comparison.pace.exceeds_noise))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    layers = range(0, 3 * LAYERS, 3)
    counts = {
        "same differ": 0,
        "step differs": 0,
        "same judged": 0,
        "slower judged": 0,
        "slower named": 0,
        "only it named": 0,
        "others named": 0,
    }
    drifts, shares = [], []
    began = time.perf_counter()
    for number in range(asked.tries):
        slow = layers[number % len(layers)]
        with tempfile.TemporaryDirectory() as folder:
            runs = [recorded(Path(folder) / name, which) for name, which in (("a", None), ("b", None), ("c", slow))]
        same, slower = compare(runs[0], runs[1]), compare(runs[0], runs[2])
        found = {row.after.module for row in slower.rows if row.kind == "operator" and row.direction == "slower"}
        layer = f"{slow}.convolution"
        others = {name for name in named(slower) if not name.startswith(str(slow))}
        counts["same differ"] += differ(same)
        counts["same judged"] += same.drift is not None
        counts["step differs"] += bool(same.pace.exceeds_noise)
        counts["slower judged"] += slower.drift is not None
        counts["slower named"] += layer in found
        counts["only it named"] += layer in found and not others
        counts["others named"] += bool(others)
        drifts.append(same.drift.factor if same.drift is not None else None)
        row = next(row for row in runs[0].operators if row.module == layer)
        shares.append(0.2 * row.time_s / runs[0].timeline.span_s)
    known = sorted(abs(one - 1) for one in drifts if one is not None)
    result = {
        "benchmark": "compare_noise",
        "tries": asked.tries,
        "traced_steps": len(runs[0].traced_steps),
        "counts": counts,
        "drift_median": round(known[len(known) // 2], 4) if known else None,
        "drift_largest": round(known[-1], 4) if known else None,
        "slower_share_of_step": [round(min(shares), 4), round(max(shares), 4)],
        "step_ms": round(1e3 * runs[0].steps.median_s, 3),
        "operators": len(runs[0].operators),
        "seconds": round(time.perf_counter() - began, 1),
        "load_average": [round(load, 2) for load in psutil.getloadavg()],
        "environment": {key: value for key, value in to_plain(runs[0].environment).items() if key != "host"},
    }
    text = json.dumps(result, indent=1)
    asked.output.write_text(text + "\n", encoding="utf-8")
    print(text)
    if counts["same differ"] > 0.05 * asked.tries or counts["slower named"] < 0.5 * counts["slower judged"]:
        sys.exit("the law does not hold on this machine")


if __name__ == "__main__":
    main()
