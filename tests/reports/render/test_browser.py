"""The page in a real Chromium, without a network: nothing is fetched, nothing complains, and what can be clicked works.

Skipped where no browser is installed, unless ROOFLINES_REQUIRE_BROWSER makes its absence a failure.
"""

from __future__ import annotations

import functools
import io
import os
import shutil

import pytest

from rooflines.reports.render.html import write
from rooflines.reports.views import run as view
from rooflines.roofline.analysis import StepDivision
from tests.reports import variants
from tests.samples import analysis as sample
from tests.usage_samples import machine_analysis

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DIVISION = StepDivision(of="host", step_s=0.1, data_loading_s=0.02, forward_s=0.05, backward_s=0.02, host_s=0.01)


def absent(reason: str) -> None:
    if os.environ.get("ROOFLINES_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and ROOFLINES_REQUIRE_BROWSER=1 asks for one")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        absent("no chromium, chromium-browser or google-chrome on PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


class Opened:
    """A page opened from disk and offline, with everything it asked for and complained about."""

    def __init__(self, browser, path, *, scripts: bool = True, **options) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 900}), **options)
        self.context.set_offline(True)
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self._note(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.goto(path.as_uri())
        if scripts:
            self.page.wait_for_function("document.getElementById('plotly') === null || window.Plotly")

    def _route(self, route):
        self._note(route.request.url)
        route.continue_()

    def _note(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.requests.append(url)

    def check(self) -> None:
        assert self.requests == []
        assert self.complaints == []


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The path of a report by its name; it is written when it is first asked for."""
    folder = tmp_path_factory.mktemp("reports")
    analyses = {
        "sample": sample,
        "machine": machine_analysis,
        "large": lambda: variants.large(80),
        "repeated": variants.repeated,
        "divided": lambda: variants.replaced(division=DIVISION),
        "long names": variants.long_names,
        "hostile": variants.hostile,
        **{name: lambda name=name: variants.partial()[name] for name in variants.partial()},
    }
    return functools.cache(lambda name: write(view.page(analyses[name]()), folder / f"{name.replace(' ', '-')}.html"))


@pytest.fixture
def opened(browser, reports):
    pages: list[Opened] = []

    def open_(name: str = "sample", **options) -> Opened:
        pages.append(Opened(browser, reports(name), **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.context.close()


def hover_some_point(page) -> str:
    """Move the pointer over the largest point and give the text that appears."""
    page.locator("#chart").scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
          const chart = document.getElementById("chart");
          const traces = chart._fullData.filter((trace) => Array.isArray(trace.marker && trace.marker.size));
          let best = null;
          for (const trace of traces) trace.marker.size.forEach((size, i) => {
            if (!best || size > best.size) best = { size, x: trace.x[i], y: trace.y[i] };
          });
          const { xaxis, yaxis } = chart._fullLayout;
          const box = chart.getBoundingClientRect();
          return [box.left + xaxis._offset + xaxis.c2p(best.x), box.top + yaxis._offset + yaxis.c2p(best.y)];
        }"""
    )
    page.mouse.move(place[0] - 3, place[1])
    page.mouse.move(place[0], place[1])
    text = page.locator(".hoverlayer text").first
    text.wait_for(state="attached", timeout=5000)
    return page.locator(".hoverlayer").text_content()


# What scripts of the page ask for: a chart, its points, ceilings. Other sections are rendered in Python: test_html.
MISSING = {"empty", "no ceilings", "no counts"}


@pytest.mark.parametrize(
    "name",
    [
        *("sample", "large", "machine", "hostile"),
        *(pytest.param(name, marks=() if name in MISSING else pytest.mark.slow) for name in variants.partial()),
    ],
)
def test_opens_offline_without_a_request_or_a_complaint(opened, name):
    report = opened(name)
    report.page.wait_for_timeout(200)
    report.check()


def test_hover_names_the_operator_and_its_numbers(opened):
    report = opened()
    text = hover_some_point(report.page)
    for expected in ("aten::convolution_backward", "layer1.0.conv2", "30.2 ms", "attainable", "compute (C)"):
        assert expected in text
    report.check()


def test_a_hostile_name_is_text_in_hover_labels_and_table(opened):
    report = opened("hostile")
    assert "<script>alert(1)</script>" in hover_some_point(report.page)
    assert report.page.locator("#chart img, #chart script, table img, table script").count() == 0
    assert "<script>" in report.page.locator("#table tbody tr").first.inner_text()
    report.check()


def test_roofs_can_be_switched_on_and_caches_off(opened):
    from playwright.sync_api import expect

    report = opened()
    chart = expect(report.page.locator("#chart"))  # waits, because the chart is drawn again at its own pace
    chart.to_contain_text("L3 read 160 GB/s")
    report.page.get_by_label("caches").uncheck()
    chart.not_to_contain_text("L3 read")
    chart.not_to_contain_text("GEMM bf16")
    report.page.get_by_label("other precisions and engines").check()
    chart.to_contain_text("GEMM bf16 900 GFLOP/s")
    report.check()


def test_categories_can_be_switched_off(opened):
    from playwright.sync_api import expect

    report = opened()
    chip = report.page.get_by_role("button", name="convolution")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    expect(report.page.locator("#chart")).not_to_contain_text("conv2d")
    report.check()


def test_table_sorts_by_click_and_by_key(opened):
    page = opened().page
    first, header = page.locator("#table tbody tr:visible").first, page.locator("#table th").filter(has_text="eff.")
    before = first.inner_text()
    assert page.locator("#table th[aria-sort]").inner_text().startswith("headroom")
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert first.inner_text() != before
    assert "171" in first.inner_text()
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert "add_" not in first.inner_text()
    assert page.locator("#table th[aria-sort]").count() == 1


def test_filter_filters_and_says_how_many(opened):
    report = opened()
    page = report.page
    page.locator("#filter").fill("conv2d")
    assert page.locator("#table tbody tr:visible").count() == 2
    assert page.locator("#shown").inner_text() == "2 of 13 rows match"
    page.locator("#filter").fill("nothing is called this")
    assert page.locator("#table tbody tr:visible").count() == 0
    page.locator("#filter").fill("")
    assert page.locator("#table tbody tr:visible").count() == 13
    assert page.locator("#table tfoot tr").is_visible()
    report.check()


def test_show_all(opened):
    page = opened("large").page
    assert page.locator("#table tbody tr:visible").count() == 50
    page.get_by_role("button", name="Show all 81").click()
    assert page.locator("#table tbody tr:visible").count() == 81
    page.get_by_role("button", name="Show the first 50").click()
    assert page.locator("#table tbody tr:visible").count() == 50


def test_a_row_opens_its_modules_and_kernels(opened):
    report = opened("repeated")
    page = report.page
    before = page.locator("#table > tbody > tr:visible").count()
    row = page.locator("#table > tbody > tr:visible").filter(has_text="layers.*.attention ×12")
    assert row.count() == 1
    row.locator("button.opener").click()
    assert page.locator("#table > tbody > tr:visible").count() == before + 1
    detail = page.locator("#table tr.detail:visible").inner_text()
    assert "layers.7.attention" in detail
    assert "GEMM bf16 128x128x64 (cuBLAS)" in detail
    page.locator("#table th").filter(has_text="share").get_by_role("button").click()
    assert page.locator("#table tr:visible", has_text="×12").first.evaluate("row => row.nextElementSibling.className") == "detail"
    page.locator("#filter").fill("layers.7.attention")
    assert page.locator("#table > tbody > tr:visible").count() == 2
    row.locator("button.opener").click()
    assert page.locator("#table tr.detail:visible").count() == 0
    report.check()


def test_modules_unfold(opened):
    page = opened("large").page
    before = page.locator("#tree tbody tr:visible").count()
    closed = page.locator("#tree button[aria-expanded=false]:visible").first
    closed.click()
    assert page.locator("#tree tbody tr:visible").count() > before
    page.locator("#tree button[aria-expanded=true]").first.click()
    assert page.locator("#tree tbody tr:visible").count() == 1


def test_the_timeline_of_the_devices_puts_the_chosen_one_in_front(opened):
    report = opened("machine")
    page = report.page
    page.locator("#usage-chart .annotation-text").first.wait_for(state="attached")
    text = page.locator("#usage-chart").text_content()
    for expected in ("power, W", "busy, %", "memory, GiB", "temperature, °C", "clock, GHz", "limit 350 W", "cuda:1", "host"):
        assert expected in text
    accented = """() => { const chart = document.getElementById("usage-chart");
      const lines = chart.data.filter((line) => line.line.width > 1.5);
      return [...new Set(lines.map((line) => line.hovertemplate[0].split(/[:,] /)[0]))]; }"""
    assert page.evaluate(accented) == ["cuda:0"]
    page.locator("button[data-device='cuda:1']").click()
    assert page.evaluate(accented) == ["cuda:1"]
    assert page.locator("button[data-device][aria-pressed=true]").inner_text() == "cuda:1"
    strips = "document.getElementById('usage-chart').layout.shapes.filter((shape) => shape.layer === 'above').length"
    assert page.evaluate(strips) == 0
    page.locator("button[data-device='cuda:0']").click()
    assert page.evaluate(strips) == 1
    assert page.evaluate("document.getElementById('usage-chart').layout.paper_bgcolor") == "#ffffff"
    page.get_by_role("button", name="Use dark colours").click()
    assert page.evaluate("document.getElementById('usage-chart').layout.paper_bgcolor") == "#15181c"
    report.check()


def test_theme_follows_the_system_and_the_button(opened):
    report = opened(color_scheme="dark")
    page = report.page

    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    def paper() -> str:
        return page.evaluate("document.getElementById('chart').layout.paper_bgcolor")

    assert (ground(), paper()) == ("rgb(21, 24, 28)", "#15181c")
    page.get_by_role("button", name="Use light colours").click()
    assert (ground(), paper()) == ("rgb(255, 255, 255)", "#ffffff")
    page.get_by_role("button", name="Use dark colours").click()
    assert (ground(), paper()) == ("rgb(21, 24, 28)", "#15181c")
    report.check()


def test_a_phone_scrolls_in_one_direction_only(opened):
    for name in ("sample", "large", "machine", "empty", "divided", "long names"):
        page = opened(name, viewport={"width": 360, "height": 780}).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    page = opened(viewport={"width": 360, "height": 780}).page
    assert page.locator("#ranks").is_visible()
    assert "convolution_bwd layer1.0.conv2" in page.locator("#ranks").inner_text()


def test_a_picture_fits_the_window_of_a_phone(opened):
    for width in (360, 1280):
        page = opened(viewport={"width": width, "height": 780}).page
        box = page.locator("#figure-steps svg:visible").bounding_box()
        assert box["x"] + box["width"] <= width


def test_labels_on_the_chart_do_not_overlap(opened):
    for width in (1280, 800, 360):
        page = opened("large", viewport={"width": width, "height": 900}).page
        page.locator("#chart .annotation-text").first.wait_for(state="attached")
        overlaps = page.evaluate(
            """() => {
              const turned = (node) => /rotate\\((?!0)/.test(node.closest(".annotation-text-g").getAttribute("transform") || "");
              const nodes = [...document.querySelectorAll("#chart .annotation-text")].filter((node) => !turned(node));
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
