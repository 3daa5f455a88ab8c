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
            positional = (
                inputs
                if isinstance(inputs, tuple)
                else ()
                if inputs is None or isinstance(inputs, dict)
                else (inputs,)
            )
            step(*positional, **(inputs if isinstance(inputs, dict) else {}))
            return None
        from rooflines.pipeline import ANALYSIS_FILE
        from rooflines.pipeline import profile as record
        from rooflines.profiler.directory import file_stem

        first = Path(request.config.getoption("--rooflines-dir")) / file_stem(request.node.nodeid)
        path, number = first, 1
        while path.exists():
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        run = record(step, inputs, **{"output": path, "formats": ("html", "json"), **options})
        page = run.directory / "report.html"
        request.node.user_properties.append(
            (_PROPERTY, str(page if page.exists() else run.directory / ANALYSIS_FILE))
        )
        return run

    return profile


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the reports."""
    reports = [
        one
        for found in terminalreporter.stats.values()
        for one in found
        if getattr(one, "when", "") == "call"
    ]
    paths = [path for report in reports for name, path in report.user_properties if name == _PROPERTY]
    if paths:
        terminalreporter.section("rooflines")
        for path in sorted(paths):
            terminalreporter.line(path)
