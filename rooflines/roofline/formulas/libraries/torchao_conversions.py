"""torchao's conversions to fp8 and fp4 for training, and the moves of scales and tokens around its grouped products.

Order of arguments: pytorch/ao 36027d82d: torchao/prototype/mx_formats/kernels.py, blockwise_fp8_training/kernels.py,
moe_training/kernels and moe_training/ep. Padding of scales to the blocks that products read, and of groups, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula, words


# How many scales a tensor of this shape has, by the size of a block or the number of groups.
def _vectors(shape: tuple[int, ...], block: int) -> int:
    return -(-prod(shape) // block)


def _squares(shape: tuple[int, ...], block: int) -> int:
    return prod(shape[:-2]) * -(-shape[-2] // block) * -(-shape[-1] // block)


def _rows(shape: tuple[int, ...], groups: int) -> int:
    return prod(shape[:-1]) * groups


def _columns(shape: tuple[int, ...], groups: int) -> int:
    return prod(shape[:-2]) * shape[-1] * groups


_BLOCKWISE: Final = "triton_fp8_blockwise_"
_MXFP8: Final = " ".join(f"mxfp8_quantize_2d_{block}_{kind}" for block in ("1x32", "32x1") for kind in ("cutedsl", "flydsl"))

# Names -> the schema, how the scales are counted, and the bytes of each.
_CONVERSIONS: Final[tuple[tuple[str, str, Callable[[tuple[int, ...], int], int], int], ...]] = (
    (f"triton_to_mxfp8_dim0 triton_to_mxfp8_dim1 {_MXFP8}", "input block=32", _vectors, 1),
    (f"{_BLOCKWISE}act_quant_lhs {_BLOCKWISE}act_quant_rhs {_BLOCKWISE}act_quant_transposed_lhs", "input block=128", _vectors, 4),
    (f"{_BLOCKWISE}act_quant_k_grouped_deepgemm", "input groups block=128", _vectors, 4),
    (f"{_BLOCKWISE}weight_quant_rhs {_BLOCKWISE}weight_quant_transposed_rhs {_BLOCKWISE}weight_quant_grouped_forward_rhs"
     f" {_BLOCKWISE}weight_quant_grouped_dgrad_rhs", "input block=128", _squares, 4),
    ("triton_fp8_rowwise_transpose_rhs triton_fp8_rowwise_transpose_rhs_fused triton_fp8_rowwise_2d_scale_and_cast", "input", _rows, 4),
    ("triton_fp8_colwise_3d_scale_and_cast", "input", _columns, 4),
    ("triton_fp8_per_group_rowwise_scales", "input groups", _rows, 4),
    ("triton_fp8_per_group_colwise_scales", "input groups", _columns, 4),
    ("triton_fp8_per_group_colwise_scales_dual", "input second groups", _columns, 4),
)  # fmt: skip


def _conversion(signature: Signature, schema: str, scales: Callable[[tuple[int, ...], int], int], item: int) -> Work:
    """The largest magnitude of each part that has a scale, and a byte an element."""
    args = Arguments(signature, schema)
    inputs = [args.tensor(name) for name in ("input", "second") if args.has(name)]
    groups = args.tensor("groups") if args.has("groups") else None
    parameter = args.integer("block") if args.has("block") else groups.numel if groups is not None else 1
    return _converted(inputs, sum(scales(one.shape, parameter) for one in inputs) * item, groups)


def _converted(inputs: list[TensorArg], scales: int, *others: TensorArg | None) -> Work:
    elements = sum(one.numel for one in inputs)
    return Work(0, elements * DYNAMIC_QUANTIZE, size(*inputs, *others), elements + scales, precision_of(inputs[0].dtype))


for _names, _schema, _scales, _item in _CONVERSIONS:
    formula(*(f"torchao::{name}" for name in words(_names)), category="element-wise")(
        partial(_conversion, schema=_schema, scales=_scales, item=_item)
    )


@formula("torchao::mxfp8_quantize_3d_cutedsl", "torchao::mxfp8_quantize_3d_flydsl", category="element-wise")
def _weights(signature: Signature) -> Work:
    """A scale for each block of 32 by 1 or of 32 by 32."""
    args = Arguments(signature, "input block=32 height=32 width=1")
    inputs = args.tensor("input")
    return _converted([inputs], inputs.numel // (args.integer("height") * args.integer("width")))


@formula("torchao::mxfp8_quantize", category="element-wise")
def _both_ways(signature: Signature) -> Work:
    """With a scale for 32 elements of a row, of a column, or once with each."""
    args = Arguments(signature, "input rowwise colwise")
    inputs, ways = args.tensor("input"), args.flag("rowwise") + args.flag("colwise")
    return Work(
        other_flops=inputs.numel * DYNAMIC_QUANTIZE * ways,
        bytes_read=size(inputs),
        bytes_written=ways * (inputs.numel + inputs.numel // 32),
        precision=precision_of(inputs.dtype),
    )


@formula("ao::mslk_quantize_nvfp4", "ao::mslk_quantize_nvfp4_stacked", category="element-wise")
def _fp4(signature: Signature) -> Work:
    """Half a byte an element, and a scale of 8 bits for 16; one more for all, or for each group."""
    stacked = signature.name.endswith("stacked")
    args = Arguments(signature, "sizes input scale" if stacked else "input scale=None")
    inputs = args.tensor("input")
    return Work(
        other_flops=inputs.numel * DYNAMIC_QUANTIZE,
        bytes_read=size(inputs, args.optional("scale"), args.optional("sizes")),
        bytes_written=inputs.numel // 2 + inputs.numel // 16,
        precision=precision_of(inputs.dtype),
    )


@formula("ao::mslk_calculate_group_max", category="reduction")
def _group_maximum(signature: Signature) -> Work:
    args = Arguments(signature, "input sizes")
    inputs, sizes = args.tensor("input"), args.tensor("sizes")
    return Work(0, inputs.numel * 2, size(inputs, sizes), 4 * sizes.numel, precision_of(inputs.dtype))


@formula("torchao::triton_mxfp8_dequant_dim0", category="element-wise")
def _widen(signature: Signature) -> Work:
    args = Arguments(signature, "input scales out_dtype")
    inputs = args.tensor("input")
    dtype = args.dtype("out_dtype", "bfloat16")
    return Work(
        other_flops=inputs.numel * (DEQUANTIZE - 1),  # no zero point
        bytes_read=size(inputs, args.tensor("scales")),
        bytes_written=inputs.numel * size_of(dtype),
        precision=precision_of(dtype),
    )


@formula("torchao::triton_mx_block_rearrange", "torchao::triton_mx_block_rearrange_2d_M_groups",
         "torchao::triton_mx_block_rearrange_2d_K_groups", "torchao::triton_mx_block_rearrange_per_group_3d",
         "torchao::mx_block_rearrange_2d_M_groups", "torchao::fused_pad_token_groups", category="copy")  # fmt: skip
def _rearrange(signature: Signature) -> Work:
    """Scales into the order that products read, or rows apart from those of the next group."""
    args = Arguments(signature, "input groups=None")
    inputs = args.tensor("input")
    return Work(bytes_read=size(inputs, args.optional("groups")), bytes_written=written(inputs))


@formula("torchao::fused_unpad_token_groups", "torchao::_triton_permute_bwd", category="copy")
def _return(signature: Signature) -> Work:
    """The rows that are no padding, as they were before; ``rows`` is their number."""
    unpads = signature.name.endswith("groups")
    args = Arguments(signature, "input groups starts rows" if unpads else "input index rows columns")
    inputs, rows = args.tensor("input"), args.integer("rows")
    row = inputs.shape[-1] * size_of(inputs.dtype)
    others = [args.optional(name) for name in ("groups", "starts", "index") if args.has(name)]
    return Work(bytes_read=min(rows, inputs.shape[0]) * row + size(*others), bytes_written=rows * row)
