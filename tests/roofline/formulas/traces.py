"""Real signatures for tests: run calls under the profiler and read back what it recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from rooflines.profiler.read.signature import Signature, from_kineto
from rooflines.roofline.count.formulas import Work, count

Event = dict[str, Any]


def record_trace(body: Callable[[], object], path: Path) -> Path:
    """Run ``body`` under the profiler, as our tracer sets it up; the trace goes to ``path``, which is returned."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, acc_events=True) as recorded:
        body()
    recorded.export_chrome_trace(str(path))
    return path


def operator_events(body: Callable[[], object], path: Path) -> list[Event]:
    """The operator events of running ``body``, in order of start; the trace goes to ``path``."""
    events = json.loads(record_trace(body, path).read_text())["traceEvents"]
    found = [event for event in events if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")]
    return sorted(found, key=lambda event: (event["ts"], -event["dur"]))


def outermost(events: list[Event]) -> list[tuple[Event, list[Event]]]:
    """A forest of ``(event, children)``, children in the same form, by nesting of times within a thread."""
    roots: list[tuple[Event, list[Event]]] = []
    stacks: dict[int, list[tuple[Event, list[Any]]]] = {}
    for event in events:
        stack = stacks.setdefault(event["tid"], [])
        while stack and event["ts"] >= stack[-1][0]["ts"] + stack[-1][0]["dur"]:
            stack.pop()
        node: tuple[Event, list[Any]] = (event, [])
        (stack[-1][1] if stack else roots).append(node)
        stack.append(node)
    return roots


def signatures(calls: dict[str, Callable[[], object]], path: Path) -> tuple[dict[str, Signature], dict[str, Any]]:
    """For each named call the signature of its outermost operator that is counted and not a view, and its result."""
    results: dict[str, Any] = {}

    def body() -> None:
        for name, call in calls.items():
            with record_function(f"case {name}"):
                results[name] = call()

    found: dict[str, Signature] = {}
    for event, children in outermost(operator_events(body, path)):
        if event["name"].startswith("case "):
            found[event["name"].removeprefix("case ")] = next(_working(children), from_kineto("nothing", {}))
    return found, results


def _working(nodes: list[tuple[Event, list[Any]]]) -> Iterator[Signature]:
    for event, children in nodes:
        signature = from_kineto(event["name"], event["args"])
        outcome = count(signature)
        if outcome.kind != "counted":
            yield from _working(children)
        elif outcome.work != Work():
            yield signature
