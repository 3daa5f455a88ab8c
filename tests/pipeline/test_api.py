"""``rooflines`` from Python: the same job without a command line, and manners toward the program that calls it."""

import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import nn

import rooflines
from rooflines.device_specs.records import Ceilings
from rooflines.errors import OutOfMemoryError, OutputError, UsageError
from rooflines.pipeline import default_command, recording
from rooflines.profiler.progress import Silent
from rooflines.profiler.records import Environment, Run, RunFile, Settings, Workload
from rooflines.roofline.judge.judge import Judged
from tests.commands import TIMEOUT_S, environment, write_ceilings


@pytest.fixture
def asked(tmp_path):
    """Keywords of a run of few steps."""
    return {"ceilings": str(write_ceilings(tmp_path)), "formats": ("json",), "output": tmp_path / "run", "device": "cpu"}


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


FEW = {"steps": 2, "warmup": 1}


def test_profile_a_module(asked):
    run = rooflines.profile(network(), torch.randn(3, 8), mode="training", **asked, **FEW)
    assert run.facts.status == "complete"
    assert run.facts.workload.batch_size == 3
    assert run.facts.workload.name == "Sequential"
    analysis = rooflines.analyze(run)
    # forward 2 (3*8*16 + 3*16*4), backward twice that less the gradient of the input, 2*3*8*16
    assert analysis.totals.matrix_flops == 3 * 2 * (3 * 8 * 16 + 3 * 16 * 4) - 2 * 3 * 8 * 16
    assert {row.module for row in analysis.operators if row.name == "aten::addmm"} == {"0", "2"}
    assert rooflines.load(run.directory).facts == run.facts


def test_profile_a_step_function(asked):
    run = rooflines.profile(lambda: torch.randn(4, 4) @ torch.randn(4, 4), batch_size=4, **asked, **FEW)
    assert run.facts.workload.batch_size == 4
    assert run.analysis == rooflines.analyze(run)
    assert run.analysis.totals.matrix_flops == 2 * 4 * 4 * 4


@pytest.mark.parametrize(("function", "sources"), [(rooflines.analyze, 1), (rooflines.analyze_ranks, 1), (rooflines.compare, 2)])
def test_an_option_that_does_not_exist_is_refused(function, sources):
    with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
        function(*["trace.json"] * sources, device="A100")


@pytest.mark.parametrize(("model", "inputs", "message"), [
    ("squeezenet1_1", torch.ones(1), "inputs cannot be combined with"),
    (3, None, "cannot profile a int"),
    (nn.ReLU(), None, "requires inputs"),
])  # fmt: skip
def test_what_cannot_be_profiled(asked, model, inputs, message):
    with pytest.raises(UsageError, match=message):
        rooflines.profile(model, inputs, **asked)
    assert not asked["output"].exists()


def test_torch_is_left_as_it_was(asked):
    environment = dict(os.environ)
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    with torch.no_grad():
        rooflines.profile("squeezenet1_1", image_size=32, mode="training", threads=threads + 1, **asked, **FEW)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.randn(3), expected), "the caller's random numbers changed"
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert dict(os.environ) == environment, "what the program starts would inherit it"


def test_out_of_memory_is_an_exception_of_its_own(asked):
    with pytest.raises(OutOfMemoryError, match=r"3\.55 PiB asked for") as caught:
        rooflines.profile(lambda: torch.empty(10**15), **asked)
    assert caught.value.hint.startswith("Try a smaller input.")


# --- a loop that the caller owns ---------------------------------------------------------------------------------------------------


def train(recording, steps=None):
    """As many steps as asked for, or until the recording is done: beside other programs it takes more of them."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in itertools.takewhile(lambda _: not recording.done, itertools.count()) if steps is None else range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        recording.step()


def test_record_a_loop(asked, capsys):
    with rooflines.record(name="mine", batch_size=4, **{**asked, "formats": ("html", "csv", "tensorboard")}, **FEW) as r:
        assert r.run is None
        train(r)
        assert r.done
    r.step()  # costs and changes nothing
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.endswith(f"report    {r.run.directory / 'report.html'}\n")
    assert r.run.facts.status == "complete"
    assert r.run.facts.workload.name == "mine"
    assert r.run.facts.ceilings is not None
    analysis = rooflines.analyze(r.run)
    assert analysis.verdict in told.err
    assert {"forward", "backward", "optimizer"} <= {row.phase for row in analysis.operators}
    assert {"report", "operators", "events", "analysis"} <= {path.name.partition(".")[0] for path in r.run.directory.iterdir()}


OWN_LOOP = """
import ctypes, glob, os, sys
import torch, rooflines

def level():
    library = glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.*"))[0]
    return ctypes.c_int.in_dll(ctypes.CDLL(library), "FLAGS_caffe2_log_level").value

model, before = torch.nn.Linear(8, 8), level()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
asked = {"steps": 2, "warmup": 1, "device": "cpu", "ceilings": sys.argv[1], "formats": ()}
with rooflines.record("loop", **asked) as r:
    for _ in range(8):
        optimizer.zero_grad()  # frees gradients that are older than the profiler
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        r.step()
held = [torch.randn(100)]
rooflines.profile(lambda: held.append(held.pop() + 1), output="step", **asked)
assert level() == before
"""


@pytest.mark.ci
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library has another name")
def test_nothing_of_torchs_log_is_on_the_terminal_and_the_program_is_named_in_the_run(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_LOOP)
    ceilings = str(write_ceilings(tmp_path))
    command = [sys.executable, "mine.py", ceilings]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "")
    assert [line.split(" ")[0] for line in done.stderr.splitlines()[1:]] == ["report"], "the verdict, and where the run is"
    assert rooflines.load(tmp_path / "step").facts.settings.command == f"python mine.py {ceilings}"


def fail_after(recording, error):
    train(recording, 3)
    raise error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [(ZeroDivisionError("division by zero"), "failed", "division by zero"), (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt")],
)
def test_an_exception_in_the_loop_is_the_users_own_and_the_run_loads(asked, error, status, words):
    with pytest.raises(type(error)), rooflines.record(**asked, **FEW) as r:
        fail_after(r, error)
    assert (r.run.facts.status, r.run.facts.error) == (status, words)
    assert rooflines.load(asked["output"]).facts == r.run.facts
    assert rooflines.analyze(asked["output"]).steps.count == 1


def test_record_refuses_what_the_command_line_refuses(asked):
    for wrong, message in (
        ({"steps": 0}, "^steps must"),
        ({"batch_size": 0}, "^batch_size must"),
        ({"device": "tpu"}, "unknown device"),
    ):
        with pytest.raises(UsageError, match=message), rooflines.record(**{**asked, **wrong}):
            pass
    asked["output"].mkdir()
    (asked["output"] / "x").touch()
    with pytest.raises(OutputError, match="not empty"), rooflines.record(**asked):
        pass


# --- the command that made the run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "command"), [
    (["/x/.venv/bin/rooflines", "profile", "-o", "my runs"], "rooflines profile -o 'my runs'"),  # make profile
    (["/x/rooflines/__main__.py", "profile", "a b.py"], "rooflines profile 'a b.py'"),
    (["train.py", "--lr", "1"], "python train.py --lr 1"),
    (["-c"], "python -c"),
    ([""], "python"),
    (["/x/ipykernel_launcher.py", "-f", "kernel.json"], ""),
])  # fmt: skip
def test_the_command_is_the_one_to_type_again(monkeypatch, arguments, command):
    monkeypatch.setattr(sys, "argv", arguments)
    assert default_command() == command


@pytest.mark.ci
def test_the_timed_pass_times_the_step_and_little_else(asked):
    """The steps time themselves; what the collector says is never less, and hardly more where nothing else ran meanwhile."""
    own = []

    def step():
        begun = time.perf_counter_ns()
        time.sleep(0.02)
        own.append(time.perf_counter_ns() - begun)

    steps = rooflines.profile(step, **asked, steps=9, warmup=1).facts.steps
    ratios = sorted(timed / slept for timed, slept in zip(steps.timed_ns, own[1:10], strict=True))
    assert 1 <= ratios[0] < 1.1


# --- ceilings


@pytest.fixture
def settle(tmp_path, monkeypatch):
    """Settle the ceilings of a run with an operator that takes 1 s; returns the lower bounds that judged it."""

    def settled(*bounds_s, bound="compute", ceilings="measured", measurements=1):
        found, used = list(bounds_s), []
        environment = Environment(host="h", os="o", python="3", rooflines="0", torch="2", device="cpu", device_name="x", threads=2)
        facts = RunFile(
            status="complete", workload=Workload(name="net", mode="inference"), environment=environment,
            settings=Settings(ceilings=ceilings), ceilings=Ceilings(device="", kind="cpu", ceilings=(), measurements=measurements),
        )  # fmt: skip

        def analyze(run):
            used.append(found[len(used)])
            return Judged(SimpleNamespace(operators=[SimpleNamespace(efficiency=used[-1], bound=bound)]))

        def measure(device, threads, *, remeasure, progress):
            assert (device, threads, remeasure) == ("cpu", 2, True)
            return msgspec.structs.replace(facts.ceilings, measurements=measurements + len(used))

        monkeypatch.setattr(recording, "_analyze", analyze)
        monkeypatch.setattr(recording, "measured_ceilings", measure)
        run, _ = recording._settle_ceilings(Run(directory=tmp_path, facts=facts), Silent())
        return used, run.facts

    return settled


@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_a_ceiling_that_was_too_low_is_measured_again_till_nothing_beats_it(settle, bound):
    used, facts = settle(1.9, 0.95, bound=bound)
    assert used == [1.9, 0.95]
    assert facts.ceilings.measurements == 2
    assert facts.notes == (recording.MEASURED_AGAIN,)


@pytest.mark.parametrize(("bounds_s", "more", "used"), [
    # a roof that does not rise stands: a convolution that does less than its formula (Winograd)
    ((1.50, 1.49, 1.49), {}, [1.50, 1.49]),
    ((1.50, 1.40, 1.39), {}, [1.50, 1.40, 1.39]),
    # it ends after three measurements
    ((4.0, 3.0, 2.0), {}, [4.0, 3.0, 2.0]),
    ((4.0,), {"measurements": 3}, [4.0]),
    # what is plausible, not measured or not a roof is left alone
    ((1.01,), {}, [1.01]),
    ((2.0,), {"ceilings": "spec"}, [2.0]),
    ((2.0,), {"bound": "latency"}, [2.0]),
])  # fmt: skip
def test_when_ceilings_are_not_measured_again(settle, bounds_s, more, used):
    assert settle(*bounds_s, **more)[0] == used
