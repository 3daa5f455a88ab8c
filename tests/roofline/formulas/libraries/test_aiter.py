"""AITER's operators: closed forms at odd shapes, and calls as traces of vLLM, SGLang and diffusion models record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import TensorArg, from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32, int64, reason, uint8

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


@pytest.mark.parametrize("name", ["rmsnorm2d_fwd_with_add", "rmsnorm2d_fwd_with_add_ck", "add_rmsnorm"])
def test_norms_of_a_sum_write_the_sum_too(name):
    args = (bf16(T, D), bf16(T, D), bf16(T, D), bf16(T, D), bf16(D), 1e-5, 0)
    assert figures(f"aiter::{name}", *args) == (0, 5 * T * D, READ + 2 * T * D, 2 * MADE, "bf16")


def test_norms_with_a_conversion():
    dynamic = (fp8(T, D), bf16(T, D), fp32(T, 1), bf16(D), 1e-5)
    assert figures("aiter::rmsnorm2d_fwd_with_dynamicquant", *dynamic) == (0, 11 * T * D, READ, T * D + 4 * T, "bf16")
    assert figures("aiter::rmsnorm_quant", *dynamic) == (0, 11 * T * D, READ, T * D + 4 * T, "bf16")
    added = (fp8(T, D), bf16(T, D), bf16(T, D), bf16(T, D), fp32(T, 1), bf16(D), 1e-5)
    made = T * D + MADE + 4 * T
    assert figures("aiter::rmsnorm2d_fwd_with_add_dynamicquant", *added) == (0, 12 * T * D, READ + 2 * T * D, made, "bf16")
    assert figures("aiter::add_rmsnorm_quant", *added) == (0, 12 * T * D, READ + 2 * T * D, made, "bf16")
    smooth = (fp8(T, D), bf16(T, D), fp32(D), fp32(T, 1), bf16(D), 1e-5)
    assert figures("aiter::rmsnorm2d_fwd_with_smoothquant", *smooth) == (0, 12 * T * D, READ + 4 * D, T * D + 4 * T, "bf16")


def test_group_norm_of_both_versions():
    image, weight = bf16(2, 8, 3, 5), bf16(8)
    expected = (0, 8 * 240, 2 * 240 + 32, 2 * 240, "bf16")
    assert figures("aiter::_groupnorm_run", image, 4, weight, weight, 1e-6) == expected
    assert figures("aiter::_groupnorm_run", image, fp32(99), image, 4, weight, weight, 1e-6) == expected


def test_activations_and_conversions():
    assert figures("aiter::silu_and_mul", bf16(T, D), bf16(T, 2 * D), 0.0) == (0, 15 * T * D, 2 * MADE, MADE, "bf16")
    assert figures("aiter::scaled_silu_and_mul", fp8(T, D), bf16(T, 2 * D), fp32(1))[1:] == (20 * T * D, 2 * MADE + 4, T * D, "bf16")
    per_token = (fp8(T, D), bf16(T, D), fp32(T, 1), None, False)
    assert figures("aiter::dynamic_per_token_scaled_quant", *per_token) == (0, 7 * T * D, MADE, T * D + 4 * T, "bf16")
    assert figures("aiter::static_per_tensor_quant", fp8(T, D), bf16(T, D), fp32(1)) == (0, 5 * T * D, MADE + 4, T * D, "bf16")


def test_rotary_embedding_with_a_table_for_cosines_and_one_for_sines():
    args = (int64(T), bf16(T, 30), bf16(T, 20), 10, bf16(99, 5), bf16(99, 5), True, False)
    assert figures("aiter::rotary_embedding_fwd", *args) == (0, 3 * T * 50, 2 * T * 50 + 8 * T + 2 * T * 10, 2 * T * 50, "bf16")


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
    assert reason("aiter::rope_fwd_impl", x, x, half) == "layout of the frequencies not recorded"


def test_product_as_recorded():
    """Qwen3-8B in SGLang on an MI300X: TraceLens, tests/traces/inference/sglang_prefilldecode."""
    event = {
        "Input Dims": [[15360, 4096], [6144, 4096], [], [], [], [], []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "", "Scalar", "", "", ""], "Concrete Inputs": ["", "", "", "15", "", "", ""],
    }  # fmt: skip
    m, n, k = 15360, 6144, 4096
    assert count(from_kineto("aiter::gemm_a16w16", event)).work == Work(2 * m * n * k, 0, 2 * (m + n) * k, 2 * m * n, "bf16")


def test_products():
    flops = 2 * M * N * K
    read = (M + N) * K + 4 * (M + N)
    scaled = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(N, 1))
    assert figures("aiter::gemm_a8w8", *scaled, None, 15) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("aiter::gemm_a8w8_blockscale", *scaled, 15, False) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("aiter::gemm_a8w8_ck", *scaled, bf16(M, N), bf16(N), 0) == (flops, 2 * M * N, read + 2 * N, 2 * M * N, "fp8")
    assert figures("aiter::gemm_a8w8_blockscale_ck", *scaled, bf16(M, N)) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("aiter::hipb_mm", bf16(M, K), bf16(K, N), 7, None, None) == (flops, 0, 2 * (M + N) * K, 2 * M * N, "bf16")
    batched = figures("aiter::batched_gemm_bf16", bf16(3, M, K), bf16(3, N, K), bf16(3, M, N))
    assert batched == (3 * flops, 0, 6 * (M + N) * K, 6 * M * N, "bf16")


@pytest.mark.parametrize("dtype", ["uint8", "float4_e2m1fn_x2"])
def test_products_of_4_bits(dtype):
    scales = (uint8(M, K // 32), uint8(N, K // 32))
    left, right = TensorArg((M, K // 2), dtype), TensorArg((N, K // 2), dtype)
    expected = (2 * M * N * K, M * N, (M + N) * (K // 2 + K // 32), 2 * M * N, "fp4")
    assert figures("aiter::gemm_a4w4", left, right, *scales, None, 15) == expected
    assert figures("aiter::gemm_a4w4_blockscale", left, right, *scales, bf16(M, N), 0) == expected


def test_few_rows():
    assert figures("aiter::LLMM1", bf16(N, K), bf16(1, K), bf16(1, N), 4) == (2 * N * K, 0, 2 * (N + 1) * K, 2 * N, "bf16")


def test_names_of_the_autumn_of_2025():
    """``wrapper_`` before the name, and in September an empty tensor before the arguments."""
    expected = figures("aiter::rmsnorm2d_fwd", bf16(T, D), bf16(D), 1e-5)
    assert figures("aiter::wrapper_rmsnorm2d_fwd", bf16(T, D), bf16(D), 1e-5) == expected
    assert figures("aiter::wrapper_rmsnorm2d_fwd", fp32(1), bf16(T, D), bf16(D), 1e-5) == expected
    assert figures("aiter::gemm_a16w16", fp32(1), bf16(M, K), bf16(N, K), None, 15)[0] == 2 * M * N * K


@pytest.mark.parametrize(
    "name",
    ["gfx950_a8w8_blockscale_asm", "mi350_a8w8_blockscale_asm", "gemm_a8w8_tune", "gemm_a8w8_bpreshuffle_tune",
     "gemm_a8w8_bpreshuffle_cktile_tune", "gemm_a8w8_blockscale_tune", "gemm_a8w8_blockscale_cktile_tune",
     "gemm_a8w8_blockscale_bpreshuffle_tune", "gemm_a8w8_blockscale_bpreshuffle_cktile_tune",
     "_opus_gemm_a8w8_blockscale_bpreshuffle_tune_raw"],
)  # fmt: skip
def test_products_into_a_result(name):
    args = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(N, 1), bf16(M, N), 3)
    assert figures(f"aiter::{name}", *args) == (2 * M * N * K, M * N, (M + N) * K + 4 * (M + N), 2 * M * N, "fp8")


def test_products_of_16_bits():
    expected = (2 * M * N * K, 0, 2 * (M + N) * K, 2 * M * N, "bf16")
    left, right, out = bf16(M, K), bf16(N, K), bf16(M, N)
    assert figures("aiter::gemm_a16w16_", left, right, None, 15, out, None, None, False) == expected
    assert figures("aiter::gemm_a16w16_atomic_", left, right, 15, None, None) == expected
    assert figures("aiter::gemm_a16w16_atomic_", left, right, 6, None, None)[3] == 4 * M * N
    assert figures("aiter::_opus_gemm_a16w16_tune_raw", left, right, out, None, None, 0, 0) == expected
    assert figures("aiter::_opus_gemm_bf16_dispatch", left, right, out, None, None, None, None) == expected
    assert figures("aiter::batched_gemm_bf16_tune", bf16(3, M, K), bf16(3, N, K), bf16(3, M, N), 1)[0] == 3 * 2 * M * N * K


def test_other_orders_of_arguments():
    flops, read = 2 * M * N * K, (M + N) * K + 4 * (M + N)
    args = (fp8(M, K), fp8(N, K), bf16(M, N), fp32(M, 1), fp32(N, 1))
    assert figures("aiter::gemm_a8w8_blockscale_bpreshuffle_asm", *args, None, 0) == (flops, M * N, read, 2 * M * N, "fp8")
    batched = (fp8(3, M, K), fp8(3, N, K), bf16(3, M, N), fp32(3, M), fp32(3, N))
    assert figures("aiter::_opus_bmm_a8w8_mxscale_raw", *batched, 2, 0) == (3 * flops, 3 * M * N, 3 * read, 6 * M * N, "fp8")
    many = figures("aiter::batched_gemm_a8w8_tune", fp8(3, M, K), fp8(3, N, K), fp32(3, M), fp32(3, N), bf16(3, M, N), 1, 0)
    assert many == (3 * flops, 3 * M * N, 3 * read, 6 * M * N, "fp8")


def test_products_of_4_bits_of_triton():
    scales = (uint8(M, K // 32), uint8(N, K // 32))
    left, right = uint8(M, K // 2), uint8(N, K // 2)
    read = (M + N) * (K // 2 + K // 32)
    expected = (2 * M * N * K, M * N, read, 2 * M * N, "fp4")
    assert figures("aiter::gemm_afp4wfp4_", left, right, *scales, 15, None, None) == expected
    assert figures("aiter::gemm_afp4wfp4_", left, right, *scales, 15, bf16(M, N), None, False) == expected
    assert figures("aiter::_nvfp4_gemm_asm", left, right, *scales, 1.0, 1.0, bf16(M, N)) == expected
    assert figures("aiter::gemm_a4w4_blockscale_tune", left, right, *scales, bf16(M, N), 1, 0) == expected


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
    assert "differ" in reason("aiter::gemm_a16wfp4_", bf16(m, 60), uint8(n, k // 2), scale, False, 15)


def test_more_norms_and_conversions():
    assert figures("aiter::_fused_rmsnorm", bf16(T, D), bf16(D), 1e-5) == (0, 4 * T * D, READ, MADE, "bf16")
    both = figures("aiter::_fused_rmsnorm_add", bf16(T, D), bf16(D), 1e-5, bf16(T, D))
    assert both == (0, 5 * T * D, READ + 2 * T * D, 2 * MADE, "bf16")
    for name in ("group", "per_token"):
        gated = figures(f"aiter::gated_rmsnorm_fp8_{name}_quant", fp8(T, D), fp32(T, 1), bf16(T, D), bf16(T, D), bf16(D), 1e-5, 30)
        assert gated == (0, (4 + 14 + 1 + 7) * T * D, READ + 2 * T * D, T * D + 4 * T, "bf16")
    added = (bf16(T, D), bf16(T, D), bf16(T, D), bf16(T, D))
    plain = figures("aiter::layernorm2d_with_add_asm", *added, bf16(D), bf16(D), 1e-5, None)
    assert plain == (0, 9 * T * D, READ + 2 * T * D + 2 * D, 2 * MADE, "bf16")
    smooth = (fp8(T, D), *added[1:], fp32(D), fp32(T, 1), bf16(D), bf16(D), 1e-5, None)
    assert figures("aiter::layernorm2d_with_add_smoothquant_asm", *smooth)[1:4] == (
        (8 + 2 + 7) * T * D, READ + 2 * T * D + 2 * D + 4 * D, T * D + MADE + 4 * T,
    )  # fmt: skip
    assert figures("aiter::quant_mxfp4", bf16(T, 32), uint8(T, 16), uint8(T, 1), 32)[1:4] == (7 * T * 32, 2 * T * 32, T * 17)


def test_activations_with_a_bias_of_each_expert():
    bias = (int64(T), bf16(3, 2 * D))
    for name, cost in (("silu", 15), ("gelu", 25), ("swiglu", 20)):
        made = figures(f"aiter::{name}_and_mul_bias", bf16(T, D), bf16(T, 2 * D), *bias)
        assert made == (0, (cost + 2) * T * D, 2 * MADE + 8 * T + 2 * 3 * 2 * D, MADE, "bf16")


def test_smoothed_conversions_of_experts():
    ids, maps = int64(T, 2), int64(2 * T)
    out, scale = fp8(T, 2, D), fp32(T, 2)
    plain = figures("aiter::moe_smoothquant_fwd", out, bf16(T, D), fp32(3, D), ids, scale)
    assert plain == (0, 8 * 2 * T * D, MADE + 4 * 3 * D + 16 * T, 2 * T * D + 8 * T, "bf16")
    first = figures("aiter::moe_smooth_per_token_scaled_quant_v1", out, bf16(T, D), scale, fp32(3, D), maps, False, None, False)
    assert first == (0, 8 * 2 * T * D, MADE + 4 * 3 * D + 16 * T, 2 * T * D + 8 * T, "bf16")
    sorted_ids = (int64(2 * T), int64(3), int64(2))
    second = figures("aiter::moe_smooth_per_token_scaled_quant_v2", out, bf16(T, D), scale, fp32(3, D), *sorted_ids, 32, False, False)
    assert second == (0, 8 * 2 * T * D, MADE + 4 * 3 * D + 8 * (2 * T + 5), 2 * T * D + 8 * T, "bf16")


def test_operators_on_two_tensors_or_one():
    left, right = bf16(T, D), bf16(D)
    for name in ("add", "sub", "mul", "div"):
        assert figures(f"aiter::{name}", left, right) == (0, T * D, MADE + 2 * D, MADE, "bf16")
        assert figures(f"aiter::{name}_", left, right) == (0, T * D, MADE + 2 * D, MADE, "bf16")
        assert figures(f"aiter::_{name}_kernel", left, right, left) == (0, T * D, MADE + 2 * D, MADE, "bf16")
        assert figures(f"aiter::_{name}_kernel_", left, right) == (0, T * D, MADE + 2 * D, MADE, "bf16")
    for name, cost in (("sigmoid", 13), ("tanh", 14)):
        assert figures(f"aiter::{name}", left) == (0, cost * T * D, MADE, MADE, "bf16")
        assert figures(f"aiter::_{name}", left, left) == (0, cost * T * D, MADE, MADE, "bf16")


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
