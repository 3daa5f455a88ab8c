"""The table of what the studies show of their papers is that of its file, and each item is on a page."""

import pytest

from benchmarks import study_coverage
from rooflines.studies.study import HERE


def test_the_page_has_the_table_of_the_file():
    assert study_coverage.table() in study_coverage.PAGE.read_text(encoding="utf-8")


def test_every_study_is_in_it_and_no_item_is_without_an_answer():
    found = study_coverage.rows()
    assert {row["study"].replace("-", "_") for row in found} == {path.parent.name for path in HERE.glob("*/study.toml")}
    assert all(row["shown"] for row in found)


def test_a_name_that_no_page_has_is_refused(monkeypatch):
    monkeypatch.setattr(study_coverage, "names_of", lambda _: {"other"})
    with pytest.raises(ValueError, match="which its page has not"):
        study_coverage.rows()
