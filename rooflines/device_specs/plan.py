"""The plan of a measurement: every figure with the ways to measure it, and what one visit of the rounds
does."""

from __future__ import annotations

import contextlib
import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from rooflines.device_specs.conditions import Watch
from rooflines.device_specs.history import HistorySeries, HistorySession, Progress, best_of, broken_laws
from rooflines.device_specs.records import DISTURBED, Ceiling, Conditions, Source, SourceKind, rate_unit
from rooflines.device_specs.rounds import BEHIND, PlannedFigure, Round, RunAndWork, Way, summary, take
from rooflines.kernels.micro.repeats import Run, Timing, calls_for
from rooflines.units import si

T = TypeVar("T")

BUSY = 0.95  # share of its cores below which a sample was disturbed
_SAMPLE_S = (
    0.015  # one sample lasts long enough for the threads' start and the clock's resolution not to matter
)
_SAMPLES = 3  # of a visit; their median is its round
_VISITS = 200  # samples for which a budget has to suffice: a small one makes them shorter
_ROUNDS_IN_PLACE = 3  # after which operands that are renewed are made again
_GROWTH = 16  # of a sample's calls at once: the first calls may be slow, or too short for the clock
_SUSTAINED_SAMPLE_S = 0.25
_SPIN_S = (
    0.4  # for which a device is kept busy before the first round: clocks rise within some tenths of a second
)
# of little power before each visit of arithmetic, for clocks that the power limit lowered in the visit before
_REST_S = 0.03


class Plan:
    """Collects figures, measures them in rounds with ``measure``, and keeps the rounds as ``series``.

    What fills it may set: ``watch``, which reads the state of the device meanwhile; ``sustained_s``, the
    seconds for which main rates are held as well; ``disturbed_by``, who else uses the device, in words;
    ``refuse``, which says why a figure that failed is left out, or raises; ``keeps``, False where operands
    are made for each visit because memory does not hold those of all figures; ``spin``, some milliseconds of
    work for a device whose clocks fall while it waits; ``behind``, the share of the fastest way below which
    another is not tried any longer; and ``notes`` on a memory level.
    """

    def __init__(self, budget_s: float, progress: Progress, threads: int | None = None) -> None:
        self.budget_s = budget_s
        self.sample_s = min(_SAMPLE_S, budget_s / _VISITS)
        self.progress = progress
        self.threads = threads
        self.figures: list[PlannedFigure] = []
        self.series: list[HistorySeries] = []
        self.clock_hz: float | None = None
        self.watch = Watch()
        self.sustained_s: float | None = None
        self.disturbed_by = ""
        self.keeps = True
        self.spin: Callable[[], object] | None = None
        self.behind = BEHIND
        self.refuse: Callable[[Exception], str] | None = None
        self.notes: dict[str, str] = {}
        self._date = datetime.date.today().isoformat()

    def figure(self, *ways: Way, kind: str, above: str = "", **fields: Any) -> PlannedFigure:
        """Add the figure with the ``fields`` of a ceiling, measured in each of ``ways``.

        Those that follow from others need not be given: the unit, and the name of arithmetic and of memory.
        """
        units = {"latency": "s", "clock": "Hz", "compute": rate_unit(fields.get("precision"))}
        if kind == "compute":
            fields.setdefault(
                "name", f"{'GEMM' if fields.get('engine') == 'matrix' else 'FMA'} {fields.get('precision')}"
            )
        elif kind == "memory":
            fields.setdefault("name", f"{fields.get('level')} {fields.get('access')}")
        self.figures.append(
            PlannedFigure(
                {"kind": kind, "unit": units.get(kind, "B/s"), **fields},
                ways,
                above=above,
                behind=self.behind,
            )
        )
        return self.figures[-1]

    def derive(self, detail: str, **fields: Any) -> None:
        """Keep a figure that was computed, not measured."""
        self.keep(Ceiling(source=self._source(detail, "derived"), **fields))

    def keep(self, ceiling: Ceiling, values: Sequence[float] = ()) -> None:
        """Keep a ceiling as it is, with the ``values`` that it is the best of."""
        self.series.append(
            HistorySeries(ceiling=ceiling, values=tuple(values), quiet=(not self.disturbed_by,) * len(values))
        )
        self.progress(f"{ceiling.name}: {si(ceiling.value, ceiling.unit)}")

    def _source(self, detail: str, kind: SourceKind = "measured") -> Source:
        return Source(kind=kind, detail=detail, date=self._date)

    def measure_apart(
        self, detail: str, sample: Callable[[], float | None], count: int, **fields: Any
    ) -> None:
        """Keep ``count`` values of a time that cannot be measured in the rounds of the others; None is not a
        value.

        ``detail`` says in words how it is measured, another way than those of the same figure in the plan.
        The clocks are raised, and the state of the device is read, before each: a sample may end with work of
        the host, in which the clocks fall again.
        """
        values = []
        with self._watched(beside=False) as note:
            for _ in range(count):
                self._spin()
                note()
                if (value := sample()) is not None:
                    values.append(value)
        conditions = self.watch.take()
        if values:
            best = summary([Round(value) for value in values], lowest=True).best.value
            source = self._source(detail)
            self.keep(
                Ceiling(kind="latency", unit="s", value=best, source=source, conditions=conditions, **fields),
                values,
            )

    def measure(self) -> None:
        """Measure every figure in rounds, in the order in which they were planned.

        The budget begins once all are prepared (code compiled, memory written) and the clocks have risen.
        """
        for figure in self.figures:
            for way in tuple(figure.ways):
                self._attempt(figure, way, partial(self._warm_up, way))
        self._spin()
        take(self.figures, self.visit, self._suspects, self.budget_s)
        for figure in self.figures:
            self._keep_rounds(figure)
        if self.sustained_s:
            for figure in self.figures:
                self._hold(figure, self.sustained_s)

    def _warm_up(self, way: Way) -> None:
        """Prepare ``way`` and call it once, which compiles and loads what it needs."""
        run, _ = self._prepare(way)
        run(1)

    def _spin(self, seconds: float = _SPIN_S) -> None:
        """Keep the device busy at little power, so that a figure is measured neither at the clock of an idle
        device nor at that of a device which its power limit holds back."""
        begin = time.perf_counter()
        while self.spin is not None:
            self.spin()
            if time.perf_counter() - begin >= min(seconds, self.budget_s):
                return

    def session(self, *, full: bool, seconds: float) -> HistorySession:
        """The measurements as they are stored."""
        return HistorySession(
            measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            series=tuple(self.series),
            full=full,
            sustained_s=self.sustained_s,
            seconds=round(seconds, 1),
            clock_hz=self.clock_hz,
            disturbed_by=self.disturbed_by,
            notes=self.notes,
        )

    def visit(self, figure: PlannedFigure, way: Way) -> Round | None:
        """The median of a few samples, or the fastest of their parts; None where the figure cannot be
        measured here."""
        return self._attempt(figure, way, partial(self._visit, figure, way))

    def _visit(self, figure: PlannedFigure, way: Way) -> Round | None:
        made = way.prepared
        run, work = self._prepare(way)
        if way.calls > 1 or made is None:
            run(1)  # fills the cache that is measured, wakes threads
        if figure.fields["kind"] == "compute":
            self._spin(_REST_S)
        with self._watched(beside=not figure.lowest) as note:
            samples = self._samples(run, way.calls, note)
            # the first time, and where a disturbance made the calls seem longer than they are
            while (short := self.sample_s / max(1e-9, min(one.seconds for one in samples))) > 2:
                way.calls = max(way.calls + 1, int(way.calls * min(short, _GROWTH)))
                samples = self._samples(run, way.calls, note)
        quiet = [one for one in samples if one.busy >= BUSY]
        enough = 2 * len(quiet) > len(samples)
        peaks = [one.peak_s for one in quiet if one.peak_s is not None]
        if peaks:
            seconds = min(peaks)
        elif enough:
            seconds = statistics.median(one.seconds for one in quiet)
        else:  # what a thread's own core does, as far as it had it
            seconds = statistics.median(
                one.seconds * one.busy if way.private else one.seconds for one in samples
            )
        work *= way.calls
        value = seconds / work if figure.lowest else work / max(seconds, 1e-9)
        self.progress(f"{figure.name}: {si(value, figure.fields['unit'])}")
        return Round(
            value, enough and not self.disturbed_by, self.watch.take(), corrected=way.private and not enough
        )

    def _samples(self, run: Run, calls: int, note: Callable[[], None]) -> list[Timing]:
        samples: list[Timing] = []
        begin = time.perf_counter()
        while len(samples) < _SAMPLES and (
            not samples or time.perf_counter() - begin < _SAMPLES * self.sample_s
        ):
            samples.append(run(calls))
            note()
        return samples

    def _prepare(self, way: Way) -> RunAndWork:
        """The run and work of a way, made now or, where operands are kept, the first time."""
        prepared = way.prepared or way.make()
        last = way.renewed and len(way.rounds) % _ROUNDS_IN_PLACE == _ROUNDS_IN_PLACE - 1
        way.prepared = prepared if self.keeps and not last else None
        return prepared

    def _attempt(self, figure: PlannedFigure, way: Way, action: Callable[[], T]) -> T | None:
        """``action()``; where it fails in a manner that ``refuse`` knows, the way is left out, with the
        reason, and this is None."""
        try:
            return action()
        except Exception as error:
            if self.refuse is None:
                raise
            self.progress(f"{figure.name}: {self.refuse(error)}")
            if way in figure.ways:
                figure.ways.remove(way)
            return None

    @contextlib.contextmanager
    def _watched(self, beside: bool) -> Iterator[Callable[[], None]]:
        """Inside, the state of the device is read: continuously with ``beside``, else at each call of the
        yielded function."""
        self.watch.take()  # what was read before belongs to another figure
        with self.watch.beside() if beside else contextlib.nullcontext():
            yield (lambda: None) if beside else self.watch.note

    def _suspects(self) -> set[tuple[Any, ...]]:
        """The keys of the figures that contradict others."""
        series = [one for figure in self.figures for one in self._series(figure)]
        found = best_of([HistorySession(measured_at="", series=tuple(series))])
        return {one.suspect for one in broken_laws(found, self.threads)}

    def _series(self, figure: PlannedFigure) -> Iterator[HistorySeries]:
        """The rounds of a figure as they are stored; not of a clock, which is not a ceiling."""
        for way in figure.ways:
            if way.rounds and figure.fields["kind"] != "clock":
                best = summary(way.rounds, lowest=figure.lowest).best
                yield HistorySeries(
                    ceiling=Ceiling(
                        value=best.value,
                        source=self._source(way.detail),
                        conditions=best.conditions,
                        **figure.fields,
                    ),
                    values=tuple(one.value for one in way.rounds),
                    quiet=tuple(one.quiet for one in way.rounds),
                    further=way.further,
                    private=way.private,
                )

    def _keep_rounds(self, figure: PlannedFigure) -> None:
        found = figure.summed_up()
        if found is None:
            return
        if figure.fields["kind"] == "clock":
            self.clock_hz = found.best.value if found.confirmed else None
            return
        outer = [
            one.ceiling.value
            for one in self.series
            if one.ceiling.level == figure.above and not one.ceiling.variant
        ]
        if figure.above and found.best.value <= max(outer, default=0.0):
            self.progress(
                f"{figure.name}: skipped, {si(found.best.value, figure.fields['unit'])} is not "
                f"above {figure.above}"
            )
        else:
            self.series += self._series(figure)

    def _hold(self, figure: PlannedFigure, duration_s: float) -> None:
        """Hold a main rate of arithmetic or of the outermost memory for ``duration_s`` seconds, and keep what
        is left of it."""
        fields = figure.fields
        leader = figure.leader()
        rate = fields["kind"] == "compute" or (
            fields["kind"] == "memory" and not fields.get("capacity_bytes")
        )
        if leader is None or not rate or fields.get("variant"):
            return
        held = self._attempt(figure, leader, lambda: self._sustained(*self._prepare(leader), duration_s))
        if held is None:
            return
        rates, conditions = held
        detail = (
            f"{leader.detail}, held for {duration_s:g} s: median of the {len(rates)} samples in its "
            "second half"
        )
        if self.disturbed_by:
            detail += f", {DISTURBED}: {self.disturbed_by}"
        spread = statistics.stdev(rates) / statistics.mean(rates) if len(rates) > 1 else 0.0
        fields = fields | {"variant": "sustained"}
        value = statistics.median(rates)
        source = self._source(detail)
        self.keep(Ceiling(value=value, spread=spread, conditions=conditions, source=source, **fields))

    def _sustained(self, run: Run, work: float, duration_s: float) -> tuple[list[float], Conditions | None]:
        """The rates in the second half of ``duration_s`` seconds, and the state of the device in that time.

        Power and temperature take seconds to reach their limits, and the clock follows them down.
        """
        calls = calls_for(min(_SUSTAINED_SAMPLE_S, duration_s / 10), run)
        rates: list[tuple[float, float]] = []  # when each sample ended, and what it was
        with self._watched(beside=True):
            begin = time.perf_counter()
            while (elapsed := time.perf_counter() - begin) < duration_s or len(rates) < 2:
                if elapsed >= duration_s / 2 and not any(end >= duration_s / 2 for end, _ in rates):
                    self.watch.take()  # what was read before belongs to the first half
                seconds = run(calls).seconds
                rates.append((time.perf_counter() - begin, work * calls / seconds))
        return [rate for end, rate in rates if end >= duration_s / 2] or [rates[-1][1]], self.watch.take()
