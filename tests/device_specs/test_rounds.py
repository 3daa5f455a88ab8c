"""How figures are measured in rounds: exact, with a clock and rates made by hand."""

import itertools
import statistics

import pytest

from rooflines.device_specs.rounds import PlannedFigure, Round, Way, ready, summary, take

VISIT_S = 0.06


class Machine:
    """Figures with known rates, a clock that a visit advances, and disturbances: (begin, end, factor, whether it is seen)."""

    def __init__(self, rates, disturbances=()):
        self.now = 0.0
        self.rates = rates  # by the detail of a way
        self.disturbances = disturbances
        self.visits = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def visit(self, figure, way):
        self.visits.append((self.now, way.detail))
        value, quiet = self.rates[way.detail], True
        for begin, end, factor, seen in self.disturbances:
            if begin <= self.now < end:
                value, quiet = value * factor, quiet and not seen
        self.now += VISIT_S
        return Round(value, quiet)

    def take(self, figures, seconds, suspects=set):
        take(figures, self.visit, suspects, seconds, clock=self.clock, sleep=self.sleep)


def figure(name, *details, kind="compute", **more):
    fields = {"kind": kind, "name": name, "unit": "s" if kind == "latency" else "FLOP/s"}
    return PlannedFigure(fields, [Way(detail, ready(None, 1.0), **more) for detail in details or (name,)])


def found(one):
    return summary(one.leader().rounds, lowest=one.lowest)


NAMES = [f"figure {number}" for number in range(10)]


def test_rounds_and_pauses():
    # The best of rounds is right where one moment would be wrong.
    # GIVEN two processors on one core for half a second, which halves every rate and which no thread can see
    machine = Machine(dict.fromkeys(NAMES, 100.0), [(0.1, 0.6, 0.5, False)])
    figures = [figure(name) for name in NAMES]
    machine.take(figures, 6.0)
    # THEN repeats in one moment would have agreed at half the rate of this figure
    hit = [one for one in figures if min(found.value for found in one.ways[0].rounds) == 50]
    assert len(hit) == 8
    # AND the best round is right for all, and others confirm it
    assert [found(one).best.value for one in figures] == [100.0] * 10
    assert all(one.confirmed for one in figures)
    # Rounds are spread over the time until every figure is confirmed.
    # Rounds are spread over the time.
    machine = Machine(dict.fromkeys(NAMES, 1.0))
    machine.take([figure(name) for name in NAMES], 6.0)
    of_first = [when for when, name in machine.visits if name == NAMES[0]]
    assert len(of_first) >= 4
    assert min(later - earlier for earlier, later in itertools.pairwise(of_first)) >= 10 * VISIT_S - 1e-9
    assert machine.now <= 6.0 + 10 * VISIT_S
    # It ends early when every figure is confirmed.
    machine = Machine(dict.fromkeys(NAMES, 1.0))
    machine.take([figure(name) for name in NAMES], 100.0)
    assert machine.now < 85
    # What is not confirmed is visited again with pauses.
    # GIVEN a figure whose threads have their cores only after 8.5 of 10 seconds
    machine = Machine({"a": 100.0, "b": 100.0}, [(0.0, 8.5, 0.5, True)])
    a, b = figure("a"), figure("b")
    machine.take([a, b], 10.0)
    assert found(a).best == Round(100.0)
    assert a.confirmed
    assert b.confirmed
    late = [when for when, name in machine.visits if name == "a" and when > 8.1]
    assert all(later - earlier >= 0.5 - 1e-9 for earlier, later in itertools.pairwise(late))


def test_which_round_counts():
    # A machine that is never quiet is said to be.
    machine = Machine({"a": 100.0}, [(0.0, 99.0, 0.5, True)])
    a = figure("a")
    machine.take([a], 2.0)
    assert found(a).best.value == 50
    assert found(a).disturbed
    assert not a.confirmed
    # A disturbed round that is faster than all quiet ones counts with a mark.
    # a disturbance makes no rate higher
    said = summary([Round(130.0, quiet=False), Round(100.0), Round(99.0)])
    assert (said.best.value, said.rounds, said.agreeing, said.disturbed, said.confirmed) == (130.0, 2, 0, True, False)
    said = summary([Round(101.0, quiet=False), Round(100.0), Round(99.0)])
    assert (said.best.value, said.rounds, said.agreeing, said.disturbed, said.confirmed) == (101.0, 2, 2, False, True)
    # A quiet round counts before a faster corrected one.
    # a rate per processor time may come out too high where the core was shared
    said = summary([Round(110.0, quiet=False, corrected=True), Round(100.0), Round(99.0)])
    assert (said.best.value, said.rounds, said.agreeing, said.disturbed) == (100.0, 2, 2, False)
    assert said.spread == pytest.approx(statistics.stdev([100.0, 99.0]) / 99.5)
    # A best round that stands alone is not confirmed.
    said = summary([Round(100.0), Round(80.0), Round(81.0)])
    assert (said.best.value, said.agreeing, said.confirmed) == (100.0, 1, False)
    assert summary([Round(100.0), Round(95.0)]).confirmed
    assert summary([Round(100.0)]).spread is None


def test_which_way_and_time_count():
    # A single round a little above all others is a burst.
    said = summary([Round(90.0), Round(100.0), Round(91.0), Round(89.0)])
    assert (said.best.value, said.agreeing, said.confirmed) == (91.0, 3, True)
    # two of its kind are sustained, and half the rate is a disturbance however many rounds agree on it
    assert summary([Round(90.0), Round(100.0), Round(91.0), Round(99.0)]).best.value == 100.0
    assert summary([Round(50.0), Round(100.0), Round(51.0), Round(50.0)]).best.value == 100.0
    # rounds that agree with nothing prove nothing
    assert summary([Round(100.0), Round(93.0), Round(87.0)]).best.value == 100.0
    assert summary([Round(1.0), Round(1.1), Round(1.11)], lowest=True).best.value == 1.1
    # Of times the shortest is the best.
    said = summary([Round(2.0), Round(1.0), Round(1.04)], lowest=True)
    assert (said.best.value, said.agreeing) == (1.0, 2)
    machine = Machine({"slow": 2.0, "fast": 1.0})
    one = figure("dispatch", "slow", "fast", kind="latency")
    machine.take([one], 3.0)
    assert one.leader().detail == "fast"
    # One disturbed round does not choose the way.
    # GIVEN the faster way disturbed in the first round, seen or not
    for seen in (False, True):
        machine = Machine({"ordinary": 60.0, "non-temporal": 100.0, "other": 1.0}, [(0.05, 0.1, 0.5, seen)])
        one, other = figure("write", "ordinary", "non-temporal"), figure("other")
        machine.take([one, other], 6.0)
        assert machine.visits[1][1] == "non-temporal"
        assert one.leader().detail == "non-temporal"
        assert found(one).best.value == 100
    # A way clearly behind is dropped after two quiet rounds unless it is kept as a variant.
    rates = {"fast": 100.0, "close": 85.0, "slow": 70.0}
    one, kept = figure("a", *rates), figure("b", *rates, further="slower")
    machine = Machine(rates)
    machine.take([one, kept], 6.0)
    counts = {way.detail: len(way.rounds) for way in one.ways}
    assert counts["slow"] == 2
    assert counts["close"] == counts["fast"] > 4
    assert len({len(way.rounds) for way in kept.ways}) == 1


def test_how_often_figures_are_visited():
    # Figures that contradict others are visited till the end.
    machine = Machine({"a": 100.0, "b": 100.0})
    a, b = figure("a"), figure("b")
    machine.take([a, b], 10.0, lambda: {a.key})
    assert len(a.ways[0].rounds) > len(b.ways[0].rounds)
    assert machine.now >= 10.0
    # The fewest rounds.
    # Without time there are two rounds.
    machine = Machine({"a": 1.0})
    a = figure("a")
    machine.take([a], 0.0)
    assert len(a.ways[0].rounds) == 2
    # What cannot be measured has no rounds.
    a = figure("a")
    take([a], lambda *_: None, set, 0.0)
    assert a.leader() is None
