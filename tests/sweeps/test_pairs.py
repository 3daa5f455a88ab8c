"""Two settings run in turn: the order, the interval, and how often chance alone looks like a gain."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from rooflines.profiler.progress import Silent
from rooflines.sweeps.records import Point, Result
from rooflines.sweeps.results import OBJECTIVES
from rooflines.sweeps.tune import compare, run_in_turn, tasks_in_turn

FAST = Point(id="fast", label="fast", function="tests.sweeps.jobs:speed", options={"model": "m", "batch_size": 8})
SLOW = Point(id="slow", label="slow", function="tests.sweeps.jobs:speed", options={"model": "m", "batch_size": 2})


def results(values, name="samples_per_s"):
    return [tuple(Result(point=f"{index}", round=1, values={name: value}) for index, value in enumerate(pair)) for pair in values]


def test_the_two_run_in_turn_and_what_is_stored_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    titles = []

    class Listens(Silent):
        def stage(self, name, total):
            titles.append(name)

    first = run_in_turn(FAST, SLOW, 3, tmp_path, Listens())
    assert [(one.values["samples_per_s"], other.values["samples_per_s"]) for one, other in first] == [(80.0, 20.0)] * 3
    seen = sorted(tmp_path.rglob("seen"), key=lambda path: path.stat().st_mtime_ns)
    assert [path.parent.name for path in seen] == ["tuned", "default", "default", "tuned", "tuned", "default"]
    times = {path: path.stat().st_mtime_ns for path in seen}
    assert run_in_turn(FAST, SLOW, 4, tmp_path, Listens())[:3] == first
    assert {path: path.stat().st_mtime_ns for path in seen} == times
    assert len(list(tmp_path.rglob("seen"))) == 8


def test_each_pair_of_trainings_has_its_own_seed():
    train = Point(id="t", label="t", kind="train", options={"model": "m", "seed": 3})
    seeds = [(one.point.options["seed"], other.point.options["seed"]) for one, other in tasks_in_turn(train, train, 3, Path())]
    assert seeds == [(4, 4), (5, 5), (6, 6)]


def test_the_ratio_is_that_of_the_mean_logarithm_with_student_s_t():
    found = compare(OBJECTIVES["throughput"], results([(1.0, 1.0), (math.e, 1.0), (math.e**2, 1.0)]))
    half = 4.303 / math.sqrt(3)  # the logarithms 0, 1 and 2 have a standard deviation of 1
    assert found.ratio.value == pytest.approx(math.e)
    assert (math.log(found.ratio.low), math.log(found.ratio.high)) == (pytest.approx(1 - half), pytest.approx(1 + half))
    assert found.beats is False


def test_what_is_better_depends_on_the_objective_and_a_drift_of_both_does_not_matter():
    drifting = [(20.0 * drift, 10.0 * drift) for drift in (1.0, 3.0, 0.2, 7.0)]
    assert compare(OBJECTIVES["throughput"], results(drifting)).beats is True
    assert compare(OBJECTIVES["memory"], results(drifting, "peak_memory_bytes")).beats is False
    assert compare(OBJECTIVES["memory"], results([pair[::-1] for pair in drifting], "peak_memory_bytes")).beats is True
    accuracy = compare(OBJECTIVES["accuracy"], results([(0.9, 0.5), (0.8, 0.41), (0.7, 0.29)], "accuracy"))
    assert accuracy.ratio is None
    assert accuracy.difference.value == pytest.approx(0.4)
    assert accuracy.beats is True


def test_runs_that_failed_do_not_count_and_two_pairs_are_too_few():
    pairs = results([(2.0, 1.0), (2.0, 1.0), (2.0, 1.0)])
    pairs[1] = (Result(point="t", round=1, reason="out of memory"), pairs[1][1])
    found = compare(OBJECTIVES["throughput"], pairs)
    assert (found.pairs, found.ratio, found.beats) == (((2.0, 1.0), (2.0, 1.0)), None, None)


def test_equal_settings_seldom_look_like_a_gain():
    source = random.Random(0)
    tries = 2000
    false = sum(
        compare(
            OBJECTIVES["throughput"], results([(source.lognormvariate(0, 0.1), source.lognormvariate(0, 0.1)) for _ in range(5)])
        ).beats
        for _ in range(tries)
    )
    assert 0.01 < false / tries < 0.04  # one end of a 95 % interval
