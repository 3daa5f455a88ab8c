"""Factorisations and what is solved with them: the operation counts of the textbooks, leading terms, rounded
down.

Sources: Golub and Van Loan, Matrix Computations (3rd edition; the table of section 5.4.5 for the SVD, 7.5.6
and 8.3 for eigenvalues), and LAPACK Working Note 41, appendix C, for the rest. A complex operation is four
real ones. These are not matrix products: all of it is ``other_flops``.
"""

from __future__ import annotations

from rooflines.roofline.count.formulas.arguments import every
from rooflines.roofline.count.formulas.rows import Tensors, named

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
    """Golub and Reinsch: 14 l k² + 8 k³; without vectors 4 l k² - 4/3 k³; with all of both bases 4 l² k + 8 l
    k² + 9 k³."""
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
