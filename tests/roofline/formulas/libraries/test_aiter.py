"""AITER, ATOM and SGLang: calls as traces record them, and names of other times."""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature, from_kineto
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64

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


def test_attention_of_a_step():
    q, k = bf16(T, 4, 10), bf16(T, 2, 10)
    args = (q, None, k, k, int64(T), None, False, bf16(T, 80))
    work = counted("aiter::unified_attention_with_output_base", *args).work
    assert work.matrix_flops == 4 * 4 * (T * (T + 1) // 2) * 10
    latent = (*args[:6], True, bf16(T, 80))
    assert count(Signature("aiter::unified_attention_with_output_base", latent)).kind == "composite"


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
