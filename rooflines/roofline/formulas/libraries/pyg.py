"""PyTorch Geometric: scatters, segments, sparse products and neighbors of pyg-lib, torch-scatter, torch-sparse and torch-cluster.

How many groups a scatter makes is data, unless it is given their number or a result. Samplers of neighborhoods walk a graph on the CPU
and have no formula. A sparse product has no matrix to multiply: it gathers, multiplies and adds rows. Returned indices are int64.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.costs import SOFTMAX, SOFTMAX_BACKWARD
from rooflines.roofline.formulas.matmul import product_work
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register

_INDEX: Final = 8  # bytes of an int64

# --- scatters, segments and gathers ------------------------------------------------------------------------------------------------

_GROUPS: Final = {
    "scatter_{}": "source index dim=-1 out=None groups=None",
    "segment_{}_coo": "source index out=None groups=None",
    "segment_{}_csr": "source index out=None",
}


def _reduced(signature: Signature, hints: Hints, kind: str, schema: str) -> Work:
    """One operation for each element; a mean divides each result; a minimum or a maximum also returns where it was.

    Groups follow each other along the last dimension of the index, which has their ends, one more than there are, if nothing says how
    many there are; those of a scatter may lie along another dimension.
    """
    args = Arguments(signature, schema)
    source, index, out = args.tensor("source"), args.tensor("index"), args.optional("out")
    item = size_of(source.dtype) + (_INDEX if kind in ("min", "max") else 0)
    groups = args.value("groups") if args.has("groups") else index.shape[-1] - 1
    if out is not None:
        results = out.numel
    elif isinstance(groups, int):
        extent = source.shape[args.integer("dim", absent=len(index.shape) - 1)]
        results = source.numel // extent * groups if extent else 0
    else:
        results = hints.result_bytes("number of groups not recorded") // item
    cost = source.numel + results * (kind == "mean")
    return Work(0, cost, size(source, index, out), results * item, precision_of(source.dtype))


for _form, _schema in _GROUPS.items():
    for _kind in ("sum", "mean", "min", "max", *(("mul",) if _form == "scatter_{}" else ())):
        _name = _form.format(_kind)
        hinted_formula(f"pyg::{_name}", f"torch_scatter::{_name}", category="reduction")(partial(_reduced, kind=_kind, schema=_schema))

_GATHERS: Final[dict[str, Row]] = {
    "pyg::gather_coo torch_scatter::gather_coo": Row(
        "read source, read index",
        where="made = source.n // max(source[index.rank - 1], 1) * index[-1]",
        reads="selected(source, made) + index.size",
        writes="made * source.item",
    ),
    # As many copies of a row as its group has members: the last number of the ends.
    "pyg::gather_csr torch_scatter::gather_csr": Row(
        "read source, read ends, write out?",
        reads="source.size + ends.size",
        writes="0 if out else returned('number of members not recorded')",
    ),
}
register(_GATHERS, "copy")

# --- products and rows -------------------------------------------------------------------------------------------------------------

# A row of the matrix [.., columns, width] for each number of the sparse one, times the number if it has values.
_SPARSE: Final = "read ends, read columns, read values?, {}read matrix[*outer nodes width]"
_SUM: Final = Row(
    f"row, {_SPARSE.format('column_ends, order, ')}",
    where="made = (ends.n - 1) * outer * width; taken = columns.n * outer * width",
    other="taken * (1 + bool(values))",
    reads="ends.size + columns.size + values.size + selected(matrix, taken)",
    writes="made * matrix.item",
    precision="matrix",
)
# A squared distance and a compare for each pair of an example; tensors may say where the examples of a batch end.
_POINTS: Final = "read points[n *depth], read asking[m *same], read ends?, read asking_ends?"
_PAIRS: Final = Row(
    _POINTS,
    where="examples = max(ends.n - 1, 1)",
    other="n * m // examples * 3 * depth",
    assumption="examples have equally many points",
    given="examples > 1",
)
_REDUCTIONS: Final[dict[str, Row]] = {
    "pyg::softmax_csr": Row("read source, read ends", SOFTMAX, "source", result="source"),
    "pyg::softmax_csr_backward": Row("read out, read grad, read ends", SOFTMAX_BACKWARD, "out", result="out"),
    "torch_sparse::spmm_sum": _SUM,
    "torch_sparse::spmm_mean": replace(
        _SUM, schema=f"row, {_SPARSE.format('counts, column_ends, order, ')}", other=f"{_SUM.other} + made"
    ),
    # And where each result was.
    "torch_sparse::spmm_min torch_sparse::spmm_max": replace(_SUM, schema=_SPARSE.format(""), writes="made * (matrix.item + 8)"),
    # n log2(n) compares: the indices in order, and where each of them was.
    "pyg::index_sort": Row(
        "read indices", other="indices.n * (indices.n - 1).bit_length()", result="indices", writes="8 * indices.n", precision="="
    ),
    # A list of pairs: of each point that asks and its k nearest ones.
    "torch_cluster::knn pyg::knn": replace(_PAIRS, schema=f"{_POINTS}, k=1", writes="8 * 2 * m * k"),
    "torch_cluster::nearest pyg::nearest": replace(_PAIRS, writes="8 * n"),
    # All pairs nearer than a distance.
    "torch_cluster::radius pyg::radius": replace(_PAIRS, writes="returned('number of pairs not recorded')"),
    # Point after point the one farthest from those that are chosen: a distance and a minimum for each point and each chosen one.
    "torch_cluster::fps pyg::fps": replace(
        _PAIRS,
        schema="read points[n *depth], read ends",
        where=f"made = returned('number of chosen points not recorded'); {_PAIRS.where}",
        other="made // 8 * n // examples * (3 * depth + 2)",
        writes="made",
    ),
}
register(_REDUCTIONS, "reduction")
# Rows of two tensors at their indices, added, subtracted, multiplied or divided.
_SAMPLED: Final = Row(
    "read left[rows *rest], read right, read left_index?, read right_index?",
    where="made = (left_index.n if left_index else right_index.n if right_index else rows) * rest",
    other="made",
    reads="selected(left, made) + selected(right, made) + left_index.size + right_index.size",
    writes="made * left.item",
)
register({"pyg::sampled_op": _SAMPLED}, "element-wise")
# [rows of all groups, k] with a [k, n] for each group
_SEGMENTS: Final = Row("read left[t k], read ends, read right[groups k n]", matrix="2 * t * k * n", writes="t * n * left.item")
register({"pyg::segment_matmul": _SEGMENTS}, "matmul")


@formula("pyg::grouped_matmul", category="matmul")
def _listed_products(signature: Signature) -> Work:
    args = Arguments(signature, "left right")
    lefts, rights = args.tensors("left"), args.tensors("right")
    if not lefts or len(lefts) != len(rights):
        raise NotCounted("tensors of the list not recorded")
    assumption = "numbers of float32, because traces leave out the dtype of lists" if lefts[0].dtype == "float32" else ""
    return sum(map(product_work, lefts, rights), Work(assumption=assumption))
