"""The page of a monitored program in a real Chromium, without a network."""

import pytest
from msgspec.structs import replace

from rooflines.reports.page.monitor import page as page_of
from rooflines.reports.render.html import write
from tests.reports.page.test_monitor import HOSTILE, analysis
from tests.reports.render.browser import Opened, browser  # noqa: F401 (a fixture)
from tests.usage_samples import gpu_samples, host_samples, machine_samples


@pytest.fixture
def opened(browser, tmp_path):  # noqa: F811
    pages: list[Opened] = []

    def open_(found, **options) -> Opened:
        pages.append(Opened(browser, write(page_of(found), tmp_path / "report.html"), **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.context.close()


def test_the_timeline_has_the_program_and_its_gpus(opened):
    report = opened(analysis(machine_samples()))
    page = report.page
    text = page.locator("#figure-timeline svg:visible").text_content()
    for expected in ("the program keeps busy, cores", "power, W", "memory, GiB", "cuda:1", "the program"):
        assert expected in text
    page.locator("button[data-device='cuda:1']").click()
    assert page.locator("button[data-device][aria-pressed=true]").inner_text() == "cuda:1"
    page.get_by_role("button", name="Use dark colors").click()
    paper = page.locator("#figure-timeline .wide svg path").first
    assert paper.evaluate("path => getComputedStyle(path).fill") == "rgb(21, 24, 28)"
    report.check()


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_page(opened, width):
    report = opened(analysis(machine_samples()), viewport={"width": width, "height": 800})
    report.page.wait_for_timeout(200)
    assert report.page.evaluate("document.documentElement.scrollWidth") <= width
    report.check()


def test_hostile_names_and_a_page_without_samples_do_no_harm(opened):
    gpus = tuple(replace(sample, device=HOSTILE) for sample in gpu_samples())
    for found in (analysis((*gpus, *host_samples()), program=HOSTILE, gpus={HOSTILE: HOSTILE}), analysis()):
        report = opened(found)
        report.page.wait_for_timeout(200)
        report.check()
