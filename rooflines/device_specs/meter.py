"""The meter: takes one figure after the other within a budget and keeps each as a ceiling with its spread and its source."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rooflines.device_specs.records import Ceiling, Source
from rooflines.units import si

if TYPE_CHECKING:
    from rooflines.kernels.micro.repeats import Repeats, Sample, Timing

Progress = Callable[[str], None]

# In the detail of every figure that was taken while other processes ran.
DISTURBED = "disturbed"
_SAMPLE_S = 0.02  # one sample lasts long enough for the threads' start and the clock's resolution not to matter


class Meter:
    """Takes one figure after the other, each with its share of the budget, and appends it to ``found`` as a ceiling."""

    def __init__(self, budget_s: float, found: list[Ceiling], progress: Progress) -> None:
        self.share_s = budget_s / 24  # figures of one device; most settle long before their share is spent
        self.sample_s = min(_SAMPLE_S, self.share_s / 10)
        self.found = found
        self.progress = progress
        # on a machine that is never quiet every figure would spend all it may, twice
        self._deadline = time.perf_counter() + budget_s
        self._date = datetime.date.today().isoformat()

    def settle(self, sample: Callable[[], Sample]) -> Repeats:
        """Repeats of ``sample`` within its share of the budget; once the whole budget is spent, in a hurry."""
        from rooflines.kernels.micro.repeats import settle

        hurry = time.perf_counter() > self._deadline
        return settle(sample, 0.0 if hurry else self.share_s, again=not hurry)

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

        return self.settle(sample)

    def add(self, repeats: Repeats, detail: str, **fields: Any) -> Ceiling:
        """Keep ``repeats`` as the ceiling with ``fields``; ``detail`` says how it was measured."""
        from rooflines.kernels.micro.repeats import REPEATS

        detail = f"{detail}, median of the last {REPEATS} of {repeats.taken} repeats"
        if repeats.disturbed:
            detail += f", {DISTURBED}: other processes used the same cores"
        if repeats.unstable:
            detail += ", unstable"
        source = Source(kind="measured", detail=detail, date=self._date)
        return self.keep(Ceiling(value=repeats.median, spread=repeats.spread, source=source, **fields))

    def derive(self, detail: str, **fields: Any) -> Ceiling:
        """Keep a figure that was computed, not measured."""
        return self.keep(Ceiling(source=Source(kind="derived", detail=detail, date=self._date), **fields))

    def keep(self, ceiling: Ceiling) -> Ceiling:
        self.found.append(ceiling)
        self.progress(f"{ceiling.name}: {si(ceiling.value, ceiling.unit)}")
        return ceiling
