"""A recorded trace with the facts of its device: what a replayed device answers from."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from rooflines.profiler.read.records import STEP_PREFIX

TRACES = Path(__file__).parent.parent / "data" / "traces"
# Categories of what a device did, and of the arrows to it.
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "ac2g")


class Facts(NamedTuple):
    """The device that a trace was recorded on, by the trace's own properties of it."""

    name: str
    units: int
    memory_bytes: int
    capability: tuple[int, int]
    cuda: str | None  # CUDA's version; None on ROCm


class Recorded:
    """A recorded trace. ``document`` is its JSON; where it has no step, its longest range is made one, as our own traces have."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        if not self._steps():
            ranges = [event for event in self._events() if event.get("cat") == "user_annotation"]
            longest = max(ranges, key=lambda event: event["dur"])
            document["traceEvents"].append({**longest, "name": f"{STEP_PREFIX}0"})

    @property
    def facts(self) -> Facts:
        """The device, by the first of the trace's ``deviceProperties``."""
        first = self.document["deviceProperties"][0]
        runtime = self.document.get("cuda_runtime_version")
        return Facts(
            name=first["name"],
            units=first["numSms"],
            memory_bytes=first["totalGlobalMem"],
            capability=(first["computeMajor"], first["computeMinor"]),
            cuda=f"{runtime // 1000}.{runtime % 1000 // 10}" if runtime else None,
        )

    @property
    def step_ns(self) -> list[int]:
        """The durations of the traced steps."""
        return [round(event["dur"] * 1000) for event in self._steps()]

    @property
    def peak_bytes(self) -> int:
        """The most that the allocator held, where the trace follows it; else half of the memory."""
        held = (event["args"].get("Total Allocated", 0) for event in self._events() if event.get("name") == "[memory]")
        return max(held, default=0) or self.facts.memory_bytes // 2

    def without_device(self) -> Recorded:
        """The same trace as a profiler without CUPTI writes it: nothing that the device did."""
        kept = [event for event in self._events() if event.get("cat") not in ON_DEVICE]
        return Recorded({**self.document, "traceEvents": kept})

    def write(self, path: Path) -> int:
        """Write the trace, gzipped; returns its uncompressed size in bytes."""
        path.write_bytes(self._packed[0])
        return self._packed[1]

    @functools.cached_property
    def _packed(self) -> tuple[bytes, int]:
        text = json.dumps(self.document).encode()
        return gzip.compress(text, 1), len(text)

    def _events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.document["traceEvents"]
        return events

    def _steps(self) -> list[dict[str, Any]]:
        # Of the host: the device has ranges of the same names. Before there was a category for them they were operators.
        on_host = ("user_annotation", "Operator")
        found = [event for event in self._events() if event.get("cat") in on_host and event["name"].startswith(STEP_PREFIX)]
        return sorted(found, key=lambda event: event["ts"])


def recorded(name: str) -> Recorded:
    """The trace ``name`` of ``tests/data/traces``, without its ending."""
    return Recorded(json.loads(_text(name)))


@functools.cache
def _text(name: str) -> bytes:
    return gzip.decompress((TRACES / f"{name}.json.gz").read_bytes())
