"""Operators that only torch.compile has: what inductor puts in the place of others before it generates kernels."""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, broadcast, promote, size, size_of, written
from rooflines.roofline.formulas.random import RANDOM
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, named, register

_MODES: Final = {"rand": RANDOM["uniform"], "randn": RANDOM["normal"]}


@named
def drawing(mode: Argument) -> int:
    """FLOPs of a random number."""
    if mode not in _MODES:
        raise NotCounted(f"unknown random number distribution ('{mode}')")
    return _MODES[mode]


_MADE: Final = "results().full"
_COPIES: Final[dict[str, Row]] = {
    "convert_element_type device_put inductor_force_stride_order": Row("read a", writes=_MADE),
    # start + step * i, as aten::arange
    "iota": Row("length", other="2 * results().n", writes=_MADE, precision="results"),
    # seeds of random numbers, one int64 each: drawn, or one of them looked up
    "inductor_seed inductor_seeds": Row("device", writes=_MADE),
    "inductor_lookup_seed": Row("seeds", reads=_MADE, writes=_MADE),
    # places in windows as places in the image: addresses, which are not counted as arithmetic
    "_low_memory_max_pool_offsets_to_indices _low_memory_max_pool2d_offsets_to_indices": Row("read offsets", writes=_MADE),
}
_RANDOM: Final[dict[str, Row]] = {
    "inductor_random": Row("size, read seed?, mode", other="results().n * drawing(known('mode'))", writes=_MADE, precision="results"),
    "inductor_randint": Row("low, high, size, read seed?", other="results().n", writes=_MADE, precision="="),
}
# the maximum of each row, and the sum of exp(x - maximum): all of softmax but its division
_STATISTICS: Final = Row("read a, dim", costs.SOFTMAX - costs.BASIC, per="a", writes=_MADE)
register(_COPIES, "copy", namespace="prims::")
register(_RANDOM, "element-wise", namespace="prims::")
register({"prims::prepare_softmax_online": _STATISTICS}, "reduction")


@formula("prims::fma", category="element-wise")
def _fma(signature: Signature) -> Work:
    """a * b + c, rounded once."""
    operands = signature.tensors
    dtype = promote(signature.args)
    results = prod(broadcast(tensor.shape for tensor in operands))
    return Work(
        other_flops=2 * results * costs.BASIC,
        bytes_read=size(*operands),
        bytes_written=results * size_of(dtype),
        precision=precision_of(dtype),
    )


@hinted_formula("inductor::scatter_upon_const_tensor", category="element-wise")
def _one_hot(signature: Signature, hints: Hints) -> Work:
    """where(index == selector, value, background), in which the constant that is scattered into is never made."""
    (result,) = hints.results(signature)
    return Work(
        other_flops=2 * result.numel * costs.BASIC,
        bytes_read=size(*signature.tensors),
        bytes_written=written(result),
        precision=precision_of(result.dtype),
    )


@hinted_formula("prims::_low_memory_max_pool_with_offsets", "prims::_low_memory_max_pool2d_with_offsets", category="reduction")
def _max_pool(signature: Signature, hints: Hints) -> Work:
    """Max pooling that keeps where in its window each maximum was, as int8."""
    args = Arguments(signature, "self kernel")
    inputs, results = args.tensor("self"), hints.results(signature)
    kernel = args.integers("kernel", len(inputs.shape) - 2)
    return Work(
        other_flops=results[0].numel * prod(kernel),
        bytes_read=size(inputs),
        bytes_written=written(*results),
        precision=precision_of(inputs.dtype),
    )
