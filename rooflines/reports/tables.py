"""The tables of a report: which rows come first, how a name fits a column, and the same rows as a DataFrame, CSV and Parquet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.reports.chart import short_name, shorten_left
from rooflines.reports.summary import step_time
from rooflines.roofline.analysis import Analysis, ModuleRow, OperatorRow
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import binary_bytes, scale, significant

if TYPE_CHECKING:
    import pandas as pd

ELLIPSIS = "…"
# The columns that hold words; every other column holds a number.
_WORDS = {
    "name", "module", "phase", "shapes", "precision", "category", "bound", "memory_level", "engine", "flag", "inferred", "path", "type",
    "nearest_roof", "kernels",
}  # fmt: skip
# Behind the name of an operator whose work the trace does not tell by itself.
INFERRED_MARK = "*"
# A spreadsheet reads a cell that starts with one of these as a formula, and an operator may be named by whoever made the trace.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def operator_name(row: OperatorRow) -> str:
    """The operator's name without PyTorch's own namespace, and with the phase where the name does not tell it.

    A kernel that no operator launched is named by what it is.
    """
    if is_kernel(row):
        return short_kernel(row.name)
    name = short_name(row.name)
    return f"{name} (backward)" if row.phase == "backward" and "backward" not in name.lower() else name


def is_kernel(row: OperatorRow) -> bool:
    """Whether the row is a kernel that no operator launched."""
    return not row.phase and bool(row.kernels) and row.kernels[0].name == row.name


def marked_name(row: OperatorRow) -> str:
    """The operator's name with a mark where its work was inferred."""
    return f"{operator_name(row)} {INFERRED_MARK}" if row.inferred else operator_name(row)


def bound_words(row: OperatorRow) -> str:
    """The class of a row: ``memory``, or ``far (memory)`` with the nearest roof of one that is far from all."""
    return f"{row.bound} ({row.nearest_roof})" if row.nearest_roof else row.bound


def operator_module(row: OperatorRow) -> str:
    """The module path; what ran outside every module is named after its phase."""
    return row.module or (f"({row.phase})" if row.phase else "")


def shorten_path(path: str, width: int) -> str:
    """A module path in at most ``width`` characters, cut from the left.

    The number of a repeated layer is kept, because it tells rows apart whose ends are alike: ``…11…output.dense``; so is the number of
    modules that a row stands for: ``…attention ×12``.
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
        numbered = "" if any(part.isdigit() for part in parts[first:]) or not number else f"{ELLIPSIS}{number}"
        short = f"{numbered}{ELLIPSIS}{'.'.join(parts[first:])}"
        if len(short) <= width:
            return short
    return shorten_left(path, width)


def shorten_middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, cut in the middle: operators differ at both ends (``…_backward``)."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def shorten_name(name: str, width: int) -> str:
    """An operator's name in at most ``width`` characters: first with the usual abbreviation, then cut in the middle."""
    if len(name) > width:
        name = name.replace("backward", "bwd").removeprefix("native_")
    return shorten_middle(name, width)


def shorten_shapes(shapes: str, width: int) -> str:
    """As many whole shapes as fit in ``width`` characters, then an ellipsis: ``4x64x56x56…``."""
    if len(shapes) <= width:
        return shapes
    kept = ""
    for shape in re.split(r",\s*", shapes):
        longer = f"{kept}, {shape}" if kept else shape
        if len(longer) + len(ELLIPSIS) > width:
            break
        kept = longer
    return (kept or shapes[: width - 1]) + ELLIPSIS


class Scale(NamedTuple):
    """One unit and one number of decimals for a whole column, so that its numbers align on the decimal point."""

    unit: str
    factor: float
    decimals: int

    def text(self, value: float | None) -> str:
        """``value`` in the column's unit; a dash for what is absent, ``<0.1`` for what rounds to nothing and is not."""
        if value is None:
            return "–"
        text = f"{value / self.factor:.{self.decimals}f}"
        if value and not float(text):
            return f"<{10.0**-self.decimals:.{self.decimals}f}" if value > 0 else f"{0:.{self.decimals}f}"
        return text


def column_scale(values: Iterable[float | None], unit: str) -> Scale:
    """The scale that gives the largest of ``values`` three significant figures."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    factor, prefix = scale(largest)
    return Scale(f"{prefix}{unit}", factor, len(significant(largest / factor).partition(".")[2]))


def efficiency_text(value: float | None) -> str:
    """An efficiency in percent; above 1 it is a warning sign, not a success, and is marked as one."""
    if value is None:
        return "–"
    return "<1" if 0 < value < 0.005 else f"{'!' if value > 1 else ''}{value * 100:.0f}"


def size_text(value: int | None) -> str | None:
    """A memory size for a table of facts, None where it is not known."""
    return None if value is None else binary_bytes(value)


def operators_frame(analysis: Analysis) -> pd.DataFrame:
    """One row an operator in the analysis's order, a column for every field of ``OperatorRow`` and ``time_share`` in front.

    The columns and their types do not depend on what was measured: words are strings, numbers are floats, absent is missing.
    ``kernels`` are their names, longest first, with semicolons between.
    """
    frame = _frame(analysis.operators, OperatorRow)
    whole = step_time(analysis)
    frame.insert(0, "time_share", frame["time_s"] / whole if whole > 0 else float("nan"))
    return frame


def modules_frame(analysis: Analysis) -> pd.DataFrame:
    """One row a module, a column for every field of ``ModuleRow``."""
    return _frame(analysis.modules, ModuleRow)


def steps_frame(analysis: Analysis) -> pd.DataFrame:
    """One row a timed step, in the order run: ``step`` from 0 and ``time_s``."""
    import pandas as pd

    durations = analysis.steps.durations_s if analysis.steps else ()
    return pd.DataFrame({"step": pd.Series(range(len(durations)), dtype="int64"), "time_s": pd.Series(durations, dtype="float64")})


def write_csv(analysis: Analysis, directory: Path) -> list[Path]:
    """Write ``operators.csv``, ``modules.csv`` and ``steps.csv`` into ``directory`` and return their paths.

    A cell of text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    directory.mkdir(parents=True, exist_ok=True)
    frames = {"operators": operators_frame(analysis), "modules": modules_frame(analysis), "steps": steps_frame(analysis)}
    paths = []
    for name, frame in frames.items():
        for column in _WORDS.intersection(frame.columns):
            frame[column] = frame[column].map(inert, na_action="ignore")
        path = directory / f"{name}.csv"
        # Words are always quoted: a carriage return inside a name would end the row otherwise.
        frame.to_csv(path, index=False, encoding="utf-8", lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        paths.append(path)
    return paths


def write_parquet(analysis: Analysis, path: Path) -> Path:
    """Write the operators to ``path`` as Parquet, names as they are, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    operators_frame(analysis).to_parquet(path, engine="pyarrow", index=False)
    return path


def _frame(rows: Sequence[OperatorRow] | Sequence[ModuleRow], kind: type[OperatorRow] | type[ModuleRow]) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        if field == "kernels":
            values = ["; ".join(kernel.name for kernel in ran) for ran in values]
        columns[field] = pd.Series(values, dtype="string" if field in _WORDS else "float64")
    return pd.DataFrame(columns)


def inert(text: str) -> str:
    """``text`` as a cell that a spreadsheet shows and does not run."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) or text.lstrip().startswith(_FORMULA_STARTS) else text
