"""Rows of operators: what a call computes and moves as one typed row of its arguments.

``docs/rows.md`` is the grammar: schemas, fields, and what an expression may name. Rows stand in files
(``tables.py``).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from types import CodeType
from typing import Any, TypeVar

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Ints,
    NotCounted,
    TensorArgs,
    broadcast,
    floating,
    selected,
    share,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.nodes import parts
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.count.formulas.registry import HintedFormula, Hints

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FIELD = re.compile(r"(?:(read|write|update|view) )?(\w+)(?:\[([^\]]*)\])?([?*+]?)(=.*)?$")


@dataclass(frozen=True, slots=True)
class FormulaRow:
    """What an operator computes and moves. ``place`` is the file and line where it stands."""

    schema: str
    cost: int = 0
    per: str = "input"
    result: str = ""
    precision: str = ""
    assumption: str = ""
    matrix: str = ""
    other: str = ""
    reads: str = ""
    writes: str = ""
    where: str = ""
    given: str = ""
    also: str = ""
    fits: str = ""
    place: str = dataclasses.field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    verb: str
    dims: tuple[str, ...]
    kind: str
    default: str = ""


@cache
def parse(schema: str) -> tuple[str, tuple[_Field, ...]]:
    """The schema as ``Arguments`` reads it, and its arguments."""
    plain = []
    fields = []
    for text in schema.split(","):
        found = _FIELD.match(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no argument of a schema")
        verb, name, dims, kind, default = found.groups()
        plain.append(name + (default or ""))
        fields.append(_Field(name, verb or "", tuple((dims or "").split()), kind, (default or "")[1:]))
    return " ".join(plain), tuple(fields)


def fields_of(schema: str) -> tuple[_Field, ...]:
    """The arguments of a schema."""
    return parse(schema)[1]


class Tensors:
    """One argument's tensors in an expression: none, one or those of a list."""

    def __init__(self, *tensors: TensorArg) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.shape[index] if self.tensors else 0
        except IndexError:
            raise NotCounted("shapes not recorded") from None

    @property
    def n(self) -> int:
        return sum(one.numel for one in self.tensors)

    @property
    def size(self) -> int:
        return size(*self.tensors)

    @property
    def full(self) -> int:
        return written(*self.tensors)

    @property
    def complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def shape(self) -> Ints:
        return self.tensors[0].shape if self.tensors else ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> str:
        return self.tensors[0].dtype if self.tensors else ""

    @property
    def item(self) -> int:
        return size_of(self.dtype) if self.tensors else 0


def _selected(source: Tensors, elements: int) -> int:
    """Bytes of ``elements`` of each tensor, or of all that it has."""
    return sum(selected(tensor, elements) for tensor in source.tensors)


def _first(source: Tensors, rows: int) -> int:
    """Elements of the first ``rows`` rows: a captured graph pads its batch with more."""
    if not source.shape or source.shape[0] < rows:
        raise NotCounted("more tokens than keys")
    return source.tensors[0].numel // max(source.shape[0], 1) * rows


def _share(experts: int, rows: int, *sources: Tensors) -> int:
    """Bytes of the tensors; of those with a part for each expert, of as many parts as there are rows at
    most."""
    return share([tensor for source in sources for tensor in source.tensors], experts, rows)


def _joined(*sources: Tensors) -> int:
    """Elements of the shape that the tensors broadcast to."""
    return prod(broadcast(tensor.shape for source in sources for tensor in source.tensors))


def _batches(*sources: Tensors) -> int:
    """Matrices [.., m, n], where those of one argument may stand for several."""
    return prod(broadcast(source.shape[:-2] for source in sources))


def _volume(extents: Ints, rank: int) -> int:
    """The product of ``rank`` extents; a single one applies to all."""
    if len(extents) not in (1, rank):
        raise NotCounted("invalid size")
    return prod(extents) if len(extents) == rank else extents[0] ** rank


def _up(number: int, step: int) -> int:
    """Parts of ``step`` that ``number`` needs."""
    if step < 1:
        raise NotCounted("invalid size")
    return -(-number // step)


def _item(args: Arguments, name: str, dtype: str = "") -> int:
    found = args.dtype(name, dtype)
    if not found:
        raise NotCounted("dtype of the result not recorded")
    return size_of(found)


def _output(hints: Hints, place: int, reason: str = "") -> Tensors:
    """A tensor that the call returned. Where it was not recorded, none, or NotCounted with the reason."""
    if hints.outputs is not None and place < len(hints.outputs):
        return Tensors(hints.outputs[place])
    if reason:
        raise NotCounted(reason)
    return Tensors()


# Dtypes whose elements hold two numbers of 4 bits.
PACKED = ("uint8", "float4_e2m1fn_x2")
_FUNCTIONS: dict[str, Any] = {
    **{name: value for name, value in vars(costs).items() if name.isupper()},
    "__builtins__": {},
    "any": any,
    "bool": bool,
    "float": float,
    "int": int,
    "isinstance": isinstance,
    "len": len,
    "max": max,
    "min": min,
    "str": str,
    "sum": sum,
    "zip": zip,
    "size": size,
    "written": written,
    "norm_cost": costs.norm_cost,
    "compares": costs.compares,
    "prod": prod,
    "round": round,
    "selected": _selected,
    "up": _up,
    "first": _first,
    "share": _share,
    "joined": _joined,
    "batches": _batches,
    "volume": _volume,
    "packed": lambda source: source.dtype in PACKED,
    "floating": lambda source: floating(source.dtype),
}


def named(function: _Function) -> _Function:
    """Let the expressions of rows call this function by its name."""
    if function.__name__ in _FUNCTIONS:
        raise ValueError(f"'{function.__name__}' is another function")
    _FUNCTIONS[function.__name__] = function
    return function


class _Names(dict[str, Any]):
    """What an expression may name: tensors and dimensions, and the values of arguments when they are asked
    for."""

    def __init__(self, arguments: Arguments, hints: Hints, kinds: Mapping[str, str]) -> None:
        super().__init__()
        self._arguments, self._kinds = arguments, kinds
        about_the_call = {
            "item": partial(_item, arguments),
            "recorded": arguments.recorded,
            "known": arguments.value,
            "asked": arguments.mask,
            "value": lambda name: arguments.value(name) if arguments.recorded(name) else None,
            "results": lambda: Tensors(*hints.results(arguments.signature)),
            "returned": hints.result_bytes,
            "returned_tensor": partial(_output, hints),
            "recorded_results": lambda: Tensors(*hints.recorded_results()),
        }
        # An argument of such a name is the argument.
        self.update((name, function) for name, function in about_the_call.items() if not arguments.has(name))

    def __missing__(self, name: str) -> Any:
        if not self._arguments.has(name):
            raise KeyError(name)
        kind = self._kinds[name]
        found = self._arguments.value(name)
        if kind == "*" and found is None:
            return ()
        if kind in ("*", "+") and not isinstance(found, int):
            return self._arguments.sizes(name)
        number = self._arguments.integer(name)
        return (number,) if kind in ("*", "+") else number


def _extents(dims: tuple[str, ...], shape: Ints, known: dict[str, Any]) -> dict[str, int]:
    """The names of dimensions that are not ``known``, of which one may stand for several; raises NotCounted
    for another rank, and where known ones differ."""
    many = next((index for index, name in enumerate(dims) if name.startswith("*")), None)
    if len(shape) < len(dims) - 1 or (many is None and len(shape) != len(dims)):
        raise NotCounted("arguments of another version of this operator" if shape else "shapes not recorded")
    if many is not None:
        end = len(shape) - (len(dims) - 1 - many)
        shape = (*shape[:many], prod(shape[many:end]), *shape[end:])
    found: dict[str, int] = {}
    for dim, extent in zip(dims, shape, strict=True):
        name = dim.strip("*=")
        is_known = name not in found and (name in known or dim.strip("*") != name)
        expected = known[name] if is_known else found.setdefault(name, extent)
        if expected != extent:
            raise NotCounted(f"dimensions {expected} and {extent} differ")
    return found


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def evaluate(expression: str, names: dict[str, Any]) -> int:
    try:
        return int(eval(_compiled(expression), _FUNCTIONS, names))
    except ZeroDivisionError:
        raise NotCounted("invalid size") from None


@cache
def steps_of(where: str) -> tuple[tuple[str, str], ...]:
    """The names of ``Row.where``, each with its expression."""
    steps = (step.partition(" = ") for step in where.split("; ") if step)
    return tuple((name.strip(), expression) for name, _, expression in steps)


def _tensors(args: Arguments, field: _Field, hints: Hints) -> TensorArgs:
    if field.kind in ("?", "*", "+"):
        found = args.optional(field.name)
        several = args.tensors(field.name) if found is None and field.kind != "?" else ()
        if field.kind == "+" and found is None and args.value(field.name) == ():
            several = hints.left_out()
        if field.kind == "+" and found is None and not several:
            raise NotCounted(f"shapes of '{field.name}' not recorded")
        return several if found is None else (found,)
    return (args.tensor(field.name),)


def row_work(signature: Signature, row: FormulaRow, hints: Hints | None = None) -> Work:
    """The work of a call; raises NotCounted where a tensor was not recorded."""
    plain, fields = parse(row.schema)
    args = Arguments(signature, plain)
    hints = hints or Hints()
    names = _Names(args, hints, {field.name: field.kind for field in fields})
    tensors: dict[str, TensorArgs] = {}
    for one in fields:
        if not one.verb:
            if one.dims:
                names |= _extents(one.dims, args.sizes(one.name), names)
            continue
        tensors[one.name] = _tensors(args, one, hints)
        names[one.name] = Tensors(*tensors[one.name])
        if one.dims and tensors[one.name]:
            names |= _extents(one.dims, tensors[one.name][0].shape, names)
    for name in (
        dim.strip("*=") for field in fields if field.verb and not tensors[field.name] for dim in field.dims
    ):
        names.setdefault(name, 0)  # of a tensor that is absent
    verbs = {field.name: field.verb for field in fields if field.verb}
    read = [each for name, verb in verbs.items() if verb in ("read", "update") for each in tensors[name]]
    results = [each for name, verb in verbs.items() if verb in ("write", "update") for each in tensors[name]]

    def named(names: str) -> list[TensorArg]:
        return [
            each
            for name in names.split()
            for each in (tensors[name] if name in tensors else (args.tensor(name),))
        ]

    results += named(row.result)
    for name, expression in steps_of(row.where):
        names[name] = evaluate(expression, names)
    if row.fits and not evaluate(f"bool({row.fits})", names):
        raise NotCounted("arguments of another version of this operator")
    other = sum(each.numel for each in named(row.per)) * row.cost if row.cost else 0
    other += evaluate(row.other, names) if row.other else 0
    matrix = evaluate(row.matrix, names) if row.matrix else 0
    computes = row.cost or other or matrix or row.precision.startswith("=")
    return Work(
        matrix_flops=matrix,
        other_flops=other,
        bytes_read=(evaluate(row.reads, names) if row.reads else size(*read))
        + (evaluate(row.also, names) if row.also else 0),
        bytes_written=written(*results) + (evaluate(row.writes, names) if row.writes else 0),
        precision=_precision(row, args, tensors, verbs, names) if computes else None,
        assumption=row.assumption if not row.given or evaluate(f"bool({row.given})", names) else "",
    )


def function_work(signature: Signature, row: FormulaRow, hints: Hints | None = None) -> Work:
    """The work of an autograd function, of whose arguments a trace may have the tensors alone.

    The schema has those in their order, and a list as the last for the rest; an optional one with dimensions
    is absent where the next tensor has others. That of a backward node has the gradient first, or as a list
    all of them, then the forward's; one that has nothing else needs no forward.
    """
    fields = fields_of(row.schema)
    gradients: tuple[Any, ...] = ()
    tensors: tuple[Any, ...] = signature.tensors
    if signature.name.endswith("Backward") and len(fields) > 1:
        found, forward = parts(signature)
        gradients = (found if fields[0].kind == "*" else found[0],)
        tensors = forward.tensors
    return row_work(
        replace(signature, args=(*gradients, *_in_order(fields[len(gradients) :], tensors))), row, hints
    )


def _in_order(fields: tuple[_Field, ...], tensors: TensorArgs) -> Iterator[TensorArg | TensorArgs | None]:
    """The tensors by the fields of a schema: an optional one with dimensions has none where these do not fit
    the next tensor."""
    left = list(tensors)
    sizes = dict[str, int]()
    for one in fields:
        if one.kind == "*":
            yield tuple(left)
            return
        fits = bool(left)
        if left and one.dims:
            try:
                sizes |= _extents(one.dims, left[0].shape, sizes)
            except NotCounted:
                fits = False
        yield left.pop(0) if left and (fits or one.kind != "?") else None


def _precision(
    row: FormulaRow,
    args: Arguments,
    tensors: dict[str, TensorArgs],
    verbs: Mapping[str, str],
    names: _Names,
) -> str | None:
    if row.precision.startswith("="):
        return row.precision[1:] or None
    if row.precision == "results":
        tensors = tensors | {"results": names["results"]().tensors}
    of = matrix_precision_of if row.matrix else precision_of
    computing = row.precision or next(
        (name for name, verb in verbs.items() if verb in ("read", "update")), ""
    )
    dtypes = (
        dtype
        for name, _, default in (each.partition("=") for each in computing.split())
        for dtype in (
            [each.dtype for each in tensors[name][:1]] if name in tensors else [args.dtype(name, default)]
        )
    )
    return next(filter(None, map(of, dtypes)), None)


def _first_fitting(
    signature: Signature, rows: tuple[FormulaRow, ...], hints: Hints, work_of: Callable[..., Work]
) -> Work:
    """Return the work by the first row that fits the call. If none fits, the reason is that of the last
    row."""
    for row in rows[:-1]:
        with contextlib.suppress(NotCounted):
            return work_of(signature, row, hints)
    return work_of(signature, rows[-1], hints)


def formula_of(
    rows: tuple[FormulaRow, ...],
    functions: bool = False,
    given: Callable[[Signature], Signature] | None = None,
) -> HintedFormula:
    """The formula of rows that are tried in their order. ``functions`` says that they are of autograd
    functions, as ``function_work`` has them; otherwise the schemas are those of what ``given`` makes of a
    call (``nodes.py``)."""
    work_of = function_work if functions else row_work

    def work(signature: Signature, hints: Hints) -> Work:
        try:
            return _first_fitting(signature if given is None else given(signature), rows, hints, work_of)
        except NameError as error:
            raise NameError(f"{rows[0].place}: {error}") from None

    return work


def names_in(row: FormulaRow) -> None:
    """Compile every expression of a row; NameError names what nothing in the row or the language is
    called."""
    plain, arguments = parse(row.schema)
    named = {one.name for one in arguments}
    known = {*_FUNCTIONS, *_Names(Arguments(Signature("", ()), plain), Hints(), {}), *named}
    known.update(dim.strip("*=") for one in arguments for dim in one.dims)
    texts = (row.fits, row.matrix, row.other, row.reads, row.also, row.writes, row.given)
    for step, text in (*steps_of(row.where), *(("", text) for text in texts if text)):
        names = [node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
        inside = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        wrong = [node.id for node in names if node.id not in known | inside]
        if wrong:
            raise NameError(f"nothing is called '{wrong[0]}' in {text!r}")
        known.add(step)
    missing = [name for name in f"{row.result} {row.per if row.cost else ''}".split() if name not in named]
    if missing:
        raise NameError(f"no argument is called '{missing[0]}'")
