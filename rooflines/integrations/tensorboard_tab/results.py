"""Analyses of sources, made one at a time and kept while their files stay the same: figures for the list, and
pages."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tensorboard.util import tb_logging

from rooflines.arguments import escaped
from rooflines.errors import RooflinesError, UsageError, first_line
from rooflines.extras import missing
from rooflines.integrations.tensorboard_tab.sources import TabSource
from rooflines.units import percent, seconds

if TYPE_CHECKING:
    from rooflines.reports.document import Page

MOST_KEPT = 20


class Results:
    """Analyzes sources on request, and others in a thread of its own.

    One at a time: reading a trace takes memory, and Matplotlib draws in one thread only.
    """

    def __init__(self) -> None:
        self._working, self._thread = threading.Lock(), threading.Thread()
        self._sources: Collection[TabSource] = ()
        self._figures: dict[TabSource, dict[str, Any]] = {}
        # A source whose files have changed is another one.
        self._analysis, self._text = lru_cache(MOST_KEPT)(_analyzed), lru_cache(MOST_KEPT)(self._rendered)

    def figures(self, source: TabSource) -> dict[str, Any]:
        """What the list shows of ``source``: its state, and once analyzed its figures, or the error in one
        line."""
        return self._figures.get(
            source, {"state": "recording" if source.recording else "large" if source.large else "waiting"}
        )

    def fill(self, sources: Collection[TabSource]) -> None:
        """Analyze those of all ``sources`` that the list needs figures of, in the thread, newest first;
        forget those that are gone."""
        self._sources = sources
        for gone in self._figures.keys() - set(sources):
            self._figures.pop(gone, None)
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="rooflines-tab", daemon=True)
            self._thread.start()

    def page(self, sources: Sequence[TabSource]) -> tuple[str, str]:
        """The report of a source or the comparison of two as HTML, or a line that says why there is none;
        with its type."""
        with self._working:
            try:
                return self._text(*sources), "text/html"
            except Exception as error:
                return _in_one_line(error, sources), "text/plain"

    def _work(self) -> None:
        while waiting := [source for source in self._sources if self.figures(source)["state"] == "waiting"]:
            with self._working, contextlib.suppress(Exception):  # which is in the list
                self._analyze(max(waiting, key=lambda source: source.changed_ns))
            time.sleep(0.05)  # a request goes first

    def _analyze(self, source: TabSource) -> tuple[Any, Page]:
        """The analysis of ``source`` and its page; its figures or its error go into the list."""
        if source.recording:
            raise UsageError(f"{source.name!r} is being recorded. Its report appears when it is complete.")
        try:
            found = self._analysis(source)
            self._figures[source] = {"state": "done", **_figures(*found)}
        except Exception as error:
            self._figures[source] = {"state": "failed", "error": _in_one_line(error, [source])}
            raise
        return found

    def _rendered(self, *sources: TabSource) -> str:
        from rooflines.pipeline.comparing import compared
        from rooflines.reports.page import comparison
        from rooflines.reports.render.formats import drawable
        from rooflines.reports.render.html import render
        from rooflines.roofline.analysis import Analysis

        analyses, pages = zip(*map(self._analyze, sources), strict=True)
        if len(pages) == 1:
            return render(drawable(pages[0]))
        if not all(isinstance(analysis, Analysis) for analysis in analyses):
            raise UsageError("Only runs and traces can be compared.")
        sides = zip(analyses, (source.name for source in sources), strict=True)
        return render(drawable(comparison.page([compared(*sides, anyway=True)])))


def _in_one_line(error: Exception, sources: Sequence[TabSource]) -> str:
    """What ``error`` says, with the names of files without their folders. One of a file that we did not
    expect is logged."""
    if isinstance(error, RooflinesError):
        # The other hints name an argument, which the tab does not offer.
        text = str(error) if error.hint == error.marked_hint else error.message
    elif isinstance(error, ModuleNotFoundError):
        text = " ".join(missing(error) or (str(error),))
    else:
        tb_logging.get_logger().exception("rooflines")
        text = f"unexpected error: {type(error).__name__}: {first_line(error)}."
    for path in (path for source in sources for path in source.paths):
        text = text.replace(escaped(path), escaped(os.path.basename(path)))
    return " ".join(text.split())


def _analyzed(source: TabSource) -> tuple[Any, Page]:
    """The analysis of ``source`` and its page."""
    from rooflines import pipeline
    from rooflines.reports.page import monitor, ranks, run
    from rooflines.roofline.predict.trials import read_trials

    if source.kind == "ranks":
        together = pipeline.analyze_ranks(source.paths, jobs=1)
        return together, ranks.page(together)
    analysis: Any = _stored(source) or pipeline.analyze_source(pipeline.open_source(source.paths)).analysis
    if source.kind == "program":
        return analysis, monitor.page(analysis)
    if source.kind == "trace":  # which has no command of its own
        analysis = replace(analysis, command=shlex.join(["rooflines", "analyze", escaped(source.paths[0])]))
    return analysis, run.page(analysis, read_trials(Path(source.paths[0])))


def _stored(source: TabSource) -> Any:
    """The analysis written next to a run, if it is newer than the run's files and of this version."""
    from rooflines.pipeline.reading import read_analysis
    from rooflines.pipeline.reporting import ANALYSIS_FILE

    path = Path(source.paths[0], ANALYSIS_FILE)
    with contextlib.suppress(OSError, RooflinesError):
        if source.kind == "run" and path.stat().st_mtime_ns >= source.changed_ns:
            return read_analysis(path)
    return None


def _figures(analysis: Any, page: Page) -> dict[str, Any]:
    from rooflines.roofline.analysis import Analysis

    if not isinstance(analysis, Analysis):
        return {"verdict": page.verdict, "device": getattr(analysis, "device_name", "")}
    step_s = (
        analysis.steps.median_s
        if analysis.steps
        else analysis.whole_s
        if analysis.basis.per == "step"
        else None
    )
    efficiency = analysis.totals.efficiency if analysis.totals else None
    return {
        "verdict": page.verdict,
        "status": analysis.status,
        "comparable": True,
        "subject": page.title,
        "device": analysis.environment.device_name or analysis.environment.device,
        "step": f"{seconds(step_s)} a step" if step_s else "",
        "step_s": step_s or None,
        "efficiency": efficiency,
        "efficiency_text": "" if efficiency is None else f"efficiency {percent(efficiency)}",
    }
