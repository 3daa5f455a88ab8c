"""Every value that a page quotes from a paper is in a CSV file of its study, with the table, figure or section that it comes from.

``ROOFLINES_PAPERS`` names a directory with the texts of the papers (STUDY.txt); with it, each row is looked for in the text.
"""

import csv
import os
import re
from pathlib import Path

import pytest

from rooflines.studies.study import HERE

FILES = sorted(HERE.glob("*/*.csv"))
PAPERS = os.environ.get("ROOFLINES_PAPERS")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# All numbers of a row must be within this many lines of the text: the environments paper has those of one row in tables 3, 4 and 5.
NEAR = 60


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def values_of(path, row):
    """The numbers of a row as the text has them, without its names."""
    cells = [
        value for name, value in list(row.items())[1:] if name not in ("where", "unit", "configuration", "device", "beside") and value
    ]
    return [number for cell in cells for number in NUMBER.findall(cell) if float(number)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_row_names_its_place_in_the_paper(path):
    for row in rows_of(path):
        assert re.match(r"(table|figure|section)s? [\dIVX]", row["where"]), row


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_is_read_by_a_page_of_its_study(path):
    name = path.name.removeprefix("environments_").removesuffix(".csv")
    texts = [file.read_text(encoding="utf-8") for file in (*path.parent.glob("*.py"), path.parent / "study.toml")]
    assert any(path.name in text or f'table("{name}")' in text for text in texts)


@pytest.mark.skipif(PAPERS is None, reason="the texts of the papers are not part of the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_value_is_in_the_text(path):
    text = (Path(str(PAPERS)) / f"{path.parent.name.replace('_', '-')}.txt").read_text(encoding="utf-8").replace(",", "")
    lines = [{float(number) for number in NUMBER.findall(line)} for line in text.splitlines()]
    for row in rows_of(path):
        values = {float(number) for number in values_of(path, row)}
        places = (set().union(*lines[at : at + NEAR]) for at in range(len(lines)))
        assert any(values <= place for place in places), f"{row}: these numbers do not stand together in the text"


def test_no_sentence_of_a_page_types_a_value_of_a_paper():
    """Values beside "the paper" in the sentences come from the files: a literal is a year, a count of things or a definition."""
    literal = re.compile(r"[Tt]he paper[^\"{]*?[^\w.{]\d+(?:\.\d+)?(?: %| MB| GB| s\b| ms| images/s| samples/s)")
    for path in HERE.glob("*/*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.lstrip().startswith(("#", '"""')):
                assert not literal.search(line), f"{path.name}: {line.strip()}"
