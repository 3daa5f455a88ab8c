"""The count of every call in a trace, with what the trace leaves out filled in by one resolver after the
other."""

from __future__ import annotations

from functools import reduce

from rooflines.profiler.tree.tree import Calls
from rooflines.roofline.count.batches import from_batches
from rooflines.roofline.count.cached_kernels import from_inductor_cache
from rooflines.roofline.count.compiled import from_compiled_code
from rooflines.roofline.count.counts import NOTHING, Counts, Known, Resolver, count_signatures
from rooflines.roofline.count.dispatchers import (
    pass_decomposed_calls,
    pass_repeated_calls,
    pass_unrecorded_calls,
    pass_wrapped_attention,
)
from rooflines.roofline.count.index_views import from_index_views
from rooflines.roofline.count.launched_kernels import from_launched_kernels
from rooflines.roofline.count.library_gradients import from_forward_calls
from rooflines.roofline.count.recorded_facts import (
    from_allocations,
    from_copying_kernels,
    from_interpreter,
    from_parameters,
    from_stored_calls,
)
from rooflines.roofline.count.related_calls import from_related_calls

# Each with the earlier ones that it needs: whose counts it reads, or knows better. ``count`` goes from the
# first to the last.
RESOLVERS: dict[Resolver, tuple[Resolver, ...]] = {
    from_allocations: (),
    from_related_calls: (from_allocations,),  # looks only for what is still unknown
    from_index_views: (from_allocations, from_related_calls),
    from_forward_calls: (),
    from_parameters: (),
    from_copying_kernels: (from_allocations,),  # which estimates the size
    from_interpreter: (from_allocations, from_related_calls),
    from_stored_calls: (
        from_allocations,
        from_related_calls,
        from_index_views,
        from_parameters,
    ),  # the very arguments
    from_batches: (from_stored_calls,),
    pass_repeated_calls: (from_stored_calls, from_batches),
    from_compiled_code: (from_allocations,),
    pass_wrapped_attention: (from_related_calls, from_batches),
    from_inductor_cache: (from_compiled_code,),  # leaves alone what the run itself recorded
    from_launched_kernels: (
        from_compiled_code,
        from_inductor_cache,
        pass_wrapped_attention,
    ),  # kernels that nobody owns yet
    pass_decomposed_calls: (
        from_launched_kernels,
        pass_repeated_calls,
        from_forward_calls,
    ),  # asks what anything below has counted
    pass_unrecorded_calls: (pass_decomposed_calls,),
}


def count(calls: Calls, known: Known = NOTHING) -> Counts:
    """Count every operator event of ``calls``: the third room (docs/design.md)."""
    return reduce(Counts.resolved, RESOLVERS, count_signatures(calls, known))
