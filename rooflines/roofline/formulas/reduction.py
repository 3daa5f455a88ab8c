"""Sums, means, extrema, norms, softmax and scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

from rooflines.profiler.trace.signature import SCALAR_TYPES, Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, floating, size, size_of, written
from rooflines.roofline.formulas.elementwise import RULES as ELEMENTWISE
from rooflines.roofline.formulas.elementwise import real, rule_work
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, hinted_formula, words
from rooflines.roofline.formulas.rows import Row, register

INDEX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Reduction:
    """``cost`` FLOPs an element of the input.

    ``whole`` is how many arguments the form without dimensions has (0 for "any": its second argument is not an integer).
    ``result``: what is written for each result, an element of the input's dtype, two of them, a floating-point number (of a complex
    number's parts for ``real``), a boolean, an index, or an element and its index when the call named a dimension.
    ``complex_cost`` is the cost on complex numbers, twice the cost where None.
    """

    cost: int
    result: Literal["same", "two", "float", "real", "real and float", "bool", "index", "same and index"] = "same"
    whole: int = 0
    complex_cost: int | None = None


_COMPLEX_VARIANCE: Final = costs.COMPLEX_ADD + costs.COMPLEX_ADD + 4  # sum; subtract, |x|² 3, add

RULES: Final[dict[str, Reduction]] = {
    "sum": Reduction(1, whole=2), "nansum": Reduction(2), "mean": Reduction(1, "float", whole=2), "nanmean": Reduction(2, "float"),
    "prod": Reduction(1, whole=2, complex_cost=costs.COMPLEX_MULTIPLY),
    "max": Reduction(1, "same and index"), "min": Reduction(1, "same and index"),
    "amax": Reduction(1), "amin": Reduction(1), "aminmax": Reduction(2, "two"),
    "_aminmax": Reduction(2, "two"),
    "argmax": Reduction(1, "index"), "argmin": Reduction(1, "index"), "all": Reduction(1, "bool"), "any": Reduction(1, "bool"),
    "_is_all_true": Reduction(1, "bool"), "_is_any_true": Reduction(1, "bool"),
    "count_nonzero": Reduction(1, "index"), "hash_tensor": Reduction(1, "index"),
    "logsumexp": Reduction(costs.TRANSCENDENTAL + 3, "float", complex_cost=costs.COMPLEX_TRANSCENDENTAL + 3 * costs.COMPLEX_ADD),
    **dict.fromkeys(words("var std"), Reduction(costs.MEAN_AND_VARIANCE, "real", complex_cost=_COMPLEX_VARIANCE)),
    **dict.fromkeys(words("var_mean std_mean"), Reduction(costs.MEAN_AND_VARIANCE, "real and float", complex_cost=_COMPLEX_VARIANCE)),
    # the 2-norm: multiply, add
    "frobenius_norm": Reduction(2, "real", complex_cost=4),
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
    return prod(extent for axis, extent in enumerate(tensor.shape) if axis not in dropped)


def _without_outs(signature: Signature) -> tuple[Signature, list[TensorArg]]:
    """The signature without the ``out`` tensors at its end, and these."""
    outs = [arg for arg in signature.args[1:] if isinstance(arg, TensorArg)]
    return replace(signature, args=signature.args[: len(signature.args) - len(outs)]), outs


def _result_bytes(rule: Reduction, dtype: str, along_axis: bool) -> int:
    itemsize = size_of(dtype)
    number = itemsize if floating(dtype) else 4
    part = size_of(real(dtype)) if floating(dtype) else 4
    return {
        "same": itemsize,
        "two": 2 * itemsize,
        "float": number,
        "real": part,
        "real and float": part + number,
        "bool": 1,
        "index": INDEX_BYTES,
        "same and index": itemsize + (INDEX_BYTES if along_axis else 0),
    }[rule.result]


def _written(args: Arguments, hints: Hints, outs: list[TensorArg], computed: Callable[[Argument], int]) -> int:
    """Bytes of the results: recorded or allocated where the dimension is not known, those of ``outs``, or ``computed`` from it."""
    made = written(*hints.outputs) if hints.outputs is not None else hints.output_bytes
    if not args.recorded("dim") and made is not None:
        return made
    axes = args.value("dim")
    return written(*outs) if outs else computed(axes)


def _reduce(signature: Signature, rule: Reduction, hints: Hints) -> Work:
    call, outs = _without_outs(signature)
    args = Arguments(call, "self dim=None")
    inputs = args.tensor("self")
    cost, dtype = rule.cost, inputs.dtype
    if dtype.startswith("complex"):
        cost = 2 * rule.cost if rule.complex_cost is None else rule.complex_cost

    def computed(axes: Argument) -> int:
        whole = len(call.args) <= rule.whole
        if isinstance(axes, bool) or (whole and not isinstance(axes, tuple)):
            axes = None  # var(self, unbiased), sum(self, dtype): no dimension among the arguments
        made = dtype
        if rule.whole or call.name == "aten::nansum":  # in the dtype asked for; else integers are summed as int64
            asked = call.arg(1 if whole else 3, default=None)
            usual = dtype if floating(dtype) else "int64"
            made = SCALAR_TYPES.get(asked, usual) if type(asked) is int else usual
        return _reduced_sizes(inputs, axes) * _result_bytes(rule, made, along_axis=axes is not None)

    return Work(0, inputs.numel * cost, size(inputs), _written(args, hints, outs, computed), precision_of(dtype))


@hinted_formula(*aten("norm native_norm linalg_vector_norm linalg__powsum"), category="reduction")
def _norm(signature: Signature, hints: Hints) -> Work:
    """A vector norm over some dimensions or all, of the dtype asked for or of a complex number's parts.

    ``norm`` has four forms: (p), (p, dtype), (p, dim, keepdim) and (p, dim, keepdim, dtype); the others only the last.
    """
    call, outs = _without_outs(signature)
    args = Arguments(call, "self p=2 dim=None keepdim=False dtype=None")
    inputs = args.tensor("self")
    flops = inputs.numel * costs.norm_cost(args.value("p"), inputs.dtype.startswith("complex"))

    def computed(axes: Argument) -> int:
        axes, asked = (None, axes) if len(call.args) == 3 else (axes, call.arg(4, default=None))
        result = SCALAR_TYPES.get(asked, inputs.dtype) if isinstance(asked, int) else inputs.dtype
        return _reduced_sizes(inputs, axes) * size_of(real(result))

    return Work(0, flops, size(inputs), _written(args, hints, outs, computed), precision_of(inputs.dtype))


def _into_out(signature: Signature, hints: Hints) -> bool:
    """Whether max(self, x) wrote one number to ``x``; without a recorded result, ``x`` is a second operand."""
    return hints.outputs is not None and hints.outputs[0].shape == () and Arguments(signature, "self").tensor("self").shape != ()


def _register(name: str, rule: Reduction) -> None:
    @hinted_formula(f"aten::{name}", category="reduction")
    def _formula(signature: Signature, hints: Hints) -> Work:
        if name in ("max", "min") and isinstance(signature.arg(1), TensorArg) and not _into_out(signature, hints):
            return rule_work(signature, ELEMENTWISE["maximum"])  # of two tensors, element by element
        return _reduce(signature, rule, hints)


for _name, _rule in RULES.items():
    _register(_name, _rule)


def _softmax(schema: str, cost: int, item: str = "self.item") -> Row:
    return Row(schema, cost, per="self", writes=f"self.n * {item}", precision="self")


def _gradients(cost: int) -> tuple[Row, Row]:
    """Until torch 1.10 a backward was given the forward's input for its dtype."""
    return (
        _softmax("read grad, read self, dim, view input", cost, "input.item"),
        _softmax("read grad, read self, dim, dtype=None", cost, "item('dtype', self.dtype)"),
    )


_WITH_DTYPE: Final = ("read self, dim, dtype=None", "item('dtype', self.dtype)")
_SOFTMAXES: Final[dict[str, Row | tuple[Row, ...]]] = {
    "softmax special_softmax log_softmax special_log_softmax": _softmax(_WITH_DTYPE[0], costs.SOFTMAX, _WITH_DTYPE[1]),
    "_safe_softmax": _softmax(_WITH_DTYPE[0], costs.SOFTMAX + 1, _WITH_DTYPE[1]),
    "_softmax _log_softmax": _softmax(
        "read self, dim, half_to_float=False", costs.SOFTMAX, "(4 if value('half_to_float') else self.item)"
    ),
    "_softmax_backward_data": _gradients(costs.SOFTMAX_BACKWARD),
    "_log_softmax_backward_data": _gradients(costs.LOG_SOFTMAX_BACKWARD),
    "_masked_softmax": _softmax("read self, read mask?", costs.SOFTMAX + 1),
    "_masked_softmax_backward": _softmax("read grad?, read self, read mask?", costs.SOFTMAX_BACKWARD + 1),
}
register(_SOFTMAXES, "reduction", namespace="aten::")


# Running sums: integers become int64 unless a dtype is asked for, or the sums replace them.
_SCANS: Final[dict[str, tuple[int, int]]] = {
    "cumsum": (costs.BASIC, costs.COMPLEX_ADD),
    "cumprod": (costs.BASIC, costs.COMPLEX_MULTIPLY),
    "logcumsumexp _logcumsumexp": (costs.TRANSCENDENTAL + 3, costs.COMPLEX_TRANSCENDENTAL + 3 * costs.COMPLEX_ADD),
}
_RUNNING: Final[dict[str, Row]] = {}
for _name, (_cost, _complex_cost) in _SCANS.items():
    _flops = f"self.n * ({_complex_cost} if self.complex else {_cost})"
    if _name.startswith("cum"):
        _RUNNING[_name] = Row(
            "read self, dim, dtype=None, view out?", other=_flops, precision="dtype self",
            writes="out.full or self.n * item('dtype', self.dtype if floating(self) else 'int64')",
        )  # fmt: skip
        _RUNNING[f"{_name}_"] = Row("read self", other=_flops, result="self")
    else:
        _RUNNING[_name] = Row("read self, dim, view out?", other=_flops, result="self")
register(_RUNNING, "reduction", namespace="aten::")


_PASSES: Final[dict[str, Row]] = {
    # one compare an element; the extrema so far and where they were
    "cummax cummin _cummax_helper _cummin_helper": Row("read self", 1, per="self", result="self", writes="8 * self.n"),
    # compares two tensors element by element into one boolean; tensors of different shapes are not looked at
    "equal": Row(
        "view self, view other", where="looks = self.shape == other.shape", other="self.n * looks",
        reads="(self.size + other.size) * looks", precision="self",
    ),
    # |a - b| <= atol + rtol * |b|, everywhere: six operations an element
    "allclose": Row("read self, read other", other="6 * joined(self, other)"),
    # reads the diagonal only
    "trace": Row(
        "view self", where="diagonal = min(self.shape)", other="diagonal * (COMPLEX_ADD if self.complex else 1)",
        reads="selected(self, diagonal)", writes="self.item if floating(self) else 8", precision="self",
    ),
    # the norm of each slice, and the slices whose norm is too large scaled down to it
    "renorm renorm_": Row("read self, p", other="self.n * (norm_cost(known('p'), self.complex) + 1)", result="self"),
    # one operation an element, into its segment; of n segments along an axis there are n lengths, or n + 1 offsets
    "segment_reduce": Row(
        "read data, reduce, read lengths?, indices=None, read offsets?, axis=0", 1, per="data",
        where="segments = lengths[-1] if lengths else offsets[-1] - 1",
        writes="prod(data[:axis]) * segments * prod(data[axis + 1:]) * data.item", fits="bool(lengths) or bool(offsets)",
    ),
    # each element's share of its segment's gradient; only of an extremum or a product does it depend on the data
    "_segment_reduce_backward": Row(
        "read grad, view output?, view data, reduce, view lengths?, view offsets?", 1, per="data", result="data", precision="data",
        also="(lengths or offsets).size + (0 if value('reduce') in ('sum', 'mean') else output.size + data.size)",
        fits="isinstance(known('reduce'), str)",
    ),
}  # fmt: skip
register(_PASSES, "reduction", namespace="aten::")
