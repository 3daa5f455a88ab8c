"""The pytest fixture ``rooflines``: ``pytest --rooflines`` records the steps that tests give it; without,
each runs once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rooflines.profiler.records import Run

_PROPERTY = "rooflines report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("rooflines")
    group.addoption(
        "--rooflines", action="store_true", help="Record the steps of tests that use the fixture rooflines."
    )
    group.addoption(
        "--rooflines-dir",
        default="runs/pytest",
        help="Directory for the reports (default: runs/pytest).",
        metavar="DIR",
    )


@pytest.fixture
def rooflines(request: pytest.FixtureRequest) -> Callable[..., Run | None]:
    """Call this with a step: ``run = rooflines(step)``, or ``rooflines(module, inputs)``.

    With ``--rooflines`` the step is recorded as by ``rooflines.profile``, which takes the further arguments,
    and the run is returned. Otherwise it is called once and None is returned.
    """

    def profile(step: Callable[..., object], inputs: Any = None, **options: Any) -> Run | None:
        if not request.config.getoption("--rooflines"):
            if isinstance(inputs, dict):
                step(**inputs)
            elif isinstance(inputs, tuple):
                step(*inputs)
            else:
                step(*(() if inputs is None else (inputs,)))
            return None
        from rooflines.pipeline import ANALYSIS_FILE
        from rooflines.pipeline import profile as record
        from rooflines.profiler.directory import file_stem, unused

        first = Path(request.config.getoption("--rooflines-dir")) / file_stem(request.node.nodeid)
        run = record(step, inputs, **{"output": unused(first), "formats": ("html", "json"), **options})
        page = run.directory / "report.html"
        request.node.user_properties.append(
            (_PROPERTY, str(page if page.exists() else run.directory / ANALYSIS_FILE))
        )
        return run

    return profile


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the reports."""
    paths = [
        path
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, path in report.user_properties
        if name == _PROPERTY
    ]
    if paths:
        terminalreporter.section("rooflines")
        for path in sorted(paths):
            terminalreporter.line(path)
