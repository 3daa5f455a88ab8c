"""What is left when the sampler, the run or the disk gives out: real runs with real samplers, killed, stopped and starved."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch

from rooflines.profiler.directory import JOURNAL_FILE, SAMPLES_FILE, load
from rooflines.profiler.record.collect import Recording
from rooflines.profiler.records import Settings, Workload
from rooflines.profiler.samplers.loop import GAP_S
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.profiler.samplers.storage import read_journal
from tests.processes import samplers_of, wait_until

WORKLOAD = Workload(name="sleep", mode="inference")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of another process are Linux's")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")

# A run whose timed pass lasts until somebody ends it.
ENDLESS = """
import os, sys, time, torch
from pathlib import Path
from rooflines.profiler.record.collect import Recording
from rooflines.profiler.records import Settings, Workload
with Recording(Path(sys.argv[1]), Workload(name="sleep", mode="inference"), torch.device("cpu"),
               settings=Settings(steps=10**6, warmup=1)) as recording:
    if "fork" in sys.argv:
        recording.step()
        if not os.fork():
            time.sleep(600)
    while not recording.done:
        time.sleep(0.02)
        recording.step()
"""


def samples_in(directory):
    return read_journal(directory / JOURNAL_FILE).samples


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def endless(tmp_path):
    """Starts an endless run; gives it, its directory and its sampler once there are samples."""
    started = []

    def start(*options):
        command = [sys.executable, "-c", ENDLESS, str(tmp_path / "run"), *options]
        run = subprocess.Popen(command, start_new_session=True)
        started.append(run)
        wait_until(lambda: len(samples_in(tmp_path / "run")) >= 3)
        (sampler,) = samplers_of(run.pid)
        return run, tmp_path / "run", sampler

    yield start
    for run in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def record(directory, disturb):
    """A run of thirty short steps; ``disturb`` is called once with its sampler, when there are samples, during the tenth step."""
    with Recording(directory, WORKLOAD, torch.device("cpu"), settings=Settings(steps=30, warmup=0), traced_steps=0) as recording:
        for step in range(30):
            time.sleep(0.02)
            if step == 10:
                wait_until(lambda: len(samples_in(directory)) >= 3)
                disturb(*samplers_of(os.getpid()))
            recording.step()
    assert recording.done
    return recording.run


@pytest.mark.ci
@POSIX
def test_a_killed_sampler_costs_the_rest_of_its_samples_and_the_run_says_so(tmp_path):
    run = record(tmp_path / "run", lambda sampler: sampler.kill())
    assert run.facts.status == "complete"
    assert len(run.facts.steps.timed_ns) == 30
    assert len(run.samples) >= 3
    assert any("the sampler ended early" in note for note in run.facts.notes)
    loaded = load(tmp_path / "run")
    assert loaded.samples == run.samples
    assert loaded.facts.counters == run.facts.counters != ()
    assert not (tmp_path / "run" / JOURNAL_FILE).exists()


@pytest.mark.ci
@POSIX
def test_a_stopped_sampler_is_waited_for_and_its_gap_is_said(tmp_path):
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", period_s=0.05, gpus={}) as sampler:
        wait_until(lambda: len(sampler.samples()) >= 3)
        process = psutil.Process(sampler.pid)
        process.suspend()
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        time.sleep(GAP_S / 2)  # leaving waits for STOP_TIMEOUT_S more, which alone would be just the gap that is worth a sentence
    assert gone(process)
    assert len(sampler.samples()) >= 3
    assert "HostSampler could not read for " in sampler.problem
    assert "incomplete" not in sampler.problem


@POSIX
def test_a_sampler_that_survives_being_killed_is_left_behind(tmp_path, monkeypatch):
    """As one does in a driver's call that no signal interrupts: here signals do not reach it."""

    class Unreachable(subprocess.Popen):
        def send_signal(self, number):
            pass

    monkeypatch.setattr(subprocess, "Popen", Unreachable)
    monkeypatch.setattr("rooflines.profiler.samplers.process.STOP_TIMEOUT_S", 0.1)
    sampler = SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", period_s=0.05, gpus={})
    sampler.start()
    process, pid = sampler._process, sampler.pid
    wait_until(lambda: len(sampler.samples()) >= 3)
    os.kill(pid, signal.SIGSTOP)  # nor does it hear that it should end
    rescue = threading.Timer(30, os.kill, (pid, signal.SIGKILL))
    rescue.start()
    try:
        sampler.stop()
        assert process.returncode is None
        assert sampler.problem.endswith("Device samples may be incomplete: the sampler does not end, even when killed.")
        assert len(sampler.samples()) >= 3
    finally:
        rescue.cancel()
        os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.ci
@POSIX
def test_a_killed_run_leaves_its_samples_and_no_sampler(endless):
    run, directory, sampler = endless("fork")  # a forked worker keeps a copy of the pipe on which the sampler waits
    run.kill()
    run.wait()
    wait_until(lambda: gone(sampler), timeout_s=10)
    loaded = load(directory)
    assert loaded.facts.status == "running"
    assert len(loaded.samples) >= 3
    assert {counter.source for counter in loaded.facts.counters} >= {"psutil"}
    assert not (directory / SAMPLES_FILE).exists()


@pytest.mark.ci
@POSIX
def test_a_stopped_run_is_sampled_on_and_ctrl_c_ends_it_and_then_the_sampler(endless):
    run, directory, sampler = endless()
    os.kill(run.pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(run.pid).status() == psutil.STATUS_STOPPED)
    taken = len(samples_in(directory))
    wait_until(lambda: len(samples_in(directory)) > taken + 5)
    assert samples_in(directory)[-1].process_cpu_utilization == pytest.approx(0, abs=0.3)
    os.kill(run.pid, signal.SIGCONT)
    wait_until(lambda: psutil.Process(run.pid).status() != psutil.STATUS_STOPPED)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(60) != 0
    assert gone(sampler)
    loaded = load(directory)
    assert loaded.facts.status == "interrupted"
    assert len(loaded.samples) >= 3
    assert (directory / SAMPLES_FILE).exists()


@pytest.mark.ci
@LINUX
def test_a_file_that_may_not_grow_keeps_what_is_in_it(tmp_path):
    def limit(sampler):
        size = (tmp_path / "run" / JOURNAL_FILE).stat().st_size + 700  # in the midst of a line, in all likelihood
        sampler.rlimit(psutil.RLIMIT_FSIZE, (size, size))
        wait_until(lambda: gone(sampler))

    run = record(tmp_path / "run", limit)
    assert run.facts.status == "complete"
    assert len(run.samples) >= 3
    assert any("the sampler ended early: OSError: [Errno 27] File too large" in note for note in run.facts.notes)
    assert load(tmp_path / "run").samples == run.samples
