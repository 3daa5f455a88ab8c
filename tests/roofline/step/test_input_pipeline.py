"""How steps are fed: what was measured of the input, who sets the pace. Real loops are in tests/alone."""

import pytest
from msgspec.structs import replace

from rooflines.profiler.records import Environment, LoaderAlone, Loading, RunFile, StepTimes, Workload
from rooflines.roofline.advise.case import Case
from rooflines.roofline.advise.findings import find
from rooflines.roofline.advise.host import load_faster
from rooflines.roofline.analysis import Input, Rate, StepDivision
from rooflines.roofline.judge.step.input_pipeline import feeding, host_fraction, limited_by
from tests.samples import analysis as sample


def facts(loading, timed=(100, 100, 100, 100), device="cpu"):
    """Milliseconds to a run's facts."""
    return RunFile(
        workload=Workload(name="x", mode="training", unit="images"),
        environment=Environment(rooflines="0", device=device, device_name="d"),
        steps=StepTimes(timed_ns=tuple(t * 10**6 for t in timed)),
        loading=loading,
    )


def loaded(waits=(40, 40, 40, 40), **more):
    known = {"timed_batches": (1,) * len(waits), "timed_samples": (32,) * len(waits)}
    return Loading(loader="DataLoader", timed_wait_ns=tuple(t * 10**6 for t in waits), **{**known, **more})


def test_rates_of_loader_and_step():
    alone = LoaderAlone(batch_ns=(50_000_000,) * 8, samples=(32,) * 8)
    found = feeding(facts(loaded(alone=alone)), None)
    assert (found.wait_s, found.delay_s, found.unit) == (0.04, 0.04, "images")
    assert found.wait_fraction == found.delay_fraction == pytest.approx(0.4)
    assert (found.loader_rate.per_s, found.loader_rate.ci95_per_s) == (pytest.approx(640), pytest.approx((640, 640)))
    assert (found.step_rate.per_s, found.step_rate.how) == (pytest.approx(32 / 0.06), "derived")
    measured = feeding(facts(loaded(alone=alone, resident_ns=(20_000_000,) * 3)), None)
    assert (measured.step_rate.per_s, measured.step_rate.how) == (pytest.approx(1600), "measured")


def test_workers_deliver_in_bursts_and_their_rate_is_over_all_of_it():
    alone = LoaderAlone(batch_ns=(90_000_000, 0, 0) * 5 + (90_000_000,), samples=(32,) * 16)
    found = feeding(facts(loaded(alone=alone, workers=3)), None).loader_rate
    assert found.per_s == pytest.approx(32 * 3 / 0.09)
    assert found.ci95_per_s == pytest.approx((found.per_s, found.per_s)), "every burst is as long as the others"


def test_batches_that_do_not_tell_their_samples_are_counted_themselves():
    alone = LoaderAlone(batch_ns=(50_000_000,) * 4)
    found = feeding(facts(loaded(timed_samples=(), alone=alone)), None)
    assert (found.unit, found.loader_rate.per_s, found.step_rate.per_s) == ("batches", pytest.approx(20), pytest.approx(1 / 0.06))


def test_batches_that_were_ready_when_the_pass_began_do_not_count():
    waits, timed = (0, 0, 50, 50, 50, 50), (50, 50, 100, 100, 100, 100)
    found = feeding(facts(loaded(waits, workers=2, prefetched=2), timed), None)
    assert (found.wait_fraction, found.is_lower_bound) == (0.5, False)
    found = feeding(facts(loaded(waits, workers=4, prefetched=8), timed), None)
    assert (found.wait_fraction, found.is_lower_bound) == (0.4, True)


def test_a_device_is_delayed_only_by_what_the_trace_shows_it_idle_for():
    division = StepDivision(of="device", step_s=0.1, data_loading_s=0.01, forward_s=0.09)
    found = feeding(facts(loaded(), device="cuda:0"), division)
    assert (found.wait_s, found.delay_s, found.delay_fraction) == (0.04, 0.01, pytest.approx(0.1))
    assert found.step_rate.per_s == pytest.approx(32 / 0.09)
    blind = feeding(facts(loaded(), device="cuda:0"), None)
    assert (blind.wait_s, blind.delay_s, blind.step_rate) == (0.04, None, None)


def test_no_loader_or_no_timed_step_is_no_input():
    assert feeding(facts(None), None) is None
    assert feeding(facts(loaded(()), ()), None) is None


def fed(wait=0.4, loader=None, step=None, **more):
    """The sample with an input: the share of the wait, and rates."""
    rates = {name: Rate(per_s=value) for name, value in (("loader_rate", loader), ("step_rate", step)) if value is not None}
    median = sample().steps.median_s
    known = {"loader": "DataLoader", "unit": "images", "wait_s": wait * median, "wait_fraction": wait, "delay_s": wait * median}
    return replace(sample(), input=Input(**{**known, "delay_fraction": wait, **rates, **more}))


@pytest.mark.parametrize(
    ("analysis", "limit"),
    [
        (fed(0.4, 100, 200), "input"),
        (fed(0.4, 200, 100), None),  # the loader keeps up: it only does not load ahead
        (fed(0.05, 100, 200), None),
        (fed(0.4), "input"),
        (fed(0.2), None),
        (sample(), None),
    ],
)
def test_the_input_sets_the_pace_where_it_is_waited_for_and_slower(analysis, limit):
    assert limited_by(analysis) == limit


def test_the_host_sets_the_pace_where_it_takes_the_most():
    division = StepDivision(of="host", step_s=0.1, forward_s=0.04, host_s=0.06)
    idle = replace(sample(), division=division, bound_breakdown={"memory": 0.04, "host": 0.06})
    assert (limited_by(idle), host_fraction(idle)) == ("host", 0.6)
    busy = replace(idle, bound_breakdown={"memory": 0.06, "host": 0.04})
    assert limited_by(busy) is None
    # Half of the step is waiting for a loader that is the faster one: the host has its share of the other half.
    division = StepDivision(of="host", step_s=0.2, data_loading_s=0.1, forward_s=0.04, host_s=0.06)
    breakdown = {"input": 0.1, "memory": 0.04, "host": 0.06}
    waiting = replace(fed(0.5, 200, 100), division=division, bound_breakdown=breakdown)
    assert (limited_by(waiting), host_fraction(waiting)) == (None, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        (
            {"workers": 0},
            "num_workers=1, persistent_workers=True): the next batches load while the step runs; torch.set_num_threads(1)",
        ),
        ({"workers": 2, "workers_busy_fraction": 0.1}, "num_workers=4, prefetch_factor=4): the workers wait for storage"),
        ({"workers": 2, "workers_busy_fraction": 0.95}, "decode and resize the data once"),
        ({"workers": 1, "workers_busy_fraction": 0.95}, "num_workers=2)"),
        ({}, "load ahead of the step"),
    ],
)
def test_advice_fits_the_loader(more, advice):
    analysis = fed(0.5, 100, 200, **more)
    analysis = replace(analysis, environment=replace(analysis.environment, cpu_threads=2))
    found = load_faster(Case(analysis))
    assert advice in found.suggestion
    assert "pin_memory" not in found.suggestion
    assert found.saves_s == analysis.input.delay_s
    assert "the loader alone delivers 100 images/s, the step alone could take 200 images/s (measured)" in found.evidence
    assert found.title in [finding.title for finding in find(analysis)]


@pytest.mark.parametrize(
    ("processors", "workers", "advice"),
    [
        (16, 0, "num_workers=2, persistent_workers=True): the next batches load while the step runs; or"),
        (3, 2, "torch.set_num_threads(1)"),
    ],
)
def test_threads_leave_processors_to_the_workers(processors, workers, advice):
    analysis = fed(0.5, 100 if workers == 0 else 300, 200, workers=workers)
    analysis = replace(analysis, environment=replace(analysis.environment, cpu_threads=processors))
    assert advice in load_faster(Case(analysis)).suggestion


def test_a_loader_that_keeps_up_is_told_so_and_pageable_copies_are_pinned():
    analysis = fed(0.2, 300, 200, workers=2, pin_memory=False)
    copies = StepDivision(of="device", step_s=0.1, data_loading_s=0.02, host_to_device_s=0.01, forward_s=0.07)
    found = load_faster(Case(replace(analysis, division=copies)))
    assert "the loader alone keeps up" in found.suggestion
    assert "pin_memory=True" in found.suggestion
    assert load_faster(Case(fed(0.04, 100, 200))) is None, "fed well enough"


def test_a_long_wait_in_one_step_of_fifty_is_no_part_of_the_median_step():
    waits, timed = (1,) * 49 + (150,), (18,) * 49 + (168,)
    found = feeding(facts(loaded(waits), timed), None)
    assert (found.wait_s, found.wait_fraction) == pytest.approx((1e-3, 1 / 18))
    rare = found.rare_waits
    assert (rare.steps, rare.of, rare.wait_s, rare.fraction) == (1, 50, 0.15, pytest.approx(150 / (49 * 18 + 168)))


def test_waits_that_come_back_count():
    """A loader with workers delivers in bursts: one step in eight waits."""
    waits, timed = ((0,) * 7 + (80,)) * 6, ((10,) * 7 + (90,)) * 6
    found = feeding(facts(loaded(waits), timed), None)
    assert (found.wait_s, found.rare_waits) == (pytest.approx(10e-3), None)
