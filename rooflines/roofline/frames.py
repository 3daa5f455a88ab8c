"""Records as DataFrames: a row each, a column for each field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pandas as pd

# The columns that hold words; every other column holds a number.
WORDS = frozenset((
    "name", "module", "phase", "shapes", "precision", "category", "bound", "memory_level", "engine", "flag", "inferred",
    "assumption", "caller", "path", "type", "nearest_roof", "kernels", "step_times_s",
))  # fmt: skip


def struct_columns(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> dict[str, list[Any]]:
    """Return ``rows`` of operators or modules, which are of ``kind``, as columns: words are strings, numbers floats, absent is None.

    ``kernels`` are their names, longest first, and ``step_times_s`` the times in order, each with semicolons between. ``example`` is
    where to look in the trace: seconds after its first event.
    """
    columns: dict[str, list[Any]] = {}
    for field in kind.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        if field == "kernels":
            values = ["; ".join(kernel.name for kernel in ran) for ran in values]
        elif field == "step_times_s":
            values = [None if times is None else "; ".join(map(str, times)) for times in values]
        elif field == "example":
            values = [None if one is None else one.at_s for one in values]
        columns[field] = [value if value is None or field in WORDS else float(value) for value in values]
    return columns


def frame_of(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """A DataFrame of columns, whose types do not depend on what was measured."""
    import pandas as pd

    return pd.DataFrame({name: pd.Series(values, dtype="string" if name in WORDS else "float64") for name, values in columns.items()})
