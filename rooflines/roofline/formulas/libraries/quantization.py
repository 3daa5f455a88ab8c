"""Quantization: bitsandbytes, torchao, and the Hadamard transforms of servers, alone and with what comes before or after them.

bitsandbytes has products and layers of 8-bit integers and 4-bit weights, which are packed two to a byte with a scale for each block,
blockwise quantization, and optimizers with 8-bit states. torchao has products of few-bit numbers, conversions to fp8 and fp4 for
training, and moves of scales and tokens around grouped products; its layers call ``aten`` operators, and its affine quantization
dispatches to them. Padding of scales to the blocks that products read, and of groups, is not counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.rows import Row
from rooflines.roofline.formulas.scaled import product_row
from rooflines.roofline.formulas.tables import table

# [..., k] @ [n, k]^T of int8; a scaled one multiplies each result by the scales of its row and its column.
_INT8: Final = "read left[*m k], read right[n =k]"
_SCALED: Final = f"{_INT8}, read row_stats?, read col_stats?"
_EACH: Final = "2 + bool(bias)"
# [..., k] with a weight [n, k] of 4 bits, widened as it is read.
_4_BIT: Final = "read self[*m k], read packed, shape[n =k], read absmax?"
_WIDEN: Final = "DEQUANTIZE * k * n"

# Columns with outliers are multiplied separately; their number is not recorded.
_MIXED: Final = product_row(f"view wide, {_SCALED}, view outliers?, read bias?", "wide.item", _EACH, precision="=int8")


# Two states are Adam's, LAMB's or AdEMAMix's, one that of momentum, RMSprop, Adagrad or Lion. 8-bit states widen and narrow again.
_STATES: Final = "name, read grad, update param, update state1, update state2?"
_STEP: Final = "ADAM if state2 else SGD_MOMENTUM + SGD"

_OPERANDS: Final = "read left[*m k], read right[=k n]"
_TORCHAO_SCALED: Final = f"{_OPERANDS}, read left_scale, read right_scale"
_OUT: Final = "item('out_dtype', 'bfloat16')"
_BIASED: Final = "2 + bool(bias)"


def _to_fp8(schema: str, scales: str) -> Row:
    """The largest magnitude of each part that has a scale, and a byte an element; ``scales`` is their bytes."""
    return Row(schema, DYNAMIC_QUANTIZE, writes=f"input.n + {scales}")


_WEIGHTS: Final = " ".join(
    f"triton_fp8_blockwise_weight_quant_{name}" for name in ("rhs", "transposed_rhs", "grouped_forward_rhs", "grouped_dgrad_rhs")
)
_OF_GROUPS: Final = "triton_fp8_per_group"
# Half a byte an element, and a scale of 8 bits for 16; one more for all, or for each group.
_FP4: Final = "input.n // 2 + input.n // 16"


# One addition a number in each of log2(k) steps, and a scale. Rows are padded to a power of 2.
_TRANSFORM: Final = "input.n * ((k - 1).bit_length() + 1)"
_QUANTIZE: Final = "bool(scale) * input.n * (QUANTIZE + 2)"
# The last ``rope_dim`` numbers of a head rotate by the token's position before the transform.
_ROTATION: Final = "heads * rope_dim * ROTARY_EMBEDDING"
_ROPE: Final = "read input[*heads k], read cos, read sin, read positions, rope_dim"
_TABLES: Final = "input.size + positions.size + min(positions.n, cos.n // cos[-1]) * (cos[-1] * cos.item + sin[-1] * sin.item)"
_PLAIN: Final = f"{_ROTATION} + bool(rotates) * {_TRANSFORM}"
_NARROW: Final = f"{_PLAIN} + {_QUANTIZE}"


table(f"""
[matmul bitsandbytes::]
int8_linear_matmul: {product_row(_INT8, "4", precision="=int8")}
int8_scaled_mm: {product_row(f"{_SCALED}, read bias?, dtype=None", "item('dtype', 'float16')", _EACH, precision="=int8")}
gemv_4bit: {product_row(f"{_4_BIT}, read code?, blocksize", "self.item", besides=_WIDEN)}
gemm_4bit:
    {product_row(f"{_4_BIT}, blocksize, quant_type, read bias?, read absmax_8bit?, read absmax_code?, offset=None", "self.item", each="bool(bias)", besides=_WIDEN)}
[matmul wraps]
bitsandbytes::int8_mixed_scaled_mm: {replace(_MIXED, fits="not outliers.n")}
[element-wise bitsandbytes::]
# int8 and the largest magnitude of each row; the double form also by columns
int8_vectorwise_quant: read self[*rows k]; cost = DYNAMIC_QUANTIZE; per = self; writes = self.n + 4 * rows
int8_double_quant: read self[*rows k]; cost = 2 * DYNAMIC_QUANTIZE; per = self; writes = 2 * self.n + 4 * (rows + k)
int8_vectorwise_dequant: read self, read stats; other = DEQUANTIZE * self.n; writes = 4 * self.n; precision = fp32
int8_mm_dequant: read self, read row_stats, read col_stats, dtype=None, read bias?; other = self.n * (2 + bool(bias));
    writes = self.n * item('dtype', 'float16'); precision = fp32
quantize_4bit: read self, blocksize; cost = DYNAMIC_QUANTIZE; per = self; writes = up(self.n, 2) + 4 * up(self.n, blocksize)
dequantize_4bit: read self, read absmax, blocksize, quant_type, shape[*numbers], dtype; other = DEQUANTIZE * numbers;
    writes = numbers * item('dtype', ''); precision = dtype
quantize_blockwise: read self, read code, blocksize; cost = DYNAMIC_QUANTIZE; per = self; writes = self.n + 4 * up(self.n, blocksize)
dequantize_blockwise: read self, read absmax, read code, blocksize, dtype; other = DEQUANTIZE * self.n;
    writes = self.n * item('dtype', ''); precision = dtype
[optimizer bitsandbytes::]
optimizer_update_32bit: {_STATES}, unorm=None; other = param.n * ({_STEP}); precision = param
optimizer_update_8bit_blockwise: {_STATES}, beta1, beta2, beta3, alpha, eps, step, lr, qmap1, qmap2, update absmax1?,
    update absmax2?; other = param.n * (({_STEP}) + (1 + bool(state2)) * (DEQUANTIZE + QUANTIZE + 2)); precision = param
[matmul]
# fp8 with a scale for every 32 elements; bfloat16 results
torchao::mx_fp8_bf16: {product_row(_TORCHAO_SCALED, "2", precision="=fp8")}
torchao::triton_fp8_gemm_1x128_128x128 torchao::triton_fp8_gemm_1x128_128x1:
    {product_row(f"{_TORCHAO_SCALED}, block=128, out=None", "item('out', 'float32')", each="1")}
# a weight [n, k] and bfloat16 results
ao::blockwise_fp8_gemm: {product_row("read left[*m k], read left_scale, read right[n =k], read right_scale", "2", each="1")}
# int8, scaled by rows and columns, in the dtype of the scales
torchao::scaled_int8_mm: {product_row(_TORCHAO_SCALED, "left_scale.item", each="2", precision="=int8")}
# A weight of which two in four elements are stored, [n, k / 2]: the products with these are counted.
torchao::rowwise_scaled_linear_sparse_cutlass_f8f8:
    {product_row("read input[*m wide], read input_scale, read weight[n k], read weight_meta, read weight_scale, read bias?, out_dtype=None", _OUT, each=_BIASED, precision="=fp8")}
# The packed weight holds [n, k] in blocks.
torchao::float8_linear_cpu:
    {product_row("read input[*m k], read input_scales, read weight, read weight_scales, read bias?, out_dtype", _OUT, _BIASED, n="weight.n // k")}
# [.., k] of 8-bit integers with a weight of 4-bit ones [n, k] in blocks, whose sums of columns are known
torchao::da8w4_linear_cpu:
    {product_row("read input[*m k], read input_scales?, read input_zeros?, read weight, read weight_scales?, read weight_zeros?, read compensation?, read bias?, out_dtype", _OUT, each=_BIASED, besides="DEQUANTIZE * k * (2 * weight.n // k)", n="2 * weight.n // k")}
[matmul torchao:: wraps]
blockwise_scaled_mm:
    {product_row(f"{_OPERANDS}, read left_scale, recipe_left, read right_scale, recipe_right, out_dtype", _OUT, each="1")}
# int8, written as int32, or with a scale for each row, in whose dtype the results are
int_matmul: {product_row(_OPERANDS, "4")}
int_scaled_matmul: {product_row(f"{_OPERANDS}, read scale", "scale.item", each="1", precision="=int8")}
[element-wise torchao::]
triton_to_mxfp8_dim0 triton_to_mxfp8_dim1 mxfp8_quantize_2d_1x32_cutedsl mxfp8_quantize_2d_1x32_flydsl mxfp8_quantize_2d_32x1_cutedsl
    mxfp8_quantize_2d_32x1_flydsl: {_to_fp8("read input, block=32", "up(input.n, block)")}
{" ".join(f"triton_fp8_blockwise_act_quant_{name}" for name in ("lhs", "rhs", "transposed_lhs"))}:
    {_to_fp8("read input, block=128", "4 * up(input.n, block)")}
triton_fp8_blockwise_act_quant_k_grouped_deepgemm: {_to_fp8("read input, read groups, block=128", "4 * up(input.n, block)")}
{_WEIGHTS}: {_to_fp8("read input[*batch m n], block=128", "4 * batch * up(m, block) * up(n, block)")}
{" ".join(f"triton_fp8_rowwise_{name}" for name in ("transpose_rhs", "transpose_rhs_fused", "2d_scale_and_cast"))}:
    {_to_fp8("read input[*rows k]", "4 * rows")}
triton_fp8_colwise_3d_scale_and_cast: {_to_fp8("read input[*batch m n]", "4 * batch * n")}
{_OF_GROUPS}_rowwise_scales: {_to_fp8("read input[*rows k], read groups", "4 * rows * groups.n")}
{_OF_GROUPS}_colwise_scales: {_to_fp8("read input[*batch m n], read groups", "4 * batch * n * groups.n")}
{_OF_GROUPS}_colwise_scales_dual: read input[m n], read second[rows columns], read groups; cost = DYNAMIC_QUANTIZE;
    per = input second; writes = input.n + second.n + 4 * (n + columns) * groups.n
# a scale for each block of 32 by 1 or of 32 by 32
mxfp8_quantize_3d_cutedsl mxfp8_quantize_3d_flydsl:
    {_to_fp8("read input, block=32, height=32, width=1", "input.n // (height * width)")}
# with a scale for 32 elements of a row, of a column, or once with each
mxfp8_quantize: read input, rowwise, colwise; other = (QUANTIZE + 2) * input.n * (bool(rowwise) + bool(colwise));
    writes = (input.n + input.n // 32) * (bool(rowwise) + bool(colwise))
# no zero point
triton_mxfp8_dequant_dim0: read input, read scales, out_dtype; other = input.n * (DEQUANTIZE - 1);
    writes = input.n * item('out_dtype', 'bfloat16'); precision = out_dtype=bfloat16
[element-wise ao::]
mslk_quantize_nvfp4: read input, read scale?; cost = DYNAMIC_QUANTIZE; writes = {_FP4}
mslk_quantize_nvfp4_stacked: read sizes?, read input, read scale?; cost = DYNAMIC_QUANTIZE; writes = {_FP4}; precision = input
[reduction]
ao::mslk_calculate_group_max: read input, read sizes; cost = 2; writes = 4 * sizes.n
[copy torchao::]
# rows of 8 bits, widened and added up bag by bag
_scaled_embedding_bag: read weight[*rows width], read indices, read offsets, read scale, o_scale, mode, include_last, out_dtype;
    other = indices.n * width * (DEQUANTIZE + 1);
    reads = selected(weight, indices.n * width) + indices.size + offsets.size + scale.size;
    writes = (offsets.n - bool(include_last)) * width * item('out_dtype', 'float32'); precision = fp32
# half of the elements, and two bits for the place of each
to_sparse_semi_structured_cutlass_sm9x_f8: read weight; writes = weight.n * weight.item // 2 + weight.n // 8
# scales into the order that products read, or rows apart from those of the next group
triton_mx_block_rearrange triton_mx_block_rearrange_2d_M_groups triton_mx_block_rearrange_2d_K_groups
    triton_mx_block_rearrange_per_group_3d mx_block_rearrange_2d_M_groups fused_pad_token_groups: read input, read groups? -> input
# the rows that are no padding, as they were before; ``rows`` is their number
fused_unpad_token_groups: read input, read groups?, read starts?, rows;
    reads = min(rows, input[0]) * input[-1] * input.item + groups.size + starts.size; writes = rows * input[-1] * input.item
_triton_permute_bwd: read input, read index?, rows, columns; reads = min(rows, input[0]) * input[-1] * input.item + index.size;
    writes = rows * input[-1] * input.item
[element-wise]
sgl_kernel::fast_hadamard_transform sglang::hadamard_transform _C::hadacore_transform: read input[*rows k] -> input;
    other = {_TRANSFORM}
aiter::rotate_activation aiter::_rotate_activation_bf16: write out, read input[*rows k]; other = {_TRANSFORM}
aiter::_rotate_activation_fp4quant: write out, write scale?, read input[*rows k]; other = {_TRANSFORM} + {_QUANTIZE}
aiter::rope_rotate_activation: write out, {_ROPE}, write scale?; other = {_ROTATION} + {_TRANSFORM} + {_QUANTIZE}; reads = {_TABLES}
aiter::_rope_rotate_activation_bf16: write out, {_ROPE}, rotates=True; other = {_PLAIN}; reads = {_TABLES}
aiter::_rope_rotate_activation_fp4quant: write out, write scale?, {_ROPE}, group=32, shuffle=True, rotates=True; other = {_NARROW};
    reads = {_TABLES}
aiter::_rope_rotate_activation_fp8quant: write out, write scale?, {_ROPE}, group=128, rotates=True; other = {_NARROW};
    reads = {_TABLES}
""")
