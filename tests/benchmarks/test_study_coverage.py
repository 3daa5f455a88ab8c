"""``docs/study_coverage.csv``: an item of a paper, the sections, tables or figures of the study's page that show it, what it needs that
not every machine has, and what is missing. Every study is in it, and every name is on a page.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from rooflines.studies.study import HERE, read_study

with (Path(__file__).parents[2] / "docs" / "study_coverage.csv").open(newline="", encoding="utf-8") as _file:
    ROWS = list(csv.DictReader(_file))
STUDIES = sorted(path.parent for path in HERE.glob("*/study.toml"))


def names_of(folder):
    """The names of sections, tables and figures in the file and the modules of a study, and of those from the sweeps' page."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*folder.glob("*.py"), *HERE.glob("*_page.py")))
    study = read_study(folder)
    named = (*re.findall(r'name="([\w-]+)"', text), *re.findall(r'\("([\w-]+)", ', text))
    return {*study.sections, *(table.name for table in study.tables), *named}


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_what_shows_an_item_is_on_the_page(folder):
    rows = [row for row in ROWS if row["study"].replace("-", "_") == folder.name]
    assert rows
    names = names_of(folder)
    unknown = {row["item"]: row["shown"] for row in rows if not row["shown"] or not set(row["shown"].split(";")) <= names}
    assert not unknown


def test_every_row_is_of_a_study():
    assert {row["study"].replace("-", "_") for row in ROWS} == {folder.name for folder in STUDIES}
