"""The meter: takes one figure after the other within a budget and keeps each as a ceiling with its spread and its source."""

from __future__ import annotations

import contextlib
import datetime
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rooflines.device_specs.records import Ceiling, Conditions, Source
from rooflines.units import si

if TYPE_CHECKING:
    from rooflines.device_specs.conditions import Watch
    from rooflines.kernels.micro.repeats import Repeats, Sample, Timing

Progress = Callable[[str], None]

# In the detail of every figure that was taken while other processes ran.
DISTURBED = "disturbed"
_SUSTAINED_SAMPLE_S = 0.25
_SAMPLE_S = 0.02  # one sample lasts long enough for the threads' start and the clock's resolution not to matter


class Meter:
    """Takes one figure after the other, each with its share of the budget, and appends it to ``found`` as a ceiling.

    What is measured may set, for all figures after it: ``watch``, which reads the state of the device meanwhile; ``sustained_s``, the
    seconds for which ``figure`` holds every rate once more; ``disturbed_by``, who else uses the device, in words.
    """

    def __init__(self, budget_s: float, found: list[Ceiling], progress: Progress) -> None:
        self.share_s = budget_s / 24  # figures of one device; most settle long before their share is spent
        self.sample_s = min(_SAMPLE_S, self.share_s / 10)
        self.found = found
        self.progress = progress
        self.watch: Watch | None = None
        self.sustained_s: float | None = None
        self.disturbed_by = ""
        # on a machine that is never quiet every figure would spend all it may, twice
        self._deadline = time.perf_counter() + budget_s
        self._date = datetime.date.today().isoformat()
        self._conditions: Conditions | None = None  # of the latest measurement

    def settle(self, sample: Callable[[], Sample], *, beside: bool = True) -> Repeats:
        """Repeats of ``sample`` within its share of the budget; once the whole budget is spent, in a hurry.

        The state of the device is read ``beside`` it, or between two samples.
        """
        from rooflines.kernels.micro.repeats import settle

        hurry = time.perf_counter() > self._deadline
        with self._watched(beside):
            return settle(sample if beside else partial(self._noted, sample), 0.0 if hurry else self.share_s, again=not hurry)

    def rate(self, work: float, run: Callable[[int], Timing], *, private: bool = False) -> Repeats:
        """Repeats of a rate: ``work`` (FLOP or bytes) per call over the time that ``run(calls)`` returns.

        Where each thread uses nothing but its own core (``private``), the rate is per processor time, the share of the core that the
        thread had: on a machine that is never quiet, this is still what the core does.
        """
        from rooflines.kernels.micro.repeats import Sample, calls_for

        calls = calls_for(self.sample_s, run)

        def sample() -> Sample:
            seconds, busy = run(calls)
            return Sample(work * calls / (seconds * busy)) if private else Sample(work * calls / seconds, busy)

        return self.settle(sample)

    def latency(self, calls: int, run: Callable[[int], Timing]) -> Repeats:
        """Repeats of the time per call, over ``calls`` calls."""
        from rooflines.kernels.micro.repeats import Sample

        def sample() -> Sample:
            seconds, busy = run(calls)
            return Sample(seconds / calls, busy)

        return self.settle(sample, beside=False)

    def sustained(self, work: float, run: Callable[[int], Timing], duration_s: float) -> Repeats:
        """The rate that is left when ``run`` goes on for ``duration_s`` seconds: of the samples in the second half of that time.

        Power and temperature take seconds to reach their limits, and the clock follows them down.
        """
        from rooflines.kernels.micro.repeats import Repeats, calls_for

        calls = calls_for(min(_SUSTAINED_SAMPLE_S, duration_s / 10), run)
        rates: list[tuple[float, float]] = []  # when each sample ended, and what it was
        with self._watched(beside=True):
            begin = time.perf_counter()
            while (elapsed := time.perf_counter() - begin) < duration_s or len(rates) < 2:
                if elapsed >= duration_s / 2 and self.watch is not None and not any(end >= duration_s / 2 for end, _ in rates):
                    self.watch.take()  # what was read before belongs to the first half
                seconds = run(calls).seconds
                rates.append((time.perf_counter() - begin, work * calls / seconds))
        self._deadline += time.perf_counter() - begin  # asked for on top of the budget
        late = [rate for end, rate in rates if end >= duration_s / 2] or [rates[-1][1]]
        spread = statistics.stdev(late) / statistics.mean(late) if len(late) > 1 else 0.0
        return Repeats(statistics.median(late), spread, len(late))

    def figure(self, work: float, run: Callable[[int], Timing], detail: str, **fields: Any) -> Ceiling:
        """Measure a rate and keep it, and once more as the variant "sustained" where that was asked for."""
        kept = self.add(self.rate(work, run), detail, **fields)
        if self.sustained_s and not fields.get("variant"):
            repeats = self.sustained(work, run, self.sustained_s)
            held = f"{detail}, held for {self.sustained_s:g} s: median of the {repeats.taken} samples in its second half"
            self._keep_measured(repeats, held, **fields | {"variant": "sustained"})
        return kept

    def add(self, repeats: Repeats, detail: str, **fields: Any) -> Ceiling:
        """Keep ``repeats`` as the ceiling with ``fields``; ``detail`` says how it was measured."""
        from rooflines.kernels.micro.repeats import REPEATS

        return self._keep_measured(repeats, f"{detail}, median of the last {REPEATS} of {repeats.taken} repeats", **fields)

    def _keep_measured(self, repeats: Repeats, detail: str, **fields: Any) -> Ceiling:
        if repeats.disturbed:
            detail += f", {DISTURBED}: other processes used the same cores"
        if self.disturbed_by:
            detail += f", {DISTURBED}: {self.disturbed_by}"
        if repeats.unstable:
            detail += ", unstable"
        source = Source(kind="measured", detail=detail, date=self._date)
        return self.keep(
            Ceiling(value=repeats.median, spread=repeats.spread, source=source, **{"conditions": self._conditions, **fields})
        )

    @contextlib.contextmanager
    def _watched(self, beside: bool) -> Iterator[None]:
        """Inside, the state of the device is read; afterwards it is that of the latest measurement."""
        if self.watch is None:
            yield
            return
        self.watch.take()
        with self.watch.beside() if beside else contextlib.nullcontext():
            yield
        self._conditions = self.watch.take()

    def _noted(self, sample: Callable[[], Sample]) -> Sample:
        """``sample()``, and the state of the device after it."""
        found = sample()
        if self.watch is not None:
            self.watch.note()
        return found

    def derive(self, detail: str, **fields: Any) -> Ceiling:
        """Keep a figure that was computed, not measured."""
        return self.keep(Ceiling(source=Source(kind="derived", detail=detail, date=self._date), **fields))

    def keep(self, ceiling: Ceiling) -> Ceiling:
        self.found.append(ceiling)
        name = f"{ceiling.name} ({ceiling.variant})" if ceiling.variant else ceiling.name
        self.progress(f"{name}: {si(ceiling.value, ceiling.unit)}")
        return ceiling
