"""Which captured graph a launch of a graph replays, and which launch of the capture is behind each of its kernels.

ROCm records the kernel that every launch captures. The kernels of a replay must be those of the capture, in the same order; where
several streams were captured, equally many of each name. CUDA does not record it. There must be equally many kernels, and nothing
that is recorded may contradict: grid and block, a Triton kernel below the operator of another, a matrix product below an operator
that has none. Copies and fills are compared apart from kernels, because the runtime merges some and adds others. Nothing is matched
in part, with one exception: the record of the last kernel of a graph is missing in every replay of some traces of ROCm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from rooflines.profiler.trace.graphs import CapturedGraph, Replay
from rooflines.profiler.trace.records import MEMCPY, MEMSET, Int64s, LaunchShape, Trace
from rooflines.roofline.attribution.origins import CountedTrace
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import counted

# Kernels with which the HIP runtime copies and fills.
_COPIES = ("__amd_rocclr_",)
_COPYING = ("Memcpy", "Memset")
_FILLING = ("Memset", "fillBuffer")
# What Inductor calls every kernel unless it is asked for unique names.
_UNNAMED = "triton__"
# Operators of these categories run no matrix product.
_NO_PRODUCTS = {"copy", "reduction", "normalisation", "element-wise", "optimizer", "communication"}
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a replay is none of a captured graph, and the ``place`` of the first kernel that says so."""

    text: str
    place: int


@dataclass(frozen=True, slots=True)
class Match:
    """A captured graph of the trace number ``trace``, and the host event of its capture behind each of the device ``events`` of the
    replay (-1: a copy that the runtime added). ``missing`` is the number of kernels that the replay did not record."""

    trace: int
    graph: CapturedGraph
    events: Int64s
    launches: Int64s
    missing: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A captured graph: its kernels, with their names where they are recorded, and its copies, with which of them are fills."""

    number: int
    trace: int
    graph: CapturedGraph
    kernels: Int64s
    copies: Int64s
    fills: list[bool]
    names: list[str] | None


class GraphMatcher:
    """Finds the captured graph of one replay after the other, in the order of time."""

    def __init__(self, trace: Trace, captured: Sequence[CountedTrace]) -> None:
        self._trace = trace
        self._captured = captured
        graphs = [(at, graph) for at, one in enumerate(captured) for graph in one.graphs]
        self._candidates = [_candidate(number, at, graph, captured[at].trace) for number, (at, graph) in enumerate(graphs)]
        self._fits: dict[bytes, list[tuple[_Candidate, Match]] | Difference] = {}
        self._last = -1

    def match(self, replay: Replay) -> Match | Difference:
        """The captured graph that ``replay`` runs, or the first difference from the one that is most like it."""
        events = self._in_order(replay)
        device = self._trace.device
        key = np.stack((device.name[events], device.shape[events], device.kind[events])).tobytes()
        if key not in self._fits:
            self._fits[key] = self._compared(events)
        found = self._fits[key]
        if isinstance(found, Difference):
            return found
        sized = [one.graph.tokens for one, _ in found if one.graph.tokens is not None]
        if replay.tokens is not None and len(sized) == len(found):
            enough = [tokens for tokens in sized if tokens >= replay.tokens]
            if not enough:
                return Difference(f"the step has {replay.tokens:,} tokens, the capture only {max(sized):,}", 0)
            found = [(one, match) for one, match in found if one.graph.tokens == min(enough)]
        unsure = len({one.graph.tokens for one, _ in found}) > 1 or (not sized and len(found) > 1)
        if unsure and len({tuple(self._calls(match)) for _, match in found}) > 1:
            return Difference(f"{len(found):,} captured graphs with different shapes have these kernels", 0)
        # Pieces of one model are launched in the order of their capture.
        one, match = next((pair for pair in found if pair[0].number > self._last), found[0])
        self._last = one.number
        return replace(match, events=events)

    def _in_order(self, replay: Replay) -> Int64s:
        """The device events of the replay as they were captured: by the numbers of the nodes where several streams ran them."""
        device, events = self._trace.device, replay.events
        node = device.graph_node[events]
        if len(np.unique(device.stream[events])) > 1 and (node > 0).all() and len(np.unique(node)) == len(node):
            return events[np.argsort(node)]
        return events

    def _compared(self, events: Int64s) -> list[tuple[_Candidate, Match]] | Difference:
        """The captured graphs that these device events are; the exact ones, else those without a record of the last kernel."""
        exact: list[tuple[_Candidate, Match]] = []
        cut: list[tuple[_Candidate, Match]] = []
        nearest = Difference("no graph was captured", -1)
        for one in self._candidates:
            result = self._compare(events, one)
            if isinstance(result, Difference):
                nearest = max(nearest, result, key=lambda difference: difference.place)
            else:
                (cut if result.missing else exact).append((one, result))
        return exact or cut or nearest

    def _compare(self, events: Int64s, one: _Candidate) -> Match | Difference:
        captured, device = self._captured[one.trace], self._trace.device
        copied = np.isin(device.kind[events], (MEMCPY, MEMSET))
        copied |= np.array([self._trace.names[code].startswith(_COPIES) for code in device.name[events].tolist()], bool)
        kernels = events[~copied]
        ran = [self._trace.names[code] for code in device.name[kernels].tolist()]
        several = one.graph.joins or len(np.unique(device.stream[kernels])) > 1
        paired = self._unnamed(kernels, ran, one.kernels, captured, several) if one.names is None else _by_name(ran, one.names, several)
        if isinstance(paired, Difference):
            return paired
        launches = one.kernels[paired]
        wrong = self._other_shape(kernels, launches, captured)
        if wrong is not None:
            return wrong
        found = np.full(len(events), -1, np.int64)
        found[~copied] = launches
        if one.fills == [_fills(self._trace.names[code]) for code in device.name[events[copied]].tolist()]:
            found[copied] = one.copies
        return Match(one.trace, one.graph, events, found, len(one.kernels) - len(kernels))

    def _other_shape(self, kernels: Int64s, launches: Int64s, captured: CountedTrace) -> Difference | None:
        """The first kernel whose grid or block is another in the capture, where both are recorded."""
        device, held = self._trace.device, captured.trace.host.kernel[launches]
        for at in np.flatnonzero((held >= 0) & (device.shape[kernels] >= 0)).tolist():
            shape, (name, other) = self._trace.launch_shapes[device.shape[kernels[at]]], captured.trace.kernels[held[at]]
            if other is not None and shape != other:
                differ = f"the replay ran {_short(name)} with grid and block {_shown(shape)}, the capture has {_shown(other)}"
                return Difference(f"{_place(at, len(kernels))}: {differ}", at)
        return None

    def _unnamed(self, kernels: Int64s, ran: list[str], launches: Int64s, captured: CountedTrace, several: bool) -> Int64s | Difference:
        """The launches in order, unless what is known of them contradicts the kernels that ran."""
        numbered = (self._trace.device.graph_node[kernels] > 0).all()
        for at, (name, launch) in enumerate(zip(ran, launches.tolist(), strict=False)):
            reason = _contradiction(name, launch, captured)
            if reason:
                return Difference(f"{_place(at, len(kernels))}: the replay ran {_short(name)}, the capture has {reason}", at)
        if len(kernels) != len(launches):
            return Difference(
                f"the replay ran {len(kernels):,} kernels, the capture has {len(launches):,}", min(len(kernels), len(launches))
            )
        if several and not numbered:
            return Difference("it ran on several streams, and neither the order of its nodes nor the captured kernels are recorded", 0)
        return np.arange(len(launches))

    def _calls(self, match: Match) -> Iterator[tuple[str, str]]:
        """The operator and its shapes behind each device event."""
        captured = self._captured[match.trace]
        owner, operator = captured.ownership.owner, captured.calls.operator
        for launch in match.launches[match.launches >= 0].tolist():
            event = owner[launch] if owner[launch] >= 0 else operator[launch]
            variant = captured.counts.of_event[event] if event >= 0 else -1
            signature = captured.counts.variants[variant].signature if variant >= 0 else None
            yield (signature.name, signature.shapes()) if signature else ("", "")


def _candidate(number: int, at: int, graph: CapturedGraph, trace: Trace) -> _Candidate:
    host, nodes = trace.host, graph.launches
    copied = np.array([any(word in trace.names[code] for word in _COPYING) for code in host.name[nodes].tolist()], bool)
    kernels = nodes[~copied]
    named = len(kernels) > 0 and bool((host.kernel[kernels] >= 0).all())
    names = [trace.kernels[code][0] for code in host.kernel[kernels].tolist()] if named else None
    fills = [_fills(trace.names[code]) for code in host.name[nodes[copied]].tolist()]
    return _Candidate(number, at, graph, kernels, nodes[copied], fills, names)


def _fills(name: str) -> bool:
    return any(word in name for word in _FILLING)


def _by_name(ran: list[str], held: list[str], several: bool) -> Int64s | Difference:
    """Which captured kernel each one that ran is: the same place in the order; of several streams, the k-th of its name is the k-th."""
    if ran == held or (ran and ran == held[:-1]):
        return np.arange(len(ran))
    if several and Counter(ran) == Counter(held):
        places: dict[str, list[int]] = {}
        for at, name in enumerate(held):
            places.setdefault(name, []).append(at)
        later = {name: iter(found) for name, found in places.items()}
        return np.array([next(later[name]) for name in ran], np.int64)
    at = next((at for at, (one, other) in enumerate(zip(ran, held, strict=False)) if one != other), min(len(ran), len(held)))
    if at == len(ran):
        return Difference(f"the replay ran {counted(len(ran), 'kernel')}, the capture has {len(held):,}", at)
    if at == len(held):
        return Difference(f"{_place(at, len(ran))}: the replay ran {_short(ran[at])}, the capture ends before it", at)
    one, other = _short(ran[at]), _short(held[at])
    if one == other:
        differs = next(place for place, letters in enumerate(zip_longest(ran[at], held[at])) if letters[0] != letters[1])
        one, other = (_around(name, differs) for name in (ran[at], held[at]))
    return Difference(f"{_place(at, len(ran))}: the replay ran {one}, the capture has {other}", at)


def _contradiction(name: str, launch: int, captured: CountedTrace) -> str:
    """What the capture has instead of a kernel of this name, as far as the operators around the launch say it; empty where they may."""
    operator = int(captured.calls.operator[launch])
    if operator < 0:
        return ""
    called: str = captured.trace.names[captured.trace.host.name[operator]]
    if name.startswith(_UNNAMED):
        return ""
    if called.startswith("triton_"):
        return "" if name.startswith(called) or called.startswith(name) else called
    if name.startswith("triton_") and called.startswith("aten::"):
        return called
    owner = int(captured.ownership.owner[launch])
    if owner >= 0 and short_kernel(name).startswith("GEMM"):
        count = captured.counts.variants[captured.counts.of_event[owner]].count
        if count.category in _NO_PRODUCTS and count.work is not None and not count.work.matrix_flops:
            return called
    return ""


def _place(at: int, number: int) -> str:
    return f"kernel {at + 1:,} of {number:,}"


def _shown(shape: LaunchShape) -> str:
    return ", ".join("x".join(map(str, part)) for part in shape)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2 - 1]}…{name[-_LONGEST_NAME // 2 :]}"


def _around(name: str, place: int) -> str:
    """The part of a long name around this place."""
    start = max(0, place - _LONGEST_NAME // 2)
    return f"{'…' if start else ''}{name[start : start + _LONGEST_NAME]}{'…' if start + _LONGEST_NAME < len(name) else ''}"
