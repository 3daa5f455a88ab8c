"""The page in a real Chromium, without a network: nothing is fetched, nothing complains, and what can be clicked works."""

import io

import pytest

from rooflines.reports.document import Column, Page, section, table
from rooflines.reports.page.roofline import roofline_of
from rooflines.reports.render.html import write
from tests.reports import variants
from tests.reports.render.browser import Opened, hover, shown, violations
from tests.samples import analysis as sample

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci

# What scripts of the page ask for: a chart, its points, ceilings. Other sections are rendered in Python: test_html.
MISSING = {"empty", "no ceilings", "no counts"}


@pytest.mark.parametrize("name", [
    *("sample", "large", "machine", "hostile"),
    *(pytest.param(name, marks=() if name in MISSING else pytest.mark.slow) for name in variants.partial()),
])  # fmt: skip
def test_opens_offline_without_a_request_or_a_complaint(opened, name):
    report = opened(name)
    report.page.wait_for_timeout(200)
    report.check()


def test_the_pointer_is_told_the_operator_and_its_numbers(opened):
    report = opened()
    text = hover(report.page, "point:2")
    for expected in ("aten::convolution_backward", "layer1.0.conv2", "30.2 ms", "attainable", "compute (C)"):
        assert expected in text
    report.page.mouse.move(5, 5)
    report.page.locator(".tip").wait_for(state="hidden")
    report.check()


def test_the_pointer_is_told_the_source_of_a_roof_the_ridge_and_the_run(opened):
    page = opened().page
    roofs = roofline_of(sample()).roofs
    dram = next(number for number, roof in enumerate(roofs) if roof.ceiling.name == "DRAM triad")
    assert "measured: " in hover(page, f"roof:{dram}")
    assert "ridge point: 10.2 FLOP/byte" in hover(page, "ridge:0")
    assert "whole run" in hover(page, "ring:0")


def test_a_hostile_name_is_text_at_the_pointer_and_in_the_table(opened):
    report = opened("hostile")
    assert "<script>alert(1)</script>" in hover(report.page, "point:0")
    assert report.page.locator("figure img, svg script, table img, table script").count() == 0
    assert "<script>" in report.page.locator(".main > tbody tr").first.inner_text()
    report.check()


def test_a_point_finds_its_row_and_a_row_its_points(opened):
    report = opened("large")
    page = report.page
    page.locator(".filter").fill("nothing is called this")
    hover(page, "point:70")
    page.mouse.down()
    page.mouse.up()
    chosen = page.locator(".main tr.chosen")
    assert chosen.count() == 1
    assert chosen.is_visible()
    assert "point:70" in chosen.get_attribute("data-points").split()
    row = page.locator(".main > tbody tr:visible").nth(3)
    row.locator("td").nth(3).click()
    marks = page.evaluate("[...new Set([...document.querySelectorAll('[data-mark].chosen')].map((mark) => mark.dataset.mark))]")
    assert marks == row.get_attribute("data-points").split()
    report.check()


def test_roofs_can_be_switched_on_and_caches_off(opened):
    report = opened()
    page = report.page

    def names() -> list[str]:
        return [page.locator(f"#figure-roofline svg:visible [data-mark='{key}']").text_content() for key in shown(page, "roofname")]

    def height() -> float:
        chart = page.locator("#figure-roofline svg:visible")
        return chart.locator("[data-mark='ring:0']").bounding_box()["y"] - chart.bounding_box()["y"]

    before = height()
    assert "L3 read 160 GB/s" in names()
    page.get_by_label("caches").uncheck()
    assert not any("L3 read" in name or "GEMM bf16" in name for name in names())
    page.get_by_label("other precisions and engines").check()
    assert "GEMM bf16 900 GFLOP/s" in names()
    # The axis reaches further up now, with numbers of its own.
    assert height() > before + 5
    assert "1000" in page.locator("#figure-roofline .wide .ticks-y").text_content()
    page.get_by_label("other precisions and engines").uncheck()
    assert height() == pytest.approx(before, abs=0.1)
    report.check()


def test_categories_can_be_switched_off(opened):
    report = opened()
    chip = report.page.get_by_role("button", name="convolution")
    before = {kind: len(shown(report.page, kind)) for kind in ("point", "name")}
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    convolutions = sum(row.category == "convolution" for row in sample().operators)
    assert len(shown(report.page, "point")) == before["point"] - convolutions
    assert len(shown(report.page, "name")) < before["name"]
    chip.click()
    assert len(shown(report.page, "point")) == before["point"]
    report.check()


def test_a_part_of_the_roofline_can_be_enlarged(opened):
    report = opened()
    page = report.page
    reset = page.get_by_role("button", name="Reset zoom")
    assert not reset.is_visible()
    page.locator("#figure-roofline svg:visible").scroll_into_view_if_needed()
    box = page.locator("#figure-roofline svg:visible [data-mark='point:2']").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for turn in range(2):
        points = len(shown(page, "point"))
        page.mouse.move(x - 25, y - 25)
        page.mouse.down()
        page.mouse.move(x + 25, y + 25, steps=3)
        page.mouse.up()
        assert len(shown(page, "point")) < points
        assert "aten::convolution_backward" in hover(page, "point:2")
        numbers = page.locator("#figure-roofline .wide .ticks-x text").all_text_contents()
        assert len(numbers) >= 2
        assert [float(number) for number in numbers] == sorted(float(number) for number in numbers)
        if turn:
            page.locator("#figure-roofline svg:visible").dblclick(position={"x": 300, "y": 300})
        else:
            reset.click()
        assert len(shown(page, "point")) == points
        assert not reset.is_visible()
    report.check()


def test_a_figure_can_be_saved_as_it_is_seen(opened):
    report = opened(color_scheme="dark", accept_downloads=True)
    with report.page.expect_download() as download:
        report.page.locator("#figure-roofline .save").click()
    assert download.value.suggested_filename == "figure-roofline.png"
    image = pytest.importorskip("matplotlib.image").imread(download.value.path())
    assert image.shape[1] > 1500
    assert image[5, 5, :3].max() < 0.2, "in the colors of the page"
    report.check()


def test_figures_are_complete_without_scripts(opened):
    page = opened("machine", java_script_enabled=False).page
    assert "conv" in page.locator("#figure-roofline svg:visible").text_content()
    assert "cuda:1" in page.locator("#figure-timeline svg:visible").text_content()


def test_table_sorts_by_click_and_by_key(opened):
    page = opened().page
    first, header = page.locator(".main > tbody tr:visible").first, page.locator(".main th").filter(has_text="eff.")
    before = first.inner_text()
    assert page.locator(".main th[aria-sort]").inner_text().startswith("headroom")
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert first.inner_text() != before
    assert "171" in first.inner_text()
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert "add_" not in first.inner_text()
    assert page.locator(".main th[aria-sort]").count() == 1


def test_filter_filters_and_says_how_many(opened):
    report = opened()
    page = report.page
    page.locator(".filter").fill("conv2d")
    assert page.locator(".main > tbody tr:visible").count() == 2
    assert page.locator(".shown").inner_text() == "2 of 13 rows match"
    page.locator(".filter").fill("nothing is called this")
    assert page.locator(".main > tbody tr:visible").count() == 0
    page.locator(".filter").fill("")
    assert page.locator(".main > tbody tr:visible").count() == 13
    assert page.locator(".main tfoot tr").is_visible()
    report.check()


def test_rows_and_modules_unfold(opened):
    page = opened("large").page
    rows = page.locator(".main > tbody tr:visible")
    assert rows.count() == 20
    page.get_by_role("button", name="Show all 81").click()
    assert rows.count() == 81
    page.get_by_role("button", name="Show the first 20").click()
    assert rows.count() == 20
    page.get_by_text("Table of modules").click()
    modules = page.locator(".tree tbody tr:visible")
    before = modules.count()
    page.locator(".tree button[aria-expanded=false]:visible").first.click()
    assert modules.count() > before
    page.locator(".tree button[aria-expanded=true]").first.click()
    assert modules.count() == 1


def test_a_link_opens_a_view_sorted_and_filtered_and_follows_what_is_seen(opened):
    report = opened("large", at="#operators?sort=module&order=descending&filter=conv")
    page = report.page
    header = page.locator(".main th[aria-sort]")
    header.filter(has_text="module").wait_for()
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator(".filter").input_value() == "conv"
    assert page.locator("#operators").bounding_box()["y"] < 300
    page.locator(".main th").filter(has_text="time").get_by_role("button").click()
    page.locator(".filter").fill("")
    assert page.evaluate("location.hash") == "#operators?sort=time"
    assert page.locator("#operators .link").get_attribute("href").endswith("#operators?sort=time")
    page.get_by_role("navigation").get_by_role("link", name="Ceilings").click()
    assert page.evaluate("location.hash") == "#ceilings"
    page.evaluate("location.hash = '#operators?filter=%E0%A4%A&sort=nothing'")
    report.check()


def test_every_view_opens_by_its_link(opened):
    report = opened("machine")
    links = report.page.get_by_role("navigation").get_by_role("link")
    assert links.count() > 10
    for link in links.all():
        link.press("Enter")
        name = link.get_attribute("href")
        assert report.page.evaluate("location.hash") == name
        box = report.page.locator(name).bounding_box()
        assert -1 <= box["y"] < 900
        assert box["height"] > 40
    report.check()


def test_arrow_keys_choose_rows_and_enter_opens_one(opened):
    report = opened("large")
    page = report.page
    page.get_by_role("region", name="Operators, scrollable").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    chosen = page.locator(".main tr.chosen")
    assert chosen.evaluate("row => row.sectionRowIndex") == 2
    marks = page.evaluate("[...new Set([...document.querySelectorAll('[data-mark].chosen')].map((mark) => mark.dataset.mark))]")
    assert marks == chosen.get_attribute("data-points").split()
    page.locator(".filter").fill("no formula")
    page.get_by_role("region", name="Operators, scrollable").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator(".main tr.detail:visible").count() == 1
    report.check()


def test_twenty_thousand_rows_are_sorted_searched_and_shown_as_one_scrolls(browser, tmp_path):
    columns = (Column("operator", format="text"), Column("time", "s", "scaled"))
    rows = [(f"<img src=x onerror=alert({number:05})>", 1e-6 * (number * 7919 % 20_000)) for number in range(20_000)]
    part = section("operators", "Operators", table("operators", columns, rows, "Operators", kind="main"))
    page = Page(kind="run", name="large", title="large", verdict="", sections=(part,))
    report = Opened(browser, write(page, tmp_path / "large.html"))
    shown = report.page.locator(".main > tbody > tr")
    first = shown.first.locator("td").first
    report.page.get_by_role("button", name="Show all 20000").click()
    assert shown.count() == 200
    report.page.locator(".scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    shown.nth(399).wait_for(state="attached")
    assert shown.count() == 400
    report.page.get_by_role("button", name="time").click()
    longest = max(rows, key=lambda row: row[1])
    assert first.inner_text() == longest[0]
    report.page.locator(".filter").fill("alert(12345)")
    assert (shown.count(), first.inner_text()) == (1, rows[12_345][0])
    assert report.page.locator("img").count() == 0
    report.check()
    report.context.close()


@pytest.mark.parametrize(("name", "options"), [
    ("sample", {}), ("machine", {"color_scheme": "dark"}), ("sample", {"viewport": {"width": 360, "height": 780}}),
])  # fmt: skip
def test_axe_finds_nothing_that_keeps_people_out(opened, name, options):
    assert violations(opened(name, **options).page) == []


def test_a_row_opens_its_modules_and_kernels(opened):
    report = opened("repeated")
    page = report.page
    before = page.locator("#operators .main > tbody > tr:visible").count()
    row = page.locator("#operators .main > tbody > tr:visible").filter(has_text="layers.*.attention ×12")
    assert row.count() == 1
    row.locator("button.opener").click()
    assert page.locator("#operators .main > tbody > tr:visible").count() == before + 1
    detail = page.locator("#operators .main tr.detail:visible").inner_text()
    assert "layers.7.attention" in detail
    assert "GEMM bf16 128x128x64 (cuBLAS)" in detail
    page.locator("#operators .main th").filter(has_text="share").get_by_role("button").click()
    assert row.evaluate("row => row.nextElementSibling.className") == "detail"
    page.locator("#operators .filter").fill("layers.7.attention")
    assert page.locator("#operators .main > tbody > tr:visible").count() == 2
    row.locator("button.opener").click()
    assert page.locator("#operators .main tr.detail:visible").count() == 0
    report.check()


def test_theme_follows_the_system_and_the_button(opened):
    report = opened(color_scheme="dark")
    page = report.page

    def grounds() -> tuple[str, str]:
        paper = "#figure-roofline .wide svg path"
        return page.evaluate(
            f"[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('{paper}')).fill]"
        )

    assert grounds() == ["rgb(21, 24, 28)"] * 2
    page.get_by_role("button", name="Use light colors").click()
    assert grounds() == ["rgb(255, 255, 255)"] * 2
    page.get_by_role("button", name="Use dark colors").click()
    assert grounds() == ["rgb(21, 24, 28)"] * 2
    report.check()


def test_a_phone_scrolls_in_one_direction_only(opened):
    phone = {"viewport": {"width": 360, "height": 780}}
    for name in ("large", "machine", "long names"):
        assert opened(name, **phone).page.evaluate("document.documentElement.scrollWidth") <= 360, name
    page = opened(**phone).page
    ranks = page.locator("#figure-roofline .ranks")
    assert ranks.is_visible()
    assert "convolution_bwd layer1.0.conv2" in ranks.inner_text()
    assert page.locator("#figure-roofline svg:visible [data-mark^='name:']").first.text_content() == "1"
    steps = page.locator("#figure-steps svg:visible").bounding_box()
    assert steps["x"] + steps["width"] <= 360


def test_labels_on_the_chart_do_not_overlap(opened):
    for width in (1280, 360):
        page = opened("large", viewport={"width": width, "height": 900}).page
        overlaps = page.evaluate(
            """() => {
              const nodes = [...document.querySelectorAll("#figure-roofline text")].filter((node) => node.getClientRects().length
                && !/rotate\\((?!-?0 )/.test(node.getAttribute("transform") || "") && getComputedStyle(node).visibility === "visible");
              const boxes = nodes.map((node) => ({ text: node.textContent, box: node.getBoundingClientRect() }));
              const found = [];
              for (let i = 0; i < boxes.length; i += 1) for (let j = i + 1; j < boxes.length; j += 1) {
                const a = boxes[i].box, b = boxes[j].box;
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 2 && high > 3) found.push(boxes[i].text + " / " + boxes[j].text);
              }
              return found;
            }"""
        )
        assert overlaps == [], width


def test_page_prints_with_the_header_on_every_page_of_the_table(opened):
    pypdf = pytest.importorskip("pypdf")
    report = opened("large", color_scheme="dark")
    report.page.get_by_role("button", name="Show all 81").click()
    pages = pypdf.PdfReader(io.BytesIO(report.page.pdf(format="A4", print_background=False))).pages
    texts = [page.extract_text() for page in pages]
    assert "Time per step" in texts[0]
    assert sum("achieved" in text and "intensity" in text for text in texts) >= 2
    report.check()


def test_headings_and_landmarks(opened):
    page = opened().page
    assert page.locator("h1").count() == 1
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("banner").count() == 1
    assert page.evaluate("[...document.querySelectorAll('table')].every((table) => table.caption && table.caption.textContent)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
