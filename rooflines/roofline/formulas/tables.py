"""Tables of operators: texts of one paragraph an operator, under headings, in which the libraries are written.

::

    [matmul aiter:: wraps]
    # A comment.
    gemm batched_gemm: read left[*m k], read right[n =k] -> left; cost = SILU + 1; made = 2 * m; writes = made * n
        | flag, read left[*m k], read right[n =k]
    preshuffled_gemm like gemm: ; fits = k > 1

A heading has the category, namespaces that every name below it may have, and options: ``wraps`` and ``functions`` are those of
``rows.register``, and the name of a function says what the schemas describe (``nodes.py``). A paragraph has the names of operators and
their row (``rows.py``): the schema, ``-> left`` for ``Row.result``, and other fields by their names; any other name is a step of
``Row.where``. Behind each ``|`` is a row that is tried after those before it; of one without a schema, or with nothing else, the rest
is that of the first. Behind ``like`` is the operator whose row this one changes. Continuation lines are indented.

Options for other paragraphs are ``scaled`` (products of ``scaled.py``, with the schema), ``forward``, ``backward`` and ``function``
(attention, with the schemas and fields of a ``Layout``), ``dispatches`` (with the reason), and ``by=name`` (a function that is given
the call, its hints and the text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

from rooflines.roofline.formulas.nodes import tensors_only, with_gradient, with_gradients
from rooflines.roofline.formulas.packed_attention import AttentionLayout, register_layout
from rooflines.roofline.formulas.registry import dispatches, hinted_formula
from rooflines.roofline.formulas.rows import ROWS, Row, evaluate, register, steps_of
from rooflines.roofline.formulas.scaled import register_products

_GIVEN: Final = {"tensors_only": tensors_only, "with_gradient": with_gradient, "with_gradients": with_gradients}
_PRECISIONS: Final = ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "int8", "none")
_TEXTS: Final = tuple(field.name for field in fields(Row) if field.name not in ("cost", "where"))
_KINDS: Final = ("forward", "backward", "function")
_OPTIONS: Final = ("wraps", "functions", "scaled", "dispatches", *_KINDS, *_GIVEN)
# The layouts of attention in tables, by operator.
_LAYOUTS: Final[dict[str, AttentionLayout]] = {}


def table(text: str, **functions: Callable[..., Any]) -> None:
    """Register the operators of a table. ``functions`` are those that its headings name; ValueError names an option that is none."""
    for category, options, names, body in _paragraphs(text):
        for option in options:
            if "::" not in option and option.removeprefix("by=") not in (*_OPTIONS, *functions):
                raise ValueError(f"{option!r} is no option of a table")
        wraps, namespaces = "wraps" in options, [option for option in options if "::" in option] or [""]
        given = next((function for name, function in (_GIVEN | functions).items() if name in options), None)
        names, _, old = names.partition(" like ")
        operators = tuple(namespace + name for namespace in namespaces for name in names.split())
        by = next((option.removeprefix("by=") for option in options if option.startswith("by=")), "")
        if by:
            hinted_formula(*operators, category=category, wraps=wraps)(partial(functions[by], text=body))
        elif "scaled" in options:
            register_products({" ".join(operators): body}, wraps)
        elif "dispatches" in options:
            dispatches(*operators, category=category, reason=body)
        elif kind := next(filter(options.__contains__, _KINDS), ""):
            layout = _LAYOUTS[old] if old else _layout(body)
            _LAYOUTS.update(dict.fromkeys(operators, layout))
            register_layout(operators, layout, kind, given or (lambda call: call))
        else:
            base = ROWS[old if old in ROWS else namespaces[0] + old][0] if old else Row("")
            first, *versions = body.split("|")
            rows = [_changed(base, first)]
            rows += [_changed(rows[0] if _leaves_out(version) else Row(""), version) for version in versions]
            for namespace in namespaces:
                register({names: tuple(rows)}, category, wraps, namespace, "functions" in options, given)


def _paragraphs(text: str) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """The category and options of the heading, the names and the rest of each paragraph."""
    category, options = "", tuple[str, ...]()
    for paragraph in re.split(r"\n(?! )", text.strip()):
        line = " ".join(paragraph.split())
        if line.startswith("["):
            category, *words = line.strip("[]").split()
            options = tuple(words)
        elif line and not line.startswith("#"):
            names, _, body = f"{line} ".partition(": ")
            yield category, options, names, body.strip()


def _leaves_out(text: str) -> bool:
    """Whether a row has no schema, or nothing else."""
    return text.lstrip().startswith(";") or " = " not in text


def _changed(row: Row, text: str) -> Row:
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
    return replace(row, **changes, where="; ".join(f"{name} = {value}" for name, value in steps.items() if value))


def _layout(text: str) -> AttentionLayout:
    schemas, *clauses = _clauses(text)
    options: dict[str, Any] = {name: {"True": True, "False": False}.get(value, value) for name, value in clauses}
    return AttentionLayout(tuple(schema.strip() for schema in schemas.split("|")), **options)


def _clauses(text: str) -> Iterator[Any]:
    """What comes before the first ``; name = value``, then each name with its value."""
    first, *clauses = re.split(r"; ?(?=\w+ =(?: |$|;))", text.strip())
    yield first.strip(" ;")
    for clause in clauses:
        name, _, value = clause.partition(" =")
        yield name, value.strip(" ;")
