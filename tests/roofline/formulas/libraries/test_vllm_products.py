"""vLLM's products of narrow numbers: closed forms at odd shapes, arguments as its schemas give them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import TensorArg
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, reason, uint8

M, N, K = 5, 24, 48
FLOPS = 2 * M * N * K


def int8(*shape):
    return TensorArg(shape, "int8")


@pytest.mark.parametrize("right", [fp8(K, N), fp8(N, K)])
def test_scaled_products_take_the_weight_both_ways_round(right):
    scales = (fp32(M, 1), fp32(1, N))
    read = M * K + N * K + 4 * (M + N)
    assert figures("_C::cutlass_scaled_mm", bf16(M, N), fp8(M, K), right, *scales, None) == (FLOPS, M * N, read, 2 * M * N, "fp8")
    biased = figures("_C::cutlass_scaled_mm", bf16(M, N), fp8(M, K), right, *scales, bf16(N))
    assert biased == (FLOPS, 2 * M * N, read + 2 * N, 2 * M * N, "fp8")


@pytest.mark.parametrize("name", ["_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"])
@pytest.mark.parametrize("dtype", ["uint8", "float4_e2m1fn_x2"])
def test_two_numbers_of_4_bits_lie_in_an_element(name, dtype):
    left, right = TensorArg((M, K // 2), dtype), TensorArg((N, K // 2), dtype)
    args = (bf16(M, N), left, right, fp8(128, 4), fp8(128, 4), fp32(1))
    assert figures(name, *args) == (FLOPS, M * N, (M + N) * K // 2 + 2 * 512 + 4, 2 * M * N, "fp4")


@pytest.mark.parametrize("weight", [int32(K // 8, N), int32(N, K // 8), uint8(N, K // 2)])
def test_fp8_activations_with_a_packed_weight(weight):
    args = (fp8(M, K), weight, bf16(1, N), K, fp32(N, 1), fp32(M, 1), 15)
    assert figures("_C::cutlass_w4a8_mm", *args) == (FLOPS, M * N, M * K + N * K // 2 + 2 * N + 4 * (M + N), 2 * M * N, "fp8")


SQUARE = 2 * 3 * 64 * 64  # a weight [64, 64] of 4-bit numbers, [64, 32] of bytes


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("vllm::rocm_aiter_gemm_a8wfp4", (fp8(3, 64), uint8(64, 32), fp32(3, 1), fp32(64, 2), 15)),
        ("vllm::flashinfer_mm_bf16_fp4", (bf16(3, 64), uint8(64, 32), fp8(64, 4), fp32(1))),
        ("sgl_kernel::qserve_w4a8_per_chn_gemm",
         (int8(3, 64), int8(64, 32), bf16(64), bf16(3), bf16(64), bf16(3), bf16(3, 64))),
    ],
)  # fmt: skip
def test_a_square_weight_of_4_bits_is_not_one_of_bytes(name, args):
    work = counted(name, *args).work
    assert (work.matrix_flops, work.bytes_written) == (SQUARE, 2 * 3 * 64)


def test_a_weight_of_bytes_is_told_by_the_result_or_by_its_partner():
    """[64, 32] is read as [k, n] if the result is [.., 32], and of two operands of int8."""
    scales = (fp32(3, 1), fp32(1, 32))
    assert counted("_C::cutlass_scaled_mm", bf16(3, 32), int8(3, 64), int8(64, 32), *scales, None).work.matrix_flops == SQUARE // 2
    assert counted("sgl_kernel::int8_scaled_mm", int8(3, 64), int8(64, 32), *scales, 15, None).work.matrix_flops == SQUARE // 2


def test_operands_that_do_not_fit_are_not_counted():
    args = (fp8(M, K), int32(K // 8, 25), bf16(1, 25), K, fp32(25, 1), fp32(M, 1), 15)
    assert counted("_C::cutlass_w4a8_mm", *args).work.matrix_flops == 2 * M * K * 25
    assert "differ" in reason("_C::cutlass_w4a8_mm", fp8(M, K), int32(7, 25), *args[2:])
    no_dtype = reason("_C::cutlass_w4a8_mm", *args[:-1], None)
    assert no_dtype == "dtype of the result not recorded"


# --- weights of 4 bits are widened: the arithmetic is that of the activations, unpacking costs 2 a weight ----------------------------


@pytest.mark.parametrize(
    "args",
    [
        # vLLM 0.9, vLLM 0.13 with a bias and scales of activations, vLLM 0.4 with the weight second
        (bf16(M, K), None, int32(K // 16, 2 * N), bf16(2, N), None, None, None, None, int32(99), 1125, M, N, K, True, False, True),
        (bf16(M, K), None, int32(K // 16, 2 * N), None, bf16(2, N), None, None, None, None, None, int32(99), 1125, M, N, K, True, False,
         True, False),
        (bf16(M, K), int32(K // 16, 2 * N), bf16(2, N), int32(99), 4, M, N, K, True),
    ],
)  # fmt: skip
def test_marlin_has_its_sizes_as_numbers(args):
    assert figures("_C::gptq_marlin_gemm", *args) == (FLOPS, 2 * N * K, 2 * M * K + N * K // 2 + 4 * N, 2 * M * N, "bf16")


def test_marlin_of_8_bit_activations_writes_the_dtype_of_the_scales():
    args = (fp8(3, 64), None, int32(4, 80), None, bf16(1, 40), fp32(3, 1), None, None, None, None, int32(99), 1125, 3, 40, 64, True)
    read = 3 * 64 + 4 * 4 * 80 + 2 * 40 + 4 * 3
    assert figures("_C::marlin_gemm", *args) == (2 * 3 * 40 * 64, 2 * 40 * 64, read, 2 * 3 * 40, "fp8")
    given = (args[0], bf16(3, 40), *args[2:])
    assert figures("_C::marlin_gemm", *given) == figures("_C::marlin_gemm", *args)
    unscaled = (*args[:4], None, *args[5:])
    assert reason("_C::marlin_gemm", *unscaled) == "dtype of the result not recorded"


def test_marlin_of_an_unknown_version_is_not_counted():
    assert reason("_C::marlin_gemm", bf16(M, K), int32(3, 4), int32(9), M, N, K + 1, True) == "arguments of another version"
    assert reason("_C::marlin_gemm", bf16(M, K), True) == "sizes of the product not recorded"


@pytest.mark.parametrize("name", ["_C::ggml_mul_mat_a8", "_C::ggml_mul_mat_vec_a8"])
def test_ggml_multiplies_integers(name):
    weight = uint8(N, 27)  # blocks of bytes
    assert figures(name, weight, bf16(M, K), 8, N) == (FLOPS, 7 * M * K + M * N, N * 27 + 2 * M * K, 2 * M * N, "int8")
    assert figures("_C::ggml_dequantize", weight, 8, N, K, 15) == (0, 2 * N * K, N * 27, 2 * N * K, "bf16")
