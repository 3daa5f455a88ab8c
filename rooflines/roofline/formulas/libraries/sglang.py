"""SGLang's operators without attention: ``sgl_kernel`` (compiled), and ``sglang``, registered in Python: kernels that are compiled on
first use, and functions around libraries, which count where nothing below them is counted.

What SGLang's profiler names ``sglang_profiler::...`` are functions in Python, which only call others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.costs import DEQUANTIZE, GELU, RMS_NORM, SIGMOID, SILU, SOFTMAX
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.libraries.norms import LAYER_NORM
from rooflines.roofline.formulas.libraries.vllm import GATED
from rooflines.roofline.formulas.nodes import tensors_only
from rooflines.roofline.formulas.registry import LAYER, dispatches, words
from rooflines.roofline.formulas.rotary import normalise_and_rotate, rotate_in_place, rotation
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import SCALED, fp4_product, product_row, register_products, to_blocks, to_fp4

# --- products ----------------------------------------------------------------------------------------------------------------------

_OUT_FIRST: Final = "write out, left, right"
_OUT_LAST: Final = "left, read scale_a, right, read scale_b, write out"
_BETWEEN: Final = "left, right, write out, read scale_a, read scale_b"
COMPILED: Final[dict[str, str]] = {
    "int8_scaled_mm fp8_scaled_mm": f"{SCALED}, out_dtype, read bias?",
    "fp8_blockwise_scaled_mm": f"{SCALED}, out_dtype",
    "bmm_fp8": _BETWEEN,
    "cutlass_scaled_fp4_mm": f"{_OUT_FIRST}, read scale_a, read scale_b, read alpha",
    "dsv3_fused_a_gemm dsv3_router_gemm": _OUT_FIRST,
    "qserve_w4a8_per_chn_gemm": "left, right, read wscales, read ascales, read w_szs, read a_ssums, write out",
    "qserve_w4a8_per_group_gemm": "left, right, read zeros, read scales_i8, read wscales, read ascales, write out",
}
KERNELS: Final[dict[str, str]] = {
    "fp8_blockwise_scaled_mm": f"{_OUT_FIRST}, read scale_a, read scale_b",
    "tiny_gemm_bf16 n128k512_gemm_bf16 n32k5120_gemm_bf16 dsv3_router_gemm": "left, right, write out",
    "cutedsl_tgv_bf16_gemm": "left, right, read bias?",
    "cutedsl_tgv_bf16_gemm_out": "left, right, write out, read bias?",
    "jit_dsv3_fused_a_gemm cutedsl_dsv3_fused_a_gemm": "left, right",
    "triton_mxfp8_block_scaled_matmul": "left, read scale_a, right, read scale_b, out_dtype",
}
WRAPPERS: Final[dict[str, str]] = {
    "w8a8_block_fp8_matmul_deepgemm w8a8_block_fp8_matmul_triton": f"{SCALED}, block, out_dtype",
    "deep_gemm_fp8_fp8_bf16_nt deep_gemm_mxfp8_fp8_bf16_nt": _OUT_LAST,
    "bf16_gemm_dispatch": "left, right, read bias?",
    "flashinfer_dsv3_router_gemm": _OUT_FIRST,
    "flashinfer_bmm_fp8 flashinfer_gemm_fp8_nt_groupwise flashinfer_mm_mxfp8": f"{SCALED}, out_dtype",
    "flashinfer_bmm_fp8_batched _bmm_fp8_op": _BETWEEN,
    "fp4_gemm": "left, right, read scale_a?, read scale_b, read alpha, out_dtype",
    "aiter_gemm_a4w4": f"{SCALED}, like, out_dtype=15",
    "aiter_gemm_afp4wfp4": f"{SCALED}, write out",
}
register_products(COMPILED, namespace="sgl_kernel::")
register_products(KERNELS, namespace="sglang::")
register_products(WRAPPERS, wraps=True, namespace="sglang::")
_IN_FP4: Final = fp4_product("read left, read right, read scale, write out?, dtype=None")
register({"sglang::aiter_gemm_afp4wfp4_pre_quant sglang::mxfp4_diffusion_quant_gemm": _IN_FP4}, "matmul", wraps=True)

# Repacked weights: the width of the result is an argument.
_REPACKED: Final = "read input[*m =k], read weight, read scale?"
_GPTQ: Final = f"{_REPACKED}, read zeros?, read g_idx?, order, workspace"
_WIDEN: Final = "DEQUANTIZE * k * n"
_MARLIN: Final[dict[str, Row]] = {
    "apply_fp8_marlin_linear": product_row(f"{_REPACKED}, workspace, n, k, read bias?", "input.item", "bool(bias)", _WIDEN),
    "apply_fp4_marlin_linear": product_row(
        f"{_REPACKED}, read global_scale?, workspace, n, k, read bias?", "input.item", "bool(bias)", _WIDEN
    ),
    "unified_apply_gptq_marlin_gemm": product_row(f"{_GPTQ}, n, k", "input.item", besides=_WIDEN),
    "unified_apply_gptq_marlin_gemm_with_wtype": product_row(f"{_GPTQ}, type, n, k", "input.item", besides=_WIDEN),
}
# [m, k] with [2 n, k], then SiLU of the first half times the second: [m, n]
_GATED_PRODUCT: Final = Row(
    "read input[*m k], read weight[n =k]", matrix="2 * m * n * k", other="m * n // 2 * (SILU + 1)", writes="m * n // 2 * input.item"
)
register(_MARLIN, "matmul", wraps=True, namespace="sglang::")
register({"sglang::cutedsl_dual_gemm_swiglu": _GATED_PRODUCT}, "matmul")

# --- norms, activations, conversions -----------------------------------------------------------------------------------------------

_INTO: Final = "write out, read input"
_NARROW: Final = "read input, write out, write scale"
NORMS: Final[dict[str, Row]] = {
    "sgl_kernel::rmsnorm sgl_kernel::gemma_rmsnorm": Row(f"{_INTO}, read weight, eps", RMS_NORM),
    "sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm": Row(
        "update input, update residual, read weight, eps", RMS_NORM + 1
    ),
    "sglang::layernorm": Row("read input, read weight, read bias, eps", LAYER_NORM, result="input"),
    "sglang::triton_one_pass_rms_norm_cuda": Row("read input, read weight, eps", RMS_NORM, result="input"),
    "sglang::triton_group_norm_silu_cuda": Row("read input, read weight, read bias", LAYER_NORM + SILU, result="input"),
}
COMPILED_ELEMENT_WISE: Final[dict[str, Row]] = {
    **{name: Row(_INTO, GATED[name], per="out") for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")},
    "gelu_quick": Row(_INTO, SIGMOID + 2, per="out"),
    "sgl_per_token_group_quant_fp8 sgl_per_token_group_quant_int8 sgl_per_token_group_quant_8bit sgl_per_token_quant_fp8": Row(
        _NARROW, DYNAMIC_QUANTIZE
    ),
}
ELEMENT_WISE: Final[dict[str, Row]] = {
    "_run_activation_inplace _run_activation_filtered_inplace _run_activation_with_rounding_inplace": Row(
        "name, read input, write out, read experts?",  # the name of the activation is not in a trace
        SILU + 1,
        per="out",
        assumption="the activation is SiLU",
    ),
    "_bias_gelu_tanh": Row("read input, read bias, write out", GELU + 1),
    "diffusion_modulate_scale_shift": Row("read input, read scale, read shift", 3, result="input"),  # x * (1 + scale) + shift
    "diffusion_residual_gate_add diffusion_residual_gate_fp32": Row("read input, read update, read gate", 2, result="input"),
    "triton_fused_silu_mul_bitexact": Row("read input, read factor", SILU + 1, result="input"),
    "per_token_quant_fp8 fp8_wo_a_group_major_quant_ue8m0 per_token_group_quant_8bit": Row(_NARROW, DYNAMIC_QUANTIZE),
    "per_tensor_absmax_fp8": Row("read input, write scale", 2),
    "scaled_fp4_quant": Row("read input, write out, write block_scale, read scale", DYNAMIC_QUANTIZE),
}
CONVERSIONS: Final[dict[str, Row]] = {
    # With a flag, an activation of [gate, factor] comes first, and the result is half as wide.
    "sgl_kernel::sgl_per_token_group_quant_8bit_v2 sglang::per_token_group_quant_8bit_v2 sglang::per_token_group_quant": Row(
        _NARROW, other="out.n * (QUANTIZE + 2 + (SILU + 1) * (input[-1] == 2 * out[-1]))"
    ),
    # The scale is given, or computed.
    "sgl_kernel::sgl_per_tensor_quant_fp8 sglang::per_tensor_quant_fp8": Row(
        "read input, write out, read scale, is_static=False",
        other="input.n * (QUANTIZE if is_static else QUANTIZE + 2)",
        reads="input.size + (scale.size if is_static else 0)",
        writes="0 if is_static else scale.n * scale.item",
    ),
}
_BACK: Final = Row("read input", DYNAMIC_QUANTIZE + DEQUANTIZE, result="input")
register(NORMS, "normalisation")
register(COMPILED_ELEMENT_WISE, "element-wise", namespace="sgl_kernel::")
register(ELEMENT_WISE, "element-wise", namespace="sglang::")
register(CONVERSIONS, "element-wise")
register({"sglang::quant_dequant_mxfp4 vllm::quant_dequant_mxfp4": _BACK}, "element-wise", wraps=True)
register({"sgl_kernel::scaled_fp4_quant": to_fp4("write out, read input, write block_scale, read scale")}, "element-wise")
_IN_BLOCKS: Final = to_blocks(4, "block", "read input, read scale?, block=16")
register({"sglang::flashinfer_fp4_quantize flashinfer::fp4_quantize trtllm::fp4_quantize": _IN_BLOCKS}, "element-wise", wraps=True)

# --- routing of experts ------------------------------------------------------------------------------------------------------------

COMPILED_ROUTING: Final[dict[str, Row]] = {
    "topk_softmax": Row("write weights, write ids, read input, renormalize, softcapping, read bias?", SOFTMAX + 1),
    "topk_sigmoid": Row("write weights, write ids, read input, renormalize, read bias?", SIGMOID + 1),
    # one group: a sigmoid and a bias for each score; weights and ids are returned
    "kimi_k2_moe_fused_gate": Row("read input, read bias, kept", SIGMOID + 2, writes="8 * input[0] * kept"),
    "moe_align_block_size": Row("read input, experts, block, write sorted_ids, write expert_ids, write count"),
    "moe_sum": Row("read input, write out", 1),
    "moe_sum_reduce": Row("read input, write out, factor", 1),
    "apply_shuffle_mul_sum": Row("read input, write out, read map, read factors?", 2),
    "es_sm100_mxfp8_blockscaled_grouped_quant": Row(
        "read input, read sizes, read offsets, read scale_offsets, write out, write scale", DYNAMIC_QUANTIZE
    ),
    "prepare_moe_input": Row("read input, write offsets, write block_offsets?, write sizes1, write sizes2, write order, write back"),
}
ROUTING: Final[dict[str, Row]] = {
    "moe_topk_softmax_out": Row("write weights, write ids, read input, workspace, renormalize, softcapping, read bias?", SOFTMAX + 1),
    "moe_topk_sigmoid_out": Row("read input, write weights, write ids, workspace, renormalize, read bias?", SIGMOID + 1),
    "_jit_grouped_topk_op": Row("read input, read bias, write weights, write ids", SIGMOID + 2),
    "cutlass_prepare_moe_input": Row("read input, write offsets, write sizes1, write sizes2, write order, write back"),
    "shuffle_weighted_sum": Row("read input, write out, read map, read factors", 2),
}
_DEEPSEEK: Final = Row("read input, read bias, groups, groups_kept, kept, factor, write weights, write ids", SIGMOID + 2)
register(COMPILED_ROUTING, "moe", namespace="sgl_kernel::")
register(ROUTING, "moe", namespace="sglang::")
register({"sglang::fused_topk_deepseek": _DEEPSEEK}, "moe", wraps=True)

# --- norms and positions of queries and keys ---------------------------------------------------------------------------------------

# Queries and keys [tokens, heads, head], read whole and written to tensors that may be the same memory.
_PAIR: Final = "update q[*heads head], update k"
_WEIGHTS: Final = "read q_weight, read k_weight"
_TABLE: Final = "view table, read positions"
_ROW_OF_TABLE: Final = "selected(table, positions.n * table[-1])"
_NEW: Final = f"read q[*heads head], read k, write q_rope, write k_rope, {_TABLE}"
_ROTATED: Final = Row(_NEW, other=rotation("q k"), also=_ROW_OF_TABLE)
_ROTATED_NORM: Final = Row(f"{_PAIR}, {_WEIGHTS}, {_TABLE}", RMS_NORM, "q k", other=rotation("q k"), also=_ROW_OF_TABLE)
_IN_PLACE: Final = "view q[*heads head], view k"
_INTO_CACHE: Final = rotate_in_place(f"{_IN_PLACE}, view v, view k_cache, view v_cache, {_TABLE}, read slots", "q k")
_KEYS, _VALUES = stored("k", "k_cache"), stored("v", "v_cache")
_HEAD_NORMS: Final[dict[str, Row]] = {
    "sglang::fused_inplace_qknorm": Row(f"{_PAIR}, {_WEIGHTS}", RMS_NORM, "q k"),
    "sglang::fused_inplace_qknorm_rope": _ROTATED_NORM,
    "sglang::fused_qknorm_rope_out_of_place": replace(
        _ROTATED_NORM, schema=f"read q[*heads head], read k, write q_out, write k_out, {_WEIGHTS}, {_TABLE}"
    ),
    "sglang::fused_qk_norm_rope_out": normalise_and_rotate(f"view qkv, {_WEIGHTS}, read positions, heads_q, heads_k, heads_v, head"),
    "sgl_kernel::fused_qk_norm_rope trtllm::fused_qk_norm_rope": normalise_and_rotate(
        f"view qkv, heads_q, heads_k, heads_v, head, eps, {_WEIGHTS}, base, is_neox, read positions"
    ),
}
_POSITIONS: Final[dict[str, Row]] = {
    "apply_rope_inplace": rotate_in_place(f"{_IN_PLACE}, {_TABLE}", "q k"),
    # Keys are read once, to be rotated and stored.
    "apply_rope_inplace_with_kvcache": replace(
        _INTO_CACHE,
        other=f"{_INTO_CACHE.other} + {_KEYS[0]} + {_VALUES[0]}",
        also=f"{_VALUES[1]} + slots.size",
        writes=f"{_INTO_CACHE.writes} + {_KEYS[2]} + {_VALUES[2]}",
    ),
    "rotary_embedding_without_key": rotate_in_place("read positions, view query, head, view table", "query"),
}
# Values, caches and slots come last, if the new keys and values go into the cache too; numbers before them differ.
_WITH_CACHE: Final = replace(
    _ROTATED,
    schema=f"{_NEW}, read v, view k_cache, view v_cache, read slots",
    writes="v.n * (k_cache.item + v_cache.item)",
)
register(_HEAD_NORMS, "normalisation")
register(_POSITIONS, "element-wise", namespace="sglang::")
register({"sgl_kernel::apply_rope_pos_ids_cos_sin_cache": (_WITH_CACHE, _ROTATED)}, "element-wise", given=tensors_only)


# --- copies, the KV cache ----------------------------------------------------------------------------------------------------------


def _transfer(caches: int, numbers: str, layers: str = "1") -> Row:
    """A copy between the caches of a device and its host, which come before the lists of slots; ``numbers`` are what follows up to the
    bytes of a slot and the number of layers."""
    names = ", ".join(f"cache{place}" for place in range(caches))
    moved = f"source.n * slot * {caches // 2} * {layers}"
    return Row(f"{names}, read source, read target, {numbers}", reads=f"{moved} + source.size + target.size", writes=moved)


COPIES: Final[dict[str, Row]] = {
    "copy_to_gpu_no_ce": Row("read input, write out"),
    "concat_mla_k": Row("write out, read input, read rope"),
    "transfer_kv_per_layer": _transfer(4, "slot"),
    "transfer_kv_per_layer_pf_lf transfer_kv_per_layer_ph_lf": _transfer(4, "layer, slot"),
    "transfer_kv_all_layer": _transfer(4, "slot, layers", "layers"),
    "transfer_kv_all_layer_lf_pf transfer_kv_all_layer_lf_ph": _transfer(4, "slot, layout, layers", "layers"),
    "transfer_kv_per_layer_mla": _transfer(2, "slot"),
    "transfer_kv_per_layer_mla_pf_lf": _transfer(2, "layer, slot"),
    "transfer_kv_all_layer_mla": _transfer(2, "slot, layers", "layers"),
    "transfer_kv_all_layer_mla_lf_pf": _transfer(2, "slot, layout, layers", "layers"),
}
register(COPIES, "copy", namespace="sgl_kernel::")
_STORED: Final[dict[str, Row]] = {
    "sglang::store_cache": store("view key, view value, view key_cache, view value_cache, read slots"),
    "sgl_kernel::store_kv_cache": store("view key_cache, view value_cache, read slots, view key, view value"),
}
register(_STORED, "copy")

# --- layers ------------------------------------------------------------------------------------------------------------------------

# Layers, which are found by their number, and choices between operators.
_LAYERS: Final = words(
    "apply_bnb_4bit broadcast_indexer_topk_from_rank0_ deepseek_v4_attention_with_output flash_attn_varlen_func_op"
    " flash_attn_varlen_func_op_lse gdn_with_output mla_bmm_then_unified_attention nemotron_mamba2_with_output"
    " pcg_dsa_indexer_prefill_split unified_attention_with_output_and_lse unified_linear_attention_with_output"
    " unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear"
)
dispatches(*(f"sglang::{name}" for name in _LAYERS), category="other", reason=LAYER)
