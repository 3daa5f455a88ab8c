"""Selective scan and causal convolution of servers: closed forms at odd shapes."""

from __future__ import annotations

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, int64

C, T, N, W = 6, 7, 3, 4  # channels, tokens, states, width of the filter
STATES = 2 * 2 * C * N  # of two sequences


def test_selective_scan_of_packed_sequences():
    operands = (bf16(C, T), bf16(C, T), fp32(C, N), bf16(1, N, T), bf16(1, N, T))
    args = (*operands, fp32(C), bf16(C, T), fp32(C), True, int32(3), int32(2), None, bf16(9, C, N), -1)
    # 16 a state; delta * u 1, D 2, a bias 1, softplus 21, a gate 15
    read = 3 * 2 * C * T + 4 * C * N + 2 * 2 * N * T + 2 * 4 * C + STATES
    assert figures("_C::selective_scan_fwd", *args) == (0, C * T * (16 * N + 40), read, 2 * C * T + STATES, "bf16")
    assert counted("_C::selective_scan_fwd", *args).work.assumption == "every sequence has a state"
    plain = (*operands, None, None, None, False, int32(3), None, None, bf16(9, C, N), -1)
    assert counted("_C::selective_scan_fwd", *plain).work.other_flops == C * T * (16 * N + 1)


def test_causal_convolution_of_a_prompt_and_of_one_token():
    stored = 2 * 2 * C * (W - 1)
    prompt = (bf16(C, T), bf16(C, W), bf16(C), bf16(9, C, W - 1), int32(3), int32(2), None, True, -1)
    work = figures("sgl_kernel::causal_conv1d_fwd", *prompt)
    assert work == (2 * C * T * W, 15 * C * T, 2 * C * T + 2 * C * W + 2 * C + stored, 2 * C * T + stored, "bf16")
    token = (bf16(2, C), bf16(9, C, W - 1), bf16(C, W), None, False, None, int64(2), -1)
    assert figures("sgl_kernel::causal_conv1d_update", *token) == (
        2 * 2 * C * W, 0, 4 * C + 2 * C * W + stored, 4 * C + stored, "bf16",
    )  # fmt: skip
    stateless = (bf16(2, C, T), bf16(C, W), None, None, None, None, None, False, -1)
    assert counted("sgl_kernel::causal_conv1d_fwd", *stateless).work.assumption == ""
