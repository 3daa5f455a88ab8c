"""The collector's laws: what is on and off in each pass, how many steps, what the trace holds, and what is left behind."""

import gzip
import json
import os
import shutil
import threading
import time
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

import rooflines
from rooflines.errors import UsageError, WorkloadError
from rooflines.profiler.directory import JOURNAL_FILE, load
from rooflines.profiler.hooks.module_hooks import ModuleRanges
from rooflines.profiler.record import passes
from rooflines.profiler.record.collect import Recording, collect
from rooflines.profiler.record.data_loading import DataLoading
from rooflines.profiler.record.passes import TRACED_STEPS
from rooflines.profiler.record.process import RunQueue
from rooflines.profiler.records import Settings, Workload
from rooflines.profiler.samplers.storage import read_journal
from tests.processes import wait_until

CPU = torch.device("cpu")
WORKLOAD = Workload(name="net", mode="inference", batch_size=2)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Network(nn.Module):
    """``inner`` is called twice, ``outside`` is a module that no root knows of."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.blocks = nn.ModuleList([Inner(), Inner()])

    def forward(self, x):
        x = self.inner(self.inner(x))
        for block in self.blocks:
            x = block(x)
        return x


NETWORK = Network()
X = torch.randn(2, 8)


def forward():
    with torch.inference_mode():
        NETWORK(X)


def events(run):
    assert run.trace_path is not None
    with gzip.open(run.trace_path) as file:
        return json.load(file)["traceEvents"]


def ranges(run, prefix):
    return [event["name"] for event in events(run) if event["name"].startswith(prefix)]


def linears(run):
    return [event for event in events(run) if event["name"] == "aten::linear"]


def counts(run):
    steps = run.facts.steps
    return len(steps.warmup_ns), len(steps.timed_ns), len(steps.traced_ns)


def profiler_is_on():
    return torch.autograd.profiler._is_profiler_enabled  # of all threads, which torch._C does not tell


def hooks_are_on():
    return bool(hooks._global_forward_hooks or hooks._global_forward_pre_hooks)


# --- the three passes --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A run and, for each of its steps in turn, whether a profiler and hooks were on, and how many threads there were."""
    seen = []

    def step():
        seen.append((profiler_is_on(), hooks_are_on(), threading.active_count()))
        forward()

    directory = tmp_path_factory.mktemp("observed") / "run"
    run = collect(step, Recording(directory, WORKLOAD, CPU, settings=Settings(steps=4, warmup=2)))
    return run, seen


def test_warm_up_timed_and_traced_steps(observed):
    # Warm up and timed steps run with the profiler and all hooks off.
    _, seen = observed
    followed = [(False, True)]  # once more on fake tensors, when everything is measured
    assert [(profiler, hook) for profiler, hook, _ in seen] == [(False, False)] * 6 + [(True, True)] * (1 + TRACED_STEPS) + followed
    assert len({threads for _, _, threads in seen[:6]}) == 1, "a thread of ours ran beside the timed steps"
    # The numbers of steps are those asked for.
    steps = observed[0].facts.steps
    assert counts(observed[0]) == (2, 4, TRACED_STEPS)
    assert min(*steps.warmup_ns, *steps.timed_ns, *steps.traced_ns) > 0
    assert (steps.rule, steps.settled, steps.clock) == ("2 warm-up steps, as requested", None, "perf_counter")
    # The memory of a step is followed.
    memory = observed[0].facts.step_memory
    # Three linear layers with bias, 8 to 8 features; a batch of two and, at the peak, the input and output of a layer.
    assert memory.at_peak.parameters == 3 * 4 * (8 * 8 + 8)
    assert (memory.device, memory.phase) == ("cpu", "forward")


def test_a_step_of_the_users_own_is_not_called_again(tmp_path):
    seen = []
    workload = msgspec.structs.replace(WORKLOAD, source="step")
    run = collect(lambda: seen.append(0), Recording(tmp_path / "run", workload, CPU, settings=Settings(steps=4, warmup=2)))
    assert len(seen) == 2 + 4 + 1 + TRACED_STEPS
    assert run.facts.step_memory is None


def test_the_trace_has_a_range_per_step_and_the_names_of_modules(observed):
    run, _ = observed
    assert run.trace_path.name == "net.pt.trace.json.gz"
    assert sorted(ranges(run, "ProfilerStep#")) == sorted(f"ProfilerStep#{i}" for i in range(TRACED_STEPS))
    assert len(linears(run)) == TRACED_STEPS * 4
    assert all(event["args"]["Input Dims"][0] == [2, 8] for event in linears(run))
    found = ranges(run, "nn.Module: ")
    assert {name.removeprefix("nn.Module: "): found.count(name) // TRACED_STEPS for name in found} == {
        " (Network)": 1, "inner (Inner)": 2, "inner.layer (Linear)": 2, "blocks.0 (Inner)": 1, "blocks.0.layer (Linear)": 1,
        "blocks.1 (Inner)": 1, "blocks.1.layer (Linear)": 1,
    }  # fmt: skip


def test_nothing_is_left_on_and_the_run_is_complete(observed):
    run, _ = observed
    assert not profiler_is_on()
    assert not hooks_are_on()
    assert run.facts.status == "complete"
    assert run.facts.notes == ()
    assert run.facts.peak_memory_bytes > 10 << 20
    assert run.facts.peak_memory_kind == "resident set"
    assert load(run.directory).facts == run.facts
    assert not [path.name for path in run.directory.iterdir() if path.name.startswith(".")]


def test_samples_are_taken_beside_the_timed_pass(tmp_path):
    def samples():
        return read_journal(tmp_path / "run" / JOURNAL_FILE).samples

    recording = Recording(tmp_path / "run", WORKLOAD, CPU, settings=Settings(steps=4, warmup=0))
    run = collect(lambda: wait_until(lambda: len(samples()) >= 2), recording)
    assert len(run.samples) >= 2
    assert all(sample.process_rss_bytes for sample in run.samples)
    assert load(run.directory).samples == run.samples
    assert run.facts.steps.rule == "no warm-up, as requested"


# --- warm-up -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_without_numbers_the_step_times_decide(tmp_path):
    run = collect(forward, Recording(tmp_path / "run", WORKLOAD, CPU))
    steps = run.facts.steps
    assert 6 <= len(steps.warmup_ns) <= 50
    assert steps.settled is not None
    assert 5 <= len(steps.timed_ns) <= 5000
    assert len(steps.timed_queue_ns) in (0, len(steps.timed_ns))  # one for each step where the system counts it
    assert len(steps.traced_queue_ns) in (0, len(steps.traced_ns))


# --- the size of the trace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps_that_fit", "traced"), [(0.1, 1), (2.5, 2), (100, TRACED_STEPS)])
def test_a_trace_that_would_be_too_large_gets_fewer_steps_and_a_note(tmp_path, monkeypatch, observed, steps_that_fit, traced):
    with gzip.open(observed[0].trace_path) as file:
        size = len(file.read()) / TRACED_STEPS
    monkeypatch.setattr(passes, "TRACE_LIMIT_BYTES", int(size * steps_that_fit * 1.1))
    run = collect(forward, Recording(tmp_path / "run", WORKLOAD, CPU, settings=Settings(steps=1, warmup=1)))
    assert len(run.facts.steps.traced_ns) == len(ranges(run, "ProfilerStep#")) == traced
    expected = [f"traced {traced} step{'s' * (traced > 1)} instead of {TRACED_STEPS}: one step"] if traced < TRACED_STEPS else []
    assert [note[: len(text)] for note, text in zip(run.facts.notes, expected, strict=True)] == expected


def test_without_warm_up_the_first_step_is_timed_and_long_steps_are_traced_less_often(tmp_path, monkeypatch):
    run = loop(tmp_path / "short", 7, warmup=0)
    assert (counts(run), run.facts.steps.traced) == ((0, 2, 4), "steps")
    monkeypatch.setattr(passes, "TRACED_S", 0.0)
    run = collect(forward, Recording(tmp_path / "long", WORKLOAD, CPU, settings=Settings(steps=1, warmup=1)))
    assert len(run.facts.steps.traced_ns) == passes.TRACED_MIN_STEPS
    assert run.facts.notes == ()


@pytest.mark.ci
def test_long_steps_stay_within_the_budget(tmp_path):
    """A sixth of it for the warm-up; at least three timed steps and a traced one."""

    def step():
        time.sleep(0.25)
        forward()

    run = collect(step, Recording(tmp_path / "run", WORKLOAD, CPU, settings=Settings(budget_s=1.5)))
    times = run.facts.steps
    # A step that another program delays is timed again.
    assert 3 <= len(times.timed_ns) < 6
    assert len(times.traced_ns) == 1
    assert len(times.warmup_ns) <= 2
    assert run.facts.notes[0].startswith("step times had not settled when timing started: fewer than 6 steps")


# --- ends that nobody planned ------------------------------------------------------------------------------------------------------


LOOP = msgspec.structs.replace(WORKLOAD, source="loop")


def record(directory, **settings):
    return Recording(directory, LOOP, CPU, settings=Settings(**settings))


def steps_of(recording, count, work=forward):
    for _ in range(count):
        work()
        recording.step()


def loop(directory, taken, **settings):
    with record(directory, **{"steps": 2, "warmup": 1, **settings}) as recording:
        steps_of(recording, taken)
    return recording.run


@pytest.mark.ci
@pytest.mark.parametrize(("taken", "warmup", "timed", "traced", "kind", "note"), [
    (0, 0, 0, 0, "program", "the program ended early (0 warm-up steps, 0 timed, 0 traced): no operators were traced."),
    (1, 1, 0, 1, "program", "the program ended early (1 warm-up step, 0 timed, 1 traced): operators are those of the whole"),
    (2, 1, 0, 1, "early", "the program ended early (1 warm-up step, 0 timed, 1 traced): operators are those of one step"),
    (4, 1, 2, 1, "early", "the program ended early (1 warm-up step, 2 timed, 1 traced): operators are those of one step"),
    (6, 1, 2, 2, "steps", "the program ended early (1 warm-up step, 2 timed, 2 traced): operators are those of fewer steps"),
    (7, 1, 2, 3, "steps", ""),
    (40, 1, 2, TRACED_STEPS, "steps", ""),
])  # fmt: skip
def test_after_any_number_of_steps_there_is_the_best_report_that_they_allow(tmp_path, taken, warmup, timed, traced, kind, note):
    run = loop(tmp_path / "run", taken)
    assert run.facts.status == "complete"
    assert counts(run) == (warmup, timed, traced)
    assert [bool(note) and text.startswith(note) for text in run.facts.notes] == [True] * bool(note)
    assert (run.trace_path is not None) == (traced > 0)
    if traced:
        assert run.facts.steps.traced == kind
        assert run.facts.peak_memory_bytes > 10 << 20
        assert len(ranges(run, "ProfilerStep#")) == traced
        assert len(linears(run)) == traced * 4
    assert not profiler_is_on()
    assert not hooks_are_on()


@pytest.mark.parametrize(("taken", "stand_in"), [(3, 1), (4, 2), (5, 2), (7, 4)])
def test_steps_of_a_warm_up_that_the_program_ends_stand_for_timed_ones(tmp_path, taken, stand_in):
    run = loop(tmp_path / "run", taken, steps=None, warmup=None)
    # the first step, the early traced one, and the one behind it where there are enough
    assert counts(run) == (taken - 1 - stand_in, stand_in, 1)
    assert run.facts.steps.rule == f"the program ended during warm-up; timed steps are its last {stand_in} step{'s' * (stand_in > 1)}"


def test_when_warm_up_is_over_another_step_is_traced_and_the_one_behind_it_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr("rooflines.profiler.record.step_counts.SETTLE_LIMIT", 1e9)  # settled as soon as there are enough to compare
    marked = []
    with record(tmp_path / "run") as recording:
        for number in range(12):
            marked.append(profiler_is_on())
            steps_of(recording, 1, forward if number != 8 else lambda: NETWORK.inner(X))
    # the first step, the second, the one after six of warm-up
    assert marked == [True, True, *[False] * 6, True, *[False] * 3]
    assert (counts(recording.run)[:2], recording.run.facts.steps.traced) == ((8, 2), "early")
    assert len(linears(recording.run)) == 1, "the later one is kept"


def test_what_lies_between_a_pause_and_the_resumption_is_in_no_step(tmp_path):
    """Four timed steps, an evaluation before the third: that one has lost its beginning and does not count."""
    with record(tmp_path / "run", steps=4, warmup=2) as recording:
        for number in range(10):
            if number in (1, 5, 8):  # before the early traced step, in the timed pass, in the traced pass
                recording.pause()
                for _ in range(5):
                    forward()
                recording.resume()
            steps_of(recording, 1)
    run = recording.run
    assert counts(run) == (2, 3, 1)
    assert run.facts.steps.timed_stretch.steps == 2
    assert len(linears(run)) == 4, "the evaluation is not in the trace"
    assert recording.done


def test_where_every_step_follows_an_evaluation_all_of_them_count(tmp_path):
    with record(tmp_path / "run", steps=3, warmup=2) as recording:
        for _ in range(9):
            steps_of(recording, 1)
            recording.pause()
            forward()
            recording.resume()
    assert counts(recording.run) == (2, 3, 1)


def test_a_program_may_change_its_directory_and_delete_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with record(Path("run"), steps=2, warmup=1) as recording:
        steps_of(recording, 3)
        shutil.rmtree(tmp_path / "run")
        steps_of(recording, 4)
        os.chdir(tmp_path / "elsewhere")
    assert recording.run.directory == tmp_path / "run"
    assert load(tmp_path / "run").facts.status == "complete"
    assert recording.run.trace_path.is_file()


def test_a_process_that_is_killed_leaves_what_had_been_recorded(tmp_path):
    """The early trace is on disk as soon as there is one, and run.json names it."""
    with record(tmp_path / "run", steps=5, warmup=1) as recording:
        steps_of(recording, 3)
        facts = load(tmp_path / "run").facts
        assert (facts.status, facts.steps.traced, len(facts.steps.warmup_ns)) == ("running", "early", 1)
        assert (tmp_path / "run" / facts.trace).is_file()


@pytest.mark.ci
def test_steps_of_another_kind_begin_the_recording_again(tmp_path):
    with record(tmp_path / "run", steps=2, warmup=1) as recording:
        steps_of(recording, 6)
        recording.passes.restart()
        steps_of(recording, 6, lambda: NETWORK.inner(X))
    assert counts(recording.run)[1:] == (2, 2)
    assert len(linears(recording.run)) == 2


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Linear(7, 7))

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("good", [0, 1, 2, 3, 5])
def test_a_step_that_raises_in_any_pass_leaves_a_run_that_loads_and_nothing_on(tmp_path, good):
    taken = []

    def step():
        if len(taken) == good:
            Broken()(X)
        taken.append(forward())

    with pytest.raises(WorkloadError, match="net raised RuntimeError: mat1 and mat2") as caught:
        collect(step, Recording(tmp_path / "run", WORKLOAD, CPU, settings=Settings(steps=2, warmup=1)))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not profiler_is_on()
    assert not hooks_are_on()
    facts = load(tmp_path / "run").facts
    assert facts.status == "failed"
    assert facts.error.startswith("mat1 and mat2")
    assert len(facts.steps.warmup_ns) + len(facts.steps.timed_ns) == min(good, 3)


@pytest.mark.parametrize(("kind", "method", "call"), [(RunQueue, "since_ns", 3), (DataLoading, "take", 4)])
def test_ctrl_c_between_the_end_of_a_timed_step_and_what_is_noted_of_it(tmp_path, monkeypatch, kind, method, call):
    original, calls = getattr(kind, method), []

    def interrupted(*arguments, **options):
        calls.append(recording.passes.stage)
        if calls.count("timed") == call:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(kind, method, interrupted)
    with pytest.raises(KeyboardInterrupt), record(tmp_path / "run", warmup=1, steps=9) as recording:
        steps_of(recording, 40)
    run = load(tmp_path / "run")
    assert run.facts.status == "interrupted"
    assert len(run.facts.steps.timed_ns) == 2


def test_an_input_that_is_refused_at_once_leaves_nothing_but_what_was_there(tmp_path):
    def refuse():
        raise WorkloadError("too small.")

    (tmp_path / "there").mkdir()
    for name in ("new", "there"):
        with pytest.raises(WorkloadError, match=r"^too small\.$"):
            collect(refuse, Recording(tmp_path / name, WORKLOAD, CPU, settings=Settings(warmup=0)))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.ci
def test_a_recording_in_a_recording_or_a_profiler_is_refused_and_the_outer_one_goes_on(tmp_path):
    with Recording(tmp_path / "outer", WORKLOAD, CPU, settings=Settings(steps=1, warmup=1)) as outer:
        with pytest.raises(UsageError, match=r"already being recorded into '.*outer'"):
            loop(tmp_path / "inner", 1)
        steps_of(outer, 6)
    assert outer.run.facts.status == "complete"
    with torch.profiler.profile(), pytest.raises(UsageError, match="a torch profiler is already running"):
        rooflines.profile(NETWORK, X, output=tmp_path / "inner")
    assert not (tmp_path / "inner").exists()
    assert loop(tmp_path / "next", 7).facts.notes == ()


# --- module ranges -----------------------------------------------------------------------------------------------------------------


def named(work):
    """The module ranges that ``work`` makes, as (path, type)."""
    with torch.profiler.profile() as profiler, ModuleRanges():
        work()
    return [event.name.removeprefix("nn.Module: ") for event in profiler.events() if event.name.startswith("nn.Module: ")]


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_a_compiled_module_keeps_its_name_and_nobody_is_warned(recwarn):
    compiled = torch.compile(NETWORK.inner)
    compiled(X)
    assert named(lambda: compiled(X)) == [" (Inner)"]
    assert not [warning for warning in recwarn if "global hooks" in str(warning.message)]


LOST = nn.Linear(8, 8)


class Hides(nn.Module):
    def forward(self, x):
        return LOST(x)


class Starts(nn.Module):
    def forward(self, x):
        thread = threading.Thread(target=NETWORK.inner, args=(X,))
        thread.start()
        thread.join()
        return x


def raises():
    with pytest.raises(RuntimeError, match="mat1"):
        Broken()(X)
    NETWORK.inner(X)


def started():
    nn.Sequential(Starts())(X)
    NETWORK.inner(X)


def further():
    nn.Flatten()(X)
    for network in (nn.Sequential(nn.Linear(8, 8)), nn.Sequential(nn.Linear(8, 8)), nn.Sequential(nn.Linear(8, 8))):
        network(X)


@pytest.mark.parametrize(("work", "ranges"), [
    (lambda: NETWORK.inner(X), [" (Inner)", "layer (Linear)"]),  # by its own tree
    (lambda: Hides()(X), ["Hides (Hides)", "Linear (Linear)"]),  # where no root knows it by its class
    # had one stayed open, the next module would not have been a root
    (raises, [" (Broken)", "inner (Sequential)", "inner.0 (Linear)", "inner.1 (Linear)", "Inner (Inner)", "Inner.layer (Linear)"]),
    # threads have ranges of their own
    (started, ["Inner (Inner)", "Inner.layer (Linear)"]),
    (further, ["Flatten (Flatten)", " (Sequential)", "0 (Linear)", "Sequential (Sequential)", "Sequential.0 (Linear)",
               "Sequential-2 (Sequential)", "Sequential-2.0 (Linear)"]),
], ids=["root", "unknown", "raises", "threads", "further"])  # fmt: skip
def test_how_modules_are_named(work, ranges):
    found = named(work)
    assert found == ranges or (work is started and found[-2:] == ranges)
    assert not hooks_are_on()
