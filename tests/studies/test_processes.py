"""A worker that fails or dies is one clear message, and leaves nothing running."""

from __future__ import annotations

import psutil
import pytest

from rooflines.studies import processes
from rooflines.studies.records import EpochDone, Failed, LoaderJob, Stage, TrainJob

JOB = TrainJob(
    backend="torch-cpu", data="mnist", data_dir="/absent", train_samples=None, test_samples=None, epochs=1, batch_size=8,
    learning_rate=0.01, momentum=0.9, seed=0, operators=False,
)  # fmt: skip


def test_what_the_worker_cannot_do_comes_back_as_its_reason():
    *before, last = processes.messages(JOB, threads=1)
    assert isinstance(last, Failed)
    assert "'/absent' is no directory" in last.reason
    assert all(isinstance(one, Stage) for one in before)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba-cpu", "torch-cpu"])
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


def test_a_worker_that_dies_is_a_message(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/absent")
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    (only,) = processes.messages(JOB)
    assert isinstance(only, Failed)
    assert "exit code 1" in only.reason


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
