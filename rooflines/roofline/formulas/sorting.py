"""Sorting, selection, search, sets and histograms. A sort of n elements costs n log2(n) compares, a search among n log2(n)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.reduction import INDEX_BYTES
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register


def _axis_length(tensor: TensorArg, axis: int) -> int:
    return tensor.shape[axis] if tensor.shape else 1


_LENGTH: Final = "length = self[dim] if self.rank else 1"
_ONE_EACH: Final = "(self.n // length if length else 0) * (self.item + 8)"
_STEPS: Final = "n = self.n if self else 1; steps = compares((ordered[-1] if ordered.rank else 1) + 1)"
_SELECTIONS: Final[dict[str, Row]] = {
    # one comparison for each element, for every k; values and indices are written
    "topk": Row("read self, k, dim=-1", 1, per="self", where=_LENGTH, writes=f"k * {_ONE_EACH}"),
    "kthvalue": Row("read self, k, dim=-1", 1, per="self", where=_LENGTH, writes=_ONE_EACH),
    # sorts each row, then counts runs
    "mode": Row("read self, dim=-1", where=_LENGTH, other="self.n * (compares(length) + 1)", writes=_ONE_EACH),
    # sorts the elements, or the slices along a dimension, and compares neighbors; the consecutive forms only compare
    "_unique _unique2": Row(
        "read self", other="self.n * (compares(self.n) + 1)", writes="returned('output size not recorded')"
    ),
    "unique_dim": Row(
        "read self, dim", where=_LENGTH, other="self.n * (compares(length) + 1)", writes="returned('output size not recorded')"
    ),
    "unique_consecutive unique_dim_consecutive": Row("read self", 1, per="self", writes="returned('output size not recorded')"),
    # Equal bins between two bounds. Where these are equal, the smallest and the largest element are looked for. Subtract the lowest,
    # times bins over the range, round down, count.
    "histc": Row(
        "read self, bins=100, low=0, high=0",
        other="self.n * (4 + 2 * (known('low') == known('high')))", writes="bins * self.item",
    ),
    # A binary search for each value: it looks at no more elements than it has steps, nor at more than there are.
    "searchsorted": Row(
        "view ordered, read self?, out_int32=False, right=False, side=None, view sorter?", where=_STEPS,
        other="n * steps", reads="self.size + selected(ordered, n * steps) + selected(sorter, n * steps)",
        writes="n * (4 if out_int32 else 8)", precision="ordered",
    ),
    "bucketize": Row(
        "read self?, view ordered, out_int32=False", where=_STEPS, other="n * steps",
        reads="self.size + selected(ordered, n * steps)", writes="n * (4 if out_int32 else 8)", precision="ordered",
    ),
    # each element against each test element where these are few, as torch does; else all of them sorted together
    "isin": Row(
        "read elements?, read tests?", where="count = elements.n if elements else 1; against = tests.n if tests else 1;"
        " direct = not elements or not tests or against < 10 * count**0.145 // 1",
        other="count * against if direct else (count + against) * (compares(count + against) + 1)", writes="count",
        precision="elements tests", fits="bool(elements) or bool(tests)",
    ),
}  # fmt: skip
register(_SELECTIONS, "reduction", namespace="aten::")


@formula("aten::sort", "aten::argsort", "aten::msort", category="reduction")
def _sort(signature: Signature) -> Work:
    """n log2(n) compares a row, rows along the last dimension recorded as an integer."""
    inputs = Arguments(signature, "self").tensor("self")
    axes = [arg for arg in signature.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    if not axes and MISSING in signature.args and signature.name != "aten::msort":
        raise NotCounted("argument 'dim' not recorded")
    length = _axis_length(inputs, 0 if signature.name == "aten::msort" else axes[0] if axes else -1)
    values = 0 if signature.name == "aten::argsort" else size_of(inputs.dtype)
    indices = 0 if signature.name == "aten::msort" else INDEX_BYTES
    return Work(
        other_flops=inputs.numel * costs.compares(length),
        bytes_read=size(inputs),
        bytes_written=inputs.numel * (values + indices),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::median", "aten::nanmedian", category="reduction")
def _median(signature: Signature) -> Work:
    """Selects as ``topk`` does, of all elements one value, along a dimension its index too; nanmedian first looks for numbers."""
    inputs = Arguments(signature, "self").tensor("self")
    cost = 1 if signature.name == "aten::median" else 2
    axis = signature.arg(1, default=None)
    if MISSING in signature.args:
        raise NotCounted("argument 'dim' not recorded")
    whole = not isinstance(axis, int)
    length = inputs.numel if whole else _axis_length(inputs, axis)
    results = (1 if whole else inputs.numel // length if length else 0) * (size_of(inputs.dtype) + (0 if whole else INDEX_BYTES))
    return Work(0, cost * inputs.numel, size(inputs), results, precision_of(inputs.dtype))


# Bins of equal width, whose numbers are given, or bins between given edges, one more, which are searched for each element.
_COUNTED_BINS: Final = Row("read self, bins+, range, read weights?", 4, per="self", writes="prod(bins) * self.item")  # as ``histc``
_GIVEN_EDGES: Final = Row(
    "read self, read bins+, read weights?", other="self.n * (compares(bins[0]) + 1)", precision="self",
    writes="prod([each.numel - 1 for each in bins.tensors]) * self.item",
)  # fmt: skip
_HISTOGRAMS: Final[dict[str, Row | tuple[Row, ...]]] = {
    # which returns the edges too
    "histogram": (
        replace(_COUNTED_BINS, writes="(2 * bins[0] + 1) * self.item"), replace(_GIVEN_EDGES, writes="(2 * bins[0] - 1) * self.item"),
    ),
    "_histogramdd_from_bin_cts": _COUNTED_BINS,
    "_histogramdd_from_bin_tensors": _GIVEN_EDGES,
    # the smallest and the largest element of each dimension, unless a range is given; then edges at equal distances
    "_histogramdd_bin_edges": Row(
        "view self, bins+, range=None", where="made = sum(bins) + len(bins); looked = known('range') is None",
        other="2 * self.n * looked + 2 * made", reads="self.size * looked", writes="made * self.item", precision="self",
    ),
}  # fmt: skip
register(_HISTOGRAMS, "reduction", namespace="aten::")
