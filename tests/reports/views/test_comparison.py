"""The page of a comparison: it fits its width, adds up, and lets no name do more than be read."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from rich.console import Console

from rooflines.reports.document import Bar
from rooflines.reports.render import html
from rooflines.reports.render.terminal import print_page
from rooflines.reports.views.comparison import comparison_csv, page
from rooflines.roofline.analysis import Unmodelled
from rooflines.roofline.comparison.compare import compare
from tests.roofline.comparison.steps import with_steps
from tests.samples import analysis as sample


def changed(name="aten::roll"):
    """The sample with a slower and a faster operator, one gone, and a new one called ``name`` that has no count."""
    whole = sample()
    first, second, _, *rest = whole.operators
    first = msgspec.structs.replace(first, time_s=first.time_s * 2)
    second = msgspec.structs.replace(second, time_s=second.time_s / 2, precision="bf16")
    gap = Unmodelled(name=name, calls=3, time_s=0.004, reason="no formula")
    coverage = msgspec.structs.replace(whole.coverage, unmodelled=(*whole.coverage.unmodelled, gap))
    operators = (first, second, *rest)
    busy = sum(row.time_s for row in (*operators, *coverage.unmodelled))
    timeline = msgspec.structs.replace(whole.timeline, span_s=busy + 0.005, busy_s=busy, idle_s=0.005)
    fc = msgspec.structs.replace(whole.modules[3], time_s=whole.modules[3].time_s * 3)
    modules = (*whole.modules[:3], fc)
    return msgspec.structs.replace(whole, operators=operators, coverage=coverage, timeline=timeline, modules=modules)


def shown(comparison, width=80, by="operator", top=5, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_page(page([comparison], by, top), Console(file=file, width=width, color_system=None, legacy_windows=False))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("by", ["operator", "module"])
def test_the_page_fits_its_width(width, by):
    lines = shown(compare(sample(), changed(), ("runs/" + "before-" * 20, "runs/after")), width, by).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not any(line != line.rstrip() for line in lines)


def test_a_console_too_narrow_for_the_table_still_prints():
    assert "conv2d" in shown(compare(sample(), changed()), 20)


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


def test_no_more_rows_of_a_kind_than_asked_for():
    faster = msgspec.structs.replace(
        sample(), operators=tuple(msgspec.structs.replace(row, time_s=row.time_s / 2) for row in sample().operators)
    )
    text = shown(compare(sample(), faster), top=3)
    assert "Noise unknown: 12 operators" in text
    assert "and 9 more (--top 12 shows all)" in text
    assert "the noise of single operators is not known" in " ".join(text.split())
    assert "Slower" not in text
    assert "Faster" not in text


def test_what_does_not_exceed_the_noise_is_one_sentence():
    first, *rest = sample().operators
    barely = msgspec.structs.replace(sample(), operators=(msgspec.structs.replace(first, time_s=first.time_s * 1.004), *rest))
    text = shown(compare(with_steps(sample(), 1), with_steps(barely, 2)))
    assert "Slower" not in text
    assert "1 operator does not differ beyond the noise" in text
    assert "within the noise (1)" in text


def test_modules_are_not_summed():
    whole = sample()
    first, *rest = whole.operators
    modules = tuple(
        msgspec.structs.replace(row, time_s=row.time_s + first.time_s * first.module.startswith(row.path)) for row in whole.modules
    )
    slower = msgspec.structs.replace(whole, operators=(msgspec.structs.replace(first, time_s=first.time_s * 2), *rest), modules=modules)
    text = shown(compare(with_steps(whole, 1), with_steps(slower, 2)), by="module")
    assert "Slower: 3 modules, with all that runs below them" in text
    assert "layer1.0" in text
    assert "Composition of the difference" not in text


def test_differing_facts_are_at_the_top_and_what_they_mean():
    other = msgspec.structs.replace(sample(), environment=msgspec.structs.replace(sample().environment, threads=4, torch="2.13.0"))
    text = " ".join(shown(compare(sample(), other)).split())
    assert "differs: threads 2 → 4; torch 2.14.1 → 2.13.0" in text
    assert "Compared as requested, but threads make these times hard to compare." in text


def test_a_console_without_unicode():
    text = shown(compare(sample(), changed("größe")), encoding="ascii")
    assert "->" not in text
    assert "fp32 > bf16, 0.500 x the time" in text
    assert "gr??e" in text


def test_a_name_cannot_steer_the_terminal_or_a_spreadsheet():
    compared = compare(sample(), changed("=cmd\x1b[2J\r\nx"))
    text = shown(compared)
    assert "\x1b" not in text
    assert "=cmd [2J  x" in text
    rows = list(csv.DictReader(io.StringIO(comparison_csv([compared], "operator"))))
    assert {row["name"][:5] for row in rows if row["direction"] == "new"} == {"'=cmd"}


def test_csv_has_every_row_with_both_sides():
    compared = compare(sample(), changed(), ("runs/a", "runs/b"))
    rows = list(csv.DictReader(io.StringIO(comparison_csv([compared, compared], "operator"))))
    assert len(rows) == 2 * len(compared.rows)
    assert {(row["a"], row["b"]) for row in rows} == {("runs/a", "runs/b")}
    assert sum(float(row["difference_s"]) for row in rows[: len(compared.rows)]) == pytest.approx(compared.span_difference_s)
    gone = next(row for row in rows if row["direction"] == "gone")
    assert (gone["after_time_s"], gone["before_time_s"]) == ("", "0.0302")
    modules = list(csv.DictReader(io.StringIO(comparison_csv([compared], "module"))))
    assert {row["after_module"] for row in modules} == {"", "layer1", "layer1.0", "fc"}


def test_both_sides_stand_on_one_scale_by_what_bounds_them():
    compared = compare(sample(), msgspec.structs.replace(changed(), steps=msgspec.structs.replace(sample().steps, median_s=0.168)))
    (bars,) = (block for block in page([compared]).blocks() if isinstance(block, Bar))
    assert [(row.label, row.text) for row in bars.rows] == [("A", "84.0 ms"), ("B", "168 ms")]
    assert [sum(part.share for part in row.parts) for row in bars.rows] == pytest.approx([0.5, 1.0])
    none = msgspec.structs.replace(sample(), bound_breakdown=None)
    assert not any(isinstance(block, Bar) for block in page([compare(none, changed())]).blocks())


def test_a_page_links_to_the_reports_that_are_there(tmp_path):
    (tmp_path / "run #1").mkdir()
    (tmp_path / "run #1" / "report.html").touch()
    compared = compare(sample(), changed(), (str(tmp_path / "run #1"), str(tmp_path / "after")))
    text = html.write(page([compared]), tmp_path / "compared" / "report.html").read_text(encoding="utf-8")
    assert '<a href="../run%20%231/report.html">' in text
    assert text.count("<a href=") == text.count('<a href="../run%20%231/report.html">')
