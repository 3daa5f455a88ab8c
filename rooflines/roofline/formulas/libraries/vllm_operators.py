"""vLLM's operators that are written in Python (``vllm``), without attention and mixtures of experts.

Most wrap others: what those below do not count is counted here. Order of arguments: vLLM 0.11.0 and 0.33.0, the functions given to
``direct_register_custom_op``, in ``vllm/_aiter_ops.py``, ``vllm/model_executor/layers/utils.py``, ``vllm/utils/flashinfer.py`` and
``vllm/model_executor/layers/quantization/utils/``; 0.10's ``w8a8_block_fp8_matmul_deepgemm``. Names of versions between: 0.14.0, 0.19.0
and 0.25.0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DYNAMIC_QUANTIZE, QUANTIZE, RMS_NORM, SIGMOID, SILU, SOFTMAX
from rooflines.roofline.formulas.libraries.aiter_products import to_fp4 as products_in_fp4
from rooflines.roofline.formulas.matmul import linear_work
from rooflines.roofline.formulas.narrow import to_8_bits, to_fp4, widened
from rooflines.roofline.formulas.passes import Pass, pass_work, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import LAYER, dispatches, formula, words
from rooflines.roofline.formulas.rotary import rotary_work, rotate_in_place
from rooflines.roofline.formulas.scaled import register as register_products

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


@formula("vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", category="matmul", wraps=True)
def _linear(signature: Signature) -> Work:
    args = Arguments(signature, "input weight bias=None")
    return linear_work(args.tensor("input"), args.tensor("weight"), args.optional("bias"))


def narrowed_product(signature: Signature, schema: str = "input weight scale") -> Work:
    """Activations [m, k] become fp8 on the way to a weight [n, k] of fp8; the result has their dtype, or the one that is given."""
    args = Arguments(signature, schema)
    inputs, weight = args.tensor("input"), args.tensor("weight")
    work = linear_work(inputs, weight, None, fused=1)
    dtype = args.dtype("dtype", "bfloat16") if args.has("dtype") else inputs.dtype
    return replace(
        work,
        other_flops=inputs.numel * DYNAMIC_QUANTIZE + work.other_flops,
        bytes_read=work.bytes_read + size(args.tensor("scale")),
        bytes_written=work.other_flops * size_of(dtype),  # one FLOP a result
        precision=matrix_precision_of(weight.dtype),
    )


formula("vllm::flashinfer_fp8_blockscale_gemm", "vllm::dynamic_flashinfer_deepgemm_blockscale_gemm", category="matmul", wraps=True)(
    narrowed_product
)


@formula("vllm::gemm_with_dynamic_quant", category="matmul", wraps=True)
def _fp4_product(signature: Signature) -> Work:
    """Before 2026 the scales of activations in 4 bits came before a flag."""
    older = not isinstance(signature.arg(3, False), bool)
    return products_in_fp4(signature, f"left right scale {'left_scale flag dtype=15' if older else 'flag dtype=15 left_scale=None'}")


# --- norms, routing, conversions, positions ----------------------------------------------------------------------------------------

_PAIR: Final = "read first[*rows width], read first_weight, read second, read second_weight"
_NORMS: Final[dict[str, Pass]] = {
    "rocm_aiter_rms_norm": Pass("read input, read weight", RMS_NORM, result="input"),
    # returns the norm and the sum
    "rocm_aiter_rmsnorm2d_fwd_with_add": Pass("update input, read residual, read weight", RMS_NORM + 1, result="residual"),
    # returns the norm, whose rows may be padded, and the sum
    "rocm_aiter_triton_add_rmsnorm_pad": Pass("read input, read weight, eps, read residual", RMS_NORM + 1, result="input residual"),
    "fla_rms_norm_gated": Pass("read input, read gate, read weight", RMS_NORM + SILU + 1, result="input"),
    "flashinfer_fused_add_rms_norm_nvfp4_quant": Pass(
        "write out, write block_scale, update residual, read input, read weight, read scale", RMS_NORM + 1 + DYNAMIC_QUANTIZE
    ),
    "fused_mla_dual_rms_norm": Pass(_PAIR, RMS_NORM, per="first second", result="first second"),
    # The first becomes fp8.
    "fused_mla_dual_rms_norm_group_quant fused_mla_dual_rms_norm_per_token_quant": Pass(
        f"{_PAIR}, first_eps, second_eps, group=0",
        RMS_NORM,
        per="first second",
        result="second",
        other="first.n * DYNAMIC_QUANTIZE",
        writes="first.n + 4 * (first.n // (group or width))",
    ),
}
_ROUTING: Final[dict[str, Pass]] = {
    "rocm_aiter_topk_softmax": Pass("write weights, write ids, write places, read input", SOFTMAX + 1),
    "rocm_aiter_topk_gating": Pass("write weights, write ids, write places, read input", SIGMOID + 2),
    "rocm_aiter_topk_sigmoid": Pass("write weights, write ids, read input", SIGMOID + 1),
    "rocm_aiter_biased_grouped_topk": Pass("read input, read bias, write weights, write ids", SIGMOID + 2),
    "rocm_aiter_grouped_topk": Pass("read input, write weights, write ids", SOFTMAX + 1),
}
# Conversions with a scale of a byte for each block of 32 numbers.
_BLOCKS: Final[dict[str, Pass]] = {
    "vllm::mxfp8_quantize vllm::flashinfer_mxfp8_quantize_8x4 sglang::flashinfer_mxfp8_quantize": Pass(
        "read input", DYNAMIC_QUANTIZE, writes="input.n + input.n // 32"
    ),
    "vllm::flashinfer_mxfp4_quantize sglang::aiter_dynamic_mxfp4_quant sglang::aiter_per_1x32_f4_quant": Pass(
        "read input", DYNAMIC_QUANTIZE, writes="input.n // 2 + input.n // 32"
    ),
}
register(_NORMS, "normalisation", wraps=True, namespace="vllm::")
register(_ROUTING, "moe", wraps=True, namespace="vllm::")
register(_BLOCKS, "element-wise", wraps=True)

# Operators that return 8-bit numbers: their arguments, and FLOPs of what comes before the conversion.
_TO_8_BITS: Final[dict[str, tuple[str, int]]] = {
    "rocm_aiter_per_token_quant": ("input dtype scale=None", 0),
    "rocm_aiter_group_fp8_quant": ("input group_size", 0),
    "rocm_aiter_rmsnorm_fp8_group_quant": ("input weight eps group_size", RMS_NORM),
    "rocm_aiter_rmsnorm_with_add_fp8_group_quant": ("input residual weight eps group_size", RMS_NORM + 1),
    "rocm_aiter_rmsnorm_fused_dynamic_quant": ("input weight eps dtype", RMS_NORM),
    "rocm_aiter_rmsnorm_fused_add_dynamic_quant": ("input residual weight eps dtype", RMS_NORM + 1),
    "rocm_aiter_fused_rms_fp8_per_tensor_static_quant": ("input weight eps scale dtype", RMS_NORM),
    "rocm_aiter_fused_add_rms_fp8_per_tensor_static_quant": ("input residual weight eps scale dtype", RMS_NORM + 1),
    "rocm_aiter_act_mul_and_fp8_group_quant": ("input group_size", SILU + 1),
    "rocm_aiter_fused_rms_gated_fp8_group_quant": (
        "input weight bias gate eps before activation group_size",
        RMS_NORM + SILU + 1,
    ),
    "triton_per_token_group_quant_fp8": ("input group_size", 0),
}


for _name, (_schema, _cost) in _TO_8_BITS.items():
    formula(f"vllm::{_name}", category="normalisation" if "rms" in _name else "element-wise", wraps=True)(
        partial(to_8_bits, schema=_schema, cost=_cost)
    )


@formula("vllm::rocm_aiter_per_tensor_quant", category="element-wise", wraps=True)
def _to_8_bits_by_tensor(signature: Signature) -> Work:
    """Given the result and its scale; older versions return them, computed unless a scale is given."""
    if isinstance(signature.arg(1), TensorArg):
        return pass_work(signature, Pass("write out, read input, read scale", QUANTIZE))
    return to_8_bits(signature, "input dtype scale=None")


@formula("vllm::dequant_mxfp4", "sglang::dequant_mxfp4", category="element-wise", wraps=True)
def _from_fp4(signature: Signature) -> Work:
    """Two numbers a byte."""
    args = Arguments(signature, "input scale dtype")
    inputs, dtype = args.tensor("input"), args.dtype("dtype", "bfloat16")
    return widened(inputs, args.tensor("scale"), dtype=dtype, numbers=2 * inputs.numel)


formula("vllm::flashinfer_nvfp4_quantize", category="element-wise", wraps=True)(
    partial(to_fp4, schema="input scale out=None block_scale=None")
)
formula("vllm::flashinfer_rotary_embedding", "vllm::rocm_aiter_triton_rotary_embedding", category="element-wise", wraps=True)(
    rotate_in_place
)


@formula("vllm::mrope", category="element-wise")
def _rotary_of_images(signature: Signature) -> Work:
    """Three positions [3, tokens], each for a part of a row of the table."""
    args = Arguments(signature, "positions query key table head_size rotary")
    positions, rotated = args.tensor("positions"), (args.tensor("query"), args.tensor("key"))
    tokens = TensorArg(positions.shape[-1:], positions.dtype)
    work = rotary_work(tokens, rotated, args.tensor("table"), args.integer("head_size"), args.integer("rotary"))
    return work + Work(bytes_read=size(positions) - size(tokens))


@formula("vllm::fused_rope_and_unified_kv_cache_update", category="copy", wraps=True)
def _rotated_update(signature: Signature) -> Work:
    """Queries and keys [tokens, heads, head] rotate in place; keys and values go into the cache, which is found by the layer's name."""
    args = Arguments(signature, "query key value positions table is_neox layer")
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    rotated = rotary_work(args.tensor("positions"), (query, key), args.tensor("table"), key.shape[-1])
    return rotated + Work(bytes_read=size(value), bytes_written=written(key, value), assumption=_SAME)


# --- what is found by the name of a layer ------------------------------------------------------------------------------------------

# The cache is found by the layer's name; the operator below has it as an argument.
_CACHE_UPDATE: Final = Pass(
    "read key[tokens *rest], read value",
    reads="key.n * key.item + first(value, tokens) * value.item",
    writes="key.n * key.item + first(value, tokens) * value.item",
    assumption=_SAME,
)
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
