"""The operators or kernels of a small trace that took longest, found in a fraction of a second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import nlargest
from mmap import mmap
from operator import itemgetter
from typing import NamedTuple

import msgspec

# The number of rows, and the size of the largest trace that is read: a tenth of a second.
_ROWS, _LIMIT_BYTES = 5, 20 << 20


class Slowest(NamedTuple):
    """Names of ``kernels`` or ``operators`` (``what``) with their microseconds and share of the time of all of them."""

    what: str
    rows: Sequence[tuple[str, float, float]]


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


def slowest(text: bytes | mmap) -> Slowest | None:
    """Return the slowest kernels of the Chrome trace ``text``, without kernels the operators, without the time of those inside them.

    None if the trace is too large or has neither.
    """
    try:
        events = msgspec.json.decode(text, type=_Trace).events if len(text) <= _LIMIT_BYTES else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    what, times = "kernels", defaultdict[str, float](float)
    for event in events:
        if event.cat == "kernel":
            times[event.name] += event.dur
    if not times:
        what, open_until = "operators", list[tuple[str, float, str]]()
        operators = (event for event in events if event.cat == "cpu_op")
        for event in sorted(operators, key=lambda event: (str(event.tid), event.ts, -event.dur)):
            while open_until and (open_until[-1][0] != str(event.tid) or open_until[-1][1] <= event.ts):
                open_until.pop()
            if open_until:
                times[open_until[-1][2]] -= event.dur
            times[event.name] += event.dur
            open_until.append((str(event.tid), event.ts + event.dur, event.name))
    total = sum(times.values())
    longest = nlargest(_ROWS, times.items(), key=itemgetter(1))
    return Slowest(what, [(name, time, time / total) for name, time in longest]) if total else None
