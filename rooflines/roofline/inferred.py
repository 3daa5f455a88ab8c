"""What a trace leaves out of one call and says with another.

Traces before 2023 hold the shapes of tensors and nothing else: no stride, no dimension, no flag, no result. Much of that stands in
other calls of the same trace: the node that autograd made for a call is given a gradient of the shape of its result and has its
sequence number; the operator around a call, or one inside it, records what it does not; the next operator takes the result. Only what
leaves one possibility is used. Sources that contradict each other, or a number that two threads share, say nothing, and the call stays
without a count.

Rules are asked once for each distinct pair of signatures; what is done for each event is done on whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Final

import numpy as np

from rooflines.profiler.trace.calls import Calls, is_backward_node
from rooflines.profiler.trace.nesting import Mask, innermost
from rooflines.profiler.trace.records import OPERATOR, Int64s, Trace
from rooflines.profiler.trace.signature import MISSING, Argument, Signature, TensorArg
from rooflines.roofline.work.convolution import BACKWARD, BACKWARD_TRANSPOSED, FORWARD, TRANSPOSED
from rooflines.roofline.work.normalization import BATCH_NORM
from rooflines.roofline.work.table import aten

_CONVOLUTIONS: Final = frozenset(FORWARD) | frozenset(TRANSPOSED)
_JOINS: Final = frozenset(aten("cat _cat concat stack _stack"))
_POOLS: Final = frozenset(aten("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean"))
_REDUCTIONS: Final = frozenset(aten(
    "sum nansum mean nanmean prod amax amin logsumexp norm linalg_vector_norm frobenius_norm var std all any"
))  # fmt: skip
# Operators with one result, of the shape that the gradient given to their node has.
_ONE_RESULT: Final = _CONVOLUTIONS | _JOINS | _REDUCTIONS | frozenset(aten(
    "index _unsafe_index masked_select adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d"
    " _adaptive_avg_pool3d repeat_interleave"
))  # fmt: skip
# What takes a convolution's result as it is, first among its arguments.
_NORMS: Final = frozenset(BATCH_NORM)
_CONSUMERS: Final = _NORMS | frozenset(aten(
    "relu relu_ relu6 relu6_ leaky_relu leaky_relu_ gelu silu silu_ sigmoid sigmoid_ tanh tanh_ hardtanh hardtanh_ hardswish"
    " hardswish_ clamp clamp_ clamp_min clamp_min_ elu elu_ mish mish_ prelu add add_ group_norm native_group_norm instance_norm"
))  # fmt: skip
_VIEWS: Final = frozenset(aten("view reshape squeeze squeeze_ unsqueeze unsqueeze_ expand expand_as flatten"))
_DIMENSION_FLAG: Final = frozenset(aten("convolution _convolution convolution_overrideable"))
_GRADIENTS: Final = frozenset(aten("convolution_backward"))
_PLAIN: Final = frozenset(FORWARD) - _DIMENSION_FLAG
_TRAINED: Final = frozenset(aten("cudnn_batch_norm_backward miopen_batch_norm_backward"))
_BATCH_NORM_GRADIENT: Final = frozenset(aten("native_batch_norm_backward"))
_ACCUMULATES: Final = frozenset(aten("_index_put_impl_ index_put_ index_put _unsafe_index_put"))
_SIZED: Final = frozenset(name for name, schema in (BACKWARD | BACKWARD_TRANSPOSED).items() if "_size " in schema.partition("grad")[0])
# Backward operator -> its argument that is the shape of the forward's first operand, or (embedding) the length of its table.
_FORWARD_SIZES: Final = dict.fromkeys(aten("select_backward slice_backward diagonal_backward unfold_backward"), 1)
_TABLE_ROWS: Final = dict.fromkeys(aten("embedding_dense_backward"), 2)

_NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
_CHAIN: Final = 8  # operators that hand one call on to each other
_AMBIGUOUS: Final = -2
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Clue:
    """What other calls say of a call: an argument by its position, or the tensors that it returned. ``source`` says who, in words."""

    source: str
    position: int = -1
    value: Argument = MISSING
    outputs: tuple[TensorArg, ...] | None = None

    def fill(self, signature: Signature) -> Signature:
        """The signature with the argument in its place."""
        if self.position < 0:
            return signature
        args = (*signature.args, *(MISSING,) * (self.position + 1 - len(signature.args)))
        return replace(signature, args=(*args[: self.position], self.value, *args[self.position + 1 :]))


def infer(trace: Trace, calls: Calls, unclear: Mask) -> list[tuple[Int64s, tuple[Clue, ...]]]:
    """What is known about the ``unclear`` host events beside what they record: groups of events of one signature with their clues."""
    handled = np.array([name in _HANDLED for name in trace.names], bool)
    wanted = unclear & (trace.host.kind == OPERATOR)
    if len(trace.host):
        wanted &= handled[trace.host.name]
    if not wanted.any():
        return []
    return _Inference(trace, calls, wanted).run()


class _Inference:
    """The columns that the rules share. ``_outputs``, ``_arguments`` and ``_flags`` (whether a convolution is transposed) hold for each
    event the clue about it, -1 for none."""

    def __init__(self, trace: Trace, calls: Calls, wanted: Mask) -> None:
        self._trace = trace
        self._host = trace.host
        self._calls = calls
        self._wanted = wanted
        self._clues: list[Clue] = []
        self._says: list[int] = []
        self._known: dict[tuple[str, tuple[int, str, str]], int] = {}
        self._values: dict[tuple[int, str, str], int] = {}
        self._outputs = np.full(len(trace.host), -1, np.int64)
        self._arguments = np.full(len(trace.host), -1, np.int64)
        self._flags = np.full(len(trace.host), -1, np.int64)

    def run(self) -> list[tuple[Int64s, tuple[Clue, ...]]]:
        """Every rule in turn, the surest first; then the events by what was found."""
        self._from_nodes()
        self._from_inside()
        self._from_chain()
        self._from_consumers()
        self._from_chain()
        self._sums_in_nodes()
        self._sizes()
        self._transposed()
        self._training()
        self._accumulating()
        self._split_gradients()
        self._convolution_gradients()
        columns = (self._outputs, self._arguments, self._flags)
        found = np.flatnonzero(self._wanted & np.any([column >= 0 for column in columns], axis=0))
        base = len(self._clues) + 2
        keys = self._host.signature[found].astype(np.int64)
        for column in columns:
            keys = keys * base + column[found] + 2
        order = np.argsort(keys, kind="stable")
        _, first = np.unique(keys[order], return_index=True)
        return [(events, self._said(int(events[0]))) for events in np.split(found[order], first[1:])] if len(found) else []

    def _said(self, event: int) -> tuple[Clue, ...]:
        codes = (self._outputs[event], self._arguments[event], self._flags[event])
        return tuple(self._clues[code] for code in codes if code >= 0)

    # --- columns -------------------------------------------------------------------------------------------------------------------

    def _named(self, names: Iterable[str]) -> Mask:
        """Which events are operators of these names."""
        chosen = frozenset(names)
        listed = np.array([name in chosen for name in self._trace.names], bool)
        found: Mask = listed[self._host.name] & (self._host.kind == OPERATOR)
        return found

    @cached_property
    def _parent(self) -> Int64s:
        """The operator around each event, -1 for none."""
        parent = self._calls.parent
        return np.where(parent >= 0, self._calls.operator[np.maximum(parent, 0)], -1)

    @cached_property
    def _siblings(self) -> tuple[Int64s, Int64s]:
        """The operator before and the one after each operator, under the same operator of the same thread; -1 for none."""
        operators = np.flatnonzero(self._host.kind == OPERATOR)
        under = np.where(self._parent[operators] >= 0, self._parent[operators], -1 - self._host.thread[operators].astype(np.int64))
        order = operators[np.argsort(under, kind="stable")]
        together = np.sort(under, kind="stable")
        before, behind = np.full(len(self._host), -1, np.int64), np.full(len(self._host), -1, np.int64)
        same = together[1:] == together[:-1]
        before[order[1:][same]] = order[:-1][same]
        behind[order[:-1][same]] = order[1:][same]
        return before, behind

    @cached_property
    def _nodes(self) -> tuple[Int64s, Int64s]:
        """Autograd's nodes and, for each, the forward operator that made it.

        It has the node's name and sequence number; of several, under one that recorded nothing before, it is the last. Numbers are
        counted by each thread for itself: one that two threads share says nothing.
        """
        host, names = self._host, self._trace.names
        is_node = np.array([is_backward_node(name) for name in names], bool)
        stems: dict[str, int] = {}
        stem_of = np.full(len(names), -1, np.int64)
        for code, name in enumerate(names):
            if is_node[code]:
                stem_of[code] = stems.setdefault(_node_stem(name), len(stems))
        for code, name in enumerate(names):
            if name.startswith("aten::"):
                stem_of[code] = stems.get(_stem(name), -1)
        numbered = (host.kind == OPERATOR) & (host.sequence >= 0) & (stem_of[host.name] >= 0)
        key = host.sequence * max(len(stems), 1) + stem_of[host.name]
        nodes = np.flatnonzero(numbered & is_node[host.name])
        makers = np.flatnonzero(numbered & ~is_node[host.name] & (host.forward_thread == 0))
        if not len(nodes) or not len(makers):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        makers = makers[np.lexsort((makers, host.start_ns[makers], key[makers]))]
        keys, first = np.unique(key[makers], return_index=True)
        last = makers[np.append(first[1:], len(makers)) - 1]
        threads = host.thread[makers]
        alone = np.minimum.reduceat(threads, first) == np.maximum.reduceat(threads, first)
        at = np.minimum(np.searchsorted(keys, key[nodes]), len(keys) - 1)
        fits = (keys[at] == key[nodes]) & alone[at] & (self._calls.end_ns[last[at]] <= host.start_ns[nodes])
        return nodes[fits], last[at[fits]]

    @cached_property
    def _maker(self) -> Int64s:
        """The forward operator that made the node around each event, -1 for none."""
        of_node = np.full(len(self._host), -1, np.int64)
        nodes, makers = self._nodes
        of_node[nodes] = makers
        around = innermost(of_node >= 0, self._calls.after)
        return np.where(around >= 0, of_node[around], -1)

    def _outermost(self, family: Mask) -> Int64s:
        """For each event of a family the outermost of those that hand the call on to it."""
        top = np.arange(len(self._host))
        left = np.flatnonzero(family)
        for _ in range(_CHAIN):
            above = self._parent[top[left]]
            left = left[(above >= 0) & family[np.maximum(above, 0)]]
            if not len(left):
                break
            top[left] = self._parent[top[left]]
        return top

    # --- what is said --------------------------------------------------------------------------------------------------------------

    def _say(self, column: Int64s, events: Int64s, clues: Int64s) -> None:
        """Note ``clues`` (-1: none) of ``events`` in ``column``. Where two say different things, neither counts."""
        said = clues >= 0
        events, clues = events[said], clues[said]
        if not len(events):
            return
        says = np.array(self._says, np.int64)
        order = np.argsort(events, kind="stable")
        events, clues = events[order], clues[order]
        distinct, first = np.unique(events, return_index=True)
        values = says[clues]
        agreed = np.minimum.reduceat(values, first) == np.maximum.reduceat(values, first)
        before = column[distinct]
        agreed &= (before == -1) | ((before >= 0) & (says[np.maximum(before, 0)] == values[first]))
        column[distinct] = np.where(agreed, np.where(before >= 0, before, clues[first]), _AMBIGUOUS)

    def _code(self, clue: Clue | None) -> int:
        """The number of a clue; ``_says`` has the same number for clues that say the same, whatever their sources."""
        if clue is None:
            return -1
        said = (clue.position, repr(clue.value), repr(clue.outputs))
        key = (clue.source, said)
        if key not in self._known:
            self._known[key] = len(self._clues)
            self._clues.append(clue)
            self._says.append(self._values.setdefault(said, len(self._values)))
        return self._known[key]

    def _pairs(self, events: Int64s, others: Int64s) -> tuple[Int64s, list[tuple[Signature, Signature]], Int64s]:
        """Which of ``events`` have a signature beside another (-1: none), the distinct pairs of them, and the pair of each."""
        asked = np.flatnonzero((others >= 0) & (self._host.signature[events] >= 0))
        asked = asked[self._host.signature[others[asked]] >= 0]
        signatures = self._trace.signatures
        first, second = self._host.signature[events[asked]].astype(np.int64), self._host.signature[others[asked]]
        distinct, which = np.unique(first * len(signatures) + second, return_inverse=True)
        return asked, [(signatures[pair // len(signatures)], signatures[pair % len(signatures)]) for pair in distinct.tolist()], which

    def _ask(self, events: Int64s, others: Int64s, rule: Callable[[Signature, Signature], Clue | None]) -> Int64s:
        """The clue that ``rule`` finds for each event beside the other one, asked once for each pair of signatures."""
        answers = np.full(len(events), -1, np.int64)
        asked, pairs, which = self._pairs(events, others)
        answers[asked] = np.array([self._code(rule(*pair)) for pair in pairs], np.int64)[which] if len(asked) else -1
        return answers

    # --- results -------------------------------------------------------------------------------------------------------------------

    def _missing_output(self, names: Iterable[str]) -> Int64s:
        return np.flatnonzero(self._wanted & self._named(names) & (self._outputs == -1))

    def _from_nodes(self) -> None:
        """A node is given the gradient of what its forward operator returned."""
        nodes, makers = self._nodes
        ours = self._wanted[makers] & self._named(_ONE_RESULT)[makers]
        self._say(self._outputs, makers[ours], self._ask(makers[ours], nodes[ours], _gradient))

    def _from_inside(self) -> None:
        """A joined list is filled part by part, and a reduction's result is viewed, by operators inside the call."""
        inner = np.flatnonzero(self._named(("aten::narrow", "aten::as_strided")) & (self._parent >= 0))
        outer = self._parent[inner]
        ours = self._wanted[outer] & (self._named(_JOINS) | self._named(_REDUCTIONS))[outer]
        self._say(self._outputs, outer[ours], self._ask(outer[ours], inner[ours], _written_inside))

    def _from_chain(self) -> None:
        """Operators that hand the same operands on to one other return what it returns."""
        for family in (self._named(_CONVOLUTIONS), self._named(_JOINS), self._named(_POOLS)):
            inner = np.flatnonzero(family & (self._parent >= 0))
            inner = inner[family[self._parent[inner]]]
            outer = self._parent[inner]
            alone = np.bincount(outer, minlength=len(self._host))[outer] == 1
            asked, pairs, which = self._pairs(inner, outer)
            same = np.zeros(len(inner), bool)
            if len(asked):
                same[asked] = np.array(
                    [one.args[:2] == other.args[:2] or one.args[:1] == other.args[:1] == ((),) for one, other in pairs]
                )[which]
            inner, outer = inner[alone & same], outer[alone & same]
            for _ in range(_CHAIN):
                given = 0
                for giver, taker in ((inner, outer), (outer, inner)):
                    gives = (self._outputs[giver] >= 0) & (self._outputs[taker] == -1)
                    self._outputs[taker[gives]] = self._outputs[giver[gives]]
                    given += int(gives.sum())
                if not given:
                    break

    def _from_consumers(self) -> None:
        """The next operator takes the result: after a convolution a norm or an activation, after a sum of autograd's engine a view."""
        before, behind = self._siblings
        events = self._missing_output(_CONVOLUTIONS)
        if len(events):
            top = self._outermost(self._named(_CONVOLUTIONS))
            events = events[top[events] == events]
            self._say(self._outputs, events, self._ask(events, self._consumer(events, behind), _taken))
        events = self._missing_output(_REDUCTIONS)
        if len(events):
            is_node = np.array([is_backward_node(name) for name in self._trace.names], bool)[self._host.name]
            view = behind[events]
            around = np.stack((before[events], np.where(view >= 0, behind[np.maximum(view, 0)], -1)))
            engine = np.all((around >= 0) & is_node[np.maximum(around, 0)], axis=0)
            self._say(self._outputs, events, self._ask(events, np.where(engine, view, -1), _viewed))

    def _consumer(self, events: Int64s, behind: Int64s) -> Int64s:
        """The next operator with a tensor, under the same operator, in the same phase, in the module around that of the event or in
        another one of that."""
        tensors = np.array([*(any(tensor.shape for tensor in one.tensors) for one in self._trace.signatures), False])
        found = behind[events]
        for _ in range(_CHAIN):
            skipped = (found >= 0) & ~tensors[self._host.signature[found]]
            found = np.where(skipped, behind[np.maximum(found, 0)], found)
        paths = [module.path for module in self._calls.modules]
        owners = [path.rpartition(".")[0] for path in paths]
        numbers = {path: number for number, path in enumerate({*paths, *owners})}
        own, around = (np.array([*(numbers[path] for path in listed), -1], np.int64)[self._calls.module] for listed in (paths, owners))
        phase, at = self._calls.phase, np.maximum(found, 0)
        beside = (around[at] == around[events]) | (own[at] == around[events])
        return np.where((found >= 0) & (phase[at] == phase[events]) & beside, found, -1)

    def _sums_in_nodes(self) -> None:
        """Where an operand was broadcast, its gradient is summed to its shape."""
        events = self._missing_output(("aten::sum",))
        if len(events):
            self._say(self._outputs, events, self._ask(events, self._maker[events], _broadcast_operand))

    # --- arguments -----------------------------------------------------------------------------------------------------------------

    def _sizes(self) -> None:
        """The shape of what a gradient belongs to: the operator around the call has the tensor, or the forward operator."""
        for names, rule in ((_SIZED, _operand_size), (frozenset(_FORWARD_SIZES) | frozenset(_TABLE_ROWS), _forward_size)):
            events = np.flatnonzero(self._wanted & self._named(names))
            if len(events):
                for others in (self._parent[events], self._maker[events]):
                    self._say(self._arguments, events, self._ask(events, others, rule))

    def _transposed(self) -> None:
        """Whether a convolution is transposed: as the names around and inside the call say."""
        top = self._outermost(self._named(_CONVOLUTIONS))
        for calls, position, source in ((_DIMENSION_FLAG, 6, "the operators around it"), (_GRADIENTS, 7, "its forward operator")):
            events = np.flatnonzero(self._wanted & self._named(calls))
            if not len(events):
                continue
            of = self._maker[events] if calls is _GRADIENTS else events
            events, of = events[of >= 0], top[of[of >= 0]]
            for names, flag in ((_PLAIN, False), (TRANSPOSED, True)):
                said = events[np.isin(of, np.unique(top[self._named(names)]))]
                rule = partial(_filled, position=position, value=flag, source=f"'transposed' from {source}")
                self._say(self._flags, said, self._ask(said, said, rule))

    def _convolution_gradients(self) -> None:
        """Which gradients a convolution's backward made: each is given to a node, which comes later.

        Those of parameters go to their leaves at once, before any other node; what made the input, or cast a parameter, is a node
        with a smaller number. Behind a frozen convolution nothing is concluded: there an input may need no gradient, and another
        node of that shape be taken for its maker's.
        """
        events = np.flatnonzero(self._wanted & self._named(_GRADIENTS) & (self._maker >= 0))
        if not len(events):
            return
        events = events[~self._behind_frozen(self._maker[events])]
        takers = _Takers(self._trace)
        signatures, makers, ended = self._trace.signatures, self._maker[events], self._calls.end_ns[events]
        pairs = np.stack((self._host.signature[events], self._host.signature[makers]), axis=1)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        made = np.zeros((len(events), 3), bool)
        for case, (code, forward) in enumerate(distinct.tolist()):
            ours = np.flatnonzero(which.reshape(-1) == case)
            for place, operand in enumerate(_operands(signatures[code], signatures[forward])):
                if operand is not None:
                    made[ours, place] = takers.after(operand.shape, ended[ours], self._host.sequence[makers[ours]])
        codes = made @ np.array([4, 2, 1])
        for code in np.unique(codes).tolist():
            said = events[codes == code]
            mask = (bool(code & 4), bool(code & 2), bool(code & 1))
            rule = partial(_filled, position=10, value=mask, source="which gradients it makes from the nodes that take them")
            self._say(self._arguments, said, self._ask(said, said, rule))

    def _behind_frozen(self, makers: Int64s) -> Mask:
        """Which forward operators come after a convolution that made no node, in the forward pass that they are of."""
        host, family = self._host, self._named(_CONVOLUTIONS)
        nodes = np.sort(host.start_ns[self._nodes[0]])
        made = np.zeros(len(host) + 1, np.int64)
        made[self._nodes[1] + 1] = 1
        made = np.cumsum(made)
        tops = np.flatnonzero(family & (self._outermost(family) == np.arange(len(host))) & (host.forward_thread == 0))
        frozen = np.sort(host.start_ns[tops[made[self._calls.after[tops]] == made[tops]]])
        begin = np.concatenate(([np.iinfo(np.int64).min], nodes))[np.searchsorted(nodes, host.start_ns[makers])]
        found: Mask = np.searchsorted(frozen, host.start_ns[makers]) > np.searchsorted(frozen, begin)
        return found

    def _training(self) -> None:
        """The mode of a batch norm: its backward call tells, or the module, which counts its batches only in training."""
        norms = self._named(BATCH_NORM)
        events = np.flatnonzero(self._wanted & (norms | self._named(_BATCH_NORM_GRADIENT)))
        if not len(events):
            return
        top = self._outermost(norms)
        gradients = self._named(_BATCH_NORM_GRADIENT)
        of = np.where(gradients[events], self._maker[events], top[events])
        known = (of >= 0) & norms[np.maximum(of, 0)]
        events, of = events[known], top[of[known]]

        def note(tops: Int64s, flag: bool, source: str) -> None:
            said = events[np.isin(of, tops)]
            self._say(self._arguments, said, self._ask(said, said, partial(_mode, value=flag, source=source)))

        for names, flag in ((_TRAINED, True), (_BATCH_NORM_GRADIENT, False)):
            made = self._maker[self._named(names)]
            made = made[made >= 0]
            note(top[made[self._named(_LIBRARY_NORMS)[made]]], flag, "its mode from its backward call")
        counters = np.array([*(_counts_batches(one) for one in self._trace.signatures), False])
        tops = np.unique(top[norms])
        before = self._siblings[0][tops]
        counted = (before >= 0) & counters[self._host.signature[np.maximum(before, 0)]]
        note(tops[counted], True, "training from the count of its batches")
        if not np.any([is_backward_node(name) for name in self._trace.names]):
            note(tops[~counted], False, "inference: its batches are not counted, and nothing in the trace has a backward")

    def _accumulating(self) -> None:
        """The gradient of a selection adds to what is there."""
        events = np.flatnonzero(self._wanted & self._named(_ACCUMULATES))
        if len(events):
            self._say(self._arguments, events, self._ask(events, self._maker[events], _adds))

    def _split_gradients(self) -> None:
        """The gradient of a split joins the gradients of the parts, which are what its node is given."""
        events = self._missing_output(_JOINS)
        if len(events):
            split = np.array([is_backward_node(name) and _node_stem(name) in _SPLITS for name in self._trace.names], bool)
            parent = self._parent[events]
            below = (parent >= 0) & split[self._host.name[np.maximum(parent, 0)]]
            self._say(self._arguments, events, self._ask(events, np.where(below, parent, -1), _parts))


class _Takers:
    """Autograd's nodes by the shapes of the gradients that they are given."""

    def __init__(self, trace: Trace) -> None:
        host = trace.host
        is_node = np.array([is_backward_node(name) for name in trace.names], bool)
        is_leaf = np.array([name.endswith("AccumulateGrad") for name in trace.names], bool)
        nodes = np.flatnonzero(is_node[host.name] & (host.kind == OPERATOR))
        nodes = nodes[np.argsort(host.start_ns[nodes], kind="stable")]
        self._leaf, self._start, self._signature = is_leaf[host.name[nodes]], host.start_ns[nodes], host.signature[nodes]
        # Leaves have no number of their own; the largest one stands for "never" in both columns.
        self._number = np.where(self._leaf | (host.sequence[nodes] < 0), _NEVER, host.sequence[nodes])
        # The first node at or after each one that is no leaf.
        others = np.append(np.where(self._leaf, _NEVER, self._start), _NEVER)
        self._other = np.minimum.accumulate(others[::-1])[::-1]
        self._codes: dict[tuple[int, ...], list[int]] = {}
        for code in np.unique(self._signature).tolist():
            for shape in {tensor.shape for tensor in trace.signatures[code].tensors} if code >= 0 else ():
                self._codes.setdefault(shape, []).append(code)
        self._known: dict[tuple[int, ...], tuple[Int64s, Int64s, Int64s]] = {}

    def after(self, shape: tuple[int, ...], times_ns: Int64s, numbers: Int64s) -> Mask:
        """Whether a gradient of this shape went, after these times, to a leaf before any other node, or to a node of a number below
        these."""
        starts, least, leaves = self._of(shape)
        found: Mask = least[np.searchsorted(starts, times_ns)] < numbers
        following = leaves[np.searchsorted(leaves[:-1], times_ns)]
        return found | (following < self._other[np.searchsorted(self._start, times_ns)])

    def _of(self, shape: tuple[int, ...]) -> tuple[Int64s, Int64s, Int64s]:
        """The starts of the nodes that take it, the smallest number from each of them on, and the starts of the leaves among them."""
        if shape not in self._known:
            takes = np.flatnonzero(np.isin(self._signature, self._codes.get(shape, [])))
            least = np.append(np.minimum.accumulate(self._number[takes][::-1])[::-1], _NEVER)
            leaves = np.append(self._start[takes[self._leaf[takes]]], _NEVER)
            self._known[shape] = self._start[takes], least, leaves
        return self._known[shape]


# --- rules: what one signature says about the one beside it --------------------------------------------------------------------------


def _stem(name: str) -> str:
    return name.removeprefix("aten::").replace("_", "").lower()


def _node_stem(name: str) -> str:
    return _stem(name.removeprefix(_NODE_PREFIX).removeprefix("torch::autograd::").rpartition("Backward")[0])


def _gradient(call: Signature, node: Signature) -> Clue | None:
    given = node.args
    if len(given) != 1 or not isinstance(given[0], TensorArg):
        return None
    return Clue("output from its backward call", outputs=(TensorArg(given[0].shape, given[0].dtype),))


def _written_inside(call: Signature, inner: Signature) -> Clue | None:
    result, operand = inner.arg(0), call.arg(0)
    if not isinstance(result, TensorArg):
        return None
    if inner.name == "aten::narrow":
        if call.name not in _JOINS:
            return None
    elif call.name not in _REDUCTIONS or not isinstance(operand, TensorArg) or not _reduces(operand.shape, result.shape):
        return None
    return Clue(f"output from {inner.name} inside it", outputs=(TensorArg(result.shape, result.dtype),))


def _taken(call: Signature, consumer: Signature) -> Clue | None:
    """The operand of a norm or an activation that fits the convolution. One that looks like the convolution's own input may be that,
    unless it is a norm's: it follows what it normalises."""
    inputs, weight, result = call.arg(0), call.arg(1), consumer.arg(0)
    if consumer.name not in _CONSUMERS or not all(isinstance(one, TensorArg) for one in (inputs, weight, result)):
        return None
    rank = len(weight.shape) - 2
    if rank < 1 or not rank < len(inputs.shape) == len(result.shape) or inputs.dtype != result.dtype:
        return None
    if inputs.shape[: -rank - 1] != result.shape[: -rank - 1]:
        return None
    into, out = inputs.shape[-rank - 1], result.shape[-rank - 1]
    if call.name in TRANSPOSED:
        into, out = out, into
    if out != weight.shape[0] or into % weight.shape[1]:
        return None
    if result.shape == inputs.shape and consumer.name not in _NORMS:
        return None
    return Clue(f"output from its consumer {consumer.name}", outputs=(TensorArg(result.shape, result.dtype),))


def _viewed(call: Signature, view: Signature) -> Clue | None:
    operand, result = call.arg(0), view.arg(0)
    if view.name not in _VIEWS or not isinstance(operand, TensorArg) or not isinstance(result, TensorArg):
        return None
    if len(operand.shape) != len(result.shape) or not _reduces(operand.shape, result.shape) or result.numel == operand.numel:
        return None
    return Clue(f"output from its consumer {view.name}", outputs=(TensorArg(result.shape, result.dtype),))


def _broadcast_operand(call: Signature, forward: Signature) -> Clue | None:
    grad = call.arg(0)
    if forward.name not in _BROADCASTING or not isinstance(grad, TensorArg):
        return None
    shapes = {one.shape for one in forward.tensors if one.numel < grad.numel and _broadcasts(one.shape, grad.shape)}
    if len({prod(shape) for shape in shapes}) != 1:
        return None
    return Clue(f"output from the operand of {forward.name}", outputs=(TensorArg(min(shapes), grad.dtype),))


def _reduces(operand: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether ``result`` is ``operand`` with some dimensions reduced, which are 1 then or gone."""
    if len(operand) == len(result):
        return all(after in (before, 1) for before, after in zip(operand, result, strict=True))
    rest = iter(operand)
    return len(result) < len(operand) and all(extent in rest for extent in result)


def _broadcasts(operand: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether a tensor of shape ``operand`` was stretched to ``result``."""
    aligned = result[len(result) - len(operand) :]
    return len(operand) <= len(result) and all(one in (1, other) for one, other in zip(operand, aligned, strict=True))


def _filled(call: Signature, other: Signature, position: int, value: Argument, source: str) -> Clue | None:
    """The argument, where the call did not record its own."""
    return Clue(source, position, value) if call.arg(position) is MISSING else None


def _mode(call: Signature, other: Signature, value: bool, source: str) -> Clue | None:
    """A batch norm's mode. Without running statistics there is but one."""
    if call.name in _BATCH_NORM_GRADIENT:
        return _filled(call, other, 7, value, source)
    if "training" not in BATCH_NORM[call.name].split() or (not value and not isinstance(call.arg(3), TensorArg)):
        return None
    return _filled(call, other, 5, value, source)


def _counts_batches(signature: Signature) -> bool:
    """``num_batches_tracked += 1``."""
    counter = signature.arg(0)
    return signature.name in ("aten::add_", "aten::add") and counter == TensorArg((), "int64", getattr(counter, "strides", None))


def _operand_size(call: Signature, other: Signature) -> Clue | None:
    """``self_size`` and ``weight_size`` from an operator that has the tensors."""
    ours, theirs = _SCHEMAS[call.name].split(), _SCHEMAS.get(other.name, "").split()
    theirs = [field.partition("=")[0] for field in theirs]
    name = ours[0].removesuffix("_size")
    for shared in ("grad", "self", "weight"):
        if shared in ours and shared in theirs:
            one, two = call.arg(ours.index(shared)), other.arg(theirs.index(shared))
            if not isinstance(one, TensorArg) or not isinstance(two, TensorArg) or one.shape != two.shape:
                return None
    tensor = other.arg(theirs.index(name)) if name in theirs else MISSING
    if not isinstance(tensor, TensorArg):
        return None
    return _filled(call, other, 0, tensor.shape, f"'{ours[0]}' from {other.name}")


def _forward_size(call: Signature, forward: Signature) -> Clue | None:
    grad, operand = call.arg(0), forward.arg(0)
    if not isinstance(grad, TensorArg) or not isinstance(operand, TensorArg) or not forward.name.startswith("aten::"):
        return None
    source = f"the size of its result from {forward.name}"
    if call.name in _TABLE_ROWS:
        fits = len(operand.shape) == 2 and operand.shape[-1:] == grad.shape[-1:] and forward.name == "aten::embedding"
        return _filled(call, forward, _TABLE_ROWS[call.name], operand.shape[0], source) if fits else None
    fits = _stem(call.name).removesuffix("backward") == _stem(forward.name)
    return _filled(call, forward, _FORWARD_SIZES[call.name], operand.shape, source) if fits else None


def _adds(call: Signature, forward: Signature) -> Clue | None:
    selects = forward.name in ("aten::index", "aten::_unsafe_index")
    return _filled(call, forward, 3, True, f"that it adds from {forward.name}, whose gradient it is") if selects else None


def _parts(call: Signature, node: Signature) -> Clue | None:
    if call.arg(0, ()) != () or not node.args or not all(isinstance(one, TensorArg) for one in node.args):
        return None
    return Clue("its list from the node around it", 0, node.args)


def _operands(call: Signature, forward: Signature) -> tuple[TensorArg | None, ...]:
    """What a convolution's backward may make gradients of: input, weight and, if the forward had one, bias."""
    found = (call.arg(1), call.arg(2), forward.arg(2))
    return tuple(one if isinstance(one, TensorArg) else None for one in found)


_LIBRARY_NORMS: Final = frozenset(aten("cudnn_batch_norm miopen_batch_norm"))
_SPLITS: Final = frozenset(("split", "splitwithsizes", "unsafesplit", "unsafesplitwithsizes", "unbind"))  # names of nodes
_BROADCASTING: Final = frozenset(aten("add add_ sub sub_ rsub mul mul_ div div_ addmm baddbmm expand"))
_SCHEMAS: Final = FORWARD | TRANSPOSED | BACKWARD | BACKWARD_TRANSPOSED
_HANDLED: Final = (
    _ONE_RESULT
    | _NORMS
    | _BATCH_NORM_GRADIENT
    | _GRADIENTS
    | _ACCUMULATES
    | _SIZED
    | frozenset(_FORWARD_SIZES)
    | frozenset(_TABLE_ROWS)
)
