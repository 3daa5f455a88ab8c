"""SGLang's operators: closed forms at odd shapes, and calls as its traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, TensorArg, from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, uint8

T, D = 7, 30
M, N, K = 5, 24, 48


def test_norms():
    plain = (0, 4 * T * D, 2 * T * D + 2 * D, 2 * T * D, "bf16")
    assert figures("sgl_kernel::rmsnorm", bf16(T, D), bf16(T, D), bf16(D), 1e-6, False) == plain
    assert figures("sgl_kernel::gemma_rmsnorm", bf16(T, D), bf16(T, D), bf16(D), 1e-6, False) == plain
    added = (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")
    assert figures("sgl_kernel::fused_add_rmsnorm", bf16(T, D), bf16(T, D), bf16(D), 1e-6, False) == added
    assert figures("sgl_kernel::gemma_fused_add_rmsnorm", bf16(T, D), bf16(T, D), bf16(D), 1e-6, False) == added


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


@pytest.mark.parametrize("name", ["sgl_per_token_group_quant_fp8", "sgl_per_token_group_quant_8bit", "sgl_per_token_quant_fp8"])
def test_conversions_search_for_a_range(name):
    assert figures(f"sgl_kernel::{name}", bf16(T, D), fp8(T, D), fp32(T, 2)) == (0, 7 * T * D, 2 * T * D, T * D + 8 * T, "bf16")


def test_a_conversion_with_a_given_scale_or_an_activation():
    tensor = "sgl_kernel::sgl_per_tensor_quant_fp8"
    assert figures(tensor, bf16(T, D), fp8(T, D), fp32(1), True) == (0, 5 * T * D, 2 * T * D + 4, T * D, "bf16")
    assert figures(tensor, bf16(T, D), fp8(T, D), fp32(1), False) == (0, 7 * T * D, 2 * T * D, T * D + 4, "bf16")
    fused = "sgl_kernel::sgl_per_token_group_quant_8bit_v2"
    assert figures(fused, bf16(T, 2 * D), fp8(T, D), fp32(T, 2))[1:4] == (22 * T * D, 4 * T * D, T * D + 8 * T)
    assert figures(fused, bf16(T, D), fp8(T, D), fp32(T, 2))[1] == 7 * T * D
    assert figures("sgl_kernel::scaled_fp4_quant", uint8(T, 16), bf16(T, 32), int32(128, 4), fp32(1))[1] == 7 * T * 32


def test_products():
    flops = 2 * M * N * K
    read = M * K + N * K + 4 * (M + N)
    scaled = (fp8(M, K), fp8(K, N), fp32(M, 1), fp32(1, N), 15)
    assert figures("sgl_kernel::fp8_scaled_mm", *scaled, None) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("sgl_kernel::fp8_scaled_mm", *scaled, bf16(N)) == (flops, 2 * M * N, read + 2 * N, 2 * M * N, "fp8")
    assert figures("sgl_kernel::fp8_blockwise_scaled_mm", *scaled) == (flops, M * N, read, 2 * M * N, "fp8")
    integers = (TensorArg((M, K), "int8"), TensorArg((K, N), "int8"), fp32(M), fp32(N), 5, None)
    assert figures("sgl_kernel::int8_scaled_mm", *integers) == (flops, M * N, read, 2 * M * N, "int8")
    deep = (fp8(M, K), fp32(M, 1), fp8(N, K), fp32(1, 1), bf16(M, N))
    assert figures("sglang::deep_gemm_fp8_fp8_bf16_nt", *deep) == (flops, M * N, M * K + N * K + 4 * M + 4, 2 * M * N, "fp8")
    batch = (fp8(3, M, K), fp8(3, K, N), bf16(3, M, N), fp32(1), fp32(1))
    assert figures("sgl_kernel::bmm_fp8", *batch) == (3 * flops, 3 * M * N, 3 * (M + N) * K + 8, 6 * M * N, "fp8")


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


def test_norm_and_rotation_without_a_table():
    args = (bf16(T, 70), 3, 2, 2, 10, 1e-6, bf16(10), bf16(10), 10000.0, True, int64(T), 1.0, 1.0, 1.0, 1.0, 10)
    assert figures("sgl_kernel::fused_qk_norm_rope", *args) == (0, 7 * T * 50, 2 * T * 50 + 40 + 8 * T, 2 * T * 50, "bf16")


def test_routing_with_one_group():
    assert figures("sgl_kernel::kimi_k2_moe_fused_gate", bf16(T, 8), bf16(8), 3, True, 2.5, False) == (
        0, 15 * T * 8, 2 * T * 8 + 16, T * 3 * 8, "bf16",
    )  # fmt: skip


def test_functions_that_the_profiler_wraps_only_call_others():
    outcome = count(Signature("sglang_profiler::rmsnorm_rmsnorm2d_fwd_109", (bf16(T, D), bf16(D))))
    assert outcome.kind == "composite"


def test_copies_and_rows():
    assert figures("sgl_kernel::concat_mla_k", bf16(T, 3, 10), bf16(T, 3, 8), bf16(T, 1, 2)) == (0, 0, 2 * T * 26, 2 * T * 30, None)
    assert figures("sgl_kernel::shuffle_rows", bf16(T, D), int32(3), bf16(3, D))[2] == 2 * 3 * D + 4 * 3, "the rows that the map names"
    assert figures("sgl_kernel::shuffle_rows", bf16(T, D), int32(14), bf16(14, D)) == (0, 0, 2 * T * D + 4 * 14, 2 * 14 * D, None)
    assert counted("sgl_kernel::weak_ref_tensor", bf16(T, D)).work == Work()
