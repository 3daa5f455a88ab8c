"""AITER's mixtures of experts (``aiter``): routing, sorting, products and whole layers.

Order of arguments: AITER, ``aiter/fused_moe.py``, ``aiter/ops/moe_op.py``, ``moe_sorting.py`` and ``topk.py`` (commit e4048607; earlier
names 7d063b2, 4dcf99d). An operator is named like its function in Python, some of which got an underscore later.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.experts import fused_experts, product_of_experts
from rooflines.roofline.formulas.libraries.vllm_experts import aiter_experts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula, words
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import FOUR_BIT

_CHOSEN: Final = "write weights, write ids"
_BIASED: Final = Row(f"read input, read bias, {_CHOSEN}", costs.SIGMOID + 2)
_ROUTING: Final[dict[str, Row]] = {
    "topk_softmax _topk_softmax topk_softmax_asm": Row(f"{_CHOSEN}, write places, read input", costs.SOFTMAX + 1),
    "topk_sigmoid": Row(f"{_CHOSEN}, read input", costs.SIGMOID + 1),
    "topk_gating_fwd": Row(f"{_CHOSEN}, read input, read bias?", costs.SIGMOID + 2),
    "topk_softplus": Row(f"{_CHOSEN}, read input, read bias?", costs.SOFTPLUS + 3),  # sqrt(softplus(x)) + bias
    "biased_grouped_topk biased_grouped_topk_hip moe_fused_gate _moe_fused_gate": _BIASED,
    "grouped_topk": Row(f"read input, {_CHOSEN}", costs.SOFTMAX + 1),
    "moe_sum _moe_sum _opus_moe_stage2_reduce_token_slot_route_output_fwd_raw": Row("read input, write out", 1),
    "moe_align_block_size": Row("read input, experts, block, write sorted_ids, write expert_ids, write token_nums, write count"),
    "moe_sorting_fwd moe_sorting_opus_fwd": Row(
        "read input, read weights, write sorted_ids, write sorted_weights, write expert_ids, write count, write buffer"
    ),
    # activations in 4 or 8 bits, with a scale for each 32 in the order of the sorted rows
    "fused_dynamic_mx_quant_moe_sort_hip fused_dynamic_mxfp4_quant_moe_sort_hip": Row(
        "write out, write scale, read input, read sorted_ids, read count", costs.DYNAMIC_QUANTIZE
    ),
    "mxfp4_moe_sort_hip": Row("write out, read input, read sorted_ids, read count"),
    "mxfp4_moe_quant": Row("read input, write out, write scale, write zeros", costs.DYNAMIC_QUANTIZE),
    "mxfp4_moe_scatter_reduce": Row("read input, read places, read weights, write out", 2),
}
register(_ROUTING, "moe", namespace="aiter::")


formula("aiter::fused_moe_", "aiter::fused_moe", "aiter::asm_moe_tkw1", category="moe")(aiter_experts)
# ATOM's, with the same arguments (atom/model_ops/moe.py, ffdf3bb).
formula("aiter::rocm_aiter_fused_moe", category="moe", wraps=True)(aiter_experts)

_SORTED: Final = "sorted_ids sorted_weights expert_ids count top_k"
_LAYERS: Final = words("fmoe fmoe_int8_g1u0 fmoe_g1u1 fmoe_g1u1_tkw1 fmoe_int8_g1u0_a16 fmoe_g1u1_a16 fmoe_fp8_blockscale_g1u1")


@formula(*(f"aiter::{name}" for name in _LAYERS), category="moe")
def _layer(signature: Signature) -> Work:
    """One kernel for the whole layer. It is given the sorted rows with padding, and the number of experts of a token."""
    args = Arguments(signature, f"out input gate down {_SORTED}")
    hidden, gate, down, top_k = args.tensor("input"), args.tensor("gate"), args.tensor("down"), args.integer("top_k")
    routing = TensorArg((hidden.shape[0], top_k), "float32"), TensorArg((hidden.shape[0], top_k), "int32")
    scales = [tensor for tensor in signature.tensors[8:] if len(tensor.shape) > 1]
    return fused_experts(hidden, gate, down, routing, scales, widened=signature.name.endswith("_a16"), out=args.tensor("out").dtype)


_CHOICE: Final = "sorted_ids expert_ids count out"
_PADDED: Final = "input weight out sorted_ids expert_ids count top_k n_pad k_pad topk_weight=None a_scale=None w_scale=None bias=None"
# The products of a layer: rows [tokens, k] meet ``top_k`` experts each, or [tokens, top_k, inner] one each.
_FIRST: Final[dict[str, str]] = {
    "ck_moe_stage1": f"input weight w2 {_CHOICE} top_k kernel w_scale=None a_scale=None",
    "moe_cktile2stages_gemm1_ck": _PADDED,
    # with the result [tokens, top_k, inner] before the width
    "moe_stage1_g1u1": f"input weight w2 {_CHOICE} inner kernel block splits=0 activation=0 type=0 a_scale=None w_scale=None",
    "_opus_moe_stage1_a8w4_fwd_raw": f"input weight a_scale w_scale bias {_CHOICE} out_scale top_k",
}
_SECOND: Final[dict[str, str]] = {
    "ck_moe_stage2": f"input w1 weight {_CHOICE} top_k kernel w_scale=None a_scale=None",
    "moe_cktile2stages_gemm2_ck": _PADDED,
    "_opus_moe_stage2_a8w4_decode_fwd_raw": "input weight a_scale w_scale sorted_ids sorted_weights expert_ids count out tokens top_k",
}


@formula(*(f"aiter::{name}" for name in (*_FIRST, *_SECOND)), category="moe")
def _product(signature: Signature) -> Work:
    """Rows with weight [experts, n, k]; after the first product comes the activation, which halves the width."""
    name = signature.name.partition("::")[2]
    gated = name in _FIRST
    args = Arguments(signature, _FIRST[name] if gated else _SECOND[name])
    inputs, weight, out = args.tensor("input"), args.tensor("weight"), args.tensor("out")
    if not args.has("top_k") and len(out.shape) != 3:
        raise NotCounted("number of experts of a token not recorded")
    if len(weight.shape) != 3 or not inputs.shape:
        raise NotCounted("shapes of the experts not understood")
    tokens = args.integer("tokens") if args.has("tokens") else inputs.shape[0]
    top_k = args.integer("top_k") if args.has("top_k") else out.shape[1]
    rows = tokens * top_k if gated or args.has("tokens") else inputs.numel // inputs.shape[-1]
    inner = inputs.shape[-1] * (2 if inputs.dtype in FOUR_BIT else 1)
    others = [args.optional(name) for name in ("w_scale", "a_scale", "bias")]
    made = rows * out.shape[-1] * size_of(out.dtype) if gated else size(out)
    work = product_of_experts(rows, inner, weight.shape[1], inputs, weight, others, made)
    return work + Work(other_flops=rows * weight.shape[1] // 2 * (costs.SILU + 1) if gated else 0)
