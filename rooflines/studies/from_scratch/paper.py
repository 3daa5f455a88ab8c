"""What the paper printed, from the CSV file of this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rooflines.studies.study import paper_rows

_UNITS = {"s": 1.0, "ms": 1e-3, "MB": 1e6}


@cache
def libraries() -> dict[str, dict[str, float]]:
    """Return the tables of the paper: by ``numpy`` and ``cupy``, by quantity, in seconds and bytes."""
    rows = paper_rows(Path(__file__).parent / "from_scratch_mlp.csv")
    return {
        name: {row["quantity"]: float(row[column]) * _UNITS[row["unit"]] for row in rows}
        for name, column in (("numpy", "numpy_cpu"), ("cupy", "cupy_gpu"))
    }
