"""Writes ``docs/operators.csv``: every operator with a formula, and its category.

python tests/roofline/formulas/operators.py
"""

from __future__ import annotations

import csv
from pathlib import Path

from rooflines.roofline.formulas.counter import registered
from rooflines.roofline.formulas.libraries import modules_of
from rooflines.roofline.formulas.ragged import NESTED
from rooflines.roofline.formulas.sparse import SEARCH, SPARSE
from rooflines.roofline.formulas.views import ALLOCATIONS, METADATA, VIEWS

FILE = Path(__file__).parents[3] / "docs" / "operators.csv"
NOTHING = {*VIEWS, *ALLOCATIONS, *METADATA, "detach"}
UNKNOWN = {*NESTED, *SPARSE, SEARCH}


def rows() -> list[list[str]]:
    """Operator, origin and category. An in-place form is left out where the plain form is listed."""
    operators = registered()
    listed = []
    for name in sorted(operators):
        if name.endswith("_") and name[:-1] in operators:
            continue
        category = "none" if name in NOTHING else "unknown" if name in UNKNOWN else operators[name]
        listed.append([name, "library" if modules_of(name) else "torch", category])
    return listed


if __name__ == "__main__":
    with FILE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["operator", "origin", "category"], *rows()])
