"""Figures measured in rounds: every figure is visited once a round, so that no disturbance falls on all
repeats of one figure.

A virtual machine may run two of its processors on one core for half a second, and another process may take a
core for as long. Repeats taken within such a moment agree perfectly, at half the true rate. Rounds lie
seconds apart, so the best of them is what the machine sustains: a disturbance only makes a rate lower and a
time longer.

A round is *quiet* where the threads had their cores. That is not known of what the hypervisor does, so a best
round counts as *confirmed* only when a second quiet round agrees with it. A single round a little above all
others is a burst (a moment at a higher clock, a lucky place in memory), which the machine does not sustain:
there the best two quiet rounds that agree count. A disturbance costs more than a burst gains, so a single
round far above the others stays the best.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rooflines.device_specs.records import Conditions
from rooflines.kernels.micro.repeats import Run

AGREEMENT = 0.05  # two rounds agree when they differ by no more than this share
# by no more than this share a single best round lies above what is sustained; two threads on one core lose
# half
_BURST = 0.15
ROUNDS = 4  # rounds of all figures, if the time allows
_REACHED = 3  # rounds that agree with a best one for it not to be the top of a few
_LEAST_ROUNDS = 2  # and if it does not: a spread needs two
_PLANNED = 0.8  # share of the time for rounds of all figures; the rest is for those still in doubt
BEHIND = 0.8  # a way slower than this share of the fastest is not tried any longer
_PAUSE_S = 0.5  # between two visits of the same figure: as long as most disturbances last


# What is measured, and the work of one call: FLOP, bytes, or for a latency the number of operations.
RunAndWork = tuple[Run, float]


class Round(NamedTuple):
    """The result of one visit: a rate or a time, whether the threads had their cores, and the state of a GPU
    meanwhile.

    A rate that is ``corrected``, per processor time instead of the time that passed, may be too high.
    """

    value: float
    quiet: bool = True
    conditions: Conditions | None = None
    corrected: bool = False


class RoundSummary(NamedTuple):
    """Summary of several rounds: the best one, the coefficient of variation between them, and how many agree
    with the best.

    ``rounds`` and ``agreeing`` count quiet rounds, or all where there is none. ``disturbed`` where no quiet
    round agrees with a best one that was not quiet.
    """

    best: Round
    spread: float | None
    rounds: int
    agreeing: int
    disturbed: bool

    @property
    def confirmed(self) -> bool:
        """True where a second quiet round agrees with the best."""
        return self.agreeing > 1 and not self.disturbed


def summary(rounds: Sequence[Round], *, lowest: bool = False) -> RoundSummary:
    """Sum up ``rounds``, at least one; the best is the highest, or the ``lowest`` for a time, less a burst.

    A disturbed round counts too, because the true rate is not lower; a corrected one counts only if there is
    no other.
    """
    quiet = [one for one in rounds if one.quiet]
    best = _sustained(
        sorted(
            [one for one in rounds if not one.corrected] or rounds,
            key=lambda one: one.value,
            reverse=not lowest,
        )
    )
    values = [one.value for one in (quiet if len(quiet) > 1 else rounds)]
    agreeing = sum(agree(one.value, best.value) for one in quiet or rounds)
    return RoundSummary(
        best=best,
        spread=statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else None,
        rounds=len(quiet or rounds),
        agreeing=agreeing,
        disturbed=not quiet or not agreeing,
    )


def _sustained(ordered: Sequence[Round]) -> Round:
    """The first of ``ordered`` (best first); where no other agrees with it, the first of two quiet ones a
    little behind that agree."""
    best = ordered[0]
    if len(ordered) > 1 and agree(best.value, ordered[1].value):
        return best
    for one, other in itertools.pairwise(one for one in ordered[1:] if one.quiet):
        if agree(one.value, other.value):
            return one if agree(one.value, best.value, _BURST) else best
    return best


def agree(one: float, other: float, by: float = AGREEMENT) -> bool:
    """True where two values differ by no more than the share ``by`` of the larger."""
    return min(one, other) >= (1 - by) * max(one, other)


@dataclass(eq=False)
class Way:
    """One way to measure a figure: a kind of stores, a matrix shape, an operator, a size.

    ``make`` prepares what is measured: a run, and the work of one call (FLOP, bytes, or for a latency the
    number of operations). ``detail`` says in words how it is measured. Where each thread uses nothing but its
    own core (``private``), a round that was disturbed is taken per processor time. Operands whose place in
    memory matters are ``renewed`` now and then. A way that is not the fastest is kept as the variant
    ``further``, where that is not empty.
    """

    detail: str
    make: Callable[[], RunAndWork]
    private: bool = False
    renewed: bool = False
    further: str = ""
    calls: int = 1  # of one sample, which the first visit makes long enough
    prepared: RunAndWork | None = None
    rounds: list[Round] = field(default_factory=list)


def ready(run: Run, work: float) -> Callable[[], RunAndWork]:
    """Make a ``Way`` whose run needs no preparation."""
    return lambda: (run, work)


class PlannedFigure:
    """One figure of the plan: the ``fields`` of its ceiling and the ways to measure it, of which the fastest
    counts.

    A cache whose rate does not come out above that of the level ``above`` is left out. A way slower than the
    share ``behind`` of the fastest is not tried any longer.
    """

    def __init__(
        self, fields: dict[str, Any], ways: Iterable[Way], *, above: str = "", behind: float = BEHIND
    ) -> None:
        self.fields = fields
        self.ways = list(ways)
        self.above = above
        self.behind = behind
        self._behind: list[Way] = []

    @property
    def name(self) -> str:
        variant = self.fields.get("variant")
        return f"{self.fields['name']} ({variant})" if variant else str(self.fields["name"])

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of its ceiling."""
        return (
            self.fields["kind"],
            self.fields["name"],
            self.fields.get("variant", ""),
            self.fields.get("threads"),
        )

    @property
    def lowest(self) -> bool:
        """True for a time, of which the shortest is the best."""
        return bool(self.fields["kind"] == "latency")

    def tried(self) -> list[Way]:
        """The ways that are still tried."""
        return [way for way in self.ways if way not in self._behind]

    def leader(self) -> Way | None:
        """The fastest way so far; None before the first round."""
        found: Way | None = fastest(
            [(way, way.rounds) for way in self.ways if way.rounds], lowest=self.lowest
        )
        return found

    def summed_up(self) -> RoundSummary | None:
        """The rounds of that way, summed up."""
        leader = self.leader()
        return None if leader is None else summary(leader.rounds, lowest=self.lowest)

    @property
    def confirmed(self) -> bool:
        found = self.summed_up()
        return found is not None and found.confirmed

    def drop_slow_ways(self) -> None:
        """Stop trying ways that were clearly behind in two quiet rounds: one disturbed round must not choose
        for good."""
        leader = self.leader()
        found = self.summed_up()
        if found is None:
            return
        for way in self.tried():
            quiet = [one for one in way.rounds if one.quiet]
            if way is leader or way.further or len(quiet) < 2:
                continue
            if not agree(summary(quiet, lowest=self.lowest).best.value, found.best.value, 1 - self.behind):
                self._behind.append(way)
                way.prepared = None


def fastest(ways: Sequence[tuple[Any, Sequence[Round]]], *, lowest: bool = False) -> Any:
    """The way with the best round; None without any way."""
    sign = -1 if lowest else 1
    return max(ways, key=lambda way: sign * summary(way[1], lowest=lowest).best.value)[0] if ways else None


def take(
    figures: Sequence[PlannedFigure],
    visit: Callable[[PlannedFigure, Way], Round | None],
    suspects: Callable[[], set[tuple[Any, ...]]],
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Visit ``figures`` in rounds for at most ``seconds``, and add what ``visit`` finds to the rounds of each
    way.

    First rounds of all figures; then, until the time is over, only of those whose best round is not confirmed
    and of the ``suspects``, the keys of figures that contradict others, and then of those whose best round
    few others reach. ``visit`` returns None where nothing could be measured.
    """
    begin = clock()

    def go(chosen: Iterable[PlannedFigure], end: float = math.inf) -> None:
        for figure in chosen:
            for way in figure.tried():
                found = visit(figure, way)
                if found is not None:
                    way.rounds.append(found)
                if clock() - begin >= end:
                    return
            figure.drop_slow_ways()

    number, elapsed = 0, 0.0
    while number < _LEAST_ROUNDS or elapsed < (_PLANNED if number >= ROUNDS else 1.0) * seconds:
        go(figures)
        number += 1
        elapsed = clock() - begin
    while (started := clock()) - begin < seconds:
        in_doubt = suspects()
        chosen = [
            figure for figure in figures if figure.ways and (not figure.confirmed or figure.key in in_doubt)
        ]
        if (
            not chosen
        ):  # those of which so few rounds reach the best one that a further round may well exceed it
            summaries = [(figure, figure.summed_up()) for figure in figures if figure.ways]
            chosen = [
                figure for figure, found in summaries if found is not None and found.agreeing < _REACHED
            ]
        if not chosen:
            return
        go(chosen, seconds)
        if clock() - begin < seconds:
            sleep(max(0.0, _PAUSE_S - (clock() - started)))
