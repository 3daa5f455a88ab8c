"""One document in every format: the same column names, units and order, from one registry; and how large a page may be."""

import csv
import html
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

import rooflines
from rooflines.errors import UsageError
from rooflines.reports.document import texts
from rooflines.reports.page import comparison, monitor, ranks, run
from rooflines.reports.render import csv as csv_tables
from rooflines.reports.render import formats, markdown, pdf
from rooflines.reports.render import html as html_page
from rooflines.reports.render import json as json_page
from rooflines.reports.render.terminal import print_page
from rooflines.roofline.compare.compare import compare
from tests.reports.page import test_comparison, test_monitor, test_ranks, test_serving
from tests.samples import analysis as sample

TRACES = Path(__file__).parents[2] / "data" / "traces"
PAGES = {
    "run": lambda: run.page(sample()),
    "serving": lambda: run.page(test_serving.served()),
    "monitor": lambda: monitor.page(test_monitor.analysis(test_monitor.machine_samples())),
    "ranks": lambda: ranks.page(test_ranks.sample()),
    "comparison": lambda: comparison.page([compare(sample(), test_comparison.changed())]),
}


@pytest.fixture(scope="module", params=PAGES)
def page(request):
    return PAGES[request.param]()


def headers(page):
    """The column names with their units of every table that the full form has, in their order."""
    found = {}
    for table in page.tables():
        if table.show != "brief":
            shown = texts(table)
            found[table.name] = [(column.label, unit) for column, unit in zip(shown.columns, shown.units, strict=True)]
    return found


@pytest.mark.ci
def test_the_page_has_every_column(page):
    text = html_page.render(page)
    for table in page.tables():
        caption = html.escape(table.caption or table.title)
        at = re.search(rf'<caption class="sr">{re.escape(caption)}', text)
        if at is None:
            continue
        row = text[at.end() : text.index("</thead>", at.end())]
        cells = re.findall(r"<th[^>]*>(?:<button[^>]*>)?(.*?)(?: <span class=\"unit\">(.*?)</span>)?(?:</button>)?</th>", row)
        assert [(html.unescape(label), html.unescape(unit)) for label, unit in cells] == headers(page)[table.name]


def test_markdown_json_and_csv_have_the_same(page):
    text = markdown.render(page)
    data = json.loads(json_page.render(page))
    blocks = [block for section in data["sections"] for block in section["blocks"] if block["block"] == "table"]
    for table in page.tables():
        if table.show == "brief":
            continue
        expected = headers(page)[table.name]
        titles = [" ".join(filter(None, pair)) for pair in expected]
        assert f"| {' | '.join(titles)} |".replace("|  |", "| |") in text
        plain = next(block for block in blocks if block["name"] == table.name)
        assert [(column["label"], column["unit"]) for column in plain["columns"]] == expected
        assert next(csv.reader(io.StringIO(csv_tables.render(table)))) == titles
        assert len(next(iter(plain["rows"]), titles)) == len(expected)


@pytest.mark.ci
def test_numbers_are_the_same_in_every_format(page):
    # Print and the terminal leave out columns and change none.
    out = io.StringIO()
    print_page(page, Console(file=out, width=160, color_system=None))
    printed = [block for section in pdf.content(page)["sections"] for block in section["blocks"] if block["kind"] == "table"]
    tables = [table for table in page.tables() if table.show != "brief"]
    assert len(printed) == len(tables)
    for table, block in zip(tables, printed, strict=True):
        kept = [(column["label"], column["unit"]) for column in block["columns"]]
        rest = iter(headers(page)[table.name])
        assert all(any(one == other for other in rest) for one in kept), "another order or another name"
        if table.show == "always":
            assert all(column.label in out.getvalue() for column in table.columns if not column.priority and column.show != "full")
    # A number times its factor is the figure.
    data = json.loads(json_page.render(run.page(sample())))
    table = next(block for section in data["sections"] for block in section["blocks"] if block.get("name") == "operators")
    at = [column["key"] for column in table["columns"]].index("time")
    column = table["columns"][at]
    assert (column["unit"], column["factor"]) == ("ms", 1e-3)
    assert {round(row[at] * column["factor"], 12) for row in table["rows"]} >= {round(row.time_s, 12) for row in sample().operators}


@pytest.mark.ci
@pytest.mark.parametrize("name", formats.OF_PAGES)
def test_every_page_is_written_in_every_format(page, name, tmp_path):
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    path = formats.write(page, name, tmp_path)
    assert path.is_file()
    assert path.parent == tmp_path


@pytest.mark.ci
def test_formats_and_the_size_of_a_page():
    # An unknown format is refused with those there are.
    with pytest.raises(UsageError, match="unknown report format 'doc'") as caught:
        formats.check_formats(["html", "doc"])
    assert all(name in caught.value.hint for name in formats.OF_PAGES)
    # The page of a training step of resnet50 is small.
    analysis = rooflines.analyze(TRACES / "resnet50_v100_training_2021_schema.json.gz")
    assert len(html_page.render(run.page(analysis)).encode()) < 1_400_000
    # All is every format that applies: that of a trace is refused where it is asked for and there is none.
    assert formats.check_formats(["all"], traced=True) == tuple(formats.FORMATS)
    assert formats.check_formats(["all"]) == formats.OF_PAGES
    assert formats.check_formats(["all"], traced=None) == ("all",)
    with pytest.raises(UsageError, match="'perfetto' needs the complete trace of one run"):
        formats.check_formats(["html", "perfetto"])


def test_one_format_is_a_list_of_one():
    assert formats.check_formats("json") == formats.check_formats(["json"]) == ("json",)
