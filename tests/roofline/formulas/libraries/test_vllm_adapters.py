"""vLLM's adapters, and its operators of 2026: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, int64, reason

T, WIDTH, RANK, SLICES = 7, 48, 5, 3
LISTS = (int64(T), int64(T), int32(9), int32(10), int32(9), int32(1))
ONE = "every token has an adapter, all the same"


@pytest.mark.parametrize("active", [(), (int32(1),), (4,)])
def test_the_product_back(active):
    args = (fp32(SLICES, T, RANK), None, bf16(T, WIDTH), *LISTS, *active)
    work = counted("vllm::lora_expand", *args, 0, True).work
    assert (work.matrix_flops, work.other_flops) == (2 * T * RANK * WIDTH, T * WIDTH)
    assert work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH + 2 * T * WIDTH
    assert (work.bytes_written, work.assumption) == (2 * T * WIDTH, ONE)
    assert counted("vllm::lora_expand", *args, 0, False).work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH
    assert "not understood" in reason("vllm::lora_expand", *args, 16, True)


D = 30
X, W, SIZE = bf16(T, D), bf16(D), 2 * T * D


def test_norms_of_two_tensors():
    args = (X, W, bf16(T, 20), bf16(20), 1e-6, 1e-6)
    read, second = SIZE + 2 * D + 2 * T * 20 + 40, 2 * T * 20
    assert figures("vllm::fused_mla_dual_rms_norm", *args) == (0, 4 * T * (D + 20), read, SIZE + second, "bf16")
    group = figures("vllm::fused_mla_dual_rms_norm_group_quant", X, W, bf16(T, 20), bf16(20), 1e-6, 1e-6, 15, False)
    assert group == (0, 11 * T * D + 4 * T * 20, read, T * D + 8 * T + second, "bf16")
    assert figures("vllm::fused_mla_dual_rms_norm_per_token_quant", *args)[3] == T * D + 4 * T + second


@pytest.mark.parametrize(
    "name",
    words(
        "kda_attention bailing_v3_kda_attention sparse_attn_indexer rocm_aiter_sparse_attn_indexer apply_bnb_4bit lora_linear_async"
        " fused_rope_unified_mla_kv_cache_update fused_qk_norm_rope_and_unified_kv_cache_update sequence_parallel_chunk_impl"
        " fused_qk_norm_mrope_and_unified_kv_cache_update qwen_gdn_attention_core_fused_norm_packed olmo_hybrid_gdn_full_forward"
        " maybe_calc_kv_scales _apply_gguf_embedding"
    ),
)
def test_layers_only_call_others(name):
    assert count(Signature(f"vllm::{name}", (X, X, None))).kind == "composite"
