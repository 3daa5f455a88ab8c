"""The page: every section is there, what is missing is said, and what a trace holds stays text."""

import functools
import re

import pytest
from msgspec.structs import replace

from rooflines.reports.document import texts
from rooflines.reports.page import run as view
from rooflines.reports.page.operators import module_table, operator_table
from rooflines.reports.render.formats import write_file
from rooflines.reports.render.grid import packed
from rooflines.reports.render.html import render
from rooflines.roofline.analysis import ModuleRow
from rooflines.units import seconds
from tests.printing import HtmlPage, unpacked
from tests.reports import variants
from tests.samples import analysis as sample
from tests.usage_samples import machine_analysis

SECTIONS = (
    "verdict", "where", "roofline", "findings", "operators", "modules", "timeline", "steps", "memory", "usage", "coverage",
    "ceilings", "device", "method",
)  # fmt: skip
PARTIAL = variants.partial()
ANALYSES = {"sample": sample(), "large": variants.large(), "larger": variants.large(120), "machine": machine_analysis(), **PARTIAL}


@functools.cache
def rendered(name: str) -> str:
    """The page of an analysis; drawing its figures takes long."""
    return render(view.page(ANALYSES[name]))


@pytest.fixture(scope="module")
def page() -> HtmlPage:
    return HtmlPage(rendered("sample"))


def test_the_page_has_its_sections_says_what_the_analysis_says_and_fetches_nothing(page):
    # Sections stand in the order of the reader.
    assert tuple(page.sections) == SECTIONS
    # The page says what the analysis says.
    analysis = sample()
    for expected in (
        analysis.verdict, "compute 66 %", "headroom", "Run the convolutions in bf16", "up to 21.0 ms a step", analysis.command,
        "mean over 3 traced steps", "mylib::secret_op", "no formula", "6 warm-up steps", "1.06 × as long", "no NVML on this machine",
        "1.17 GiB", "2-core AMD EPYC", "Operators without a work model take 1 % of the step",
    ):  # fmt: skip
        assert expected in page.text, expected
    # The page fetches nothing.
    for tag, attributes in page.elements:
        assert not attributes.get("src"), tag
        assert tag != "link" or attributes["href"].startswith("data:")
        assert tag != "a" or attributes["href"].startswith("#")
    policy = next(attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


@pytest.mark.ci
@pytest.mark.parametrize("name", PARTIAL)
def test_partial_analyses_render_every_section(name):
    page = HtmlPage(rendered(name))
    assert tuple(page.sections) == SECTIONS
    assert "None" not in page.text
    assert "nan" not in page.text.split()


def test_what_is_missing_is_said_in_place():
    steps_only = HtmlPage(rendered("steps only")).text
    assert "interrupted" in steps_only
    assert "ended before its traced pass" in steps_only
    assert "84.0 ms a step" in steps_only
    assert "No ceilings are known" in HtmlPage(rendered("no ceilings")).text
    assert "Step times are not available" in HtmlPage(rendered("no steps")).text
    assert "Peak memory was not measured" in HtmlPage(rendered("empty")).text
    assert "whole trace" in HtmlPage(rendered("no steps")).text


def test_json_in_the_page_survives_and_cannot_end_the_script():
    value = {"a": "</script><!--\u2028&", "b": [1.5, None]}
    text = packed(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert unpacked(text) == value
    with pytest.raises(ValueError, match="JSON"):
        packed(float("nan"))


def test_operator_table_is_sorted_by_headroom_and_totals_add_up():
    analysis = sample()
    table = operator_table(analysis)
    gains = [row.cells[4].sort for row in table.rows]
    assert gains == sorted(gains, reverse=True)
    assert (table.order, table.sorted_by) == ("most headroom first, rows without a bound by time", "headroom")
    assert len(table.total) == len(table.columns) == len(table.rows[0].cells)
    assert table.total[3] == pytest.approx(sum(row.time_s for row in (*analysis.operators, *analysis.coverage.unmodeled)), rel=5e-3)
    assert texts(table).units[3] == "ms"
    assert all(0 <= row.cells[0].bar <= 1 and 0 <= row.cells[4].bar <= 1 for row in table.rows)
    assert [row.cells[5].warning != "" for row in table.rows].count(True) == 1


def test_numbers_of_a_column_meet_at_the_point():
    found = texts(operator_table(sample()), aligned=True)
    for index, column in enumerate(found.columns):
        cells = [row[index] for row in found.rows] + [found.total[index]]
        if column.label in ("time", "headroom", "intensity", "work", "traffic"):
            # A figure space is as wide as a digit and a punctuation space as wide as a point.
            tails = {len(re.split(r"[.\u2008]", text, maxsplit=1)[-1]) for text in cells}
            assert len(tails) == 1, column.label


@pytest.mark.ci
def test_modules_are_a_tree():
    table = module_table(variants.large())
    names = [row.cells[1].value for row in table.rows]
    assert names[:4] == ["(model)", "transformer", "encoder", "layers"]
    assert [row.depth for row in table.rows[:6]] == [0, 1, 2, 3, 4, 5]
    text = rendered("large")
    tree = text[text.index('<table class="tree"') :]
    assert len(re.findall(r'<tr style="--depth:\d+">', tree[: tree.index("</table>")])) <= 40
    orphan = ModuleRow(path="a.b.c", type="X", calls=1, time_s=1, flops=0, matrix_flops=0, bytes=0)
    assert [row.depth for row in module_table(variants.replaced(modules=(orphan,))).rows] == [0]


@pytest.mark.ci
def test_every_timed_step_can_be_pointed_at_and_very_many_are_thinned():
    for name in ("sample", "one step", "large"):
        text, durations = rendered(name), ANALYSES[name].steps.durations_s
        told = {f"step:{number}": [f"step {number}: {seconds(time_s)}"] for number, time_s in enumerate(durations, start=1)}
        facts = facts_of(text, "steps")
        assert {key: [facts["said"][line] for line in lines] for key, lines in facts["texts"].items()} == told
        narrow = unpacked(text.split('<figure id="figure-steps">')[1].partition('class="narrow">')[2].partition("</script>")[0])
        assert all(re.findall(r'data-mark="(step:\d+)"', one) == [*told] for one in (text, narrow))
    many = variants.replaced(steps=replace(sample().steps, durations_s=(0.08,) * 5000), operators=(), modules=())
    assert len(facts_of(render(view.page(many)), "steps")["texts"]) in range(300, 401)


def facts_of(text: str, figure: str) -> dict:
    """What the script of the page knows of a figure."""
    part = text[text.index(f'<figure id="figure-{figure}">') :].split("</figure>")[0]
    return unpacked(part.partition('class="marks">')[2].partition("</script>")[0])


def test_a_mark_has_its_name_kind_and_switch_and_a_color_that_follows_the_theme():
    text = rendered("sample")
    svg = text[text.index('<figure id="figure-roofline">') :].split("</svg>")[0]
    points = re.findall(r'<circle data-mark="point:(\d+)" data-to="([^"]+)" cx="[\d.]+" cy="[\d.]+" r="[\d.]+" ?([^>]*)/>', svg)
    assert {(int(key), category) for key, category, _ in points} == {
        (index, row.category) for index, row in enumerate(sample().operators) if row.flops and row.bytes
    }
    # The style sheet gives a disc the color of its category.
    assert all(not style or f"fill:var(--c-{category})" in style for _, category, style in points)
    assert {category for _, category, _ in points} <= set(re.findall(r'circle\[data-to="([^"]+)"\] { fill: var\(--c-\1\); }', text))
    assert not re.search(r"#[0-9a-f]{6}\b", svg.replace("url(#", ""))
    assert not re.search(r"\d\.\d{3}", re.sub(r'data-axes="[^"]*"', "", svg))
    (hidden,) = set(re.findall(r'data-mark="roof:\d+" data-to="([^"]+)" visibility="hidden"', svg))
    assert hidden == "other precisions and engines"
    rows = re.findall(r'data-points="([^"]+)"', text)
    assert {key for row in rows for key in row.split()} == {f"point:{index}" for index in range(len(sample().operators))}


def test_tables_pages_and_files(tmp_path):
    # Large tables show twenty rows at first.
    text = rendered("larger")
    body = text[text.index('<table class="main"') :]
    rows = unpacked(body.partition('class="rows">')[2].partition("</script>")[0])["rows"]
    body = body[body.index("<tbody>") : body.index("</tbody>")]
    assert body.count("<tr") == 20
    assert [("cells" in row) for row in rows] == [False] * 20 + [True] * 101
    assert [row["detail"] for row in rows if "detail" in row] == [["No count: no formula."]]
    assert "Show all 121" in text
    # Pages are small.
    assert len(rendered("sample")) < 145_000
    assert len(rendered("larger")) < 400_000
    # Write makes the folder and returns the path.
    path = write_file(view.page(variants.empty()), "html", tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_a_page_of_two_thousand_rows_is_small():
    assert len(render(view.page(variants.large(2000)))) < 3_200_000


@pytest.mark.ci
def test_ceilings_of_this_run_come_first_and_the_others_are_folded():
    single = replace(sample().ceilings[0], name="GEMM int8", precision="int8")
    text = render(view.page(variants.replaced(ceilings=(single, *sample().ceilings))))
    _, used, folded = text[text.index('<section id="ceilings"') :].split("</section>")[0].split("<details>")
    assert "FMA fp32" in used
    assert "GEMM int8" not in used
    assert "GEMM int8" in folded
    assert "FMA fp32" not in folded


def test_what_a_page_repeats_it_writes_once():
    text = rendered("larger")
    roofline = facts_of(text, "roofline")
    assert len(set(roofline["said"])) == len(roofline["said"])
    svg = text[text.index('<figure id="figure-roofline">') :].split("</svg>")[0]
    assert svg.count("<use ") < 30, "minor ticks are one path"
    assert not re.search(r'style="[^"]*[;:] ', svg)
    assert not re.search(r"--bar:0%|<span[^>]*leaf|type=\"button\" (?:class=\"opener|aria-expanded)", text)


@pytest.mark.ci
def test_a_figure_is_saved_from_the_line_of_its_caption():
    text = rendered("machine")
    captions = re.findall(r"<figcaption>.*?</figcaption>", text)
    assert [("Save as PNG" in caption) for caption in captions] == [True, False, True]
    assert text.count("Save as PNG") == 2
