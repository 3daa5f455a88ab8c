"""AITER and ATOM: calls as traces record them, and names of other times."""

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


T, H, WIDE, ROT = 7, 3, 20, 8  # tokens, heads, compressed width, rotated width
TABLES = (bf16(99, ROT // 2), bf16(99, ROT // 2))


def latent(cache, out):
    return (bf16(T, H, WIDE), bf16(T, H, ROT), bf16(T, WIDE), bf16(T, ROT), cache(99, 1, WIDE + ROT), out(T, H, WIDE + ROT),
            int64(T), fp32(1), fp32(1), int64(T), *TABLES, True, True)  # fmt: skip


T, D_ATOM = 7, 64


def test_attention_of_a_step():
    q, k = bf16(T, 4, 10), bf16(T, 2, 10)
    args = (q, None, k, k, int64(T), None, False, bf16(T, 80))
    work = counted("aiter::unified_attention_with_output_base", *args).work
    assert work.matrix_flops == 4 * 4 * (T * (T + 1) // 2) * 10
    latent = (*args[:6], True, bf16(T, 80))
    assert count(Signature("aiter::unified_attention_with_output_base", latent)).kind == "composite"
