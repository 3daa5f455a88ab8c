"""Conversions to numbers of fewer bits and back whose results are no arguments: their sizes follow from those of the input."""

from __future__ import annotations

from dataclasses import replace

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.record import Work, precision_of


def narrowed(
    inputs: TensorArg, *others: TensorArg | None, scales: int, bits: int = 8, cost: int = DYNAMIC_QUANTIZE, numbers: int | None = None
) -> Work:
    """Reads ``inputs`` and ``others``; writes numbers of ``bits`` bits, as many as ``inputs`` has unless ``numbers`` is given, each for
    ``cost`` FLOPs, and ``scales`` bytes of scales."""
    made = inputs.numel if numbers is None else numbers
    return Work(0, made * cost, size(inputs, *others), made * bits // 8 + scales, precision_of(inputs.dtype))


def widened(inputs: TensorArg, *others: TensorArg | None, dtype: str, cost: int = DEQUANTIZE, numbers: int | None = None) -> Work:
    """The way back to numbers of ``dtype``, in whose precision it is."""
    made = inputs.numel if numbers is None else numbers
    return Work(0, made * cost, size(inputs, *others), made * size_of(dtype), precision_of(dtype))


def to_8_bits(signature: Signature, schema: str, cost: int = 0) -> Work:
    """The work of an operator that returns a byte for each number, scales where none was given (of rows or groups), and the sum with
    the residual; ``gate`` is a second operand. Before the conversion come ``cost`` FLOPs for each number."""
    args = Arguments(signature, schema)
    inputs, residual, scale = args.tensor("input"), args.optional("residual"), args.optional("scale")
    others = (residual, args.optional("weight"), args.optional("gate"), scale)
    results = inputs.numel // 2 if "act_mul" in signature.name else inputs.numel
    scales = results // (args.integer("group_size") if args.has("group_size") else inputs.shape[-1])
    made = size_of("float32") * (0 if scale else scales) + written(residual)
    return narrowed(inputs, *others, scales=made, cost=cost + (QUANTIZE if scale else DYNAMIC_QUANTIZE), numbers=results)


def to_blocks(signature: Signature, bits: int, group: int, schema: str = "input") -> Work:
    """The work of a conversion with a scale of a byte for each ``group`` numbers, or as many as its ``block`` says. Padding is not
    counted."""
    args = Arguments(signature, schema)
    inputs, block = args.tensor("input"), args.integer("block") if args.has("block") else group
    return narrowed(inputs, args.optional("scale"), scales=inputs.numel // block, bits=bits)


def to_fp4(signature: Signature, schema: str) -> Work:
    """The work of a conversion to NVFP4; results that are not arguments have no padding."""
    args = Arguments(signature, schema)
    inputs, out = args.tensor("input"), args.optional("out")
    work = narrowed(inputs, args.tensor("scale"), scales=inputs.numel // 16, bits=4)
    return work if out is None else replace(work, bytes_written=written(out, args.optional("block_scale")))
