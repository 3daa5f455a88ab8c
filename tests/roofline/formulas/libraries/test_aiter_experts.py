"""AITER's routing, sorting and products of experts since 2025: closed forms at odd shapes."""

from __future__ import annotations

from rooflines.roofline.formulas.experts import SPREAD
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, reason, uint8

T, E, TOP, K, INNER = 7, 6, 2, 64, 24
ROWS = T * TOP


def test_products():
    weights = E * 2 * INNER * K
    first = (fp8(T, K), fp8(E, 2 * INNER, K), fp8(E, K, INNER), int32(99), int32(9), int32(2), bf16(T, TOP, INNER), INNER, None, 32, 0,
             0, 2, fp32(T, 1), fp32(E, 1))  # fmt: skip
    made = figures("aiter::moe_stage1_g1u1", *first)
    assert made == (2 * ROWS * 2 * INNER * K, 15 * ROWS * INNER, T * K + weights + 4 * E + 4 * T, 2 * ROWS * INNER, "fp8")
    assert "experts of a token" in reason("aiter::moe_stage1_g1u1", *first[:6], bf16(ROWS, INNER), *first[7:])
    opus = (fp8(T, K), uint8(E, 2 * INNER, K // 2), uint8(T, 2), uint8(E, 2 * INNER, 2), None, int32(99), int32(9), int32(2),
            fp8(T, TOP, INNER), uint8(99), TOP, 32, None, 0, 0, 0.0, 1.0, 1.0)  # fmt: skip
    work = counted("aiter::_opus_moe_stage1_a8w4_fwd_raw", *opus).work
    assert (work.matrix_flops, work.other_flops) == (2 * ROWS * 2 * INNER * K, 15 * ROWS * INNER)
    assert work.bytes_read == T * K + weights // 2 + 2 * T + E * 2 * INNER * 2
    assert (work.bytes_written, work.assumption) == (ROWS * INNER, SPREAD)
    second = (fp8(ROWS, INNER), uint8(E, K, INNER // 2), uint8(ROWS, 1), uint8(E, K, 1), int32(99), fp32(99), int32(9), int32(2),
              bf16(T, K), T, TOP, 32, 0, 0)  # fmt: skip
    work = counted("aiter::_opus_moe_stage2_a8w4_decode_fwd_raw", *second).work
    assert (work.matrix_flops, work.other_flops) == (2 * ROWS * INNER * K, 0)
    assert work.bytes_read == ROWS * INNER + E * K * INNER // 2 + ROWS + E * K


def test_atoms_layer_is_aiters():
    args = (bf16(T, K), bf16(E, 2 * INNER, K), bf16(E, K, INNER), fp32(T, TOP), int32(T, TOP), None, 0, 0)
    outcome = counted("aiter::rocm_aiter_fused_moe", *args)
    assert outcome.decomposes
    assert outcome.work == counted("aiter::fused_moe_", *args).work
    assert outcome.work.matrix_flops == 2 * ROWS * 3 * INNER * K
