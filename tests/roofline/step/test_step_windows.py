"""The step and its timeline against a second computation, from the events of the file and in plain Python."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.roofline.real import analysis_of, every_trace

ON_DEVICE = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "runtime"}

Event = dict[str, Any]
Spans = list[tuple[float, float]]


def length(spans: Spans) -> float:
    """The length of the union, by a sweep."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def end(event: Event) -> float:
    return float(event["ts"]) + float(event["dur"])


def correlation(event: Event) -> int:
    return int(event["args"].get("correlation", -1))


def stream(event: Event) -> tuple[Any, Any]:
    return event["args"].get("device"), event["args"].get("stream")


class Raw:
    """A file's device events, marks of steps and launches, in microseconds."""

    def __init__(self, path: Path) -> None:
        content = json.loads(gzip.decompress(path.read_bytes()))
        events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
        self.device = [event for event in events if event.get("cat") in ON_DEVICE and event["dur"] > 0]
        marks = [event for event in events if event["name"].startswith("ProfilerStep") and event.get("cat") != "gpu_user_annotation"]
        # A mark may end after the recording has stopped.
        stops = [float(event["ts"]) for event in content["traceEvents"] if event.get("name") == "Record Window End"]
        self.steps = sorted((float(event["ts"]), min([end(event), *stops])) for event in marks)
        self.launch: dict[int, float] = {}
        for event in events:
            if event.get("cat") in CALLS and "correlation" in event.get("args", {}):
                self.launch.setdefault(correlation(event), float(event["ts"]))

    def earlier(self) -> set[int]:
        """The indices of the device events that were launched before the recording began."""
        own = [event for event in self.device if correlation(event) in self.launch]
        if not own:
            return set()
        first, first_id = min(event["ts"] for event in own), min(map(correlation, own))
        on_stream: dict[tuple[Any, Any], float] = defaultdict(lambda: float("inf"))
        for event in own:
            on_stream[stream(event)] = min(on_stream[stream(event)], event["ts"])
        return {
            number
            for number, event in enumerate(self.device)
            if correlation(event) not in self.launch
            and (event["ts"] < first or (event["ts"] < on_stream[stream(event)] and 0 < correlation(event) < first_id))
        }

    def windows(self, count: int) -> Spans:
        """The first ``count`` steps, each from the end of the work before to the end of what it launched."""
        earlier = self.earlier()
        began = [
            (self.launch.get(correlation(event), event["ts"]), end(event)) for n, event in enumerate(self.device) if n not in earlier
        ]
        before = [end(self.device[n]) for n in earlier] + [until for start, until in began if start < self.steps[0][0]]
        reached, found = max(before, default=self.steps[0][0]), []
        starts = [start for start, _ in self.steps[1:count]] + [self.steps[count - 1][1]]
        for (start, mark_end), following in zip(self.steps[:count], starts, strict=True):
            until = max([mark_end, *(work_end for launched, work_end in began if start <= launched < following)])
            found.append((max(start, reached), until))
            reached = max(reached, until)
        return found

    def lasting(self, windows: Spans, *kinds: str) -> float:
        """How long device events of these kinds (all where none is named) run in the windows."""
        chosen = [(event["ts"], end(event)) for event in self.device if not kinds or self.kind(event) in kinds]
        return sum(
            length([(max(start, low), min(until, high)) for start, until in chosen if start < high and until > low])
            for low, high in windows
        )

    @staticmethod
    def kind(event: Event) -> str:
        if "nccl" in event["name"].lower():
            return "communication"
        return "memcpy" if "memcpy" in event["cat"].lower() else "compute"


@every_trace
def test_the_step_is_the_one_of_the_raw_events(path):
    raw = Raw(path)
    analysis = analysis_of(path)
    timeline = analysis.timeline
    if not raw.device or any(row.category == "communication" and row.name.startswith("symm_mem") for row in analysis.operators):
        pytest.skip("nothing that this file could compute")
    if analysis.basis.per == "step" and not raw.steps:
        pytest.skip("the steps are those that a server marked")
    steps = analysis.basis.steps if analysis.basis.per == "step" else 1
    windows = (
        raw.windows(steps)
        if analysis.basis.per == "step"
        else [(min(event["ts"] for event in raw.device), max(end(event) for event in raw.device))]
    )
    span = sum(high - low for low, high in windows)
    microseconds = {
        "span": span, "busy": raw.lasting(windows), "compute": raw.lasting(windows, "compute"),
        "memcpy": raw.lasting(windows, "memcpy"), "communication": raw.lasting(windows, "communication"),
        "exposed copies": raw.lasting(windows, "compute", "memcpy") - raw.lasting(windows, "compute"),
        "exposed communication": raw.lasting(windows) - raw.lasting(windows, "compute", "memcpy"),
    }  # fmt: skip
    found = {
        "span": timeline.span_s, "busy": timeline.busy_s, "compute": timeline.compute_s, "memcpy": timeline.memcpy_s,
        "communication": timeline.communication_s, "exposed copies": timeline.exposed_memcpy_s,
        "exposed communication": timeline.exposed_communication_s,
    }  # fmt: skip
    assert {name: value * steps * 1e6 for name, value in found.items()} == pytest.approx(microseconds, abs=1e-4 * span)
