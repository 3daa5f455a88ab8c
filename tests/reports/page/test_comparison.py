"""The page of a comparison: it fits its width, adds up, and lets no name do more than be read; and the same as JUnit XML."""

import csv
import io
import re
from xml.etree import ElementTree as xml

import pytest
from msgspec.structs import replace

from rooflines.reports.document import Bar, Table, factor_of, texts
from rooflines.reports.page.comparison import comparison_csv, junit, page
from rooflines.reports.render.formats import write_file
from rooflines.roofline.analysis import Unmodeled
from rooflines.roofline.compare.compare import compare
from tests.printing import in_terminal
from tests.roofline.compare.steps import with_steps
from tests.samples import analysis as sample


def changed(name="aten::roll"):
    """The sample with a slower and a faster operator, one gone, and a new one called ``name`` that has no count."""
    whole = sample()
    first, second, _, *rest = whole.operators
    first = replace(first, time_s=first.time_s * 2)
    second = replace(second, time_s=second.time_s / 2, precision="bf16")
    gap = Unmodeled(name=name, calls=3, time_s=0.004, reason="no formula")
    coverage = replace(whole.coverage, unmodeled=(*whole.coverage.unmodeled, gap))
    operators = (first, second, *rest)
    busy = sum(row.time_s for row in (*operators, *coverage.unmodeled))
    timeline = replace(whole.timeline, span_s=busy + 0.005, busy_s=busy, idle_s=0.005)
    fc = replace(whole.modules[3], time_s=whole.modules[3].time_s * 3)
    modules = (*whole.modules[:3], fc)
    return replace(whole, operators=operators, coverage=coverage, timeline=timeline, modules=modules)


def shown(comparison, width=80, by="operator", top=5, encoding="utf-8"):
    return in_terminal(page([comparison], by, top), width, encoding, color_system=None)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("by", ["operator", "module"])
def test_the_page_fits_its_width(width, by):
    compared = compare(sample(), changed(), ("runs/" + "before-" * 20, "runs/after"))
    lines = shown(compared, width, by).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not any(line != line.rstrip() for line in lines)
    assert "conv2d" in shown(compared, 20), "too narrow for the table"


def test_what_got_slower_faster_new_and_gone_in_this_order():
    text = shown(compare(with_steps(sample(), 1), with_steps(changed(), 2)))
    titles = ("B takes", "Slower: 1 operator", "Faster: 1 operator", "New: 1 operator", "Gone: 1 operator")
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    lines = text.splitlines()
    slower = next(index for index, line in enumerate(lines) if line.startswith("  Slower"))
    assert lines[slower + 1].split() == ["conv2d", "layer1.0.conv2", "12.1", "24.2", "+12.1", "2.00"]
    assert lines[slower + 2].strip().startswith("2.00 × the time for the same work; ratio 2.00, 95 %")
    assert "fp32 → bf16, 0.500 × the time for the same work" in text
    new = next(index for index, line in enumerate(lines) if line.startswith("  New"))
    assert lines[new + 1].split() == ["roll", "(no", "count)", "–", "4.0", "+4.0", "–"]
    assert lines[new + 2].strip() == "3 calls; no formula"
    assert "10 operators take exactly the same time" in text


def test_the_unit_of_the_table_is_that_of_its_numbers():
    """The longest operator takes as long in both and is not in the table."""

    def shorter(one):
        rows = [row if "max_pool" in row.name else replace(row, time_s=row.time_s / 100) for row in one.operators]
        others = tuple(replace(row, time_s=row.time_s / 100) for row in one.coverage.unmodeled)
        return replace(one, operators=tuple(rows), coverage=replace(one.coverage, unmodeled=others))

    before, after = shorter(sample()), shorter(changed())
    made = page([compare(with_steps(before, 1), with_steps(after, 2))], "operator", 5)
    (table,) = (block for block in made.blocks() if isinstance(block, Table) and block.name == "changes")
    shown = texts(table)
    change = [column.label for column in shown.columns].index("change")
    for row, words in zip(table.rows, shown.rows, strict=True):
        if not row.heading:
            assert float(words[change].replace("−", "-")) == pytest.approx(
                row.cell(change).value / factor_of(table, shown.columns[change]), rel=0.05
            )


def test_the_last_table_adds_up():
    compared = compare(with_steps(sample(), 1), with_steps(changed(), 2))
    part = shown(compared).partition("Composition of the difference")[2]
    cells = [line.split() for line in part.splitlines() if line[:2] == "  "][1:]
    factor = {"s": 1, "ms": 1e-3, "µs": 1e-6}
    found = {}
    for row in cells:
        at = next(index for index, cell in enumerate(row) if cell[0] in "+−")
        found[row[0]] = float(row[at].replace("−", "-")) * factor[row[at + 1]]
    assert list(found) == ["slower", "faster", "new", "gone", "idle", "together"]
    together = found.pop("together")
    assert sum(found.values()) == pytest.approx(together, abs=1e-4)
    assert together == pytest.approx(compared.span_difference_s, rel=0.01)


def test_what_exceeds_the_noise_is_shown_up_to_a_number_of_rows():
    # No more rows of a kind than asked for.
    faster = replace(sample(), operators=tuple(replace(row, time_s=row.time_s / 2) for row in sample().operators))
    text = shown(compare(sample(), faster), top=3)
    assert "Noise unknown: 12 operators" in text
    assert "and 9 more (--top 12 shows all)" in text
    assert "the noise of single operators is not known" in " ".join(text.split())
    assert "Slower" not in text
    assert "Faster" not in text
    # What does not exceed the noise is one sentence.
    first, *rest = sample().operators
    barely = replace(sample(), operators=(replace(first, time_s=first.time_s * 1.004), *rest))
    text = shown(compare(with_steps(sample(), 1), with_steps(barely, 2)))
    assert "Slower" not in text
    assert "1 operator does not differ beyond the noise" in text
    assert "within the noise (1)" in text


def test_modules_are_not_summed():
    whole = sample()
    first, *rest = whole.operators
    modules = tuple(replace(row, time_s=row.time_s + first.time_s * first.module.startswith(row.path)) for row in whole.modules)
    slower = replace(whole, operators=(replace(first, time_s=first.time_s * 2), *rest), modules=modules)
    text = shown(compare(with_steps(whole, 1), with_steps(slower, 2)), by="module")
    assert "Slower: 3 modules, with all that runs below them" in text
    assert "layer1.0" in text
    assert "Composition of the difference" not in text


def test_differing_facts_are_at_the_top_and_what_they_mean():
    other = replace(sample(), environment=replace(sample().environment, threads=4, torch="2.13.0"))
    text = " ".join(shown(compare(sample(), other)).split())
    assert "differs: threads 2 → 4; torch 2.14.1 → 2.13.0" in text
    assert "Compared as requested, but threads make these times hard to compare." in text


def test_a_name_cannot_steer_the_terminal_or_a_spreadsheet_and_ascii_is_enough():
    compared = compare(sample(), changed("=cmd\x1b[2J\r\nx"))
    text = shown(compared)
    assert "\x1b" not in text
    assert "=cmd [2J  x" in text
    rows = list(csv.DictReader(io.StringIO(comparison_csv([compared], "operator"))))
    assert {row["name"][:5] for row in rows if row["direction"] == "new"} == {"'=cmd"}
    text = shown(compare(sample(), changed("größe")), encoding="ascii")
    assert "->" not in text
    assert "fp32 > bf16, 0.500 x the time" in text
    assert "gr??e" in text


def test_both_sides_in_csv_and_on_one_scale():
    # Csv has every row with both sides.
    compared = compare(sample(), changed(), ("runs/a", "runs/b"))
    rows = list(csv.DictReader(io.StringIO(comparison_csv([compared, compared], "operator"))))
    assert len(rows) == 2 * len(compared.rows)
    assert {(row["a"], row["b"]) for row in rows} == {("runs/a", "runs/b")}
    assert sum(float(row["difference_s"]) for row in rows[: len(compared.rows)]) == pytest.approx(compared.span_difference_s)
    gone = next(row for row in rows if row["direction"] == "gone")
    assert (gone["after_time_s"], gone["before_time_s"]) == ("", "0.0302")
    modules = list(csv.DictReader(io.StringIO(comparison_csv([compared], "module"))))
    assert {row["after_module"] for row in modules} == {"", "layer1", "layer1.0", "fc"}
    # Both sides stand on one scale by what bounds them.
    compared = compare(sample(), replace(changed(), steps=replace(sample().steps, median_s=0.168)))
    (bars,) = (block for block in page([compared]).blocks() if isinstance(block, Bar))
    assert [(row.label, row.text) for row in bars.rows] == [("A", "84.0 ms"), ("B", "168 ms")]
    assert [sum(part.share for part in row.parts) for row in bars.rows] == pytest.approx([0.5, 1.0])
    none = replace(sample(), bound_breakdown=None)
    assert not any(isinstance(block, Bar) for block in page([compare(none, changed())]).blocks())


def test_a_page_links_to_the_reports_that_are_there(tmp_path):
    (tmp_path / "run #1").mkdir()
    (tmp_path / "run #1" / "report.html").touch()
    compared = compare(sample(), changed(), (str(tmp_path / "run #1"), str(tmp_path / "after")))
    text = write_file(page([compared]), "html", tmp_path / "compared" / "report.html").read_text(encoding="utf-8")
    assert '<a href="../run%20%231/report.html">' in text
    assert set(re.findall('<a href="([^#"]+)"', text)) == {"../run%20%231/report.html"}


def suite(comparison, by="operator", above=0.05):
    (found,) = xml.fromstring(junit([comparison], by, above))
    return found


def slower(factor=2.0):
    """The sample with its first operator slower, and its steps with it."""
    whole = sample()
    first, *rest = whole.operators
    more_s = first.time_s * (factor - 1)
    times = tuple(duration_s + more_s for duration_s in whole.steps.durations_s)
    return replace(
        whole,
        operators=(replace(first, time_s=first.time_s * factor), *rest),
        timeline=replace(whole.timeline, span_s=whole.timeline.span_s + more_s, busy_s=whole.timeline.busy_s + more_s),
        steps=replace(whole.steps, median_s=whole.steps.median_s + more_s, durations_s=times),
    )


def test_a_regression_fails_the_step_and_the_operator_behind_it():
    compared = compare(with_steps(sample(), 1), with_steps(slower(), 2))
    found = suite(compared)
    assert int(found.get("tests")) == len(found.findall("testcase"))
    failed = {case.get("name"): case.find("failure").get("message") for case in found if case.find("failure") is not None}
    assert int(found.get("failures")) == len(failed) == 2
    assert failed["step"].startswith("Slower by 1")
    ((name, message),) = [item for item in failed.items() if item[0] != "step"]
    assert name.startswith("conv2d of layer1.0.conv2 (forward, 4x64x56x56")
    assert message.startswith("Slower: 24.2 ms instead of 12.1 ms (ratio 1.99, 95 % interval 1.9")
    below = suite(compared, above=0.5)
    assert below.get("failures") == "0"
    assert any("Slower: 24.2 ms" in (case.findtext("system-out") or "") for case in below)
    assert {case.get("name") for case in suite(compared, by="module")} == {"step", "(all)", "layer1", "layer1.0", "fc"}
    names = [case.get("name") for case in suite(compare(sample(), changed("<a&b>\x1b[2J\x00 größe")))]
    assert any("<a&b>\ufffd[2J\ufffd größe" in name for name in names), "a name may hold what XML cannot"


def test_what_is_not_known_is_skipped():
    found = suite(compare(sample(), changed()))
    assert int(found.get("skipped")) == 2
    assert {case.find("skipped").get("message") for case in found if case.find("skipped") is not None} == {"The noise is not known."}
    few = [replace(one, steps=replace(one.steps, durations_s=(0.1,))) for one in (sample(), slower())]
    step = suite(compare(*few)).find("testcase")
    assert step.get("name") == "step"
    assert step.find("skipped").get("message").startswith("Not decided: ")
