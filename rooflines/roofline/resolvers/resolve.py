"""The count of every call in a trace, with what the trace leaves out filled in by one resolver after the other."""

from __future__ import annotations

from functools import reduce
from typing import Final

from rooflines.profiler.trace.calls import Calls
from rooflines.roofline.resolvers.allocations import from_allocations
from rooflines.roofline.resolvers.batches import from_batches
from rooflines.roofline.resolvers.cached_kernels import from_inductor_cache
from rooflines.roofline.resolvers.compiled import from_compiled_code
from rooflines.roofline.resolvers.counts import NOTHING, Counts, Known, Resolver, count_signatures
from rooflines.roofline.resolvers.dispatchers import pass_decomposed_calls, pass_repeated_calls, pass_wrapped_attention
from rooflines.roofline.resolvers.index_views import from_index_views
from rooflines.roofline.resolvers.launched_kernels import from_launched_kernels
from rooflines.roofline.resolvers.library_gradients import from_forward_calls
from rooflines.roofline.resolvers.parameters import from_parameters
from rooflines.roofline.resolvers.related_calls import from_related_calls
from rooflines.roofline.resolvers.stored_calls import from_stored_calls

# In this order: later ones know better, and those that pass calls through ask what the others have counted.
RESOLVERS: Final[tuple[Resolver, ...]] = (
    from_allocations,
    from_related_calls,
    from_index_views,
    from_forward_calls,
    from_parameters,
    from_stored_calls,
    from_batches,
    pass_repeated_calls,
    from_compiled_code,
    pass_wrapped_attention,
    from_inductor_cache,
    from_launched_kernels,
    pass_decomposed_calls,
)


def count(calls: Calls, known: Known = NOTHING) -> Counts:
    """Count every operator event of ``calls``: the third room (docs/design.md)."""
    return reduce(lambda counts, resolve: resolve(counts), RESOLVERS, count_signatures(calls, known))
