"""The rows of ``docs/operators.csv``: every operator with a formula, and its category."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rooflines.roofline.formulas.counter import registered
from rooflines.roofline.formulas.families import is_torchs
from rooflines.roofline.formulas.ragged import NESTED
from rooflines.roofline.formulas.registry import FORMULAS
from rooflines.roofline.formulas.sparse import SEARCH, SPARSE
from rooflines.roofline.formulas.views import ALLOCATIONS, METADATA, VIEWS

FILE = Path(__file__).parents[3] / "docs" / "operators.csv"
NOTHING = {*VIEWS, *ALLOCATIONS, *METADATA, "detach"}
UNKNOWN = {*NESTED, *SPARSE, SEARCH}


def rows() -> list[list[str]]:
    """Operator, origin and category. An in-place form is left out where the plain form is listed."""
    registered()  # loads all
    operators = {name: entry.category for name, entry in FORMULAS.items() if entry.origin != "user"}  # other tests register theirs
    listed = []
    for name in sorted(operators):
        if name.endswith("_") and name[:-1] in operators:
            continue
        category = "none" if name in NOTHING else "unknown" if name in UNKNOWN else operators[name]
        listed.append([name, "torch" if is_torchs(name) else "library", category])
    return listed


def text() -> str:
    """The file."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([["operator", "origin", "category"], *rows()])
    return written.getvalue()
