"""The passes on a GPU, with a device that is not there: its numbers of steps, the order of its events, and its clock."""

import os

import msgspec
import pytest
import torch
from torch import nn

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.step_clock import StepClock
from rooflines.profiler.machine.environment import collect_environment
from rooflines.profiler.record import device as device_module
from rooflines.profiler.record import passes, step_counts
from rooflines.profiler.record.collect import Recording, collect
from rooflines.profiler.record.device import RecordedDevice, wall_step_ns
from rooflines.profiler.record.passes import TRACED_STEPS
from rooflines.profiler.record.step_counts import WarmUp, planned_steps
from rooflines.profiler.record.tracer import Tracer
from rooflines.profiler.records import WALL_CLOCK, Settings, Workload
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.reports.words.sentences import steps_sentences
from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.analyze import analyze

CPU = torch.device("cpu")
GPU = torch.device("cuda", 1)
MODEL = Workload(name="m", mode="inference", source="step")
LOOP = Workload(name="m", mode="inference", source="loop")
MS = 1_000_000


class Events(StepClock):
    """The host's clock as a GPU's events, which see ``share`` of the time."""

    def __init__(self, share):
        super().__init__(CPU)
        self._share = share

    def go_on(self):
        self._begun = self._spans[-1][1]

    def take_ns(self):
        return [round(one * self._share) for one in super().take_ns()]


class Noted(SamplerProcess):
    """A sampler that only notes when it is started and stopped."""

    def __init__(self, path, noted):
        super().__init__(os.getpid(), path, gpus={})
        self._noted = noted

    def start(self):
        self._noted.append("sampler starts")

    def stop(self):
        self._noted.append("sampler stops")


class Memory:
    """A GPU's allocator."""

    kind = "allocator"

    def start(self):
        pass

    def bytes(self):
        return 123


class GpuDouble(RecordedDevice):
    """``cuda:1`` whose work the host does. ``noted`` is what was asked of it and which steps were made, in order.

    ``shown`` are devices that the program's first steps are on.
    """

    def __init__(self, *, found=True, share=1.0, shown=()):
        super().__init__(GPU if found else None)
        self.noted = []
        self._share = share
        self._shown = list(shown)

    def find(self, parameters):
        self.torch_device, self.is_found = self._shown.pop(0) if self._shown else GPU, True
        self.noted.append(f"found {self}")

    def environment(self):
        return msgspec.structs.replace(collect_environment("cpu"), device=str(self))

    def synchronize(self):
        pass

    def step_clock(self):
        return Events(self._share) if self.type == "cuda" else StepClock(CPU, self.synchronize)

    def peak_memory(self):
        return Memory() if self.type == "cuda" else super().peak_memory()

    def tracer(self, *, steps, modules, **_):
        self.noted.append("tracer")
        return Tracer(lambda: CPU, cuda=False, steps=steps, modules=modules, guard=Guard())

    def sampler(self, path):
        assert self.is_found, "the GPUs to be sampled were not known"
        return Noted(path, self.noted)

    def tf32(self):
        return {}


NETWORK, X = nn.Linear(4, 4), torch.ones(2, 4)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Passes of a few steps."""
    monkeypatch.setattr(passes, "BUSY_S", 1e-9)  # one step
    monkeypatch.setattr(device_module, "SYNCHRONIZE_NS", 10**12)  # other processes do not make wall time of events
    monkeypatch.setattr(step_counts, "SETTLE_LIMIT", 1e9)  # settled as soon as there are six to compare
    monkeypatch.setattr(step_counts, "GPU_TIMED_STEPS", 300)
    monkeypatch.setattr(step_counts, "GPU_ENERGY_S", 0.0)


def put(device, monkeypatch):
    monkeypatch.setattr("rooflines.profiler.record.collect.RecordedDevice", lambda _: device)


def model(device, directory, monkeypatch, **settings):
    put(device, monkeypatch)

    def step():
        device.noted.append("step")
        NETWORK(X)

    return collect(step, Recording(directory, MODEL, CPU, settings=Settings(**settings), traced_steps=0))


def loop(device, directory, monkeypatch, made, **settings):
    put(device, monkeypatch)
    with Recording(directory, LOOP, None, settings=Settings(**settings)) as recording:
        for _ in range(made):
            device.noted.append("step")
            NETWORK(X)
            recording.step()
    return recording.run


@pytest.fixture
def _real(monkeypatch):
    monkeypatch.undo()


@pytest.mark.usefixtures("_real")
@pytest.mark.parametrize(("step_s", "gpu", "ours", "program"), [
    (None, True, 5, 5),
    (0.0001, True, 10_000, 50),  # one second; more are not kept
    (0.0005, True, 5000, 50),  # 2.5 s, which a counter of energy resolves
    (0.003, True, 1667, 50),  # 5 s
    (0.5, True, 10, 10),
    (4.0, True, 5, 5),
    (7.0, True, 3, 3),
    (0.00001, False, 5000, 50),  # half a second would be more than are kept
    (0.0005, False, 1000, 50),  # half a second
    (0.003, False, 167, 50),
    (0.02, False, 100, 50),
    (0.5, False, 10, 10),
    (7.0, False, 3, 3),
])  # fmt: skip
def test_steps_on_a_gpu_take_up_to_five_seconds(step_s, gpu, ours, program):
    assert planned_steps(step_s, gpu=gpu, program=False) == ours
    assert planned_steps(step_s, gpu=gpu, program=True) == program


@pytest.mark.usefixtures("_real")
def test_steps_keep_a_gpu_busy_before_they_may_settle():
    warm = WarmUp(None, busy_s=0.5)
    while not warm.is_over():
        warm.add(10 * MS if warm.times_ns else 900 * MS)
    assert sum(warm.times_ns[1:]) == 500 * MS
    assert warm.settled
    restless = WarmUp(None, most=8, busy_s=0.5)
    while not restless.is_over():
        restless.add((1 + len(restless.times_ns)) * 100 * MS)
    # The second and third take 0.2 + 0.3 s; from the third on it had eight to settle.
    assert (len(restless.times_ns), restless.settled) == (2 + 8, False)


@pytest.mark.parametrize(("asked", "noted"), [
    ({"steps": 4}, ["step", "sampler starts", *["step"] * (5 + 4)]),  # before the warm-up goes on
    # between a warm-up that was asked for and the timed steps nothing is started
    ({"warmup": 0, "steps": 2}, ["sampler starts", "step", "step"]),
    ({"warmup": 1, "steps": 2}, ["sampler starts", "step", "step", "step"]),
    ({"warmup": 2, "steps": 2}, ["step", "sampler starts", "step", "step", "step"]),
])  # fmt: skip
def test_the_sampler_starts_before_the_last_steps_of_the_warm_up_and_not_before_the_timed_steps(tmp_path, monkeypatch, asked, noted):
    device = GpuDouble()
    steps = model(device, tmp_path / "run", monkeypatch, **asked).facts.steps
    assert device.noted == [*noted, "sampler stops"]
    assert (steps.clock, len(steps.warmup_ns), len(steps.timed_ns)) == ("cuda events", asked.get("warmup", 6), asked["steps"])


def test_a_long_program_is_traced_after_fifty_steps_and_timed_further(tmp_path, monkeypatch):
    device = GpuDouble(found=False)
    run = loop(device, tmp_path / "run", monkeypatch, 2000)
    steps = run.facts.steps
    # The first step, the early traced one, six of warm-up, a traced one and one after it; then fifty timed, twenty traced, one that is
    # not timed, and what is missing from three hundred.
    assert device.noted[: device.noted.index("sampler stops")] == [
        "tracer", "step", "found cuda:1", "tracer", "step", "found cuda:1",
        "sampler starts", *["step"] * 6, "tracer", *["step"] * (2 + 50),
        "tracer", *["step"] * (TRACED_STEPS + 1 + 250),
    ]  # fmt: skip
    assert (len(steps.timed_ns), len(steps.traced_ns), steps.traced) == (300, TRACED_STEPS, "steps")
    # The stretch that took longer; on a busy machine that may be the shorter one.
    assert steps.timed_stretch.steps in {50, 250}
    assert steps.clock == "cuda events"
    assert run.facts.notes == ()


def test_a_program_that_ends_while_it_is_timed_further_is_whole(tmp_path, monkeypatch):
    run = loop(GpuDouble(found=False), tmp_path / "run", monkeypatch, 10 + 50 + TRACED_STEPS + 1 + 7)
    steps = run.facts.steps
    assert (len(steps.timed_ns), len(steps.traced_ns)) == (57, TRACED_STEPS)
    assert run.facts.notes == ()
    assert run.facts.peak_memory_bytes == 123


def test_steps_that_were_asked_for_are_all(tmp_path, monkeypatch):
    steps = loop(GpuDouble(found=False), tmp_path / "run", monkeypatch, 500, steps=7, warmup=3).facts.steps
    assert (len(steps.warmup_ns), len(steps.timed_ns), len(steps.traced_ns)) == (3, 7, TRACED_STEPS)


@pytest.mark.parametrize("made", [0, 1, 40])
def test_the_run_is_of_the_device_that_the_first_step_shows(tmp_path, monkeypatch, made):
    device = GpuDouble(found=False)
    put(device, monkeypatch)
    with Recording(tmp_path / "run", LOOP, None) as recording:
        assert recording.device == CPU
        for _ in range(made):
            NETWORK(X)
            recording.step()
            assert recording.device == GPU
        NETWORK(X)
    facts = recording.run.facts
    assert facts.environment.device == "cuda:1"
    assert (facts.peak_memory_kind, facts.peak_memory_bytes) == ("allocator", 123)
    assert facts.steps.clock == ("cuda events" if made > 1 else facts.steps.clock)
    assert device.noted.count("found cuda:1") == max(1, min(made, 2))


@pytest.mark.parametrize("evaluated", [False, True], ids=["tried on the CPU", "evaluated on the CPU"])
def test_training_on_a_gpu_after_steps_on_the_cpu_is_recorded_on_the_gpu(tmp_path, monkeypatch, evaluated):
    device = GpuDouble(found=False, shown=[CPU, CPU] if evaluated else [CPU])
    put(device, monkeypatch)
    with Recording(tmp_path / "run", LOOP, None, settings=Settings(steps=5)) as recording:
        for number in range(45):
            if number == 4 and evaluated:
                recording.passes.restart()
            NETWORK(X)
            recording.step()
    facts = recording.run.facts
    assert [one for one in device.noted if one.startswith("found")] == ["found cpu"] * (1 + evaluated) + ["found cuda:1"]
    assert (facts.environment.device, facts.peak_memory_kind) == ("cuda:1", "allocator")
    assert (facts.steps.clock, len(facts.steps.timed_ns)) == ("cuda events", 5)


def test_without_warm_up_the_first_steps_stay_on_the_clock_that_they_began_with(tmp_path, monkeypatch):
    device = GpuDouble(found=False)
    device.sampler = lambda path: Noted(path, device.noted)  # no GPU is sampled that nobody knows
    steps = loop(device, tmp_path / "run", monkeypatch, 10, warmup=0, steps=5).facts.steps
    assert (len(steps.timed_ns), steps.clock) == (5, "perf_counter")


@pytest.mark.usefixtures("_real")
@pytest.mark.parametrize(("events_ms", "wall_ms", "step_ms"), [
    ([100, 100], 200, None),
    ([100, 100], 205, None),  # 2.5 %
    ([100, 100], 210, 105),  # 5 %
    ([1, 1, 1, 1], 400, 100),  # nearly all of it on another stream
    ([100, 110], 200, 100),  # events do not agree with the host
    ([], 5, None),
])  # fmt: skip
def test_wall_time_counts_where_the_events_miss_more_than_three_percent(events_ms, wall_ms, step_ms):
    found = wall_step_ns([one * MS for one in events_ms], wall_ms * MS)
    assert found == (None if step_ms is None else step_ms * MS)


def test_what_a_synchronize_takes_is_no_other_stream():
    allowed_ns = device_module.SYNCHRONIZE_NS
    assert wall_step_ns([1000], 1000 + allowed_ns) is None
    assert wall_step_ns([1000], 1002 + allowed_ns) == 1002 + allowed_ns


@pytest.mark.parametrize("program", [False, True])
def test_steps_on_other_streams_have_their_mean_wall_time_and_no_interval(tmp_path, monkeypatch, program):
    device = GpuDouble(found=not program, share=0.5)
    monkeypatch.setattr(device_module, "SYNCHRONIZE_NS", 0)
    run = loop(device, tmp_path / "run", monkeypatch, 2000) if program else model(device, tmp_path / "run", monkeypatch, steps=40)
    steps = run.facts.steps
    assert steps.clock == WALL_CLOCK
    assert len(set(steps.timed_ns)) == 1
    # Of the program the first fifty were timed apart from the others, which replace them.
    assert len(steps.timed_ns) == (250 if program else 40)
    note = run.facts.notes[0]
    assert note.startswith(f"CUDA events of {50 if program else 40} steps add up to ")
    assert note.endswith("they use other streams as well, so the step time is the wall time divided by the steps")
    found = analyze(run).analysis
    assert (found.steps.ci95_s, found.steps.durations_s) == (None, ())
    assert found.steps.median_s == pytest.approx(steps.timed_ns[0] / 1e9)
    assert steps_sentences(found)[0].endswith(
        f": wall time of {len(steps.timed_ns)} steps with the profiler off, divided by their number; no interval."
    )
    if program:
        assert "250 steps timed together" in verdict(found)
