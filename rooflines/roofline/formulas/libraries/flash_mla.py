"""FlashMLA: multi-head latent attention, whose values are a part of its keys, as vLLM and SGLang call it.

Orders of arguments: vllm-project/FlashMLA 7878a67 (csrc/torch_api.cpp), sgl-project/sglang 176ee5c
(sgl-kernel/csrc/flashmla_extension.cc).
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of
from rooflines.roofline.formulas.attention import Attention
from rooflines.roofline.formulas.costs import SOFTMAX
from rooflines.roofline.formulas.packed_attention import Layout, forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

_PAGED: Final = "query key value_depth used_k pages scale causal schedule splits"
_LAYOUT: Final = Layout((_PAGED,))


@hinted_formula("_flashmla_C::fwd_kvcache_mla", "_flashmla_C::fwd_kvcache_mla_fp8", "sgl_kernel::fwd_kvcache_mla", category="attention")
def _paged(signature: Signature, hints: Hints) -> Work:
    """Of each sequence all tokens in the cache, or those that an index chose."""
    chosen = Arguments(signature, f"{_PAGED} is_fp8 indices=None")
    if signature.name.endswith("fp8") or chosen.optional("indices") is None:
        return forward(signature, hints, _LAYOUT)
    return _sparse(chosen, prod(chosen.tensor("key").shape[:2]))


@formula("_flashmla_C::sparse_prefill_fwd", "sgl_kernel::sparse_prefill_fwd", category="attention")
def _prefill(signature: Signature) -> Work:
    """[s_q, h, d] to those of [s_k, 1, d] that an index chose."""
    args = Arguments(signature, "query key indices scale value_depth")
    return _sparse(args, args.tensor("key").shape[0])


def _sparse(args: Arguments, capacity: int) -> Work:
    """Each query sees ``indices`` [..., top k] of the ``capacity`` keys."""
    query, key, indices, value_depth = args.tensor("query"), args.tensor("key"), args.tensor("indices"), args.integer("value_depth")
    rows, heads = prod(query.shape[:-2]), query.shape[-2]
    sizes = Attention(heads * rows * indices.shape[-1], query.shape[-1], value_depth)
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, indices) + size(key) * min(indices.numel, capacity) // capacity,
        bytes_written=rows * heads * (value_depth * size_of(query.dtype) + 4),
        precision=matrix_precision_of(query.dtype),
        assumption="every query has as many keys as its index can hold",
    )
