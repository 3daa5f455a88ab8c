"""The tables of an analysis as files that pandas and spreadsheets read."""

from __future__ import annotations

import csv
from pathlib import Path

from rooflines.reports.words.text import inert
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.frames import WORDS


def write_csv(analysis: Analysis, directory: Path) -> list[Path]:
    """Write ``operators.csv``, ``modules.csv`` and ``steps.csv`` into ``directory`` and return their paths.

    A cell of text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in ("operators", "modules", "steps"):
        frame = analysis.to_dataframe(name)
        for column in WORDS.intersection(frame.columns):
            frame[column] = frame[column].map(inert, na_action="ignore")
        path = directory / f"{name}.csv"
        # Words are always quoted: a carriage return inside a name would end the row otherwise.
        frame.to_csv(path, index=False, encoding="utf-8", lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        paths.append(path)
    return paths


def write_parquet(analysis: Analysis, path: Path) -> Path:
    """Write the operators to ``path`` as Parquet, names as they are, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    analysis.to_dataframe().to_parquet(path, engine="pyarrow", index=False)
    return path
