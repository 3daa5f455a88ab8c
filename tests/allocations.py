"""What the allocator did in a real run, from the profiler's own memory events: an account of memory that owes nothing to ours."""

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

CPU, CUDA = 0, 1
# Who holds a block: a tensor that an operator returned, an operator while it runs, or a Python number that stands for a tensor.
TENSOR, WORKSPACE, NUMBER = "tensor", "workspace", "number"


@dataclass(frozen=True)
class Allocation:
    """One block: its place in the order of all events, from ``start`` to ``end`` (None: never freed), and who held it."""

    bytes: int
    start: int
    end: int | None
    holder: str
    call: int | None


@dataclass(frozen=True)
class Allocations:
    """All blocks of a run, and the events ``[first, last)`` of each of its steps."""

    blocks: list[Allocation]
    steps: list[tuple[int, int]]

    def peak(self, step: int, holders: Collection[str] = (TENSOR, WORKSPACE, NUMBER)) -> int:
        """The most bytes held at once in a step, by these holders, with what they held when it began."""
        first, last = self.steps[step]
        changes = [(block.start, block.bytes) for block in self.blocks if block.holder in holders]
        changes += [(block.end, -block.bytes) for block in self.blocks if block.holder in holders and block.end is not None]
        held = highest = 0
        for at, size in sorted(changes):
            if at >= last:
                break
            held += size
            highest = held if at < first else max(highest, held)
        return highest

    def largest_workspace(self, step: int) -> int:
        """The most bytes that one operator call of a step holds for itself at once."""
        first, last = self.steps[step]
        calls: dict[int | None, list[Allocation]] = {}
        for block in self.blocks:
            if block.holder == WORKSPACE and first <= block.start < last:
                calls.setdefault(block.call, []).append(block)
        return max((Allocations(blocks, [(first, last)]).peak(0) for blocks in calls.values()), default=0)


def allocations(
    make: Callable[[], Callable[[], object]], steps: int, operators: Collection[str], device_type: int = CPU
) -> Allocations:
    """The blocks of ``make()`` and of ``steps`` calls of the step that it returns.

    ``operators`` are those that a recording sees. A block that is allocated and freed in one call of such an operator is the
    operator's workspace; one that is allocated outside of all operators, before the call it is an operand of, is a number.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("make"):
            step = make()
        for _ in range(steps):
            with record_function("step"):
                step()
    events = _exported(profiler)
    memory = sorted(
        (event for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == device_type),
        key=lambda event: event["ts"],
    )
    ranges = [event for event in events if event.get("ph") == "X" and event.get("cat") == "cpu_op"]
    named = _Outermost(event for event in ranges if event["name"] in operators)
    anything = _Outermost(ranges)
    open_blocks: dict[int, tuple[int, int, str, int | None, float]] = {}
    blocks = []
    for index, event in enumerate(memory):
        size, address, at = event["args"]["Bytes"], event["args"]["Addr"], event["ts"]
        if size > 0:
            call = named.at(event["tid"], at)
            holder = TENSOR if anything.at(event["tid"], at) is not None else NUMBER
            open_blocks[address] = (size, index, holder, call, named.ends[call] if call is not None else 0.0)
        elif address in open_blocks:
            size, start, holder, call, end = open_blocks.pop(address)
            blocks.append(Allocation(size, start, index, WORKSPACE if call is not None and at <= end else holder, call))
    blocks += [Allocation(size, start, None, holder, call) for size, start, holder, call, _ in open_blocks.values()]
    times = [event["ts"] for event in memory]
    marks = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event.get("ph") == "X" and event["name"] == "step")
    return Allocations(blocks, [(bisect_right(times, start), bisect_right(times, end)) for start, end in marks])


def _exported(profiler: profile) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


class _Outermost:
    """Which of the ranges, none of them inside another, a moment of a thread falls into."""

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self.ends: list[float] = []
        self._starts: dict[int, tuple[list[float], list[int]]] = {}
        for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
            starts, numbers = self._starts.setdefault(event["tid"], ([], []))
            if not numbers or event["ts"] > self.ends[numbers[-1]]:
                starts.append(event["ts"])
                numbers.append(len(self.ends))
                self.ends.append(event["ts"] + event["dur"])

    def at(self, thread: int, time: float) -> int | None:
        """The number of the range around this moment, None where there is none."""
        starts, numbers = self._starts.get(thread, ([], []))
        place = bisect_right(starts, time) - 1
        return numbers[place] if place >= 0 and time <= self.ends[numbers[place]] else None
