"""Analyses of sources, made one at a time and kept while their files stay the same: figures for the list, and pages."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from tensorboard.util import tb_logging

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
        self._requests = 0
        self._figures: dict[str, tuple[str, dict[str, Any]]] = {}
        self._analyses: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._texts: OrderedDict[tuple[tuple[str, str], ...], str] = OrderedDict()
        self._pending: list[Source] = []
        self._thread: threading.Thread | None = None
        self._current = ""

    def figures(self, source: Source) -> dict[str, Any]:
        """What the list shows of ``source``: its state, and once analyzed its figures, or the error in one line."""
        stamp, known = self._figures.get(source.name, ("", {}))
        if source.recording:
            return {"state": "recording"}
        if stamp == source.stamp:
            return known
        return {"state": "analyzing" if source.name == self._current else "large" if source.large else "waiting"}

    def fill(self, sources: Sequence[Source]) -> None:
        """Analyze those of all ``sources`` that the list needs figures of, in the thread, newest first; forget those that are gone."""
        names = {source.name for source in sources}
        with self._guard:
            for gone in self._figures.keys() - names:
                del self._figures[gone]
            pending = (source for source in sources if self.figures(source)["state"] == "waiting")
            self._pending = sorted(pending, key=lambda source: source.changed_ns)
            if self._pending and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rooflines-tab", daemon=True)
                self._thread.start()

    def page(self, sources: Sequence[Source]) -> str:
        """The report of a source as HTML, or the comparison of two. Raises RooflinesError for one that cannot be analyzed."""
        key = tuple((source.name, source.stamp) for source in sources)
        with self._guard:
            self._requests += 1
        try:
            with self._working, _named_errors(" and ".join(source.name for source in sources)):
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
        page = pages[0][1] if len(pages) == 1 else _comparison(sources, [analysis for analysis, _ in pages])
        return render(_without_links(drawable(page)))

    def _work(self) -> None:
        while True:
            with self._guard:
                source = self._pending.pop() if self._pending else None
                if source is None:
                    self._thread = None
                    return
            while self._requests:
                time.sleep(0.05)
            # Its error is in the list.
            with self._working, contextlib.suppress(RooflinesError):
                if self.figures(source)["state"] == "waiting":
                    self._analyzed(source)

    def _analyzed(self, source: Source) -> tuple[Any, Page]:
        figures = {"state": "waiting"}
        self._current = source.name
        try:
            with _named_errors(source.name):
                found = _kept(self._analyses, (source.name, source.stamp), lambda: _page_of(source))
                figures = {"state": "done", **_figures(*found)}
                return found
        except RooflinesError as error:
            figures = {"state": "failed", "error": " ".join(str(error).split())}
            raise
        finally:
            self._current = ""
            with self._guard:
                self._figures[source.name] = (source.stamp, figures)


def _kept(kept: OrderedDict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """The value under ``key``, made if it is not among the ``MOST_KEPT`` used last."""
    if key not in kept:
        kept[key] = make()
        while len(kept) > MOST_KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turn errors that are not for users, of a file that we did not expect, into a RooflinesError, and log them."""
    try:
        yield
    except RooflinesError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(" ".join(missing(error) or (str(error),))) from error
    except Exception as error:
        tb_logging.get_logger().exception("rooflines: cannot analyze %r", name)
        raise RooflinesError(f"{name!r} cannot be analyzed: {type(error).__name__}: {first_line(error)}.") from error


def _page_of(source: Source) -> tuple[Any, Page]:
    from rooflines import pipeline
    from rooflines.profiler.records import Run
    from rooflines.reports.views import monitor, ranks, run
    from rooflines.roofline.trials import read_trials

    if source.kind == "ranks":
        together = pipeline.analyze_ranks(list(source.paths), jobs=1)
        return together, ranks.page(together)
    stored = _stored(source)
    if stored is None:
        record, analysis = pipeline.analyze_source(pipeline.find_source(source.paths))
        if not isinstance(record, Run):
            return analysis, monitor.page(analysis)
        # A trace has no command of its own, and that of this process would not repeat the analysis.
        stored = replace(analysis, command=shlex.join(["rooflines", "analyze", *source.paths])) if source.kind == "trace" else analysis
    return stored, run.page(stored, read_trials(Path(source.paths[0])) if source.kind == "run" else None)


def _stored(source: Source) -> Any:
    """The analysis written next to a run, if it is newer than the run's files and of this version."""
    from rooflines.pipeline.reading import read_analysis
    from rooflines.pipeline.reporting import ANALYSIS_FILE

    path = Path(source.paths[0], ANALYSIS_FILE)
    try:
        is_newer = source.kind == "run" and path.stat().st_mtime_ns >= source.changed_ns
        return read_analysis(path) if is_newer else None
    except (OSError, RooflinesError):
        return None


def _figures(analysis: Any, page: Page) -> dict[str, Any]:
    from rooflines.roofline.analysis import Analysis

    if not isinstance(analysis, Analysis):
        return {"verdict": page.verdict, "device": getattr(analysis, "device_name", "")}
    whole_s = analysis.whole_s if analysis.basis.per == "step" else 0.0
    step_s, totals = analysis.steps.median_s if analysis.steps else whole_s, analysis.totals
    efficiency = totals.efficiency if totals else None
    return {
        "verdict": page.verdict, "status": analysis.status, "comparable": True,
        "device": analysis.environment.device_name or analysis.environment.device,
        "step": seconds(step_s) if step_s > 0 else "", "step_s": step_s if step_s > 0 else None,
        "efficiency": efficiency, "efficiency_text": "" if efficiency is None else percent(efficiency),
    }  # fmt: skip


def _comparison(sources: Sequence[Source], analyses: Sequence[Any]) -> Page:
    from rooflines.pipeline.comparing import compared
    from rooflines.reports.views.comparison import page
    from rooflines.roofline.analysis import Analysis

    for source, analysis in zip(sources, analyses, strict=True):
        if not isinstance(analysis, Analysis):
            raise UsageError(f"{source.name!r} cannot be compared.", hint="Choose two runs or traces.")
    before, after = ((analysis, source.name) for analysis, source in zip(analyses, sources, strict=True))
    return page([compared(before, after, anyway=True)])


def _without_links(page: Page) -> Page:
    """The page without links to files of reports, which this server does not serve."""
    from rooflines.reports.document import Facts

    blocks = (tuple(replace(block, reports=()) if isinstance(block, Facts) else block for block in part.blocks) for part in page.sections)
    return replace(page, sections=tuple(replace(part, blocks=own) for part, own in zip(page.sections, blocks, strict=True)))
