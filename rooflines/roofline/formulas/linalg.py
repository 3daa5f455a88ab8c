"""Factorisations and what is solved with them: the operation counts of the textbooks, leading terms, rounded down.

Sources: Golub and Van Loan, Matrix Computations (3rd edition; the table of section 5.4.5 for the SVD, 7.5.6 and 8.3 for eigenvalues),
and LAPACK Working Note 41, appendix C, for the rest. A complex operation is four real ones. These are not matrix products: all of it is
``other_flops``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, broadcast, every, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

# FLOPs of one matrix, m by n with the shorter side k and the longer l.


def cholesky(n: int) -> int:
    """L Lᵀ."""
    return n**3 // 3


def lu(m: int, n: int) -> int:
    """P L U: 2/3 n³ of a square matrix."""
    shorter, longer = sorted((m, n))
    return longer * shorter**2 - shorter**3 // 3


def substitution(n: int, columns: int) -> int:
    """One triangular solve for several right-hand sides."""
    return n**2 * columns


def inverse(n: int) -> int:
    """By LU: 2/3 n³, then 4/3 n³."""
    return 2 * n**3


def qr(m: int, n: int) -> int:
    """Householder's reflectors and R: 2 l k² - 2/3 k³."""
    shorter, longer = sorted((m, n))
    return 2 * longer * shorter**2 - 2 * shorter**3 // 3


def reflectors_joined(m: int, columns: int, reflectors: int) -> int:
    """Q written out, m by ``columns``, from its reflectors (LAPACK's orgqr)."""
    return 4 * m * columns * reflectors - 2 * (m + columns) * reflectors**2 + 4 * reflectors**3 // 3


def reflectors_applied(m: int, n: int, reflectors: int) -> int:
    """Q times an m by n matrix, reflector by reflector (LAPACK's ormqr)."""
    return 4 * n * m * reflectors - 2 * n * reflectors**2


def eigh(n: int, vectors: bool) -> int:
    """Symmetric QR algorithm: 9 n³; without vectors 4/3 n³, the reduction to three diagonals."""
    return 9 * n**3 if vectors else 4 * n**3 // 3


def eig(n: int, vectors: bool) -> int:
    """Hessenberg form and QR algorithm: 25 n³; without vectors 10 n³."""
    return 25 * n**3 if vectors else 10 * n**3


def svd(m: int, n: int, vectors: bool, full: bool = False) -> int:
    """Golub and Reinsch: 14 l k² + 8 k³; without vectors 4 l k² - 4/3 k³; with all of both bases 4 l² k + 8 l k² + 9 k³."""
    k, longer = sorted((m, n))
    if not vectors:
        return 4 * longer * k**2 - 4 * k**3 // 3
    return 4 * longer**2 * k + 8 * longer * k**2 + 9 * k**3 if full else 14 * longer * k**2 + 8 * k**3


def triangle(n: int) -> int:
    """Elements on and below the diagonal."""
    return n * (n + 1) // 2


def _sides(matrix: TensorArg) -> tuple[int, int, int]:
    """[.., m, n] -> matrices, m, n."""
    if len(matrix.shape) < 2:
        raise NotCounted("a matrix needs two dimensions")
    return prod(matrix.shape[:-2]), matrix.shape[-2], matrix.shape[-1]


def _batch(*matrices: TensorArg) -> int:
    return prod(broadcast(matrix.shape[:-2] for matrix in matrices))


def _factored(inputs: TensorArg, flops: int, read: int, results: int) -> Work:
    """``flops`` of all matrices, of real numbers."""
    factor = 4 if inputs.dtype.startswith("complex") else 1
    return Work(other_flops=factor * flops, bytes_read=read, bytes_written=results, precision=precision_of(inputs.dtype))


def _half(matrix: TensorArg, unit: bool = False) -> int:
    """Bytes of one triangle of each matrix, without its diagonal where that is all ones."""
    _, rows, columns = _sides(matrix)
    elements = triangle(columns) - (columns if unit else 0)
    return size(matrix) * elements // (rows * columns) if rows * columns else 0


_FACTORISATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "linalg_lu_factor_ex": lu,
    "linalg_lu": lu,
    "_linalg_det": lambda m, n: lu(m, n) + n,
    "_linalg_slogdet": lambda m, n: lu(m, n) + 12 * n,  # a logarithm and an addition for each pivot
    "linalg_inv_ex": lambda m, n: inverse(n),
    "linalg_eig": lambda m, n: eig(n, vectors=True),
    "_linalg_eigvals": lambda m, n: eig(n, vectors=False),
    "linalg_eigvals": lambda m, n: eig(n, vectors=False),  # with ``out`` it has a separate kernel
    # the polynomial of degree 18 of Bader, Blanes and Casas in five products, unscaled: how often it is squared is data
    "linalg_matrix_exp": lambda m, n: 10 * n**3,
    "linalg_polar": lambda m, n: svd(m, n, vectors=True) + 2 * m * n * min(m, n) + 2 * min(m, n) * n**2,
}


def _whole(signature: Signature, hints: Hints, flops: Callable[[int, int], int]) -> Work:
    inputs = Arguments(signature, "self").tensor("self")
    batch, rows, columns = _sides(inputs)
    return _factored(inputs, batch * flops(rows, columns), size(inputs), written(*hints.results(signature)))


for _name, _flops in _FACTORISATIONS.items():
    hinted_formula(f"aten::{_name}", category="other")(partial(_whole, flops=_flops))

_SYMMETRIC: Final[dict[str, Callable[[int], int]]] = {
    "linalg_cholesky_ex": cholesky,
    "linalg_ldl_factor_ex": cholesky,
    "cholesky_inverse": lambda n: 2 * n**3 // 3,
    "linalg_matrix_sqrth": lambda n: eigh(n, vectors=True) + 2 * n**3,
}


def _symmetric(signature: Signature, hints: Hints, flops: Callable[[int], int]) -> Work:
    """A factorisation that looks at one triangle of its matrix."""
    inputs = Arguments(signature, "self").tensor("self")
    batch, _, side = _sides(inputs)
    return _factored(inputs, batch * flops(side), _half(inputs), written(*hints.results(signature)))


for _name, _one in _SYMMETRIC.items():
    hinted_formula(f"aten::{_name}", category="other")(partial(_symmetric, flops=_one))


@hinted_formula("aten::_linalg_eigh", category="other")
def _eigh(signature: Signature, hints: Hints) -> Work:
    args = Arguments(signature, "self uplo vectors=True")
    inputs = args.tensor("self")
    batch, _, side = _sides(inputs)
    vectors = args.flag("vectors")
    part = size_of(inputs.dtype) // (2 if inputs.dtype.startswith("complex") else 1)
    results = batch * side * part + (written(inputs) if vectors else 0)
    if hints.outputs is not None:
        results = written(*hints.outputs)
    return _factored(inputs, batch * eigh(side, vectors), _half(inputs), results)


@formula("aten::_linalg_svd", category="other")
def _svd(signature: Signature) -> Work:
    """[m, n] -> U, the k singular values, Vᴴ: k or, in full, m columns and n rows."""
    args = Arguments(signature, "self full=False vectors=True")
    inputs, full, vectors = args.tensor("self"), args.flag("full"), args.flag("vectors")
    batch, rows, columns = _sides(inputs)
    shorter = min(rows, columns)
    part = size_of(inputs.dtype) // (2 if inputs.dtype.startswith("complex") else 1)
    bases = rows**2 + columns**2 if full else shorter * (rows + columns)
    results = batch * (shorter * part + (bases * size_of(inputs.dtype) if vectors else 0))
    return _factored(inputs, batch * svd(rows, columns, vectors, full), size(inputs), results)


@formula("aten::linalg_qr", category="other")
def _qr(signature: Signature) -> Work:
    """[m, n] -> Q, R. A trace does not record the mode: then it is ``reduced``, Q having k columns."""
    args = Arguments(signature, "self mode=None")
    inputs, mode = args.tensor("self"), args.value("mode")
    batch, rows, columns = _sides(inputs)
    shorter = min(rows, columns)
    joined = {"r": 0, "complete": rows}.get(str(mode), shorter)
    kept = rows if mode == "complete" else shorter
    flops = qr(rows, columns) + (reflectors_joined(rows, joined, shorter) if joined else 0)
    return _factored(inputs, batch * flops, size(inputs), batch * (rows * joined + kept * columns) * size_of(inputs.dtype))


@formula("aten::geqrf", category="other")
def _geqrf(signature: Signature) -> Work:
    """R with the reflectors below it, and k factors."""
    inputs = Arguments(signature, "self").tensor("self")
    batch, rows, columns = _sides(inputs)
    factors = batch * min(rows, columns) * size_of(inputs.dtype)
    return _factored(inputs, batch * qr(rows, columns), size(inputs), written(inputs) + factors)


@formula("aten::linalg_householder_product", category="other")
def _householder(signature: Signature) -> Work:
    """[m, n] reflectors with their k factors -> Q [m, n]. The reflectors are below the diagonal."""
    args = Arguments(signature, "self tau")
    inputs, tau = args.tensor("self"), args.tensor("tau")
    batch, rows, columns = _sides(inputs)
    count = tau.shape[-1]
    below = sum(max(rows - column - 1, 0) for column in every(count))
    read = size(inputs) * below // (rows * columns) if rows * columns else 0
    return _factored(inputs, batch * reflectors_joined(rows, columns, count), read + size(tau), written(inputs))


@formula("aten::ormqr", category="other")
def _ormqr(signature: Signature) -> Work:
    """Q, as k reflectors, times another matrix [m, n], from the left or the right."""
    args = Arguments(signature, "self tau other left=True")
    reflectors, tau, other = args.tensor("self"), args.tensor("tau"), args.tensor("other")
    batch, rows, columns = _sides(other)
    side, across = (rows, columns) if args.flag("left") else (columns, rows)
    count = tau.shape[-1]
    below = sum(max(side - column - 1, 0) for column in every(count))
    stored = prod(reflectors.shape[-2:])
    read = size(reflectors) * below // stored if stored else 0
    return _factored(other, batch * reflectors_applied(side, across, count), read + size(tau, other), written(other))


# Solvers: A [.., n, n], B [.., n, r], or [.., r, n] from the left.


@formula("aten::linalg_solve_triangular", category="other")
def _solve_triangular(signature: Signature) -> Work:
    args = Arguments(signature, "self b upper left=True unit=False")
    matrix, right = args.tensor("self"), args.tensor("b")
    _, side, _ = _sides(matrix)
    batch = _batch(matrix, right)
    columns = right.shape[-1 if args.flag("left") else -2]
    return _factored(
        matrix,
        batch * substitution(side, columns),
        _half(matrix, args.flag("unit")) + size(right),
        batch * side * columns * size_of(right.dtype),
    )


@hinted_formula("aten::triangular_solve", category="other")
def _triangular_solve(signature: Signature, hints: Hints) -> Work:
    """B comes first; the matrix is returned with the solution."""
    args = Arguments(signature, "b self upper=True transpose=False unit=False")
    right, matrix = args.tensor("b"), args.tensor("self")
    _, side, _ = _sides(matrix)
    batch = _batch(matrix, right)
    read = size(matrix) + size(right)  # all of the matrix is copied
    return _factored(matrix, batch * substitution(side, right.shape[-1]), read, written(*hints.results(signature)))


def _solved(signature: Signature, hints: Hints, schema: str, factor: Callable[[int], int], triangles: bool) -> Work:
    """``factor`` FLOPs to factor a matrix, then two triangular solves for its right-hand sides."""
    args = Arguments(signature, schema)
    matrix, right = args.tensor("self"), args.tensor("b")
    _, side, _ = _sides(matrix)
    results = hints.results(signature)
    flops = prod(matrix.shape[:-2]) * factor(side) + 2 * side * results[0].numel
    read = (_half(matrix) if triangles else size(matrix)) + size(right, args.optional("pivots"))
    return _factored(matrix, flops, read, written(*results))


for _name, _schema, _factor, _triangles in (
    ("_linalg_solve_ex", "self b", lambda n: lu(n, n), False),
    ("linalg_lu_solve", "self pivots b", lambda n: 0, False),
    ("linalg_ldl_solve", "self pivots b", lambda n: 0, True),
    ("cholesky_solve", "b self", lambda n: 0, True),
    ("_cholesky_solve_helper", "b self", lambda n: 0, True),
):
    hinted_formula(f"aten::{_name}", category="other")(partial(_solved, schema=_schema, factor=_factor, triangles=_triangles))


@hinted_formula("aten::linalg_lstsq", category="other")
def _lstsq(signature: Signature, hints: Hints) -> Work:
    """By QR: the factorisation, Qᵀ applied to the right-hand sides, one triangular solve."""
    args = Arguments(signature, "self b")
    matrix, right = args.tensor("self"), args.tensor("b")
    batch, rows, columns = _sides(matrix)
    shorter, longer = sorted((rows, columns))
    sides = 1 if len(right.shape) < len(matrix.shape) else right.shape[-1]
    flops = qr(rows, columns) + reflectors_applied(longer, sides, shorter) + substitution(shorter, sides)
    return _factored(matrix, batch * flops, size(matrix, right), written(*hints.results(signature)))


@hinted_formula("aten::linalg_pinv", category="other")
def _pinv(signature: Signature, hints: Hints) -> Work:
    """By SVD: V diag(1 / s) Uᴴ."""
    inputs = Arguments(signature, "self").tensor("self")
    batch, rows, columns = _sides(inputs)
    flops = svd(rows, columns, vectors=True) + 2 * rows * columns * min(rows, columns)
    tolerances = [arg for arg in signature.args[1:3] if isinstance(arg, TensorArg)]
    return _factored(inputs, batch * flops, size(inputs, *tolerances), written(*hints.results(signature)))


@hinted_formula("aten::lu_unpack", category="other")
def _lu_unpack(signature: Signature, hints: Hints) -> Work:
    """L and U apart, and the pivots as a matrix of permutation; what was not asked for comes back empty."""
    args = Arguments(signature, "self pivots data=True permutation=True")
    read = (args.tensor("self") if args.flag("data") else None, args.tensor("pivots") if args.flag("permutation") else None)
    return Work(bytes_read=size(*read), bytes_written=written(*hints.results(signature)))


@formula("aten::linalg_cross", category="other")
def _cross(signature: Signature) -> Work:
    """Each component two products and a subtraction."""
    args = Arguments(signature, "self other")
    left, right = args.tensor("self"), args.tensor("other")
    results = prod(broadcast((left.shape, right.shape)))
    cost = 3 if not left.dtype.startswith("complex") else 14
    return Work(0, cost * results, size(left, right), results * size_of(left.dtype), precision_of(left.dtype))


@formula("aten::_linalg_check_errors", category="other")
def _check_errors(signature: Signature) -> Work:
    """One number for each matrix, which says whether LAPACK could factor it."""
    return Work(bytes_read=size(Arguments(signature, "info").tensor("info")))


@formula("aten::_compute_linear_combination", category="other")
def _linear_combination(signature: Signature) -> Work:
    """[k, ..] terms, [j, k] coefficients -> [j, ..] sums: a step of the matrix exponential."""
    args = Arguments(signature, "self coefficients")
    terms, coefficients = args.tensor("self"), args.tensor("coefficients")
    sums, count = coefficients.shape
    each = terms.numel // count if count else 0
    return _factored(terms, 2 * coefficients.numel * each, size(terms, coefficients), sums * each * size_of(terms.dtype))
