"""Operators that only torch.compile has: what inductor puts in the place of others before it generates kernels."""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, broadcast, promote, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.random import RANDOM
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

_MODES: Final = {"rand": RANDOM["uniform"], "randn": RANDOM["normal"]}


@hinted_formula("prims::convert_element_type", "prims::device_put", "prims::inductor_force_stride_order", category="copy")
def _converted(signature: Signature, hints: Hints) -> Work:
    return moved(size(Arguments(signature, "a").tensor("a")), written(*hints.results(signature)))


@hinted_formula("prims::iota", category="copy")
def _iota(signature: Signature, hints: Hints) -> Work:
    """start + step * i, as aten::arange."""
    (result,) = hints.results(signature)
    return Work(other_flops=2 * result.numel * costs.BASIC, bytes_written=written(result), precision=precision_of(result.dtype))


@hinted_formula("prims::inductor_seed", "prims::inductor_seeds", "prims::inductor_lookup_seed", category="copy")
def _seeds(signature: Signature, hints: Hints) -> Work:
    """Seeds of random numbers, one int64 each: drawn, or one of them looked up."""
    results = written(*hints.results(signature))
    return moved(results if signature.tensors else 0, results)


@hinted_formula("prims::inductor_random", category="element-wise")
def _random(signature: Signature, hints: Hints) -> Work:
    args = Arguments(signature, "size seed mode")
    mode = args.value("mode")
    if mode not in _MODES:
        raise NotCounted(f"unknown random number distribution ('{mode}')")
    (result,) = hints.results(signature)
    return Work(
        other_flops=result.numel * _MODES[mode],
        bytes_read=size(args.optional("seed")),
        bytes_written=written(result),
        precision=precision_of(result.dtype),
    )


@hinted_formula("prims::inductor_randint", category="element-wise")
def _random_integers(signature: Signature, hints: Hints) -> Work:
    (result,) = hints.results(signature)
    return Work(other_flops=result.numel * costs.BASIC, bytes_read=size(*signature.tensors), bytes_written=written(result))


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


@hinted_formula("prims::prepare_softmax_online", category="reduction")
def _softmax_statistics(signature: Signature, hints: Hints) -> Work:
    """The maximum of each row, and the sum of exp(x - maximum)."""
    inputs = Arguments(signature, "a dim").tensor("a")
    return Work(
        other_flops=inputs.numel * (costs.SOFTMAX - costs.BASIC),  # all of softmax but its division
        bytes_read=size(inputs),
        bytes_written=written(*hints.results(signature)),
        precision=precision_of(inputs.dtype),
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


@hinted_formula("prims::_low_memory_max_pool_offsets_to_indices", "prims::_low_memory_max_pool2d_offsets_to_indices", category="copy")
def _max_pool_indices(signature: Signature, hints: Hints) -> Work:
    """Places in windows as places in the image: addresses, which are not counted as arithmetic."""
    return moved(size(*signature.tensors), written(*hints.results(signature)))
