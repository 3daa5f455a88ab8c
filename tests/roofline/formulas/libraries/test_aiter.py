"""AITER and ATOM: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int64, reason, uint8

T, D = 7, 30
M, N, K = 5, 24, 48
READ = 2 * T * D + 2 * D
MADE = 2 * T * D


def test_norms_that_return_their_result():
    """vLLM's capture on an MI300X: TraceLens, tests/traces/inference/vllm_decode_full."""
    event = {
        "Input Dims": [[32, 2880], [2880], [], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "1.0000000000000001e-05", "0"],
    }  # fmt: skip
    assert count(from_kineto("aiter::rms_norm", event)).work == Work(0, 4 * 92160, 2 * 92160 + 5760, 2 * 92160, "bf16")
    assert figures("aiter::rmsnorm2d_fwd", bf16(T, D), bf16(D), 1e-5) == (0, 4 * T * D, READ, MADE, "bf16")
    # mean and variance 4, scale and shift 2, a weight and a bias 2
    assert figures("aiter::layernorm2d_fwd", bf16(T, D), bf16(D), bf16(D), 1e-5) == (0, 8 * T * D, READ + 2 * D, MADE, "bf16")


def test_group_norm_of_both_versions():
    image, weight = bf16(2, 8, 3, 5), bf16(8)
    expected = (0, 8 * 240, 2 * 240 + 32, 2 * 240, "bf16")
    assert figures("aiter::_groupnorm_run", image, 4, weight, weight, 1e-6) == expected
    assert figures("aiter::_groupnorm_run", image, fp32(99), image, 4, weight, weight, 1e-6) == expected


def test_rope_of_a_sequence():
    x, half, whole = bf16(T, 2, 3, 10), bf16(T, 1, 1, 5), bf16(T, 1, 1, 10)
    numbers = T * 60
    assert figures("aiter::rope_fwd_impl", x, x, half, 0, True, False) == (0, 3 * numbers, 2 * numbers + 10 * T, 2 * numbers, "bf16")
    assert figures("aiter::rope_fwd_impl", x, x, half, 0, False, False)[1] == 3 * numbers // 2, "half of each head"
    two = figures("aiter::rope_cached_2c_fwd_impl", x, x, x, x, whole, whole, 0, False, False)
    assert two == (0, 6 * numbers, 4 * numbers + 40 * T, 4 * numbers, "bf16")
    table = bf16(99, 1, 1, 5)
    placed = figures("aiter::rope_cached_positions_fwd_impl", x, x, table, table, int64(T, 2), 0, True, False)
    assert placed == (0, 3 * numbers, 2 * numbers + 8 * 14 + 14 * 20, 2 * numbers, "bf16")
    assert reason("aiter::rope_fwd_impl", x, x, half) == "argument 'shared' not recorded"


def test_product_as_recorded():
    """Qwen3-8B in SGLang on an MI300X: TraceLens, tests/traces/inference/sglang_prefilldecode."""
    event = {
        "Input Dims": [[15360, 4096], [6144, 4096], [], [], [], [], []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "", "Scalar", "", "", ""], "Concrete Inputs": ["", "", "", "15", "", "", ""],
    }  # fmt: skip
    m, n, k = 15360, 6144, 4096
    assert count(from_kineto("aiter::gemm_a16w16", event)).work == Work(2 * m * n * k, 0, 2 * (m + n) * k, 2 * m * n, "bf16")


def test_names_of_the_autumn_of_2025():
    """``wrapper_`` before the name, and in September an empty tensor before the arguments."""
    expected = figures("aiter::rmsnorm2d_fwd", bf16(T, D), bf16(D), 1e-5)
    assert figures("aiter::wrapper_rmsnorm2d_fwd", bf16(T, D), bf16(D), 1e-5) == expected
    assert figures("aiter::wrapper_rmsnorm2d_fwd", fp32(1), bf16(T, D), bf16(D), 1e-5) == expected
    assert figures("aiter::gemm_a16w16", fp32(1), bf16(M, K), bf16(N, K), None, 15)[0] == 2 * M * N * K


def test_activations_that_become_fp4_on_the_way():
    """The weight may lie in blocks of 16 rows."""
    m, n, k = 5, 32, 64
    read = 2 * m * k + n * k // 2 + n * k // 32
    expected = (2 * m * n * k, 7 * m * k + m * n, read, 2 * m * n, "fp4")
    scale = uint8(n, k // 32)
    assert figures("aiter::gemm_a16wfp4_", bf16(m, k), uint8(n, k // 2), scale, False, 15, None, None) == expected
    assert figures("aiter::gemm_a16wfp4", bf16(m, k), uint8(n, k // 2), scale, False, 15, bf16(m, n), None) == expected
    blocks = (bf16(m, k), uint8(n // 16, 8 * k), scale)
    assert figures("aiter::gemm_a16wfp4_preshuffle_", *blocks, True, 15, None, None, False) == expected
    batched = (bf16(3, m, k), uint8(3, n, k // 2), uint8(3, n, k // 32))
    for name in ("batched_gemm_a16wfp4_", "batched_gemm_a16wfp4"):
        made = figures(f"aiter::{name}", *batched, 15, None, None, True, True, None)
        assert made == (*(3 * number for number in expected[:4]), "fp4")
    assert "another version" in reason("aiter::gemm_a16wfp4_", bf16(m, 60), uint8(n, k // 2), scale, False, 15)


T, H, WIDE, ROT = 7, 3, 20, 8  # tokens, heads, compressed width, rotated width
TABLES = (bf16(99, ROT // 2), bf16(99, ROT // 2))
PLACED = 8 * T + 2 * T * ROT  # positions and their rows of both tables
TURNED = 3 * T * (H + 1) * ROT  # queries of all heads, one key


def latent(cache, out):
    return (bf16(T, H, WIDE), bf16(T, H, ROT), bf16(T, WIDE), bf16(T, ROT), cache(99, 1, WIDE + ROT), out(T, H, WIDE + ROT),
            int64(T), fp32(1), fp32(1), int64(T), *TABLES, True, True)  # fmt: skip


@pytest.mark.parametrize("name", ["fused_qk_rope_concat_and_cache_mla", "fused_qk_rope_concat_and_cache_mla_seg"])
def test_latent_queries_and_keys(name):
    queries, keys = T * H * (WIDE + ROT), T * (WIDE + ROT)
    read = 2 * (queries + keys) + PLACED + 8 * T + 8
    assert figures(f"aiter::{name}", *latent(bf16, bf16)) == (0, TURNED, read, 2 * (queries + keys), "bf16")
    assert figures(f"aiter::{name}", *latent(fp8, fp8)) == (0, TURNED + 5 * (queries + keys), read, queries + keys, "bf16")


def test_the_index_of_a_sparse_attention():
    width, block = 16, 8
    args = (bf16(T, H, width), fp8(T, H, width), bf16(T, H), fp32(T, H), bf16(T, width), uint8(9, 16, width + 8), int64(T), bf16(width),
            bf16(width), int64(T), *TABLES, 1e-6, block, None, 0.5, False, True)  # fmt: skip
    numbers = T * H * width
    assert figures("aiter::indexer_qk_rope_quant_and_cache", *args) == (
        0, 3 * T * (H + 1) * ROT + 7 * numbers + 2 * T * H + T * width * (4 + 2 + 2 + 7),
        2 * numbers + 2 * T * H + 2 * T * width + 4 * width + 8 * T + PLACED, numbers + 4 * T * H + T * (width + 4 * 2), "bf16",
    )  # fmt: skip
    assert "invalid size" in reason("aiter::indexer_qk_rope_quant_and_cache", *args[:13], 0)
    key = figures("aiter::indexer_k_quant_and_cache", bf16(T, width), uint8(9, 16, 24), int64(T), block, None, False)
    assert key == (0, 7 * T * width, 2 * T * width + 8 * T, T * (width + 8), "bf16")
    gathered = figures("aiter::cp_gather_indexer_k_quant_cache", uint8(9, 16, 24), fp8(5, width), uint8(5, 8), int64(2, 3), int64(3))
    assert gathered == (0, 0, 5 * 24 + 8 * 6 + 8 * 3, 5 * 24, None)


HQ, HK, HD = 3, 2, 10
QKV = bf16(T, (HQ + 2 * HK) * HD)
NUMBERS = T * (HQ + HK) * HD
VALUES = T * HK * HD
TABLE = bf16(99, ROT)
ROTATED = 3 * T * (HQ + HK) * ROT


def test_queries_and_keys_and_the_cache():
    caches = (fp8(9, HK, 5, 16, 2), fp8(9, HK, HD, 16), int64(T))
    end = (HQ, HK, HK, HD, 1e-6, bf16(HD), bf16(HD), TABLE, True, int64(T), *caches, None, fp32(1), fp32(1))
    stored = T * HK * HD * 2  # keys and values
    expected = (
        0, 4 * NUMBERS + ROTATED + 5 * stored, 2 * NUMBERS + 2 * VALUES + 4 * HD + 8 * T + 2 * T * ROT + 8 * T + 8,
        2 * NUMBERS + stored, "bf16",
    )  # fmt: skip
    assert figures("aiter::fused_qk_norm_rope_cache_quant_shuffle", QKV, *end) == expected
    parts = (bf16(T, HQ * HD), bf16(T, HK * HD), bf16(T, HK * HD))
    assert figures("aiter::_fused_qk_norm_rope_cache_quant_shuffle_hip", *parts, *end) == expected


T, D_ATOM = 7, 64
X, W = bf16(T, D_ATOM), bf16(D_ATOM)
SIZE = 2 * T * D_ATOM


@pytest.mark.parametrize(
    ("kind", "width", "made"),
    [(2, D_ATOM, T * D_ATOM + 4 * T), (3, D_ATOM, T * D_ATOM // 2 + T * D_ATOM // 32), (4, 256, T * 256 + 4 * T * 2)],
)
def test_a_norm_with_scales_of_a_kind(kind, width, made):
    x = bf16(T, width)
    added = figures("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, kind, False, x)
    assert added == (0, 12 * T * width, 4 * T * width + 2 * width, made + 2 * T * width, "bf16")
    assert "another version" in reason("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, 1, False, None)


def test_attention_of_a_step():
    q, k = bf16(T, 4, 10), bf16(T, 2, 10)
    args = (q, None, k, k, int64(T), None, False, bf16(T, 80))
    work = counted("aiter::unified_attention_with_output_base", *args).work
    assert work.matrix_flops == 4 * 4 * (T * (T + 1) // 2) * 10
    latent = (*args[:6], True, bf16(T, 80))
    assert count(Signature("aiter::unified_attention_with_output_base", latent)).kind == "composite"
