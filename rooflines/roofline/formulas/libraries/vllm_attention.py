"""Attention of vLLM; its copies of flash-attn are in ``flash_attention.py``.

Orders of arguments: vllm-project/vllm 00256d5 (csrc/torch_bindings.cpp), 001cd45 (csrc/rocm/torch_bindings.cpp) and
vllm/model_executor/layers/attention/attention.py (before 2026 vllm/attention/layer.py), vllm/_aiter_ops.py.

``vllm::unified_attention`` finds KV cache, lengths, window and mask by the name of its layer. An operator of attention below it is
counted in its place. ``_rocm_C::paged_attention`` returns at once for sequences with more than one query, where it is told their
starts (csrc/rocm/attention.cu). Where the cache is written by ``vllm::unified_kv_cache_update``, its result is the last argument.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Dispatches
from rooflines.roofline.formulas.packed_attention import Layout, merge, register, unified
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

_CACHE: Final = "query key value heads scale pages used_k page_size max_k alibi"

FORWARD: Final = {
    "_C::paged_attention_v1": Layout((f"out {_CACHE}",), log_sum=False, causal=True),
    "_C::paged_attention_v2": Layout((f"out sums maxima part {_CACHE}",), log_sum=False, causal=True),
    "_rocm_C::paged_attention": Layout((
        "out sums maxima part query key value heads scale pages used_k cum_q page_size max_k alibi cache_dtype k_scale v_scale",
        f"out sums maxima part {_CACHE}",
    ), log_sum=False, causal=True, decodes=True),
    "_C::sm100_cutlass_mla_decode": Layout(("out log_sum query query_rest key used_k pages",), causal=True),
    "vllm::rocm_aiter_mla_decode_fwd_lse": Layout(("query key out cum_q max_q page_ends=None page_list=None",), causal=True),
    "vllm::rocm_aiter_mla_decode_fwd": Layout(("query key out cum_q max_q page_ends=None page_list=None",), log_sum=False, causal=True),
}  # fmt: skip

register(FORWARD, {})


@formula("_C::merge_attn_states", category="attention")
def _merge(signature: Signature) -> Work:
    return merge(signature, "out out_log_sum prefix prefix_log_sum suffix suffix_log_sum")


@formula("vllm::unified_mla_attention", "vllm::unified_mla_attention_with_output", category="attention")
def _latent(signature: Signature) -> Work:
    """Projections from and to the latent space, and attention in it, all of them operators of their own."""
    raise Dispatches


@formula("vllm::flash_attn_maxseqlen_wrapper", "vllm::flashinfer_wrapper", "vllm::torch_sdpa_wrapper", "vllm::triton_attn_wrapper",
         "vllm::aiter_fp8_attn_wrapper", category="attention")  # fmt: skip
def _of_images(_: Signature) -> Work:
    """Attention of encoders of images, by one of several libraries."""
    raise Dispatches("the longest sequence is the value of a tensor")


@hinted_formula("vllm::unified_attention_with_output", category="attention")
def _with_output(signature: Signature, hints: Hints) -> Work:
    return unified(signature, hints, "query key value out layer scale=None block_scale=None updated=None")


@hinted_formula("vllm::unified_attention", category="attention")
def _unified(signature: Signature, hints: Hints) -> Work:
    return unified(signature, hints, "query key value layer updated=None")
