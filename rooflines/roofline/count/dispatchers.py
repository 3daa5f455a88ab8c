"""Calls that only dispatch: their work is that of operators below them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.nesting import covered, enclosed
from rooflines.profiler.read.records import OPERATOR
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.counts import Counts, Group
from rooflines.roofline.count.formulas.decomposed import DECOMPOSED, SOMETIMES_DECOMPOSED


def pass_repeated_calls(counts: Counts) -> Iterable[Group]:
    """Pass through an operator that calls one of the same name: under autocast the same call with other
    dtypes, of a tensor subclass (``DTensor``) with the part that this rank holds, else the overload with a
    kernel."""
    host, signatures = counts.trace.host, counts.trace.signatures
    if not len(host):
        return ()
    above = counts.calls.above
    repeats = (host.kind == OPERATOR) & (above >= 0) & (host.name == host.name[above])
    pairs, pair_of = distinct_rows(host.signature[above[repeats]], host.signature[repeats])
    passed = np.array(
        [_hands_on(signatures[outer], signatures[inner]) for outer, inner in pairs.tolist()], bool
    )
    return counts.dispatching(distinct(above[repeats][passed[pair_of]])[0])


def _hands_on(outer: Signature, inner: Signature) -> bool:
    """Whether a call only hands its arguments on to another of the same name."""
    if outer.name.removeprefix("aten::") in SOMETIMES_DECOMPOSED:
        return True
    before, after = outer.tensors, inner.tensors
    if [len(tensor.shape) for tensor in before] != [len(tensor.shape) for tensor in after]:
        # torch.vmap calls an operator with the tensors of an example, and that with those of all.
        pairs = zip(before, after, strict=False)
        return len(before) == len(after) and all(
            other.shape[len(other.shape) - len(one.shape) :] == one.shape for one, other in pairs
        )
    sizes = [
        pair
        for one, other in zip(before, after, strict=True)
        for pair in zip(one.shape, other.shape, strict=True)
    ]
    if all(whole == part for whole, part in sizes):
        return [tensor.dtype for tensor in before] != [tensor.dtype for tensor in after]
    return all(whole >= part for whole, part in sizes)


def pass_decomposed_calls(counts: Counts) -> Iterable[Group]:
    """Pass through what PyTorch decomposes itself, where something below it has work: a dispatch mode sees
    only that.

    A library's product is passed only where a product is below it: it may copy its operands and launch a
    kernel of its own.
    """
    after = counts.calls.after
    counted = counts.of_kind("counted")
    decomposes = counts.decomposing
    products = counts.multiplying
    libraries = counts.where(lambda variant: not variant.signature.name.startswith("aten::"))
    # No kernel's operator calls one that PyTorch decomposes: it is that of an example, and inside is that of
    # all (``torch.vmap``).
    mapped = products & ~libraries & counts.where(lambda variant: variant.count.category == "matmul")
    mapped &= ~decomposes & (enclosed(decomposes & products, after) > 0)
    visible = counts.working & ~covered(counted & ~decomposes & ~mapped, after)
    parts = np.where(products & libraries, enclosed(visible & products, after), enclosed(visible, after))
    return counts.dispatching(np.flatnonzero((decomposes & (parts > 0)) | mapped))


def pass_unrecorded_calls(counts: Counts) -> Iterable[Group]:
    """Pass through calls of a tensor subclass that computes in Python, where something below them does their
    work (``DTensor`` the part that this rank holds), and those whose own arguments were not recorded (nested
    and sparse tensors), where others make it up: the subclass, or PyTorch decomposes them and something below
    them has work."""
    trace, calls = counts.trace, counts.calls
    python = trace.named("PythonSubclass".__eq__, OPERATOR)
    given = np.zeros(len(python), bool)
    given[calls.above[python & (calls.above >= 0)]] = True
    decomposed = trace.named(lambda name: name.removeprefix("aten::") in DECOMPOSED, OPERATOR)
    working = counts.working
    unknown = counts.of_kind("unknown")
    # Where one operand has no shape, the count is that of the other.
    lacking = counts.where(lambda variant: None in variant.signature.args[:2])
    products = counts.multiplying
    works = enclosed(working, calls.after) > 0
    does = np.where(products, enclosed(working & products, calls.after) > 0, works)
    passed = (unknown & (python | (decomposed & works))) | (given & (unknown | lacking | does))
    return counts.dispatching(np.flatnonzero(passed))


def pass_wrapped_attention(counts: Counts) -> Iterable[Group]:
    """Pass through a library's attention where an operator below it is counted as attention: the one inside
    records more.

    ``vllm::unified_attention`` is given neither KV cache nor window, ``FlashAttnFunc`` no window; the
    kernel's operator has both.
    """
    # Counted as attention, and more than the joining of partial results.
    products = counts.where(lambda variant: variant.count.category == "attention")
    products &= counts.multiplying & (counts.trace.host.kind == OPERATOR)
    library = counts.trace.named(lambda name: not name.startswith("aten::"))
    return counts.dispatching(
        np.flatnonzero(products & library & (enclosed(products, counts.calls.after) > 0))
    )
