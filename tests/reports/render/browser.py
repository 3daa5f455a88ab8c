"""A page of a report in a real Chromium, opened from disk and without a network.

Skipped where no browser is installed, unless ROOFLINES_REQUIRE_BROWSER makes its absence a failure.
"""

import functools
import importlib.util
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from rooflines.reports.page import run as view
from rooflines.reports.render.html import write
from tests.reports import variants
from tests.roofline.real import named
from tests.samples import analysis as sample
from tests.usage_samples import machine_analysis

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


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

    def __init__(self, browser, path, at="", **options) -> None:
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
        self.page.goto(path.as_uri() + at)

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
        "sample": sample, "machine": machine_analysis, "large": lambda: variants.large(80), "repeated": variants.repeated,
        "long names": variants.long_names, "hostile": variants.hostile, "traced": lambda: named("resnet50_v100_training_2021_schema"),
        "hostile step": hostile_step,
        **{name: lambda name=name: variants.partial()[name] for name in variants.partial()},
    }  # fmt: skip
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


def hover(page, mark: str) -> str:
    """Move the pointer over a mark of the roofline and give the text that appears."""
    box = page.locator(f"#figure-roofline svg:visible [data-mark='{mark}']").first
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.locator(".tip").wait_for(state="visible", timeout=5000)
    return page.locator(".tip").inner_text()


def shown(page, kind: str, figure: str = "roofline") -> list[str]:
    """The names of the marks of a kind that can be seen."""
    return page.evaluate(
        """([kind, figure]) => [...document.querySelectorAll(`#figure-${figure} [data-mark^="${kind}:"]`)]
        .filter((mark) => mark.closest("svg").clientWidth && getComputedStyle(mark).visibility === "visible"
          && getComputedStyle(mark).display !== "none" && mark.getBoundingClientRect().width)
        .map((mark) => mark.dataset.mark)""",
        [kind, figure],
    )


def violations(page) -> list[tuple[str, str, str]]:
    """What axe finds in a page or frame that keeps people out, each with an element."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None:
        absent("axe-playwright-python is not installed")
    page.evaluate((Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({ iframes: false })")
    assert len(found["passes"]) > 10
    return [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]]


def hostile_step():
    """A real step with names that are markup."""
    analysis = named("toy_mi250_training")
    rows = tuple(replace(row, name=f"{variants.HOSTILE}{number}") for number, row in enumerate(analysis.operators))
    activity = replace(
        analysis.activity,
        step=variants.HOSTILE,
        names=tuple(name and f"</script>{variants.HOSTILE}$x$" for name in analysis.activity.names),
    )
    return replace(analysis, operators=rows, activity=activity)
