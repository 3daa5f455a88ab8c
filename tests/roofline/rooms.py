"""From events written by hand to the records of the rooms: an attribution, an analysis."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

import rooflines
from rooflines.profiler.read.reader import read
from rooflines.profiler.tree.tree import tree
from rooflines.reports.page import run as view
from rooflines.reports.render.terminal import print_page
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.count.count import count
from rooflines.roofline.count.counts import Known
from rooflines.roofline.own.own import Attribution, own
from tests.traces import kernel, launch, trace

Event = dict[str, Any]


def attributed(*events: Event, of: Path | None = None, **known: Any) -> Attribution:
    """Whose time it is in a trace of these events, or in a file; ``known`` is what a recording has beside its trace."""
    return own(count(tree(read(of) if of else trace(*events)), Known(**known)))


def divided(*events: Event, **known: Any) -> Attribution:
    """The same, with what holds for every trace: all time is divided, and none of it twice."""
    result = attributed(*events, **known)
    parts = [row.time_ns for row in result.rows] + [gap.time_ns for gap in result.gaps]
    assert sum(parts) + result.idle_ns - result.overlap_ns == result.span_ns
    assert all(part >= 0 for part in parts)
    return result


def analyzed(directory: Path, *events: Event, **options: Any) -> Analysis:
    """The analysis of a trace that somebody else recorded."""
    path = directory / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return rooflines.analyze(path, **options)


def recorded(directory: Path, work: Callable[[], Any], **options: Any) -> Analysis:
    """The analysis of what PyTorch records of ``work`` on a processor."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        work()
    profiler.export_chrome_trace(str(directory / "trace.json"))
    return rooflines.analyze(directory / "trace.json")


def printed(analysis: Analysis) -> str:
    """What the terminal report says, without line breaks."""
    file = io.StringIO()
    print_page(view.page(analysis), Console(file=file, width=100))
    return " ".join(file.getvalue().split())


def runtime(name: str, ts: float, dur: float = 1, correlation: int = -1, *, tid: int = 1, **args: Any) -> Event:
    """A call of the runtime."""
    return launch(ts, dur, correlation, tid=tid) | {"name": name, "args": {"correlation": correlation, **args}}


def frame(name: str, ts: float, dur: float) -> Event:
    """A Python function."""
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 7, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def copied(name: str, ts: float, dur: float, correlation: int, **more: Any) -> Event:
    """A copy on the device."""
    return kernel(name, ts, dur, correlation, cat="gpu_memcpy", **more)
