"""AITER's operators: closed forms at odd shapes, and calls as traces of vLLM, SGLang and diffusion models record them."""

from __future__ import annotations

from rooflines.profiler.trace.signature import from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, figures, fp32, int64, reason, uint8

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


def test_rope_of_packed_sequences_and_images():
    x, half = bf16(T, 3, 10), bf16(99, 1, 1, 5)
    numbers = T * 30
    for name in ("rope_thd_fwd_impl", "rope_thd_bwd_impl"):
        packed = figures(f"aiter::{name}", x, x, int64(4), half, 0, True, False)
        assert packed == (0, 3 * numbers, 2 * numbers + 8 * 4 + 2 * 99 * 5, 2 * numbers, "bf16")
    image, row, column = bf16(2, 6, 3, 20), bf16(1, 2, 1, 5), bf16(1, 3, 1, 5)
    for name in ("rope_2d_fwd_impl", "rope_2d_bwd_impl"):
        turned = figures(f"aiter::{name}", image, image, row, row, column, column, 2, 3, 0, True, False)
        assert turned == (0, 3 * 720, 2 * 720 + 2 * 2 * (10 + 15), 2 * 720, "bf16")
    placed = ("rope_cached_positions_offsets_fwd_impl", "rope_cached_positions_offsets_2c_fwd_impl")
    single = figures(f"aiter::{placed[0]}", bf16(T, 2, 3, 10), bf16(T, 2, 3, 10), half, half, int64(T, 2), int64(T, 2), 0, True, False)
    assert single == (0, 3 * T * 60, 2 * T * 60 + 2 * 8 * 14 + 14 * 20, 2 * T * 60, "bf16")
    y = bf16(T, 2, 1, 10)
    double = (bf16(T, 2, 3, 10), y, bf16(T, 2, 3, 10), y, half, half, int64(T, 2), int64(T, 2), 0, True, False)
    assert figures(f"aiter::{placed[1]}", *double)[1:4] == (3 * T * 80, 2 * T * 80 + 2 * 8 * 14 + 14 * 20, 2 * T * 80)
