"""AITER's mixtures of experts (``aiter``): routing, sorting, products and whole layers.

Order of arguments: AITER, ``aiter/fused_moe.py``, ``aiter/ops/moe_op.py``, ``moe_sorting.py`` and ``topk.py`` (commit e4048607). An
operator is named like its function in Python, some of which got an underscore later.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.experts import fused_experts, product_of_experts
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
    **dict.fromkeys(
        ("biased_grouped_topk", "biased_grouped_topk_hip"), Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2)
    ),
    "grouped_topk": Pass("read input, write weights, write ids", costs.SOFTMAX + 1),
    **dict.fromkeys(("moe_fused_gate", "_moe_fused_gate"), Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2)),
    **dict.fromkeys(("moe_sum", "_moe_sum"), _SUM),
    "moe_align_block_size": Pass("read input, experts, block, write sorted_ids, write expert_ids, write token_nums, write count", 0),
    "moe_sorting_fwd": Pass(
        "read input, read weights, write sorted_ids, write sorted_weights, write expert_ids, write count, write buffer", 0
    ),
}
register({f"aiter::{name}": one for name, one in ROUTING.items()}, "moe")


@formula("aiter::fused_moe_", "aiter::fused_moe", "aiter::asm_moe_tkw1", category="moe")
def _fused(signature: Signature) -> Work:
    return aiter_experts(signature)


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


def _product(inputs: TensorArg, weight: TensorArg, out: TensorArg, rows: int, others: list[TensorArg | None], *, gated: bool) -> Work:
    """``rows`` rows with weight [experts, n, k]; after the first product comes the activation, which halves the width."""
    if len(weight.shape) != 3 or not inputs.shape:
        raise NotCounted("shapes of the experts not understood")
    inner = inputs.shape[-1] * (2 if inputs.dtype in FOUR_BIT else 1)
    made = rows * out.shape[-1] * size_of(out.dtype) if gated else size(out)
    work = product_of_experts(rows, inner, weight.shape[1], inputs, weight, others, made)
    return work + Work(other_flops=rows * weight.shape[1] // 2 * (costs.SILU + 1) if gated else 0)
