"""Steps before anything is measured, until their times have settled."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from rooflines.units import counted, percent

# Warm-up ends when the medians of the last SETTLE_WINDOW steps and of as many before them differ by less than SETTLE_LIMIT.
SETTLE_WINDOW = 3
SETTLE_LIMIT = 0.05
WARMUP_MAX_STEPS = 50
WARMUP_MAX_S = 30.0
# Of ranks that make the same steps and would each see other times.
WARMUP_RANK_STEPS = 8
# An idle GPU lowers its clock and takes a while to raise it again. Steps keep it busy for this long, up to this many of them.
BUSY_S = 0.5
BUSY_MAX_STEPS = 2000


class WarmUp:
    """Decides step by step whether warm-up is over: after ``asked`` steps, or once step times have settled, at most ``most`` steps.

    They may settle once the steps after the first one have taken ``busy_s`` seconds.
    ``alike()`` says whether other ranks must decide the same, which a fixed number of steps makes sure of.
    ``settled`` is None if it was not tested; ``rule`` says in words what ended the warm-up, ``problem`` is a warning for the reader.
    """

    def __init__(
        self, asked: int | None, most: int = WARMUP_MAX_STEPS, alike: Callable[[], bool] = lambda: False, *, busy_s: float = 0.0
    ) -> None:
        self._asked = asked
        self._alike = alike
        self._most = most
        self._busy_s = busy_s
        self._busy_steps = 0
        self._first = 0
        self.times_ns: list[int] = []
        self._over = asked == 0
        self.settled: bool | None = None
        self.rule = "no warm-up, as requested" if asked == 0 else ""
        self.problem = ""

    def first_step(self, step_ns: int) -> None:
        """The first step took ``step_ns``, including one-time costs; later steps decide whether times have settled."""
        self._first = 1
        self.add(step_ns)

    def add(self, step_ns: int) -> None:
        """A step took ``step_ns``."""
        self.times_ns.append(step_ns)
        if self._asked is not None:
            self.rule = f"{counted(self._asked, 'warm-up step')}, as requested"
            self._over = len(self.times_ns) >= self._asked
            return
        times = self.times_ns[self._first :]
        if self._alike():
            self.rule = f"{counted(WARMUP_RANK_STEPS, 'warm-up step')}, the same on every rank"
            self._over = len(times) >= WARMUP_RANK_STEPS
            return
        if sum(self.times_ns[1:]) < self._busy_s * 1e9 and len(times) < BUSY_MAX_STEPS:
            self._busy_steps = len(times)
            return
        compared = f"fewer than {2 * SETTLE_WINDOW} steps, too few to compare"
        if len(times) >= 2 * SETTLE_WINDOW:
            last = statistics.median(times[-SETTLE_WINDOW:])
            before = statistics.median(times[-2 * SETTLE_WINDOW : -SETTLE_WINDOW])
            change = abs(last - before) / before if before else 0.0
            compared = f"medians of the last {SETTLE_WINDOW} steps and the {SETTLE_WINDOW} before differ by {percent(change, 1)}"
            if change < SETTLE_LIMIT:
                self._over = self.settled = True
                self.rule = f"settled after {len(self.times_ns)} warm-up steps: {compared} (limit {percent(SETTLE_LIMIT)})"
                return
        if len(times) - self._busy_steps >= self._most or sum(times) >= WARMUP_MAX_S * 1e9:
            self._over, self.settled = True, False
            self.rule = f"not settled after {counted(len(self.times_ns), 'warm-up step')}: {compared} (limit {percent(SETTLE_LIMIT)})"
            self.problem = f"step times had not settled when timing started: {compared}"

    def is_over(self) -> bool:
        """Whether no more steps are needed."""
        return self._over

    @property
    def step_s(self) -> float | None:
        """The step time at the end of the warm-up, None without steps."""
        recent = self.times_ns[-SETTLE_WINDOW:]
        return max(statistics.median(recent), 1) / 1e9 if recent else None
