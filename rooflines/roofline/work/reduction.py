"""Sums, means, extrema, norms, softmax, scans and sorting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, log2
from typing import Final, Literal

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.work import costs
from rooflines.roofline.work.arguments import SCALAR_TYPES, Arguments, NotCounted, broadcast, floating, promote, size, size_of
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import Hints, aten, composite, formula, hinted_formula, words

_INDEX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """``cost`` FLOPs an element of the input; ``axis`` is the position of the dimension argument.

    ``whole`` is how many arguments the form without dimensions has (0 for "any": its second argument is not an integer).
    ``result``: what is written for each result, an element of the input's dtype, two of them, a floating-point number, a boolean,
    an index, or an element and its index when the call named a dimension.
    """

    cost: int
    result: Literal["same", "two", "float", "bool", "index", "same and index"] = "same"
    axis: int = 1
    whole: int = 0


RULES: Final[dict[str, Rule]] = {
    "sum": Rule(1, whole=2), "nansum": Rule(2, whole=2), "mean": Rule(1, "float", whole=2), "nanmean": Rule(2, "float"),
    "prod": Rule(1, whole=2),
    "max": Rule(1, "same and index"), "min": Rule(1, "same and index"), "amax": Rule(1), "amin": Rule(1), "aminmax": Rule(2, "two"),
    "median": Rule(1, "same and index"), "nanmedian": Rule(2, "same and index"),
    "argmax": Rule(1, "index"), "argmin": Rule(1, "index"), "all": Rule(1, "bool"), "any": Rule(1, "bool"),
    "count_nonzero": Rule(1, "index"), "logsumexp": Rule(costs.TRANSCENDENTAL + 3, "float"),
    "var": Rule(costs.MEAN_AND_VARIANCE, "float"), "std": Rule(costs.MEAN_AND_VARIANCE, "float"),
    "var_mean": Rule(costs.MEAN_AND_VARIANCE, "two"), "std_mean": Rule(costs.MEAN_AND_VARIANCE, "two"),
    # the 2-norm: multiply, add
    "norm": Rule(2, "float", axis=2), "linalg_vector_norm": Rule(2, "float", axis=2), "frobenius_norm": Rule(2, "float"),
}  # fmt: skip


def _reduced_sizes(tensor: TensorArg, axes: Argument) -> int:
    """Results of reducing ``axes`` (an integer, several, or None and () for all) of a tensor."""
    rank = len(tensor.shape)
    if axes is None or axes == ():
        return 1
    listed = (axes,) if isinstance(axes, int) else axes
    if not isinstance(listed, tuple) or not all(isinstance(axis, int) and -max(rank, 1) <= axis < max(rank, 1) for axis in listed):
        raise NotCounted("argument 'dim' not recorded")
    dropped = {axis % rank for axis in listed} if rank else set()
    results = 1
    for axis, extent in enumerate(tensor.shape):
        results *= 1 if axis in dropped else extent
    return results


def _accumulated(signature: Signature, rule: Rule, dtype: str) -> str:
    """The dtype of a sum or mean: the one asked for, else the input's, with integers summed as int64."""
    if rule.whole and isinstance(signature.arg(1), tuple | type(None)):
        asked = signature.arg(3, default=None)
    elif rule.whole and len(signature.args) <= rule.whole:
        asked = signature.arg(1, default=None)
    else:
        asked = None
    if isinstance(asked, int) and asked in SCALAR_TYPES:
        return SCALAR_TYPES[asked]
    return dtype if floating(dtype) else "int64"


def _result_bytes(rule: Rule, dtype: str, along_axis: bool) -> int:
    itemsize = size_of(dtype)
    if rule.result == "float":
        return itemsize if floating(dtype) else 4
    return {
        "same": itemsize,
        "two": 2 * itemsize,
        "bool": 1,
        "index": _INDEX_BYTES,
        "same and index": itemsize + (_INDEX_BYTES if along_axis else 0),
    }[rule.result]


def _reduce(signature: Signature, rule: Rule, hints: Hints) -> Work:
    args = Arguments(signature, "self dim=None" if rule.axis == 1 else "self p=2 dim=None")
    inputs = args.tensor("self")
    if not args.recorded("dim") and hints.output_bytes is not None:
        return Work(0, inputs.numel * rule.cost, size(inputs), hints.output_bytes, precision_of(inputs.dtype))
    axes = args.value("dim")
    recorded = len(signature.args)
    if isinstance(axes, bool) or (rule.whole and recorded <= rule.whole and not isinstance(axes, tuple)):
        axes = None  # var(self, unbiased), sum(self, dtype): no dimension among the arguments
    if isinstance(axes, TensorArg):
        raise NotCounted("argument 'dim' not recorded")
    results = _reduced_sizes(inputs, axes)
    dtype = _accumulated(signature, rule, inputs.dtype) if rule.whole else inputs.dtype
    outs = [arg for arg in signature.args[1:] if isinstance(arg, TensorArg)]
    written = size(*outs) if outs else results * _result_bytes(rule, dtype, along_axis=axes is not None)
    return Work(
        other_flops=inputs.numel * rule.cost,
        bytes_read=size(inputs),
        bytes_written=written,
        precision=precision_of(inputs.dtype),
    )


def _maximum_of_two(signature: Signature) -> Work:
    """max(self, other) is the element-wise maximum."""
    args = Arguments(signature, "self other")
    left, right = args.tensor("self"), args.tensor("other")
    results = TensorArg(broadcast((left.shape, right.shape)), promote((left, right)))
    return Work(
        other_flops=results.numel,
        bytes_read=size(left, right),
        bytes_written=size(results),
        precision=precision_of(results.dtype),
    )


def _register(name: str, rule: Rule) -> None:
    @hinted_formula(f"aten::{name}", category="reduction")
    def _formula(signature: Signature, hints: Hints) -> Work:
        if name in ("max", "min") and len(signature.args) == 2 and isinstance(signature.args[1], TensorArg):
            return _maximum_of_two(signature)
        return _reduce(signature, rule, hints)


for _name, _rule in RULES.items():
    _register(_name, _rule)


# Each element of the result costs so much, and the result has the size of the input.
_ROW_WISE: Final[dict[str, tuple[int, str]]] = {
    "softmax": (costs.SOFTMAX, "self"), "_softmax": (costs.SOFTMAX, "self"), "_safe_softmax": (costs.SOFTMAX + 1, "self"),
    "special_softmax": (costs.SOFTMAX, "self"),
    "log_softmax": (costs.SOFTMAX, "self"), "_log_softmax": (costs.SOFTMAX, "self"), "special_log_softmax": (costs.SOFTMAX, "self"),
    "_softmax_backward_data": (costs.SOFTMAX_BACKWARD, "grad self"),
    "_log_softmax_backward_data": (costs.LOG_SOFTMAX_BACKWARD, "grad self"),
    "_masked_softmax": (costs.SOFTMAX + 1, "self mask"),
    "_masked_softmax_backward": (costs.SOFTMAX_BACKWARD + 1, "grad self mask"),
    **dict.fromkeys(words("cumsum cumsum_ cumprod cumprod_"), (1, "self dim dtype=None")),
    **dict.fromkeys(words("logcumsumexp _logcumsumexp"), (costs.TRANSCENDENTAL + 3, "self dim")),
}  # fmt: skip


def _softmax_dtype(signature: Signature, dtype: str) -> str:
    """``softmax(self, dim, dtype)`` and ``_softmax(self, dim, half_to_float)``."""
    third = signature.arg(2, default=None)
    if third is True:
        return "float32"
    return SCALAR_TYPES.get(third, dtype) if isinstance(third, int) and third is not False else dtype


def _row_wise(signature: Signature, cost: int, schema: str) -> Work:
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    read = [args.optional(name) for name in ("grad", "self", "mask")]
    dtype = inputs.dtype
    if "cum" in signature.name:
        promoted = dtype if floating(dtype) else "int64"
        dtype = args.dtype("dtype", promoted) if args.has("dtype") else promoted
    elif signature.name.endswith("softmax"):
        dtype = _softmax_dtype(signature, dtype)
    return Work(
        other_flops=cost * inputs.numel,
        bytes_read=size(*read),
        bytes_written=inputs.numel * size_of(dtype),
        precision=precision_of(inputs.dtype),
    )


for _name, (_cost, _schema) in _ROW_WISE.items():
    formula(f"aten::{_name}", category="reduction")(partial(_row_wise, cost=_cost, schema=_schema))


def _axis_length(tensor: TensorArg, axis: int) -> int:
    return tensor.shape[axis] if tensor.shape else 1


@formula("aten::topk", category="reduction")
def _topk(signature: Signature) -> Work:
    """One compare an element to select, whatever k is; values and indices written."""
    args = Arguments(signature, "self k dim=-1")
    inputs, k = args.tensor("self"), args.integer("k")
    length = _axis_length(inputs, args.integer("dim"))
    results = inputs.numel // length * k if length else 0
    return Work(
        other_flops=inputs.numel,
        bytes_read=size(inputs),
        bytes_written=results * (size_of(inputs.dtype) + _INDEX_BYTES),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::sort", "aten::argsort", "aten::msort", category="reduction")
def _sort(signature: Signature) -> Work:
    """n log2(n) compares a row, rows along the last dimension recorded as an integer."""
    inputs = Arguments(signature, "self").tensor("self")
    axes = [arg for arg in signature.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    length = _axis_length(inputs, 0 if signature.name == "aten::msort" else axes[0] if axes else -1)
    values = 0 if signature.name == "aten::argsort" else size_of(inputs.dtype)
    indices = 0 if signature.name == "aten::msort" else _INDEX_BYTES
    return Work(
        other_flops=inputs.numel * ceil(log2(length)) if length > 1 else 0,
        bytes_read=size(inputs),
        bytes_written=inputs.numel * (values + indices),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::equal", category="reduction")
def _equal(signature: Signature) -> Work:
    """Compares two tensors element by element into one boolean."""
    args = Arguments(signature, "self other")
    left, right = args.tensor("self"), args.tensor("other")
    return Work(other_flops=left.numel, bytes_read=size(left, right), precision=precision_of(left.dtype))


composite(*aten("quantile linalg_norm linalg_matrix_norm norm_except_dim cummax cummin sum_to_size value_selecting_reduction_backward"))
