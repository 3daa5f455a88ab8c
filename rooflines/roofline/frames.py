"""Records as DataFrames: a row each, a column for each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pandas as pd

# The columns that hold words; every other column holds a number.
WORDS = frozenset((
    "name", "module", "phase", "shapes", "precision", "category", "bound", "memory_level", "engine", "flag", "inferred",
    "assumption", "caller", "path", "type", "nearest_roof", "kernels", "step_times_s",
))  # fmt: skip


def struct_frame(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> pd.DataFrame:
    """Return ``rows`` of operators or modules, which are of ``kind``.

    The columns and their types do not depend on what was measured: words are strings, numbers are floats, absent is missing.
    ``kernels`` are their names, longest first, and ``step_times_s`` the times in order, each with semicolons between. ``example`` is
    where to look in the trace: seconds after its first event.
    """
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
        columns[field] = pd.Series(values, dtype="string" if field in WORDS else "float64")
    return pd.DataFrame(columns)
