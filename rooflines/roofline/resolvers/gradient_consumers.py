"""Find the autograd nodes that consume a gradient of a given shape, and so the gradients that a convolution's backward makes."""

from __future__ import annotations

from typing import Final

import numpy as np

from rooflines.profiler.trace.calls import is_backward_node
from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import OPERATOR, Int64s, Trace

_NEVER: Final = np.iinfo(np.int64).max


class GradientConsumers:
    """Autograd's nodes by the shapes of the gradients that they are given."""

    def __init__(self, trace: Trace) -> None:
        host = trace.host
        is_node = np.array([is_backward_node(name) for name in trace.names], bool)
        is_leaf = np.array([name.endswith("AccumulateGrad") for name in trace.names], bool)
        nodes = np.flatnonzero(is_node[host.name] & (host.kind == OPERATOR))
        nodes = nodes[np.argsort(host.start_ns[nodes], kind="stable")]
        self._leaf, self._start, self._signature = is_leaf[host.name[nodes]], host.start_ns[nodes], host.signature[nodes]
        # Leaves have no number; the largest number means "never" in both columns.
        self._number = np.where(self._leaf | (host.sequence[nodes] < 0), _NEVER, host.sequence[nodes])
        # The first node at or after each one that is not a leaf.
        others = np.append(np.where(self._leaf, _NEVER, self._start), _NEVER)
        self._other = np.minimum.accumulate(others[::-1])[::-1]
        self._codes: dict[tuple[int, ...], list[int]] = {}
        for code in distinct(self._signature)[0].tolist():
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
