"""Arguments and outputs that a trace leaves out of one call and records with another.

Traces before 2023 hold the shapes of tensors only: no strides, dimensions, flags or results. Other calls of
the same trace supply many of these: the autograd node of a call is given a gradient of the shape of its
result and has its sequence number; the operator around a call, or one inside it, records what the call does
not; the next operator takes the result. Only what leaves one possibility is used. Where sources contradict
each other, or two threads share a sequence number, the call stays without a count.

Rules (``pair_rules.py``) are asked once for each distinct pair of signatures; work for each event is done on
whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.nesting import innermost
from rooflines.profiler.read.records import OPERATOR, Int64s, Mask, Trace
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.profiler.tree.tree import Calls, is_backward_node
from rooflines.roofline.count import pair_rules
from rooflines.roofline.count.counts import Counts, Group, Variant, places_of, same_in_group, unset
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.arguments import Ints
from rooflines.roofline.count.formulas.convolution import BACKWARD, BACKWARD_TRANSPOSED, FORWARD, TRANSPOSED
from rooflines.roofline.count.formulas.normalization import BATCH_NORM
from rooflines.roofline.count.formulas.registry import aten
from rooflines.roofline.count.pair_rules import Evidence

_Rule = Callable[[Signature, Signature], Evidence | None]
_CONVOLUTIONS = frozenset(FORWARD) | frozenset(TRANSPOSED)
_POOLS = frozenset(aten("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean"))
# Operators with one result, of the shape that the gradient given to their node has.
_ONE_RESULT = (
    _CONVOLUTIONS
    | pair_rules.JOINS
    | pair_rules.REDUCTIONS
    | pair_rules.SELECTIONS
    | frozenset(
        aten(
            "index _unsafe_index adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
            "_adaptive_avg_pool2d"
            " _adaptive_avg_pool3d repeat_interleave"
        )
    )
)
_DIMENSION_FLAG = frozenset(aten("convolution _convolution convolution_overrideable"))
_GRADIENTS = frozenset(aten("convolution_backward"))
_PLAIN = frozenset(FORWARD) - _DIMENSION_FLAG
_TRAINED = frozenset(aten("cudnn_batch_norm_backward miopen_batch_norm_backward"))
_ACCUMULATES = frozenset(aten("_index_put_impl_ index_put_ index_put _unsafe_index_put"))
_SIZED = frozenset(
    name
    for name, schema in (BACKWARD | BACKWARD_TRANSPOSED).items()
    if "_size " in schema.partition("grad")[0]
)
_CHAIN = 8  # operators that hand one call on to each other
_AMBIGUOUS = -2
_LIBRARY_NORMS = frozenset(aten("cudnn_batch_norm miopen_batch_norm"))
_SPLITS = frozenset(
    ("split", "splitwithsizes", "unsafesplit", "unsafesplitwithsizes", "unbind")
)  # names of nodes
_WITH_SIZES = frozenset(pair_rules.FORWARD_SIZES) | frozenset(pair_rules.TABLE_ROWS)
_HANDLED = (
    _ONE_RESULT
    | pair_rules.NORMS
    | pair_rules.BATCH_NORM_GRADIENT
    | _GRADIENTS
    | _ACCUMULATES
    | _SIZED
    | _WITH_SIZES
)


def from_related_calls(counts: Counts) -> Iterator[Group]:
    """Count unknown calls with the arguments and outputs that other calls of the trace record."""
    trace = counts.trace
    wanted = counts.of_kind("unknown") & trace.named(_HANDLED.__contains__, OPERATOR)
    if not wanted.any():
        return
    for events, found in _EvidenceSearch(trace, counts.calls, wanted).run():
        signature = trace.signatures[int(trace.host.signature[events[0]])]
        outputs = None
        for evidence in found:
            signature = evidence.fill(signature)
            outputs = evidence.outputs or outputs
        counted = count(signature, outputs=outputs)
        if counted.kind != "unknown":
            yield (
                events,
                Variant(signature, counted, "; ".join(dict.fromkeys(evidence.source for evidence in found))),
            )


class _EvidenceSearch:
    """The columns that the passes share. ``_outputs``, ``_arguments`` and ``_flags`` (whether a convolution
    is transposed) index ``_evidence`` for each event, -1 for none."""

    def __init__(self, trace: Trace, calls: Calls, wanted: Mask) -> None:
        self._trace = trace
        self._host = trace.host
        self._calls = calls
        self._parent = calls.above
        self._wanted = wanted
        self._evidence: dict[Evidence, int] = {}
        self._stated: dict[Evidence, int] = {}
        self._values: list[int] = []
        self._outputs, self._arguments, self._flags = (unset(len(trace.host)) for _ in range(3))
        self._itself = np.arange(len(trace.host))

    def run(self) -> list[tuple[Int64s, tuple[Evidence, ...]]]:
        """Run every pass, the most reliable first, and group the events by the evidence found."""
        self._from_nodes()
        self._from_inside()
        self._from_chain()
        self._from_consumers()
        self._from_chain()
        # Where an operand was broadcast, its gradient is summed to its shape.
        self._conclude(
            self._outputs, self._missing_output(("aten::sum",)), self._maker, pair_rules.broadcast_operand
        )
        # The shape of what a gradient belongs to: the operator around the call has the tensor, or the forward
        # operator.
        for others in (self._parent, self._maker):
            self._conclude(self._arguments, self._unknown(_SIZED), others, pair_rules.operand_size)
            self._conclude(self._arguments, self._unknown(_WITH_SIZES), others, pair_rules.forward_size)
        self._transposed()
        self._training()
        # The gradient of a selection adds to what is there.
        self._conclude(self._arguments, self._unknown(_ACCUMULATES), self._maker, pair_rules.adds)
        # The gradient of a split joins the gradients of the parts, which are what its node is given.
        self._conclude(
            self._arguments, self._missing_output(pair_rules.JOINS), self._split_around, pair_rules.parts
        )
        self._convolution_gradients()
        columns = np.stack((self._outputs, self._arguments, self._flags))
        events = np.flatnonzero(self._wanted & (columns >= 0).any(axis=0))
        stated, which = distinct_rows(self._host.signature[events], *columns[:, events])
        evidence = list(self._evidence)
        return [
            (events[places], tuple(evidence[code] for code in stated[row, 1:].tolist() if code >= 0))
            for row, places in places_of(which)
        ]

    # --- columns ------------------------------------------------------------------------------------------

    def _named(self, names: Iterable[str]) -> Mask:
        """Which events are operators of these names."""
        return self._trace.named(frozenset(names).__contains__, OPERATOR)

    @cached_property
    def _is_node(self) -> Mask:
        """Which events are autograd nodes."""
        return self._trace.named(is_backward_node, OPERATOR)

    @cached_property
    def _siblings(self) -> tuple[Int64s, Int64s]:
        """The operator before and the one after each operator, under the same operator of the same thread; -1
        for none."""
        operators = np.flatnonzero(self._host.kind == OPERATOR)
        under = np.where(
            self._parent[operators] >= 0,
            self._parent[operators],
            -1 - self._host.thread[operators].astype(np.int64),
        )
        order = operators[np.argsort(under, kind="stable")]
        together = np.sort(under, kind="stable")
        before = unset(len(self._host))
        behind = unset(len(self._host))
        same = together[1:] == together[:-1]
        before[order[1:][same]] = order[:-1][same]
        behind[order[:-1][same]] = order[1:][same]
        return before, behind

    @cached_property
    def _nodes(self) -> tuple[Int64s, Int64s]:
        """Autograd's nodes and, for each, the forward operator that made it.

        It has the node's name and sequence number; of several, under one that recorded nothing before, it is
        the last. Numbers are counted by each thread for itself: one that two threads share says nothing.
        """
        host, names, is_node = self._host, self._trace.names, self._is_node
        stems: dict[str, int] = {}
        stem_of = unset(len(names))
        for code, name in enumerate(names):
            if is_backward_node(name):
                stem_of[code] = stems.setdefault(pair_rules.node_stem(name), len(stems))
        for code, name in enumerate(names):
            if name.startswith("aten::"):
                stem_of[code] = stems.get(pair_rules.stem(name), -1)
        numbered = (host.kind == OPERATOR) & (host.sequence >= 0) & (stem_of[host.name] >= 0)
        key = host.sequence * max(len(stems), 1) + stem_of[host.name]
        nodes = np.flatnonzero(numbered & is_node)
        makers = np.flatnonzero(numbered & ~is_node & (host.forward_thread == 0))
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
        of_node = unset(len(self._host))
        nodes, makers = self._nodes
        of_node[nodes] = makers
        around = innermost(of_node >= 0, self._calls.after)
        return np.where(around >= 0, of_node[around], -1)

    def _outermost(self, family: Mask) -> Int64s:
        """For each event of a family the outermost of those that hand the call on to it."""
        top = self._itself.copy()
        left = np.flatnonzero(family)
        for _ in range(_CHAIN):
            above = self._parent[top[left]]
            left = left[(above >= 0) & family[above]]
            if not len(left):
                break
            top[left] = self._parent[top[left]]
        return top

    # --- evidence -----------------------------------------------------------------------------------------

    def _state(self, column: Int64s, events: Int64s, others: Int64s, rule: _Rule) -> None:
        """Enter what ``rule`` finds in each pair of ``events`` and ``others`` (-1: none) in ``column``. Where
        two pieces contradict each other, neither counts."""
        evidence = self._ask(events, others, rule)
        stated = evidence >= 0
        evidence = evidence[stated]
        distinct, first, which = np.unique(events[stated], return_index=True, return_inverse=True)
        numbers = np.array(self._values, np.int64)
        values = numbers[evidence]
        agreed = same_in_group(values, which, len(distinct)) >= 0
        before = column[distinct]
        agreed &= (before == -1) | ((before >= 0) & (numbers[np.maximum(before, 0)] == values[first]))
        column[distinct] = np.where(agreed, np.where(before >= 0, before, evidence[first]), _AMBIGUOUS)

    def _code(self, evidence: Evidence | None) -> int:
        """The number of ``evidence``. ``_values`` has one number for all that state the same."""
        if evidence is None:
            return -1
        if evidence not in self._evidence:
            self._evidence[evidence] = len(self._evidence)
            self._values.append(self._stated.setdefault(replace(evidence, source=""), len(self._stated)))
        return self._evidence[evidence]

    def _pairs(
        self, events: Int64s, others: Int64s
    ) -> tuple[Int64s, list[tuple[Signature, Signature]], Int64s]:
        """The ``events`` with a neighboring signature (-1: none), the distinct pairs, and the pair of each
        event."""
        signatures, codes = self._trace.signatures, self._host.signature
        asked = np.flatnonzero((others >= 0) & (codes[events] >= 0))
        asked = asked[codes[others[asked]] >= 0]
        pairs, which = distinct_rows(codes[events[asked]], codes[others[asked]])
        return asked, [(signatures[first], signatures[second]) for first, second in pairs.tolist()], which

    def _ask(self, events: Int64s, others: Int64s, rule: _Rule) -> Int64s:
        """The evidence that ``rule`` finds in each pair of an event and another, asked once for each pair of
        signatures."""
        answers = unset(len(events))
        asked, pairs, which = self._pairs(events, others)
        answers[asked] = np.array([self._code(rule(*pair)) for pair in pairs], np.int64)[which]
        return answers

    def _conclude(self, column: Int64s, events: Int64s, others: Int64s, rule: _Rule) -> None:
        """Enter what ``rule`` finds in each pair of an event and the one that ``others`` has for it (-1:
        none)."""
        self._state(column, events, others[events], rule)

    def _unknown(self, names: Iterable[str]) -> Int64s:
        """The events of these names that have no count."""
        return np.flatnonzero(self._wanted & self._named(names))

    def _missing_output(self, names: Iterable[str]) -> Int64s:
        events = self._unknown(names)
        found: Int64s = events[self._outputs[events] == -1]
        return found

    # --- results ------------------------------------------------------------------------------------------

    def _from_nodes(self) -> None:
        """A node is given the gradient of what its forward operator returned."""
        nodes, makers = self._nodes
        ours = self._wanted[makers] & self._named(_ONE_RESULT)[makers]
        self._state(self._outputs, makers[ours], nodes[ours], pair_rules.gradient)

    def _from_inside(self) -> None:
        """A joined list is filled part by part, and the result of a reduction or selection is viewed, by
        operators inside the call."""
        inner = np.flatnonzero(
            self._named(("aten::narrow", "aten::as_strided", "aten::as_strided_")) & (self._parent >= 0)
        )
        outer = self._parent[inner]
        ours = (
            self._wanted[outer]
            & self._named(pair_rules.JOINS | pair_rules.REDUCTIONS | pair_rules.SELECTIONS)[outer]
        )
        self._state(self._outputs, outer[ours], inner[ours], pair_rules.written_inside)

    def _from_chain(self) -> None:
        """Operators that hand the same operands on to one other return what it returns."""
        for family in (self._named(_CONVOLUTIONS), self._named(pair_rules.JOINS), self._named(_POOLS)):
            inner = np.flatnonzero(family & (self._parent >= 0))
            inner = inner[family[self._parent[inner]]]
            outer = self._parent[inner]
            alone = np.bincount(outer, minlength=len(self._host))[outer] == 1
            asked, pairs, which = self._pairs(inner, outer)
            same = np.zeros(len(inner), bool)
            hands_on = [
                one.args[:2] == other.args[:2] or one.args[:1] == other.args[:1] == ((),)
                for one, other in pairs
            ]
            same[asked] = np.array(hands_on, bool)[which]
            inner = inner[alone & same]
            outer = outer[alone & same]
            for _ in range(_CHAIN):
                given = 0
                for giver, taker in ((inner, outer), (outer, inner)):
                    gives = (self._outputs[giver] >= 0) & (self._outputs[taker] == -1)
                    self._outputs[taker[gives]] = self._outputs[giver[gives]]
                    given += int(gives.sum())
                if not given:
                    break

    def _from_consumers(self) -> None:
        """The next operator takes the result: after a convolution a norm or an activation, after a sum of
        autograd's engine a view."""
        before, behind = self._siblings
        events = self._missing_output(_CONVOLUTIONS)
        if len(events):
            top = self._outermost(self._named(_CONVOLUTIONS))
            events = events[top[events] == events]
            self._state(self._outputs, events, self._consumer(events, behind), pair_rules.taken)
        events = self._missing_output(pair_rules.REDUCTIONS)
        if len(events):
            view = behind[events]
            around = np.stack((before[events], np.where(view >= 0, behind[view], -1)))
            engine = np.all((around >= 0) & self._is_node[around], axis=0)
            self._state(self._outputs, events, np.where(engine, view, -1), pair_rules.viewed)

    def _consumer(self, events: Int64s, behind: Int64s) -> Int64s:
        """The next operator with a tensor, under the same operator, in the same phase, in the module around
        that of the event or in another one of that."""
        tensors = np.array(
            [*(any(tensor.shape for tensor in one.tensors) for one in self._trace.signatures), False]
        )
        found = behind[events]
        for _ in range(_CHAIN):
            skipped = (found >= 0) & ~tensors[self._host.signature[found]]
            found = np.where(skipped, behind[found], found)
        paths = [module.path for module in self._calls.modules]
        owners = [path.rpartition(".")[0] for path in paths]
        own, around = (np.array([*listed, None], object)[self._calls.module] for listed in (paths, owners))
        phase = self._calls.phase
        beside = (around[found] == around[events]) | (own[found] == around[events])
        return np.where((found >= 0) & (phase[found] == phase[events]) & beside, found, -1)

    # --- arguments ----------------------------------------------------------------------------------------

    @cached_property
    def _split_around(self) -> Int64s:
        """The node of a split directly around each event, -1 for none."""
        split = self._trace.named(
            lambda name: is_backward_node(name) and pair_rules.node_stem(name) in _SPLITS
        )
        return np.where((self._parent >= 0) & split[self._parent], self._parent, -1)

    def _transposed(self) -> None:
        """Whether a convolution is transposed: as the names around and inside the call say."""
        top = self._outermost(self._named(_CONVOLUTIONS))
        for calls, position, source in (
            (_DIMENSION_FLAG, 6, "the operators around it"),
            (_GRADIENTS, 7, "its forward operator"),
        ):
            events = self._unknown(calls)
            if not len(events):
                continue
            of = self._maker[events] if calls is _GRADIENTS else events
            events = events[of >= 0]
            of = top[of[of >= 0]]
            for names, flag in ((_PLAIN, False), (TRANSPOSED, True)):
                these = events[np.isin(of, distinct(top[self._named(names)])[0])]
                rule = partial(
                    pair_rules.filled, position=position, value=flag, source=f"'transposed' from {source}"
                )
                self._conclude(self._flags, these, self._itself, rule)

    def _convolution_gradients(self) -> None:
        """Which gradients a convolution's backward made: each is given to a node, which comes later.

        Those of parameters go to their leaves at once, before any other node; what made the input, or cast a
        parameter, is a node with a smaller number. Behind a frozen convolution nothing is concluded: there an
        input may need no gradient, and another node of that shape be taken for its maker's.
        """
        events = np.flatnonzero(self._wanted & self._named(_GRADIENTS) & (self._maker >= 0))
        if not len(events):
            return
        events = events[~self._behind_frozen(self._maker[events])]
        consumers = GradientConsumers(self._trace)
        signatures = self._trace.signatures
        makers = self._maker[events]
        ended = self._calls.end_ns[events]
        pairs, which = distinct_rows(self._host.signature[events], self._host.signature[makers])
        made = np.zeros((len(events), 3), bool)
        for row, ours in places_of(which):
            call, forward = (signatures[code] for code in pairs[row].tolist())
            # Input, weight and, if the forward had one, bias.
            for position, operand in enumerate((call.arg(1), call.arg(2), forward.arg(2))):
                if isinstance(operand, TensorArg):
                    made[ours, position] = consumers.after(
                        operand.shape, ended[ours], self._host.sequence[makers[ours]]
                    )
        masks, which = distinct_rows(*made.T)
        for row, places in places_of(which):
            mask = tuple(map(bool, masks[row].tolist()))
            rule = partial(
                pair_rules.filled,
                position=10,
                value=mask,
                source="which gradients it makes from the nodes that take them",
            )
            self._conclude(self._arguments, events[places], self._itself, rule)

    def _behind_frozen(self, makers: Int64s) -> Mask:
        """Which forward operators come after a convolution that made no node, in the forward pass that they
        are of."""
        host = self._host
        family = self._named(_CONVOLUTIONS)
        nodes = np.sort(host.start_ns[self._nodes[0]])
        made = np.zeros(len(host) + 1, np.int64)
        made[self._nodes[1] + 1] = 1
        made = np.cumsum(made)
        tops = np.flatnonzero(family & (self._outermost(family) == self._itself) & (host.forward_thread == 0))
        frozen = np.sort(host.start_ns[tops[made[self._calls.after[tops]] == made[tops]]])
        begin = np.concatenate(([np.iinfo(np.int64).min], nodes))[
            np.searchsorted(nodes, host.start_ns[makers])
        ]
        found: Mask = np.searchsorted(frozen, host.start_ns[makers]) > np.searchsorted(frozen, begin)
        return found

    def _training(self) -> None:
        """The mode of a batch norm: its backward call tells, or the module, which counts its batches only in
        training."""
        norms = self._named(BATCH_NORM)
        events = np.flatnonzero(self._wanted & (norms | self._named(pair_rules.BATCH_NORM_GRADIENT)))
        if not len(events):
            return
        top = self._outermost(norms)
        gradients = self._named(pair_rules.BATCH_NORM_GRADIENT)
        of = np.where(gradients[events], self._maker[events], top[events])
        known = (of >= 0) & norms[of]
        events = events[known]
        of = top[of[known]]

        def note(tops: Int64s, flag: bool, source: str) -> None:
            rule = partial(pair_rules.mode, value=flag, source=source)
            self._conclude(self._arguments, events[np.isin(of, tops)], self._itself, rule)

        for names, flag in ((_TRAINED, True), (pair_rules.BATCH_NORM_GRADIENT, False)):
            made = self._maker[self._named(names)]
            made = made[made >= 0]
            note(top[made[self._named(_LIBRARY_NORMS)[made]]], flag, "its mode from its backward call")
        counters = np.array([*(pair_rules.counts_batches(one) for one in self._trace.signatures), False])
        tops = distinct(top[norms])[0]
        before = self._siblings[0][tops]
        counted = (before >= 0) & counters[self._host.signature[before]]
        note(tops[counted], True, "training from the count of its batches")
        if not self._is_node.any():
            note(
                tops[~counted],
                False,
                "inference: its batches are not counted, and nothing in the trace has a backward",
            )


# Find the autograd nodes that consume a gradient of a given shape, and so the gradients that a convolution's
# backward makes.

_NEVER = np.iinfo(np.int64).max


class GradientConsumers:
    """Autograd's nodes by the shapes of the gradients that they are given."""

    def __init__(self, trace: Trace) -> None:
        host = trace.host
        nodes = np.flatnonzero(trace.named(is_backward_node, OPERATOR))
        is_leaf = trace.named(lambda name: name.endswith("AccumulateGrad"))
        nodes = nodes[np.argsort(host.start_ns[nodes], kind="stable")]
        self._leaf, self._start, self._signature = is_leaf[nodes], host.start_ns[nodes], host.signature[nodes]
        # Leaves have no number; the largest number means "never" in both columns.
        self._number = np.where(self._leaf | (host.sequence[nodes] < 0), _NEVER, host.sequence[nodes])
        # The first node at or after each one that is not a leaf.
        others = np.append(np.where(self._leaf, _NEVER, self._start), _NEVER)
        self._other = np.minimum.accumulate(others[::-1])[::-1]
        self._codes: dict[Ints, list[int]] = {}
        for code in distinct(self._signature)[0].tolist():
            for shape in {tensor.shape for tensor in trace.signatures[code].tensors} if code >= 0 else ():
                self._codes.setdefault(shape, []).append(code)
        self._known: dict[Ints, tuple[Int64s, Int64s, Int64s]] = {}

    def after(self, shape: Ints, times_ns: Int64s, numbers: Int64s) -> Mask:
        """Whether a gradient of this shape went, after these times, to a leaf before any other node, or to a
        node of a number below these."""
        starts, least, leaves = self._of(shape)
        found: Mask = least[np.searchsorted(starts, times_ns)] < numbers
        following = leaves[np.searchsorted(leaves[:-1], times_ns)]
        return found | (following < self._other[np.searchsorted(self._start, times_ns)])

    def _of(self, shape: Ints) -> tuple[Int64s, Int64s, Int64s]:
        """The starts of the nodes that take it, the smallest number from each of them on, and the starts of
        the leaves among them."""
        if shape not in self._known:
            takes = np.flatnonzero(np.isin(self._signature, self._codes.get(shape, [])))
            least = np.append(np.minimum.accumulate(self._number[takes][::-1])[::-1], _NEVER)
            leaves = np.append(self._start[takes[self._leaf[takes]]], _NEVER)
            self._known[shape] = self._start[takes], least, leaves
        return self._known[shape]
