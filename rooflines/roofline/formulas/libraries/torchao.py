"""torchao: products of few-bit numbers, conversions to fp8 and fp4 for training, and moves of scales and tokens around grouped
products. Its layers call ``aten`` operators, and its affine quantization dispatches to them. Padding of scales to the blocks that
products read, and of groups, is not counted.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import product_row

_OPERANDS: Final = "read left[*m k], read right[=k n]"
_SCALED: Final = f"{_OPERANDS}, read left_scale, read right_scale"
_OUT: Final = "item('out_dtype', 'bfloat16')"
_BIASED: Final = "2 + bool(bias)"
_PRODUCTS: Final[dict[str, Row]] = {
    # fp8 with a scale for every 32 elements; bfloat16 results
    "torchao::mx_fp8_bf16": product_row(_SCALED, "2", precision="=fp8"),
    "torchao::triton_fp8_gemm_1x128_128x128 torchao::triton_fp8_gemm_1x128_128x1": product_row(
        f"{_SCALED}, block=128, out=None", "item('out', 'float32')", each="1"
    ),
    # a weight [n, k] and bfloat16 results
    "ao::blockwise_fp8_gemm": product_row("read left[*m k], read left_scale, read right[n =k], read right_scale", "2", each="1"),
    # int8, scaled by rows and columns, in the dtype of the scales
    "torchao::scaled_int8_mm": product_row(_SCALED, "left_scale.item", each="2", precision="=int8"),
    # A weight of which two in four elements are stored, [n, k / 2]: the products with these are counted.
    "torchao::rowwise_scaled_linear_sparse_cutlass_f8f8": product_row(
        "read input[*m wide], read input_scale, read weight[n k], read weight_meta, read weight_scale, read bias?, out_dtype=None",
        _OUT,
        each=_BIASED,
        precision="=fp8",
    ),
    # The packed weight holds [n, k] in blocks.
    "torchao::float8_linear_cpu": product_row(
        "read input[*m k], read input_scales, read weight, read weight_scales, read bias?, out_dtype", _OUT, _BIASED, n="weight.n // k"
    ),
    # [.., k] of 8-bit integers with a weight of 4-bit ones [n, k] in blocks, whose sums of columns are known
    "torchao::da8w4_linear_cpu": product_row(
        "read input[*m k], read input_scales?, read input_zeros?, read weight, read weight_scales?, read weight_zeros?,"
        " read compensation?, read bias?, out_dtype",
        _OUT,
        each=_BIASED,
        besides="DEQUANTIZE * k * (2 * weight.n // k)",
        n="2 * weight.n // k",
    ),
}
_WRAPPERS: Final[dict[str, Row]] = {
    "blockwise_scaled_mm": product_row(
        f"{_OPERANDS}, read left_scale, recipe_left, read right_scale, recipe_right, out_dtype", _OUT, each="1"
    ),
    # int8, written as int32, or with a scale for each row, in whose dtype the results are
    "int_matmul": product_row(_OPERANDS, "4"),
    "int_scaled_matmul": product_row(f"{_OPERANDS}, read scale", "scale.item", each="1", precision="=int8"),
}
register(_PRODUCTS, "matmul")
register(_WRAPPERS, "matmul", wraps=True, namespace="torchao::")


def _to_fp8(schema: str, scales: str) -> Row:
    """The largest magnitude of each part that has a scale, and a byte an element; ``scales`` is their bytes."""
    return Row(schema, DYNAMIC_QUANTIZE, writes=f"input.n + {scales}")


_MX: Final = (
    "triton_to_mxfp8_dim0 triton_to_mxfp8_dim1 mxfp8_quantize_2d_1x32_cutedsl mxfp8_quantize_2d_1x32_flydsl"
    " mxfp8_quantize_2d_32x1_cutedsl mxfp8_quantize_2d_32x1_flydsl"
)
_ACTIVATIONS: Final = " ".join(f"triton_fp8_blockwise_act_quant_{name}" for name in ("lhs", "rhs", "transposed_lhs"))
_WEIGHTS: Final = " ".join(
    f"triton_fp8_blockwise_weight_quant_{name}" for name in ("rhs", "transposed_rhs", "grouped_forward_rhs", "grouped_dgrad_rhs")
)
_ROWWISE: Final = " ".join(f"triton_fp8_rowwise_{name}" for name in ("transpose_rhs", "transpose_rhs_fused", "2d_scale_and_cast"))
_OF_GROUPS: Final = "triton_fp8_per_group"
_CONVERSIONS: Final[dict[str, Row]] = {
    _MX: _to_fp8("read input, block=32", "up(input.n, block)"),
    _ACTIVATIONS: _to_fp8("read input, block=128", "4 * up(input.n, block)"),
    "triton_fp8_blockwise_act_quant_k_grouped_deepgemm": _to_fp8("read input, read groups, block=128", "4 * up(input.n, block)"),
    _WEIGHTS: _to_fp8("read input[*batch m n], block=128", "4 * batch * up(m, block) * up(n, block)"),
    _ROWWISE: _to_fp8("read input[*rows k]", "4 * rows"),
    "triton_fp8_colwise_3d_scale_and_cast": _to_fp8("read input[*batch m n]", "4 * batch * n"),
    f"{_OF_GROUPS}_rowwise_scales": _to_fp8("read input[*rows k], read groups", "4 * rows * groups.n"),
    f"{_OF_GROUPS}_colwise_scales": _to_fp8("read input[*batch m n], read groups", "4 * batch * n * groups.n"),
    f"{_OF_GROUPS}_colwise_scales_dual": Row(
        "read input[m n], read second[rows columns], read groups",
        DYNAMIC_QUANTIZE,
        per="input second",
        writes="input.n + second.n + 4 * (n + columns) * groups.n",
    ),
    # a scale for each block of 32 by 1 or of 32 by 32
    "mxfp8_quantize_3d_cutedsl mxfp8_quantize_3d_flydsl": _to_fp8(
        "read input, block=32, height=32, width=1", "input.n // (height * width)"
    ),
    # with a scale for 32 elements of a row, of a column, or once with each
    "mxfp8_quantize": Row(
        "read input, rowwise, colwise",
        other="(QUANTIZE + 2) * input.n * (bool(rowwise) + bool(colwise))",
        writes="(input.n + input.n // 32) * (bool(rowwise) + bool(colwise))",
    ),
    "triton_mxfp8_dequant_dim0": Row(  # no zero point
        "read input, read scales, out_dtype",
        other="input.n * (DEQUANTIZE - 1)",
        writes="input.n * item('out_dtype', 'bfloat16')",
        precision="out_dtype=bfloat16",
    ),
}
# Half a byte an element, and a scale of 8 bits for 16; one more for all, or for each group.
_FP4: Final = "input.n // 2 + input.n // 16"
_NVFP4: Final[dict[str, Row]] = {
    "mslk_quantize_nvfp4": Row("read input, read scale?", DYNAMIC_QUANTIZE, writes=_FP4),
    "mslk_quantize_nvfp4_stacked": Row("read sizes?, read input, read scale?", DYNAMIC_QUANTIZE, writes=_FP4, precision="input"),
}
register(_CONVERSIONS, "element-wise", namespace="torchao::")
register(_NVFP4, "element-wise", namespace="ao::")
register({"ao::mslk_calculate_group_max": Row("read input, read sizes", 2, writes="4 * sizes.n")}, "reduction")

_REARRANGE: Final = (
    "triton_mx_block_rearrange triton_mx_block_rearrange_2d_M_groups triton_mx_block_rearrange_2d_K_groups"
    " triton_mx_block_rearrange_per_group_3d mx_block_rearrange_2d_M_groups fused_pad_token_groups"
)
_COPIES: Final[dict[str, Row]] = {
    # rows of 8 bits, widened and added up bag by bag
    "_scaled_embedding_bag": Row(
        "read weight[*rows width], read indices, read offsets, read scale, o_scale, mode, include_last, out_dtype",
        other="indices.n * width * (DEQUANTIZE + 1)",
        reads="selected(weight, indices.n * width) + indices.size + offsets.size + scale.size",
        writes="(offsets.n - bool(include_last)) * width * item('out_dtype', 'float32')",
        precision="=fp32",
    ),
    # half of the elements, and two bits for the place of each
    "to_sparse_semi_structured_cutlass_sm9x_f8": Row("read weight", writes="weight.n * weight.item // 2 + weight.n // 8"),
    # scales into the order that products read, or rows apart from those of the next group
    _REARRANGE: Row("read input, read groups?", result="input"),
    # the rows that are no padding, as they were before; ``rows`` is their number
    "fused_unpad_token_groups": Row(
        "read input, read groups?, read starts?, rows",
        reads="min(rows, input[0]) * input[-1] * input.item + groups.size + starts.size",
        writes="rows * input[-1] * input.item",
    ),
    "_triton_permute_bwd": Row(
        "read input, read index?, rows, columns",
        reads="min(rows, input[0]) * input[-1] * input.item + index.size",
        writes="rows * input[-1] * input.item",
    ),
}
register(_COPIES, "copy", namespace="torchao::")
