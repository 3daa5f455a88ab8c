"""AITER without its attention and mixtures of experts, and ATOM, a server on AITER whose operators are in its namespace.

The name of an operator is that of the function in Python. Layers of ATOM only call other operators. Its others count if nothing below
them is counted: most launch a kernel in Triton.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.packed_attention import unified
from rooflines.roofline.formulas.registry import LAYER
from rooflines.roofline.formulas.scaled import SCALED, fp4_product
from rooflines.roofline.formulas.tables import table

_ADDED: Final = "write out, read input, read residual, write residual_out"
_SMOOTH: Final = "read x_scale, write y_scale"
_INTO: Final = "write out, read input"


def _norms(name: str, cost: str, parameters: str) -> str:
    """The norm and its fusions with an addition and a quantization, which AITER names alike for both kinds of norms."""
    return f"""
{name} {name}_ck: read input, {parameters} -> input; cost = {cost}
{name}_with_add {name}_with_add_ck: {_ADDED}, {parameters}; cost = {cost} + 1
{name}_with_smoothquant {name}_with_smoothquant_ck: {_INTO}, {_SMOOTH}, {parameters}; cost = {cost} + 1 + DYNAMIC_QUANTIZE
{name}_with_add_smoothquant {name}_with_add_smoothquant_ck: {_ADDED}, {_SMOOTH}, {parameters}; cost = {cost} + 2 + DYNAMIC_QUANTIZE
{name}_with_dynamicquant {name}_with_dynamicquant_ck: {_INTO}, write y_scale, {parameters}; cost = {cost} + DYNAMIC_QUANTIZE
{name}_with_add_dynamicquant {name}_with_add_dynamicquant_ck: {_ADDED}, write y_scale, {parameters};
    cost = {cost} + 1 + DYNAMIC_QUANTIZE
"""


# A token has a row of each table, with one number for two of a head; of a head they may rotate only a part.
_ANGLES: Final = "positions.size + selected(cos, positions.n * cos[-1]) + selected(sin, positions.n * sin[-1])"
_ROTATED: Final = "min(cos[-1] + sin[-1], head)"


def flag_first(signature: Signature) -> Signature:
    """The first flag of a call, which says that a table has one number for both of a pair, and its tensors."""
    shared = next((arg for arg in signature.args if isinstance(arg, bool)), None)
    return replace(signature, args=(shared, *signature.tensors))


_PACKED: Final = "read qkv, read q_weight, read k_weight, read table, read positions, tokens"
_HEADS: Final = "heads_q, heads_k, heads_v, head"
_CACHES: Final = "view k_cache, view v_cache, read slots"
_SCALES: Final = "read k_scale?, read v_scale?"
# Queries and keys of the tokens are normalized and rotated,
_NORMALIZED: Final = "tokens * (heads_q + heads_k) * head"
_FLOPS: Final = "tokens * (heads_q + heads_k) * (head * RMS_NORM + min(table[-1], head) * ROTARY_EMBEDDING)"
_READ: Final = f"{_NORMALIZED} * qkv.item + q_weight.size + k_weight.size + positions.size + selected(table, positions.n * table[-1])"
# keys and values go into caches after a scale.
_CACHED: Final = "slots.n * head * (heads_k * k_cache.item + heads_v * v_cache.item)"
_NARROW: Final = "heads_k * (k_cache.item < qkv.item) + heads_v * (v_cache.item < qkv.item)"
_CACHED_FLOPS: Final = f"{_FLOPS} + QUANTIZE * slots.n * head * ({_NARROW})"
_APART: Final = f"write q_out, {_CACHES}, {_SCALES}, view k_out?, view v_out?, returns=False"
_CACHED_READ: Final = f"{_READ} + tokens * heads_v * head * qkv.item + slots.size + k_scale.size + v_scale.size"
# The compressed keys and values and the rotated part of each token go into a row of the cache, which may hold scales too.
_LATENT: Final = "first(k, slots.n) * k.item + first(k_pe, slots.n) * k_pe.item + slots.size + k_scale.size"
_LATENT_FLOPS: Final = "QUANTIZE * (first(k, slots.n) * (cache.item < k.item) + first(k_pe, slots.n) * (cache.item < k_pe.item))"
_LATENT_ROWS: Final = "slots.n * cache[-1] * cache.item"
_ROTATION: Final = f"(q_pe.n + k_pe.n) // head * {_ROTATED} * ROTARY_EMBEDDING"


_TABLE: Final = f"""
[normalization aiter::]
{_norms("rmsnorm2d_fwd", "RMS_NORM", "read weight, eps")}
{_norms("layernorm2d_fwd", "LAYER_NORM", "read weight, read bias?, eps, read x_bias?")}
rms_norm _fused_rmsnorm: read input, read weight, eps -> input; cost = RMS_NORM
layer_norm: read input, read weight?, read bias?, eps, read x_bias? -> input; cost = LAYER_NORM
rms_norm_cu rmsnorm: {_INTO}, read weight, eps; cost = RMS_NORM
fused_add_rms_norm_cu: update input, update residual, read weight, eps; cost = RMS_NORM + 1
add_rmsnorm: {_ADDED}, read weight, eps; cost = RMS_NORM + 1
rmsnorm_quant: write out, read input, write scale, read weight, eps; cost = RMS_NORM + DYNAMIC_QUANTIZE
add_rmsnorm_quant: {_ADDED}, write scale, read weight, eps; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE
_fused_rmsnorm_add: read input, read weight, eps, read residual -> input residual; cost = RMS_NORM + 1
layernorm2d_with_add_asm: {_ADDED}, read weight, read bias, eps, read x_bias?; cost = LAYER_NORM + 1
layernorm2d_with_add_smoothquant_asm: {_ADDED}, {_SMOOTH}, read weight, read bias, eps, read x_bias?;
    cost = LAYER_NORM + 2 + DYNAMIC_QUANTIZE
gated_rmsnorm_fp8_group_quant gated_rmsnorm_fp8_per_token_quant: write out, write scale, read input, read gate, read weight, eps;
    cost = RMS_NORM + SILU + 1 + DYNAMIC_QUANTIZE
_fused_qk_rmsnorm_kernel: read q, read q_weight, q_eps, read k?, read k_weight?, k_eps, write q_out?, write k_out?; cost = RMS_NORM;
    per = q k
# of the queries also of their sum with a residual, and in 8 or 4 bits with scales
_fused_qk_rmsnorm_group_quant_kernel _fused_qk_rmsnorm_per_token_quant_kernel: write q_narrow?, write q_scale?, read q,
    read q_weight, q_eps, write q_out?, write k_out?, write q_sum?, read k?, read k_weight?, k_eps, read residual?; cost = RMS_NORM;
    per = q k; other = q.n * (bool(residual) + bool(q_scale) * DYNAMIC_QUANTIZE)
fused_qk_norm_rope_1way: read q, read k, read q_weight, read k_weight, read table, batch, tokens, heads_q, heads_k, head,
    interleaved, eps, write q_out, write k_out; cost = RMS_NORM + ROTARY_EMBEDDING; per = q k
fused_rope_rms fused_mrope_3d_rms: {_PACKED}, {_HEADS}; other = {_FLOPS}; reads = {_READ}; writes = {_NORMALIZED} * qkv.item
# Queries and keys are written in place too,
fused_qk_norm_rope_cache_quant_shuffle: read qkv, {_HEADS}, eps, read q_weight, read k_weight, read table, is_neox,
    read positions[*tokens], {_CACHES}, dtype, {_SCALES}; other = {_CACHED_FLOPS}; reads = {_CACHED_READ};
    writes = {_NORMALIZED} * qkv.item + {_CACHED}
_fused_qk_norm_rope_cache_quant_shuffle_hip like fused_qk_norm_rope_cache_quant_shuffle: read qkv, k, v, {_HEADS}, eps,
    read q_weight, read k_weight, read table, is_neox, read positions[*tokens], {_CACHES}, dtype, {_SCALES}
# or queries into a tensor of their own, keys and values where they are asked for.
fused_qk_norm_rope_cache_pts_quant_shuffle: {_PACKED}, {_HEADS}, is_neox, eps, {_APART}; other = {_CACHED_FLOPS};
    reads = {_CACHED_READ}; writes = bool(returns) * (k_out.n * k_out.item + v_out.n * v_out.item) + {_CACHED}
fused_qk_norm_mrope_3d_cache_pts_quant_shuffle like fused_qk_norm_rope_cache_pts_quant_shuffle: {_PACKED}, {_HEADS}, is_neox,
    sections, interleaved, eps, {_APART}
[normalization]
aiter::_groupnorm_run aiter::groupnorm_run: read input, groups, read weight, read bias -> input; cost = LAYER_NORM; number = groups
    | out, workspace, read input, groups, read weight, read bias -> input; cost = LAYER_NORM; number = groups
[element-wise aiter::]
swiglu_and_mul: {_INTO}; cost = SILU + 6; per = out
gelu_fast: {_INTO}; cost = GELU; per = out
scaled_silu_and_mul: {_INTO}, read scale; cost = SILU + 1 + QUANTIZE; per = out
silu_and_mul_quant: {_INTO}, write scale; cost = SILU + 1 + DYNAMIC_QUANTIZE; per = out
# a bias for each half
silu_and_mul_bias: {_INTO}, read expert_ids, read bias; cost = SILU + 3; per = out
gelu_and_mul_bias: {_INTO}, read expert_ids, read bias; cost = GELU + 3; per = out
swiglu_and_mul_bias: {_INTO}, read expert_ids, read bias; cost = SILU + 8; per = out
static_per_tensor_quant: {_INTO}, read scale; cost = QUANTIZE
dynamic_per_tensor_quant dynamic_per_group_scaled_quant dynamic_per_group_scaled_quant_fp4: {_INTO}, write scale;
    cost = DYNAMIC_QUANTIZE
dynamic_per_token_scaled_quant: {_INTO}, write scale, read scale_ub?; cost = DYNAMIC_QUANTIZE
quant_mxfp4: read input, write out, write scale; cost = DYNAMIC_QUANTIZE
smoothquant_fwd: {_INTO}, {_SMOOTH}; cost = 1 + DYNAMIC_QUANTIZE
smooth_per_token_scaled_quant: {_INTO}, write scale, read smooth_scale, read map?; cost = 1 + DYNAMIC_QUANTIZE
moe_smoothquant_fwd: {_INTO}, read x_scale, read ids, write y_scale; cost = 1 + DYNAMIC_QUANTIZE; per = out
moe_smooth_per_token_scaled_quant_v1: {_INTO}, write scale, read smooth_scale, read map; cost = 1 + DYNAMIC_QUANTIZE; per = out
moe_smooth_per_token_scaled_quant_v2: {_INTO}, write scale, read smooth_scale, read ids, read expert_ids, read count;
    cost = 1 + DYNAMIC_QUANTIZE; per = out
partial_transpose: {_INTO}, read rows
add sub mul div: read input, read other -> input; cost = 1
add_ sub_ mul_ div_ _add_kernel_ _sub_kernel_ _mul_kernel_ _div_kernel_: update input, read other; cost = 1
_add_kernel _sub_kernel _mul_kernel _div_kernel: read input, read other, write out; cost = 1; per = out
_sigmoid: {_INTO}; cost = SIGMOID
_tanh: {_INTO}; cost = TANH
sigmoid: read input -> input; cost = SIGMOID
tanh: read input -> input; cost = TANH
# In place; cosines and sines of half a head each in a table of their own.
rotary_embedding_fwd batched_rotary_embedding: read positions, view query, view key?, head, read cos, read sin;
    other = (query.n + key.n) // head * {_ROTATED} * ROTARY_EMBEDDING;
    writes = (query.n * query.item + key.n * key.item) // head * {_ROTATED};
    reads = (query.n * query.item + key.n * key.item) // head * {_ROTATED} + {_ANGLES}; precision = query
_inverse_rope_group_quant_kernel: read input[*heads head], write out, write scale, read positions, read cos, read sin;
    cost = DYNAMIC_QUANTIZE; other = heads * {_ROTATED} * ROTARY_EMBEDDING; reads = input.size + {_ANGLES}
[element-wise aiter:: flag_first]
# The last dimension is a head; what does not rotate is copied. Of frequencies, or of their cosines and sines,
rope_fwd_impl rope_bwd_impl: shared, write out, read x[*rest head], read freqs; width = freqs[-1] * (1 + shared); numbers = x.n;
    other = numbers // head * ROTARY_EMBEDDING * min(head, width); precision = x
rope_cached_fwd_impl rope_cached_bwd_impl like rope_fwd_impl: shared, write out, read x[*rest head], read cos, read sin;
    width = cos[-1] * (1 + shared)
# of two tensors, of packed sequences, or of two dimensions of an image, half of a head each,
rope_2c_fwd_impl rope_2c_bwd_impl like rope_fwd_impl: shared, write out, write out_y, read x[*rest head], read y, read freqs;
    numbers = x.n + y.n
rope_cached_2c_fwd_impl rope_cached_2c_bwd_impl like rope_cached_fwd_impl: shared, write out, write out_y, read x[*rest head],
    read y, read cos, read sin; numbers = x.n + y.n
rope_thd_fwd_impl rope_thd_bwd_impl like rope_fwd_impl: shared, write out, read x[*rest head], read starts, read freqs
rope_2d_fwd_impl rope_2d_bwd_impl like rope_fwd_impl: shared, write out, read x[*rest head], read cos, read sin, read cos_w,
    read sin_w; width = cos[-1] * (1 + shared) * 2
# with the positions of the tokens, of which each has a row of the tables.
rope_cached_positions_fwd_impl like rope_cached_fwd_impl: shared, write out, read x[*rest head], view cos, view sin, read positions;
    also = min(positions.n, cos.n // cos[-1]) * (cos[-1] * cos.item + sin[-1] * sin.item)
rope_cached_positions_offsets_fwd_impl like rope_cached_positions_fwd_impl: shared, write out, read x[*rest head], view cos,
    view sin, read positions, read offsets?
rope_cached_positions_2c_fwd_impl like rope_cached_positions_fwd_impl: shared, write out, write out_y, read x[*rest head], read y,
    view cos, view sin, read positions; numbers = x.n + y.n
rope_cached_positions_offsets_2c_fwd_impl like rope_cached_positions_2c_fwd_impl: shared, write out, write out_y, read x[*rest head],
    read y, view cos, view sin, read positions, read offsets?
[copy aiter::]
cat_and_cache_mla: read k, read k_pe, view cache, read slots, read k_scale?; other = {_LATENT_FLOPS}; reads = {_LATENT};
    writes = {_LATENT_ROWS}
# Queries [tokens, heads, ..] of both kinds rotate into one tensor.
fused_qk_rope_concat_and_cache_mla fused_qk_rope_concat_and_cache_mla_seg: read q, read q_pe[*heads head], read k, read k_pe,
    view cache, write q_out, read slots, read k_scale?, read q_scale?, read positions, read cos, read sin;
    other = {_ROTATION} + q_out.n * QUANTIZE * (q_out.item < q.item) + {_LATENT_FLOPS};
    reads = q.size + q_pe.size + q_scale.size + {_ANGLES} + {_LATENT}; writes = {_LATENT_ROWS}
# With new tensors for the queries, the rotated keys, the rotated part of the first queries again, and zeros as large as their other
# part.
fused_qk_rope_cat_and_cache_mla: read q, read q_pe[*heads head], read k, read k_pe, view cache, read slots, read positions, read cos,
    read sin, read k_scale?, is_neox, firsts=0, apply=True, write q_out?, pe_out=None, k_pe_out=None, dtype=None -> k_pe;
    other = {_ROTATION} + {_LATENT_FLOPS} + (q_out.n or q.n + q_pe.n) * QUANTIZE * ((q_out.item or item('dtype', q.dtype)) < q.item);
    reads = q.size + q_pe.size + {_ANGLES} + {_LATENT};
    writes = (0 if q_out else (q.n + q_pe.n) * item('dtype', q.dtype)) + firsts * q[-2] * (head + k[-1]) * q.item + {_LATENT_ROWS}
# Keys and values [tokens, heads, head] with a scale for each token and head.
reshape_and_cache_with_pertoken_quant: read key, read value, view key_cache, view value_cache, view k_scales, v_scales, read slots;
    other = (first(key, slots.n) + first(value, slots.n)) * DYNAMIC_QUANTIZE;
    reads = first(key, slots.n) * key.item + first(value, slots.n) * value.item + slots.size;
    writes = first(key, slots.n) * key_cache.item + first(value, slots.n) * value_cache.item + 2 * slots.n * key[-2] * k_scales.item
[copy]
# The index of a sparse attention: queries rotate and become fp8, their weights are scaled, and the normalized, rotated key of each
# token goes into the cache as fp8, with a float32 scale for each block.
aiter::indexer_qk_rope_quant_and_cache: read q[*heads head], write q_out, read weights, write weights_out, read k[*tokens width],
    cache, read slots, read weight, read bias, read positions, read cos, read sin, eps, block; cost = DYNAMIC_QUANTIZE; per = q;
    other = (q.n + k.n) // head * {_ROTATED} * ROTARY_EMBEDDING + 2 * weights.n + slots.n * width * (LAYER_NORM + DYNAMIC_QUANTIZE);
    reads = q.size + weights.size + slots.size + weight.size + bias.size + first(k, slots.n) * k.item + {_ANGLES};
    writes = slots.n * (width + 4 * (width // block))
[matmul aiter::]
gemm_a16wfp4 gemm_a16wfp4_: {fp4_product("read left, read right, read scale, atomic=False, dtype=15, write out?")}
gemm_a16wfp4_preshuffle_: {fp4_product("read left, read right, read scale, prequant=True, dtype=15, write out?")}
batched_gemm_a16wfp4 batched_gemm_a16wfp4_: {fp4_product("read left, read right, read scale, dtype=15, write out?")}
[normalization aiter:: wraps]
rmsnorm2d_fwd_ fused_rmsnorm_pad_: read input, read weight, eps -> input; cost = RMS_NORM
layernorm2d_fwd_: read input, read weight, read bias, eps -> input; cost = LAYER_NORM
# return the norm of the sum and the sum; padding of rows is not counted
rmsnorm2d_fwd_with_add_: read input, read weight, read residual, eps -> input residual; cost = RMS_NORM + 1
fused_add_rmsnorm_pad_: read input, read weight, eps, read residual -> input residual; cost = RMS_NORM + 1
layernorm2d_fwd_with_add_: read input, read weight, read residual, read bias, eps -> input residual; cost = LAYER_NORM + 1
fused_dual_rmsnorm_cat: read first, read first_weight, read second, read second_weight, eps -> first second; cost = RMS_NORM;
    per = first second
# In fp8 with a scale for each row or each 128 numbers, or in fp4 with one for each 32.
_aiter_rms_quant: read input[*rows width], read weight, eps, kind, transpose, update residual?; cost = RMS_NORM + DYNAMIC_QUANTIZE;
    other = input.n * bool(residual); writes = input.n + 4 * rows; fits = kind == 2
    | ; writes = input.n // 2 + input.n // 32; fits = kind == 3
    | ; writes = input.n + 4 * (input.n // 128); fits = kind == 4
[element-wise wraps]
# SiLU of the gate times the factor in fp4, with a scale for each 32.
aiter::mxfp4_act_mul_quant_fuse: read input; other = input.n // 2 * (SILU + 1 + DYNAMIC_QUANTIZE);
    writes = input.n // 4 + input.n // 64
[matmul wraps]
aiter::gemm_a4w4_quant: {fp4_product("read left, read left_scale?, read right, dtype, read scale")}
[matmul aiter:: scaled]
gemm_a16w16_: left, right, read bias?, out_dtype=15, write out?
gemm_a16w16_atomic_: left, right, out_dtype=15, write out?
gemm_a16w16: left, right, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_c?
_opus_gemm_a16w16_tune_raw batched_gemm_bf16_tune batched_gemm_bf16: left, right, write out, read bias?
_opus_gemm_bf16_dispatch: left, right, write out, groups, read scale_a?, read scale_b?, read bias?
_gemm_a16w16_asm gemm_a16w16_asm: left, right, write out, semaphore, read bias?
gemm_a8w8 gemm_a8w8_CK gemm_a8w8_bpreshuffle gemm_a4w4: {SCALED}, read bias?, out_dtype=15
gemm_a8w8_blockscale gemm_a8w8_blockscale_bpreshuffle batched_gemm_a8w8_mxscale: {SCALED}, out_dtype=15
gemm_afp4wfp4_: {SCALED}, out_dtype=15, write out?
gemm_a8w8_bpreshuffle_ck gemm_a8w8_bpreshuffle_cktile gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile
    gemm_a8w8_blockscale_bpreshuffle_ck gemm_a8w8_blockscale_bpreshuffle_cktile _flatmm_a8w8_blockscale_asm
    flatmm_a8w8_blockscale_asm mi350_a8w8_blockscale_asm gfx950_a8w8_blockscale_asm gemm_a4w4_blockscale gemm_a8w8_tune
    gemm_a8w8_bpreshuffle_tune gemm_a8w8_bpreshuffle_cktile_tune gemm_a8w8_blockscale_tune gemm_a8w8_blockscale_cktile_tune
    gemm_a8w8_blockscale_bpreshuffle_tune gemm_a8w8_blockscale_bpreshuffle_cktile_tune gemm_a4w4_blockscale_tune
    batched_gemm_a8w8_tune _opus_gemm_a8w8_blockscale_bpreshuffle_tune_raw _mxfp4_gemm_asm _mxfp8_mxfp8_gemm_asm
    _mxfp8_mxfp4_gemm_asm: {SCALED}, write out
gemm_a8w8_ck batched_gemm_a8w8: {SCALED}, write out, read bias?
_gemm_a8w8_asm gemm_a8w8_asm _gemm_a4w4_asm gemm_a4w4_asm: {SCALED}, write out, kernel, read bias?
_nvfp4_gemm_asm: {SCALED}, global_a, global_b, write out
_gemm_a8w8_blockscale_bpreshuffle_asm gemm_a8w8_blockscale_bpreshuffle_asm: left, right, write out, read scale_a, read scale_b,
    read bias?
_opus_bmm_a8w8_mxscale_raw: left, right, write out, read scale_a, read scale_b
hipb_mm: left, right, solution, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_out?
rocb_mm: left, right
[matmul aiter:: scaled wraps]
gemm_a8w8_blockscale_preshuffle_impl gemm_a8w8_blockscale_triton_impl: {SCALED}, out_dtype=15
gemm_a8w8_per_token_impl gemm_a8w8_per_tensor_impl: {SCALED}, read bias?, out_dtype=15
gemm_a8w8_blockscale_preshuffle_into_output: {SCALED}, write out
_bmm_fp8_op: left, right, write out, read scale_a, read scale_b
[attention by=unified]
aiter::unified_attention_with_output_base: query q_scale key value positions layer latent
[other aiter:: dispatches]
# Layers, which are found by their names, and choices between operators.
atom_vllm_mha_attention atom_vllm_mla_attention dspark_block_attention indexer_score_topk indexer_with_output
    kda_attention_with_output linear_attention_with_output_base maybe_dual_stream_forward minimax_m3_sparse_attention moe_forward
    sparse_attn_indexer sparse_attn_indexer_plugin_mode sparse_attn_indexer_sglang_plugin_mode v4_attention_with_output
    v4_core_attention: {LAYER}
"""
table(_TABLE, flag_first=flag_first, unified=unified)
