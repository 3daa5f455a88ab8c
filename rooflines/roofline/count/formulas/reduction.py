"""Sums, means, extrema, norms, softmax and scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, Literal, NamedTuple

from rooflines.profiler.read.signature import SCALAR_TYPES, Argument, Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    NotCounted,
    TensorArgs,
    floating,
    listed,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.elementwise import real, rule_of, rule_work
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints

INDEX_BYTES = 8


class Reduction(NamedTuple):
    """What ``reduction.rows`` says of an operator."""

    cost: int
    result: Literal["same", "two", "float", "real", "real and float", "bool", "index", "same and index"] = (
        "same"
    )
    whole: int = 0
    complex_cost: int | None = None


def _reduced_sizes(tensor: TensorArg, axes: Argument) -> int:
    """Results of reducing ``axes`` (an integer, several, or None and () for all) of a tensor."""
    rank = len(tensor.shape)
    if axes is None or axes == ():
        return 1
    listed = (axes,) if isinstance(axes, int) else axes
    if not isinstance(listed, tuple) or not all(
        isinstance(axis, int) and -max(rank, 1) <= axis < max(rank, 1) for axis in listed
    ):
        raise NotCounted("argument 'dim' not recorded")
    dropped = {axis % rank for axis in listed} if rank else set()
    return prod(extent for axis, extent in enumerate(tensor.shape) if axis not in dropped)


def _without_outs(signature: Signature) -> tuple[Signature, TensorArgs]:
    """The signature without the ``out`` tensors at its end, and these."""
    outs = listed(signature.args[1:])
    return replace(signature, args=signature.args[: len(signature.args) - len(outs)]), outs


def _result_bytes(rule: Reduction, dtype: str, along_axis: bool) -> int:
    itemsize = size_of(dtype)
    number = itemsize if floating(dtype) else 4
    part = size_of(real(dtype)) if floating(dtype) else 4
    return {
        "same": itemsize,
        "two": 2 * itemsize,
        "float": number,
        "real": part,
        "real and float": part + number,
        "bool": 1,
        "index": INDEX_BYTES,
        "same and index": itemsize + (INDEX_BYTES if along_axis else 0),
    }[rule.result]


def _written(args: Arguments, hints: Hints, outs: TensorArgs, computed: Callable[[Argument], int]) -> int:
    """Bytes of the results: recorded or allocated where the dimension is not known, those of ``outs``, or
    ``computed`` from it."""
    made = written(*hints.outputs) if hints.outputs is not None else hints.output_bytes
    if not args.recorded("dim") and made is not None:
        return made
    axes = args.value("dim")
    return written(*outs) if outs else computed(axes)


def reduce(signature: Signature, hints: Hints, **options: Any) -> Work:
    """One result for each row of the dimensions that a call names, or one."""
    if (
        signature.name in ("aten::max", "aten::min")
        and isinstance(signature.arg(1), TensorArg)
        and not _into_out(signature, hints)
    ):
        return rule_work(signature, rule_of("maximum"))  # of two tensors, element by element
    rule = Reduction(**options)
    call, outs = _without_outs(signature)
    args = Arguments(call, "self dim=None")
    inputs = args.tensor("self")
    cost, dtype = rule.cost, inputs.dtype
    if dtype.startswith("complex"):
        cost = 2 * rule.cost if rule.complex_cost is None else rule.complex_cost

    def computed(axes: Argument) -> int:
        whole = len(call.args) <= rule.whole
        if isinstance(axes, bool) or (whole and not isinstance(axes, tuple)):
            axes = None  # var(self, unbiased), sum(self, dtype): no dimension among the arguments
        made = dtype
        if (
            rule.whole or call.name == "aten::nansum"
        ):  # in the dtype asked for; else integers are summed as int64
            asked = call.arg(1 if whole else 3, default=None)
            usual = dtype if floating(dtype) else "int64"
            made = SCALAR_TYPES.get(asked, usual) if type(asked) is int else usual
        return _reduced_sizes(inputs, axes) * _result_bytes(rule, made, along_axis=axes is not None)

    return Work(
        0, inputs.numel * cost, size(inputs), _written(args, hints, outs, computed), precision_of(dtype)
    )


def _into_out(signature: Signature, hints: Hints) -> bool:
    """Whether max(self, x) wrote one number to ``x``; without a recorded result, ``x`` is a second
    operand."""
    return (
        hints.outputs is not None
        and hints.outputs[0].shape == ()
        and Arguments(signature, "self").tensor("self").shape != ()
    )


def norm(signature: Signature, hints: Hints) -> Work:
    """A vector norm over some dimensions or all, of the dtype asked for or of a complex number's parts.

    ``norm`` has four forms: (p), (p, dtype), (p, dim, keepdim) and (p, dim, keepdim, dtype); the others only
    the last.
    """
    call, outs = _without_outs(signature)
    args = Arguments(call, "self p=2 dim=None keepdim=False dtype=None")
    inputs = args.tensor("self")
    flops = inputs.numel * costs.norm_cost(args.value("p"), inputs.dtype.startswith("complex"))

    def computed(axes: Argument) -> int:
        axes, asked = (None, axes) if len(call.args) == 3 else (axes, call.arg(4, default=None))
        result = SCALAR_TYPES.get(asked, inputs.dtype) if isinstance(asked, int) else inputs.dtype
        return _reduced_sizes(inputs, axes) * size_of(real(result))

    return Work(0, flops, size(inputs), _written(args, hints, outs, computed), precision_of(inputs.dtype))
