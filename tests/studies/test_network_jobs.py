"""The jobs of the studies of networks: what they reach, and how they end."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from rooflines.errors import RooflinesError
from rooflines.kernels.networks import perceptron
from rooflines.studies.experiment import FUNCTIONS
from rooflines.studies.network_jobs import check_losses
from rooflines.studies.records import EpochDone, IterationsDone, Message, PerceptronJob, TrainJob
from rooflines.sweeps.process import messages
from rooflines.sweeps.records import Job
from rooflines.sweeps.worker import Advance, Failed, Found, Stage

JOB = TrainJob(
    backend="torch-cpu", data="mnist", data_dir="/absent", train_samples=None, test_samples=None, epochs=1, batch_size=8,
    learning_rate=0.01, momentum=0.9, seed=0, operators=False,
)  # fmt: skip


def said(job):
    """Everything that a process says while it does ``job``, its results decoded."""
    asked = Job(function=FUNCTIONS[type(job)], options=msgspec.to_builtins(job), threads=1)
    for one in messages(asked):
        yield msgspec.json.decode(one.result, type=Message) if isinstance(one, Found) else one


def test_what_the_worker_cannot_do_comes_back_as_its_reason():
    *before, last = said(JOB)
    assert isinstance(last, Failed)
    assert "'/absent' is not a directory" in last.reason
    assert all(isinstance(one, Stage) for one in before)


@pytest.mark.parametrize("backend", ["numba-cpu", pytest.param("torch-cpu", marks=pytest.mark.slow)])
def test_the_digits_setting_reaches_97_percent(backend):
    pytest.importorskip("sklearn")
    from rooflines.studies import backends

    job = TrainJob(
        backend=backend, data="digits", data_dir=None, train_samples=None, test_samples=None, epochs=backends.DIGITS_EPOCHS,
        batch_size=backends.DIGITS_BATCH_SIZE, learning_rate=backends.DIGITS_LEARNING_RATE, momentum=backends.MOMENTUM, seed=0,
        operators=False,
    )  # fmt: skip
    epochs = [one.epoch for one in said(job) if isinstance(one, EpochDone)]
    assert len(epochs) == backends.DIGITS_EPOCHS
    assert epochs[-1].test_accuracy >= 0.97
    assert epochs[-1].train_loss < 0.1 * epochs[0].train_loss


@pytest.mark.slow
@pytest.mark.parametrize("library", ["numpy", "torch-cpu"])
def test_the_perceptron_s_setting_reaches_97_percent_of_the_digits(library):
    pytest.importorskip("sklearn")
    job = PerceptronJob(
        backend=library, widths=perceptron.WIDTHS, samples=perceptron.SAMPLES, iterations=1, data="synthetic", data_dir=None,
        accuracy_data="digits", accuracy_iterations=perceptron.ITERATIONS, seed=0, sizes=(),
    )  # fmt: skip
    found = {one.purpose: one.iterations for one in said(job) if isinstance(one, IterationsDone)}
    assert found["accuracy"].widths == (784, 128, 10)
    assert found["accuracy"].accuracies[-1] >= 0.97
    assert found["speed"].widths == perceptron.WIDTHS


DEEP = (784, *[256] * 12, 10)
"""So many layers that ten samples, at the study's learning rate, are learnt to infinity within a few steps."""


def test_a_loss_that_is_no_number_ends_the_job_with_the_step():
    job = PerceptronJob(
        backend="numpy", widths=DEEP, samples=10, iterations=50, data="synthetic", data_dir=None, accuracy_data=None,
        accuracy_iterations=50, seed=0,
    )  # fmt: skip
    *before, last = said(job)
    assert isinstance(last, Failed)
    found = re.fullmatch(r"the loss is not finite \(step (\d+)\)\.", last.reason)
    assert found
    assert sum(isinstance(one, Advance) for one in before) == int(found[1]) - 1
    assert not any(isinstance(one, IterationsDone) for one in before)


def test_losses_are_looked_at_in_their_order():
    check_losses([1.0, 0.0], 10)
    for wrong in (math.nan, math.inf):
        with pytest.raises(RooflinesError, match=r"\(step 12\)"):
            check_losses([1.0, wrong, 1.0, math.nan], 10)
