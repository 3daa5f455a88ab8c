"""What the page of a study without a ``page.py`` says and shows besides its tables: what that of a sweep does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rooflines.reports.document import Section
from rooflines.sweeps.page import curves_section, points_table, sentences

if TYPE_CHECKING:
    from rooflines.studies.study import Study


def findings(study: Study) -> Iterator[str]:
    """The fastest point, and what failed."""
    yield from sentences(study.rows)


def sections(study: Study) -> tuple[Section, ...]:
    """The points, and curves along the option that varies."""
    return Section(name="points", title="Points", blocks=(points_table(study.rows),)), curves_section(study.rows, {})
