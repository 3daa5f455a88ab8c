"""Analyses of sources, made one at a time and kept while their files stay the same: figures for the list, and pages."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from tensorboard.util import tb_logging

from rooflines.arguments import as_options, escaped
from rooflines.errors import RooflinesError, UsageError, first_line
from rooflines.extras import missing
from rooflines.integrations.tensorboard_tab.sources import Source
from rooflines.units import percent, seconds

if TYPE_CHECKING:
    from rooflines.reports.document import Page

MOST_KEPT = 20

T = TypeVar("T")


class Results:
    """Analyzes sources on request, and others in a thread of its own.

    One at a time: reading a trace takes memory, and Matplotlib draws in one thread only. A request goes before the thread.
    """

    def __init__(self) -> None:
        self._working, self._guard = threading.Lock(), threading.Lock()
        self._requests, self._thread_runs = 0, False
        self._figures: dict[str, tuple[str, dict[str, Any]]] = {}
        self._analyses: OrderedDict[tuple[str, str], tuple[Any, Page]] = OrderedDict()
        self._texts: OrderedDict[tuple[tuple[str, str], ...], str] = OrderedDict()
        self._pending: list[Source] = []

    def figures(self, source: Source) -> dict[str, Any]:
        """What the list shows of ``source``: its state, and once analyzed its figures, or the error in one line."""
        stamp, known = self._figures.get(source.name, ("", {}))
        if source.recording or stamp != source.stamp:
            return {"state": "recording" if source.recording else "large" if source.large else "waiting"}
        return known

    def fill(self, sources: Sequence[Source]) -> None:
        """Analyze those of all ``sources`` that the list needs figures of, in the thread, newest first; forget those that are gone."""
        names = {source.name for source in sources}
        with self._guard:
            for gone in self._figures.keys() - names:
                del self._figures[gone]
            pending = (source for source in sources if self.figures(source)["state"] == "waiting")
            self._pending = sorted(pending, key=lambda source: source.changed_ns)
            if self._pending and not self._thread_runs:
                self._thread_runs = True
                threading.Thread(target=self._work, name="rooflines-tab", daemon=True).start()

    def page(self, sources: Sequence[Source]) -> str:
        """The report of a source as HTML, or the comparison of two. Raises RooflinesError for one that cannot be analyzed."""
        key = tuple((source.name, source.stamp) for source in sources)
        with self._guard:
            self._requests += 1
        try:
            with self._working, _our_errors():
                return _kept(self._texts, key, lambda: self._rendered(sources))
        finally:
            with self._guard:
                self._requests -= 1

    def _rendered(self, sources: Sequence[Source]) -> str:
        from rooflines.reports.formats import drawable
        from rooflines.reports.render.html import render

        for source in sources:
            if source.recording:
                raise UsageError(f"{source.name!r} is being recorded.", hint="It is shown when it is complete.")
        pages = [self._analyzed(source) for source in sources]
        return render(drawable(pages[0][1] if len(pages) == 1 else _comparison(sources, [analysis for analysis, _ in pages])))

    def _work(self) -> None:
        while True:
            with self._guard:
                self._thread_runs = bool(self._pending)
                if not self._pending:
                    return
                source = self._pending.pop()
            while self._requests:
                time.sleep(0.05)
            with self._working, contextlib.suppress(RooflinesError):  # which is in the list
                if self.figures(source)["state"] == "waiting":
                    self._analyzed(source)

    def _analyzed(self, source: Source) -> tuple[Any, Page]:
        """The analysis of ``source`` and its page."""
        try:
            with _our_errors():
                found = _kept(self._analyses, (source.name, source.stamp), lambda: _page_of(source))
                figures = {"state": "done", **_figures(*found)}
        except RooflinesError as error:
            figures = {"state": "failed", "error": in_one_line(error, [source])}
            raise
        finally:
            with self._guard:
                self._figures[source.name] = (source.stamp, figures)
        return found


def in_one_line(error: RooflinesError, sources: Sequence[Source]) -> str:
    """The message and hint of ``error``, with options as on the command line and the names of files without their folders."""
    text = as_options(". ".join(filter(None, (error.marked_message.rstrip("."), error.marked_hint))))
    for path in (path for source in sources for path in source.paths):
        text = text.replace(escaped(path), escaped(os.path.basename(path)))
    return " ".join(text.split())


def _kept(kept: OrderedDict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """The value under ``key``, made if it is not among the ``MOST_KEPT`` used last."""
    if key not in kept:
        kept[key] = make()
        if len(kept) > MOST_KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    """Turn an error that is not for users, of a file that we did not expect, into a RooflinesError, and log it."""
    try:
        yield
    except RooflinesError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(" ".join(missing(error) or (str(error),))) from error
    except Exception as error:
        tb_logging.get_logger().exception("rooflines")
        raise RooflinesError(f"unexpected error: {type(error).__name__}: {first_line(error)}.") from error


def _page_of(source: Source) -> tuple[Any, Page]:
    from rooflines import pipeline
    from rooflines.profiler.records import Run
    from rooflines.reports.views import monitor, ranks, run
    from rooflines.roofline.trials import read_trials

    if source.kind == "ranks":
        together = pipeline.analyze_ranks(list(source.paths), jobs=1)
        return together, ranks.page(together)
    analysis: Any = _stored(source)
    if analysis is None:
        record, analysis = pipeline.analyze_source(pipeline.find_source(source.paths))
        if not isinstance(record, Run):
            return analysis, monitor.page(analysis)
    if source.kind == "trace":  # which has no command of its own
        analysis = replace(analysis, command=shlex.join(["rooflines", "analyze", escaped(source.paths[0])]))
    return analysis, run.page(analysis, read_trials(Path(source.paths[0])) if source.kind == "run" else None)


def _stored(source: Source) -> Any:
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
    step_s = analysis.steps.median_s if analysis.steps else analysis.whole_s if analysis.basis.per == "step" else 0.0
    efficiency = analysis.totals.efficiency if analysis.totals else None
    return {
        "verdict": page.verdict, "status": analysis.status, "comparable": True,
        "device": analysis.environment.device_name or analysis.environment.device,
        "step": seconds(step_s) if step_s > 0 else "", "step_s": step_s if step_s > 0 else None,
        "efficiency": efficiency, "efficiency_text": "" if efficiency is None else percent(efficiency),
    }  # fmt: skip


def _comparison(sources: Sequence[Source], analyses: Sequence[Any]) -> Page:
    """The page of two runs, without its links to files of reports, which this server does not serve."""
    from rooflines.pipeline.comparing import compared
    from rooflines.reports.document import Facts
    from rooflines.reports.views.comparison import page
    from rooflines.roofline.analysis import Analysis

    for source, analysis in zip(sources, analyses, strict=True):
        if not isinstance(analysis, Analysis):
            raise UsageError(f"{source.name!r} cannot be compared.", hint="Choose two runs or traces.")
    made = page([compared((analyses[0], sources[0].name), (analyses[1], sources[1].name), anyway=True)])
    blocks = ([replace(one, reports=()) if isinstance(one, Facts) else one for one in part.blocks] for part in made.sections)
    return replace(made, sections=tuple(replace(part, blocks=tuple(own)) for part, own in zip(made.sections, blocks, strict=True)))
