"""Files of operators (``.rows``): what a paragraph says becomes the formula of its operators.
``docs/rows.md`` is the grammar."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import costs, nodes
from rooflines.roofline.count.formulas.arguments import Dispatches, NotCounted
from rooflines.roofline.count.formulas.families import (
    OperatorParagraph,
    file_of,
    files,
    is_librarys,
    paragraphs,
)
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import FORMULAS, HintedFormula, Hints, Origin, enter
from rooflines.roofline.count.formulas.rows import FormulaRow, evaluate, formula_of, names_in, steps_of

_PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "int8", "none")
_TEXTS = tuple(field.name for field in fields(FormulaRow) if field.name not in ("cost", "where", "place"))
_GIVEN = ("tensors_only", "with_gradient", "with_gradients")
_KINDS = ("forward", "backward", "function")
_RAISED = {"dispatches": Dispatches, "uncounted": NotCounted}
_OPTIONS = ("wraps", "functions", "in_place", *_GIVEN, *_KINDS, *_RAISED)
_NAMING = ("by", "given", "with")
_NUMBERS: dict[str, Any] = {name: value for name, value in vars(costs).items() if name.isupper()}


@dataclass
class FileFormula:
    """The formula of the operators of a paragraph, made when one of them is first counted. ``others`` are
    those of its file."""

    paragraph: OperatorParagraph
    others: dict[str, FileFormula]

    def __call__(self, signature: Signature, hints: Hints) -> Work:
        return self.formula(signature, hints)

    @cached_property
    def formula(self) -> HintedFormula:
        """The formula; ValueError names the line of what is none."""
        with _placed(self.paragraph):
            return self._formula()

    @cached_property
    def body(self) -> str:
        """The text on one line."""
        return " ".join(self.paragraph.text.split())

    @cached_property
    def rows(self) -> tuple[FormulaRow, ...]:
        """The rows, which are tried in their order."""
        base = self.others[self._like].rows[0] if self._like else FormulaRow("")
        first, *versions = self.body.split("|")
        rows = [_changed(base, first, self.paragraph.place)]
        for version in versions:
            rows.append(
                _changed(rows[0] if _leaves_out(version) else FormulaRow(""), version, self.paragraph.place)
            )
        return tuple(rows)

    @cached_property
    def is_rows(self) -> bool:
        """Whether rows count it, and neither a function nor a layout of attention."""
        return "by" not in self._naming and not any(word in self._options for word in (*_KINDS, *_RAISED))

    @cached_property
    def said(self) -> dict[str, Any]:
        """What is said to a function: its ``schema``, and options by their names."""
        schema, *clauses = _clauses(self.body)
        return {name: _value(value) for name, value in clauses} | ({"schema": schema} if schema else {})

    @property
    def _options(self) -> tuple[str, ...]:
        return self.paragraph.heading.options

    @cached_property
    def _naming(self) -> dict[str, str]:
        return dict(option.split("=") for option in self._options if "=" in option)

    @property
    def _like(self) -> str:
        like, namespaces = self.paragraph.like, self.paragraph.heading.namespaces
        return like if like in self.others or not like or not namespaces else namespaces[0] + like

    def _formula(self) -> HintedFormula:
        for option in self._options:
            if option not in _OPTIONS and option.split("=")[0] not in _NAMING:
                raise ValueError(f"{option!r} is no option of a heading")
        for word, error in _RAISED.items():
            if word in self._options:
                return partial(_raise, error, self.body)
        plain = next((getattr(nodes, name) for name in _GIVEN if name in self._options), None)
        given: Given = _function(self._naming["given"]) if "given" in self._naming else plain
        if "with" in self._naming:
            for module in self._naming["with"].split(","):
                import_module(f"{__package__}.{module}")
        if "by" in self._naming:
            function = _function(self._naming["by"])
            return partial(_called, function, given, "hints" in _parameters(function), **self.said)
        kind = next(filter(self._options.__contains__, _KINDS), "")
        if kind:
            from rooflines.roofline.count.formulas.packed_attention import layout_formula

            return layout_formula(self.others[self._like].said if self._like else self.said, kind, given)
        return formula_of(self.rows, "functions" in self._options, given)

    def problem(self) -> str:
        """What is wrong in the paragraph, with its line; nothing where all of it can be made."""
        try:
            with _placed(self.paragraph):
                self._formula()
                if "by" in self._naming:
                    import inspect

                    function = _function(self._naming["by"])
                    inspect.signature(function).bind(
                        *("signature", "hints")[: 1 + ("hints" in _parameters(function))], **self.said
                    )
                for row in self.rows if self.is_rows else ():
                    names_in(row)
        except ValueError as error:
            return str(error)
        return ""


Given = Callable[[Signature], Signature] | None


def formulas_of(path: Path) -> dict[str, FileFormula]:
    """The formulas of a file by their operators; ValueError names the line of an operator that stands in the
    file twice."""
    formulas: dict[str, FileFormula] = {}
    for paragraph in paragraphs(path):
        found = FileFormula(paragraph, formulas)
        for name in paragraph.operators:
            if name in formulas:
                raise ValueError(
                    f"{paragraph.place}: '{name}' stands in {formulas[name].paragraph.place} too"
                )
            formulas[name] = found
    return formulas


@cache
def load(path: Path) -> None:
    """Register the operators of a file, once."""
    origin: Origin = "library" if is_librarys(path) else "torch"
    for name, found in formulas_of(path).items():
        heading = found.paragraph.heading
        enter((name,), heading.category, found, "wraps" in heading.options, origin)


def load_family_of(*names: str) -> None:
    """Read the files with the formulas of these operators, as far as there are any."""
    for path in filter(None, map(file_of, names)):
        load(path)


def load_families() -> None:
    """Read every file of operators."""
    for path in files():
        load(path)


def problems(path: Path) -> tuple[int, list[str]]:
    """How many operators a file has, and what is wrong in it, each with its line."""
    try:
        formulas = formulas_of(path)
    except ValueError as error:
        return 0, [str(error)]
    each = {formula.paragraph.place: formula.problem() for formula in formulas.values()}
    return len(formulas), [problem for problem in each.values() if problem]


def said_of(name: str) -> dict[str, Any]:
    """What the file of an operator says to the function that counts it."""
    load_family_of(name)
    found = FORMULAS[name].formula
    return found.said if isinstance(found, FileFormula) else {}


@contextlib.contextmanager
def _placed(paragraph: OperatorParagraph) -> Iterator[None]:
    """Say in which file and line an error is."""
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{paragraph.place}: {error.msg} in {error.text!r}") from None
    except KeyError as error:
        raise ValueError(f"{paragraph.place}: no operator {error} in this file") from None
    except (AttributeError, ImportError, NameError, TypeError, ValueError) as error:
        raise ValueError(f"{paragraph.place}: {error}") from error


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _function(name: str) -> Callable[..., Any]:
    """``module.function`` of this package.

    By its name, because a row is data: the module loads when one of its operators is first counted.
    """
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def _called(
    function: Callable[..., Work], given: Given, hinted: bool, signature: Signature, hints: Hints, **said: Any
) -> Work:
    call = given(signature) if given else signature
    return function(call, hints, **said) if hinted else function(call, **said)


def _raise(error: type[Exception], reason: str, *_: Any) -> NoReturn:
    raise error(reason)


def _value(text: str) -> Any:
    """An option of a function: a number of costs, True, False, None or a text."""
    try:
        return eval(text, {"__builtins__": {}}, _NUMBERS)
    except (NameError, SyntaxError):
        return text


def _leaves_out(text: str) -> bool:
    """Whether a row has no schema, or nothing else."""
    return text.lstrip().startswith(";") or " = " not in text


def _changed(row: FormulaRow, text: str, place: str) -> FormulaRow:
    """The row with the schema and the fields of the text: ``schema -> result; name = value; ...``."""
    schema, *clauses = _clauses(text)
    schema, _, result = schema.partition(" -> ")
    changes: dict[str, Any] = {
        name: value for name, value in (("schema", schema), ("result", result)) if value
    }
    steps = dict(steps_of(row.where))
    for name, value in clauses:
        if name == "cost":
            changes[name] = evaluate(value, {})
        elif name in _TEXTS:
            changes[name] = (
                f"={value}".removesuffix("none") if name == "precision" and value in _PRECISIONS else value
            )
        else:
            steps[name] = value
    where = "; ".join(f"{name} = {value}" for name, value in steps.items() if value)
    return replace(row, **changes, where=where, place=place)


def _clauses(text: str) -> Iterator[Any]:
    """What comes before the first ``; name = value``, then each name with its value."""
    first, *clauses = re.split(r"; ?(?=\w+ =(?: |$|;))", text.strip())
    yield first.strip(" ;")
    for clause in clauses:
        name, _, value = clause.partition(" =")
        yield name, value.strip(" ;")
