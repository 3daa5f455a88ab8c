"""Every value that a page quotes from a paper is in a CSV file of its study, with the table, figure or section that it comes from.

``ROOFLINES_PAPERS`` names a directory with the texts of the papers (STUDY.txt); with it, each row is looked for in the text.
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from rooflines.studies.study import HERE

FILES = sorted(HERE.glob("*/*.csv"))
PAPERS = os.environ.get("ROOFLINES_PAPERS")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# What the files have in another form than the text: a study, a row's first cell, and the numbers of the text.
OTHERWISE = {
    ("training_profile", "training time of 20 epochs"): ("20", "13", "2", "1", "15"),
    ("environments", "apple-m3-pro-mps"): ("5700", "150"),
    ("environments", "cloud-cpu-4vcpu"): ("160", "30"),
    ("environments", "tesla-t4"): ("8100", "320"),
}


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def values_of(path, row):
    """The numbers of a row as the text has them, without its names."""
    first = next(iter(row.values()))
    if (path.parent.name, first) in OTHERWISE:
        return OTHERWISE[path.parent.name, first]
    cells = [value for name, value in list(row.items())[1:] if name not in ("where", "unit", "configuration", "device") and value]
    return [number for cell in cells for number in NUMBER.findall(cell) if float(number)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_row_names_its_place_in_the_paper(path):
    for row in rows_of(path):
        assert re.match(r"(table|figure|section)s? [\dIVX]", row["where"]), row


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_is_read_by_a_page_of_its_study(path):
    assert any(path.name in file.read_text(encoding="utf-8") for file in path.parent.glob("*.py"))


@pytest.mark.skipif(PAPERS is None, reason="the texts of the papers are not part of the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_value_is_in_the_text(path):
    text = (Path(str(PAPERS)) / f"{path.parent.name.replace('_', '-')}.txt").read_text(encoding="utf-8").replace(",", "")
    found = {float(number) for number in NUMBER.findall(text)}
    for row in rows_of(path):
        missing = [number for number in values_of(path, row) if float(number) not in found]
        assert not missing, f"{row} has {missing}, which the text has not"


def test_no_sentence_of_a_page_types_a_value_of_a_paper():
    """Values beside "the paper" in the sentences come from the files: a literal is a year, a count of things or a definition."""
    literal = re.compile(r"[Tt]he paper[^\"{]*?[^\w.{]\d+(?:\.\d+)?(?: %| MB| GB| s\b| ms| images/s| samples/s)")
    for path in HERE.glob("*/*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.lstrip().startswith(("#", '"""')):
                assert not literal.search(line), f"{path.name}: {line.strip()}"
