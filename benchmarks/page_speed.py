"""How large the page of a trace is with 300, 3,000 and 20,000 operators, and how fast Chromium opens, sorts and searches it.

The analysis is that of a public trace whose operators are repeated with other shapes and modules until there are enough. Needs
Playwright and Chromium. Times are medians over ``--rounds``; a sort or a search ends with the frame that shows its rows. Writes
``results/page_speed.json`` with the machine's facts.

    python benchmarks/page_speed.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from playwright.sync_api import Page, sync_playwright

import rooflines
from rooflines.reports.page.run import page
from rooflines.reports.render.html import render

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "page_speed.json"
TRACE = HERE.parent / "tests" / "data" / "traces" / "bert-small_h100_inference.json.gz"
SIZES = (300, 3_000, 20_000)
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Milliseconds from an action to the frame after the one that it changes.
TIMED = """(action) => new Promise((done) => { const begun = performance.now(); eval(action);
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun))); })"""
SORT = "document.querySelector('.main th[data-key={}] button').click()"
SEARCH = "const box = document.querySelector('.filter'); box.value = '{}'; box.dispatchEvent(new Event('input'))"
READY = "document.querySelector('.shown').textContent && performance.getEntriesByName('first-contentful-paint').length"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def with_rows(analysis: rooflines.Analysis, count: int) -> rooflines.Analysis:
    """``analysis`` with ``count`` operators that no table folds."""
    rows = analysis.operators
    copies = (
        replace(row, shapes=f"{row.shapes}, {number}", module=f"part{number}.{row.module}", time_s=row.time_s / (1 + number))
        for number in range(count // len(rows) + 1)
        for row in rows
    )
    return replace(analysis, operators=tuple(row for row, _ in zip(copies, range(count), strict=False)))


def measured(tab: Page, path: Path) -> dict[str, float]:
    """One round: the first paint, and the latency of three sorts and three searches, in milliseconds."""
    tab.goto(path.as_uri())
    # The policy of the page forbids Playwright to wait for an expression there.
    while not tab.evaluate(READY):
        tab.wait_for_timeout(20)
    found = {"first_paint_ms": tab.evaluate(PAINTED)}
    for name, actions in {
        "sort": [SORT.format(key) for key in ("time", "operator", "shapes")],
        "search": [SEARCH.format(words) for words in ("linear", "part7 memory", "")],
    }.items():
        times = [tab.evaluate(TIMED, action) for action in actions]
        found |= {f"{name}_first_ms": times[0], f"{name}_longest_ms": max(times)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    rounds = parser.parse_args().rounds
    analysis = rooflines.analyze(TRACE)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for size in SIZES:
            begun = time.perf_counter()
            text = render(page(with_rows(analysis, size)))
            written_s = time.perf_counter() - begun
            path = Path(folder) / f"{size}.html"
            path.write_text(text, encoding="utf-8")
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            found = [measured(tab, path) for _ in range(rounds)]
            tab.close()
            medians = {name: round(statistics.median(one[name] for one in found), 1) for name in found[0]}
            rows.append({"rows": size, "page_kb": round(path.stat().st_size / 1e3), "written_s": round(written_s, 2), **medians})
            print(rows[-1])
        version = browser.version
        browser.close()
    facts = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version(), "chromium": version}
    RESULTS.write_text(
        json.dumps({"benchmark": "page_speed", "rounds": rounds, **facts, "results": rows}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
