"""How a traced step is divided, from the raw events of a trace alone, to compare summaries with; does not import the package.

``python benchmarks/raw_step.py TRACE...`` prints for each trace, in milliseconds a step: the step, from the end of earlier work of the
device to the end of its own; for how long the device ran nothing, and for how long nothing was launched meanwhile; communication, and
the part of it during which nothing else ran. A folder holds the ranks of one job, of which it prints the means.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
HOST = ("cuda_runtime", "cuda_driver", "Runtime")
NAMES = ("step", "idle", "nothing launched", "communication", "exposed")


def union(spans: list[tuple[float, float]]) -> float:
    """The length of what ``spans`` cover together."""
    covered, end = 0.0, float("-inf")
    for begin, stop in sorted(spans):
        covered += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return covered


def figures(path: Path) -> list[float]:
    """The ``NAMES`` of a trace, in milliseconds a step."""
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    marks = [event for event in events if event["name"].startswith("ProfilerStep") and event["cat"] in ("user_annotation", "Operator")]
    launched = {event["args"].get("correlation"): event["ts"] for event in events if event["cat"] in HOST and "args" in event}
    work = sorted((event for event in events if event["cat"] in DEVICE), key=lambda event: event["ts"])
    begin = min(mark["ts"] for mark in marks)
    # What no launch in the trace belongs to was launched before it.
    earlier = [event for event in work if launched.get(event["args"].get("correlation"), 0) < begin]
    begin = max([begin, *(event["ts"] + event["dur"] for event in earlier)])
    end = max(event["ts"] + event["dur"] for event in (*marks, *work))
    own = [event for event in work if event not in earlier]

    spans = [(event["ts"], event["ts"] + event["dur"]) for event in own]
    # From behind, the first launch of all that runs at a time or later.
    first, launches = float("inf"), []
    for event in reversed(own):
        first = min(first, launched.get(event["args"].get("correlation"), float("inf")))
        launches.append(first)
    waited, at = 0.0, begin
    for (starts, stops), launch in zip(spans, reversed(launches), strict=True):
        waited += max(0.0, min(launch, starts) - at)
        at = max(at, stops)
    idle = end - begin - union(spans)
    waited += max(0.0, end - at)

    communication = [span for span, event in zip(spans, own, strict=True) if "nccl" in event["name"].lower()]
    other = [span for span, event in zip(spans, own, strict=True) if "nccl" not in event["name"].lower()]
    exposed = union(spans) - union(other)
    return [time_us / 1e3 / len(marks) for time_us in (end - begin, idle, waited, union(communication), exposed)]


if __name__ == "__main__":
    for source in map(Path, sys.argv[1:]):
        found = [figures(path) for path in (sorted(source.iterdir()) if source.is_dir() else [source])]
        means = map(statistics.mean, zip(*found, strict=True))
        print(source.name, *(f"{name} {mean:.3f}" for name, mean in zip(NAMES, means, strict=True)), sep="  ")
