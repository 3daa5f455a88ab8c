"""TensorRT-LLM's mixtures of experts for PyTorch (``trtllm``): routing and whole layers.

Order of arguments: NVIDIA/TensorRT-LLM, ``tensorrt_llm/_torch/custom_ops/torch_custom_ops.py`` and ``trtllm_gen_custom_ops.py`` of 2025
and 2026, ``cpp_custom_ops.py`` (commit 00d6f28). Versions differ in what follows the weights.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.experts import fused_experts
from rooflines.roofline.formulas.libraries.vllm_experts import trtllm_experts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula


@formula("trtllm::fused_moe", category="moe", wraps=True)
def _fused(signature: Signature) -> Work:
    """Weights [experts, 2 * inner, width] and [experts, width, inner], since August 2025 each with a bias, then the dtype of the result
    and scales. Ids may be of experts on other ranks."""
    args = Arguments(signature, "hidden ids weights first first_bias second second_bias dtype scales")
    if not isinstance(signature.arg(6), TensorArg | None):  # a dtype is a number
        args = Arguments(signature, "hidden ids weights first second dtype scales")
    hidden, first, second = args.tensor("hidden"), args.tensor("first"), args.tensor("second")
    others = [args.optional("first_bias"), args.optional("second_bias"), *args.tensors("scales")]
    return fused_experts(
        hidden, first, second, (args.tensor("weights"), args.tensor("ids")), others, widened=first.dtype == "int8",
        out=args.dtype("dtype", hidden.dtype), ranks=True,
    )  # fmt: skip


_RUNNERS: Final = (
    "fp8_block_scale_moe_runner", "fp4_block_scale_moe_runner", "bf16_mxe2m1_block_scale_moe_runner",
    "mxe4m3_mxe2m1_block_scale_moe_runner", "e4m3_mxe2m1_block_scale_moe_runner",
)  # fmt: skip


@formula(*(f"trtllm::{name}" for name in _RUNNERS), category="moe", wraps=True)
def _runner(signature: Signature) -> Work:
    """With the routing, whose scores come first; without them the chosen experts are among the last arguments."""
    if not isinstance(signature.arg(0), TensorArg):
        raise NotCounted("scores of the experts not recorded")
    return trtllm_experts(signature)


@formula("trtllm::renorm_moe_routing_op", "trtllm::default_moe_routing_op", category="moe")
def _chosen(signature: Signature) -> Work:
    """Returns ids and weights of the experts of a token."""
    args = Arguments(signature, "scores kept dtype=None")
    scores, kept = args.tensor("scores"), args.tensor("scores").shape[0] * args.integer("kept")
    return Work(
        other_flops=scores.numel * (costs.SOFTMAX + 1),
        bytes_read=size(scores),
        bytes_written=kept * (size_of("int32") + size_of(args.dtype("dtype", "float32"))),
        precision=precision_of(scores.dtype),
    )


@formula("trtllm::noaux_tc_op", category="moe")
def _of_groups(signature: Signature) -> Work:
    """Scores and scores with a bias, one comparison each; weights and ids are returned."""
    args = Arguments(signature, "scores biased groups groups_kept kept")
    scores, biased = args.tensor("scores"), args.tensor("biased")
    kept = scores.shape[0] * args.integer("kept")
    return Work(
        other_flops=scores.numel + 2 * kept,
        bytes_read=size(scores, biased),
        bytes_written=kept * (size_of(biased.dtype) + size_of("int32")),
        precision=precision_of(scores.dtype),
    )


@formula("trtllm::moe_unpermute", category="moe")
def _unpermute(signature: Signature) -> Work:
    """The rows of each token, weighted and added; ids of padding are not read."""
    args = Arguments(signature, "rows places weights")
    rows, places = args.tensor("rows"), args.tensor("places")
    numbers = places.numel * rows.shape[-1]
    return Work(
        other_flops=2 * numbers,
        bytes_read=numbers * size_of(rows.dtype) + size(places, args.tensor("weights")),
        bytes_written=places.shape[0] * rows.shape[-1] * size_of(rows.dtype),
        precision=precision_of(rows.dtype),
    )
