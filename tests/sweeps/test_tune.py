"""A search: how many trials there are, what is tried, what a failure, a kill and a second process change."""

import collections
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rooflines.cli.app import app, load
from rooflines.errors import DataError, Interrupted, OutputError, RooflinesError, UsageError
from rooflines.profiler.progress import Silent
from rooflines.reports.words.sentences import command_of
from rooflines.sweeps import tune
from rooflines.sweeps.space import read_space
from rooflines.sweeps.sweep import write_tuning
from rooflines.sweeps.tune import Tuning, load_tuning, run_tuning
from tests.commands import call
from tests.processes import wait_until

pytest.importorskip("optuna")
ROOT = Path(__file__).parents[2]
SMALL = {"batch_size": "32..64", "channels_last": "off,on"}
LARGE = {"batch_size": "1..60", "threads": "1..8", "channels_last": "off,on", "precision": "fp32,bf16"}


def search(lists, model="m", objectives=("throughput",), **asked):
    space = read_space([model], lists, "profile")
    return Tuning(name="s", space=space, objectives=objectives, repeats=3, function="tests.sweeps.jobs:speed", **asked)


def training(lists, **asked):
    space = read_space(["m"], {"data": "digits", "epochs": "4", **lists}, "train")
    return Tuning(name="s", space=space, objectives=("accuracy",), repeats=3, function="tests.sweeps.jobs:learn", **asked)


def seen(directory):
    """How often each trial ran."""
    return {path.parent.name: len(path.read_text().splitlines()) for path in directory.glob("trials/*/seen")}


# --- what is tried -----------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_a_small_space_is_searched_completely_and_a_failure_is_a_trial(tmp_path):
    found = run_tuning(search(SMALL), tmp_path / "s")
    assert len(found.trials) == 5  # four settings, and the default, whose batch of 1 is not among them
    assert len({one.point.id for one in found.trials}) == 5
    assert found.trials[0].point == found.default
    assert found.default.options == {"model": "m"}
    failed = [one for one in found.trials if one.state == "failed"]
    assert {one.point.options["batch_size"] for one in failed} == {64}
    assert {one.reason for one in failed} == {"out of memory at 64. Use less."}
    assert found.best.point.options == {"model": "m", "batch_size": 32, "channels_last": True}
    (compared,) = found.compared
    assert (compared.ratio.value, compared.beats) == (pytest.approx(64.0), True)
    assert found == load_tuning(tmp_path / "s")
    assert found.status == "complete"


@pytest.mark.ci
def test_a_large_space_has_as_many_trials_as_asked_and_each_ran_once(tmp_path):
    found = run_tuning(search(LARGE, budget=10, objectives=("throughput", "memory")), tmp_path / "s")
    assert [one.number for one in found.trials] == list(range(10))
    assert seen(tmp_path / "s") == {f"{number:04}": 1 for number in range(10)}
    assert found.trials[0].point == found.default
    assert set(found.importance) == {"throughput", "memory"}
    for shares in found.importance.values():
        assert sum(shares.values()) == pytest.approx(1.0)
    front = found.front
    assert [row.value("samples_per_s") for row in front] == sorted((row.value("samples_per_s") for row in front), reverse=True)
    assert min(row.value("peak_memory_bytes") for row in found.rows) == front[-1].value("peak_memory_bytes")


@pytest.mark.ci
def test_what_no_machine_accepts_is_a_failed_trial_without_a_process_and_the_default_may_be_the_best(tmp_path):
    lists = {"optimizer": "sgd,adam", "channels_last": "off,on"}  # an optimizer applies to training only
    found = run_tuning(search(lists), tmp_path / "s")
    refused = [one for one in found.trials if one.state == "failed"]
    assert len(refused) == 2
    assert all("applies to training only" in one.reason for one in refused)
    assert len(seen(tmp_path / "s")) == 2
    found = run_tuning(search({"batch_size": "1,2", "channels_last": "off"}, objectives=("memory",)), tmp_path / "best")
    assert found.best.point == found.default or found.best.value("peak_memory_bytes") == 1000.0
    assert write_tuning(found, tmp_path / "best", ())[0].verdict.startswith("No setting")


@pytest.mark.ci
def test_a_training_below_the_median_is_pruned_and_the_pairs_have_other_seeds(tmp_path):
    found = run_tuning(training({"learning_rate": "0.1..0.9"}, budget=9), tmp_path / "s")
    states = collections.Counter(one.state for one in found.trials)
    assert states["pruned"] >= 1
    assert states["pruned"] + states["complete"] == 9
    for one in found.trials:
        if one.state == "pruned":
            assert 2 <= one.result.values["epochs"] < 4
            better = sorted(t.result.values["accuracy"] for t in found.trials if t.number < one.number)
            assert one.result.values["accuracy"] < better[len(better) // 2 + 1]
    assert found.best.value("accuracy") == max(one.result.values["accuracy"] for one in found.trials)
    (compared,) = found.compared
    gain = found.best.value("accuracy") - 0.55
    assert compared.difference.value == pytest.approx(gain)
    for ours, _ in compared.pairs:  # no pair has the seed of the trials
        assert ours == pytest.approx(found.best.value("accuracy") - 0.05)


@pytest.mark.ci
def test_a_setting_that_failed_is_not_run_again_and_one_that_ran_is(tmp_path):
    tuning = search({"batch_size": "1,64"})
    run_tuning(tuning, tmp_path / "s")
    study = tune._open(tuning, tmp_path / "s", None)
    for size in (64, 1):
        study.enqueue_trial(tuning.space.parameters({"batch_size": size}))
    found = run_tuning(tuning, tmp_path / "s")
    assert [one.state for one in found.trials] == ["complete", "complete", "failed", "failed", "complete"]
    assert found.trials[3].reason == found.trials[2].reason
    assert sorted(seen(tmp_path / "s")) == ["0000", "0001", "0002", "0004"]
    assert next(row for row in found.rows if row.point.options.get("batch_size") == 1).rounds == 2


# --- one study, several processes ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from rooflines.sweeps import tune
from tests.sweeps.test_tune import LARGE, search
tune.HEARTBEAT_S = 1
tune.run_tuning(search(LARGE, {model!r}, budget={budget}), Path({output!r}), storage={storage!r})
"""


def start(output, storage=None, model="waits", *, budget):
    program = PROGRAM.format(model=model, budget=budget, output=str(output), storage=storage)
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)


@pytest.mark.ci
@pytest.mark.parametrize(("shared", "budget"), [("output", 6), pytest.param("storage", 16, marks=pytest.mark.slow)])
def test_two_processes_make_the_trials_together_none_lost_and_none_twice(tmp_path, shared, budget):
    url = f"sqlite:///{tmp_path / 'study.db'}" if shared == "storage" else None
    outputs = [tmp_path / name for name in (("a", "a") if shared == "output" else ("a", "b"))]
    if url is not None:  # two that create the tables of one database at once would be in each other's way
        tune._open(search(LARGE, "waits"), tmp_path, url)
    processes = [start(output, url, budget=budget) for output in outputs]
    assert [process.wait() for process in processes] == [0, 0]
    ran = [name for output in set(outputs) for name, times in seen(output).items() for _ in range(times)]
    assert len(ran) == len(set(ran)) == budget
    found = [load_tuning(output) for output in outputs]
    assert len(found[0].trials) == budget
    assert found[0].trials == found[1].trials
    assert all(one.state == "complete" for one in found[0].trials)
    assert all(len(one.compared[0].pairs) == 3 for one in found)
    if shared == "storage":
        assert all(seen(output) for output in outputs)  # both had a part in it


@pytest.mark.ci
def test_a_killed_search_continues_and_its_trial_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "HEARTBEAT_S", 1)
    directory = tmp_path / "s"
    process = start(directory, model="hangs", budget=3)
    wait_until(lambda: (directory / "trials" / "0000" / "seen").is_file())
    process.send_signal(signal.SIGKILL)
    process.wait()
    (directory / "go").write_text("")
    found = run_tuning(search(LARGE, "hangs", budget=3), directory)
    assert [one.state for one in found.trials] == ["complete"] * 3
    assert 0 not in [one.number for one in found.trials]
    assert found.default.id in [one.point.id for one in found.trials]
    more = run_tuning(search(LARGE, "hangs", budget=5), directory)
    assert more.trials[:3] == found.trials
    assert len(more.trials) == 5


@pytest.mark.ci
def test_ctrl_c_keeps_the_trials_and_the_search_goes_on(tmp_path):
    class Stops(Silent):
        def stage(self, name, total):
            if name.startswith("trial 3"):
                raise KeyboardInterrupt

    class Stages(Silent):
        def __init__(self):
            self.names = []

        def stage(self, name, total):
            self.names.append(name)

    with pytest.raises(Interrupted, match="continues the search"):
        run_tuning(search(LARGE, "stages", budget=5), tmp_path / "s", progress=Stops())
    kept = load_tuning(tmp_path / "s")
    assert (kept.status, [one.state for one in kept.trials]) == ("interrupted", ["complete"] * 2)
    page, _ = write_tuning(kept, tmp_path / "s", ())
    assert page.status[0] == "interrupted"
    stages = Stages()
    found = run_tuning(search(LARGE, "stages", budget=5), tmp_path / "s", progress=stages)
    assert found.trials[:2] == kept.trials
    assert len(found.trials) == 5
    assert stages.names[0].startswith("trial 3 of 5, ")
    with pytest.raises(OutputError, match="holds another search"):
        run_tuning(search(SMALL), tmp_path / "s")


# --- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_what_cannot_be_searched_is_refused_before_anything_runs(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="trials must be at least 1, got 0"):
        run_tuning(search(SMALL, budget=0), tmp_path / "s")
    with pytest.raises(RooflinesError, match="unknown device 'tpu'"):
        run_tuning(search({**SMALL, "device": "tpu"}), tmp_path / "s")
    with pytest.raises(UsageError, match="synthetic images of cifar10 means nothing"):
        run_tuning(training({"learning_rate": "0.1..0.9", "data": "cifar10"}), tmp_path / "s")
    assert not (tmp_path / "s").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        run_tuning(search(SMALL), tmp_path / "full")
    with pytest.raises(DataError, match="cannot open the storage 'nothing://") as unknown:
        run_tuning(search(SMALL), tmp_path / "t", storage="nothing://me:secret@host/x")
    assert "secret" not in str(unknown.value)
    with pytest.raises(UsageError, match="'energy' was not measured on this machine"):
        run_tuning(search(SMALL, objectives=("energy",)), tmp_path / "u")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="requires the package 'optuna'") as missing:
        run_tuning(search(SMALL), tmp_path / "v")
    assert missing.value.hint == "pip install 'rooflines[tune]'"


@pytest.mark.parametrize(("arguments", "problem"), [
    (["--batch-size", "8..16"], "no model was given."),
    (["--model", "m"], "nothing to tune: every option has one value."),
    (["--model", "m", "--batch-size", "8"], "nothing to tune: every option has one value."),
    (["--model", "m", "--batch-size", "8..4"], "--batch-size 8..4 is not a range: 8 is not less than 4."),
    (["--model", "m", "--batch-size", "8..many"], "--batch-size many is not an integer."),
    (
        ["--model", "m", "--train", "--batch-size", "1,2", "--objective", "latency"],
        "a training does not measure the objective 'latency'.",
    ),
    (["--model", "m", "--batch-size", "1,2", "--objective", "speed"], "unknown objective 'speed'."),
    (["--model", "m", "--batch-size", "1,2", "--objective", "accuracy"], "the objective 'accuracy' requires a training."),
    (["--model", "m", "--learning-rate", "0.1..1"], "--learning-rate is not an option of profile."),
    (["--model", "m", "--batch-size", "1,2", "--repeats", "2"], "--repeats must be at least 3, got 2."),
])  # fmt: skip
def test_the_command_says_what_is_wrong(tmp_path, capsys, monkeypatch, arguments, problem):
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, monkeypatch, "tune", *arguments)
    assert answer.code == 2
    assert answer.complaint[0] == f"rooflines: {problem}"
    assert len(answer.complaint) <= 2
    assert "--repeats" not in problem or "takes 3 runs" in answer.complaint[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_the_command_writes_the_report_of_an_interrupted_search(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune, "run_task", interrupted)
    answer = call(capsys, monkeypatch, "tune", "--model", "resnet18", "--batch-size", "1,2", "-o", "s", "-q")
    assert answer.code == Interrupted.exit_code == 130
    assert "the trials so far are in 's'" in answer.complaint[0]
    assert "The same command with this output continues the search." in answer.complaint[1]
    assert (tmp_path / "s" / "report.html").is_file()
    assert load_tuning(tmp_path / "s").trials == ()


# --- the command of a setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "options"), [
    ("profile", {"model": "my models/net.py:make", "batch_size": 8, "precision": "amp-bf16", "channels_last": True, "compile": "on"}),
    ("profile", {"model": "resnet18", "mode": "training", "optimizer": "adamw,fused", "checkpointing": False}),
    ("train", {"model": "resnet18", "data": "digits", "learning_rate": 0.00123, "lr_steps": "2,3", "data_dir": "it's here"}),
])  # fmt: skip
def test_the_command_of_a_setting_has_its_options(kind, options):
    import typer

    words = shlex.split(command_of(kind, options))
    assert words[:2] == ["rooflines", kind]
    load([kind])
    command = typer.main.get_command(app).commands[kind]
    parsed = command.make_context(kind, words[2:]).params
    assert {name: getattr(parsed[name], "value", parsed[name]) for name in options} == options


# --- everything for real -----------------------------------------------------------------------------------------------------------

NETWORK = """
import torch

def linear():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)), torch.zeros(2, 3, 32, 32)
"""


@pytest.mark.slow
def test_a_real_search_of_a_training_prints_the_command_of_the_best_point(tmp_path, capsys, monkeypatch):
    pytest.importorskip("sklearn")
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    answer = call(
        capsys, monkeypatch, "tune", "--model", "net.py:linear", "--train", "--data", "digits", "--device", "cpu", "--threads", 1,
        "--train-samples", 256, "--test-samples", 64, "--epochs", 1, "--batch-size", "8,16", "--learning-rate", 0.002,
        "--objective", "accuracy,throughput", "--repeats", 3, "-o", "s",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    found = load_tuning(tmp_path / "s")
    assert [one.state for one in found.trials] == ["complete"] * 3  # the default batch of 64, and two smaller ones
    assert found.best.value("accuracy") > 0.3
    assert len(found.compared[0].pairs) == 3
    assert f"Command: {command_of('train', found.best.point.options)}" in " ".join(answer.out.split())
    assert (tmp_path / "s" / "report.html").is_file()
