"""Steps before anything is measured, until their times have settled."""

from __future__ import annotations

import statistics

from rooflines.units import counted, percent

# Warm-up ends when the medians of the last SETTLE_WINDOW steps and of as many before them differ by less than SETTLE_LIMIT.
SETTLE_WINDOW = 3
SETTLE_LIMIT = 0.05
WARMUP_MAX_STEPS = 50
WARMUP_MAX_S = 30.0


class WarmUp:
    """Decides step by step whether to go on: ``asked`` steps, or until their times have settled.

    ``settled`` is None where nobody looked; ``rule`` says in words what ended it, ``problem`` what the reader must know of it.
    """

    def __init__(self, asked: int | None) -> None:
        self._asked = asked
        self.times_ns: list[int] = []
        self.settled: bool | None = None
        self.rule = "no warm-up, as asked" if asked == 0 else ""
        self.problem = ""

    def over_after(self, step_ns: int) -> bool:
        """Whether the step that took ``step_ns`` was the last one."""
        times = self.times_ns
        times.append(step_ns)
        if self._asked is not None:
            self.rule = f"{counted(self._asked, 'warm-up step')}, as asked"
            return len(times) >= self._asked
        compared = f"fewer than {2 * SETTLE_WINDOW} of them, too few to compare"
        if len(times) >= 2 * SETTLE_WINDOW:
            last = statistics.median(times[-SETTLE_WINDOW:])
            before = statistics.median(times[-2 * SETTLE_WINDOW : -SETTLE_WINDOW])
            change = abs(last - before) / before if before else 0.0
            compared = f"medians of the last {SETTLE_WINDOW} steps and the {SETTLE_WINDOW} before differ by {percent(change, 1)}"
            if change < SETTLE_LIMIT:
                self.settled = True
                self.rule = f"settled after {len(times)} warm-up steps: {compared} (limit {percent(SETTLE_LIMIT)})"
                return True
        if len(times) >= WARMUP_MAX_STEPS or sum(times) >= WARMUP_MAX_S * 1e9:
            self.settled = False
            self.rule = f"not settled after {counted(len(times), 'warm-up step')}: {compared} (limit {percent(SETTLE_LIMIT)})"
            self.problem = f"step times had not settled when timing began: {compared}"
            return True
        return False

    @property
    def step_s(self) -> float | None:
        """What a step takes in the end, None where there was none."""
        recent = self.times_ns[-SETTLE_WINDOW:]
        return max(statistics.median(recent), 1) / 1e9 if recent else None
