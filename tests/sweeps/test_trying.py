"""Trying advice: which changes a run allows, how their gains are measured, and what is kept."""

import msgspec
import pytest

from rooflines.device_specs.records import Ceilings
from rooflines.errors import Interrupted, UsageError
from rooflines.profiler.directory import load, save
from rooflines.profiler.records import RunFile, Settings, StepTimes
from rooflines.reports.page import advice
from rooflines.reports.page import run as run_view
from rooflines.roofline.analyze import analyze
from rooflines.roofline.predict import options
from rooflines.roofline.predict.change import Change, Prediction
from rooflines.roofline.predict.trials import Speedup, Trial, outcome, read_trials
from rooflines.serial import to_json
from rooflines.sweeps.records import PointResult
from rooflines.sweeps.trying import check_repeatable, combine, measured, predicted_changes, try_changes, worth_trying
from tests import commands, samples

JOB = "tests.sweeps.jobs:change"
LOW = Change(kind="precision", label="bf16", options={"precision": "bf16"})
KEPT = Change(kind="allocator", label="glibc keeps memory", environment={"MALLOC_TRIM_THRESHOLD_": "8000000000"})
COMPILED = Change(kind="compile", label="compiled", options={"compile": "on"})


def recorded(directory, model="resnet50", **options):
    """A run of the sample analysis, as its directory stores it."""
    analysis = samples.analysis()
    directory.mkdir(exist_ok=True)
    facts = RunFile(
        status="complete", workload=analysis.workload, environment=analysis.environment, steps=StepTimes(timed_ns=(84_000_000,)),
        settings=Settings(options={"model": model, **options}), ceilings=Ceilings(device="", kind="cpu", ceilings=samples.ceilings()),
    )  # fmt: skip
    save(directory, facts)
    return load(directory)


def labels(run, **facts):
    analysis = samples.analysis()
    workload = msgspec.structs.replace(analysis.workload, **facts.pop("workload", {}))
    environment = msgspec.structs.replace(analysis.environment, **facts.pop("environment", {}))
    analysis = msgspec.structs.replace(analysis, workload=workload, environment=environment, **facts)
    run = options.Repeatable(analysis, run.facts.settings.options)
    found = [change for option in options.OPTIONS for change in option.changes(run)]
    return [one.label for one in found]


def test_the_changes_of_a_training_on_a_cpu_and_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "allocators", lambda: iter([(KEPT.label, KEPT.environment)]))
    run = recorded(tmp_path / "run", mode="training")
    assert labels(run) == [
        "amp-bf16", "bf16", "channels last", "compiled", "1 thread", "batch 8", "sgd, fused", "glibc keeps memory"
    ]  # fmt: skip
    assert "amp-bf16" not in labels(run, workload={"precision": "bf16"})
    assert "compiled" not in labels(run, compiled=True)
    assert "channels last" not in labels(run, workload={"channels_last": True})
    assert "2 threads" in labels(run, environment={"threads": 4})
    assert "sgd, fused" not in labels(run, workload={"mode": "inference"})
    run = recorded(tmp_path / "gpu", mode="training", data="cifar10")
    found = set(labels(run, environment={"device": "cuda:0", "cpu_threads": 8}))
    assert {"compiled (reduce-overhead)", "CUDA graph", "expandable segments", "1 loader worker", "pinned memory"} <= found
    assert "sgd, foreach" in found
    assert not {"1 thread", "glibc keeps memory"} & found


def predicted(change, speedup=None):
    return Trial(change=change, prediction=Prediction(speedup=speedup, reason="why") if speedup else None)


def test_what_is_predicted_not_to_help_is_tried_if_its_kind_is_named():
    found = [predicted(LOW, 0.9), predicted(KEPT), predicted(COMPILED, 1.1)]
    assert [trial.change for trial in worth_trying(found)] == [KEPT, COMPILED]
    assert [trial.change for trial in worth_trying(found, ("precision",))] == [LOW]


def result(number, rate, **more):
    return PointResult(point="p", round=number, values={"samples_per_s": rate, "step_s": 1 / rate, **more})


def test_a_gain_is_that_of_rounds_in_pairs():
    # The machine halves its speed after the second round; the gain stays.
    rates = (10.0, 10.0, 5.0, 5.0)
    pairs = [
        (result(n, rate), result(n, gain * rate)) for n, (rate, gain) in enumerate(zip(rates, (1.5, 1.52, 1.48, 1.5), strict=True))
    ]
    found = measured(predicted(LOW), pairs).speedup
    assert found.value == pytest.approx(1.5)
    assert 1.45 < found.low < 1.5 < found.high < 1.55
    # A round that one of them lacks is no pair.
    assert measured(predicted(LOW), [(result(0, 10.0), result(0, 20.0)), (None, result(1, 90.0))]).speedup == Speedup(value=2.0)
    assert measured(predicted(LOW), [(result(0, 10.0), None)]).speedup is None


def trial(kind, label, value, low, predicted=1.5):
    change = Change(kind=kind, label=label, options={kind: label})
    return Trial(change=change, prediction=Prediction(speedup=predicted, reason=""), speedup=Speedup(value=value, low=low, high=9.0))


def test_the_best_of_each_kind_that_helped_is_combined():
    tried = [
        trial("precision", "amp", 1.2, 1.1), trial("precision", "bf16", 1.4, 1.3), trial("compile", "on", 1.1, 0.9),
        trial("batch-size", "8", 1.5, 1.4, predicted=2.0),
    ]  # fmt: skip
    combined = combine(tried)
    change, prediction = combined.change, combined.prediction
    assert change.label == "8 + bf16"
    assert change.options == {"batch-size": "8", "precision": "bf16"}
    assert prediction.speedup == pytest.approx(3.0)
    assert combine(tried[:3]) is None


@pytest.mark.ci
def test_changes_are_measured_in_turn_with_the_run_and_the_best_are_combined(tmp_path):
    run = recorded(tmp_path / "run")
    chosen = [predicted(LOW, 1.9), predicted(KEPT), predicted(COMPILED)]
    made = try_changes(run, chosen, rounds=3, output=tmp_path / "tried", function=JOB)
    low, kept, compiled = made.trials
    assert low.speedup.value == pytest.approx(2.0, rel=0.01)
    assert kept.speedup.value == pytest.approx(3.0)
    assert [outcome(one) for one in made.trials] == ["as predicted", "faster", "failed"]
    assert compiled.reason == "no compiler. Install one."
    assert (low.output_error.relative, kept.output_error) == (0.01, None)
    assert made.combination.change.label == "glibc keeps memory + bf16"
    assert made.combination.speedup.value == pytest.approx(6.0, rel=0.01)
    assert made.notes == ("Shared machine: other programs took up to 1.4 processors during 1 of 3 runs of the first round.",)
    assert read_trials(run.directory) == made
    # The same again measures nothing.
    logs = {path: path.stat().st_mtime_ns for path in (tmp_path / "tried").rglob("log.txt")}
    assert try_changes(run, chosen, rounds=3, output=tmp_path / "tried", function=JOB).trials == made.trials
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tried").rglob("log.txt")} == logs
    # The report of the run has the table.
    (section,) = (one for one in run_view.page(samples.analysis(), made).sections if one.name == "trials")
    table = next(block for block in section.blocks if getattr(block, "name", "") == "trials")
    names = {row.cells[0] for row in table.rows}
    assert names == {"bf16", "glibc keeps memory", "compiled", "glibc keeps memory + bf16"}
    assert section.blocks[0].text.startswith("Best: glibc keeps memory + bf16, 6.0")
    assert [one.name for one in advice.page(samples.analysis(), trials=made).sections] == ["findings", "trials"]
    assert "trials" not in [one.name for one in run_view.page(samples.analysis()).sections]


@pytest.mark.ci
def test_an_interruption_keeps_what_was_measured(tmp_path):
    run = recorded(tmp_path / "run", model="interrupted")
    with pytest.raises(Interrupted, match=r"what was measured is in .*advice\.json"):
        try_changes(run, [predicted(LOW)], rounds=4, output=tmp_path / "tried", function=JOB)
    made = read_trials(run.directory)
    assert not made.complete
    assert made.trials[0].speedup.low is not None  # three rounds
    said = [getattr(one, "text", "") for one in advice.trials_section(made).blocks]
    assert said[0] == "Interrupted: not every round was measured."
    assert said[1].startswith(("No gain is known yet", "Best: "))


SCRIPT = """
import torch
model, data = torch.nn.Linear(64, 64), torch.rand(32, 64)
steps = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    steps.zero_grad()
    model(data).square().mean().backward()
    steps.step()
"""


@pytest.mark.ci
def test_changes_are_made_around_a_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    ceilings = tmp_path / "ceilings.json"
    ceilings.write_text(to_json(Ceilings(device="", kind="cpu", ceilings=samples.ceilings())))
    given = ("profile", "train.py", "--output", "run", "--formats", "csv", "--ceilings", str(ceilings))
    assert commands.run(*given, cwd=tmp_path).code == 0
    run = load(tmp_path / "run")
    check_repeatable(run)
    judged = analyze(run)
    kinds = {trial.change.kind for trial in predicted_changes(run, judged)}
    assert {"precision", "compile", "optimizer"} <= kinds
    assert not {"batch-size", "data-workers", "cuda-graphs"} & kinds
    chosen = [one for one in predicted_changes(run, judged) if one.change.kind in ("optimizer", "precision")]
    made = try_changes(run, chosen, rounds=1, output=tmp_path / "tried")
    assert all(one.speedup is not None and one.speedup.value > 0 for one in made.trials), made
    errors = {one.change.kind: one.output_error.relative for one in made.trials}
    assert errors["optimizer"] < 1e-5 < errors["precision"] < 1


def test_only_models_by_name_and_scripts_can_be_repeated(tmp_path):
    run = recorded(tmp_path / "run")
    check_repeatable(run)
    script = msgspec.structs.replace(run.facts, workload=msgspec.structs.replace(run.facts.workload, source="script"))
    known = msgspec.structs.replace(script, settings=Settings(command="rooflines profile train.py"))
    check_repeatable(msgspec.structs.replace(run, facts=known))
    for facts, what in (
        (msgspec.structs.replace(script, settings=Settings()), "it is a run of a script"),
        (msgspec.structs.replace(run.facts, settings=Settings()), "it is a run of a module"),
        (msgspec.structs.replace(run.facts, ceilings=None), "not complete"),
    ):
        with pytest.raises(UsageError, match=what):
            check_repeatable(msgspec.structs.replace(run, facts=facts))
    with pytest.raises(UsageError, match="nothing to try"):
        try_changes(run, [])
