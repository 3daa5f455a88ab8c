"""Factorisations and what is solved with them: the operation counts of the textbooks, leading terms, rounded down.

Sources: Golub and Van Loan, Matrix Computations (3rd edition; the table of section 5.4.5 for the SVD, 7.5.6 and 8.3 for eigenvalues),
and LAPACK Working Note 41, appendix C, for the rest. A complex operation is four real ones. These are not matrix products: all of it is
``other_flops``.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.arguments import every
from rooflines.roofline.formulas.rows import Row, Tensors, named, register

# FLOPs of one matrix, m by n with the shorter side k and the longer l.


@named
def lu(m: int, n: int) -> int:
    """P L U: 2/3 n³ of a square matrix."""
    shorter, longer = sorted((m, n))
    return longer * shorter**2 - shorter**3 // 3


@named
def qr(m: int, n: int) -> int:
    """Householder's reflectors and R: 2 l k² - 2/3 k³."""
    shorter, longer = sorted((m, n))
    return 2 * longer * shorter**2 - 2 * shorter**3 // 3


@named
def reflectors_joined(m: int, columns: int, reflectors: int) -> int:
    """Q written out, m by ``columns``, from its reflectors (LAPACK's orgqr)."""
    return 4 * m * columns * reflectors - 2 * (m + columns) * reflectors**2 + 4 * reflectors**3 // 3


@named
def reflectors_applied(m: int, n: int, reflectors: int) -> int:
    """Q times an m by n matrix, reflector by reflector (LAPACK's ormqr)."""
    return 4 * n * m * reflectors - 2 * n * reflectors**2


@named
def eigh(n: int, vectors: bool) -> int:
    """Symmetric QR algorithm: 9 n³; without vectors 4/3 n³, the reduction to three diagonals."""
    return 9 * n**3 if vectors else 4 * n**3 // 3


@named
def svd(m: int, n: int, vectors: bool, full: bool = False) -> int:
    """Golub and Reinsch: 14 l k² + 8 k³; without vectors 4 l k² - 4/3 k³; with all of both bases 4 l² k + 8 l k² + 9 k³."""
    k, longer = sorted((m, n))
    if not vectors:
        return 4 * longer * k**2 - 4 * k**3 // 3
    return 4 * longer**2 * k + 8 * longer * k**2 + 9 * k**3 if full else 14 * longer * k**2 + 8 * k**3


# Matrices.


@named
def ops(matrix: Tensors) -> int:
    """Real operations in one on the numbers of a matrix."""
    return 4 if matrix.complex else 1


@named
def part(matrix: Tensors) -> int:
    """Bytes of a real number, as singular values are."""
    return matrix.item // (2 if matrix.complex else 1)


@named
def some(matrix: Tensors, elements: int) -> int:
    """Bytes of ``elements`` elements of each matrix."""
    whole = matrix[-2] * matrix[-1]
    return matrix.size * elements // whole if whole else 0


@named
def half(matrix: Tensors, unit: bool = False) -> int:
    """Bytes of one triangle of each matrix, without its diagonal where that is all ones."""
    side = matrix[-1]
    return some(matrix, side * (side + 1) // 2 - (side if unit else 0))


@named
def below(rows: int, columns: int) -> int:
    """Elements below the diagonal in the first columns, where reflectors are."""
    return sum(max(rows - column - 1, 0) for column in every(columns))


# FLOPs of what looks at a whole matrix, and of what looks at one triangle of it.
_WHOLE: Final[dict[str, str]] = {
    "linalg_lu_factor_ex linalg_lu": "lu(m, n)",
    "_linalg_det": "lu(m, n) + n",
    "_linalg_slogdet": "lu(m, n) + 12 * n",  # a logarithm and an addition for each pivot
    "linalg_inv_ex": "2 * n**3",  # by LU: 2/3 n³, then 4/3 n³
    "linalg_eig": "25 * n**3",  # Hessenberg form and QR algorithm
    "_linalg_eigvals linalg_eigvals": "10 * n**3",  # without vectors; with ``out`` it has a separate kernel
    # the polynomial of degree 18 of Bader, Blanes and Casas in five products, unscaled: how often it is squared is data
    "linalg_matrix_exp": "10 * n**3",
    "linalg_polar": "svd(m, n, True) + 2 * m * n * min(m, n) + 2 * min(m, n) * n**2",
}
_TRIANGLE: Final[dict[str, str]] = {
    "linalg_cholesky_ex linalg_ldl_factor_ex": "n**3 // 3",
    "cholesky_inverse": "2 * n**3 // 3",
    "linalg_matrix_sqrth": "eigh(n, True) + 2 * n**3",
}
_MATRIX: Final = "read self[*b m n]"
_MADE: Final = "results().full"
_FACTORISATIONS: Final[dict[str, Row]] = {
    **{name: Row(_MATRIX, other=f"ops(self) * b * ({flops})", writes=_MADE) for name, flops in _WHOLE.items()},
    **{
        name: Row(_MATRIX, other=f"ops(self) * b * ({flops})", reads="half(self)", writes=_MADE) for name, flops in _TRIANGLE.items()
    },
    "_linalg_eigh": Row(
        f"{_MATRIX}, uplo, vectors=True",
        other="ops(self) * b * eigh(n, vectors)", reads="half(self)", writes="b * n * part(self) + (self.full if vectors else 0)",
    ),
    # U, the k singular values, Vᴴ: k or, in full, m columns and n rows
    "_linalg_svd": Row(
        f"{_MATRIX}, full=False, vectors=True",
        where="k = min(m, n); bases = m**2 + n**2 if full else k * (m + n)",
        other="ops(self) * b * svd(m, n, vectors, full)", writes="b * (k * part(self) + (bases * self.item if vectors else 0))",
    ),
    # Q, R. A trace does not record the mode: then it is ``reduced``, Q having k columns.
    "linalg_qr": Row(
        f"{_MATRIX}, mode=None",
        where="k = min(m, n); complete = value('mode') == 'complete'; columns = 0 if value('mode') == 'r' else m if complete else k",
        other="ops(self) * b * (qr(m, n) + (reflectors_joined(m, columns, k) if columns else 0))",
        writes="b * (m * columns + (m if complete else k) * n) * self.item",
        fits="recorded('mode')",
    ),
    # R with the reflectors below it, and k factors
    "geqrf": Row(_MATRIX, other="ops(self) * b * qr(m, n)", result="self", writes="b * min(m, n) * self.item"),
    # [m, n] reflectors with their k factors -> Q [m, n]
    "linalg_householder_product": Row(
        f"{_MATRIX}, read tau",
        other="ops(self) * b * reflectors_joined(m, n, tau[-1])", reads="some(self, below(m, tau[-1])) + tau.size", result="self",
    ),
    # Q, as k reflectors, times another matrix [m, n], from the left or the right
    "ormqr": Row(
        "read self, read tau, read other[*b m n], left=True",
        where="side = m if left else n; across = n if left else m",
        other="ops(other) * b * reflectors_applied(side, across, tau[-1])",
        reads="some(self, below(side, tau[-1])) + tau.size + other.size", result="other", precision="other",
    ),
    # by SVD: V diag(1 / s) Uᴴ; tolerances may be tensors
    "linalg_pinv": Row(
        f"{_MATRIX}, read rtol?, read atol?",
        other="ops(self) * b * (svd(m, n, True) + 2 * m * n * min(m, n))", writes=_MADE,
    ),
    # L and U apart, and the pivots as a matrix of permutation; what was not asked for comes back empty
    "lu_unpack": Row(
        "view self, view pivots, data=True, permutation=True",
        reads="(self.size if data else 0) + (pivots.size if permutation else 0)", writes=_MADE,
    ),
    # each component two products and a subtraction
    "linalg_cross": Row(
        "read self, read other", where="made = joined(self, other)",
        other="made * (14 if self.complex else 3)", writes="made * self.item",
    ),
    # one number for each matrix, which says whether LAPACK could factor it
    "_linalg_check_errors": Row("read info"),
    # [k, ..] terms, [j, k] coefficients -> [j, ..] sums: a step of the matrix exponential
    "_compute_linear_combination": Row(
        "read self, read coefficients[j k]", where="each = self.n // k if k else 0",
        other="ops(self) * 2 * j * k * each", writes="j * each * self.item",
    ),
}  # fmt: skip
register(_FACTORISATIONS, "other", namespace="aten::")

# Solvers: A [.., n, n], B [.., n, r], or [.., r, n] from the left. Two triangular solves take 2 n² FLOPs for each right-hand side.
_TWO_SOLVES: Final = "2 * self[-2] * results().tensors[0].numel"
_SOLVERS: Final[dict[str, Row]] = {
    "linalg_solve_triangular": Row(
        "read self, read right, upper, left=True, unit=False",
        where="made = batches(self, right) * self[-2] * right[-1 if left else -2]",
        other="ops(self) * made * self[-2]", reads="half(self, unit) + right.size", writes="made * right.item",
    ),
    # the matrix is copied and returned with the solution
    "triangular_solve": Row(
        "read right, read self", other="ops(self) * batches(self, right) * self[-2]**2 * right[-1]", writes=_MADE, precision="self"
    ),
    "_linalg_solve_ex": Row("read self[*b n n], read right", other=f"ops(self) * (b * lu(n, n) + {_TWO_SOLVES})", writes=_MADE),
    "linalg_lu_solve": Row("read self, read pivots?, read right", other=f"ops(self) * {_TWO_SOLVES}", writes=_MADE),
    "linalg_ldl_solve": Row(
        "read self, read pivots?, read right",
        other=f"ops(self) * {_TWO_SOLVES}", reads="half(self) + pivots.size + right.size", writes=_MADE,
    ),
    "cholesky_solve _cholesky_solve_helper": Row(
        "read right, read self",
        other=f"ops(self) * {_TWO_SOLVES}", reads="half(self) + right.size", writes=_MADE, precision="self",
    ),
    # by QR: the factorisation, Qᵀ applied to the right-hand sides, one triangular solve
    "linalg_lstsq": Row(
        f"{_MATRIX}, read right",
        where="k = min(m, n); sides = 1 if right.rank < self.rank else right[-1]",
        other="ops(self) * b * (qr(m, n) + reflectors_applied(max(m, n), sides, k) + k**2 * sides)", writes=_MADE,
    ),
}  # fmt: skip
register(_SOLVERS, "other", namespace="aten::")
