"""PyTorch Geometric: scatters, segments, sparse products and neighbors of pyg-lib, torch-scatter, torch-sparse and torch-cluster.

Order of arguments: pyg-team/pyg-lib 764e3a4 (pyg_lib/csrc/ops), rusty1s/pytorch_scatter 648dda3 (csrc/scatter.cpp, segment_coo.cpp,
segment_csr.cpp), rusty1s/pytorch_sparse 91feaa5 (csrc/spmm.cpp), rusty1s/pytorch_cluster 3d1d9e3 (csrc/knn.cpp, radius.cpp,
nearest.cpp, fps.cpp). How many groups a scatter makes is data, unless it is given their number or a result. Samplers of neighborhoods
walk a graph on the CPU and have no formula. A sparse product has no matrix to multiply: it gathers, multiplies and adds rows.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.copies import result_bytes
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import grouped_product, product_work
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.sorting import compares
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

_INDEX: Final = 8  # bytes of an int64
_LIBRARIES: Final = ("pyg", "torch_scatter")


def _both(*names: str) -> tuple[str, ...]:
    return tuple(f"{library}::{name}" for name in names for library in _LIBRARIES)


# --- scatters and segments ---------------------------------------------------------------------------------------------------------


def _rows(tensor: TensorArg, dim: int, count: int) -> int:
    """Elements of a tensor with ``count`` rows along a dimension instead of its own."""
    extent = tensor.shape[dim]
    return tensor.numel // extent * count if extent else 0


def _reduced(signature: Signature, source: TensorArg, index: TensorArg, out: TensorArg | None, results: int) -> Work:
    """One operation for each element; a mean divides each result; a minimum or a maximum also returns where it was."""
    kind = signature.name.rpartition("::")[2].split("_")[1]
    places = results * _INDEX if kind in ("min", "max") else 0
    return Work(
        other_flops=source.numel + results * (kind == "mean"),
        bytes_read=size(source, index, out),
        bytes_written=results * size_of(source.dtype) + places,
        precision=precision_of(source.dtype),
    )


@hinted_formula(*_both(*(f"scatter_{kind}" for kind in ("sum", "mul", "mean", "min", "max"))), category="reduction")
def _scatter(signature: Signature, hints: Hints) -> Work:
    return _scattered(signature, hints, "source index dim=-1 out=None groups=None")


@hinted_formula(*_both(*(f"segment_{kind}_coo" for kind in ("sum", "mean", "min", "max"))), category="reduction")
def _segments_by_index(signature: Signature, hints: Hints) -> Work:
    """The groups follow each other along the last dimension of the index."""
    return _scattered(signature, hints, "source index out=None groups=None")


def _scattered(signature: Signature, hints: Hints, schema: str) -> Work:
    args = Arguments(signature, schema)
    source, index, out = args.tensor("source"), args.tensor("index"), args.optional("out")
    groups = args.value("groups")
    if out is not None:
        results = out.numel
    elif isinstance(groups, int):
        results = _rows(source, args.integer("dim") if args.has("dim") else len(index.shape) - 1, groups)
    else:
        whole = result_bytes(hints, "number of groups not recorded")
        results = whole // (size_of(source.dtype) + (_INDEX if "min" in signature.name or "max" in signature.name else 0))
    return _reduced(signature, source, index, out, results)


@formula(*_both(*(f"segment_{kind}_csr" for kind in ("sum", "mean", "min", "max"))), category="reduction")
def _segments(signature: Signature) -> Work:
    """The index has the ends of the groups, one more than there are."""
    args = Arguments(signature, "source ends out=None")
    source, ends = args.tensor("source"), args.tensor("ends")
    return _reduced(signature, source, ends, args.optional("out"), _rows(source, len(ends.shape) - 1, ends.shape[-1] - 1))


@formula(*_both("gather_coo"), category="copy")
def _gather(signature: Signature) -> Work:
    args = Arguments(signature, "source index out=None")
    source, index = args.tensor("source"), args.tensor("index")
    results = _rows(source, len(index.shape) - 1, index.shape[-1])
    return Work(bytes_read=selected(source, results) + size(index), bytes_written=results * size_of(source.dtype))


@hinted_formula(*_both("gather_csr"), category="copy")
def _gather_segments(signature: Signature, hints: Hints) -> Work:
    """As many copies of a row as its group has members: the last number of the ends."""
    args = Arguments(signature, "source ends out=None")
    out = args.optional("out")
    results = written(out) if out is not None else result_bytes(hints, "number of members not recorded")
    return Work(bytes_read=size(args.tensor("source"), args.tensor("ends")), bytes_written=results)


register(
    {
        "pyg::softmax_csr": Pass("read source, read ends", costs.SOFTMAX, per="source", result="source"),
        "pyg::softmax_csr_backward": Pass("read out, read grad, read ends", costs.SOFTMAX_BACKWARD, per="out", result="out"),
    },
    "reduction",
)

# --- products ----------------------------------------------------------------------------------------------------------------------

_SPARSE: Final = {
    "torch_sparse::spmm_sum": "row ends columns values column_ends order matrix",
    "torch_sparse::spmm_mean": "row ends columns values counts column_ends order matrix",
    "torch_sparse::spmm_min": "ends columns values matrix",
    "torch_sparse::spmm_max": "ends columns values matrix",
}


def _sparse(signature: Signature, schema: str) -> Work:
    """A row of the matrix [.., columns, width] for each number of the sparse one, times the number if it has values."""
    args = Arguments(signature, schema)
    ends, columns, values, matrix = args.tensor("ends"), args.tensor("columns"), args.optional("values"), args.tensor("matrix")
    width = matrix.shape[-1] * prod(matrix.shape[:-2])
    elements, results = columns.numel * width, (ends.numel - 1) * width
    where = results * _INDEX if signature.name.endswith(("min", "max")) else 0
    return Work(
        other_flops=elements * (1 + (values is not None)) + results * signature.name.endswith("mean"),
        bytes_read=size(ends, columns, values) + selected(matrix, elements),
        bytes_written=results * size_of(matrix.dtype) + where,
        precision=precision_of(matrix.dtype),
    )


for _name, _schema in _SPARSE.items():
    formula(_name, category="reduction")(partial(_sparse, schema=_schema))


@formula("pyg::segment_matmul", category="matmul")
def _segment_products(signature: Signature) -> Work:
    """[rows of all groups, k] with a [k, n] for each group."""
    args = Arguments(signature, "left ends right")
    left, right, ends = args.tensor("left"), args.tensor("right"), args.tensor("ends")
    flops, shape = grouped_product(left, right, ends)
    return Work(flops, 0, size(left, right, ends), prod(shape) * size_of(left.dtype), matrix_precision_of(left.dtype))


@formula("pyg::grouped_matmul", category="matmul")
def _listed_products(signature: Signature) -> Work:
    args = Arguments(signature, "left right")
    lefts, rights = args.tensors("left"), args.tensors("right")
    if not lefts or len(lefts) != len(rights):
        raise NotCounted("tensors of the list not recorded")
    assumption = "numbers of float32, because traces leave out the dtype of lists" if lefts[0].dtype == "float32" else ""
    return sum(map(product_work, lefts, rights), Work(assumption=assumption))


@formula("pyg::sampled_op", category="element-wise")
def _sampled(signature: Signature) -> Work:
    """Rows of two tensors at their indices, added, subtracted, multiplied or divided."""
    args = Arguments(signature, "left right left_index right_index op")
    left, right = args.tensor("left"), args.tensor("right")
    indices = [args.optional(name) for name in ("left_index", "right_index")]
    rows = next((index.numel for index in indices if index is not None), left.shape[0])
    results = rows * prod(left.shape[1:])
    return Work(
        other_flops=results,
        bytes_read=selected(left, results) + selected(right, results) + size(*indices),
        bytes_written=results * size_of(left.dtype),
        precision=precision_of(left.dtype),
    )


@formula("pyg::index_sort", category="reduction")
def _sort(signature: Signature) -> Work:
    """The indices in order, and where each of them was."""
    indices = Arguments(signature, "indices").tensor("indices")
    return Work(0, indices.numel * compares(indices.numel), size(indices), written(indices) + indices.numel * _INDEX)


# --- neighbors ---------------------------------------------------------------------------------------------------------------------

_EVEN: Final = "examples have equally many points"


def _pairs(args: Arguments) -> tuple[TensorArg, TensorArg, int, str]:
    """The points that are searched and those that ask, the distances between them, and what was assumed: where tensors say where the
    examples of a batch end, points of an example meet."""
    points, asking, ends = args.tensor("points"), args.tensor("asking"), args.optional("ends")
    examples = max(ends.numel - 1, 1) if ends is not None else 1
    return points, asking, points.shape[0] * asking.shape[0] // examples, _EVEN if examples > 1 else ""


def _cost(points: TensorArg) -> int:
    """FLOPs of a squared distance, and a compare."""
    return 3 * prod(points.shape[1:])


def _searched(args: Arguments, found: tuple[TensorArg, TensorArg, int, str], results: int) -> Work:
    """Every distance of the pairs that were ``found`` computed, and ``results`` bytes written."""
    points, asking, pairs, assumption = found
    return Work(
        other_flops=pairs * _cost(points),
        bytes_read=size(points, asking, args.optional("ends"), args.optional("asking_ends")),
        bytes_written=results,
        precision=precision_of(points.dtype),
        assumption=assumption,
    )


@formula("torch_cluster::knn", "pyg::knn", "torch_cluster::nearest", "pyg::nearest", category="reduction")
def _nearest(signature: Signature) -> Work:
    """A list of pairs: of each point that asks and its ``k`` nearest ones; the nearest one alone without a list."""
    many = signature.name.endswith("knn")
    args = Arguments(signature, "points asking ends=None asking_ends=None k=1")
    points, asking, *_ = found = _pairs(args)
    results = 2 * asking.shape[0] * args.integer("k") if many else points.shape[0]
    return _searched(args, found, results * _INDEX)


@hinted_formula("torch_cluster::radius", "pyg::radius", category="reduction")
def _within(signature: Signature, hints: Hints) -> Work:
    """All pairs nearer than a distance."""
    args = Arguments(signature, "points asking ends=None asking_ends=None")
    return _searched(args, _pairs(args), result_bytes(hints, "number of pairs not recorded"))


@hinted_formula("torch_cluster::fps", "pyg::fps", category="reduction")
def _farthest(signature: Signature, hints: Hints) -> Work:
    """Point after point the one farthest from those that are chosen: a distance and a minimum for each point and each chosen one."""
    args = Arguments(signature, "points ends")
    points, ends = args.tensor("points"), args.tensor("ends")
    results = result_bytes(hints, "number of chosen points not recorded")
    examples = max(ends.numel - 1, 1)
    return Work(
        other_flops=results // _INDEX * points.shape[0] // examples * (_cost(points) + 2),
        bytes_read=size(points, ends),
        bytes_written=results,
        precision=precision_of(points.dtype),
        assumption=_EVEN if examples > 1 else "",
    )
