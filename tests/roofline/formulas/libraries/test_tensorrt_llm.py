"""TensorRT-LLM's operators for PyTorch: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.roofline.formulas.experts import LOCAL, SPREAD
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, uint8

T = 7
M, N, K = 37, 19, 64
FLOPS = 2 * M * N * K


def test_products_of_4_bits():
    args = (uint8(M, K // 2), uint8(N, K // 2), uint8(M, 4), uint8(N, 4), fp32(1))
    expected = (FLOPS, M * N, (M + N) * (K // 2 + 4) + 4, 2 * M * N, "fp4")
    assert figures("trtllm::nvfp4_gemm", *args, 15, False) == expected
    assert figures("trtllm::nvfp4_gemm", *args, False, 15, False) == expected
    assert figures("trtllm::nvfp4_gemm_cublaslt", *args, 15, False) == expected
    assert figures("trtllm::fp4_gemm", *args, False, 15) == expected
    assert figures("trtllm::cuda_core_nvfp4_gemm", *args, None, 15) == expected
    assert counted("trtllm::nvfp4_gemm", *args, 15, False).decomposes


E, TOP, WIDTH, INNER = 6, 2, 64, 24
ROWS = T * TOP
LAYER = 2 * ROWS * WIDTH * 3 * INNER


def test_a_layer_of_experts():
    first, second = bf16(E, 2 * INNER, WIDTH), bf16(E, WIDTH, INNER)
    older = (bf16(T, WIDTH), int32(T, TOP), fp32(T, TOP), first, second, 15, ())
    newer = (*older[:4], None, second, None, 15, ())
    for args in (older, newer):
        work = counted("trtllm::fused_moe", *args).work
        assert (work.matrix_flops, work.other_flops) == (LAYER, 15 * ROWS * INNER + 2 * ROWS * WIDTH)
        assert (work.bytes_read, work.bytes_written) == (2 * T * WIDTH + 8 * ROWS + 2 * E * 3 * INNER * WIDTH, 2 * T * WIDTH)
        assert work.assumption == f"{SPREAD}; {LOCAL}"


@pytest.mark.parametrize(
    "name",
    words(
        "trtllm::fp8_block_scale_moe_runner sglang::trtllm_fp8_block_scale_moe_wrapper vllm::fi_trtllm_fp8_per_tensor_moe"
        " sglang::sgl_trtllm_fp8_block_scale_moe_wrapper sglang::trtllm_fp8_block_scale_moe_out_wrapper"
        " sglang::trtllm_fp8_per_tensor_scale_moe_wrapper"
    ),
)
def test_a_layer_with_its_routing(name):
    scales = (fp32(E, 1, 1), fp32(E, 1, 1))
    args = (fp32(T, E), fp32(E), fp8(T, WIDTH), fp32(1, T), fp8(E, 2 * INNER, WIDTH), scales[0], fp8(E, WIDTH, INNER), scales[1], E,
            TOP, None, None, INNER, 0, E, 1.0, 2)  # fmt: skip
    work = counted(name, *args).work
    assert (work.matrix_flops, work.precision) == (LAYER, "fp8")
    assert work.other_flops == 15 * ROWS * INNER + 2 * ROWS * WIDTH + 15 * T * E
    assert work.bytes_read == T * WIDTH + E * 3 * INNER * WIDTH + 4 * (E + T + 2 * E) + 4 * T * E
    assert work.bytes_written == 2 * T * WIDTH


@pytest.mark.parametrize(
    ("name", "hidden", "precision"),
    [
        ("bf16_mxe2m1", (bf16(T, WIDTH),), "bf16"),
        ("mxe4m3_mxe2m1", (fp8(T, WIDTH), uint8(T, WIDTH // 32)), "fp8"),
        ("e4m3_mxe2m1", (fp8(T, WIDTH),), "fp8"),
    ],
)
def test_weights_in_fp4_are_widened(name, hidden, precision):
    weights = (uint8(E, 2 * 32, WIDTH // 2), uint8(E, 2 * 32, 2), bf16(E, 2 * 32), fp32(E), fp32(E), fp32(E), uint8(E, WIDTH, 16),
               uint8(E, WIDTH, 1), bf16(E, WIDTH))  # fmt: skip
    args = (fp32(T, E), fp32(E), *hidden, *weights, E, TOP, None, None, 32, None, None, 0, E, None, 1, 0)
    work = counted(f"trtllm::{name}_block_scale_moe_runner", *args).work
    assert (work.matrix_flops, work.precision, work.bytes_written) == (2 * ROWS * WIDTH * 3 * 32, precision, 2 * T * WIDTH)


def test_a_layer_whose_experts_were_chosen_and_whose_weights_lie_in_blocks():
    weights = (bf16(E, WIDTH // 16, 2 * INNER, 16), bf16(E, INNER // 8, WIDTH, 8))
    args = (fp32(T, E), None, bf16(T, WIDTH), *weights, E, TOP, None, None, INNER, 0, E, 2, 8192)
    assert counted("vllm::flashinfer_fused_moe_bf16", *args).work.matrix_flops == LAYER
    routed = (int32(T, TOP), None, fp8(T, WIDTH), fp32(1, T), fp8(E, 2 * INNER, WIDTH), fp32(E, 1, 1), fp8(E, WIDTH, INNER),
              fp32(E, 1, 1), E, TOP, None, None, INNER, 0, E)  # fmt: skip
    work = counted("sglang::trtllm_fp8_block_scale_routed_moe_wrapper", *routed).work
    assert (work.matrix_flops, work.other_flops) == (LAYER, 15 * ROWS * INNER + 2 * ROWS * WIDTH)
