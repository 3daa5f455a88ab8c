"""Files of operators (``.rows``): what a paragraph says becomes the formula of its operators. ``docs/rows.md`` is the grammar."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs, nodes
from rooflines.roofline.formulas.arguments import Dispatches, NotCounted
from rooflines.roofline.formulas.families import Paragraph, is_librarys, paragraphs
from rooflines.roofline.formulas.packed_attention import AttentionLayout, layout_formula
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import FORMULAS, HintedFormula, Hints, enter
from rooflines.roofline.formulas.rows import ROWS, Row, evaluate, formula_of, names_in, steps_of

_PRECISIONS: Final = ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "int8", "none")
_TEXTS: Final = tuple(field.name for field in fields(Row) if field.name not in ("cost", "where", "place"))
_GIVEN: Final = ("tensors_only", "with_gradient", "with_gradients")
_KINDS: Final = ("forward", "backward", "function")
_RAISED: Final = {"dispatches": Dispatches, "uncounted": NotCounted}
_OPTIONS: Final = ("wraps", "functions", "in_place", *_GIVEN, *_KINDS, *_RAISED)


Given = Callable[[Signature], Signature] | None


def register_file(path: Path) -> None:
    """Register the operators of a file; ValueError names the line of what is no row."""
    origin = "library" if is_librarys(path) else "torch"
    for paragraph in paragraphs(path):
        with _placed(paragraph):
            formula = _formula(paragraph, ROWS)
            enter(tuple(paragraph.operators), paragraph.category, formula, "wraps" in paragraph.options, origin)


def problems(path: Path) -> tuple[int, list[str]]:
    """How many operators a file has, and what is wrong in it: one text for each paragraph, with its line."""
    rows: dict[str, Any] = {}
    found, names = [], dict[str, str]()
    try:
        for paragraph in paragraphs(path):
            twice = [name for name in paragraph.operators if name in names]
            found += [f"{paragraph.place}: '{name}' stands in {names[name]} too" for name in twice]
            names.update(dict.fromkeys(paragraph.operators, paragraph.place))
            try:
                with _placed(paragraph):
                    _formula(paragraph, rows)
                    for row in rows.get(next(iter(paragraph.operators)), ()):
                        if isinstance(row, Row):
                            names_in(row)
            except ValueError as error:
                found.append(str(error))
    except ValueError as error:
        found.append(str(error))
    return len(names), found


def options_of(function: Callable[..., Work]) -> dict[str, dict[str, Any]]:
    """What the files say to a function, by the operators that it counts; of the files that were read."""
    calls = {name: entry.formula for name, entry in FORMULAS.items() if isinstance(entry.formula, partial)}
    return {name: call.keywords for name, call in calls.items() if function in call.args}


@contextlib.contextmanager
def _placed(paragraph: Paragraph) -> Iterator[None]:
    """Say in which file and line an error is."""
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{paragraph.place}: {error.msg} in {error.text!r}") from None
    except KeyError as error:
        raise ValueError(f"{paragraph.place}: no operator {error} before this line") from None
    except (AttributeError, ImportError, NameError, TypeError, ValueError) as error:
        raise ValueError(f"{paragraph.place}: {error}") from error


def _formula(paragraph: Paragraph, rows: dict[str, Any]) -> HintedFormula:
    """The formula of a paragraph; ``rows`` has the rows of each operator before it, and gets those of this one."""
    _, _, options, operators, like, text = paragraph
    body = " ".join(text.split())
    named = dict(option.split("=") for option in options if "=" in option)
    wrong = [option for option in options if "::" not in option and option.split("=")[0] not in (*_OPTIONS, "by", "given", "with")]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no option of a heading")
    for word, error in _RAISED.items():
        if word in options:
            return partial(_raise, error, body)
    plain = next((getattr(nodes, name) for name in _GIVEN if name in options), None)
    given: Given = _function(named["given"]) if "given" in named else plain
    for option in options:
        if option.startswith("with="):
            import_module(f"{__package__}.{option.removeprefix('with=')}")
    if "by" in named:
        return _called(_function(named["by"]), body, given)
    kind = next(filter(options.__contains__, _KINDS), "")
    old = rows[like if like in rows else paragraph.namespaces[0] + like] if like else None
    if kind:
        found = old or (_layout(body),)
        rows.update(dict.fromkeys(operators, found))
        return layout_formula(found[0], kind, given)
    base = old[0] if old else Row("")
    first, *versions = body.split("|")
    made = [_changed(base, first, paragraph.place)]
    made += [_changed(made[0] if _leaves_out(version) else Row(""), version, paragraph.place) for version in versions]
    rows.update(dict.fromkeys(operators, tuple(made)))
    return formula_of(tuple(made), "functions" in options, given)


def _function(name: str) -> Callable[..., Any]:
    """``module.function`` of this package."""
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def _called(function: Callable[..., Any], text: str, given: Given) -> HintedFormula:
    """A function with what the text says: its ``schema``, and options by their names."""
    schema, *clauses = _clauses(text)
    options = {name: _value(value) for name, value in clauses} | ({"schema": schema} if schema else {})
    parameters = inspect.signature(function)
    hinted = "hints" in parameters.parameters
    parameters.bind(*("signature", "hints")[: 1 + hinted], **options)
    return partial(_hinted if hinted else _plain, function, given, **options)


def _hinted(function: Callable[..., Work], given: Given, signature: Signature, hints: Hints, **options: Any) -> Work:
    return function(given(signature) if given else signature, hints, **options)


def _plain(function: Callable[..., Work], given: Given, signature: Signature, _: Hints, **options: Any) -> Work:
    return function(given(signature) if given else signature, **options)


def _raise(error: type[Exception], reason: str, *_: Any) -> Any:
    raise error(reason)


_NUMBERS: Final[dict[str, Any]] = {name: value for name, value in vars(costs).items() if name.isupper()}


def _value(text: str) -> Any:
    """An option of a function: a number of costs, True, False, None or a text."""
    try:
        return eval(text, {"__builtins__": {}}, _NUMBERS)
    except (NameError, SyntaxError):
        return text


def _leaves_out(text: str) -> bool:
    """Whether a row has no schema, or nothing else."""
    return text.lstrip().startswith(";") or " = " not in text


def _changed(row: Row, text: str, place: str) -> Row:
    """The row with the schema and the fields of the text: ``schema -> result; name = value; ...``."""
    schema, *clauses = _clauses(text)
    schema, _, result = schema.partition(" -> ")
    changes: dict[str, Any] = {name: value for name, value in (("schema", schema), ("result", result)) if value}
    steps = dict(steps_of(row.where))
    for name, value in clauses:
        if name == "cost":
            changes[name] = evaluate(value, {})
        elif name in _TEXTS:
            changes[name] = f"={value}".removesuffix("none") if name == "precision" and value in _PRECISIONS else value
        else:
            steps[name] = value
    where = "; ".join(f"{name} = {value}" for name, value in steps.items() if value)
    return replace(row, **changes, where=where, place=place)


def _layout(text: str) -> AttentionLayout:
    schemas, *clauses = _clauses(text)
    return AttentionLayout(tuple(schema.strip() for schema in schemas.split("|")), **{name: _value(value) for name, value in clauses})


def _clauses(text: str) -> Iterator[Any]:
    """What comes before the first ``; name = value``, then each name with its value."""
    first, *clauses = re.split(r"; ?(?=\w+ =(?: |$|;))", text.strip())
    yield first.strip(" ;")
    for clause in clauses:
        name, _, value = clause.partition(" =")
        yield name, value.strip(" ;")
