"""flashinfer's norms of 2025 under the names of its builds."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures, reason

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
