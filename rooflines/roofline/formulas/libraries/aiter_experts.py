"""AITER's mixtures of experts (``aiter``): routing, sorting, products and whole layers.

Order of arguments: AITER, ``aiter/fused_moe.py``, ``aiter/ops/moe_op.py``, ``moe_sorting.py`` and ``topk.py`` (commit e4048607; earlier
names 7d063b2, 4dcf99d). An operator is named like its function in Python, some of which got an underscore later.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE, fused_experts, product_of_experts
from rooflines.roofline.formulas.libraries.vllm_experts import aiter_experts
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.scaled import FOUR_BIT
from rooflines.roofline.formulas.table import formula, words

_SOFTMAX: Final = Pass("write weights, write ids, write places, read input", costs.SOFTMAX + 1)
_SUM: Final = Pass("read input, write out", 1)
ROUTING: Final[dict[str, Pass]] = {
    **dict.fromkeys(("topk_softmax", "_topk_softmax", "topk_softmax_asm"), _SOFTMAX),
    "topk_sigmoid": Pass("write weights, write ids, read input", costs.SIGMOID + 1),
    "topk_gating_fwd": Pass("write weights, write ids, read input, read bias?", costs.SIGMOID + 2),
    "topk_softplus": Pass("write weights, write ids, read input, read bias?", costs.SOFTPLUS + 3),  # sqrt(softplus(x)) + bias
    **dict.fromkeys(
        ("biased_grouped_topk", "biased_grouped_topk_hip"), Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2)
    ),
    "grouped_topk": Pass("read input, write weights, write ids", costs.SOFTMAX + 1),
    **dict.fromkeys(("moe_fused_gate", "_moe_fused_gate"), Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2)),
    **dict.fromkeys(("moe_sum", "_moe_sum"), _SUM),
    "moe_align_block_size": Pass("read input, experts, block, write sorted_ids, write expert_ids, write token_nums, write count", 0),
    **dict.fromkeys(("moe_sorting_fwd", "moe_sorting_opus_fwd"), Pass(
        "read input, read weights, write sorted_ids, write sorted_weights, write expert_ids, write count, write buffer", 0
    )),
    # activations in 4 or 8 bits, with a scale for each 32 in the order of the sorted rows
    **dict.fromkeys(("fused_dynamic_mx_quant_moe_sort_hip", "fused_dynamic_mxfp4_quant_moe_sort_hip"), Pass(
        "write out, write scale, read input, read sorted_ids, read count", DYNAMIC_QUANTIZE
    )),
    "mxfp4_moe_sort_hip": Pass("write out, read input, read sorted_ids, read count", 0),
    "mxfp4_moe_quant": Pass("read input, write out, write scale, write zeros", DYNAMIC_QUANTIZE),
    "mxfp4_moe_scatter_reduce": Pass("read input, read places, read weights, write out", 2),
    "_opus_moe_stage2_reduce_token_slot_route_output_fwd_raw": _SUM,
}  # fmt: skip
register({f"aiter::{name}": one for name, one in ROUTING.items()}, "moe")


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


@formula("aiter::ck_moe_stage1", "aiter::ck_moe_stage2", category="moe")
def _stage(signature: Signature) -> Work:
    """One of the two products: rows [tokens, k] meet ``top_k`` experts each, or [tokens, top_k, inner] one each."""
    first = signature.name.endswith("1")
    args = Arguments(
        signature, "input w1 w2 sorted_ids expert_ids count out top_k kernel w_scale=None a_scale=None block=None sorted_weights=None"
    )
    inputs, weight, out, top_k = args.tensor("input"), args.tensor("w1" if first else "w2"), args.tensor("out"), args.integer("top_k")
    return _product(inputs, weight, out, inputs.shape[0] * top_k if first else inputs.numel // inputs.shape[-1],
                    [args.optional("w_scale"), args.optional("a_scale")], gated=first)  # fmt: skip


@formula("aiter::moe_cktile2stages_gemm1_ck", "aiter::moe_cktile2stages_gemm2_ck", category="moe")
def _tile_stage(signature: Signature) -> Work:
    first = "gemm1" in signature.name
    args = Arguments(
        signature, "input weight out sorted_ids expert_ids count top_k n_pad k_pad topk_weight=None x_scale=None w_scale=None bias=None"
    )
    inputs, weight, out, top_k = args.tensor("input"), args.tensor("weight"), args.tensor("out"), args.integer("top_k")
    rows = inputs.shape[0] * top_k if first else inputs.numel // inputs.shape[-1]
    others = [args.optional(name) for name in ("x_scale", "w_scale", "bias")]
    return _product(inputs, weight, out, rows, others, gated=first)


@formula("aiter::moe_stage1_g1u1", category="moe")
def _first_stage(signature: Signature) -> Work:
    """As the first of two products, with the result [tokens, top_k, inner] before the width."""
    args = Arguments(
        signature,
        "input w1 w2 sorted_ids expert_ids count out inner kernel block splits=0 activation=0 type=0 a_scale=None w_scale=None",
    )
    inputs, out = args.tensor("input"), args.tensor("out")
    if len(out.shape) != 3:
        raise NotCounted("number of experts of a token not recorded")
    others = [args.optional("a_scale"), args.optional("w_scale")]
    return _product(inputs, args.tensor("w1"), out, out.shape[0] * out.shape[1], others, gated=True)


@formula("aiter::_opus_moe_stage1_a8w4_fwd_raw", "aiter::_opus_moe_stage2_a8w4_decode_fwd_raw", category="moe")
def _opus_stage(signature: Signature) -> Work:
    first = "stage1" in signature.name
    args = Arguments(
        signature,
        "input weight a_scale w_scale bias sorted_ids expert_ids count out out_scale top_k" if first else
        "input weight a_scale w_scale sorted_ids sorted_weights expert_ids count out tokens top_k",
    )  # fmt: skip
    inputs, out, top_k = args.tensor("input"), args.tensor("out"), args.integer("top_k")
    rows = inputs.shape[0] * top_k if first else args.integer("tokens") * top_k
    others = [args.optional(name) for name in ("a_scale", "w_scale", "bias")]
    return _product(inputs, args.tensor("weight"), out, rows, others, gated=first)


def _product(inputs: TensorArg, weight: TensorArg, out: TensorArg, rows: int, others: list[TensorArg | None], *, gated: bool) -> Work:
    """``rows`` rows with weight [experts, n, k]; after the first product comes the activation, which halves the width."""
    if len(weight.shape) != 3 or not inputs.shape:
        raise NotCounted("shapes of the experts not understood")
    inner = inputs.shape[-1] * (2 if inputs.dtype in FOUR_BIT else 1)
    made = rows * out.shape[-1] * size_of(out.dtype) if gated else size(out)
    work = product_of_experts(rows, inner, weight.shape[1], inputs, weight, others, made)
    return work + Work(other_flops=rows * weight.shape[1] // 2 * (costs.SILU + 1) if gated else 0)
