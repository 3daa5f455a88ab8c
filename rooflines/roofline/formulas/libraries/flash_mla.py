"""FlashMLA: multi-head latent attention, whose values are a part of its keys, as vLLM and SGLang call it.

Orders of arguments: vllm-project/FlashMLA 7878a67 (csrc/torch_api.cpp), sgl-project/sglang 176ee5c
(sgl-kernel/csrc/flashmla_extension.cc), and the schemas in vLLM 0.33.0 and sglang-kernel 0.4.10.
"""

from __future__ import annotations

from dataclasses import replace
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


@hinted_formula(
    *(f"{library}::{name}" for library in ("_flashmla_C", "sgl_kernel")
      for name in ("fwd_kvcache_mla", "fwd_kvcache_mla_fp8", "dense_decode_fwd")),
    "_flashmla_extension_C::fwd_kvcache_mla_fp8", category="attention",
)  # fmt: skip
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


@formula("_flashmla_C::sparse_decode_fwd", "sgl_kernel::sparse_decode_fwd", category="attention")
def _decode(signature: Signature) -> Work:
    """[b, s_q, h, d] to those of [blocks, block, 1, d] that an index chose, and of a second cache by an index of its own."""
    args = Arguments(signature, "query key indices lengths sinks schedule splits more_key more_indices more_lengths value_depth scale")
    return _sparse(args, prod(args.tensor("key").shape[:2]))


@hinted_formula("_flashmla_C::dense_prefill_fwd", "sgl_kernel::dense_prefill_fwd", category="attention")
def _dense(signature: Signature, hints: Hints) -> Work:
    """Packed sequences; the number of the mask is 1 for a causal one."""
    mask = signature.arg(8)
    given = replace(signature, args=(*signature.args[:8], mask == 1 if isinstance(mask, int) else mask, *signature.args[9:]))
    return forward(given, hints, _PREFILL)


_PREFILL: Final = Layout(("workspace query key value cum_q cum_k out log_sum causal scale max_q max_k",))


def _sparse(args: Arguments, capacity: int) -> Work:
    """Each query sees ``indices`` [..., top k] of the ``capacity`` keys, and as many of a second cache as its index has."""
    query, key, indices, value_depth = args.tensor("query"), args.tensor("key"), args.tensor("indices"), args.integer("value_depth")
    more_key, more = args.optional("more_key"), args.optional("more_indices")
    rows, heads = prod(query.shape[:-2]), query.shape[-2]
    sizes = Attention(heads * rows * (indices.shape[-1] + (more.shape[-1] if more else 0)), query.shape[-1], value_depth)
    extra = 0
    if more_key and more:
        held = max(prod(more_key.shape[:2]), 1)
        extra = size(more) + size(more_key) * min(more.numel, held) // held
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, indices) + size(key) * min(indices.numel, capacity) // capacity + extra,
        bytes_written=rows * heads * (value_depth * size_of(query.dtype) + 4),
        precision=matrix_precision_of(query.dtype),
        assumption="every query has as many keys as its index can hold",
    )
