"""The figures over time and of modules, in a real Chromium: what can be pointed at, switched and enlarged."""

import re

import pytest

from rooflines.units import seconds
from tests.reports.render.browser import shown
from tests.roofline.real import named

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci


def test_a_period_of_a_figure_shows_the_rows_that_ran_in_it(opened):
    page = opened("large").page
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('window', { detail: { points: ['point:3', 'point:70'], text: '1 s to 2 s' } }))"
    )
    rows = page.locator(".main > tbody > tr")
    assert {row.get_attribute("data-points") for row in rows.all()} == {"point:3", "point:70"}
    assert page.locator(".shown").inner_text() == "2 of 81 rows shown, 1 s to 2 s"
    page.evaluate("document.dispatchEvent(new CustomEvent('window', { detail: null }))")
    assert rows.count() == 20


def test_the_icicle_of_modules_is_switched_and_zoomed_with_mouse_and_keys(opened):
    report = opened("sample")
    page, figure = report.page, report.page.locator("#figure-modules")
    cells = figure.locator("svg g")

    def focused() -> str:
        return page.evaluate("document.activeElement.dataset.path")

    def widths() -> list[float]:
        return [round(width) for width in cells.locator("rect").evaluate_all("all => all.map((one) => one.width.baseVal.value)")]

    assert [cells.nth(at).get_attribute("data-path") for at in range(4)] == ["", "layer1", "layer1.0", "fc"]
    whole, layer, block, linear = widths()
    assert layer == block
    assert layer + linear < whole  # the rest is the model's own
    title = cells.nth(1).locator("title").text_content().split("\n")
    assert title[:3] == ["layer1", "Sequential", "time 54.9 ms, 75 % of the step"]
    assert title[3:] == ["work 8.35 GFLOP", "traffic 330 MB", "headroom 32.9 ms", "efficiency 40 %"]
    figure.get_by_role("button", name="FLOPs", exact=True).click()
    assert widths()[1] == pytest.approx(whole * 8347238400 / 9e9, abs=1)
    # A click fills the figure with a module, keys move between cells, and Escape goes up.
    cells.nth(1).click()
    assert (widths()[:2], focused()) == ([whole, whole], "layer1")
    page.keyboard.press("ArrowDown")
    assert focused() == "layer1.0"
    page.keyboard.press("Enter")
    assert cells.first.get_attribute("data-path") == "layer1.0"
    page.keyboard.press("Backspace")
    page.keyboard.press("Escape")
    assert cells.first.get_attribute("data-path") == ""
    report.check()


def test_the_timeline_of_the_devices_puts_the_chosen_one_in_front(opened):
    report = opened("machine")
    page = report.page
    chart = page.locator("#figure-timeline svg:visible")
    text = chart.text_content()
    for expected in ("power, W", "busy, %", "memory, GiB", "temperature, °C", "clock, GHz", "limit 350 W", "cuda:1", "host"):
        assert expected in text
    strong = """() => { const accent = document.createElement("i"); accent.style.color = "var(--accent)"; document.body.append(accent);
      return [...new Set([...document.querySelectorAll("#figure-timeline .wide [data-mark^='line:']")].filter((line) =>
        getComputedStyle(line.querySelector("path")).stroke === getComputedStyle(accent).color).map((line) => line.dataset.to))]; }"""
    assert page.evaluate(strong) == ["cuda:0"]
    assert len(shown(page, "own-held", "timeline")) == 1
    page.locator("button[data-device='cuda:1']").click()
    assert page.evaluate(strong) == ["cuda:1"]
    assert page.locator("button[data-device][aria-pressed=true]").inner_text() == "cuda:1"
    assert shown(page, "own-held", "timeline") == []
    page.locator("button[data-device='cuda:0']").click()
    assert len(shown(page, "own-held", "timeline")) == 1
    report.check()


def test_the_timeline_tells_the_readings_and_its_time_can_be_enlarged(opened):
    report = opened("machine")
    page = report.page
    chart = page.locator("#figure-timeline svg:visible")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    x, y = box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.1
    page.mouse.move(x, y)
    text = page.locator(".tip").inner_text()
    assert re.match(r"[\d.]+ s\n", text)
    assert re.search(r"cuda:0: 3\d\d W", text)
    page.mouse.down()
    page.mouse.move(x + 100, y + 2, steps=3)
    page.mouse.up()
    numbers = [float(number) for number in page.locator("#figure-timeline .wide .ticks-x text").all_text_contents()]
    assert len(numbers) >= 3
    assert max(numbers) - min(numbers) < 2.5
    page.locator("#figure-timeline .reset").click()
    assert page.locator("#figure-timeline .wide .ticks-x").count() == 0
    report.check()


def lane_place(page, label: str, share: float) -> tuple[float, float]:
    """The place on the screen in the lane of this name, at a share of the axis of time."""
    chart = page.locator("#figure-activity svg:visible")
    chart.scroll_into_view_if_needed()
    y = chart.locator("text", has_text=label).bounding_box()
    axis = chart.locator("[data-mark='lane:0-']").bounding_box()
    return axis["x"] + share * axis["width"], y["y"] + y["height"] / 2


def test_a_segment_of_the_step_tells_its_operator_and_finds_its_row(opened):
    report = opened("traced")
    page, found = report.page, named("resnet50_v100_training_2021_schema").activity
    lane = found.of("stream")[0]
    longest = max(range(len(lane.begins_ns)), key=lambda at: lane.durations_ns[at])
    share = (lane.begins_ns[longest] + lane.durations_ns[longest] / 2) / found.duration_ns
    page.mouse.move(*lane_place(page, "stream 7", share))
    text = page.locator(".tip").inner_text()
    row = named("resnet50_v100_training_2021_schema").rows[found.rows[lane.items[longest]]]
    assert text.startswith(row.name.removeprefix("aten::"))
    assert f"lasts {seconds(lane.durations_ns[longest] / 1e9).removesuffix('0 ms')}" in text
    assert text.endswith("stream 7")
    page.mouse.down()
    page.mouse.up()
    assert f"point:{found.rows[lane.items[longest]]}" in page.locator("#operators tr.chosen").get_attribute("data-points").split()
    page.mouse.move(*lane_place(page, "data loading", 0.1))
    assert "the host was loading data" in page.locator(".tip").inner_text()
    report.check()


def test_a_part_of_the_step_can_be_enlarged_and_the_tables_are_told(opened):
    report = opened("traced")
    page, found = report.page, named("resnet50_v100_training_2021_schema").activity
    page.evaluate("window.told = []; document.addEventListener('window', (event) => told.push(event.detail))")
    x, y = lane_place(page, "stream 7", 0.8)
    end, _ = lane_place(page, "stream 7", 0.9)
    lane = page.locator("#figure-activity svg:visible [data-mark='lane:1-convolution'] path")
    whole, box = lane.get_attribute("d"), page.locator("#figure-activity svg:visible [data-mark='lane:0-']").bounding_box()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(end, y + 1, steps=3)
    page.mouse.up()
    (told,) = page.evaluate("told")
    low, high = (0.8 * found.duration_ns / 1e6, 0.9 * found.duration_ns / 1e6)
    begin, until, short = re.fullmatch(r"([\d.]+) ms to ([\d.]+) ms, with (\d+) operators too short to place", told["text"]).groups()
    unplaced = {row for row in found.unplaced if row < len(named("resnet50_v100_training_2021_schema").operators)}
    assert int(short) == len(unplaced) > 0
    assert {f"point:{row}" for row in unplaced} <= set(told["points"])
    assert (float(begin), float(until)) == pytest.approx((low, high), rel=0.01)
    stream = found.of("stream")[0]
    ran = {
        f"point:{found.rows[item]}"
        for begin_ns, lasting_ns, item in zip(stream.begins_ns, stream.durations_ns, stream.items, strict=True)
        if begin_ns + lasting_ns > 1.01 * low * 1e6 and begin_ns < 0.99 * high * 1e6
    }
    assert ran <= set(told["points"])
    assert len(told["points"]) < sum(row.time_s > 0 for row in named("resnet50_v100_training_2021_schema").operators)
    assert lane.get_attribute("d") != whole
    # The segments fill the width that they had a tenth of.
    now = lane.bounding_box()
    assert now["x"] >= box["x"] - 1
    assert now["x"] + now["width"] <= box["x"] + box["width"] + 1
    assert now["width"] > 0.8 * box["width"]
    page.mouse.move((box["x"] + box["width"] / 2), y)
    begins_ms = float(re.search(r"begins at ([\d.]+) ms", page.locator(".tip").inner_text())[1])
    assert begins_ms == pytest.approx((low + high) / 2, rel=0.02)
    page.locator("#figure-activity .reset").click()
    assert page.evaluate("told.length") == 2
    assert page.evaluate("told[1]") is None
    assert lane.get_attribute("d") == whole
    report.check()


def test_hostile_names_of_a_step_are_text(opened):
    report = opened("hostile step")
    page = report.page
    seen = set()
    for label in ("stream 0", "main thread", "host's step"):
        for share in range(2, 100, 7):
            page.mouse.move(*lane_place(page, label, share / 100))
            seen.add(page.locator(".tip").inner_text() if page.locator(".tip").is_visible() else "")
    assert any("</script>" in text for text in seen)
    assert page.locator("#timeline script:not([type]), #timeline img").count() == 0
    report.check()
