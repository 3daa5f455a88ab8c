"""Names, paths, shapes and numbers as texts that fit: how each is shortened, and one unit for a column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from rooflines.roofline.analysis import OperatorRow, Unmodeled
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.units import binary_bytes, significant

ELLIPSIS = "…"
# A space between a number and its unit, at which no line should end.
NUMBER_AND_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[mµn]?s|min|[kMGTP]?(?:FLOP|OP|B)/s|[KMGTP]?i?B|[mkM]?J|[mkM]?W|[kMG]?Hz|°C)(?:\W|$))"
)
# Behind the name of an operator whose work the trace does not tell by itself.
INFERRED_MARK = "*"
# Rows of graphs whose operators are not known (``roofline/own/graphs.py``).
_Value = TypeVar("_Value")
_GRAPH = re.compile(r"(?:CUDA|HIP) graph \d+")
# A spreadsheet reads a cell that starts with one of these as a formula, and an operator's name comes from the
# trace.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def short_name(name: str) -> str:
    """An operator without its namespace: ``conv2d`` for ``aten::conv2d``."""
    return name.removeprefix("aten::")


def given(form: str, value: _Value | None, words: Callable[[_Value], object] = str) -> str:
    """``form`` with ``value`` in words in its place; empty where there is none, as in an empty text."""
    return "" if value is None or value == "" else form.format(words(value))


def joined(between: str, *texts: str | None) -> str:
    """Those of ``texts`` that say something, with ``between`` between them."""
    return between.join(filter(None, texts))


def clip(text: str, most: int) -> str:
    """``text`` with its end cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def count_text(value: float) -> str:
    """A number of calls: whole where it is whole, three significant figures where a step does not hold a
    whole number of them."""
    return str(int(value)) if value == int(value) else significant(value)


def operator_name(row: OperatorRow | Unmodeled) -> str:
    """The operator's name without PyTorch's own namespace, and with the phase where the name does not tell
    it.

    A kernel that no operator launched is named by what it is.
    """
    if is_kernel(row):
        return short_kernel(row.name)
    name = short_name(row.name)
    return f"{name} (backward)" if row.phase == "backward" and "backward" not in name.lower() else name


def is_kernel(row: OperatorRow | Unmodeled) -> bool:
    """Whether the row is a kernel that no operator launched."""
    return not row.phase and bool(row.kernels) and row.kernels[0].name == row.name


def is_graph(row: OperatorRow) -> bool:
    """Whether the row is a CUDA or HIP graph whose operators are not known."""
    return not row.phase and bool(row.kernels) and _GRAPH.fullmatch(row.name) is not None


def marked_name(row: OperatorRow) -> str:
    """The operator's name with a mark where its work was inferred."""
    return f"{operator_name(row)} {INFERRED_MARK}" if row.inferred or row.assumption else operator_name(row)


def line_words(row: OperatorRow) -> str:
    """The line of the program with most of the row's time, and how many more there are."""
    more = f" +{len(row.lines) - 1}" if len(row.lines) > 1 else ""
    return f"{row.lines[0].place}{more}" if row.lines else ""


def bound_words(row: OperatorRow) -> str:
    """The class of a row: ``memory``, or ``inefficient (memory)`` with the nearest roof of a row that
    is far below every roof."""
    return f"{row.bound} ({row.nearest_roof})" if row.nearest_roof else row.bound


def operator_module(row: OperatorRow) -> str:
    """The module path; what ran outside every module is named after its phase."""
    return row.module or given("({})", row.phase)


def shorten_path(path: str, width: int) -> str:
    """A module path in at most ``width`` characters, cut from the left.

    The number of a repeated layer is kept, because it tells rows apart whose ends are alike:
    ``…11…output.dense``; so is the number of modules in the row: ``…attention ×12``.
    """
    if len(path) <= width:
        return path
    path, times, number = path.rpartition(" ×")
    if times:
        return f"{shorten_path(path, max(2, width - len(number) - 2))} ×{number}"
    path = number
    parts = path.split(".")
    for first in range(1, len(parts)):
        number = next((part for part in reversed(parts[:first]) if part.isdigit()), "")
        numbered = (
            "" if any(part.isdigit() for part in parts[first:]) or not number else f"{ELLIPSIS}{number}"
        )
        short = f"{numbered}{ELLIPSIS}{'.'.join(parts[first:])}"
        if len(short) <= width:
            return short
    return ELLIPSIS + path[-(width - 1) :]


def shorten_middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, cut in the middle: operators differ at both ends
    (``…_backward``)."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def shorten_name(name: str, width: int) -> str:
    """An operator's name in at most ``width`` characters: first with the usual abbreviation, then cut in the
    middle."""
    if len(name) > width:
        name = name.replace("backward", "bwd").removeprefix("native_")
    return shorten_middle(name, width)


def shorten_shapes(shapes: str, width: int) -> str:
    """The last shapes that fit in ``width`` characters, vectors left out: ``…2048x1024x1x1``, the weights of
    a convolution."""
    if len(shapes) <= width:
        return shapes
    every = re.split(r",\s*", shapes)
    kept = [shape for shape in every if "x" in shape] or every
    while len(kept) > 1 and len(", ".join(kept)) >= width:
        kept = kept[1:]
    return ELLIPSIS + ", ".join(kept)[-(width - 1) :]


def decimals_of(value: float) -> int:
    """The decimals that three significant figures of ``value`` take."""
    return len(significant(value).partition(".")[2])


def fixed(value: float | None, decimals: int) -> str:
    """``value`` with ``decimals`` decimals; a dash if it is absent, ``<0.1`` if it is above zero and would be
    shown as zero."""
    if value is None:
        return "–"
    text = f"{value:.{decimals}f}"
    if value and not float(text):
        return f"<{10.0**-decimals:.{decimals}f}" if value > 0 else f"{0:.{decimals}f}"
    return text


def efficiency_text(value: float | None) -> str:
    """An efficiency in percent; above 1 it is a warning sign, not a success, and is marked as one."""
    if value is None:
        return "–"
    return "<1" if 0 < value < 0.005 else f"{'!' if value > 1 else ''}{value * 100:.0f}"


def size_text(value: int | None) -> str | None:
    """A memory size for a table of facts, None where it is not known."""
    return None if value is None else binary_bytes(value)


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV: absent cells empty, text always quoted and such that a spreadsheet does not run it."""
    out = io.StringIO()
    # A carriage return inside a name would end the row if it were not quoted.
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(header)
    writer.writerows(
        [inert(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in row]
        for row in rows
    )
    return out.getvalue()


def struct_csv(rows: Iterable[msgspec.Struct], kind: type[msgspec.Struct]) -> str:
    """Records of one ``kind`` as CSV, a column a field."""
    names = kind.__struct_fields__
    return csv_text(names, ((getattr(row, name) for name in names) for row in rows))


def inert(text: str) -> str:
    """``text`` as a cell that a spreadsheet shows and does not run."""
    return (
        f"'{text}" if text.startswith(_FORMULA_STARTS) or text.lstrip().startswith(_FORMULA_STARTS) else text
    )
