"""The space of a search: lists and ranges, their defaults, and the parameters that Optuna sees."""

from __future__ import annotations

import optuna
import pytest

from rooflines.errors import UsageError
from rooflines.sweeps.results import read_objectives
from rooflines.sweeps.space import Dimension, read_space


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


@pytest.mark.parametrize(("lists", "kind", "problem"), [
    ({}, "profile", "nothing to tune"),
    ({"batch_size": "8"}, "profile", "nothing to tune"),
    ({"batch_size": "8..4"}, "profile", "8 is not less than 4"),
    ({"batch_size": "8..many"}, "profile", "'many' is not an integer"),
    ({"learning_rate": "0.1..1"}, "profile", "learning_rate is not an option of profile"),
])  # fmt: skip
def test_a_space_that_is_empty_or_wrong_is_refused(lists, kind, problem):
    with pytest.raises(UsageError, match=problem):
        read_space(["a"], lists, kind)


def test_a_path_is_no_range():
    space = read_space(["a"], {"data": "folder", "data_dir": "../images", "batch_size": "1,2"}, "train")
    assert space.fixed["data_dir"] == "../images"


def test_every_suggestion_is_in_the_space_and_has_the_parameter_that_gave_it():
    lists = {
        "batch_size": "8..128",
        "precision": "fp32,bf16",
        "channels_last": "off,on",
        "threads": "1..12",
        "learning_rate": "1e-4..1",
    }
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


@pytest.mark.parametrize(("text", "kind", "problem"), [
    ("", "profile", "objective is empty"),
    ("speed", "profile", "unknown objective 'speed'"),
    ("throughput,accuracy", "profile", "'accuracy' requires a training"),
    ("latency", "train", "a training does not measure the objective 'latency'"),
])  # fmt: skip
def test_an_objective_that_a_run_does_not_have_is_refused(text, kind, problem):
    with pytest.raises(UsageError, match=problem):
        read_objectives(text, kind)


def test_objectives_keep_their_order():
    assert [one.name for one in read_objectives("memory, throughput,memory", "profile")] == ["memory", "throughput"]
