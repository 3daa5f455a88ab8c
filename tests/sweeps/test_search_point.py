"""A search as one point of a study."""

import json
from pathlib import Path

import pytest

from rooflines.errors import UsageError
from rooflines.sweeps.records import Result
from rooflines.sweeps.run import run_sweep
from rooflines.sweeps.search_point import search_points, tuning_of
from rooflines.sweeps.tune import load_tuning
from tests.commands import write_ceilings

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 0}, "trials"),
        ({"objective": "beauty"}, "beauty"),
        ({"batch_size": "8,none"}, "not an integer"),
        ({"depth": "1,2"}, "depth"),
    ],
)
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
    result = Result(**json.loads(found.read_text()))
    assert result.reason is None
    assert result.facts["verdict"]
    tuning = load_tuning(found.parent / str(result.run))
    assert len(tuning.trials) == 3
    assert result.values["samples_per_s"] == tuning.best.value("samples_per_s")
    assert sweep.points == points
