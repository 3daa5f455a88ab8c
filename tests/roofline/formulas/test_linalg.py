"""Factorisations and solvers by the textbook's formulas, for square, tall and wide matrices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import tensor, work

sizes = st.integers(1, 12)


@given(sizes, sizes)
def test_one_triangle_of_a_symmetric_matrix_is_read(batch, n):
    matrix, half = tensor(batch, n, n), batch * n * (n + 1) // 2
    found = work("linalg_cholesky_ex", matrix, False, False, outputs=(matrix, tensor(batch, dtype="int32")))
    assert found == Work(0, batch * (n**3 // 3), 4 * half, 4 * batch * n * n + 4 * batch, "fp32" if n > 1 else None)
    vectors = work("_linalg_eigh", matrix, "L", True)
    assert vectors == Work(0, batch * 9 * n**3, 4 * half, 4 * batch * (n + n * n), "fp32")
    assert work("_linalg_eigh", matrix, None, False).other_flops == batch * (4 * n**3 // 3)  # a trace has no strings


@given(sizes, sizes)
def test_rectangles(m, n):
    matrix, k, longer = tensor(m, n), min(m, n), max(m, n)
    lu = work("linalg_lu_factor_ex", matrix, True, False, outputs=(matrix, tensor(k, dtype="int32"), tensor(dtype="int32")))
    assert lu.other_flops == longer * k * k - k**3 // 3
    reflectors = work("geqrf", matrix)
    assert reflectors == Work(0, 2 * longer * k * k - 2 * k**3 // 3, 4 * m * n, 4 * (m * n + k), "fp32")
    reduced = work("linalg_qr", matrix, "reduced")
    assert reduced == work("linalg_qr", matrix, None)
    assert reduced.bytes_written == 4 * (m * k + k * n)
    assert reduced.other_flops == reflectors.other_flops + 4 * m * k * k - 2 * (m + k) * k * k + 4 * k**3 // 3
    assert work("linalg_qr", matrix, "r") == Work(0, reflectors.other_flops, 4 * m * n, 4 * k * n, "fp32")
    assert work("linalg_qr", matrix, "complete").bytes_written == 4 * (m * m + m * n)
    thin = work("_linalg_svd", matrix, False, True, None)
    assert thin == Work(0, 14 * longer * k * k + 8 * k**3, 4 * m * n, 4 * (k + k * (m + n)), "fp32")
    assert work("_linalg_svd", matrix, False, False, None).bytes_written == 4 * k
    assert work("_linalg_svd", matrix, True, True, None).bytes_written == 4 * (k + m * m + n * n)


def test_least_squares_is_a_factorisation_a_product_and_a_substitution():
    found = work("linalg_lstsq", tensor(9, 4), tensor(9, 2), None, None, outputs=(tensor(4, 2),))
    assert found.other_flops == (2 * 9 * 16 - 2 * 64 // 3) + (4 * 2 * 9 * 4 - 2 * 2 * 16) + 16 * 2
