"""Parse the JSON of a Chrome trace into typed events, some megabytes at a time, and the facts besides its
events.

Events are decoded straight from the bytes into structs (msgspec) in which an operator's argument fields stay
raw. A chunk ends where an event does: behind a brace, with a comma and a brace that opens on a known key
following. Inside a string the key's quotes would be escaped, and where such a place lies deeper than an event
the chunk does not decode and a longer one is taken.
"""

from __future__ import annotations

import bisect
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from rooflines.errors import TraceError
from rooflines.profiler.read.sources import PARTIAL_HINT

CHUNK_BYTES = 4 << 20
# No event, and nothing before or behind the events, is longer.
LONGEST_BYTES = 32 << 20
# The tolerant parser makes an object of everything: more than this is not given to it.
_MOST_REPAIRED_BYTES = 12 << 20

_Raw = msgspec.Raw
# Up to here, 101 days, a float of microseconds tells nanoseconds apart; since 1970 it has steps of a quarter
# of a microsecond.
FLOATS_ROUND_FROM_US = float(1 << 43)
_ASKED = 256  # events
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:)')
# Where no event begins with a key that is known.
_ANY_BOUNDARY = re.compile(rb"\}(?=\s*,\s*\{)")
_COMMA = re.compile(rb"\s*,")
# A string, which the cut may end, or what opens or closes an object or a list.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_BLANK = re.compile(rb"[\s\xef\xbb\xbf]*")
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SEARCHED = 1 << 16
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TOO_DEEP = "its JSON is nested too deeply"


# What recorders call the arguments of events.
_ARGUMENT_NAMES = {
    "dims": "Input Dims",
    "old_dims": "Input dims",
    "types": "Input type",
    "strides": "Input Strides",
    "concrete": "Concrete Inputs",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "old_correlation": "correlation id",
    "external": "External id",
    "awaited_stream": "wait_on_stream",
    "awaited_record": "wait_on_cuda_event_record_corr_id",
    "registers": "registers per thread",
    "shared": "shared memory",
    "occupancy": "est. achieved occupancy %",
    "warps": "warps per SM",
    "graph": "graph id",
    "graph_node": "graph node id",
    "module": "module_fqn",
    "size": "Bytes",
    "device_type": "Device Type",
    "device_id": "Device Id",
    "allocated": "Total Allocated",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "collective_dtype": "dtype",
    "group": "Process Group Name",
    "group_size": "Group size",
    "group_ranks": "Process Group Ranks",
    "old": "Trace name",
}


class Args(msgspec.Struct, gc=False, rename=_ARGUMENT_NAMES):
    """The ``args`` of an event, as far as they are used; everything else in them is skipped and never
    kept."""

    dims: _Raw = _Raw()
    old_dims: _Raw = _Raw()
    types: _Raw = _Raw()
    strides: _Raw = _Raw()
    concrete: _Raw = _Raw()
    sequence: Any = None
    forward_thread: Any = None
    correlation: Any = None
    old_correlation: Any = None
    external: Any = None
    stream: Any = None
    original_stream: Any = None
    awaited_stream: Any = None
    awaited_record: Any = None
    device: Any = None
    grid: _Raw = _Raw()
    block: _Raw = _Raw()
    registers: Any = None
    shared: Any = None
    occupancy: Any = None
    warps: Any = None
    kernel: Any = None
    graph: Any = None
    graph_node: Any = None
    annotation: Any = None
    module: Any = None
    autograd_phase: Any = None
    size: Any = None
    device_type: Any = None
    device_id: Any = None
    allocated: Any = None
    collective: Any = None
    elements_in: Any = None
    elements_out: Any = None
    collective_dtype: Any = None
    group: Any = None
    group_size: Any = None
    group_ranks: Any = None
    old: Any = None
    name: Any = None


_RAW_FIELDS = [field.encode_name for field in msgspec.structs.fields(Args) if field.type is _Raw]


class Event(msgspec.Struct, gc=False):
    """One trace event. Nothing is promised of the types: a trace is anybody's."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class Head(msgspec.Struct):
    """Facts of a file besides its events: the device, the rank and the clock, never the environment or the
    user."""

    devices: Any = msgspec.field(default=None, name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=None, name="baseTimeNanoseconds")


class _Rest(Head):
    events: list[Event] = msgspec.field(default_factory=list, name="traceEvents")


_EVENTS = msgspec.json.Decoder(list[Event])
_REST = msgspec.json.Decoder(_Rest)
# Fractions stay text, of which the columns read every digit.
_EXACT_EVENTS = msgspec.json.Decoder(list[Event], float_hook=str)
_EXACT_REST = msgspec.json.Decoder(_Rest, float_hook=str)


class Document:
    """The events of a trace, in lists of some thousand; ``head`` is whole once the iteration has ended.

    ``repairs`` are sentences about invalid JSON that could be read: NaN, bad escapes, bytes that are not
    UTF-8. If ``partial``, a file that is cut off is read up to the cut: ``cut_bytes`` is then its
    length, and ``all_events`` whether the cut lies behind the list of events. Where there is ``damage``
    when the pieces end at a damage, what does not decode before it is left out, too.
    """

    def __init__(
        self, pieces: Iterable[bytes], origin: str, *, partial: bool, damage: Callable[[], str]
    ) -> None:
        self.head = Head()
        self.repairs: dict[str, None] = {}
        self.cut_bytes: int | None = None
        self.all_events = True
        self._partial, self._damage = partial, damage
        self._pieces = iter(pieces)
        self._origin = origin
        self._before = 0  # bytes of the file in front of the buffer

    def __iter__(self) -> Iterator[list[Event]]:
        buffer = bytearray()
        opening = self._opening(buffer)
        enough = CHUNK_BYTES
        for piece in self._pieces:
            buffer += piece
            if len(buffer) < enough:
                continue
            # The end of the last event that is known, or else seems, to be followed by another; 0 where there
            # is none.
            cut = _last_match(_BOUNDARY, buffer) or _last_match(_ANY_BOUNDARY, buffer)
            events = self._decoded(b"[", buffer[:cut], b"]") if cut else None
            if events is None:
                # The boundary lies deeper than an event, or this is the long tail of the file, or none of it
                # is JSON.
                enough = min(2 * len(buffer), LONGEST_BYTES + 1)
                if len(buffer) > LONGEST_BYTES:
                    raise self._malformed(buffer, opening, at_end=False)
                continue
            yield events
            comma = _COMMA.match(buffer, cut)
            cut = comma.end() if comma else cut
            self._before += cut
            del buffer[:cut]
            enough = CHUNK_BYTES
        yield self._last(opening, buffer)

    def _opening(self, buffer: bytearray) -> bytes:
        """Read into ``buffer`` up to the first event; returns what to put before a rest of the file to make
        it JSON again."""
        searched = blank = 0
        for piece in self._pieces:
            buffer += piece
            blank = _BLANK.match(buffer, blank).end()  # type: ignore[union-attr]
            if buffer[blank : blank + 1] == b"[":
                del buffer[: blank + 1]
                self._before += blank + 1
                return b"["
            array = _ARRAY.search(buffer, max(0, searched - _SEARCHED))
            searched = len(buffer)
            if array:
                self._read_head(bytes(buffer[: array.end()]).removeprefix(b"\xef\xbb\xbf") + b"]}")
                del buffer[: array.end()]
                self._before += array.end()
                return b'{"traceEvents":['
            if len(buffer) > LONGEST_BYTES:
                raise self._no_trace(f"no 'traceEvents' in its first {LONGEST_BYTES >> 20} MiB")
        return b""

    def _read_head(self, text: bytes) -> None:
        try:
            self.head = msgspec.json.decode(text, type=Head)
        except _NOT_JSON:
            repaired = self._repaired(text)
            if isinstance(repaired, dict):
                self.head = msgspec.convert(repaired, type=Head)
            else:
                self.repairs["the data before the events could not be read"] = None

    def _last(self, opening: bytes, buffer: bytearray) -> list[Event]:
        """The events in the last part of the file, and what follows them."""
        if not opening:
            raise self._without_events(bytes(buffer))
        if opening == b"[":
            # The closing bracket of an array is optional in Chrome's format.
            events = self._decoded(opening, buffer, b"")
            if events is None:
                events = self._decoded(opening, buffer.rstrip().removesuffix(b","), b"]")
            if events == [] and self._before <= 1:
                raise self._no_trace("it is an array without events")
            return self._up_to_the_cut(opening, buffer) if events is None else events
        text = opening + buffer
        try:
            rest = _REST.decode(text)
            if _are_rounded(rest.events):
                rest = _EXACT_REST.decode(text)
            events = rest.events
        except _NOT_JSON:
            repaired = self._repaired(text)
            if not isinstance(repaired, dict) or not isinstance(repaired.get("traceEvents"), list):
                return self._up_to_the_cut(opening, buffer)
            events = _converted(repaired.pop("traceEvents"))
            rest = msgspec.convert(repaired, type=_Rest)
        for name in Head.__struct_fields__:  # what stands behind the events completes what stood before them
            if getattr(self.head, name) is None:
                setattr(self.head, name, getattr(rest, name))
        return events

    def _up_to_the_cut(self, opening: bytes, buffer: bytearray) -> list[Event]:
        """The events that end before the cut; raises TraceError unless ``partial``, and where the JSON is
        damaged."""
        ends, depth = _ends(buffer) if self._partial else ([0], 0)
        # The list of events is closed one level up, the object around it two.
        whole = depth <= (-1 if opening == b"[" else -2)
        events = None
        if self._damage() or (self._partial and not whole):
            events = self._decoded(b"[", buffer[: ends[-1]], b"]")
        if events is None and self._damage():
            # Before zlib notices a damage it returns bytes that are wrong.
            first = bisect.bisect_left(
                ends, True, key=lambda end: self._decoded(b"[", buffer[:end], b"]") is None
            )
            events = self._decoded(b"[", buffer[: ends[first - 1]], b"]")
        if events is None:
            raise self._malformed(buffer, opening)
        self.cut_bytes, self.all_events = self._before + len(buffer), depth < 0
        return events

    def _decoded(self, opening: bytes, text: bytes | bytearray, closing: bytes) -> list[Event] | None:
        whole = b"".join((opening, text, closing))
        try:
            events = _EVENTS.decode(whole)
            return _EXACT_EVENTS.decode(whole) if _are_rounded(events) else events
        except _NOT_JSON:
            repaired = self._repaired(whole)
        return _converted(repaired) if isinstance(repaired, list) else None

    def _repaired(self, text: bytes) -> Any:
        """``text`` read by a more tolerant parser, with a note of what was wrong; None where that fails as
        well."""
        if len(text) > _MOST_REPAIRED_BYTES:
            return None
        notes: dict[str, None] = {}
        try:
            decoded = text.decode()
        except UnicodeDecodeError:
            decoded = text.decode(errors="replace")
            notes["bytes that are not UTF-8 were replaced"] = None

        def constant(name: str) -> None:
            notes[f"fields that are {name.removeprefix('-')} were skipped"] = None

        read = functools.partial(json.loads, strict=False, parse_constant=constant)
        try:
            try:
                value = read(decoded)
            except ValueError:
                value = read(_ESCAPE.sub(lambda escape: escape[0] if escape[1] else "\\\\", decoded))
                notes["invalid escapes were kept as backslashes"] = None
        except (ValueError, RecursionError):
            return None
        if isinstance(value, list) and not all(isinstance(item, dict) for item in value):
            notes["entries that are not events were skipped"] = None
        self.repairs.update(notes or {"characters and numbers that JSON does not allow were kept": None})
        return value

    def _malformed(self, buffer: bytearray, opening: bytes, *, at_end: bool = True) -> TraceError:
        """The error for a rest of the file that is not JSON: its position, or that the file ends too
        early."""
        try:
            text = opening + buffer
            msgspec.json.decode(text, type=_Raw)
            (_EVENTS if opening == b"[" else _REST).decode(text)
        except RecursionError:
            return self._no_trace(_TOO_DEEP, hint="")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason, _, place = str(error).partition(" (byte")
            if "truncated" not in reason:
                at = re.search(r"\d+", place)
                byte = self._before + (max(0, int(at[0]) - len(opening)) if at else 0)
                return TraceError(
                    f"the trace {self._origin!r} is damaged near byte {byte:,}: {reason}.",
                    hint="Copy or record it again.",
                )
            if at_end:
                return TraceError(
                    f"the trace {self._origin!r} is cut off after {self._before + len(buffer):,} "
                    "bytes, in the middle of an event.",
                    hint=PARTIAL_HINT,
                )
        return self._no_trace(f"an event is longer than {LONGEST_BYTES >> 20} MiB")

    def _without_events(self, text: bytes) -> TraceError:
        if not text.strip():
            return self._no_trace("it is empty")
        try:
            msgspec.json.decode(text, type=_Raw)
        except RecursionError:
            return self._no_trace(_TOO_DEEP)
        except msgspec.DecodeError as error:
            return self._no_trace(str(error))
        is_object = text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        return self._no_trace("it has no list of 'traceEvents'" if is_object else "it is no object")

    def _no_trace(
        self, reason: str, hint: str = "Give a *.pt.trace.json or *.pt.trace.json.gz."
    ) -> TraceError:
        if self._origin.endswith(".py"):
            hint = f"To record a program: rooflines profile {self._origin}"
        return TraceError(f"{self._origin!r} is not a PyTorch trace: {reason}.", hint=hint)


def _are_rounded(events: list[Event]) -> bool:
    """Whether the times of ``events`` had more digits than a float holds.

    Some of the events tell: where all have fractions, three of four keep one when they are rounded. Old
    traces write whole numbers as floats, of which nothing is lost.
    """
    some = events[:: max(1, len(events) // _ASKED)]
    return any(
        type(event.ts) is float and abs(event.ts) >= FLOATS_ROUND_FROM_US and not event.ts.is_integer()
        for event in some
    )


def _ends(buffer: bytearray) -> tuple[list[int], int]:
    """Where the whole events in ``buffer`` end, behind a 0, and below 0 how many levels around the events are
    closed."""
    ends, depth, lowest = [0], 0, 0
    for token in _TOKEN.finditer(buffer):
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
        elif sign in (b"}", b"]"):
            depth -= 1
            lowest = min(lowest, depth)
            if not depth and not lowest:
                ends.append(token.end())
    return ends, lowest


def _last_match(pattern: re.Pattern[bytes], buffer: bytearray) -> int:
    window = _SEARCHED
    while True:
        low = max(0, len(buffer) - window)
        last = max((match.end() for match in pattern.finditer(buffer, low)), default=0)
        if last or not low:
            return last
        window *= 16


def _converted(items: list[Any]) -> list[Event]:
    """Events of a tolerant parser: anything but an object is skipped."""
    events = []
    for item in items:
        if isinstance(item, dict):
            args = item.get("args")
            item["args"] = None
            if isinstance(args, dict):
                item["args"] = {
                    key: _Raw(json.dumps(value).encode()) if key in _RAW_FIELDS else value
                    for key, value in args.items()
                }
            events.append(msgspec.convert(item, Event))
    return events
