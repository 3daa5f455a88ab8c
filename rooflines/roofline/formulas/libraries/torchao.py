"""torchao: products of few-bit numbers, conversions to fp8 and fp4 for training, and moves of scales and tokens around grouped
products. Its layers call ``aten`` operators, and its affine quantization dispatches to them.

Order of arguments: torchao 0.18 (commit 36027d82d): the schemas in ``torchao/ops.py`` and the operators in
``torchao/prototype/blockwise_fp8_training/kernels.py``, some of which hand their products to ``aten::_scaled_mm_v2``, in
``torchao/quantization/quantize_/workflows/float8/kernels.py``, ``torchao/prototype/mx_formats/kernels.py`` and
``torchao/prototype/moe_training/`` (``kernels``, ``ep``). Padding of scales to the blocks that products read, and of groups, is not
counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import layer_work, product_flops, product_work
from rooflines.roofline.formulas.narrow import narrowed, widened
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula, words


@formula("torchao::mx_fp8_bf16", category="matmul")
def _block_scaled(signature: Signature) -> Work:
    """[m, k] @ [k, n] of fp8 with a scale for every 32 elements; bfloat16 results."""
    args = Arguments(signature, "left right left_scale right_scale")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, out_dtype="bfloat16", precision="fp8")


@formula("torchao::blockwise_scaled_mm", category="matmul", wraps=True)
def _blockwise(signature: Signature) -> Work:
    args = Arguments(signature, "left right left_scale recipe_left right_scale recipe_right out_dtype")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, each=1, out_dtype=args.dtype("out_dtype", "bfloat16"))


@formula("torchao::triton_fp8_gemm_1x128_128x128", "torchao::triton_fp8_gemm_1x128_128x1", "ao::blockwise_fp8_gemm", category="matmul")
def _blockwise_in_triton(signature: Signature) -> Work:
    """[.., m, k] with [k, n], or with [n, k] and bfloat16 results."""
    transposed = signature.name.startswith("ao::")
    order = "left left_scale right right_scale" if transposed else "left right left_scale right_scale block=128 out=None"
    args = Arguments(signature, order)
    left, right = args.tensor("left"), args.tensor("right")
    results = prod(left.shape[:-1]) * right.shape[0 if transposed else -1]
    return Work(
        matrix_flops=product_flops(1, 1, left.shape[-1], results),
        other_flops=results,
        bytes_read=size(left, right, args.tensor("left_scale"), args.tensor("right_scale")),
        bytes_written=results * (2 if transposed else size_of(args.dtype("out", "float32"))),
        precision=matrix_precision_of(left.dtype),
    )


@formula("torchao::int_matmul", category="matmul", wraps=True)
def _integers(signature: Signature) -> Work:
    """[m, k] @ [k, n] of int8, written as int32."""
    args = Arguments(signature, "left right")
    return product_work(args.tensor("left"), args.tensor("right"), out_dtype="int32")


@formula("torchao::int_scaled_matmul", category="matmul", wraps=True)
def _scaled_integers(signature: Signature) -> Work:
    """The same, with a scale for each row, in whose dtype the results are."""
    args = Arguments(signature, "left right scale")
    left, right, scale = args.tensor("left"), args.tensor("right"), args.tensor("scale")
    return product_work(left, right, scale, each=1, out_dtype=scale.dtype, precision="int8")


@formula("torchao::scaled_int8_mm", category="matmul")
def _integer(signature: Signature) -> Work:
    """[m, k] @ [k, n] of int8, scaled by rows and columns, in the dtype of the scales."""
    args = Arguments(signature, "left right left_scale right_scale")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, each=2, out_dtype=operands[2].dtype, precision="int8")


@formula("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", category="matmul")
def _sparse(signature: Signature) -> Work:
    """A weight of which two in four elements are stored, [n, k / 2]: the products with these are counted."""
    args = Arguments(signature, "input input_scale weight weight_meta weight_scale bias=None out_dtype=None")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    rows, outputs = prod(inputs.shape[:-1]), weight.shape[0]
    results = rows * outputs
    return Work(
        matrix_flops=product_flops(1, rows, weight.shape[1], outputs),
        other_flops=results * (2 + (bias is not None)),
        bytes_read=size(inputs, weight, bias, *(args.tensor(name) for name in ("input_scale", "weight_meta", "weight_scale"))),
        bytes_written=results * size_of(args.dtype("out_dtype", "bfloat16")),
        precision="fp8",
    )


@formula("torchao::float8_linear_cpu", category="matmul")
def _packed_linear(signature: Signature) -> Work:
    """The packed weight holds [n, k] in blocks."""
    args = Arguments(signature, "input input_scales weight weight_scales bias out_dtype")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    others = (weight, bias, args.tensor("input_scales"), args.tensor("weight_scales"))
    outputs, dtype = weight.numel // inputs.shape[-1], args.dtype("out_dtype", "bfloat16")
    return layer_work(inputs, outputs, *others, each=2 + (bias is not None), dtype=dtype)


@formula("torchao::da8w4_linear_cpu", category="matmul")
def _packed_integers(signature: Signature) -> Work:
    """[.., k] of 8-bit integers with a weight of 4-bit ones [n, k] in blocks, whose sums of columns are known."""
    args = Arguments(signature, "input input_scales input_zeros weight weight_scales weight_zeros compensation bias out_dtype")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    small = ("input_scales", "input_zeros", "weight_scales", "weight_zeros", "compensation")
    others = (weight, bias, *(args.optional(name) for name in small))
    outputs, dtype = 2 * weight.numel // inputs.shape[-1], args.dtype("out_dtype", "bfloat16")
    return layer_work(inputs, outputs, *others, each=2 + (bias is not None), unpack=DEQUANTIZE, dtype=dtype)


@formula("torchao::_scaled_embedding_bag", category="copy")
def _bags(signature: Signature) -> Work:
    """Rows of 8 bits, widened and added up bag by bag."""
    args = Arguments(signature, "weight indices offsets scale o_scale mode include_last out_dtype")
    weight, indices, offsets = args.tensor("weight"), args.tensor("indices"), args.tensor("offsets")
    elements = indices.numel * weight.shape[-1]
    results = (offsets.numel - args.flag("include_last")) * weight.shape[-1]
    return Work(
        other_flops=elements * (DEQUANTIZE + 1),
        bytes_read=selected(weight, elements) + size(indices, offsets, args.tensor("scale")),
        bytes_written=results * size_of(args.dtype("out_dtype", "float32")),
        precision="fp32",
    )


@formula("torchao::to_sparse_semi_structured_cutlass_sm9x_f8", category="copy")
def _compress(signature: Signature) -> Work:
    """Half of the elements, and two bits for the place of each."""
    weight = Arguments(signature, "weight").tensor("weight")
    return Work(bytes_read=size(weight), bytes_written=written(weight) // 2 + weight.numel // 8)


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
    made = sum(scales(one.shape, parameter) for one in inputs) * item
    return narrowed(*inputs, groups, scales=made, numbers=sum(one.numel for one in inputs))


for _names, _schema, _scales, _item in _CONVERSIONS:
    formula(*(f"torchao::{name}" for name in words(_names)), category="element-wise")(
        partial(_conversion, schema=_schema, scales=_scales, item=_item)
    )


@formula("torchao::mxfp8_quantize_3d_cutedsl", "torchao::mxfp8_quantize_3d_flydsl", category="element-wise")
def _weights(signature: Signature) -> Work:
    """A scale for each block of 32 by 1 or of 32 by 32."""
    args = Arguments(signature, "input block=32 height=32 width=1")
    inputs = args.tensor("input")
    return narrowed(inputs, scales=inputs.numel // (args.integer("height") * args.integer("width")))


@formula("torchao::mxfp8_quantize", category="element-wise")
def _both_ways(signature: Signature) -> Work:
    """With a scale for 32 elements of a row, of a column, or once with each."""
    args = Arguments(signature, "input rowwise colwise")
    inputs, ways = args.tensor("input"), args.flag("rowwise") + args.flag("colwise")
    return narrowed(inputs, scales=ways * (inputs.numel // 32), numbers=ways * inputs.numel)


@formula("ao::mslk_quantize_nvfp4", "ao::mslk_quantize_nvfp4_stacked", category="element-wise")
def _fp4(signature: Signature) -> Work:
    """Half a byte an element, and a scale of 8 bits for 16; one more for all, or for each group."""
    stacked = signature.name.endswith("stacked")
    args = Arguments(signature, "sizes input scale" if stacked else "input scale=None")
    inputs = args.tensor("input")
    return narrowed(inputs, args.optional("scale"), args.optional("sizes"), scales=inputs.numel // 16, bits=4)


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
    return widened(inputs, args.tensor("scales"), dtype=dtype, cost=DEQUANTIZE - 1)  # no zero point


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
