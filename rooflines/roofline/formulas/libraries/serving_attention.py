"""Attention of vLLM and SGLang, whose copies of flash-attn are in ``flash_attention.py``, and FlashMLA as both call it: multi-head
latent attention, whose values are a part of its keys.

Orders of arguments: vllm-project/vllm 00256d5 (csrc/torch_bindings.cpp), 001cd45 (csrc/rocm/torch_bindings.cpp) and
vllm/model_executor/layers/attention/attention.py (before 2026 vllm/attention/layer.py), vllm/_aiter_ops.py; sgl-project/sglang 0063ef1
(sgl-kernel/csrc/common_extension.cc, python/sglang/srt/layers/radix_attention.py); vllm-project/FlashMLA 7878a67 (csrc/torch_api.cpp),
sgl-project/sglang 176ee5c (sgl-kernel/csrc/flashmla_extension.cc), and the schemas in vLLM 0.33.0 and sglang-kernel 0.4.10.

``vllm::unified_attention`` finds KV cache, lengths, window and mask by the name of its layer. An operator of attention below it is
counted in its place. ``_rocm_C::paged_attention`` returns at once for sequences with more than one query, where it is told their
starts (csrc/rocm/attention.cu). Where the cache is written by ``vllm::unified_kv_cache_update``, its result is the last argument."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments
from rooflines.roofline.formulas.packed_attention import Layout, forward, merge, register_layouts, unified
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, dispatches, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register, row_work

_CACHE: Final = "query key value heads scale pages used_k page_size max_k alibi"

FORWARD: Final = {
    "_C::paged_attention_v1": Layout((f"out {_CACHE}",), log_sum=False, causal=True),
    "_C::paged_attention_v2": Layout((f"out sums maxima part {_CACHE}",), log_sum=False, causal=True),
    "_rocm_C::paged_attention": Layout((
        "out sums maxima part query key value heads scale pages used_k cum_q page_size max_k alibi cache_dtype k_scale v_scale",
        f"out sums maxima part {_CACHE}",
    ), log_sum=False, causal=True, decodes=True),
    "sgl_kernel::cutlass_mla_decode": Layout(("out query query_rest key used_k pages",), log_sum=False, causal=True),
    "_C::sm100_cutlass_mla_decode": Layout(("out log_sum query query_rest key used_k pages",), causal=True),
    "vllm::rocm_aiter_mla_decode_fwd_lse": Layout(("query key out cum_q max_q page_ends=None page_list=None",), causal=True),
    "vllm::rocm_aiter_mla_decode_fwd": Layout(("query key out cum_q max_q page_ends=None page_list=None",), log_sum=False, causal=True),
}  # fmt: skip

register_layouts(FORWARD, {})


formula("_C::merge_attn_states", category="attention")(
    partial(merge, schema="out out_log_sum prefix prefix_log_sum suffix suffix_log_sum")
)
formula("sgl_kernel::merge_state", "sgl_kernel::merge_state_v2", category="attention")(
    partial(merge, schema="prefix prefix_log_sum suffix suffix_log_sum out out_log_sum")
)
# Projections from and to the latent space, and attention in it, all of them operators of their own.
dispatches("vllm::unified_mla_attention", "vllm::unified_mla_attention_with_output", category="attention")
# Attention of encoders of images, by one of several libraries.
dispatches("vllm::flash_attn_maxseqlen_wrapper", "vllm::flashinfer_wrapper", "vllm::torch_sdpa_wrapper", "vllm::triton_attn_wrapper",
           "vllm::aiter_fp8_attn_wrapper", category="attention", reason="the longest sequence is the value of a tensor")  # fmt: skip


hinted_formula("vllm::unified_attention_with_output", category="attention")(
    partial(unified, schema="query key value out layer scale=None block_scale=None updated=None")
)
hinted_formula("vllm::unified_attention", category="attention")(partial(unified, schema="query key value layer updated=None"))


@hinted_formula("sglang::unified_attention_with_output", category="attention")
def _unified_with_cache(signature: Signature, hints: Hints) -> Work:
    schema = "query key value out saves_cache layer"
    return unified(signature, hints, schema, writes_cache=Arguments(signature, schema).flag("saves_cache"))


# --- FlashMLA ----------------------------------------------------------------------------------------------------------------------


def _sparse(arguments: str, top: str = "top", more: str = "0") -> Row:
    """Each query sees ``indices`` [..., top k] of the keys [..., 1, d], and reads ``more``; ``arguments`` are those behind the keys."""
    pairs = f"rows * heads * ({top})"
    return Row(
        f"read query[*rows heads d], read key[*held one width], {arguments}",
        matrix=f"2 * {pairs} * (d + value_depth)",
        other=f"{pairs} * (1 + SOFTMAX)",
        reads=f"query.size + indices.size + key.size * min(indices.n, held) // held + {more}",
        writes="rows * heads * (value_depth * query.item + 4)",
        assumption="every query has as many keys as its index can hold",
    )


_INDICES: Final = "read indices[*lists top]"
_SPARSE: Final[dict[str, Row]] = {
    # [s_q, h, d] to those of [s_k, 1, d] that an index chose.
    "_flashmla_C::sparse_prefill_fwd sgl_kernel::sparse_prefill_fwd": _sparse(f"{_INDICES}, scale, value_depth"),
    # [b, s_q, h, d] to those of [blocks, block, 1, d] that an index chose, and of a second cache by an index of its own.
    "_flashmla_C::sparse_decode_fwd sgl_kernel::sparse_decode_fwd": _sparse(
        f"{_INDICES}, lengths, sinks, schedule, splits, read more_key[*more_held more_one more_width]?,"
        " read more_indices[*more_lists more_top]?, more_lengths, value_depth, scale",
        top="top + more_top",
        more="more_indices.size + more_key.size * min(more_indices.n, more_held) // max(more_held, 1)",
    ),
}
register(_SPARSE, "attention")
_PAGED: Final = "query key value_depth used_k pages scale causal schedule splits"
_DENSE_PAGED: Final = Layout((_PAGED,))
_SPARSE_PAGED: Final = _sparse(f"value_depth, used_k, pages, scale, causal, schedule, splits, is_fp8, {_INDICES}")
_DENSE_PREFILL: Final = Layout(("workspace query key value cum_q cum_k out log_sum causal scale max_q max_k",))


@hinted_formula(
    *(f"{library}::{name}" for library in ("_flashmla_C", "sgl_kernel")
      for name in ("fwd_kvcache_mla", "fwd_kvcache_mla_fp8", "dense_decode_fwd")),
    "_flashmla_extension_C::fwd_kvcache_mla_fp8", category="attention",
)  # fmt: skip
def _paged(signature: Signature, hints: Hints) -> Work:
    """Of each sequence all tokens in the cache, or those that an index chose."""
    chosen = Arguments(signature, f"{_PAGED} is_fp8 indices=None").optional("indices") is not None
    if signature.name.endswith("fp8") or not chosen:
        return forward(signature, hints, _DENSE_PAGED)
    return row_work(signature, _SPARSE_PAGED)


@hinted_formula("_flashmla_C::dense_prefill_fwd", "sgl_kernel::dense_prefill_fwd", category="attention")
def _dense(signature: Signature, hints: Hints) -> Work:
    """Packed sequences; the number of the mask is 1 for a causal one."""
    mask = signature.arg(8)
    given = replace(signature, args=(*signature.args[:8], mask == 1 if isinstance(mask, int) else mask, *signature.args[9:]))
    return forward(given, hints, _DENSE_PREFILL)
