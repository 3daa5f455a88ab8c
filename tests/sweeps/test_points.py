"""The points of a sweep: lists of options, their combinations, their names."""

import json
import math
import random
from pathlib import Path

import optuna
import pytest

from rooflines.errors import DataError, RooflinesError, UsageError
from rooflines.profiler.progress import Silent
from rooflines.sweeps.points import make_points, parse_values, point_grid, read_file, settings_of
from rooflines.sweeps.records import PointResult, SweepPoint
from rooflines.sweeps.results import OBJECTIVES, read_objectives
from rooflines.sweeps.run import run_sweep
from rooflines.sweeps.search_point import search_points, tuning_of
from rooflines.sweeps.space import Dimension, read_space
from rooflines.sweeps.tune import compare, load_tuning, run_in_turn, tasks_in_turn
from tests.commands import write_ceilings


@pytest.mark.parametrize(("name", "text", "kind", "values"), [
    ("batch_size", "8, 16,32", "profile", [8, 16, 32]),
    ("compile", "off,on,max-autotune", "profile", ["off", "on", "max-autotune"]),
    ("optimizer", "sgd,adamw,fused,adam", "profile", ["sgd", "adamw,fused", "adam"]),
    ("channels_last", "off,on", "profile", [False, True]),
    ("threads", "1,2", "profile", [1, 2]),
    ("device", "cpu,cuda:1", "profile", ["cpu", "cuda:1"]),
    ("learning_rate", "0.1,1e-3", "train", [0.1, 0.001]),
])  # fmt: skip
def test_lists_are_read_with_the_type_of_their_option(name, text, kind, values):
    assert parse_values(name, text, kind) == values


@pytest.mark.parametrize(("name", "text", "problem"), [
    ("batch_size", "8,many", "batch_size='many' is not an integer"),
    ("precision", "fp32,int3", "precision='int3' is not a choice"),
    ("channels_last", "maybe", "channels_last='maybe' is not on or off"),
])  # fmt: skip
def test_a_value_of_another_type_is_named(name, text, problem):
    with pytest.raises(UsageError, match=problem):
        parse_values(name, text)


def test_points_of_lists():
    # Lists are crossed and the last one changes fastest.
    found = point_grid({"model": ["a", "b"], "precision": "bf16", "batch_size": [1, 2]})
    assert [(one["model"], one["batch_size"]) for one in found] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert {one["precision"] for one in found} == {"bf16"}
    with pytest.raises(UsageError, match="unknown option 'bach_size'"):
        point_grid({"model": "a", "bach_size": [1]})
    # Points are labeled by what differs and are there once.
    settings = [("profile", {"model": "resnet18", "batch_size": size, "compile": mode, "threads": 1})
                for size in (8, 16) for mode in ("off", "on")]  # fmt: skip
    points = make_points([*settings, settings[0]])
    assert [point.label for point in points] == ["batch 8", "batch 8 · compiled", "batch 16", "batch 16 · compiled"]
    assert len({point.id for point in points}) == 4
    (single,) = make_points(settings[:1])
    assert single.label == "resnet18"
    again = make_points(settings[:1])
    assert again == (single,)


def test_what_no_machine_can_run_is_refused_before_anything_runs():
    with pytest.raises(RooflinesError, match="batch_size must be at least 1, got 0"):
        make_points([("profile", {"model": "resnet18", "batch_size": 0})])
    with pytest.raises(UsageError, match="requires a model"):
        make_points([("profile", {"batch_size": 1})])


def test_a_file_has_several_grids_and_the_command_line_replaces_its_options(tmp_path):
    path = tmp_path / "points.toml"
    path.write_text("""
name = "two"
repeats = 2
options = {device = "cpu", steps = 5}
[[points]]
model = ["a", "b"]
batch_size = [1, 2]
[[points]]
kind = "train"
model = "a"
data = "digits"
options_are_checked = 1
""")
    with pytest.raises(UsageError, match="unknown option 'steps' of train"):
        settings_of(read_file(path), {})
    path.write_text(path.read_text().replace("steps = 5", "threads = 1").replace("options_are_checked = 1\n", ""))
    found = settings_of(read_file(path), {"batch_size": [4]})
    assert [(kind, one["model"], one["batch_size"]) for kind, one in found] == [
        ("profile", "a", 4),
        ("profile", "b", 4),
        ("train", "a", 4),
    ]
    assert {one["threads"] for _, one in found} == {1}
    path.write_text("name = ")
    with pytest.raises(DataError, match="is not a sweep"):
        read_file(path)
    path.write_text("pionts = []")
    with pytest.raises(DataError, match="pionts"):
        read_file(path)


# --- points of a search


MODEL = """
import torch

def small(batch_size):
    return torch.nn.Linear(8, 8), torch.randn(batch_size, 8)
"""
SEARCH = {"batch_size": "8,16,32", "learning_rate": "1e-3..1e-1", "objective": "accuracy,throughput", "trials": 4, "repeats": 3}


def settings(**options):
    return [{"model": name, "device": "cpu", "data": "digits", **options} for name in ("resnet18", "mobilenet_v2")]


def test_each_setting_is_a_search_of_its_own():
    one, other = search_points(settings(), SEARCH, "train")
    assert one.id != other.id
    assert one.label == "search for resnet18 on cpu"
    tuning = tuning_of(one)
    assert (tuning.budget, tuning.repeats, tuning.objectives) == (4, 3, ("accuracy", "throughput"))
    assert tuning.space.fixed == {"model": "resnet18", "device": "cpu", "data": "digits"}
    assert [dimension.name for dimension in tuning.space.dimensions] == ["batch_size", "learning_rate"]
    assert search_points(settings(), SEARCH, "train") == (one, other)


@pytest.mark.parametrize(("change", "message"), [
    ({"trials": 0}, "trials"),
    ({"objective": "beauty"}, "beauty"),
    ({"batch_size": "8,none"}, "not an integer"),
    ({"depth": "1,2"}, "depth"),
])  # fmt: skip
def test_a_search_that_cannot_be_made_is_refused_before_anything_runs(change, message):
    with pytest.raises(UsageError, match=message):
        search_points(settings(), {**SEARCH, **change}, "train")


@pytest.mark.slow
def test_a_search_in_a_sweep_leaves_its_record_and_its_verdict(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    ceilings = str(write_ceilings(tmp_path))
    fixed = {"model": f"{tmp_path / 'model.py'}:small", "device": "cpu", "ceilings": ceilings, "steps": 3, "warmup": 1}
    points = search_points([fixed], {"batch_size": "2,64", "trials": 3, "repeats": 3}, "profile")
    sweep, directory = run_sweep("one", points, repeats=3, output=tmp_path / "out")
    (found,) = [Path(path) for path in directory.rglob("result.json") if path.parent.parent.name == points[0].id]
    result = PointResult(**json.loads(found.read_text()))
    assert result.reason is None
    assert result.facts["verdict"]
    tuning = load_tuning(found.parent / str(result.run))
    assert len(tuning.trials) == 3
    assert result.values["samples_per_s"] == tuning.best.value("samples_per_s")
    assert sweep.points == points


# --- the space


@pytest.mark.parametrize(("name", "text", "kind", "dimension"), [
    ("batch_size", "8..128", "profile", Dimension(name="batch_size", values=(8, 16, 32, 64, 128))),
    ("batch_size", "6..7", "profile", Dimension(name="batch_size", low=6, high=7)),
    ("batch_size", "32,8", "profile", Dimension(name="batch_size", values=(8, 32))),
    ("threads", "1..4", "profile", Dimension(name="threads", low=1, high=4)),
    ("precision", "fp32,amp-bf16", "profile", Dimension(name="precision", values=("fp32", "amp-bf16"))),
    ("channels_last", "off,on", "profile", Dimension(name="channels_last", values=(False, True))),
    ("learning_rate", "1e-4..1e-1", "train", Dimension(name="learning_rate", low=1e-4, high=1e-1)),
])  # fmt: skip
def test_lists_and_ranges_are_dimensions(name, text, kind, dimension):
    space = read_space(["resnet18"], {name: text}, kind)
    assert space.dimensions == (dimension,)
    assert space.fixed == {"model": "resnet18"}


def test_wide_ranges_are_logarithmic_and_one_value_is_fixed():
    space = read_space(["a", "b"], {"learning_rate": "1e-4..1e-1", "weight_decay": "0.1..0.5", "batch_size": "8"}, "train")
    assert [(one.name, one.log) for one in space.dimensions if not one.values] == [("learning_rate", True), ("weight_decay", False)]
    assert space.fixed == {"batch_size": 8}
    assert space.dimensions[0] == Dimension(name="model", values=("a", "b"))


def test_a_path_is_no_range():
    space = read_space(["a"], {"data": "folder", "data_dir": "../images", "batch_size": "1,2"}, "train")
    assert space.fixed["data_dir"] == "../images"


def test_every_suggestion_is_in_the_space_and_has_the_parameter_that_gave_it():
    lists = {
        "batch_size": "8..128", "precision": "fp32,bf16", "channels_last": "off,on", "threads": "1..12", "learning_rate": "1e-4..1",
    }  # fmt: skip
    space = read_space(["a", "b"], lists, "train")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(50):
        trial = study.ask()
        setting = {one.name: one.suggest(trial) for one in space.dimensions}
        for name, value in space.parameters(setting).items():
            assert trial.params[name] == (pytest.approx(value, rel=0.006) if name == "learning_rate" else value)
        for one in space.dimensions:
            assert one.every() is None or setting[one.name] in one.every()
        assert float(f"{setting['learning_rate']:.3g}") == setting["learning_rate"]


def test_what_is_the_default_is_no_option_of_a_run():
    space = read_space(["a"], {"batch_size": "8,16", "precision": "fp32,bf16", "channels_last": "off,on", "device": "cpu"}, "profile")
    assert space.default_setting() == {"precision": "fp32", "channels_last": False}  # a batch of 1 is not in the space
    assert space.options({"batch_size": 8, "precision": "fp32", "channels_last": True}) == {
        "model": "a", "device": "cpu", "batch_size": 8, "channels_last": True,
    }  # fmt: skip
    assert space.options(space.default_setting()) == space.options({}) == {"model": "a", "device": "cpu"}
    assert len(space.settings(8)) == 8
    assert space.settings(7) is None
    assert read_space(["a"], {"learning_rate": "0.1..0.2"}, "train").settings(1000) is None


def test_objectives_keep_their_order():
    assert [one.name for one in read_objectives("memory, throughput,memory", "profile")] == ["memory", "throughput"]
    with pytest.raises(UsageError, match="objective is empty"):
        read_objectives("", "profile")


# --- pairs


FAST = SweepPoint(id="fast", label="fast", function="tests.sweeps.jobs:speed", options={"model": "m", "batch_size": 8})
SLOW = SweepPoint(id="slow", label="slow", function="tests.sweeps.jobs:speed", options={"model": "m", "batch_size": 2})


def results(values, name="samples_per_s"):
    return [tuple(PointResult(point=f"{index}", round=1, values={name: value}) for index, value in enumerate(pair)) for pair in values]


@pytest.mark.ci
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


def test_seeds_and_ratios_of_pairs():
    # Each pair of trainings has its own seed.
    train = SweepPoint(id="t", label="t", kind="train", options={"model": "m", "seed": 3})
    seeds = [(one.point.options["seed"], other.point.options["seed"]) for one, other in tasks_in_turn(train, train, 3, Path())]
    assert seeds == [(4, 4), (5, 5), (6, 6)]
    # The ratio is that of the mean logarithm with student's t.
    found = compare(OBJECTIVES["throughput"], results([(1.0, 1.0), (math.e, 1.0), (math.e**2, 1.0)]))
    half = 4.30265273 / math.sqrt(3)  # the logarithms 0, 1 and 2 have a standard deviation of 1
    assert found.ratio.value == pytest.approx(math.e)
    assert (math.log(found.ratio.low), math.log(found.ratio.high)) == (pytest.approx(1 - half), pytest.approx(1 + half))
    assert found.beats is False
    # Runs that failed do not count and two pairs are too few.
    pairs = results([(2.0, 1.0), (2.0, 1.0), (2.0, 1.0)])
    pairs[1] = (PointResult(point="t", round=1, reason="out of memory"), pairs[1][1])
    found = compare(OBJECTIVES["throughput"], pairs)
    assert (found.pairs, found.ratio, found.beats) == (((2.0, 1.0), (2.0, 1.0)), None, None)


def test_what_is_better_depends_on_the_objective_and_a_drift_of_both_does_not_matter():
    drifting = [(20.0 * drift, 10.0 * drift) for drift in (1.0, 3.0, 0.2, 7.0)]
    assert compare(OBJECTIVES["throughput"], results(drifting)).beats is True
    assert compare(OBJECTIVES["memory"], results(drifting, "peak_memory_bytes")).beats is False
    assert compare(OBJECTIVES["memory"], results([pair[::-1] for pair in drifting], "peak_memory_bytes")).beats is True
    accuracy = compare(OBJECTIVES["accuracy"], results([(0.9, 0.5), (0.8, 0.41), (0.7, 0.29)], "accuracy"))
    assert accuracy.ratio is None
    assert accuracy.difference.value == pytest.approx(0.4)
    assert accuracy.beats is True


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
