"""SGLang's operators without attention: ``sgl_kernel`` (compiled), and ``sglang``, registered in Python: kernels that are compiled on
first use, and functions around libraries, which count where nothing below them is counted.

What SGLang's profiler names ``sglang_profiler::...`` are functions in Python, which only call others.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.registry import LAYER
from rooflines.roofline.formulas.rotary import normalize_and_rotate, rotate_in_place, rotation
from rooflines.roofline.formulas.scaled import SCALED, fp4_product, to_blocks, to_fp4
from rooflines.roofline.formulas.tables import table

_NARROW: Final = "read input, write out, write scale"
# Queries and keys [tokens, heads, head], read whole and written to tensors that may be the same memory.
_PAIR: Final = "update q[*heads head], update k"
_WEIGHTS: Final = "read q_weight, read k_weight"
_TABLE: Final = "view table, read positions"
_ROW_OF_TABLE: Final = "selected(table, positions.n * table[-1])"
_NEW: Final = f"read q[*heads head], read k, write q_rope, write k_rope, {_TABLE}"
_IN_PLACE: Final = "view q[*heads head], view k"
_INTO_CACHE: Final = rotate_in_place(f"{_IN_PLACE}, view v, view k_cache, view v_cache, {_TABLE}, read slots", "q k")
_KEYS, _VALUES = stored("k", "k_cache"), stored("v", "v_cache")


table(f"""
[matmul wraps]
sglang::aiter_gemm_afp4wfp4_pre_quant sglang::mxfp4_diffusion_quant_gemm:
    {fp4_product("read left, read right, read scale, write out?, dtype=None")}
[matmul sglang:: wraps]
# Repacked weights: the width of the result is an argument.
apply_fp8_marlin_linear: read input[*m =k], read weight, read scale?, workspace, n, k, read bias?; matrix = 2 * m * k * n;
    other = m * n * bool(bias) + DEQUANTIZE * k * n; writes = m * n * input.item
apply_fp4_marlin_linear like apply_fp8_marlin_linear: read input[*m =k], read weight, read scale?, read global_scale?, workspace, n,
    k, read bias?
unified_apply_gptq_marlin_gemm like apply_fp8_marlin_linear: read input[*m =k], read weight, read scale?, read zeros?, read g_idx?,
    order, workspace, n, k; other = DEQUANTIZE * k * n
unified_apply_gptq_marlin_gemm_with_wtype like unified_apply_gptq_marlin_gemm: read input[*m =k], read weight, read scale?,
    read zeros?, read g_idx?, order, workspace, type, n, k
[matmul]
sglang::cutedsl_dual_gemm_swiglu: read input[*m k], read weight[n =k]; matrix = 2 * m * n * k; other = m * n // 2 * (SILU + 1);
    writes = m * n // 2 * input.item
[normalization]
sgl_kernel::rmsnorm sgl_kernel::gemma_rmsnorm: write out, read input, read weight, eps; cost = RMS_NORM
sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm: update input, update residual, read weight, eps;
    cost = RMS_NORM + 1
sglang::layernorm: read input, read weight, read bias, eps -> input; cost = LAYER_NORM
sglang::triton_one_pass_rms_norm_cuda: read input, read weight, eps -> input; cost = RMS_NORM
sglang::triton_group_norm_silu_cuda: read input, read weight, read bias -> input; cost = LAYER_NORM + SILU
sglang::fused_inplace_qknorm: {_PAIR}, {_WEIGHTS}; cost = RMS_NORM; per = q k
sglang::fused_inplace_qknorm_rope: {_PAIR}, {_WEIGHTS}, {_TABLE}; cost = RMS_NORM; per = q k; other = {rotation("q k")};
    also = {_ROW_OF_TABLE}
sglang::fused_qknorm_rope_out_of_place like sglang::fused_inplace_qknorm_rope: read q[*heads head], read k, write q_out, write k_out,
    {_WEIGHTS}, {_TABLE}
sglang::fused_qk_norm_rope_out: {normalize_and_rotate(f"view qkv, {_WEIGHTS}, read positions, heads_q, heads_k, heads_v, head")}
sgl_kernel::fused_qk_norm_rope trtllm::fused_qk_norm_rope:
    {normalize_and_rotate(f"view qkv, heads_q, heads_k, heads_v, head, eps, {_WEIGHTS}, base, is_neox, read positions")}
[element-wise sgl_kernel::]
sgl_per_token_group_quant_fp8 sgl_per_token_group_quant_int8 sgl_per_token_group_quant_8bit sgl_per_token_quant_fp8: {_NARROW};
    cost = DYNAMIC_QUANTIZE
[element-wise sglang::]
# the name of the activation is not in a trace
_run_activation_inplace _run_activation_filtered_inplace _run_activation_with_rounding_inplace: name, read input, write out,
    read experts?; cost = SILU + 1; per = out; assumption = the activation is SiLU
_bias_gelu_tanh: read input, read bias, write out; cost = GELU + 1
diffusion_modulate_scale_shift: read input, read scale, read shift -> input; cost = 3
diffusion_residual_gate_add diffusion_residual_gate_fp32: read input, read update, read gate -> input; cost = 2
triton_fused_silu_mul_bitexact: read input, read factor -> input; cost = SILU + 1
per_token_quant_fp8 fp8_wo_a_group_major_quant_ue8m0 per_token_group_quant_8bit: {_NARROW}; cost = DYNAMIC_QUANTIZE
per_tensor_absmax_fp8: read input, write scale; cost = 2
scaled_fp4_quant: read input, write out, write block_scale, read scale; cost = DYNAMIC_QUANTIZE
apply_rope_inplace: {rotate_in_place(f"{_IN_PLACE}, {_TABLE}", "q k")}
# Keys are read once, to be rotated and stored.
apply_rope_inplace_with_kvcache: {_INTO_CACHE}; other = {_INTO_CACHE.other} + {_KEYS[0]} + {_VALUES[0]};
    also = {_VALUES[1]} + slots.size; writes = {_INTO_CACHE.writes} + {_KEYS[2]} + {_VALUES[2]}
rotary_embedding_without_key: {rotate_in_place("read positions, view query, head, view table", "query")}
[element-wise]
# With a flag, an activation of [gate, factor] comes first, and the result is half as wide.
sgl_kernel::sgl_per_token_group_quant_8bit_v2 sglang::per_token_group_quant_8bit_v2 sglang::per_token_group_quant: {_NARROW};
    other = out.n * (QUANTIZE + 2 + (SILU + 1) * (input[-1] == 2 * out[-1]))
# The scale is given, or computed.
sgl_kernel::sgl_per_tensor_quant_fp8 sglang::per_tensor_quant_fp8: read input, write out, read scale, is_static=False;
    other = input.n * (QUANTIZE if is_static else QUANTIZE + 2); reads = input.size + (scale.size if is_static else 0);
    writes = 0 if is_static else scale.n * scale.item
sgl_kernel::scaled_fp4_quant: {to_fp4("write out, read input, write block_scale, read scale")}
[element-wise wraps]
sglang::quant_dequant_mxfp4 vllm::quant_dequant_mxfp4: read input -> input; cost = DYNAMIC_QUANTIZE + DEQUANTIZE
sglang::flashinfer_fp4_quantize flashinfer::fp4_quantize trtllm::fp4_quantize:
    {to_blocks(4, "block", "read input, read scale?, block=16")}
[moe sgl_kernel::]
topk_softmax: write weights, write ids, read input, renormalize, softcapping, read bias?; cost = SOFTMAX + 1
topk_sigmoid: write weights, write ids, read input, renormalize, read bias?; cost = SIGMOID + 1
# one group: a sigmoid and a bias for each score; weights and ids are returned
kimi_k2_moe_fused_gate: read input, read bias, kept; cost = SIGMOID + 2; writes = 8 * input[0] * kept
moe_align_block_size: read input, experts, block, write sorted_ids, write expert_ids, write count
moe_sum: read input, write out; cost = 1
moe_sum_reduce: read input, write out, factor; cost = 1
apply_shuffle_mul_sum: read input, write out, read map, read factors?; cost = 2
es_sm100_mxfp8_blockscaled_grouped_quant: read input, read sizes, read offsets, read scale_offsets, write out, write scale;
    cost = DYNAMIC_QUANTIZE
prepare_moe_input: read input, write offsets, write block_offsets?, write sizes1, write sizes2, write order, write back
[moe sglang::]
moe_topk_softmax_out: write weights, write ids, read input, workspace, renormalize, softcapping, read bias?; cost = SOFTMAX + 1
moe_topk_sigmoid_out: read input, write weights, write ids, workspace, renormalize, read bias?; cost = SIGMOID + 1
_jit_grouped_topk_op: read input, read bias, write weights, write ids; cost = SIGMOID + 2
cutlass_prepare_moe_input: read input, write offsets, write sizes1, write sizes2, write order, write back
shuffle_weighted_sum: read input, write out, read map, read factors; cost = 2
[moe wraps]
sglang::fused_topk_deepseek: read input, read bias, groups, groups_kept, kept, factor, write weights, write ids; cost = SIGMOID + 2
[element-wise tensors_only]
# Values, caches and slots come last, if the new keys and values go into the cache too; numbers before them differ.
sgl_kernel::apply_rope_pos_ids_cos_sin_cache: {_NEW}, read v, view k_cache, view v_cache, read slots; other = {rotation("q k")};
    also = {_ROW_OF_TABLE}; writes = v.n * (k_cache.item + v_cache.item)
    | {_NEW}; other = {rotation("q k")}; also = {_ROW_OF_TABLE}
[copy sgl_kernel::]
copy_to_gpu_no_ce: read input, write out
concat_mla_k: write out, read input, read rope
# Between the caches of a device and its host, which come before the lists of slots: the bytes of a slot, and perhaps of all layers.
transfer_kv_per_layer: k, k_to, v, v_to, read source, read target, slot; moved = 2 * source.n * slot;
    reads = moved + source.size + target.size; writes = moved
transfer_kv_per_layer_pf_lf transfer_kv_per_layer_ph_lf like transfer_kv_per_layer: k, k_to, v, v_to, read source, read target,
    layer, slot
transfer_kv_all_layer like transfer_kv_per_layer: k, k_to, v, v_to, read source, read target, slot, layers;
    moved = 2 * source.n * slot * layers
transfer_kv_all_layer_lf_pf transfer_kv_all_layer_lf_ph like transfer_kv_all_layer: k, k_to, v, v_to, read source, read target, slot,
    layout, layers
transfer_kv_per_layer_mla like transfer_kv_per_layer: kv, kv_to, read source, read target, slot; moved = source.n * slot
transfer_kv_per_layer_mla_pf_lf like transfer_kv_per_layer_mla: kv, kv_to, read source, read target, layer, slot
transfer_kv_all_layer_mla like transfer_kv_per_layer: kv, kv_to, read source, read target, slot, layers;
    moved = source.n * slot * layers
transfer_kv_all_layer_mla_lf_pf like transfer_kv_all_layer_mla: kv, kv_to, read source, read target, slot, layout, layers
[copy]
sglang::store_cache: {store("view key, view value, view key_cache, view value_cache, read slots")}
sgl_kernel::store_kv_cache: {store("view key_cache, view value_cache, read slots, view key, view value")}
[matmul sgl_kernel:: scaled]
int8_scaled_mm fp8_scaled_mm: {SCALED}, out_dtype, read bias?
fp8_blockwise_scaled_mm: {SCALED}, out_dtype
bmm_fp8: left, right, write out, read scale_a, read scale_b
cutlass_scaled_fp4_mm: write out, left, right, read scale_a, read scale_b, read alpha
dsv3_fused_a_gemm dsv3_router_gemm: write out, left, right
qserve_w4a8_per_chn_gemm: left, right, read wscales, read ascales, read w_szs, read a_ssums, write out
qserve_w4a8_per_group_gemm: left, right, read zeros, read scales_i8, read wscales, read ascales, write out
[matmul sglang:: scaled]
fp8_blockwise_scaled_mm: write out, left, right, read scale_a, read scale_b
tiny_gemm_bf16 n128k512_gemm_bf16 n32k5120_gemm_bf16 dsv3_router_gemm: left, right, write out
cutedsl_tgv_bf16_gemm: left, right, read bias?
cutedsl_tgv_bf16_gemm_out: left, right, write out, read bias?
jit_dsv3_fused_a_gemm cutedsl_dsv3_fused_a_gemm: left, right
triton_mxfp8_block_scaled_matmul: left, read scale_a, right, read scale_b, out_dtype
[matmul sglang:: scaled wraps]
w8a8_block_fp8_matmul_deepgemm w8a8_block_fp8_matmul_triton: {SCALED}, block, out_dtype
deep_gemm_fp8_fp8_bf16_nt deep_gemm_mxfp8_fp8_bf16_nt: left, read scale_a, right, read scale_b, write out
bf16_gemm_dispatch: left, right, read bias?
flashinfer_dsv3_router_gemm: write out, left, right
flashinfer_bmm_fp8 flashinfer_gemm_fp8_nt_groupwise flashinfer_mm_mxfp8: {SCALED}, out_dtype
flashinfer_bmm_fp8_batched _bmm_fp8_op: left, right, write out, read scale_a, read scale_b
fp4_gemm: left, right, read scale_a?, read scale_b, read alpha, out_dtype
aiter_gemm_a4w4: {SCALED}, like, out_dtype=15
aiter_gemm_afp4wfp4: {SCALED}, write out
[other sglang:: dispatches]
# Layers, which are found by their number, and choices between operators.
apply_bnb_4bit broadcast_indexer_topk_from_rank0_ deepseek_v4_attention_with_output flash_attn_varlen_func_op
    flash_attn_varlen_func_op_lse gdn_with_output mla_bmm_then_unified_attention nemotron_mamba2_with_output
    pcg_dsa_indexer_prefill_split unified_attention_with_output_and_lse unified_linear_attention_with_output
    unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear: {LAYER}
""")
