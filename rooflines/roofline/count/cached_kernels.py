"""Generated kernels whose code lies in inductor's cache (``--inductor-cache``): counted by their loads,
stores and operators.

A kernel is found by its name, its number of arguments and its iterations; of several that fit, all must have
the same work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from rooflines.profiler.compiled.inductor_cache import CachedKernel
from rooflines.profiler.compiled.records import Access, CompiledKernel, as_buffer
from rooflines.profiler.read.signature import Signature, StoredCall, TensorArg
from rooflines.roofline.count.counts import Counts, Group, Variant
from rooflines.roofline.count.formulas import CallCount, Work, count
from rooflines.roofline.count.formulas.arguments import TensorArgs
from rooflines.roofline.count.formulas.families import texts
from rooflines.roofline.count.formulas.generated_kernels import (
    ONE_EACH,
    category_of,
    flops_per_point,
    parse_name,
)
from rooflines.roofline.count.formulas.graph import count_kernel
from rooflines.roofline.count.formulas.record import precision_of

_GRAPH = re.compile(r"graph_\d+_")
_GENERATED = re.compile(r"triton_[a-z]+_|(graph_\d+_)?cpp_\w*fused")
# Operators that another kernel computes; of those with a bias, this is what a generated kernel may have of
# them.
_ELSEWHERE = re.compile(r"aten::(_?scaled_\w+|mm|bmm|addmm|baddbmm|convolution\w*)\Z")
_BIASED = {"aten::addmm": 0, "aten::baddbmm": 0, "aten::convolution": 2}


def from_inductor_cache(counts: Counts) -> Iterator[Group]:
    """Count the kernels that the cache has. A call that is counted by what the run itself recorded stays as
    it is."""
    cache = counts.known.inductor_cache or {}
    known = np.zeros(len(counts.of_event), bool) if counts.of_code is None else counts.of_code
    for code, variant in enumerate(counts.variants):
        kernels = cached(variant.signature.name, cache)
        found = count_cached(variant.signature, kernels) if kernels else None
        if found is not None:
            yield np.flatnonzero((counts.of_event == code) & ~known), Variant(variant.signature, found)


def missing_kernels(counts: Counts) -> tuple[str, ...]:
    """A note on generated kernels of the trace that are not in the cache, if one was given."""
    if counts.known.inductor_cache is None:
        return ()
    called = {
        variant.signature.name for variant in counts.variants if _GENERATED.match(variant.signature.name)
    }
    missing = sorted(name for name in called if not cached(name, counts.known.inductor_cache))
    here = (
        f"The inductor cache has {len(called) - len(missing)} of the {len(called)} generated kernels "
        "in the trace."
    )
    return (f"{here} Missing, for example: {missing[0]}.",) if missing else ()


def cached(name: str, cache: dict[str, tuple[CachedKernel, ...]]) -> tuple[CachedKernel, ...]:
    """The kernels of the cache that an event of this name may be."""
    return cache.get(name) or cache.get(_GRAPH.sub("", name, count=1), ())


def count_cached(signature: Signature, kernels: tuple[CachedKernel, ...]) -> CallCount | None:
    """The work of a call of one of ``kernels``; None where none fits, or where those that fit differ."""
    try:
        found = {one for kernel in kernels if (one := _count(signature, kernel)) is not None}
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        # Code or arguments that inductor cannot have written.
        return None
    return found.pop() if len(found) == 1 else None


def _count(signature: Signature, cached_kernel: CachedKernel) -> CallCount | None:
    tensors, reads, writes = _accesses(signature, cached_kernel)
    if not tensors:
        return None
    fragment = cached_kernel.fragment
    calls = None if fragment is None else fragment.calls
    kind = signature.name.removeprefix("triton_")[:3]
    nodes = [StoredCall.of(*one) for call in calls or () if (one := _here(kind, *call)) is not None]
    kernel = CompiledKernel(
        name=signature.name, nodes=tuple(range(len(nodes))), reads=tuple(reads), writes=tuple(writes)
    )
    buffers = [as_buffer(tensor) for tensor in tensors]
    counted = count_kernel(kernel, buffers, nodes)
    if calls is not None and counted.work is not None:
        return counted
    # Without the shapes of every operator, as in files of older versions, the FLOPs are those of the name.
    access = count_kernel(replace(kernel, nodes=()), buffers, ())
    named = _of_name(signature, tensors)
    return (
        None
        if named is None or access.work is None
        else CallCount("counted", named + access.work, category_of(signature.name))
    )


def _of_name(signature: Signature, tensors: TensorArgs) -> Work | None:
    """The FLOPs of the operators in a kernel's name; None where it has no work by its name."""
    if signature.args:
        named = count(signature).work
        return named and Work(
            named.matrix_flops, named.other_flops, precision=named.precision, assumption=named.assumption
        )
    parsed = parse_name(signature.name)
    largest = max(tensors, key=lambda tensor: tensor.numel)
    flops = largest.numel * flops_per_point(parsed) if parsed is not None else 0
    return (
        Work(other_flops=flops, precision=precision_of(largest.dtype), assumption=ONE_EACH)
        if flops
        else Work()
    )


def _accesses(signature: Signature, kernel: CachedKernel) -> tuple[TensorArgs, list[Access], list[Access]]:
    """The tensors of a call and what it reads and writes of them; no tensors where the kernel is another
    one."""
    source, fragment = kernel.source, kernel.fragment
    none: tuple[TensorArgs, list[Access], list[Access]] = ((), [], [])
    if source is None:  # C++: the event has no arguments
        if fragment is None or not fragment.results:
            return none
        tensors = (*fragment.inputs, *fragment.results)
        whole = [
            Access(number, tensor.numel, 0, max(tensor.extent - 1, 0))
            for number, tensor in enumerate(tensors)
        ]
        return tensors, whole[: len(fragment.inputs)], whole[len(fragment.inputs) :]
    if len(source.parameters) != len(signature.args):
        return none
    call = dict(zip(source.parameters, signature.args, strict=True))
    integers = {name: value for name, value in call.items() if isinstance(value, int)}
    pointers = {name: value for name, value in call.items() if isinstance(value, TensorArg)}
    if len(integers) + len(pointers) != len(call) or any(
        integers.get(name, size) != size for name, size in source.iterations
    ):
        return none
    numbers = {name: number for number, name in enumerate(pointers)}
    reads, writes = source.accessed(
        integers, {name: (numbers[name], tensor.extent) for name, tensor in pointers.items()}
    )
    return tuple(pointers.values()), reads, writes


_REDUCTIONS = frozenset(texts("reduction.reduce"))


def _here(kind: str, signature: Signature, results: TensorArgs) -> tuple[Signature, TensorArgs] | None:
    """The part of an operator that a generated kernel of this kind computes: all of it, or the addition of a
    bias; None for nothing.

    The comment above a kernel has what its inputs were computed from as well."""
    if kind == "poi" and signature.name in _REDUCTIONS:
        return None
    if kind == "tem" or not _ELSEWHERE.match(signature.name):
        return signature, results
    bias = signature.arg(_BIASED.get(signature.name, -1), None) if signature.name in _BIASED else None
    return (
        (Signature("aten::add", (results[0], results[0], 1)), results)
        if isinstance(bias, TensorArg)
        else None
    )
