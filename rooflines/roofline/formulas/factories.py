"""New tensors with values, and old ones filled: everything is written and nothing read. Random numbers are in ``random.py``."""

from __future__ import annotations

from math import ceil, prod
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, hinted_formula
from rooflines.roofline.formulas.rows import Row, register

_OPTIONS: Final = 4  # a factory's schema ends with dtype, layout, device, pin_memory


def _filled(elements: int, dtype: str, cost: int = 0, read: int = 0) -> Work:
    """``cost`` FLOPs for each new element."""
    flops = cost * elements
    return Work(0, flops, read, elements * size_of(dtype), precision_of(dtype) if flops else None)


# Operator -> schema. ``size`` or ``self`` gives the shape.
_CONSTANT: Final[dict[str, str]] = {
    "aten::zeros": "size dtype=None", "aten::ones": "size dtype=None", "aten::full": "size value dtype=None",
    "aten::zeros_like": "self dtype=None", "aten::ones_like": "self dtype=None", "aten::full_like": "self value dtype=None",
    "aten::new_zeros": "self size dtype=None", "aten::new_ones": "self size dtype=None", "aten::new_full": "self size value dtype=None",
}  # fmt: skip


@hinted_formula(*_CONSTANT, category="copy")
def _constant(signature: Signature, hints: Hints) -> Work:
    if hints.outputs is not None:
        return Work(bytes_written=written(*hints.outputs))
    schema = _CONSTANT[signature.name]
    args = Arguments(signature, schema)
    pattern = args.optional("self")
    if "size" in schema and not args.recorded("size"):
        raise Dispatches  # traces without values: the fill inside has the shape
    shape = args.sizes("size") if "size" in schema else args.tensor("self").shape
    usual = pattern.dtype if pattern else _dtype_of(args.value("value")) if args.has("value") else "float32"
    return _filled(prod(shape), args.dtype("dtype", usual))


def _dtype_of(value: Argument) -> str:
    """The dtype that ``full`` takes from a number."""
    kinds = {bool: "bool", int: "int64", complex: "complex64"}
    return kinds.get(type(value), "float32")


_FILLS: Final[dict[str, Row]] = {
    # in place, or a new tensor like ``self``, whose values are not read
    "fill_ fill": Row("view self, read value?", result="self"),
    "zero_ zero": Row("view self", result="self"),
    "_new_zeros_with_same_feature_meta": Row("self", writes="results().full"),
    "scalar_tensor": Row("value, dtype=None", writes="item('dtype', 'float32')"),
}
register(_FILLS, "copy", namespace="aten::")


# Sequences: start + i * step, a multiply-add an element.


def _numbers(signature: Signature) -> tuple[Argument, ...]:
    """The arguments before the options."""
    return signature.args[: max(len(signature.args) - _OPTIONS, 0)]


def _option(signature: Signature, usual: str) -> str:
    """The dtype, first of the options that end the schema."""
    position = len(signature.args) - _OPTIONS
    return Arguments(signature, " ".join([f"skipped{index}" for index in range(position)] + ["dtype"])).dtype("dtype", usual)


def _result(signature: Signature, hints: Hints) -> TensorArg | None:
    """The tensor that was made, where it was seen: the last argument of an ``out`` form, or the recorded result."""
    if hints.outputs:
        return hints.outputs[0]
    last = signature.args[-1] if signature.args else None
    return last if isinstance(last, TensorArg) else None


@hinted_formula("aten::arange", "aten::range", category="copy")
def _arange(signature: Signature, hints: Hints) -> Work:
    """(end, dtype, layout, device, pin_memory), (start, end, ...) or (start, end, step, ...); or a tensor to write to, the last one."""
    out = _result(signature, hints)
    if out is not None:
        return _filled(out.numel, out.dtype, 2)
    numbers = _numbers(signature)
    if len(numbers) not in (1, 2, 3) or not all(isinstance(number, int | float) for number in numbers):
        raise NotCounted("argument 'end' not recorded")
    start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    inclusive = signature.name == "aten::range"
    whole = all(isinstance(number, int) for number in numbers) and not inclusive
    elements = int((end - start) / step + 1) if inclusive else ceil((end - start) / step)
    return _filled(elements, _option(signature, "int64" if whole else "float32"), 2)


# Operator -> FLOPs an element.
_SPACED: Final[dict[str, int]] = {"aten::linspace": 2, "aten::logspace": 2 + costs.POW}


@hinted_formula(*_SPACED, category="copy")
def _spaced(signature: Signature, hints: Hints) -> Work:
    """(start, end, steps, ...), where the ends may be tensors of one element."""
    args = Arguments(signature, "start end steps")
    read = size(args.optional("start"), args.optional("end"))
    cost, out = _SPACED[signature.name], _result(signature, hints)
    if out is not None:
        return _filled(out.numel, out.dtype, cost, read)
    return _filled(args.integer("steps"), _option(signature, "float32"), cost, read)


# Operator -> FLOPs an element: cosines of the position; of Kaiser's a Bessel function of sqrt(1 - x²), divided by one that all share.
_WINDOWS: Final[dict[str, int]] = {
    "aten::bartlett_window": 4, "aten::hann_window": costs.TRANSCENDENTAL + 3, "aten::hamming_window": costs.TRANSCENDENTAL + 3,
    "aten::blackman_window": 2 * costs.TRANSCENDENTAL + 6, "aten::kaiser_window": costs.SPECIAL + 7,
}  # fmt: skip


@hinted_formula(*_WINDOWS, category="copy")
def _window(signature: Signature, hints: Hints) -> Work:
    cost, out = _WINDOWS[signature.name], _result(signature, hints)
    if out is not None:
        return _filled(out.numel, out.dtype, cost)
    return _filled(Arguments(signature, "length").integer("length"), _option(signature, "float32"), cost)


# Matrices.


@hinted_formula("aten::eye", category="copy")
def _eye(signature: Signature, hints: Hints) -> Work:
    """(n, ...) or (n, m, ...)."""
    out = _result(signature, hints)
    if out is not None:
        return _filled(out.numel, out.dtype)
    sides = [side for side in _numbers(signature) if isinstance(side, int)]
    if len(sides) not in (1, 2):
        raise NotCounted("argument 'n' not recorded")
    return _filled(sides[0] * sides[-1], _option(signature, "float32"))
