"""Quantization: bitsandbytes, torchao, and the Hadamard transforms of servers, alone and with what comes before or after them.

bitsandbytes has products and layers of 8-bit integers and 4-bit weights, which are packed two to a byte with a scale for each block,
blockwise quantization, and optimizers with 8-bit states. torchao has products of few-bit numbers, conversions to fp8 and fp4 for
training, and moves of scales and tokens around grouped products; its layers call ``aten`` operators, and its affine quantization
dispatches to them. Padding of scales to the blocks that products read, and of groups, is not counted.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.tables import table

# Two states are Adam's, LAMB's or AdEMAMix's, one that of momentum, RMSprop, Adagrad or Lion. 8-bit states widen and narrow again.
_STATES: Final = "name, read grad, update param, update state1, update state2?"
_STEP: Final = "ADAM if state2 else SGD_MOMENTUM + SGD"
# One addition a number in each of log2(k) steps, and a scale. Rows are padded to a power of 2.
_TRANSFORM: Final = "input.n * ((k - 1).bit_length() + 1)"
_QUANTIZE: Final = "bool(scale) * input.n * (QUANTIZE + 2)"
# The last ``rope_dim`` numbers of a head rotate by the token's position before the transform.
_ROTATION: Final = "heads * rope_dim * ROTARY_EMBEDDING"
_ROPE: Final = "read input[*heads k], read cos, read sin, read positions, rope_dim"
_TABLES: Final = "input.size + positions.size + min(positions.n, cos.n // cos[-1]) * (cos[-1] * cos.item + sin[-1] * sin.item)"


table(f"""
[matmul bitsandbytes::]
# [..., k] @ [n, k]^T of int8; a scaled one multiplies each result by the scales of its row and its column.
int8_linear_matmul: read left[*m k], read right[n =k]; matrix = 2 * m * k * n; writes = m * n * 4; precision = int8
int8_scaled_mm: read left[*m k], read right[n =k], read row_stats?, read col_stats?, read bias?, dtype=None; matrix = 2 * m * k * n;
    other = m * n * (2 + bool(bias)); writes = m * n * item('dtype', 'float16'); precision = int8
# [..., k] with a weight [n, k] of 4 bits, widened as it is read.
gemv_4bit: read self[*m k], read packed, shape[n =k], read absmax?, read code?, blocksize; matrix = 2 * m * k * n;
    other = DEQUANTIZE * k * n; writes = m * n * self.item
gemm_4bit like gemv_4bit: read self[*m k], read packed, shape[n =k], read absmax?, blocksize, quant_type, read bias?,
    read absmax_8bit?, read absmax_code?, offset=None; other = m * n * bool(bias) + DEQUANTIZE * k * n
[matmul wraps]
# Columns with outliers are multiplied separately; their number is not recorded.
bitsandbytes::int8_mixed_scaled_mm like bitsandbytes::int8_scaled_mm: view wide, read left[*m k], read right[n =k], read row_stats?,
    read col_stats?, view outliers?, read bias?; writes = m * n * wide.item; fits = not outliers.n
[element-wise bitsandbytes::]
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
torchao::mx_fp8_bf16: read left[*m k], read right[=k n], read left_scale, read right_scale; matrix = 2 * m * k * n;
    writes = m * n * 2; precision = fp8
torchao::triton_fp8_gemm_1x128_128x128 torchao::triton_fp8_gemm_1x128_128x1: read left[*m k], read right[=k n], read left_scale,
    read right_scale, block=128, out=None; matrix = 2 * m * k * n; other = m * n; writes = m * n * item('out', 'float32')
ao::blockwise_fp8_gemm: read left[*m k], read left_scale, read right[n =k], read right_scale; matrix = 2 * m * k * n; other = m * n;
    writes = m * n * 2
torchao::scaled_int8_mm like torchao::mx_fp8_bf16: ; other = m * n * 2; writes = m * n * left_scale.item; precision = int8
# A weight of which two in four elements are stored, [n, k / 2]: the products with these are counted.
torchao::rowwise_scaled_linear_sparse_cutlass_f8f8: read input[*m wide], read input_scale, read weight[n k], read weight_meta,
    read weight_scale, read bias?, out_dtype=None; matrix = 2 * m * k * n; other = m * n * (2 + bool(bias));
    writes = m * n * item('out_dtype', 'bfloat16'); precision = fp8
# The packed weight holds [n, k] in blocks.
torchao::float8_linear_cpu: read input[*m k], read input_scales, read weight, read weight_scales, read bias?, out_dtype;
    n = weight.n // k; matrix = 2 * m * k * n; other = m * n * (2 + bool(bias)); writes = m * n * item('out_dtype', 'bfloat16')
# [.., k] of 8-bit integers with a weight of 4-bit ones [n, k] in blocks, whose sums of columns are known
torchao::da8w4_linear_cpu like torchao::float8_linear_cpu: read input[*m k], read input_scales?, read input_zeros?, read weight,
    read weight_scales?, read weight_zeros?, read compensation?, read bias?, out_dtype; n = 2 * weight.n // k;
    other = m * n * (2 + bool(bias)) + DEQUANTIZE * k * n
[matmul torchao:: wraps]
blockwise_scaled_mm: read left[*m k], read right[=k n], read left_scale, recipe_left, read right_scale, recipe_right, out_dtype;
    matrix = 2 * m * k * n; other = m * n; writes = m * n * item('out_dtype', 'bfloat16')
# int8, written as int32, or with a scale for each row, in whose dtype the results are
int_matmul: read left[*m k], read right[=k n]; matrix = 2 * m * k * n; writes = m * n * 4
int_scaled_matmul: read left[*m k], read right[=k n], read scale; matrix = 2 * m * k * n; other = m * n; writes = m * n * scale.item;
    precision = int8
[element-wise torchao::]
# The largest magnitude of each part that has a scale, and a byte an element.
triton_to_mxfp8_dim0 triton_to_mxfp8_dim1 mxfp8_quantize_2d_1x32_cutedsl mxfp8_quantize_2d_1x32_flydsl mxfp8_quantize_2d_32x1_cutedsl
    mxfp8_quantize_2d_32x1_flydsl: read input, block=32; cost = DYNAMIC_QUANTIZE; writes = input.n + up(input.n, block)
triton_fp8_blockwise_act_quant_lhs triton_fp8_blockwise_act_quant_rhs triton_fp8_blockwise_act_quant_transposed_lhs: read input,
    block=128; cost = DYNAMIC_QUANTIZE; writes = input.n + 4 * up(input.n, block)
triton_fp8_blockwise_act_quant_k_grouped_deepgemm like triton_fp8_blockwise_act_quant_lhs: read input, read groups, block=128
triton_fp8_blockwise_weight_quant_rhs triton_fp8_blockwise_weight_quant_transposed_rhs
    triton_fp8_blockwise_weight_quant_grouped_forward_rhs triton_fp8_blockwise_weight_quant_grouped_dgrad_rhs: read input[*batch m
    n], block=128; cost = DYNAMIC_QUANTIZE; writes = input.n + 4 * batch * up(m, block) * up(n, block)
triton_fp8_rowwise_transpose_rhs triton_fp8_rowwise_transpose_rhs_fused triton_fp8_rowwise_2d_scale_and_cast: read input[*rows k];
    cost = DYNAMIC_QUANTIZE; writes = input.n + 4 * rows
triton_fp8_colwise_3d_scale_and_cast: read input[*batch m n]; cost = DYNAMIC_QUANTIZE; writes = input.n + 4 * batch * n
triton_fp8_per_group_rowwise_scales: read input[*rows k], read groups; cost = DYNAMIC_QUANTIZE;
    writes = input.n + 4 * rows * groups.n
triton_fp8_per_group_colwise_scales: read input[*batch m n], read groups; cost = DYNAMIC_QUANTIZE;
    writes = input.n + 4 * batch * n * groups.n
triton_fp8_per_group_colwise_scales_dual: read input[m n], read second[rows columns], read groups; cost = DYNAMIC_QUANTIZE;
    per = input second; writes = input.n + second.n + 4 * (n + columns) * groups.n
# a scale for each block of 32 by 1 or of 32 by 32
mxfp8_quantize_3d_cutedsl mxfp8_quantize_3d_flydsl: read input, block=32, height=32, width=1; cost = DYNAMIC_QUANTIZE;
    writes = input.n + input.n // (height * width)
# with a scale for 32 elements of a row, of a column, or once with each
mxfp8_quantize: read input, rowwise, colwise; other = (QUANTIZE + 2) * input.n * (bool(rowwise) + bool(colwise));
    writes = (input.n + input.n // 32) * (bool(rowwise) + bool(colwise))
# no zero point
triton_mxfp8_dequant_dim0: read input, read scales, out_dtype; other = input.n * (DEQUANTIZE - 1);
    writes = input.n * item('out_dtype', 'bfloat16'); precision = out_dtype=bfloat16
[element-wise ao::]
# Half a byte an element, and a scale of 8 bits for 16; one more for all, or for each group.
mslk_quantize_nvfp4: read input, read scale?; cost = DYNAMIC_QUANTIZE; writes = input.n // 2 + input.n // 16
mslk_quantize_nvfp4_stacked like mslk_quantize_nvfp4: read sizes?, read input, read scale?; precision = input
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
aiter::_rope_rotate_activation_bf16: write out, {_ROPE}, rotates=True; other = {_ROTATION} + bool(rotates) * {_TRANSFORM};
    reads = {_TABLES}
aiter::_rope_rotate_activation_fp4quant like aiter::_rope_rotate_activation_bf16: write out, write scale?, {_ROPE}, group=32,
    shuffle=True, rotates=True; other = {_ROTATION} + bool(rotates) * {_TRANSFORM} + {_QUANTIZE}
aiter::_rope_rotate_activation_fp8quant like aiter::_rope_rotate_activation_fp4quant: write out, write scale?, {_ROPE}, group=128,
    rotates=True
""")
