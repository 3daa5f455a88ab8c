"""Lists of parameters: traces leave out lists of more than 30 tensors, which in the optimizer are the parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.trace.tree import OPTIMIZER
from rooflines.roofline.formulas import count
from rooflines.roofline.resolvers.counts import Counts, Group, Variant

_OF_LISTS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")


def from_parameters(counts: Counts) -> Iterator[Group]:
    """Count the optimizer's calls whose lists were left out with the parameters, shared among the calls that a step makes."""
    host, calls, elements = counts.trace.host, counts.calls, counts.known.parameter_elements
    if elements is None:
        return
    steps = max(1, len(calls.steps))
    for code, signature in enumerate(counts.trace.signatures):
        if signature.arg(0) != () or not signature.name.startswith(_OF_LISTS):
            continue
        events = np.flatnonzero((host.signature == code) & (calls.phase == OPTIMIZER))
        if len(events):
            each = elements * steps // len(events)
            yield events, Variant(signature, count(signature, parameter_elements=each, parameter_dtype=counts.known.parameter_dtype))
