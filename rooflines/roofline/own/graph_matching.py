"""Match each launch of a graph with a captured graph, and each replayed kernel with a launch of the capture.

ROCm records the kernel of every captured launch. The replay must have the same kernels in the same order; if
several streams were captured, equally many of each name, and all of one name must be the same call. CUDA does
not record the kernels. The number of kernels must be equal, and neither grids and blocks nor the operators
around the launches (``contradiction``) may contradict. Copies and fills are compared separately, because the
runtime merges some and adds others. A replay is matched as a whole or not at all, with one exception: in some
traces of ROCm the last kernel of the graph is missing in every replay.

The order of replays alone decides only between captured graphs with the same calls. A captured graph is one
sequence of kernels: if replays with different kernels match it and its names are not recorded, none of them
is used.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from rooflines.profiler.read.records import (
    MEMCPY,
    MEMSET,
    OPERATOR,
    Int64s,
    LaunchShape,
    Mask,
    Trace,
    of_kinds,
)
from rooflines.profiler.tree.graphs import CapturedGraph, Replay
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.count.counts import Variant, unset
from rooflines.roofline.count.formulas import CallCount, Work
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.own.origins import CountedTrace
from rooflines.units import counted

# Kernels with which the HIP runtime copies and fills.
_COPIES = ("__amd_rocclr_",)
_COPYING = ("Memcpy", "Memset")
_FILLING = ("Memset", "fillBuffer")
_LONGEST_NAME = 80
# An operator and its shapes.
_Call = tuple[str, str]


class GraphDifference(NamedTuple):
    """Why a replay does not match a captured graph, and the ``place`` of the first kernel that shows it."""

    text: str
    place: int


class Candidate(NamedTuple):
    """A captured graph in the trace number ``trace``: its kernels, their names if recorded, its copies, and
    which of them are fills."""

    number: int
    trace: int
    graph: CapturedGraph
    kernels: Int64s
    copies: Int64s
    fills: list[bool]
    names: list[str] | None

    @property
    def pool(self) -> tuple[object, ...]:
        """The facts that all pieces of one model and batch share."""
        return self.trace, self.graph.tokens, self.graph.mark, self.names is not None


class GraphMatch(NamedTuple):
    """A captured graph that matches a replay. ``launches`` are the host events of the capture for each of the
    device ``events`` of the replay (-1: a copy that the runtime added), ``calls`` the operators and shapes of
    those that have one. ``missing`` is the number of kernels that the replay did not record. ``larger`` is
    true if graphs of larger batches match as well."""

    captured: Candidate
    events: Int64s
    launches: Int64s
    calls: tuple[_Call, ...]
    missing: int = 0
    larger: bool = False


# The captured graph of a replay, or why there is none; all that have its kernels.
_Match: TypeAlias = GraphMatch | GraphDifference
_Fits: TypeAlias = list[GraphMatch] | GraphDifference


class GraphMatcher:
    """Finds the captured graph of each replay."""

    def __init__(self, trace: Trace, captured: Sequence[CountedTrace]) -> None:
        self._trace = trace
        self._captured = captured
        graphs = [(at, graph) for at, one in enumerate(captured) for graph in one.graphs]
        self._candidates = [
            _candidate(number, at, graph, captured[at].trace) for number, (at, graph) in enumerate(graphs)
        ]
        self._fits: dict[bytes, _Fits] = {}

    def match(self, replays: Sequence[Replay]) -> list[_Match]:
        """Return the captured graph of each of ``replays`` (in the order of time), or the first difference
        from the most similar one."""
        # In the order of capture, by the ids of nodes if recorded: branches of a graph may run in another
        # order, even on one stream.
        node = self._trace.device.graph_node
        events = [
            ran[np.argsort(node[ran])] if self._numbered(ran) else ran
            for ran in (replay.events for replay in replays)
        ]
        fits = [self._fitting(replay, ran) for replay, ran in zip(replays, events, strict=True)]
        chosen = self._consistent(events, self._chosen(replays, fits))
        return [
            fit if isinstance(fit, GraphDifference) else fit._replace(events=ran)
            for fit, ran in zip(chosen, events, strict=True)
        ]

    def _fitting(self, replay: Replay, events: Int64s) -> _Fits:
        """Return the captured graphs with these kernels; if sizes are recorded, those of the smallest batch
        that holds the tokens."""
        device = self._trace.device
        key = np.stack((device.name[events], device.shape[events], device.kind[events])).tobytes()
        key += bytes((self._numbered(events), len(np.unique(device.stream[events])) > 1))
        if key not in self._fits:
            self._fits[key] = self._compared(events)
        found = self._fits[key]
        if isinstance(found, GraphDifference):
            return found
        sized = [fit.captured.graph.tokens for fit in found if fit.captured.graph.tokens is not None]
        if replay.tokens is None or len(sized) < len(found):
            return found
        enough = [tokens for tokens in sized if tokens >= replay.tokens]
        if not enough:
            return GraphDifference(
                f"the step has {replay.tokens:,} tokens, the capture only {max(sized):,}", 0
            )
        larger = min(enough) != max(enough)
        return [fit._replace(larger=larger) for fit in found if fit.captured.graph.tokens == min(enough)]

    def _chosen(self, replays: Sequence[Replay], fits: list[_Fits]) -> list[_Match]:
        """Choose one captured graph for each replay."""
        placed: dict[int, GraphMatch] = {}
        done: set[tuple[object, ...]] = set()
        chosen: list[_Match] = []
        last = -1
        for at, found in enumerate(fits):
            if isinstance(found, GraphDifference):
                chosen.append(found)
                continue
            if len({fit.calls for fit in found}) > 1:
                pool = _pool(found)
                if pool is not None and pool not in done:
                    done.add(pool)
                    placed |= self._by_order(pool, replays, fits)
                if at not in placed:
                    chosen.append(
                        GraphDifference(
                            f"{len(found):,} captured graphs with different shapes have these kernels", 0
                        )
                    )
                    continue
            # Pieces of one model are launched in the order of their capture.
            fit = placed.get(at) or next((fit for fit in found if fit.captured.number > last), found[0])
            last = fit.captured.number
            chosen.append(fit)
        return chosen

    def _by_order(
        self,
        pool: tuple[object, ...],
        replays: Sequence[Replay],
        fits: list[_Fits],
    ) -> dict[int, GraphMatch]:
        """Return the graphs of replays of a model's pieces if only one order is possible: each step runs
        whole rounds of pieces, or the names of other pieces show where a round begins."""
        pieces = [one.number for one in self._candidates if one.pool == pool]
        stretches: dict[int, list[tuple[int, dict[int, GraphMatch]]]] = {}
        for at, found in enumerate(fits):
            if not isinstance(found, GraphDifference) and _pool(found) == pool:
                stretches.setdefault(replays[at].step, []).append(
                    (at, {fit.captured.number: fit for fit in found})
                )
        placed: dict[int, GraphMatch] = {}
        for step, ran in stretches.items():
            if len(ran) < len(pieces) or (step >= 0 and len(ran) % len(pieces)):
                continue
            orders = []
            for first in range(len(pieces) if step < 0 else 1):
                order = [found.get(pieces[(first + at) % len(pieces)]) for at, (_, found) in enumerate(ran)]
                whole = [fit for fit in order if fit is not None]
                if len(whole) == len(order):
                    orders.append(whole)
            if len({tuple(fit.calls for fit in order) for order in orders}) == 1:
                placed |= {at: fit for (at, _), fit in zip(ran, orders[0], strict=True)}
        return placed

    def _consistent(self, events: list[Int64s], chosen: list[_Match]) -> list[_Match]:
        """Remove matches of replays with different kernels to one captured graph whose names are not
        recorded."""
        device = self._trace.device
        sequences: list[bytes] = []
        of_graph: dict[int, dict[bytes, Int64s]] = defaultdict(dict)
        for fit, all_events in zip(chosen, events, strict=True):
            if isinstance(fit, GraphDifference) or fit.captured.names is not None:
                sequences.append(b"")
                continue
            kernels = all_events[~self._copied(all_events)]
            sequences.append(np.stack((device.name[kernels], device.shape[kernels])).tobytes())
            of_graph[fit.captured.number].setdefault(sequences[-1], kernels)
        doubtful: dict[bytes, GraphDifference] = {}
        for ran in of_graph.values():
            if len(ran) > 1:
                first, second, *_ = ran
                for sequence, kernels in ran.items():
                    other = ran[second if sequence == first else first]
                    doubtful.setdefault(sequence, self._unlike(kernels, other))
        return [doubtful.get(sequence, fit) for sequence, fit in zip(sequences, chosen, strict=True)]

    def _unlike(self, one: Int64s, other: Int64s) -> GraphDifference:
        """Describe the first kernel in which two replays of the same captured graph differ."""
        device = self._trace.device
        unlike = (device.name[one] != device.name[other]) | (device.shape[one] != device.shape[other])
        at = int(np.argmax(unlike))
        shown = []
        for kernel in (one[at], other[at]):
            shape = device.shape[kernel]
            grid = f" with grid and block {_shown(self._trace.launch_shapes[shape])}" if shape >= 0 else ""
            shown.append(_short(self._trace.names[device.name[kernel]]) + grid)
        text = (
            f"the replay ran {shown[0]}, another that fits the same captured graph ran {shown[1]}, and the "
            "capture has no names of kernels"
        )
        return _differs(at, len(one), text)

    def _numbered(self, events: Int64s) -> bool:
        node = self._trace.device.graph_node[events]
        return bool((node > 0).all()) and len(np.unique(node)) == len(node)

    def _copied(self, events: Int64s) -> Mask:
        device = self._trace.device
        by_kernel = np.array(
            [self._trace.names[code].startswith(_COPIES) for code in device.name[events].tolist()], bool
        )
        copied: Mask = of_kinds(device.kind[events], (MEMCPY, MEMSET)) | by_kernel
        return copied

    def _compared(self, events: Int64s) -> _Fits:
        """Return the captured graphs that match these device events: exact matches, otherwise those that lack
        only the last kernel."""
        exact: list[GraphMatch] = []
        cut: list[GraphMatch] = []
        nearest = GraphDifference("no graph was captured", -1)
        for one in self._candidates:
            result = self._compare(events, one)
            if isinstance(result, GraphDifference):
                nearest = max(nearest, result, key=lambda difference: difference.place)
            else:
                (cut if result.missing else exact).append(result)
        return exact or cut or nearest

    def _compare(self, events: Int64s, one: Candidate) -> _Match:
        captured = self._captured[one.trace]
        device = self._trace.device
        copied = self._copied(events)
        kernels = events[~copied]
        ran = [self._trace.names[code] for code in device.name[kernels].tolist()]
        streams = len(np.unique(device.stream[kernels])) > 1
        numbered = self._numbered(events)
        several = one.graph.joins or streams
        paired = (
            self._unnamed(ran, one, captured, several and not numbered)
            if one.names is None
            else _by_name(ran, one.names, several)
        )
        if isinstance(paired, GraphDifference):
            return paired
        in_order = np.array_equal(paired, np.arange(len(paired)))
        launches = one.kernels[paired]
        wrong = self._other_shape(kernels, launches, captured)
        if one.names is not None and not (in_order and (numbered or not streams)):
            wrong = self._exchangeable(one, one.names) or wrong
        if wrong is not None:
            return wrong
        found = unset(len(events))
        found[~copied] = launches
        if one.fills == [_fills(self._trace.names[code]) for code in device.name[events[copied]].tolist()]:
            found[copied] = one.copies
        return GraphMatch(
            one,
            events,
            found,
            tuple(self._calls(one.trace, found[found >= 0])),
            len(one.kernels) - len(kernels),
        )

    def _other_shape(
        self, kernels: Int64s, launches: Int64s, captured: CountedTrace
    ) -> GraphDifference | None:
        """Return the first kernel whose recorded grid or block differs from the capture."""
        device = self._trace.device
        held = captured.trace.host.kernel[launches]
        for at in np.flatnonzero((held >= 0) & (device.shape[kernels] >= 0)).tolist():
            shape, (name, other) = (
                self._trace.launch_shapes[device.shape[kernels[at]]],
                captured.trace.kernels[held[at]],
            )
            if other is not None and shape != other:
                return _differs(
                    at,
                    len(kernels),
                    (
                        f"the replay ran {_short(name)} with grid and block {_shown(shape)}, the capture "
                        f"has {_shown(other)}"
                    ),
                )
        return None

    def _exchangeable(self, one: Candidate, names: list[str]) -> GraphDifference | None:
        """Return the first kernel whose name also occurs with another call: on several streams, either may
        have started first."""
        calls: dict[str, _Call] = {}
        for at, (name, call) in enumerate(zip(names, self._calls(one.trace, one.kernels), strict=True)):
            if calls.setdefault(name, call) != call:
                return _differs(
                    at,
                    len(names),
                    (
                        f"{_short(name)} was captured with several shapes, and on several streams its "
                        "calls have no recorded order"
                    ),
                )
        return None

    def _unnamed(
        self, ran: list[str], one: Candidate, captured: CountedTrace, unordered: bool
    ) -> Int64s | GraphDifference:
        """Return the launches in order, unless one of them contradicts the kernel that ran."""
        launches = one.kernels
        for at, (name, launch) in enumerate(zip(ran, launches.tolist(), strict=False)):
            reason = contradiction(name, launch, one.graph.launches, captured)
            if reason:
                return _differs(at, len(ran), f"the replay ran {_short(name)}, the capture has {reason}")
        if len(ran) != len(launches):
            return GraphDifference(
                f"the replay ran {len(ran):,} kernels, the capture has {len(launches):,}",
                min(len(ran), len(launches)),
            )
        if unordered:
            return GraphDifference(
                "it ran on several streams, and neither the order of its nodes nor the captured "
                "kernels are recorded",
                0,
            )
        return np.arange(len(launches))

    def _calls(self, trace: int, launches: Int64s) -> Iterator[_Call]:
        """Return the operator and shapes of each captured launch."""
        captured = self._captured[trace]
        owner = captured.ownership.owner
        for launch in launches.tolist():
            variant = _variant(
                owner[launch] if owner[launch] >= 0 else captured.calls.operator[launch], captured
            )
            yield (variant.signature.name, variant.signature.shapes()) if variant else ("", "")


def _pool(found: list[GraphMatch]) -> tuple[object, ...] | None:
    """Return the model and batch that all of these belong to; None if they differ or if the names of their
    kernels are not recorded."""
    pools = {fit.captured.pool if fit.captured.names is not None else None for fit in found}
    return pools.pop() if len(pools) == 1 else None


def _candidate(number: int, at: int, graph: CapturedGraph, trace: Trace) -> Candidate:
    host = trace.host
    nodes = graph.launches
    copied = np.array(
        [any(word in trace.names[code] for word in _COPYING) for code in host.name[nodes].tolist()], bool
    )
    kernels = nodes[~copied]
    named = len(kernels) > 0 and bool((host.kernel[kernels] >= 0).all())
    names = [trace.kernels[code][0] for code in host.kernel[kernels].tolist()] if named else None
    fills = [_fills(trace.names[code]) for code in host.name[nodes[copied]].tolist()]
    return Candidate(number, at, graph, kernels, nodes[copied], fills, names)


def _fills(name: str) -> bool:
    return any(word in name for word in _FILLING)


def _by_name(ran: list[str], held: list[str], several: bool) -> Int64s | GraphDifference:
    """Return the captured kernel of each kernel that ran: the one at the same position, or on several streams
    the k-th with the same name."""
    if ran == held or (ran and ran == held[:-1]):
        return np.arange(len(ran))
    if several and Counter(ran) == Counter(held):
        later = {name: iter(places) for name, places in grouped(range(len(held)), held.__getitem__).items()}
        return np.array([next(later[name]) for name in ran], np.int64)
    at = next(
        (at for at, (one, other) in enumerate(zip(ran, held, strict=False)) if one != other),
        min(len(ran), len(held)),
    )
    if at == len(ran):
        return GraphDifference(
            f"the replay ran {counted(len(ran), 'kernel')}, the capture has {len(held):,}", at
        )
    if at == len(held):
        return _differs(at, len(ran), f"the replay ran {_short(ran[at])}, the capture ends before it")
    names = ran[at], held[at]
    one, other = map(_short, names)
    if one == other:  # the part around the first letter in which they differ
        start = max(0, len(os.path.commonprefix(names)) - _LONGEST_NAME // 2)  # noqa: RUF071
        end = start + _LONGEST_NAME
        one, other = (
            f"{'…' if start else ''}{name[start:end]}{'…' if end < len(name) else ''}" for name in names
        )
    return _differs(at, len(ran), f"the replay ran {one}, the capture has {other}")


def _differs(at: int, number: int, text: str) -> GraphDifference:
    """The difference in one kernel of ``number``."""
    return GraphDifference(f"kernel {at + 1:,} of {number:,}: {text}", at)


def _shown(shape: LaunchShape) -> str:
    return ", ".join("x".join(map(str, part)) for part in shape)


def _short(name: str) -> str:
    return (
        name
        if len(name) <= _LONGEST_NAME
        else f"{name[: _LONGEST_NAME // 2 - 1]}…{name[-_LONGEST_NAME // 2 :]}"
    )


# Kernels that a captured launch cannot have run, for captures that do not record the names of kernels.
#
# The name of the kernel is compared with the operator around the launch. An unknown operator may run any
# kernel.

# What Inductor calls every kernel unless it is asked for unique names.
_UNNAMED = "triton__"
# How the short names of matrix products begin.
_PRODUCT_KERNELS = ("GEMM", "grouped GEMM")
# Operators of these categories run no matrix product.
_NO_PRODUCTS = {
    "copy",
    "embedding",
    "reduction",
    "normalization",
    "element-wise",
    "optimizer",
    "communication",
}
_NO_COLLECTIVES = _NO_PRODUCTS - {"communication"} | {"matmul", "attention", "convolution"}
_COLLECTIVE = re.compile(r"(?:void )?(?:nccl|rccl)(?:Dev)?Kernel")
_COLLECTIVE_OPERATOR = re.compile(
    r"nccl|c10d|comm|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send|recv"
)
_ATTENTION = re.compile(r"flash_?(?:fwd|bwd|attn|attention)|flash::|fmha|attention|sdpa", re.IGNORECASE)
_OF_PYTORCH = re.compile(r"(?:void )?at::native::")
# The namespaces whose operators PyTorch itself implements.
_PYTORCH = {
    "aten",
    "prims",
    "prim",
    "quantized",
    "c10d",
    "_c10d_functional",
    "c10d_functional",
    "symm_mem",
    "inductor",
    "autograd",
    "sparse",
}
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm"}


def contradiction(name: str, launch: int, launches: Int64s, captured: CountedTrace) -> str:
    """Return what the capture has instead of a kernel of this name, by the operators around the launch; empty
    if they allow it.

    ``launches`` are all of the captured graph.
    """
    operator = int(captured.calls.operator[launch])
    owner = int(captured.ownership.owner[launch])
    if operator < 0 or name.startswith(_UNNAMED):
        return ""
    called: str = captured.trace.names[captured.trace.host.name[operator]]
    if called.startswith("triton_"):
        return "" if name.startswith(called) or called.startswith(name) else called
    if name.startswith("triton_"):
        return called if called.startswith("aten::") else ""
    short = short_kernel(name)
    work = _counted(owner, captured)
    is_product = short.startswith(_PRODUCT_KERNELS)
    excluded = False
    if _COLLECTIVE.match(name):
        of_operator = _counted(operator, captured)
        excluded = called.startswith(("aten::", "prims::")) or (
            of_operator is not None
            and of_operator.category in _NO_COLLECTIVES
            and not _COLLECTIVE_OPERATOR.search(called)
        )
    elif _ATTENTION.search(name) and not is_product:
        excluded = work is not None and work.category in {"matmul", "normalization"}
    elif _OF_PYTORCH.match(name):
        inside = slice(operator + 1, int(captured.calls.after[operator]))
        # An element-wise kernel is not the only one of a product; with others it may copy the bias.
        alone = int(((launches >= inside.start) & (launches < inside.stop)).sum()) == 1
        excluded = _is_foreign(called, inside, captured) or (
            called in _PRODUCTS and short.startswith("element-wise") and alone
        )
    elif is_product and work is not None:
        excluded = work.category in _NO_PRODUCTS and not (work.work or Work()).matrix_flops
    return called if excluded else ""


def _variant(event: int, captured: CountedTrace) -> Variant | None:
    """How the event is counted; None of none."""
    variant = captured.counts.of_event[event] if event >= 0 else -1
    return captured.counts.variants[variant] if variant >= 0 else None


def _counted(event: int, captured: CountedTrace) -> CallCount | None:
    """The count of the event; None where it has no work."""
    variant = _variant(event, captured)
    return variant.count if variant is not None and variant.count.work is not None else None


def _is_foreign(called: str, inside: slice, captured: CountedTrace) -> bool:
    """Whether this operator belongs to another library and calls no operator of ATen."""
    space, found, _ = called.partition("::")
    if not found or space in _PYTORCH or space.startswith("torch"):
        return False
    host = captured.trace.host
    operators = host.name[inside][host.kind[inside] == OPERATOR]
    return not any(captured.trace.names[code].startswith("aten::") for code in operators.tolist())
