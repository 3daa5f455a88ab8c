"""How steps are fed: what was measured of the input, who sets the pace, loops whose loader or host is slow by a known time."""

from __future__ import annotations

import io
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, Dataset

import rooflines
from rooflines.pipeline.recording import profile_script
from rooflines.profiler import data_loading
from rooflines.profiler.records import Environment, LoaderAlone, Loading, RunFile, StepTimes, Workload
from rooflines.reports.terminal import print_analysis
from rooflines.roofline.advice.case import Case
from rooflines.roofline.advice.input import load_faster
from rooflines.roofline.analysis import Analysis, Input, Rate, StepDivision
from rooflines.roofline.feeding import feeding, host_fraction, input_fraction, limited_by, loader_is_slower
from rooflines.roofline.findings import find
from tests.commands import write_ceilings
from tests.samples import analysis as sample

pytestmark = pytest.mark.alone

TRACES = sorted((Path(__file__).parent.parent / "data" / "traces").rglob("*.json.gz"))
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SHARE = 0.05  # how exactly a share must come out


def test_training_that_is_known_to_wait_for_its_loader():
    """The tutorial's ResNet-50: its batches are decoded in the main process."""
    found = rooflines.analyze(next(path for path in TRACES if path.name.startswith("resnet50_v100")))
    assert found.limited_by == "input"
    assert found.verdict.startswith("Input-bound: for 33 % of the step")
    assert "Load the data ahead of the step" in [finding.title for finding in found.findings]
    assert sum(found.bound_breakdown.values()) == pytest.approx(found.timeline.span_s, rel=1e-6)
    assert found.bound_breakdown["input"] == pytest.approx(found.idle_breakdown["data_loading_s"])


# --- what was measured of the input ------------------------------------------------------------------------------------------------


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
    assert found.loader_rate.per_s == pytest.approx(640)
    assert found.loader_rate.ci95_per_s == pytest.approx((640, 640))
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


# --- who sets the pace -------------------------------------------------------------------------------------------------------------


def fed(wait=0.4, loader=None, step=None, **more):
    """The sample with an input: the share of the wait, and rates."""
    rates = {name: Rate(per_s=value) for name, value in (("loader_rate", loader), ("step_rate", step)) if value is not None}
    median = sample().steps.median_s
    known = {"loader": "DataLoader", "unit": "images", "wait_s": wait * median, "wait_fraction": wait, "delay_s": wait * median}
    return msgspec.structs.replace(sample(), input=Input(**{**known, "delay_fraction": wait, **rates, **more}))


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
    idle = msgspec.structs.replace(sample(), division=division, bound_breakdown={"memory": 0.04, "host": 0.06})
    assert (limited_by(idle), host_fraction(idle)) == ("host", 0.6)
    busy = msgspec.structs.replace(idle, bound_breakdown={"memory": 0.06, "host": 0.04})
    assert limited_by(busy) is None
    # Half of the step is waiting for a loader that is the faster one: the host has its share of the other half.
    division = StepDivision(of="host", step_s=0.2, data_loading_s=0.1, forward_s=0.04, host_s=0.06)
    breakdown = {"input": 0.1, "memory": 0.04, "host": 0.06}
    waiting = msgspec.structs.replace(fed(0.5, 200, 100), division=division, bound_breakdown=breakdown)
    assert (limited_by(waiting), host_fraction(waiting)) == (None, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"workers": 0}, "num_workers=2, persistent_workers=True"),
        ({"workers": 2, "workers_busy_fraction": 0.1}, "num_workers=4, prefetch_factor=4): the workers wait for storage"),
        ({"workers": 2, "workers_busy_fraction": 0.95}, "decode and resize the data once"),
        ({"workers": 1, "workers_busy_fraction": 0.95}, "num_workers=2)"),
        ({}, "load ahead of the step"),
    ],
)
def test_advice_fits_the_loader(more, advice):
    analysis = fed(0.5, 100, 200, **more)
    analysis = msgspec.structs.replace(analysis, environment=msgspec.structs.replace(analysis.environment, cpu_threads=2))
    found = load_faster(Case(analysis))
    assert advice in found.suggestion
    assert "pin_memory" not in found.suggestion
    assert found.saves_s == analysis.input.delay_s
    assert "the loader alone delivers 100 images/s, the step alone could take 200 images/s (measured)" in found.evidence
    assert found.title in [finding.title for finding in find(analysis)]


def test_a_loader_that_keeps_up_is_told_so_and_pageable_copies_are_pinned():
    analysis = fed(0.2, 300, 200, workers=2, pin_memory=False)
    copies = StepDivision(of="device", step_s=0.1, data_loading_s=0.02, host_to_device_s=0.01, forward_s=0.07)
    found = load_faster(Case(msgspec.structs.replace(analysis, division=copies)))
    assert "the loader alone keeps up" in found.suggestion
    assert "pin_memory=True" in found.suggestion
    assert load_faster(Case(fed(0.04, 100, 200))) is None, "fed well enough"


# --- real loops --------------------------------------------------------------------------------------------------------------------

WARMUP, STEPS, PROBE = 2, 8, 1
BATCH = 4


@pytest.fixture
def briefly(monkeypatch):
    """The loader alone for a fraction of the time."""
    monkeypatch.setattr(data_loading, "ALONE_S", 0.3)
    monkeypatch.setattr(data_loading, "RESIDENT_S", 0.1)


class Naps(Dataset):
    """Each batch takes a known time, from the nap to the end of ``collate``, which it notes: of batch k in ``slept_ns[k]``."""

    def __init__(self, nap_s: float) -> None:
        self.nap_s = nap_s
        self.slept_ns: list[int] = []
        self.began = 0

    def __len__(self) -> int:
        return 10_000 * BATCH

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        self.began = time.perf_counter_ns()
        nap(self.nap_s)
        return [torch.ones(256) for _ in indices]

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        batch = torch.stack(samples)
        self.slept_ns.append(time.perf_counter_ns() - self.began)
        return batch


def nap(length_s: float) -> int:
    began = time.perf_counter_ns()
    if length_s:  # a sleep of 0 gives the processor away
        time.sleep(length_s)
    return time.perf_counter_ns() - began


def train(folder, loader_s=0.0, host_s=0.0, width=256, wrap=False, workers=0):
    """Record a loop whose loader and host take known times; the analysis and these times, by step."""
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data, slept_ns = Naps(loader_s), []
    loader = DataLoader(data, batch_size=BATCH, num_workers=workers, collate_fn=data.collate)
    with rooflines.record(
        folder / "run", steps=STEPS, warmup=WARMUP, ceilings=str(write_ceilings(folder)), formats=("json",), device="cpu"
    ) as r:
        for batch in r.loader(loader) if wrap else loader:
            loss = model(batch).square().mean()
            slept_ns.append(nap(host_s))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            r.step()
            if r.done:
                break
    return r.run, rooflines.analyze(r.run), data.slept_ns, slept_ns


def advised(found):
    """The findings as on a quiet machine: tests run beside others."""
    return find(msgspec.structs.replace(found, other_programs=None, steps=msgspec.structs.replace(found.steps, ci95_s=None)))


def shares(run, slept_ns):
    """The part of the timed and of the traced steps that was slept."""
    steps = run.facts.steps
    timed, traced = slept_ns[WARMUP : WARMUP + STEPS], slept_ns[WARMUP + STEPS + PROBE :][: len(steps.traced_ns)]
    return sum(timed) / sum(steps.timed_ns), sum(traced) / sum(steps.traced_ns)


@pytest.mark.parametrize("wrap", [False, True])
def test_a_loop_whose_loader_sleeps_is_input_bound_with_its_share(tmp_path, briefly, wrap):
    run, found, slept_ns, _ = train(tmp_path, loader_s=0.03, wrap=wrap)
    timed, traced = shares(run, slept_ns)
    assert found.limited_by == "input"
    assert found.verdict.split(" step, ")[1].split(". ")[1].startswith("Input-bound: for ")
    assert found.input.wait_fraction == pytest.approx(timed, abs=SHARE)
    assert input_fraction(found) == pytest.approx(found.input.wait_fraction)
    assert found.division.data_loading_s / found.division.step_s == pytest.approx(timed, abs=SHARE)
    assert found.division.loader_s * 1e9 == pytest.approx(traced * sum(run.facts.steps.traced_ns) / 3, rel=0.2)
    assert host_fraction(found) < 1 - timed
    # Alone it naps as well; the step without it does not.
    assert found.input.loader_rate.per_s < BATCH / 0.03
    assert loader_is_slower(found) is True
    assert (found.input.step_rate.how, found.input.workers) == ("derived", 0)
    assert run.facts.workload.batch_size == BATCH
    assert run.facts.loading.traced_wait_ns == pytest.approx(slept_ns[WARMUP + STEPS + PROBE :][:3], rel=0.2)
    best = advised(found)[0]
    assert best.title == "Load the data faster than the step takes it"
    assert best.saves_s == found.input.delay_s


def test_a_loop_whose_host_is_slow_is_host_bound_with_its_share(tmp_path, briefly):
    run, found, _, slept_ns = train(tmp_path, host_s=0.03)
    _, traced = shares(run, slept_ns)
    assert found.limited_by == "host"
    assert "Host-bound: for " in found.verdict
    assert "Input-bound" not in found.verdict
    # Python between the operators is the host's as well: here it is next to nothing beside the nap.
    assert found.division.host_s / found.division.step_s == pytest.approx(traced, abs=SHARE)
    assert input_fraction(found) < host_fraction(found) / 2
    assert advised(found)[0].title == "Keep the device busy"


def test_with_both_slow_the_slower_one_is_named(tmp_path, briefly):
    for name, loader_s, host_s in (("input", 0.04, 0.01), ("host", 0.01, 0.04)):
        (tmp_path / name).mkdir()
        run, found, loaded_ns, slept_ns = train(tmp_path / name, loader_s=loader_s, host_s=host_s)
        assert found.limited_by == name
        assert found.input.wait_fraction == pytest.approx(shares(run, loaded_ns)[0], abs=SHARE)
        waited, slept = shares(run, loaded_ns), shares(run, slept_ns)
        expected = (1 - waited[0]) * slept[1] / (1 - waited[1])
        assert host_fraction(found) == pytest.approx(expected, abs=2 * SHARE), "the trace divides what was not waited"


def test_a_loop_of_matrix_products_is_neither(tmp_path, briefly):
    _, found, _, _ = train(tmp_path, width=20_000)
    assert found.limited_by is None
    assert found.division.forward_s + found.division.backward_s + found.division.optimizer_s > 0.5 * found.division.step_s
    assert not {"Input-bound", "Host-bound"} & set(found.verdict.replace(":", "").split())


def test_workers_that_nap_are_seen_to_have_idle_processors(tmp_path, briefly):
    _, found, _, _ = train(tmp_path, loader_s=0.06, workers=2)
    assert found.limited_by == "input"
    assert (found.input.workers, found.input.ready_batches) == (2, 4)
    assert found.input.workers_busy_fraction < 0.5
    assert "prefetch_factor" in advised(found)[0].suggestion
    # Two workers deliver twice as fast as one naps.
    assert found.input.loader_rate.per_s < 2 * BATCH / 0.06


def test_iterators_and_generators_are_not_asked_for_more_than_the_loop_takes(tmp_path, briefly):
    taken = []

    def batches():
        for number in range(1000):
            taken.append(number)
            time.sleep(0.005)
            yield torch.ones(BATCH, 8)

    with rooflines.record(
        tmp_path / "run", steps=3, warmup=1, ceilings=str(write_ceilings(tmp_path)), formats=("json",), device="cpu"
    ) as r:
        for batch in r.loader(batches()):
            batch.sum()
            r.step()
            if r.done:
                break
    assert len(taken) == 1 + 3 + 4
    found = rooflines.analyze(r.run)
    assert found.input.loader_rate is None
    assert found.limited_by == "input", "most of the step is waiting, and nothing is known against it"
    assert found.input.loader == "generator"


def test_a_step_function_with_a_loader_is_run_on_resident_data(tmp_path, briefly):
    data = Naps(0.02)
    model = nn.Linear(256, 256)

    def batches():
        while True:
            yield from DataLoader(data, batch_size=BATCH, collate_fn=data.collate)

    fed_by = batches()
    recorded = rooflines.profile(
        lambda: model(next(fed_by)).sum(),
        steps=3, warmup=1, ceilings=str(write_ceilings(tmp_path)), formats=("json",), device="cpu", output=tmp_path / "run",
    )  # fmt: skip
    found = rooflines.analyze(recorded)
    assert found.limited_by == "input"
    assert found.input.step_rate.how == "measured"
    assert found.input.loader_rate.per_s < BATCH / 0.02
    assert found.workload.batch_size == BATCH
    following = [len(batch) for batch, _ in zip(fed_by, range(2), strict=False)]
    assert following == [BATCH, BATCH], "the loader goes on where it was"


def test_ctrl_c_while_the_loader_runs_alone_is_heard_when_the_run_is_on_disk(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(data_loading, "run_alone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    facts_ = rooflines.load(tmp_path / "run").facts
    assert facts_.status == "complete"
    assert len(facts_.loading.timed_wait_ns) == STEPS
    assert facts_.loading.alone is None


SCRIPT = """
    import time
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            while True:
                time.sleep(0.01)
                yield {"x": torch.ones(256)}

    model = torch.nn.Linear(256, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Stream(), batch_size=4):
        optimizer.zero_grad()
        model(batch.pop("x")).square().mean().backward()
        optimizer.step()
"""


def profiled(source, folder):
    (folder / "train.py").write_text(textwrap.dedent(source))
    ceilings = str(write_ceilings(folder))
    return profile_script(
        folder / "train.py", [], device="cpu", steps=3, warmup=1, ceilings=ceilings, output=folder / "out", formats=("json",)
    )


def test_a_script_that_is_stopped_gives_both_rates_measured(tmp_path, briefly):
    recorded = profiled(SCRIPT, tmp_path)
    found = rooflines.analyze(recorded)
    assert found.limited_by == "input"
    assert (found.input.step_rate.how, found.workload.batch_size) == ("measured", 4)
    assert found.input.loader_rate.per_s < 4 / 0.04 < found.input.step_rate.per_s
    assert len(recorded.facts.loading.resident_ns) >= 3
    assert recorded.facts.notes == ()
    shown = io.StringIO()
    print_analysis(found, Console(file=shown, width=100))
    text = " ".join(shown.getvalue().split())
    assert "Input-bound: for " in text
    assert "Time per step by part data loading" in text
    assert "The step alone was run on a batch that was there." in text


def test_a_script_whose_step_cannot_be_repeated_is_recorded_all_the_same(tmp_path, briefly):
    source = SCRIPT.replace('batch.pop("x")', 'batch["x"]')
    source += "        assert batch['x'].add_(1).max() < 4, 'the same again'\n"
    recorded = profiled(source, tmp_path).facts
    assert recorded.status == "complete"
    assert recorded.loading.resident_ns == ()
    assert "the step could not be run on its last batch again: the same again" in recorded.notes


def test_transforms_that_are_modules_are_no_steps_of_a_script(tmp_path, briefly):
    source = """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Images(Dataset):
            transform = torch.nn.ReLU()

            def __len__(self):
                return 400

            def __getitem__(self, index):
                return self.transform(torch.ones(8))

        model = torch.nn.Linear(8, 2)
        with torch.no_grad():
            for batch in DataLoader(Images(), batch_size=4):
                model(batch)
    """
    recorded = profiled(source, tmp_path).facts
    assert recorded.loading.timed_batches == (1, 1, 1)
    assert recorded.loading.timed_samples == (4, 4, 4)
    assert recorded.workload.mode == "inference"


def test_an_analysis_with_all_of_it_is_written_and_read():
    analysis = msgspec.structs.replace(fed(0.4, 100, 200), division=StepDivision(of="host", step_s=1.0, host_s=1.0), limited_by="input")
    assert Analysis.from_dict(analysis.to_dict()) == analysis
