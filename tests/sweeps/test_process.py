"""The process of a job: one that dies, or says what cannot be read, is a message; one that nobody listens to ends."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from rooflines.sweeps import process
from rooflines.sweeps.records import Job
from rooflines.sweeps.worker import Failed

JOB = Job(function="tests.sweeps.jobs:measure", options={})
WAITS = Job(
    function="tests.sweeps.jobs:measure",
    options={"point": {"id": "waits", "options": {"model": "waits for long", "batch_size": 1}}, "round": 0},
)


def test_a_process_that_dies_is_a_message(monkeypatch):
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    (only,) = process.messages(JOB)
    assert isinstance(only, Failed)
    assert "exit code 1" in only.reason


def test_an_answer_that_cannot_be_read_is_a_message(monkeypatch, tmp_path):
    worker = tmp_path / "worker"
    worker.write_text('#!/bin/sh\necho \'{"type": "stage", "text": null}\'\necho \'{"type": "advance"}\'\n')
    worker.chmod(0o700)
    monkeypatch.setattr(process.sys, "executable", str(worker))
    (only,) = process.messages(JOB)
    assert isinstance(only, Failed)
    assert "Expected `str`, got `null`" in only.reason


def test_who_stops_listening_ends_the_process(monkeypatch, tmp_path):
    monkeypatch.chdir(Path(__file__).parents[2])
    heard = process.messages(Job(function=WAITS.function, options=WAITS.options, directory=str(tmp_path)))
    next(heard)
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    (worker,) = [child for child in children if "rooflines.sweeps.worker" in " ".join(child.cmdline())]
    heard.close()
    assert not worker.is_running()


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch):
    """As one that waits inside a driver that does not answer."""
    sent, waited = [], []

    class Stuck:
        pid = 4711

        def poll(self):
            return None

        def wait(self, seconds=None):
            waited.append(seconds)
            raise subprocess.TimeoutExpired("worker", seconds)

    monkeypatch.setattr(process, "_END_S", 0.05)
    monkeypatch.setattr(process.os, "killpg", lambda pid, number: sent.append((pid, number)))
    process.end(Stuck())
    assert [number for pid, number in sent if number and pid == 4711] == [signal.SIGTERM, signal.SIGKILL]
    assert None not in waited


def test_threads_are_given_to_every_library(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" not in process.environment(None)
    found = process.environment(2)
    assert {found[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")} == {"2"}


@pytest.mark.parametrize(("code", "words"), [(-9, "killed by signal 9"), (1, "(exit code 1): ValueError: no")])
def test_last_words(code, words):
    text = "" if code < 0 else "Traceback:\n  file\nValueError: no\n"
    assert words in process._last_words(text, code)
