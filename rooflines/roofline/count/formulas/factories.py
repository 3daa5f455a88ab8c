"""New tensors with values, and old ones filled: everything is written and nothing read. Random numbers are in
``random.py``."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Dispatches,
    NotCounted,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints

_OPTIONS = 4  # a factory's schema ends with dtype, layout, device, pin_memory


def _filled(elements: int, dtype: str, cost: int = 0, read: int = 0) -> Work:
    """``cost`` FLOPs for each new element."""
    flops = cost * elements
    return Work(0, flops, read, elements * size_of(dtype), precision_of(dtype) if flops else None)


_FROM_NUMBER: dict[type, str] = {
    bool: "bool",
    int: "int64",
    complex: "complex64",
}  # the dtype that ``full`` takes


def constant(signature: Signature, hints: Hints, schema: str) -> Work:
    """``size`` or ``self`` gives the shape."""
    if hints.outputs is not None:
        return Work(bytes_written=written(*hints.outputs))
    args = Arguments(signature, schema)
    pattern = args.optional("self")
    if "size" in schema and not args.recorded("size"):
        raise Dispatches  # traces without values: the fill inside has the shape
    shape = args.sizes("size") if "size" in schema else args.tensor("self").shape
    usual = pattern.dtype if pattern else _FROM_NUMBER.get(type(args.value("value", absent=None)), "float32")
    return _filled(prod(shape), args.dtype("dtype", usual))


# New tensors whose shape is in numbers, of the dtype that is the first of the options that end the schema.


def option(signature: Signature, usual: str, options: int = _OPTIONS, leading: int = 1) -> str:
    """The dtype, first of the last ``options`` arguments and not one of the first ``leading``."""
    skipped = " ".join(f"skipped{index}" for index in range(max(len(signature.args) - options, leading)))
    return Arguments(signature, f"{skipped} dtype=None").dtype("dtype", usual)


def _new(
    signature: Signature,
    hints: Hints,
    elements: Callable[[], int],
    cost: int = 0,
    usual: str = "float32",
    read: int = 0,
) -> Work:
    """The tensor as it was seen, the last argument of an ``out`` form or the recorded result; else as many
    ``elements``."""
    last = signature.args[-1] if signature.args else None
    out = hints.outputs[0] if hints.outputs else last
    if isinstance(out, TensorArg):
        return _filled(out.numel, out.dtype, cost, read)
    return _filled(elements(), option(signature, usual, leading=0), cost, read)


def _numbers(signature: Signature) -> tuple[Argument, ...]:
    """The arguments before the options."""
    return signature.args[: max(len(signature.args) - _OPTIONS, 0)]


def arange(signature: Signature, hints: Hints) -> Work:
    """start + i * step, a multiply-add an element: (end, dtype, layout, device, pin_memory), (start, end,
    ...) or (start, end, step, ...); or a tensor to write to, the last one."""
    numbers = _numbers(signature)
    inclusive = signature.name == "aten::range"

    def elements() -> int:
        if len(numbers) not in (1, 2, 3) or not all(isinstance(number, int | float) for number in numbers):
            raise NotCounted("argument 'end' not recorded")
        start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        return int((end - start) / step + 1) if inclusive else ceil((end - start) / step)

    whole = all(isinstance(number, int) for number in numbers) and not inclusive
    return _new(signature, hints, elements, 2, "int64" if whole else "float32")


def sequence(signature: Signature, hints: Hints, schema: str, cost: int) -> Work:
    """As many numbers as the last argument of the schema says, between ends that may be tensors of one
    element."""
    args = Arguments(signature, schema)
    return _new(
        signature,
        hints,
        lambda: args.integer("steps"),
        cost,
        read=size(args.optional("start"), args.optional("end")),
    )


def eye(signature: Signature, hints: Hints) -> Work:
    """(n, ...) or (n, m, ...)."""

    def elements() -> int:
        sides = [side for side in _numbers(signature) if isinstance(side, int)]
        if len(sides) not in (1, 2):
            raise NotCounted("argument 'n' not recorded")
        return sides[0] * sides[-1]

    return _new(signature, hints, elements)
