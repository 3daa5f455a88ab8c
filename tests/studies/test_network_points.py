"""The points of the studies of networks: what they reach, and how they end."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from rooflines.errors import RooflinesError
from rooflines.serial import read_json
from rooflines.studies.backends.train import Training
from rooflines.studies.from_scratch.train import Iterations
from rooflines.studies.networks import check_losses
from rooflines.studies.records import DETAIL_FILE
from rooflines.studies.study import StudyOptions, find_study, study_points
from rooflines.sweeps.process import messages
from rooflines.sweeps.records import Job, Result
from rooflines.sweeps.worker import Advance, Failed, Found, Stage


def said(directory, name, part, *, data_dir=None, **settings):
    """Everything that the process of the only point of ``part`` says, its results decoded."""
    options = StudyOptions(parts=(part,), threads=1, settings={name: str(value) for name, value in settings.items()})
    ((point,), _) = study_points(find_study(name), options)
    task = {"point": msgspec.to_builtins(point), "round": 0}
    task["point"]["options"] |= {"data_dir": data_dir} if data_dir is not None else {}
    for one in messages(Job(function=point.function, options=task, threads=1, directory=str(directory))):
        yield msgspec.json.decode(one.result, type=Result) if isinstance(one, Found) else one


def detail(directory, kind):
    return read_json(directory / "run" / DETAIL_FILE, kind)


def test_what_the_worker_cannot_do_comes_back_as_its_reason(tmp_path):
    *before, last = said(tmp_path, "backends", "speed", backend="torch-cpu", samples=8, data_dir="/absent")
    assert isinstance(last, Failed)
    assert "'/absent' is not a directory" in last.reason
    assert all(isinstance(one, Stage) for one in before)


@pytest.mark.parametrize("backend", ["numba-cpu", pytest.param("torch-cpu", marks=pytest.mark.slow)])
def test_the_digits_setting_reaches_97_percent(tmp_path, backend):
    pytest.importorskip("sklearn")
    results = [one for one in said(tmp_path, "backends", "accuracy", backend=backend) if isinstance(one, Result)]
    epochs = detail(tmp_path, Training).epochs
    assert len(epochs) == 20 == len(results) - 1
    assert results[-1].values["accuracy"] == epochs[-1].test_accuracy >= 0.97
    assert epochs[-1].train_loss < 0.1 * epochs[0].train_loss


@pytest.mark.slow
@pytest.mark.parametrize("library", ["numpy", "torch-cpu"])
def test_the_perceptron_s_setting_reaches_97_percent_of_the_digits(tmp_path, library):
    pytest.importorskip("sklearn")
    *_, last = said(tmp_path, "from-scratch", "accuracy", backend=library)
    found = detail(tmp_path, Iterations)
    assert found.widths == (784, 128, 10)
    assert last.values["accuracy"] == found.accuracies[-1] >= 0.97


DEEP = "-".join(map(str, (784, *[256] * 12, 10)))
"""So many layers that ten samples, at the study's learning rate, are learnt to infinity within a few steps."""


def test_a_loss_that_is_no_number_ends_the_job_with_the_step(tmp_path):
    *before, last = said(tmp_path, "from-scratch", "speed", backend="numpy", widths=DEEP, samples=10, iterations=50)
    assert isinstance(last, Failed)
    found = re.fullmatch(r"the loss is not finite \(step (\d+)\)\.", last.reason)
    assert found
    assert sum(isinstance(one, Advance) for one in before) == int(found[1]) - 1
    assert not any(isinstance(one, Result) for one in before)


def test_memory_is_measured_in_a_process_that_has_loaded_nothing_else(tmp_path):
    *_, last = said(tmp_path, "from-scratch", "memory", backend="numpy", samples=2_000)
    assert isinstance(last, Result), last
    parts = [last.values[f"{name}_bytes"] for name in ("parameters", "input", "activations", "gradients", "overhead")]
    assert sum(parts) == pytest.approx(last.values["total_bytes"], rel=0.05)
    # the library itself: what had been imported before would not be in it
    assert last.values["overhead_bytes"] > 10e6
    assert "tracemalloc" in last.facts["how"]


def test_losses_are_looked_at_in_their_order():
    check_losses([1.0, 0.0], 10)
    for wrong in (math.nan, math.inf):
        with pytest.raises(RooflinesError, match=r"\(step 12\)"):
            check_losses([1.0, wrong, 1.0, math.nan], 10)
