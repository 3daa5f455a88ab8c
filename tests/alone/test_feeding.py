"""Loops whose loader or host takes a known time: their shares are measured, so no other test may run meanwhile."""

import io
import statistics
import textwrap
import time

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, Dataset

import rooflines
from rooflines.pipeline.options import ProfileOptions
from rooflines.pipeline.recording import profile_script
from rooflines.profiler.record import data_loading
from rooflines.reports.page import run as view
from rooflines.reports.render.terminal import print_page
from rooflines.roofline.advise.findings import find
from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.judge.step.input_pipeline import host_fraction, input_fraction, loader_is_slower
from tests.commands import write_ceilings
from tests.integrations.reports import alone

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci

SHARE = 0.05  # how exactly a share must come out

WARMUP, STEPS, PROBE = 2, 8, 1
BATCH = 4


@pytest.fixture
def briefly(monkeypatch):
    """The loader alone for a fraction of the time."""
    monkeypatch.setattr(data_loading, "ALONE_S", 0.3)
    monkeypatch.setattr(data_loading, "RESIDENT_S", 0.1)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other on a machine that others use would take longer than the naps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    assert verdict(alone(found)).split(" step, ")[1].split(". ")[1].startswith("Input-bound: ")
    assert found.input.wait_fraction == pytest.approx(timed, abs=SHARE)
    assert input_fraction(found) == pytest.approx(found.input.wait_fraction)
    assert found.division.data_loading_s / found.division.step_s == pytest.approx(timed, abs=SHARE)
    assert found.division.loader_s * 1e9 == pytest.approx(traced * statistics.mean(run.facts.steps.traced_ns), rel=0.2)
    assert host_fraction(found) < 1 - timed
    # Alone it naps as well; the step without it does not.
    assert found.input.loader_rate.per_s < BATCH / 0.03
    assert loader_is_slower(found) is True
    assert (found.input.step_rate.how, found.input.workers) == ("derived", 0)
    assert run.facts.workload.batch_size == BATCH
    traced = slept_ns[WARMUP + STEPS + PROBE :][: len(run.facts.steps.traced_ns)]
    assert run.facts.loading.traced_wait_ns == pytest.approx(traced, rel=0.2)
    best = find(alone(found))[0]
    assert best.title == "Load the data faster than the step consumes it"
    assert best.saves_s == found.input.delay_s


def test_a_loop_whose_host_is_slow_is_host_bound_with_its_share(tmp_path, briefly):
    run, found, _, slept_ns = train(tmp_path, host_s=0.03)
    _, traced = shares(run, slept_ns)
    assert found.limited_by == "host"
    assert "Host-bound: for " in verdict(alone(found))
    assert "Input-bound" not in verdict(alone(found))
    # Python between the operators is the host's as well, and longer where another program has the processor.
    assert found.division.host_s / found.division.step_s > traced - SHARE
    assert host_fraction(found) <= 1 - input_fraction(found)
    assert input_fraction(found) < host_fraction(found) / 2
    assert find(alone(found))[0].title == "Run less Python between the operators"


def test_with_both_slow_the_slower_one_is_named(tmp_path, briefly):
    for name, loader_s, host_s in (("input", 0.04, 0.01), ("host", 0.01, 0.04)):
        (tmp_path / name).mkdir()
        run, found, loaded_ns, slept_ns = train(tmp_path / name, loader_s=loader_s, host_s=host_s)
        assert found.limited_by == name
        assert found.input.wait_fraction == pytest.approx(shares(run, loaded_ns)[0], abs=SHARE)
        waited, slept = shares(run, loaded_ns), shares(run, slept_ns)
        expected = (1 - waited[0]) * slept[1] / (1 - waited[1])
        assert expected - 2 * SHARE < host_fraction(found) <= 1 - waited[0] + SHARE, "the trace divides what was not waited"


def test_a_loop_of_matrix_products_is_neither(tmp_path, briefly):
    _, found, _, _ = train(tmp_path, width=20_000)
    assert found.limited_by is None
    assert found.division.forward_s + found.division.backward_s + found.division.optimizer_s > 0.5 * found.division.step_s
    assert not {"Input-bound", "Host-bound"} & set(verdict(alone(found)).replace(":", "").split())


def test_workers_that_nap_are_seen_to_have_idle_processors(tmp_path, briefly):
    _, found, _, _ = train(tmp_path, loader_s=0.06, workers=2)
    assert found.limited_by == "input"
    assert (found.input.workers, found.input.ready_batches) == (2, 4)
    assert found.input.workers_busy_fraction < 0.5
    assert "prefetch_factor" in find(alone(found))[0].suggestion
    # Two workers deliver twice as fast as one naps: nothing above that is within the error of the measurement.
    low, _ = found.input.loader_rate.ci95_per_s
    assert low < 2 * BATCH / 0.06


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
    assert len(taken) == 1 + 3 + PROBE + len(r.run.facts.steps.traced_ns)
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
        folder / "train.py",
        [],
        ProfileOptions(device="cpu", steps=3, warmup=1, ceilings=ceilings, output=folder / "out", formats=("json",)),
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
    print_page(view.page(found), Console(file=shown, width=100))
    text = " ".join(shown.getvalue().split())
    assert "Input-bound: " in verdict(alone(found))
    assert "Time per step by part share part time % ms" in text
    assert "The step alone was measured on a batch in memory." in text


def test_a_script_whose_step_cannot_be_repeated_is_recorded_all_the_same(tmp_path, briefly):
    source = SCRIPT.replace('batch.pop("x")', 'batch["x"]')
    source += "        assert batch['x'].add_(1).max() < 4, 'the same again'\n"
    recorded = profiled(source, tmp_path).facts
    assert recorded.status == "complete"
    assert recorded.loading.resident_ns == ()
    assert "the step could not be repeated on its last batch: the same again" in recorded.notes


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
