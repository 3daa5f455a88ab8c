"""SGLang's operators: ``sgl_kernel`` (compiled), ``sglang`` (written in Python), without attention.

Order of arguments: SGLang, ``sgl-kernel/csrc/common_extension.cc`` (commit 0063ef1), ``common_extension_rocm.cc`` (commit 0098674),
compared with the schemas in sgl-kernel 0.3.21 and sglang-kernel 0.4.10, and ``sglang/jit_kernel/kvcache.py``.

What SGLang's profiler names ``sglang_profiler::...`` are functions in Python, which only call others.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import store
from rooflines.roofline.formulas.libraries.vllm_experts import grouped_work
from rooflines.roofline.formulas.libraries.vllm_kernels import GATED
from rooflines.roofline.formulas.narrow import to_fp4
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import normalise_and_rotate, rotary_work
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import formula

_SCALED: Final = "left, right, read scale_a, read scale_b"
PRODUCTS: Final[dict[str, str]] = {
    "sgl_kernel::int8_scaled_mm": f"{_SCALED}, out_dtype, read bias?",
    "sgl_kernel::fp8_scaled_mm": f"{_SCALED}, out_dtype, read bias?",
    "sgl_kernel::fp8_blockwise_scaled_mm": f"{_SCALED}, out_dtype",
    "sgl_kernel::bmm_fp8": "left, right, write out, read scale_a, read scale_b",
    "sgl_kernel::cutlass_scaled_fp4_mm": "write out, left, right, read scale_a, read scale_b, read alpha",
    "sgl_kernel::dsv3_fused_a_gemm": "write out, left, right",
    "sgl_kernel::dsv3_router_gemm": "write out, left, right",
    "sgl_kernel::qserve_w4a8_per_chn_gemm": "left, right, read wscales, read ascales, read w_szs, read a_ssums, write out",
    "sgl_kernel::qserve_w4a8_per_group_gemm": "left, right, read zeros, read scales_i8, read wscales, read ascales, write out",
}
register_products(PRODUCTS)
register_products(
    {
        "sglang::w8a8_block_fp8_matmul_deepgemm": f"{_SCALED}, block, out_dtype",
        "sglang::w8a8_block_fp8_matmul_triton": f"{_SCALED}, block, out_dtype",
        "sglang::deep_gemm_fp8_fp8_bf16_nt": "left, read scale_a, right, read scale_b, write out",
    },
    wraps=True,
)

NORMS: Final[dict[str, Pass]] = {
    "rmsnorm": Pass("write out, read input, read weight, eps", costs.RMS_NORM),
    "gemma_rmsnorm": Pass("write out, read input, read weight, eps", costs.RMS_NORM),
    "fused_add_rmsnorm": Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1),
    "gemma_fused_add_rmsnorm": Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1),
}
QUANTIZATIONS: Final[dict[str, Pass]] = {
    name: Pass("read input, write out, write scale", DYNAMIC_QUANTIZE)
    for name in (
        "sgl_per_token_group_quant_fp8", "sgl_per_token_group_quant_int8", "sgl_per_token_group_quant_8bit", "sgl_per_token_quant_fp8",
    )
}  # fmt: skip
COPIES: Final[dict[str, Pass]] = {
    "copy_to_gpu_no_ce": Pass("read input, write out", 0),
    "concat_mla_k": Pass("write out, read input, read rope", 0),
}
ROUTING: Final[dict[str, Pass]] = {
    "topk_softmax": Pass("write weights, write ids, read input, renormalize, softcapping, read bias?", costs.SOFTMAX + 1),
    "topk_sigmoid": Pass("write weights, write ids, read input, renormalize, read bias?", costs.SIGMOID + 1),
    "moe_align_block_size": Pass("read input, experts, block, write sorted_ids, write expert_ids, write count", 0),
    "moe_sum": Pass("read input, write out", 1),
    "moe_sum_reduce": Pass("read input, write out, factor", 1),
    "apply_shuffle_mul_sum": Pass("read input, write out, read map, read factors?", 2),
    "es_sm100_mxfp8_blockscaled_grouped_quant": Pass(
        "read input, read sizes, read offsets, read scale_offsets, write out, write scale", DYNAMIC_QUANTIZE
    ),
    "prepare_moe_input": Pass(
        "read input, write offsets, write block_offsets?, write sizes1, write sizes2, write order, write back", 0
    ),
}
register({f"sgl_kernel::{name}": one for name, one in NORMS.items()}, "normalisation")
for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    register({f"sgl_kernel::{_name}": Pass("write out, read input", GATED[_name], per="out")}, "element-wise")
register({"sgl_kernel::gelu_quick": Pass("write out, read input", costs.SIGMOID + 2, per="out")}, "element-wise")
register({f"sgl_kernel::{name}": one for name, one in QUANTIZATIONS.items()}, "element-wise")
register({f"sgl_kernel::{name}": one for name, one in COPIES.items()}, "copy")
register({f"sgl_kernel::{name}": one for name, one in ROUTING.items()}, "moe")


@formula("sgl_kernel::sgl_per_token_group_quant_8bit_v2", "sglang::per_token_group_quant_8bit_v2", "sglang::per_token_group_quant",
         category="element-wise")  # fmt: skip
def _grouped_quantization(signature: Signature) -> Work:
    """With a flag, an activation of [gate, factor] comes first, and the result is half as wide."""
    args = Arguments(signature, "input out scale")
    inputs, out, scale = args.tensor("input"), args.tensor("out"), args.tensor("scale")
    activation = costs.SILU + 1 if inputs.shape[-1] == 2 * out.shape[-1] else 0
    return Work(
        other_flops=out.numel * (DYNAMIC_QUANTIZE + activation),
        bytes_read=size(inputs),
        bytes_written=written(out, scale),
        precision=precision_of(inputs.dtype),
    )


@formula("sgl_kernel::sgl_per_tensor_quant_fp8", "sglang::per_tensor_quant_fp8", category="element-wise")
def _tensor_quantization(signature: Signature) -> Work:
    """The scale is given, or computed."""
    args = Arguments(signature, "input out scale is_static=False")
    inputs, out, scale, static = args.tensor("input"), args.tensor("out"), args.tensor("scale"), args.flag("is_static")
    return Work(
        other_flops=inputs.numel * (costs.QUANTIZE if static else DYNAMIC_QUANTIZE),
        bytes_read=size(inputs, scale if static else None),
        bytes_written=written(out, None if static else scale),
        precision=precision_of(inputs.dtype),
    )


formula("sgl_kernel::scaled_fp4_quant", category="element-wise")(partial(to_fp4, schema="out input block_scale scale"))


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


formula("sgl_kernel::fused_qk_norm_rope", "trtllm::fused_qk_norm_rope", category="normalisation")(
    partial(normalise_and_rotate, schema="qkv heads_q heads_k heads_v head eps q_weight k_weight base is_neox positions")
)


@formula("sgl_kernel::kimi_k2_moe_fused_gate", category="moe")
def _gate(signature: Signature) -> Work:
    """One group: a sigmoid and a bias for each score; weights and ids are returned."""
    args = Arguments(signature, "input bias kept")
    inputs, kept = args.tensor("input"), args.tensor("input").shape[0] * args.integer("kept")
    return Work(
        other_flops=inputs.numel * (costs.SIGMOID + 2),
        bytes_read=size(inputs, args.tensor("bias")),
        bytes_written=kept * (size_of("float32") + size_of("int32")),
        precision=precision_of(inputs.dtype),
    )


formula("sglang::store_cache", category="copy")(partial(store, schema="key value key_cache value_cache slots"))
formula("sgl_kernel::store_kv_cache", category="copy")(partial(store, schema="key_cache value_cache slots key value"))


@formula("sgl_kernel::fp8_blockwise_scaled_grouped_mm", category="moe")
def _blockwise_grouped(signature: Signature) -> Work:
    """Rows sorted by expert, weight [experts, k, n]; pointers to each expert's operands come before them."""
    args = Arguments(signature, "out a_ptrs b_ptrs out_ptrs a_scales_ptrs b_scales_ptrs a b scales_a scales_b")
    scales = [args.tensor("scales_a"), args.tensor("scales_b")]
    return grouped_work(args.tensor("out"), args.tensor("a"), args.tensor("b"), scales)


@formula("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm", category="moe")
def _mx_grouped(signature: Signature) -> Work:
    args = Arguments(signature, "a b scales_a scales_b out")
    return grouped_work(args.tensor("out"), args.tensor("a"), args.tensor("b"), [args.tensor("scales_a"), args.tensor("scales_b")])


# Copies between the caches of a device and its host: tensors before the lists of slots, and what follows them up to the bytes of a slot
# and the number of layers.
_TRANSFERS: Final[dict[str, tuple[int, str]]] = {
    "per_layer": (4, "item"),
    "per_layer_pf_lf": (4, "layer item"),
    "per_layer_ph_lf": (4, "layer item"),
    "all_layer": (4, "item layers"),
    "all_layer_lf_pf": (4, "item layout layers"),
    "all_layer_lf_ph": (4, "item layout layers"),
    "per_layer_mla": (2, "item"),
    "per_layer_mla_pf_lf": (2, "layer item"),
    "all_layer_mla": (2, "item layers"),
    "all_layer_mla_lf_pf": (2, "item layout layers"),
}


def _transfer(signature: Signature, tensors: int, numbers: str) -> Work:
    names = " ".join(f"cache{place}" for place in range(tensors))
    args = Arguments(signature, f"{names} source target {numbers}")
    slots, target = args.tensor("source"), args.tensor("target")
    moved = slots.numel * args.integer("item") * tensors // 2 * (args.integer("layers") if args.has("layers") else 1)
    return Work(bytes_read=moved + size(slots, target), bytes_written=moved)


for _name, (_tensors, _numbers) in _TRANSFERS.items():
    formula(f"sgl_kernel::transfer_kv_{_name}", category="copy")(partial(_transfer, tensors=_tensors, numbers=_numbers))
