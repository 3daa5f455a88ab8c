"""Factorisations and solvers by the textbook's formulas, for square, tall and wide matrices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import tensor, work

sizes = st.integers(1, 12)
PIVOTS = tensor(3, 6, dtype="int32")
A = tensor(3, 6, 6)
B = tensor(3, 6, 2)


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


def test_a_square_matrix():
    n = 30
    square, pivots, flag = tensor(n, n), tensor(n, dtype="int32"), tensor(dtype="int32")
    two_thirds = n * n * n - n**3 // 3
    assert work("linalg_lu_factor_ex", square, True, False, outputs=(square, pivots, flag)).other_flops == two_thirds
    assert work("_linalg_det", square, outputs=(tensor(), square, pivots)) == Work(
        0, two_thirds + n, 4 * n * n, 4 + 4 * n * n + 4 * n, "fp32"
    )
    assert work("linalg_inv_ex", square, False, outputs=(square, flag)).other_flops == 2 * n**3
    complex_square = tensor(n, n, dtype="complex64")
    assert work("linalg_eig", square, outputs=(tensor(n, dtype="complex64"), complex_square)).other_flops == 25 * n**3
    assert work("_linalg_eigvals", square, outputs=(tensor(n, dtype="complex64"),)) == Work(0, 10 * n**3, 4 * n * n, 8 * n, "fp32")


def test_a_complex_operation_is_four():
    square = tensor(6, 6, dtype="complex128")
    assert work("_linalg_eigh", square, "L", True) == Work(0, 4 * 9 * 216, 16 * 21, 8 * 6 + 16 * 36, "fp64")


def test_solvers():
    assert work("linalg_solve_triangular", A, B, True, True, False) == Work(0, 3 * 36 * 2, 4 * (3 * 21 + 36), 4 * 36, "fp32")
    assert work("linalg_solve_triangular", A, B, True, True, True).bytes_read == 4 * (3 * 15 + 36)  # a diagonal of ones
    assert work("cholesky_solve", B, A, False, outputs=(B,)) == Work(0, 3 * 2 * 36 * 2, 4 * (63 + 36), 4 * 36, "fp32")
    assert work("linalg_lu_solve", A, PIVOTS, B, True, False, outputs=(B,)).other_flops == 3 * 2 * 36 * 2
    factored = (B, A, PIVOTS, tensor(3, dtype="int32"))
    solved = work("_linalg_solve_ex", A, B, True, False, outputs=factored)
    assert (solved.other_flops, solved.bytes_written) == (3 * (216 - 72) + 3 * 2 * 36 * 2, 4 * (36 + 108 + 18 + 3))


def test_reflectors():
    tau = tensor(3, 6)
    # below the diagonals of three 6 by 6 matrices there are 15 elements each
    assert work("linalg_householder_product", A, tau) == Work(0, 3 * (4 * 216 - 4 * 216 + 288), 4 * (45 + 18), 4 * 108, "fp32")
    assert work("ormqr", A, tau, B, True, False) == Work(0, 3 * (4 * 2 * 36 - 2 * 2 * 36), 4 * (45 + 18 + 36), 4 * 36, "fp32")


def test_least_squares_is_a_factorisation_a_product_and_a_substitution():
    found = work("linalg_lstsq", tensor(9, 4), tensor(9, 2), None, None, outputs=(tensor(4, 2),))
    assert found.other_flops == (2 * 9 * 16 - 2 * 64 // 3) + (4 * 2 * 9 * 4 - 2 * 2 * 16) + 16 * 2


def test_a_cross_product_is_two_products_and_a_difference_a_component():
    assert work("linalg_cross", tensor(5, 3), tensor(1, 3), -1) == Work(0, 45, 60 + 12, 60, "fp32")


def test_unpacking_moves():
    outputs = (tensor(3, 6, 6), A, A)
    assert work("lu_unpack", A, PIVOTS, True, True, outputs=outputs) == Work(bytes_read=4 * (108 + 18), bytes_written=12 * 108)
    assert work("lu_unpack", A, PIVOTS, False, True, outputs=(A,)).bytes_read == 72
