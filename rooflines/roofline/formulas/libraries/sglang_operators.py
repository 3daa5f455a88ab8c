"""SGLang's operators that it registers in Python (``sglang``): kernels that are compiled on first use, and functions around libraries.

Order of arguments: SGLang 0.5.8, 0.5.12, 0.5.17 and 0.5.23, the functions given to ``register_custom_op`` and
``direct_register_custom_op`` below ``sglang/kernels/ops`` (before 0.5.17 ``sglang/jit_kernel``), ``srt/layers``, ``srt/models`` and
``srt/utils``. Functions around libraries count where nothing below them is counted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import stored
from rooflines.roofline.formulas.libraries.aiter_kernels import LAYER_NORM
from rooflines.roofline.formulas.libraries.aiter_products import to_fp4
from rooflines.roofline.formulas.matmul import layer_work
from rooflines.roofline.formulas.narrow import to_blocks
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.rotary import normalise_and_rotate, rotary_work, rotate_in_place
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import LAYER, dispatches, formula, words

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = "left, right, read scale_a, read scale_b"
KERNELS: Final[dict[str, str]] = {
    "fp8_blockwise_scaled_mm": "write out, left, right, read scale_a, read scale_b",
    **dict.fromkeys(words("tiny_gemm_bf16 n128k512_gemm_bf16 n32k5120_gemm_bf16 dsv3_router_gemm"), "left, right, write out"),
    "cutedsl_tgv_bf16_gemm": "left, right, read bias?",
    "cutedsl_tgv_bf16_gemm_out": "left, right, write out, read bias?",
    **dict.fromkeys(words("jit_dsv3_fused_a_gemm cutedsl_dsv3_fused_a_gemm"), "left, right"),
    "triton_mxfp8_block_scaled_matmul": "left, read scale_a, right, read scale_b, out_dtype",
}
WRAPPERS: Final[dict[str, str]] = {
    "bf16_gemm_dispatch": "left, right, read bias?",
    "flashinfer_dsv3_router_gemm": "write out, left, right",
    **dict.fromkeys(words("flashinfer_bmm_fp8 flashinfer_gemm_fp8_nt_groupwise flashinfer_mm_mxfp8"), f"{_SCALED}, out_dtype"),
    **dict.fromkeys(words("flashinfer_bmm_fp8_batched _bmm_fp8_op"), "left, right, write out, read scale_a, read scale_b"),
    "deep_gemm_mxfp8_fp8_bf16_nt": "left, read scale_a, right, read scale_b, write out",
    "fp4_gemm": "left, right, read scale_a?, read scale_b, read alpha, out_dtype",
    "aiter_gemm_a4w4": f"{_SCALED}, like, out_dtype=15",
    "aiter_gemm_afp4wfp4": f"{_SCALED}, write out",
}
register_products({f"sglang::{name}": schema for name, schema in KERNELS.items()})
register_products({f"sglang::{name}": schema for name, schema in WRAPPERS.items()}, wraps=True)


formula("sglang::aiter_gemm_afp4wfp4_pre_quant", "sglang::mxfp4_diffusion_quant_gemm", category="matmul", wraps=True)(
    partial(to_fp4, schema="left right scale out=None dtype=None")
)


# Repacked weights: the width of the result is an argument.
_MARLIN: Final[dict[str, str]] = {
    "apply_fp8_marlin_linear": "input weight scale workspace n k bias=None",
    "apply_fp4_marlin_linear": "input weight scale global_scale workspace n k bias=None",
    "unified_apply_gptq_marlin_gemm": "input weight scale zeros g_idx order workspace n k",
    "unified_apply_gptq_marlin_gemm_with_wtype": "input weight scale zeros g_idx order workspace type n k",
}


@formula(*(f"sglang::{name}" for name in _MARLIN), category="matmul", wraps=True)
def _marlin(signature: Signature) -> Work:
    args = Arguments(signature, _MARLIN[signature.name.removeprefix("sglang::")])
    inputs, n, bias = args.tensor("input"), args.integer("n"), args.optional("bias")
    if inputs.shape[-1] != args.integer("k"):
        raise NotCounted(f"inner dimensions {inputs.shape[-1]} and {args.integer('k')} differ")
    others = (args.tensor("weight"), *(args.optional(name) for name in ("scale", "global_scale", "zeros", "g_idx")), bias)
    return layer_work(inputs, n, *others, each=int(bias is not None), unpack=costs.DEQUANTIZE)


@formula("sglang::cutedsl_dual_gemm_swiglu", category="matmul")
def _gated_product(signature: Signature) -> Work:
    """[m, k] with [2 n, k], then SiLU of the first half times the second: [m, n]."""
    args = Arguments(signature, "input weight")
    inputs, weight = args.tensor("input"), args.tensor("weight")
    results = inputs.numel // inputs.shape[-1] * weight.shape[0] // 2
    if weight.shape[-1] != inputs.shape[-1]:
        raise NotCounted(f"inner dimensions {inputs.shape[-1]} and {weight.shape[-1]} differ")
    return Work(
        matrix_flops=4 * results * inputs.shape[-1],
        other_flops=results * (costs.SILU + 1),
        bytes_read=size(inputs, weight),
        bytes_written=results * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


# --- norms, activations, conversions, routing --------------------------------------------------------------------------------------

NORMS: Final[dict[str, Pass]] = {
    "layernorm": Pass("read input, read weight, read bias, eps", LAYER_NORM, result="input"),
    "triton_one_pass_rms_norm_cuda": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "triton_group_norm_silu_cuda": Pass("read input, read weight, read bias", LAYER_NORM + costs.SILU, result="input"),
}
ELEMENT_WISE: Final[dict[str, Pass]] = {
    **dict.fromkeys(  # the name of the activation is not in a trace
        words("_run_activation_inplace _run_activation_filtered_inplace _run_activation_with_rounding_inplace"),
        Pass("name, read input, write out, read experts?", costs.SILU + 1, per="out", assumption="the activation is SiLU"),
    ),
    "_bias_gelu_tanh": Pass("read input, read bias, write out", costs.GELU + 1),
    "diffusion_modulate_scale_shift": Pass("read input, read scale, read shift", 3, result="input"),  # x * (1 + scale) + shift
    "diffusion_residual_gate_add": Pass("read input, read update, read gate", 2, result="input"),
    "diffusion_residual_gate_fp32": Pass("read input, read update, read gate", 2, result="input"),
    "triton_fused_silu_mul_bitexact": Pass("read input, read factor", costs.SILU + 1, result="input"),
    **dict.fromkeys(words("per_token_quant_fp8 fp8_wo_a_group_major_quant_ue8m0 per_token_group_quant_8bit"),
                    Pass("read input, write out, write scale", DYNAMIC_QUANTIZE)),
    "per_tensor_absmax_fp8": Pass("read input, write scale", 2),
    "scaled_fp4_quant": Pass("read input, write out, write block_scale, read scale", DYNAMIC_QUANTIZE),
}  # fmt: skip
ROUTING: Final[dict[str, Pass]] = {
    "moe_topk_softmax_out": Pass(
        "write weights, write ids, read input, workspace, renormalize, softcapping, read bias?", costs.SOFTMAX + 1
    ),
    "moe_topk_sigmoid_out": Pass("read input, write weights, write ids, workspace, renormalize, read bias?", costs.SIGMOID + 1),
    "_jit_grouped_topk_op": Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2),
    "cutlass_prepare_moe_input": Pass("read input, write offsets, write sizes1, write sizes2, write order, write back", 0),
    "shuffle_weighted_sum": Pass("read input, write out, read map, read factors", 2),
}
register({f"sglang::{name}": one for name, one in NORMS.items()}, "normalisation")
register({f"sglang::{name}": one for name, one in ELEMENT_WISE.items()}, "element-wise")
register({f"sglang::{name}": one for name, one in ROUTING.items()}, "moe")
register(
    {"sglang::fused_topk_deepseek": Pass(
        "read input, read bias, groups, groups_kept, kept, factor, write weights, write ids", costs.SIGMOID + 2
    )}, "moe", wraps=True,
)  # fmt: skip
register(
    {f"{library}::quant_dequant_mxfp4": Pass("read input", DYNAMIC_QUANTIZE + costs.DEQUANTIZE, result="input")
     for library in ("sglang", "vllm")}, "element-wise", wraps=True,
)  # fmt: skip


formula("sglang::flashinfer_fp4_quantize", "flashinfer::fp4_quantize", "trtllm::fp4_quantize", category="element-wise", wraps=True)(
    partial(to_blocks, bits=4, group=16, schema="input scale=None block=16")
)


# --- norms and positions of queries and keys ---------------------------------------------------------------------------------------

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
    work = Work(other_flops=numbers * costs.RMS_NORM, precision=precision_of(q.dtype))
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


# --- layers ------------------------------------------------------------------------------------------------------------------------

# Layers, which are found by their number, and choices between operators.
_LAYERS: Final = words(
    "apply_bnb_4bit broadcast_indexer_topk_from_rank0_ deepseek_v4_attention_with_output flash_attn_varlen_func_op"
    " flash_attn_varlen_func_op_lse gdn_with_output mla_bmm_then_unified_attention nemotron_mamba2_with_output"
    " pcg_dsa_indexer_prefill_split unified_attention_with_output_and_lse unified_linear_attention_with_output"
    " unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear"
)
dispatches(*(f"sglang::{name}" for name in _LAYERS), category="other", reason=LAYER)
