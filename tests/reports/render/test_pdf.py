"""The PDF, read back as text: content, order, and that no name is taken for markup."""

import io
import re

import pytest
from msgspec.structs import replace
from pypdf import PdfReader

from rooflines.profiler.records import Environment
from rooflines.reports.document import Column, Page, section, table
from rooflines.reports.page import run as view
from rooflines.reports.render import pdf
from rooflines.reports.render.formats import write_file
from rooflines.reports.words.sentences import roofs_of_run
from rooflines.roofline.analysis import Analysis
from tests import samples
from tests.reports import variants

HOSTILE = ("#let x = 1", "[red]x", "<script>", "=cmd()", "$x$", '"); #panic()', "*a*", "_b_")


def read(analysis: Analysis, path) -> str:
    reader = PdfReader(io.BytesIO(write_file(view.page(analysis), "pdf", path / "deep" / "report.pdf").read_bytes()))
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


@pytest.mark.ci
def test_pages_have_sections_numbers_and_vectors(tmp_path):
    # Sections stand in the order of the page.
    text = read(samples.analysis(), tmp_path)
    parts = (
        "47.6 images/s (84.0 ms a step", "Time per step", "Recommendations", "Most headroom first", "Modules",
        "Peak 1.17 GiB (resident set)", "Operators without a work model take 1 % of the step", "Ceilings", "Environment", "Method",
        "rooflines profile --model resnet50 --mode training --batch-size 4",
    )  # fmt: skip
    at = 0
    for part in parts:
        at = text.index(part, at)
    # A figure stands at the top of the next page if it does not fit.
    assert text.index("GFLOP/s, measured") < text.index("Step times") < text.index("Environment")
    # Figures are vectors whose text is set in the face of the page.
    reader = PdfReader(pdf.write(view.page(samples.analysis()), tmp_path / "report.pdf"))
    assert not [image for page in reader.pages for image in page.images]
    assert "arithmetic intensity, FLOP/byte" in reader.pages[0].extract_text()
    sections = pdf.content(view.page(samples.analysis()))["sections"]
    svg = next(block["svg"] for section in sections for block in section["blocks"] if block["kind"] == "figure")
    assert "Libertinus Serif" in svg
    # Pages are numbered and carry the subject.
    pages = [page.extract_text() for page in PdfReader(pdf.write(view.page(samples.analysis()), tmp_path / "report.pdf")).pages]
    assert f"1 / {len(pages)}" in pages[0]
    assert "resnet50 · training · batch 4 · fp32" in pages[1]


@pytest.mark.ci
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_set_as_it_is(tmp_path, name):
    sample = samples.analysis()
    row = replace(sample.operators[0], name=name, module=name, shapes=name, time_s=0.05, headroom_s=0.04, flag=name)
    finding = replace(sample.findings[0], title=name, evidence=name, suggestion=name)
    module = replace(sample.modules[0], path=name, type=name)
    analysis = replace(
        sample, operators=(row, *sample.operators[1:]), findings=(finding,), modules=(module,), notes=(name,), command=name,
        verdict=name,
    )  # fmt: skip
    text = read(analysis, tmp_path)
    assert text.count(name) >= 9


def test_the_same_analysis_gives_the_same_file(tmp_path):
    first, second = (write_file(view.page(samples.analysis()), "pdf", tmp_path / name / "report.pdf").read_bytes() for name in "ab")
    assert first == second


@pytest.mark.ci
def test_analyses_of_parts_are_set(tmp_path):
    # An analysis without a trace is set.
    bare = replace(
        samples.analysis(), operators=(), modules=(), timeline=None, bound_breakdown=None, coverage=None, totals=None, findings=(),
        memory=None,
    )  # fmt: skip
    text = read(bare, tmp_path)
    assert "No operators: this run has no trace" in text
    assert text.count("this run has no trace") > 2
    assert "Peak memory was not measured." in text
    # An environment that a trace does not tell is left out.
    foreign = replace(samples.analysis(), environment=Environment(rooflines="0.1.0", device="cuda:0", device_name=""))
    text = read(foreign, tmp_path)
    assert "None" not in text
    assert "PyTorch" not in text
    assert "cuda:0" in text
    # An interrupted run without ceilings or steps is set.
    rows = tuple(
        replace(row, lower_bound_s=None, efficiency=None, headroom_s=None, bound="unknown", flag=None)
        for row in samples.analysis().operators
    )
    bare = replace(
        samples.analysis(), operators=rows, ceilings=(), steps=None, status="interrupted", verdict="", command="", created=""
    )
    text = read(bare, tmp_path)
    assert "This run was interrupted" in text
    assert "No ceilings are known for this device" in text
    assert "Step times are not available" in text
    assert "The command was not recorded." in text


@pytest.mark.ci
def test_ceilings_that_the_run_does_not_use_are_counted_and_not_listed():
    single = replace(samples.ceilings()[0], variant="1 thread", value=230e9)
    other = replace(samples.ceilings()[0], name="GEMM int8", precision="int8")
    page = view.page(replace(samples.analysis(), ceilings=(other, *samples.ceilings(), single)))
    section = next(section for section in pdf.content(page)["sections"] if section["title"] == "Ceilings")
    table = next(block for block in section["blocks"] if block["kind"] == "table")
    assert [row["cells"][0]["text"] for row in table["rows"]] == [roof.name for roof in roofs_of_run(samples.analysis())]
    assert table["caption"] == "5 of 9 rows."


@pytest.mark.ci
def test_a_figure_without_room_leaves_no_empty_page_behind(tmp_path):
    pages = PdfReader(pdf.write(view.page(variants.large()), tmp_path / "report.pdf")).pages
    assert "Roofline" in pages[0].extract_text()
    assert "Operators" in pages[1].extract_text()


@pytest.mark.ci
def test_a_document_has_at_most_50_pages_and_its_appendix_every_row(tmp_path):
    columns = (Column("operator", format="text"), Column("calls", format="count"))
    rows = [(f"operator{number}", number) for number in range(4000)]
    page = Page(
        kind="run", name="long", title="long", verdict="", sections=(section("operators", "Operators", table("t", columns, rows)),)
    )
    path = pdf.write(page, tmp_path / "report.pdf")
    text = " ".join(" ".join(sheet.extract_text() for sheet in PdfReader(path).pages).split())
    assert "100 of 4000 rows (report-appendix.pdf has all)." in text
    sheets = PdfReader(tmp_path / "report-appendix.pdf").pages
    assert len(sheets) > 50
    assert set(re.findall(r"operator\d+", " ".join(sheet.extract_text() for sheet in sheets))) == {name for name, _ in rows}
    # A document that has every row has no appendix.
    pdf.write(replace(page, sections=()), path)
    assert not (tmp_path / "report-appendix.pdf").exists()
