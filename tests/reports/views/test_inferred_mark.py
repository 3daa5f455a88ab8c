"""An operator whose work the trace does not tell by itself is marked in every report, and the mark is explained."""

from __future__ import annotations

import io
import re

from msgspec.structs import replace
from rich.console import Console

from rooflines.reports.render import html, terminal
from rooflines.reports.views import run as view
from rooflines.reports.views.operators import operator_table
from rooflines.reports.words.sentences import inferred_sentence
from tests import samples

SOURCE = "output from its backward call"
SENTENCE = "* work inferred from other events in the trace, which does not record all arguments"


def marked():
    sample = samples.analysis()
    rows = sorted(sample.operators, key=lambda row: -row.time_s)
    return replace(sample, operators=(replace(rows[0], inferred=SOURCE), *rows[1:]))


def printed(analysis):
    file = io.StringIO()
    terminal.print_page(view.page(analysis), Console(file=file, width=100))
    return " ".join(file.getvalue().split())


def test_the_sentence_says_how_much_of_the_time_it_is():
    first, *rest = marked().operators
    share = first.time_s / (first.time_s + sum(row.time_s for row in rest))
    assert inferred_sentence(marked()) == f"{SENTENCE} ({share * 100:.0f} % of the operator time)"
    assert inferred_sentence(samples.analysis()) == ""


def test_the_terminal_marks_the_name():
    assert SENTENCE in printed(marked())
    assert re.search(r" conv\S* \* ", printed(marked()))
    assert SENTENCE not in printed(samples.analysis())


def test_the_page_marks_the_name_and_shows_the_source():
    name = operator_table(marked()).rows[0].cells[1]
    assert name.value.endswith(" *")
    assert name.hover.endswith(f"inferred: {SOURCE}")
    assert SENTENCE in html.render(view.page(marked()))
    assert SENTENCE not in html.render(view.page(samples.analysis()))


def test_the_json_and_the_table_hold_it_where_it_is():
    first, second, *_ = marked().to_dict()["operators"]
    assert first["inferred"] == SOURCE
    assert "inferred" not in second
    assert marked().to_dataframe("operators")["inferred"].dropna().tolist() == [SOURCE]
