"""Optimizer steps over lists of tensors: fused (one pass over everything) and foreach (one operation over a
list)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, listed, size, size_of
from rooflines.roofline.count.formulas.elementwise import adjusted, real, rule_of, rule_work
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import named


@named
def positive(value: Argument) -> bool:
    """Whether a hyper-parameter is on; a learning rate or decay held in a tensor is."""
    return value > 0 if isinstance(value, int | float) else isinstance(value, TensorArg)


def _counts_steps(signature: Signature) -> bool:
    """Whether this adds one to a list: what Adam does to its step counters, which are a number a tensor and
    not a parameter each."""
    numbers = [arg for arg in signature.args[1:] if isinstance(arg, int | float)]
    lists = [arg for arg in signature.args if isinstance(arg, tuple)]
    return signature.name.startswith("aten::_foreach_add") and len(lists) == 1 and numbers[:1] in ([1], [1.0])


def _whole(signature: Signature, hints: Hints) -> Signature:
    """The call with the lists that the trace left out, as long as the parameters, unless they are step
    counters."""
    if _counts_steps(signature):
        return signature
    return replace(signature, args=tuple(hints.left_out() if arg == () else arg for arg in signature.args))


def _each(signature: Signature, name: str) -> list[Signature]:
    """The calls of the operator ``name`` that equal a call over lists; a tensor that all of them share is
    only in the first."""
    lengths = [
        len(arg)
        for arg in signature.args
        if isinstance(arg, tuple) and any(isinstance(item, TensorArg) for item in arg)
    ]
    if not lengths:
        raise NotCounted("shapes of 'self' not recorded")  # traces leave out lists of more than 30 tensors
    return [
        Signature(name, tuple(arg[index] if isinstance(arg, tuple) else arg for arg in signature.args))
        for index in range(lengths[0])
    ]


def foreach(signature: Signature, hints: Hints) -> Work:
    name = signature.name.removeprefix("aten::_foreach_").rstrip("_")
    signature = _whole(signature, hints)
    in_place = signature.name.endswith("_")
    lists = [
        index for index, arg in enumerate(signature.args[: rule_of(name).operands]) if isinstance(arg, tuple)
    ]
    # a tensor outside the lists belongs to each call, and is read once
    work = Work(bytes_read=size(*listed(signature.args)))
    for call, times in Counter(
        _each(signature, f"aten::{name}")
    ).items():  # most tensors of a network have few shapes
        one = rule_work(call, adjusted(name, call), in_place)
        read = size(*(call.args[index] for index in lists if isinstance(call.args[index], TensorArg)))
        work += Work(0, times * one.other_flops, times * read, times * one.bytes_written, one.precision)
    return work


def foreach_reduce(signature: Signature) -> Work:
    """One number for each tensor: its norm, its largest element, or the sum of powers in a norm."""
    largest = signature.name == "aten::_foreach_max"
    args = Arguments(signature, "self" if largest else "self ord=2 dtype=None")
    work = Work()
    tensors = args.tensors("self")
    if not tensors:
        raise NotCounted("shapes of 'self' not recorded")  # traces leave out lists of more than 30 tensors
    for tensor in tensors:
        cost = 1 if largest else costs.norm_cost(args.value("ord"), tensor.dtype.startswith("complex"))
        dtype = tensor.dtype if largest else args.dtype("dtype", tensor.dtype)
        work += Work(0, tensor.numel * cost, size(tensor), size_of(real(dtype)), precision_of(tensor.dtype))
    return work
