"""Primus and Primus-Turbo: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import TensorArg
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp4, fp8, fp32, int64, reason

KERNELS = "primus_turbo_cpp_extension::"
M, N, K, G = 37, 53, 19, 3
FLOPS = 2 * 37 * 19 * 53
OUT_BF16 = 15


def e8m0(*shape):
    return TensorArg(shape, "float8_e8m0fnu")


# --- products ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "flips"), [((M, K), (K, N), (False, False)), ((M, K), (N, K), (False, True)), ((K, M), (K, N), (True, False))]
)
def test_a_product_in_each_layout(left, right, flips):
    plain = (FLOPS, 0, 2 * (M * K + K * N), 2 * M * N, "bf16")
    assert figures(f"{KERNELS}hipblaslt_gemm", bf16(*left), bf16(*right), OUT_BF16, *flips, False, 0.0, None) == plain
    assert figures(f"{KERNELS}hipblaslt_gemm", bf16(*left), bf16(*right), OUT_BF16, *flips) == plain  # June 2025
    assert figures("primus_turbo::gemm_impl", bf16(*left), flips[0], bf16(*right), flips[1], OUT_BF16, True, 1) == plain
    scaled = (FLOPS, M * N, M * K + K * N + 8, 2 * M * N, "fp8")
    a, b, one = fp8(*left), fp8(*right), fp32()
    assert figures(f"{KERNELS}hipblaslt_gemm_fp8", a, one, b, one, OUT_BF16, *flips, False, None) == scaled
    assert figures(f"{KERNELS}hipblaslt_gemm", a, one, b, one, OUT_BF16, *flips, False) == scaled  # September 2025
    assert figures(f"{KERNELS}ck_gemm_fp8", a, b, one, one, *flips, OUT_BF16, None) == scaled
    assert figures("primus_turbo::gemm_fp8_impl", a, one, flips[0], b, one, flips[1], OUT_BF16, False, 1, 1) == scaled
    assert figures("primus_turbo::gemm_fp8_blockwise_impl", a, b, one, one, OUT_BF16, 1, 128, 128, *flips) == scaled


def test_a_product_that_is_added_to_its_result():
    found = figures("primus_turbo::gemm_accum_impl", bf16(M, K), False, bf16(K, N), False, OUT_BF16, False, fp32(M, N), 1)
    assert found == (FLOPS, M * N, 2 * (M * K + K * N) + 4 * M * N, 4 * M * N, "bf16")
    assert reason(f"{KERNELS}hipblaslt_gemm", bf16(M, K), bf16(K, N), OUT_BF16) == "argument 'flip_left' not recorded"
    assert "inner dimensions" in reason(f"{KERNELS}hipblaslt_gemm", bf16(M, K), bf16(K, N), OUT_BF16, False, True)


GROUPS = int64(G), int64(G + 1)
ENDS = 8 * (G + G + 1)


def test_grouped_products():
    read = 2 * (M * K + G * K * N) + ENDS
    for name in ("grouped_gemm", "ck_grouped_gemm"):
        outcome = counted(KERNELS + name, bf16(M, K), bf16(G, N, K), *GROUPS, False, True, None)
        work = outcome.work
        assert (work.matrix_flops, work.bytes_read, work.bytes_written) == (FLOPS, read, 2 * M * N)
        assert work.assumption == "all experts that the rows can reach are used"
    assert figures("primus_turbo::grouped_gemm_impl", bf16(M, K), bf16(G, K, N), *GROUPS, False, False, None, 1)[0] == FLOPS
    few = figures("primus_turbo::grouped_gemm_impl", bf16(2, K), bf16(G, K, N), *GROUPS, False, False, None, 1)
    assert few[2] == 2 * (2 * K + 2 * K * N) + ENDS  # no more weights than rows
    scaled = figures(
        "primus_turbo::grouped_gemm_fp8_impl", fp8(M, K), fp8(G, N, K), fp32(1), fp32(1), *GROUPS, False, True, OUT_BF16, 1, None, 1
    )
    assert scaled == (FLOPS, M * N, M * K + G * K * N + 8 + ENDS, 2 * M * N, "fp8")


def test_grouped_products_over_the_rows():
    """A gradient of the weight of each group: [rows, k]^T @ [rows, n]."""
    expected = (FLOPS, 0, 2 * (M * K + M * N) + ENDS, 2 * G * K * N, "bf16")
    assert figures(f"{KERNELS}ck_grouped_gemm_variable_k", bf16(M, K), bf16(M, N), *GROUPS, True, False, None) == expected
    assert figures(f"{KERNELS}hipblaslt_grouped_gemm", bf16(M, K), bf16(M, N), *GROUPS, True, False, False, 0.0, None) == expected
    flags = (True, False, True, None, 1)
    assert figures("primus_turbo::grouped_gemm_variable_k_impl", bf16(M, K), bf16(M, N), *GROUPS, *flags) == expected
    added = figures("primus_turbo::grouped_gemm_variable_k_accum_impl", bf16(M, K), bf16(M, N), *GROUPS, *flags, fp32(G, K, N))
    assert added == (FLOPS, G * K * N, 2 * (M * K + M * N) + ENDS + 4 * G * K * N, 4 * G * K * N, "bf16")


def test_operands_in_blocks_of_32_have_the_rows_last():
    flags = (False, False, False, OUT_BF16, 4, None, 1)
    args = (fp8(K, 128), fp8(N, 128), e8m0(K, 4), e8m0(N, 4), *GROUPS, *flags)
    outcome = counted("primus_turbo::grouped_gemm_fp8_variable_k_impl", *args)
    assert (outcome.work.matrix_flops, outcome.work.bytes_written) == (2 * 19 * 128 * 53, 2 * G * K * N)
    assert outcome.work.assumption == "rows that pad the groups count"
    narrow = (fp4(K, 64), fp4(N, 64), e8m0(K, 4), e8m0(N, 4), *GROUPS, *flags)
    assert figures("primus_turbo::grouped_gemm_fp4_variable_k_impl", *narrow)[0] == 2 * 19 * 128 * 53


# --- attention ---------------------------------------------------------------------------------------------------------------------

Q, KEY = bf16(2, 7, 4, 16), bf16(2, 7, 2, 16)


SUMS, OPTIONS = fp32(2, 4, 7), (0.0, 0.25, True, -1, -1)
SEQUENCE_FIRST = (bf16(7, 2, 4, 16), bf16(7, 2, 2, 16), bf16(7, 2, 2, 16))
ENDS_OF = TensorArg((3,), "int32")
PACKED = (bf16(14, 4, 16), bf16(14, 2, 16), bf16(14, 2, 16), ENDS_OF, ENDS_OF, 7, 7)
TWO, FIVE = 2 * 8 * 28 * (16 + 16), 5 * 2 * 8 * 28 * 16


@pytest.mark.parametrize(
    ("name", "args", "flops"),
    [
        ("attention_aiter_backward_impl", (Q, Q, KEY, KEY, Q, SUMS, Q, KEY, KEY, *OPTIONS, None, None, False, None), FIVE),
        ("attention_aiter_csrc_backward_impl", (Q, Q, KEY, KEY, Q, SUMS, Q, KEY, KEY, None, *OPTIONS, None, None, False), FIVE),
        ("attention_triton_forward_impl", (Q, KEY, KEY, 1.0, SUMS, SUMS, SUMS, *OPTIONS, None, None, False, False), TWO),
        ("flash_attn_sbhd_flydsl_forward", (*SEQUENCE_FIRST, -1, True, None), TWO),
        ("flash_attn_sbhd_flydsl_backward", (SEQUENCE_FIRST[0], *SEQUENCE_FIRST, SEQUENCE_FIRST[0], SUMS, 0.25, -1, None), FIVE),
        ("flash_attn_varlen_flydsl_forward", (*PACKED, -1, True, None), TWO),
        ("attention_aiter_varlen_forward_impl", (*PACKED, *OPTIONS, None, None, True, False), TWO),
    ],
)
def test_attention_of_other_kernels(name, args, flops):
    """A backward computes the scores again: 5 products where the forward has 2."""
    work = counted(f"primus_turbo::{name}", *args).work
    assert work.matrix_flops == flops
    assert not work.assumption
