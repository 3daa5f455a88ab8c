"""vLLM's operators that are written in Python (``vllm``), without attention and mixtures of experts.

Most wrap others: what those below do not count is counted here. Order of arguments: vLLM 0.11.0 and 0.33.0, the functions given to
``direct_register_custom_op``, in ``vllm/_aiter_ops.py``, ``vllm/model_executor/layers/utils.py``, ``vllm/utils/flashinfer.py`` and
``vllm/model_executor/layers/quantization/utils/``; 0.10's ``w8a8_block_fp8_matmul_deepgemm``. Names of versions between: 0.14.0, 0.19.0
and 0.25.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.costs import DYNAMIC_QUANTIZE, QUANTIZE, RMS_NORM, SIGMOID, SILU, SOFTMAX
from rooflines.roofline.formulas.narrow import to_8_bits, to_fp4, widened
from rooflines.roofline.formulas.registry import LAYER, dispatches, words
from rooflines.roofline.formulas.rotary import rotate_in_place
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import fp4_product, product_row, register_products

_SAME: Final = "the cache has the dtype of the keys"

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = "left, right, read scale_a, read scale_b"
_PRODUCTS: Final[dict[str, str]] = {
    f"{_SCALED}, out_dtype": "rocm_aiter_gemm_a8w8_blockscale rocm_aiter_gemm_a8w8_blockscale_bpreshuffle rocm_aiter_gemm_a8wfp4"
    " rocm_aiter_triton_gemm_a8w8_blockscale rocm_aiter_triton_gemm_a8w8_blockscale_preshuffle mm_mxfp8 bmm_fp8",
    f"{_SCALED}, read bias?, out_dtype": "rocm_aiter_gemm_w8a8 rocm_aiter_w8a8_gemm rocm_aiter_hipb_mm_fp8"
    " rocm_aiter_gemm_a8w8 _rocm_aiter_preshuffled_per_token_w8a8_gemm",
    f"{_SCALED}, block, out_dtype": "w8a8_triton_block_scaled_mm_func w8a8_block_fp8_matmul_deepgemm rocm_aiter_gemm_w8a8_blockscale"
    " padded_cutlass",
    "left, right, out_dtype, read scale_a, read scale_b, read bias?": "rocm_per_tensor_float_w8a8_scaled_mm_impl"
    " rocm_per_tensor_w8a8_scaled_mm_impl",
    f"{_SCALED}, out_dtype, read bias?": "int8_scaled_mm_func",
    "left, read scale_a, right, read scale_b, write out": "fp8_gemm_nt_op",
    f"{_SCALED}, read scale, out_dtype": "flashinfer_mm_fp4",
    "left, right, read scale_b, read scale": "flashinfer_mm_bf16_fp4",
    "left, right, read bias?": "cuda_flashinfer_bf16_gemm gpt_oss_router_gemm min_latency_fused_qkv_a_proj",
    f"{_SCALED}, read alpha, out_dtype=15": "matmul_mxf4_bf16 matmul_nvf4_bf16",
    "left, right, more, out_dtype=6": "bf16x3_router_gemm fp32_router_gemm_dispatch",
    "left, read scale_a, right, read scale_b, out_dtype": "rocm_mxfp8_block32_gemm",
}
register_products({names: schema for schema, names in _PRODUCTS.items()}, wraps=True, namespace="vllm::")


_LAYER: Final = "read input[*m k], read weight[n =k]"
# Older versions have the scales of activations in 4 bits before a flag.
_IN_FP4: Final = (
    replace(fp4_product("read left, read right, read scale, flag, dtype=15, read left_scale?"), fits="flag in (0, 1)"),
    fp4_product("read left, read right, read scale, read left_scale?, flag, dtype=15"),
)
_LAYERS_OF_NUMBERS: Final[dict[str, Row | tuple[Row, ...]]] = {
    "rocm_unquantized_gemm rocm_unquantized_gemm_impl": product_row(f"{_LAYER}, read bias?", "input.item", "bool(bias)"),
    # Activations become fp8 on the way to a weight of fp8.
    "flashinfer_fp8_blockscale_gemm dynamic_flashinfer_deepgemm_blockscale_gemm": product_row(
        f"{_LAYER}, read scale", "input.item", "1", besides="DYNAMIC_QUANTIZE * m * k", precision="weight"
    ),
    "gemm_with_dynamic_quant": _IN_FP4,
}
register(_LAYERS_OF_NUMBERS, "matmul", wraps=True, namespace="vllm::")


# --- norms, routing, conversions, positions ----------------------------------------------------------------------------------------

_PAIR: Final = "read first[*rows width], read first_weight, read second, read second_weight"
_NORMS: Final[dict[str, Row]] = {
    "rocm_aiter_rms_norm": Row("read input, read weight", RMS_NORM, result="input"),
    # returns the norm and the sum
    "rocm_aiter_rmsnorm2d_fwd_with_add": Row("update input, read residual, read weight", RMS_NORM + 1, result="residual"),
    # returns the norm, whose rows may be padded, and the sum
    "rocm_aiter_triton_add_rmsnorm_pad": Row("read input, read weight, eps, read residual", RMS_NORM + 1, result="input residual"),
    "fla_rms_norm_gated": Row("read input, read gate, read weight", RMS_NORM + SILU + 1, result="input"),
    "flashinfer_fused_add_rms_norm_nvfp4_quant": Row(
        "write out, write block_scale, update residual, read input, read weight, read scale", RMS_NORM + 1 + DYNAMIC_QUANTIZE
    ),
    "fused_mla_dual_rms_norm": Row(_PAIR, RMS_NORM, per="first second", result="first second"),
    # The first becomes fp8.
    "fused_mla_dual_rms_norm_group_quant fused_mla_dual_rms_norm_per_token_quant": Row(
        f"{_PAIR}, first_eps, second_eps, group=0",
        RMS_NORM,
        per="first second",
        result="second",
        other="first.n * DYNAMIC_QUANTIZE",
        writes="first.n + 4 * (first.n // (group or width))",
    ),
}
_ROUTING: Final[dict[str, Row]] = {
    "rocm_aiter_topk_softmax": Row("write weights, write ids, write places, read input", SOFTMAX + 1),
    "rocm_aiter_topk_gating": Row("write weights, write ids, write places, read input", SIGMOID + 2),
    "rocm_aiter_topk_sigmoid": Row("write weights, write ids, read input", SIGMOID + 1),
    "rocm_aiter_biased_grouped_topk": Row("read input, read bias, write weights, write ids", SIGMOID + 2),
    "rocm_aiter_grouped_topk": Row("read input, write weights, write ids", SOFTMAX + 1),
}
# Conversions with a scale of a byte for each block of 32 numbers.
_BLOCKS: Final[dict[str, Row]] = {
    "vllm::mxfp8_quantize vllm::flashinfer_mxfp8_quantize_8x4 sglang::flashinfer_mxfp8_quantize": Row(
        "read input", DYNAMIC_QUANTIZE, writes="input.n + input.n // 32"
    ),
    "vllm::flashinfer_mxfp4_quantize sglang::aiter_dynamic_mxfp4_quant sglang::aiter_per_1x32_f4_quant": Row(
        "read input", DYNAMIC_QUANTIZE, writes="input.n // 2 + input.n // 32"
    ),
}
register(_NORMS, "normalisation", wraps=True, namespace="vllm::")
register(_ROUTING, "moe", wraps=True, namespace="vllm::")
register(_BLOCKS, "element-wise", wraps=True)

# Operators that return 8-bit numbers.
_RMS: Final = "read input, read weight, eps"
_RMS_ADDED: Final = "read input, read residual, read weight, eps"
_NARROW_NORMS: Final[dict[str, Row]] = {
    "rocm_aiter_rmsnorm_fp8_group_quant": to_8_bits(f"{_RMS}, group_size", RMS_NORM),
    "rocm_aiter_rmsnorm_with_add_fp8_group_quant": to_8_bits(f"{_RMS_ADDED}, group_size", RMS_NORM + 1),
    "rocm_aiter_rmsnorm_fused_dynamic_quant": to_8_bits(f"{_RMS}, dtype", RMS_NORM),
    "rocm_aiter_rmsnorm_fused_add_dynamic_quant": to_8_bits(f"{_RMS_ADDED}, dtype", RMS_NORM + 1),
    "rocm_aiter_fused_rms_fp8_per_tensor_static_quant": to_8_bits(f"{_RMS}, read scale?, dtype", RMS_NORM),
    "rocm_aiter_fused_add_rms_fp8_per_tensor_static_quant": to_8_bits(f"{_RMS_ADDED}, read scale?, dtype", RMS_NORM + 1),
    "rocm_aiter_fused_rms_gated_fp8_group_quant": to_8_bits(
        "read input, read weight, bias, read gate, eps, before, activation, group_size", RMS_NORM + SILU + 1
    ),
}
_QUANTIZED: Final = to_8_bits("read input, dtype, read scale?")
_NARROW: Final[dict[str, Row | tuple[Row, ...]]] = {
    "rocm_aiter_per_token_quant": _QUANTIZED,
    # Older versions return the result and its scale, computed unless a scale is given.
    "rocm_aiter_per_tensor_quant": (Row("write out, read input, read scale", QUANTIZE), _QUANTIZED),
    "rocm_aiter_group_fp8_quant triton_per_token_group_quant_fp8": to_8_bits("read input, group_size"),
    "rocm_aiter_act_mul_and_fp8_group_quant": to_8_bits("read input, group_size", SILU + 1, "(input.n // 2)"),
    "flashinfer_nvfp4_quantize": to_fp4("read input, read scale, write out?, write block_scale?"),
    "flashinfer_rotary_embedding rocm_aiter_triton_rotary_embedding": rotate_in_place(),
}
_WIDENED: Final = widened("read input, read scale, dtype", "item('dtype', 'bfloat16')", "2 * input.n", "dtype=bfloat16")
register(_NARROW_NORMS, "normalisation", wraps=True, namespace="vllm::")
register(_NARROW, "element-wise", wraps=True, namespace="vllm::")
register({"vllm::dequant_mxfp4 sglang::dequant_mxfp4": _WIDENED}, "element-wise", wraps=True)
# Three positions [3, tokens], each for a part of a row of the table.
_ROTATED: Final = rotate_in_place(
    "read positions[*three tokens], view query, view key, view table, head, rotary",
    rotary="rotary", angles="positions.size + selected(table, tokens * table[-1])",
)  # fmt: skip
register({"vllm::mrope": _ROTATED}, "element-wise")


# --- what is found by the name of a layer ------------------------------------------------------------------------------------------

# The cache is found by the layer's name; the operator below has it as an argument.
_CACHE_UPDATE: Final = Row(
    "read key[tokens *rest], read value",
    reads="key.n * key.item + first(value, tokens) * value.item",
    writes="key.n * key.item + first(value, tokens) * value.item",
    assumption=_SAME,
)
# Queries and keys [tokens, heads, head] rotate in place first.
_TURNED: Final = rotate_in_place("view query, view key[*heads head], view value, read positions, view table")
_ROTATED_UPDATE: Final = replace(
    _TURNED, also="value.size", writes=f"{_TURNED.writes} + key.n * key.item + value.n * value.item", assumption=_SAME
)
register({"vllm::fused_rope_and_unified_kv_cache_update": _ROTATED_UPDATE}, "copy", wraps=True)
register({"vllm::unified_kv_cache_update vllm::unified_mla_kv_cache_update": _CACHE_UPDATE}, "copy", wraps=True)
# Layers, and choices between operators.
_LAYERS: Final = words(
    "mamba_mixer mamba_mixer2 plamo2_mamba_mixer linear_attention short_conv gdn_attention gdn_attention_core qwen_gdn_attention_core"
    " apply_w8a8_block_fp8_linear _fused_mul_mat_gguf _fused_moe_gguf _apply_gguf_embedding apply_bnb_4bit kda_attention"
    " bailing_v3_kda_attention qwen_gdn_attention_core_fused_norm_packed olmo_hybrid_gdn_full_forward maybe_calc_kv_scales"
    " sequence_parallel_chunk_impl sparse_attn_indexer rocm_aiter_sparse_attn_indexer lora_linear_async"
    " fused_qk_norm_rope_and_unified_kv_cache_update fused_qk_norm_mrope_and_unified_kv_cache_update"
    " fused_rope_unified_mla_kv_cache_update"
)
dispatches(*(f"vllm::{name}" for name in _LAYERS), category="other", reason=LAYER)
