"""SGLang's compiled operators and those in Python: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, from_kineto
from rooflines.roofline.formulas import Work, count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32, int32, int64, uint8

T, D = 7, 30


def test_gated_activation_as_recorded():
    """Qwen3-8B on an MI300X: TraceLens, tests/traces/inference/sglang_prefilldecode."""
    args = {"Input Dims": [[15360, 12288], [15360, 24576]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    numbers = 15360 * 12288
    assert count(from_kineto("sgl_kernel::silu_and_mul", args)).work == Work(0, 15 * numbers, 4 * numbers, 2 * numbers, "bf16")
    assert figures("sgl_kernel::gelu_quick", bf16(T, D), bf16(T, D))[1] == 15 * T * D


def test_cache_as_recorded():
    """The same trace: slots for 835,874 tokens, of which 15,360 are written; values lie between queries and keys."""
    args = {
        "Input Dims": [[15360, 1024], [15360, 1024], [835874, 1024], [835874, 1024], [15360], [], []],
        "Input type": ["c10::BFloat16"] * 4 + ["long int", "Scalar", "Scalar"],
        "Input Strides": [[1024, 1], [6144, 1], [1024, 1], [1024, 1], [1], [], []],
        "Concrete Inputs": ["", "", "", "", "", "2048", "0"],
    }
    moved = 2 * 2 * 15360 * 1024
    assert count(from_kineto("sglang::store_cache", args)).work == Work(0, 0, moved + 8 * 15360, moved)
    cache = bf16(99, 8)
    assert figures("sgl_kernel::store_kv_cache", cache, cache, int64(T), bf16(T, 8), bf16(T, 8))[3] == 4 * T * 8


def test_rotary_embedding_with_the_keys_going_into_the_cache():
    q, k = bf16(T, 3, 10), bf16(T, 2, 10)
    table, positions = fp32(99, 10), int64(T)
    plain = figures(
        "sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, 0, None, None, None, None
    )
    assert plain == (0, 3 * T * 50, 2 * T * 50 + 8 * T + 4 * T * 10, 2 * T * 50, "bf16")
    cache = fp8(99, 2, 10)
    stored = (bf16(T, 2, 10), cache, cache, int64(T))
    newer = figures("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, *stored)
    both = figures("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, 0, *stored)
    assert both == newer, "without a stream before the values"
    assert both[2] - plain[2] == 2 * T * 20 + 8 * T
    assert both[3] - plain[3] == 2 * T * 20


def test_functions_that_the_profiler_wraps_only_call_others():
    outcome = count(Signature("sglang_profiler::rmsnorm_rmsnorm2d_fwd_109", (bf16(T, D), bf16(D))))
    assert outcome.kind == "composite"


E, TOP = 6, 2
ROWS = T * TOP


def test_grouped_products_of_blackwell():
    args = (fp8(ROWS, 32), fp8(E, 20, 32), uint8(ROWS, 1), uint8(E, 20, 1), bf16(ROWS, 20), int32(E, 3), int32(E), int32(E))
    made = figures("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm", *args)
    assert made == (2 * ROWS * 32 * 20, 0, ROWS * 33 + E * 20 * 33, 2 * ROWS * 20, "fp8")
    converted = (bf16(ROWS, 32), int32(E, 3), int32(E), int32(E), fp8(ROWS, 32), uint8(ROWS, 1))
    expected = (0, 7 * ROWS * 32, 2 * ROWS * 32 + 4 * 5 * E, ROWS * 33, "bf16")
    assert figures("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_quant", *converted) == expected
    assert figures("_C::mxfp8_experts_quant", *converted) == expected


H, KV, HD, ROT = 3, 2, 10, 8
Q, KEY = bf16(T, H, HD), bf16(T, KV, HD)
NUMBERS = T * (H + KV) * HD
PLACES = (bf16(99, ROT), int64(T))
TURNED, READ = 3 * T * (H + KV) * ROT, 8 * T + 2 * T * ROT


def test_norms_and_positions_of_heads():
    normed = figures("sglang::fused_inplace_qknorm", Q, KEY, bf16(HD), bf16(HD), 1e-6, 0)
    assert normed == (0, 4 * NUMBERS, 2 * NUMBERS + 4 * HD, 2 * NUMBERS, "bf16")
    both = (0, 4 * NUMBERS + TURNED, 2 * NUMBERS + 4 * HD + READ, 2 * NUMBERS, "bf16")
    assert figures("sglang::fused_inplace_qknorm_rope", Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    assert figures("sglang::fused_qknorm_rope_out_of_place", Q, KEY, Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    turned = T * (H + KV) * ROT
    assert figures("sglang::apply_rope_inplace", Q, KEY, *PLACES, True, ROT) == (0, TURNED, 2 * turned + READ, 2 * turned, "bf16")
    inside = (bf16(T, (H + 2 * KV) * HD), bf16(HD), bf16(HD), int64(T), H, KV, KV, HD, 1e-6, 1e4, True, 1.0, 1.0, 1.0, 1.0, HD)
    assert figures("sglang::fused_qk_norm_rope_out", *inside) == (0, 7 * NUMBERS, 2 * NUMBERS + 4 * HD + 8 * T, 2 * NUMBERS, "bf16")


def test_positions_and_the_cache():
    cache = fp8(99, KV, HD)
    args = (Q, KEY, KEY, cache, cache, *PLACES, int64(T), True, ROT)
    turned, keys = T * (H + KV) * ROT, T * KV * HD
    made = figures("sglang::apply_rope_inplace_with_kvcache", *args)
    assert made == (0, TURNED + 5 * 2 * keys, 2 * turned + READ + 2 * keys + 8 * T, 2 * turned + 2 * keys, "bf16")


@pytest.mark.parametrize(
    "name",
    words(
        "unified_linear_attention_with_output apply_bnb_4bit moe_forward_piecewise_cuda_graph_impl broadcast_indexer_topk_from_rank0_"
        " deepseek_v4_attention_with_output flash_attn_varlen_func_op flash_attn_varlen_func_op_lse gdn_with_output"
        " mla_bmm_then_unified_attention nemotron_mamba2_with_output pcg_dsa_indexer_prefill_split"
        " unified_attention_with_output_and_lse unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear"
        " transformers_moe_forward moe_impl"
        " fused_moe_bypassed_piecewise_cuda_graph_impl flashinfer_fp4_moe_forward_piecewise_cuda_graph_impl"
        " humming_moe_runner_core_run dsv2_flashinfer_moe_dual_stream_graph dsv4_flashinfer_moe_dual_stream_outputs"
    ),
)
def test_layers_only_call_others(name):
    assert count(Signature(f"sglang::{name}", (bf16(T, D), None))).kind == "composite"
