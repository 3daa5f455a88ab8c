"""A worker that fails or dies is one clear message, and leaves nothing running."""

from __future__ import annotations

import math
import re

import psutil
import pytest

from rooflines.errors import RooflinesError
from rooflines.kernels.networks import perceptron
from rooflines.studies import processes
from rooflines.studies.records import Advance, EpochDone, Failed, IterationsDone, LoaderJob, PerceptronJob, Stage, TrainJob
from rooflines.studies.worker import check_losses

JOB = TrainJob(
    backend="torch-cpu", data="mnist", data_dir="/absent", train_samples=None, test_samples=None, epochs=1, batch_size=8,
    learning_rate=0.01, momentum=0.9, seed=0, operators=False,
)  # fmt: skip


def test_what_the_worker_cannot_do_comes_back_as_its_reason():
    *before, last = processes.messages(JOB, threads=1)
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
    epochs = [one.epoch for one in processes.messages(job, threads=1) if isinstance(one, EpochDone)]
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
    found = {one.purpose: one.iterations for one in processes.messages(job, threads=1) if isinstance(one, IterationsDone)}
    assert found["accuracy"].widths == (784, 128, 10)
    assert found["accuracy"].accuracies[-1] >= 0.97
    assert found["speed"].widths == perceptron.WIDTHS


def test_a_worker_that_dies_is_a_message(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/absent")
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    (only,) = processes.messages(JOB)
    assert isinstance(only, Failed)
    assert "exit code 1" in only.reason


DEEP = (784, *[256] * 12, 10)
"""So many layers that ten samples, at the study's learning rate, are learnt to infinity within a few steps."""


def test_a_loss_that_is_no_number_ends_the_job_with_the_step():
    job = PerceptronJob(
        backend="numpy", widths=DEEP, samples=10, iterations=50, data="synthetic", data_dir=None, accuracy_data=None,
        accuracy_iterations=50, seed=0,
    )  # fmt: skip
    *before, last = processes.messages(job, threads=1)
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


def test_an_answer_that_cannot_be_read_is_a_message(monkeypatch, tmp_path):
    worker = tmp_path / "worker"
    worker.write_text('#!/bin/sh\necho \'{"type": "stage", "text": null}\'\necho \'{"type": "advance"}\'\n')
    worker.chmod(0o700)
    monkeypatch.setattr(processes.sys, "executable", str(worker))
    (only,) = processes.messages(JOB)
    assert isinstance(only, Failed)
    assert "Expected `str`, got `null`" in only.reason


def test_who_stops_listening_ends_the_worker():
    job = LoaderJob(backend="torch-cpu", data="synthetic", data_dir=None, batch_size=64, batches=10_000, seed=0)
    heard = processes.messages(job, threads=1)
    next(heard)
    (worker,) = [child for child in psutil.Process().children() if "rooflines.studies.worker" in " ".join(child.cmdline())]
    heard.close()
    assert not worker.is_running()


def test_threads_are_given_to_every_library(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" not in processes.environment(None)
    found = processes.environment(2)
    assert {found[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")} == {"2"}


@pytest.mark.parametrize(("code", "words"), [(-9, "killed by signal 9"), (1, "(exit code 1): ValueError: no")])
def test_last_words(code, words):
    text = "" if code < 0 else "Traceback:\n  file\nValueError: no\n"
    assert words in processes._last_words(text, code)
