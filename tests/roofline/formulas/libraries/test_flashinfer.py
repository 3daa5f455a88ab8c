"""flashinfer's operators of 2025 under the names of its builds."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures, fp32, int32, reason, uint8

T, D = 7, 30
READ, MADE = 2 * T * D + 2 * D, 2 * T * D


@pytest.mark.parametrize("namespace", ["norm", "flashinfer_kernels", "flashinfer_kernels_sm90", "flashinfer"])
def test_norms(namespace):
    for name in ("rmsnorm", "gemma_rmsnorm"):
        assert figures(f"{namespace}::{name}", bf16(T, D), bf16(T, D), bf16(D), 1e-6, True) == (0, 4 * T * D, READ, MADE, "bf16")
    for name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"):
        added = figures(f"{namespace}::{name}", bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0)
        assert added == (0, 5 * T * D, READ + MADE, 2 * MADE, "bf16")
    assert "not recorded" in reason(f"{namespace}::rmsnorm", bf16(T, D), bf16(D), 1e-6), "a function of another library"


B, V = 7, 99
LOGITS = 4 * B * V


def test_names_of_flashinfers_builds():
    for namespace in ("sampling", "flashinfer_kernels"):
        assert figures(f"{namespace}::sampling_from_probs", fp32(B, V), int32(B), None, True, None)[1:4] == (2 * B * V, LOGITS, 4 * B)
        assert figures(f"{namespace}::top_k_sampling_from_probs", fp32(B, V), int32(B), None, None, 5, True, None)[3] == 4 * B
    assert figures("sampling::sampling_from_logits", fp32(B, V), int32(B), None, True, None)[1] == 23 * B * V
    assert figures("sampling::softmax", uint8(99), fp32(B, V), fp32(B, V), None, 1.0, False)[1:4] == (15 * B * V, LOGITS, LOGITS)
    old = ("sampling::sampling_from_probs", fp32(B, V), fp32(B), int32(B), True)
    assert reason(*old) == "arguments of another version of this operator"
