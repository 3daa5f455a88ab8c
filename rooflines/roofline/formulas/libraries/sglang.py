"""SGLang's operators without attention: ``sgl_kernel`` (compiled), and ``sglang``, registered in Python: kernels that are compiled on
first use, and functions around libraries, which count where nothing below them is counted.

Order of arguments: SGLang, ``sgl-kernel/csrc/common_extension.cc`` (commit 0063ef1), ``common_extension_rocm.cc`` (commit 0098674),
compared with the schemas in sgl-kernel 0.3.21 and sglang-kernel 0.4.10, and ``sglang/jit_kernel/kvcache.py``; SGLang 0.5.8, 0.5.12,
0.5.17 and 0.5.23, the functions given to ``register_custom_op`` and ``direct_register_custom_op`` below ``sglang/kernels/ops`` (before
0.5.17 ``sglang/jit_kernel``), ``srt/layers``, ``srt/models`` and ``srt/utils``.

What SGLang's profiler names ``sglang_profiler::...`` are functions in Python, which only call others.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE, GELU, RMS_NORM, SIGMOID, SILU, SOFTMAX
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.libraries.aiter_kernels import LAYER_NORM
from rooflines.roofline.formulas.libraries.aiter_products import to_fp4 as product_in_fp4
from rooflines.roofline.formulas.libraries.vllm_experts import grouped_work
from rooflines.roofline.formulas.libraries.vllm_kernels import GATED
from rooflines.roofline.formulas.narrow import to_blocks, to_fp4
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import LAYER, dispatches, formula, words
from rooflines.roofline.formulas.rotary import normalise_and_rotate, rotary_work, rotate_in_place
from rooflines.roofline.formulas.scaled import product_pass
from rooflines.roofline.formulas.scaled import register as register_products

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = "left, right, read scale_a, read scale_b"
_OUT_FIRST: Final = "write out, left, right"
_OUT_LAST: Final = "left, read scale_a, right, read scale_b, write out"
_BETWEEN: Final = "left, right, write out, read scale_a, read scale_b"
COMPILED: Final[dict[str, str]] = {
    "int8_scaled_mm fp8_scaled_mm": f"{_SCALED}, out_dtype, read bias?",
    "fp8_blockwise_scaled_mm": f"{_SCALED}, out_dtype",
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
    "w8a8_block_fp8_matmul_deepgemm w8a8_block_fp8_matmul_triton": f"{_SCALED}, block, out_dtype",
    "deep_gemm_fp8_fp8_bf16_nt deep_gemm_mxfp8_fp8_bf16_nt": _OUT_LAST,
    "bf16_gemm_dispatch": "left, right, read bias?",
    "flashinfer_dsv3_router_gemm": _OUT_FIRST,
    "flashinfer_bmm_fp8 flashinfer_gemm_fp8_nt_groupwise flashinfer_mm_mxfp8": f"{_SCALED}, out_dtype",
    "flashinfer_bmm_fp8_batched _bmm_fp8_op": _BETWEEN,
    "fp4_gemm": "left, right, read scale_a?, read scale_b, read alpha, out_dtype",
    "aiter_gemm_a4w4": f"{_SCALED}, like, out_dtype=15",
    "aiter_gemm_afp4wfp4": f"{_SCALED}, write out",
}
register_products(COMPILED, namespace="sgl_kernel::")
register_products(KERNELS, namespace="sglang::")
register_products(WRAPPERS, wraps=True, namespace="sglang::")
formula("sglang::aiter_gemm_afp4wfp4_pre_quant", "sglang::mxfp4_diffusion_quant_gemm", category="matmul", wraps=True)(
    partial(product_in_fp4, schema="left right scale out=None dtype=None")
)


# Repacked weights: the width of the result is an argument.
_REPACKED: Final = "read input[*m =k], read weight, read scale?"
_GPTQ: Final = f"{_REPACKED}, read zeros?, read g_idx?, order, workspace"
_WIDEN: Final = "DEQUANTIZE * k * n"
_BIASED: Final = partial(product_pass, item="input.item", each="bool(bias)", besides=_WIDEN)
_MARLIN: Final[dict[str, Pass]] = {
    "apply_fp8_marlin_linear": _BIASED(f"{_REPACKED}, workspace, n, k, read bias?"),
    "apply_fp4_marlin_linear": _BIASED(f"{_REPACKED}, read global_scale?, workspace, n, k, read bias?"),
    "unified_apply_gptq_marlin_gemm": product_pass(f"{_GPTQ}, n, k", "input.item", besides=_WIDEN),
    "unified_apply_gptq_marlin_gemm_with_wtype": product_pass(f"{_GPTQ}, type, n, k", "input.item", besides=_WIDEN),
}
# [m, k] with [2 n, k], then SiLU of the first half times the second: [m, n]
_GATED_PRODUCT: Final = Pass(
    "read input[*m k], read weight[n =k]", matrix="2 * m * n * k", other="m * n // 2 * (SILU + 1)", writes="m * n // 2 * input.item"
)
register(_MARLIN, "matmul", wraps=True, namespace="sglang::")
register({"sglang::cutedsl_dual_gemm_swiglu": _GATED_PRODUCT}, "matmul")


def _grouped(signature: Signature, schema: str) -> Work:
    """Rows sorted by expert, weight [experts, k, n]."""
    args = Arguments(signature, schema)
    return grouped_work(args.tensor("out"), args.tensor("a"), args.tensor("b"), [args.tensor("scales_a"), args.tensor("scales_b")])


formula("sgl_kernel::fp8_blockwise_scaled_grouped_mm", category="moe")(  # pointers to each expert's operands come before them
    partial(_grouped, schema="out a_ptrs b_ptrs out_ptrs a_scales_ptrs b_scales_ptrs a b scales_a scales_b")
)
formula("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm", category="moe")(partial(_grouped, schema="a b scales_a scales_b out"))

# --- norms, activations, conversions -----------------------------------------------------------------------------------------------

_INTO: Final = "write out, read input"
_NARROW: Final = "read input, write out, write scale"
NORMS: Final[dict[str, Pass]] = {
    "sgl_kernel::rmsnorm sgl_kernel::gemma_rmsnorm": Pass(f"{_INTO}, read weight, eps", RMS_NORM),
    "sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm": Pass(
        "update input, update residual, read weight, eps", RMS_NORM + 1
    ),
    "sglang::layernorm": Pass("read input, read weight, read bias, eps", LAYER_NORM, result="input"),
    "sglang::triton_one_pass_rms_norm_cuda": Pass("read input, read weight, eps", RMS_NORM, result="input"),
    "sglang::triton_group_norm_silu_cuda": Pass("read input, read weight, read bias", LAYER_NORM + SILU, result="input"),
}
COMPILED_ELEMENT_WISE: Final[dict[str, Pass]] = {
    **{name: Pass(_INTO, GATED[name], per="out") for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")},
    "gelu_quick": Pass(_INTO, SIGMOID + 2, per="out"),
    "sgl_per_token_group_quant_fp8 sgl_per_token_group_quant_int8 sgl_per_token_group_quant_8bit sgl_per_token_quant_fp8": Pass(
        _NARROW, DYNAMIC_QUANTIZE
    ),
}
ELEMENT_WISE: Final[dict[str, Pass]] = {
    "_run_activation_inplace _run_activation_filtered_inplace _run_activation_with_rounding_inplace": Pass(
        "name, read input, write out, read experts?",  # the name of the activation is not in a trace
        SILU + 1,
        per="out",
        assumption="the activation is SiLU",
    ),
    "_bias_gelu_tanh": Pass("read input, read bias, write out", GELU + 1),
    "diffusion_modulate_scale_shift": Pass("read input, read scale, read shift", 3, result="input"),  # x * (1 + scale) + shift
    "diffusion_residual_gate_add diffusion_residual_gate_fp32": Pass("read input, read update, read gate", 2, result="input"),
    "triton_fused_silu_mul_bitexact": Pass("read input, read factor", SILU + 1, result="input"),
    "per_token_quant_fp8 fp8_wo_a_group_major_quant_ue8m0 per_token_group_quant_8bit": Pass(_NARROW, DYNAMIC_QUANTIZE),
    "per_tensor_absmax_fp8": Pass("read input, write scale", 2),
    "scaled_fp4_quant": Pass("read input, write out, write block_scale, read scale", DYNAMIC_QUANTIZE),
}
CONVERSIONS: Final[dict[str, Pass]] = {
    # With a flag, an activation of [gate, factor] comes first, and the result is half as wide.
    "sgl_kernel::sgl_per_token_group_quant_8bit_v2 sglang::per_token_group_quant_8bit_v2 sglang::per_token_group_quant": Pass(
        _NARROW, other="out.n * (QUANTIZE + 2 + (SILU + 1) * (input[-1] == 2 * out[-1]))"
    ),
    # The scale is given, or computed.
    "sgl_kernel::sgl_per_tensor_quant_fp8 sglang::per_tensor_quant_fp8": Pass(
        "read input, write out, read scale, is_static=False",
        other="input.n * (QUANTIZE if is_static else QUANTIZE + 2)",
        reads="input.size + (scale.size if is_static else 0)",
        writes="0 if is_static else scale.n * scale.item",
    ),
}
_BACK: Final = Pass("read input", DYNAMIC_QUANTIZE + DEQUANTIZE, result="input")
register(NORMS, "normalisation")
register(COMPILED_ELEMENT_WISE, "element-wise", namespace="sgl_kernel::")
register(ELEMENT_WISE, "element-wise", namespace="sglang::")
register(CONVERSIONS, "element-wise")
register({"sglang::quant_dequant_mxfp4 vllm::quant_dequant_mxfp4": _BACK}, "element-wise", wraps=True)
formula("sgl_kernel::scaled_fp4_quant", category="element-wise")(partial(to_fp4, schema="out input block_scale scale"))
formula("sglang::flashinfer_fp4_quantize", "flashinfer::fp4_quantize", "trtllm::fp4_quantize", category="element-wise", wraps=True)(
    partial(to_blocks, bits=4, group=16, schema="input scale=None block=16")
)

# --- routing of experts ------------------------------------------------------------------------------------------------------------

COMPILED_ROUTING: Final[dict[str, Pass]] = {
    "topk_softmax": Pass("write weights, write ids, read input, renormalize, softcapping, read bias?", SOFTMAX + 1),
    "topk_sigmoid": Pass("write weights, write ids, read input, renormalize, read bias?", SIGMOID + 1),
    # one group: a sigmoid and a bias for each score; weights and ids are returned
    "kimi_k2_moe_fused_gate": Pass("read input, read bias, kept", SIGMOID + 2, writes="8 * input[0] * kept"),
    "moe_align_block_size": Pass("read input, experts, block, write sorted_ids, write expert_ids, write count"),
    "moe_sum": Pass("read input, write out", 1),
    "moe_sum_reduce": Pass("read input, write out, factor", 1),
    "apply_shuffle_mul_sum": Pass("read input, write out, read map, read factors?", 2),
    "es_sm100_mxfp8_blockscaled_grouped_quant": Pass(
        "read input, read sizes, read offsets, read scale_offsets, write out, write scale", DYNAMIC_QUANTIZE
    ),
    "prepare_moe_input": Pass("read input, write offsets, write block_offsets?, write sizes1, write sizes2, write order, write back"),
}
ROUTING: Final[dict[str, Pass]] = {
    "moe_topk_softmax_out": Pass("write weights, write ids, read input, workspace, renormalize, softcapping, read bias?", SOFTMAX + 1),
    "moe_topk_sigmoid_out": Pass("read input, write weights, write ids, workspace, renormalize, read bias?", SIGMOID + 1),
    "_jit_grouped_topk_op": Pass("read input, read bias, write weights, write ids", SIGMOID + 2),
    "cutlass_prepare_moe_input": Pass("read input, write offsets, write sizes1, write sizes2, write order, write back"),
    "shuffle_weighted_sum": Pass("read input, write out, read map, read factors", 2),
}
_DEEPSEEK: Final = Pass("read input, read bias, groups, groups_kept, kept, factor, write weights, write ids", SIGMOID + 2)
register(COMPILED_ROUTING, "moe", namespace="sgl_kernel::")
register(ROUTING, "moe", namespace="sglang::")
register({"sglang::fused_topk_deepseek": _DEEPSEEK}, "moe", wraps=True)

# --- norms and positions of queries and keys ---------------------------------------------------------------------------------------


@formula("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", category="element-wise")
def _rotary(signature: Signature) -> Work:
    """Query and key [tokens, heads, head_dim], read whole and written to ``q_rope`` and ``k_rope``, which may be the same memory.

    Values, buffers of keys and values, and slots come last, if the new ones go into the KV cache too; numbers before them differ.
    """
    args = Arguments(signature, "q k q_rope k_rope table positions")
    q, k, positions, table = args.tensor("q"), args.tensor("k"), args.tensor("positions"), args.tensor("table")
    rotated = rotary_work(positions, (q, k), table, q.shape[-1])
    later = signature.tensors[6:]
    v, *caches, slots = later if len(later) == 4 else (None, None)
    cached = v.numel if v is not None else 0
    return Work(
        other_flops=rotated.other_flops,
        bytes_read=rotated.bytes_read - rotated.bytes_written + size(q, k, v, slots),
        bytes_written=written(args.tensor("q_rope"), args.tensor("k_rope")) + cached * sum(size_of(cache.dtype) for cache in caches),
        precision=rotated.precision,
    )


_PAIR: Final = "q k q_weight k_weight"
# Operators on queries and keys [tokens, heads, head]: their arguments.
_HEADS: Final[dict[str, str]] = {
    "fused_inplace_qknorm": _PAIR,
    "fused_inplace_qknorm_rope": f"{_PAIR} table positions",
    "fused_qknorm_rope_out_of_place": "q k q_out k_out q_weight k_weight table positions",
    "apply_rope_inplace": "q k table positions",
    "apply_rope_inplace_with_kvcache": "q k v k_cache v_cache table positions slots",
}


def _heads(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    q, k = args.tensor("q"), args.tensor("k")
    numbers = (q.numel + k.numel) * args.has("q_weight")
    work = Work(other_flops=numbers * RMS_NORM, precision=precision_of(q.dtype))
    if args.has("q_weight"):
        work += Work(bytes_read=size(args.tensor("q_weight"), args.tensor("k_weight")))
    moved = Work(bytes_read=size(q, k), bytes_written=written(q, k))
    if args.has("positions"):
        rotated = rotary_work(args.tensor("positions"), (q, k), args.tensor("table"), q.shape[-1])
        work += Work(other_flops=rotated.other_flops, bytes_read=rotated.bytes_read - rotated.bytes_written)
        moved = moved if numbers else Work(bytes_read=rotated.bytes_written, bytes_written=rotated.bytes_written)
    if args.has("slots"):
        slots, v = args.tensor("slots"), args.tensor("v")
        cached = stored(slots.numel, (k, v), (args.tensor("k_cache"), args.tensor("v_cache")), slots)
        keys = k.numel // max(k.shape[0], 1) * slots.numel * size_of(k.dtype)  # which are read to be rotated
        work += Work(0, cached.other_flops, cached.bytes_read - keys, cached.bytes_written)
    return work + moved


for _name, _schema in _HEADS.items():
    formula(f"sglang::{_name}", category="normalisation" if "norm" in _name else "element-wise")(partial(_heads, schema=_schema))
formula("sglang::rotary_embedding_without_key", category="element-wise")(
    partial(rotate_in_place, schema="positions query head_size table")
)
formula("sglang::fused_qk_norm_rope_out", category="normalisation")(
    partial(normalise_and_rotate, schema="qkv q_weight k_weight positions heads_q heads_k heads_v head")
)
formula("sgl_kernel::fused_qk_norm_rope", "trtllm::fused_qk_norm_rope", category="normalisation")(
    partial(normalise_and_rotate, schema="qkv heads_q heads_k heads_v head eps q_weight k_weight base is_neox positions")
)

# --- copies, the KV cache ----------------------------------------------------------------------------------------------------------


def _transfer(caches: int, numbers: str, layers: str = "1") -> Pass:
    """A copy between the caches of a device and its host, which come before the lists of slots; ``numbers`` are what follows up to the
    bytes of a slot and the number of layers."""
    names = ", ".join(f"cache{place}" for place in range(caches))
    moved = f"source.n * slot * {caches // 2} * {layers}"
    return Pass(f"{names}, read source, read target, {numbers}", reads=f"{moved} + source.size + target.size", writes=moved)


COPIES: Final[dict[str, Pass]] = {
    "copy_to_gpu_no_ce": Pass("read input, write out"),
    "concat_mla_k": Pass("write out, read input, read rope"),
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
formula("sglang::store_cache", category="copy")(partial(store, schema="key value key_cache value_cache slots"))
formula("sgl_kernel::store_kv_cache", category="copy")(partial(store, schema="key_cache value_cache slots key value"))

# --- layers ------------------------------------------------------------------------------------------------------------------------

# Layers, which are found by their number, and choices between operators.
_LAYERS: Final = words(
    "apply_bnb_4bit broadcast_indexer_topk_from_rank0_ deepseek_v4_attention_with_output flash_attn_varlen_func_op"
    " flash_attn_varlen_func_op_lse gdn_with_output mla_bmm_then_unified_attention nemotron_mamba2_with_output"
    " pcg_dsa_indexer_prefill_split unified_attention_with_output_and_lse unified_linear_attention_with_output"
    " unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear"
)
dispatches(*(f"sglang::{name}" for name in _LAYERS), category="other", reason=LAYER)
