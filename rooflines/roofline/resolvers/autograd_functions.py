"""Backward of autograd functions written in Python: their event has the gradients alone, that of the forward has the arguments.

Both have the sequence number of the call. The formula of ``FlashAttnFuncBackward`` is given the gradient of the first result, then the
arguments of ``FlashAttnFunc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from rooflines.profiler.trace.records import OPERATOR, Int64s
from rooflines.roofline.formulas import count
from rooflines.roofline.resolvers.counts import Context, Counts, Variant

_SUFFIX: Final = "Backward"


def from_forward_functions(counts: Counts, context: Context) -> Counts:
    """Count unknown backward calls of Python's autograd functions with the arguments of their forward."""
    return counts.recounted(_groups(counts, context))


def _groups(counts: Counts, context: Context) -> Iterator[tuple[Int64s, Variant]]:
    host, names, signatures = context.trace.host, context.trace.names, context.trace.signatures
    codes = {name: code for code, name in enumerate(names)}
    unknown = counts.where(lambda variant: variant.count.kind == "unknown")
    numbered = (host.kind == OPERATOR) & (host.sequence >= 0)
    for name, code in codes.items():
        forward = codes.get(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
        if forward is None:
            continue
        nodes = np.flatnonzero(numbered & unknown & (host.name == code))
        makers = np.flatnonzero(numbered & (host.name == forward))
        numbers, first, calls = np.unique(host.sequence[makers], return_index=True, return_counts=True)
        if not len(nodes) or not len(numbers):
            continue
        at = np.minimum(np.searchsorted(numbers, host.sequence[nodes]), len(numbers) - 1)
        found = (numbers[at] == host.sequence[nodes]) & (calls[at] == 1)  # threads count for themselves
        nodes, makers = nodes[found], makers[first[at[found]]]
        both = np.stack((host.signature[nodes], host.signature[makers]), axis=1)
        pairs, group = np.unique(both, axis=0, return_inverse=True)
        for place, (node, maker) in enumerate(pairs.tolist()):
            signature = replace(signatures[node], args=(*signatures[node].args[:1], *signatures[maker].args))
            counted = count(signature)
            if counted.kind == "counted":
                yield nodes[group.reshape(-1) == place], Variant(signature, counted, f"its arguments from {names[forward]}")
