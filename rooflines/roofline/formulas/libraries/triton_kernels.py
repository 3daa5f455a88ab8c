"""Routing of OpenAI's ``triton_kernels``, which vLLM and SGLang use for gpt-oss: autograd functions without a namespace.

Order of arguments: triton 3.4, ``python/triton_kernels/triton_kernels/topk.py`` and ``routing.py``. The products (``_matmul_ogs``)
have no event of their own.
"""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula


@formula("TopK", category="moe")
def _top_k(signature: Signature) -> Work:
    """Of [tokens, experts] the k largest, a softmax over them if asked for; their places as int16, and a bit for each expert."""
    args = Arguments(signature, "scores k softmax dim")
    scores, k = args.tensor("scores"), args.integer("k")
    if len(scores.shape) != 2 or not isinstance(args.value("softmax"), bool):
        raise NotCounted("arguments of another library's function")
    tokens, experts = scores.shape
    return Work(
        other_flops=scores.numel + tokens * k * costs.SOFTMAX * args.flag("softmax"),
        bytes_read=size(scores),
        bytes_written=tokens * (k * (size_of(scores.dtype) + 2) + 4 * -(-experts // 32)),
        precision=precision_of(scores.dtype),
    )


@formula("SortTokens", category="moe")
def _sort_tokens(signature: Signature) -> Work:
    """[tokens, k] weights and experts in the order of the experts: that order and its inverse (int32), the weights, rows of each."""
    args = Arguments(signature, "weights ids experts")
    weights, ids = args.tensor("weights"), args.tensor("ids")
    return Work(
        bytes_read=size(weights, ids),
        bytes_written=weights.numel * (size_of(weights.dtype) + 2 * 4) + 4 * args.integer("experts"),
    )
