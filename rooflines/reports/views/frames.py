"""The operators, modules and steps of an analysis as DataFrames, CSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.errors import UsageError
from rooflines.reports.words.summary import step_time
from rooflines.reports.words.text import inert
from rooflines.roofline.analysis import Analysis, ModuleRow, OperatorRow

if TYPE_CHECKING:
    import pandas as pd

# The columns that hold words; every other column holds a number.
_WORDS = {
    "name", "module", "phase", "shapes", "precision", "category", "bound", "memory_level", "engine", "flag", "inferred",
    "assumption", "caller", "path", "type", "nearest_roof", "kernels", "step_times_s",
}  # fmt: skip


def frame(analysis: Analysis, rows: str) -> pd.DataFrame:
    """The ``operators``, ``modules`` or ``steps`` of ``analysis``. Raises UsageError for any other ``rows``."""
    frames = {"operators": operators_frame, "modules": modules_frame, "steps": steps_frame}
    if rows not in frames:
        raise UsageError(f"unknown rows {rows!r}.", hint=f"Choose from {', '.join(frames)}.")
    return frames[rows](analysis)


def operators_frame(analysis: Analysis) -> pd.DataFrame:
    """One row an operator in the analysis's order, a column for every field of ``OperatorRow`` and ``time_share`` in front.

    The columns and their types do not depend on what was measured: words are strings, numbers are floats, absent is missing.
    ``kernels`` are their names, longest first, and ``step_times_s`` the times in order, each with semicolons between. ``example`` is
    where to look in the trace: seconds after its first event.
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
        elif field == "step_times_s":
            values = [None if times is None else "; ".join(map(str, times)) for times in values]
        elif field == "example":
            values = [None if one is None else one.at_s for one in values]
        columns[field] = pd.Series(values, dtype="string" if field in _WORDS else "float64")
    return pd.DataFrame(columns)
