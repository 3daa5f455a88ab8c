"""What watching a data loader costs: an epoch of the quickest loader there is, watched and not, in turn (A B A B ...).

The loader does nothing but hand out batches of one number, so that the cost is a share of it that no real loader has. Prints the ratio
and the cost of a batch, and writes ``results/loading_cost.json`` with the machine's facts.

    python benchmarks/loading_cost.py [--pairs 41] [--batches 2000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.machine.environment import collect_environment
from rooflines.profiler.record.data_loading import LoaderWatch
from rooflines.serial import to_plain

RESULTS = Path(__file__).parent / "results" / "loading_cost.json"


def epoch_ns(loader: Any) -> int:
    """Processor nanoseconds of this thread over an epoch: what other programs take meanwhile is not in them."""
    begun = time.thread_time_ns()
    for _ in loader:
        pass
    return time.thread_time_ns() - begun


def main() -> None:
    import torch
    from torch.utils.data import DataLoader

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=41, help="how often both are run")
    parser.add_argument("--batches", type=int, default=2000, help="batches of an epoch")
    asked = parser.parse_args()
    loader = DataLoader(torch.arange(asked.batches), batch_size=None)

    def watched_ns() -> int:
        with LoaderWatch(Guard()) as watch:
            taken_ns = epoch_ns(loader)
            assert watch.take().batches == asked.batches
        return taken_ns

    epoch_ns(loader), watched_ns()
    pairs = [(epoch_ns(loader), watched_ns()) for _ in range(asked.pairs)]
    ratios = sorted(b / a for a, b in pairs)
    costs = sorted((b - a) / asked.batches for a, b in pairs)
    plain_ns = statistics.median(a for a, _ in pairs) / asked.batches
    result = {
        "benchmark": "loading_cost",
        "pairs": asked.pairs,
        "batches": asked.batches,
        "plain_ns_per_batch": round(plain_ns),
        "cost_ns_per_batch_median": round(statistics.median(costs)),
        "cost_ns_per_batch_quartiles": [round(costs[len(costs) // 4]), round(costs[3 * len(costs) // 4])],
        "ratio_median": round(statistics.median(ratios), 3),
        "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    low, high = result["cost_ns_per_batch_quartiles"]
    print(f"a batch of nothing        {plain_ns / 1e3:.1f} µs")
    print(f"watching it costs         {statistics.median(costs) / 1e3:.2f} µs more ({low / 1e3:.2f} to {high / 1e3:.2f}, quartiles)")
    print(f"ratio                     {statistics.median(ratios):.3f} (median of {asked.pairs} pairs)")


if __name__ == "__main__":
    main()
