"""Collectives of AITER, whose handle may follow an empty tensor."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures, fp32

T, D = 7, 30
SIZE = 2 * T * D
EMPTY = fp32(1)  # what AITER gives an operator whose first argument is no tensor


@pytest.mark.parametrize(
    ("name", "rest", "grown"),
    [
        ("all_reduce", (True, False, 0, 0), 1), ("all_reduce_gfx1250", (True, False, 0, 0), 1), ("all_reduce_reg", (False,), 1),
        ("all_gather_reg", (0,), 8), ("all_gather_gfx1250", (0, 1, 2), 8), ("qr_all_reduce", (3, False), 1),
        ("reduce_scatter", (1, 2, 3, 0, 0, 0), 1), ("reduce_scatter_gfx1250", (1, 2, 3, 0, 0, 0), 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [(), (EMPTY,)])
@pytest.mark.parametrize("prefix", ["", "wrapper_"])
def test_aiters_handle_may_follow_an_empty_tensor(name, rest, grown, first, prefix):
    made = figures(f"aiter::{prefix}{name}", *first, 94, bf16(T, D), bf16(grown * T, D), *rest)
    assert made == (0, 0, SIZE, grown * SIZE, None)


@pytest.mark.parametrize("name", ["fused_allreduce_rmsnorm", "fused_allreduce_rmsnorm_pad", "qr_all_reduce_rmsnorm"])
def test_an_all_reduce_with_a_norm_of_aiter(name):
    """As recorded by SGLang on an MI355X: an empty tensor, the handle, input, residual, their sum, the norm, the weight."""
    args = (EMPTY, 94, bf16(T, D), bf16(T, D), bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0, 0, True)
    assert figures(f"aiter::{name}", *args) == (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")
