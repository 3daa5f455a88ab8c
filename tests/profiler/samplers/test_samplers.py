"""Samplers: real processes are watched, killed and interrupted; NVML is asked through its own library, which this machine may lack."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time

import psutil
import pytest

from rooflines.errors import DeviceError, RunError, UsageError
from rooflines.profiler.samplers import clock
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.host import HostSampler, busy_fraction
from rooflines.profiler.samplers.nvml import all_gpus
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.profiler.samplers.storage import JournalEntry, read_journal, read_samples, write_entry, write_samples
from tests.processes import ended, wait_until

BUSY = "print(flush=True)\nwhile True: pass"
IDLE = "import time; print(flush=True); time.sleep(600)"
BUSY_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def no_gpu() -> bool:
    try:
        return not all_gpus()
    except DeviceError:
        return True


@contextlib.contextmanager
def running(code):
    """A child that runs ``code`` and has printed its first line."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            child.stdout.readline()
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "samples.jsonl"


def sampling(journal, pid=None, period_s=0.05):
    """The sampler of ``pid``, of this process where there is none."""
    return SamplerProcess(pid or os.getpid(), journal, period_s=period_s, gpus={})


def sample(time_ns, **fields):
    return DeviceSample(time_ns=time_ns, source="test", **fields)


@pytest.mark.parametrize(("before", "after", "fraction"), [
    # neither idle nor waiting
    ((10.0, 5.0, 100.0, 1.0), (12.0, 6.0, 100.5, 1.5), (2 + 1) / (2 + 1 + 0.5 + 0.5)),
    ((1.0, 0.0, 1.0, 0.0), (1.0, 0.0, 1.0, 0.0), None),  # no time passed
    ((1.0, 0.0, 5.0, 0.0), (2.0, 0.0, 4.0, 0.0), 1.0),  # idle time that stepped back is none
])  # fmt: skip
def test_busy_fraction(before, after, fraction):
    fields = ("user", "system", "idle", "iowait")
    assert busy_fraction(*(dict(zip(fields, times, strict=True)) for times in (before, after))) == fraction


def test_the_first_reading_of_the_host_has_no_utilization_yet():
    before_ns = now_ns()
    (reading,) = HostSampler(os.getpid()).read()
    assert reading.process_cpu_utilization is None
    assert reading.cpu_utilization is None
    assert before_ns <= reading.time_ns <= now_ns()
    assert 0 < reading.memory_used_bytes < psutil.virtual_memory().total
    assert reading.process_threads >= 1


def test_a_process_that_is_not_there_is_named_and_the_fields_of_one_that_ended_are_absent():
    with pytest.raises(DeviceError, match=str(2**22 + 1)):
        HostSampler(2**22 + 1)
    with running(IDLE) as child:
        sampler = HostSampler(child.pid)
        child.kill()
        child.wait()
        (reading,) = sampler.read()
    assert reading.process_rss_bytes is reading.process_threads is reading.process_cpu_utilization is None
    assert reading.memory_used_bytes > 0


@pytest.mark.ci
@pytest.mark.parametrize("code", [BUSY, BUSY_PARENT], ids=["itself", "child"])
def test_host_counts_the_busy_core_of_a_process_and_of_its_children(code):
    with running(code) as child:
        if code == BUSY_PARENT:
            wait_until(lambda: psutil.Process(child.pid).children())
        busy = psutil.Process(child.pid)
        (busy,) = busy.children() or (busy,)

        def seen():
            times = busy.cpu_times()
            return time.monotonic(), times.user + times.system

        outer, sampler, inner = seen(), HostSampler(child.pid), seen()
        time.sleep(1.5)
        inner_end, (reading,), outer_end = seen(), sampler.read(), seen()
    # What the machine gave it is the scheduler's affair: others may be busy here as well, and stop this process between two lines.
    (least_s, least), (most_s, most) = ((b[0] - a[0], b[1] - a[1]) for a, b in ((inner, inner_end), (outer, outer_end)))
    assert most > 0
    ticks_s = 0.04
    assert (least - ticks_s) / most_s <= reading.process_cpu_utilization <= (most + ticks_s) / least_s
    assert 0 < reading.cpu_utilization <= 1


@pytest.mark.ci
def test_a_busy_process_is_sampled_from_outside(tmp_path):
    with running(BUSY) as child, SamplerProcess(child.pid, tmp_path / "samples.jsonl", period_s=0.1, gpus={}) as sampler:
        wait_until(lambda: len(sampler.samples()) >= 12)
    samples = sampler.samples()
    busy = [reading.process_cpu_utilization for reading in samples if reading.process_cpu_utilization is not None]
    assert 0 < statistics.median(busy) < 1.3
    assert "incomplete" not in sampler.problem
    times = [reading.time_ns for reading in samples]
    assert times == sorted(times)
    assert {reading.source for reading in samples} <= {"psutil", "rapl"}


def test_samples_are_on_the_clock_of_who_asked_for_them_whatever_the_wall_clock_says(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "_epoch_ns", clock.epoch_ns() - 3600 * 10**9)  # the wall clock was set an hour ahead since
    began_ns = now_ns()
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", period_s=0.05, gpus={}) as sampler:
        wait_until(lambda: len(sampler.samples()) >= 3)
    assert all(began_ns <= reading.time_ns <= now_ns() for reading in sampler.samples())


def test_the_sampler_is_no_part_of_what_it_watches(tmp_path):
    # In a process of its own: threads of other tests begin and end.
    code = (
        "import os, psutil, time; from rooflines.profiler.samplers.process import SamplerProcess\n"
        f"with SamplerProcess(os.getpid(), {str(tmp_path / 'samples.jsonl')!r}, period_s=0.05, gpus={{}}) as sampler:\n"
        "    while not sampler.samples(): time.sleep(0.01)\n"
        "    own, one = psutil.Process(), sampler.samples()[0]\n"
        "    print(own.num_threads(), one.process_threads, own.memory_info().rss, one.process_rss_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    threads, sampled_threads, memory, sampled_memory = map(int, done.stdout.split())
    assert sampled_threads == threads
    assert sampled_memory < memory * 1.05


@pytest.mark.ci
def test_the_sampler_ends_when_told_or_when_the_watched_process_is_killed(journal):
    sampler = sampling(journal)
    assert sampler.pid is None
    with sampler:
        pid = sampler.pid
        assert psutil.pid_exists(pid)
    assert sampler.pid is None
    assert not psutil.pid_exists(pid)
    sampler.stop()
    with running(IDLE) as child, sampling(journal, child.pid) as sampler:
        pid = sampler.pid
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: ended(pid))
    assert "incomplete" not in sampler.problem


def test_the_sampler_ends_when_the_process_that_started_it_is_killed(tmp_path):
    code = (
        "import sys, time; from rooflines.profiler.samplers.process import SamplerProcess\n"
        f"with SamplerProcess({os.getpid()}, {str(tmp_path / 'samples.jsonl')!r}, gpus={{}}) as sampler:\n"
        "    print(sampler.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as starter:
        pid = int(starter.stdout.readline())
        starter.kill()
    wait_until(lambda: ended(pid))
    assert read_journal(tmp_path / "samples.jsonl").samples


def test_ctrl_c_does_not_end_the_sampler(journal):
    with sampling(journal) as sampler:
        os.kill(sampler.pid, signal.SIGINT)
        taken = len(sampler.samples())
        wait_until(lambda: len(sampler.samples()) > taken + 3)
        assert os.getpgid(sampler.pid) != os.getpgid(0)
    assert "incomplete" not in sampler.problem


@pytest.mark.parametrize(("sign", "problem"), [
    (signal.SIGTERM, ""),
    (signal.SIGKILL, "Device samples may be incomplete: the sampler ended early (signal 9)."),
])  # fmt: skip
def test_a_sampler_that_is_ended_leaves_its_samples_and_says_where_it_died(journal, sign, problem):
    journal.write_text("of an old run\n")
    with sampling(journal) as sampler:
        wait_until(sampler.samples)
        assert "of an old run" not in journal.read_text()
        os.kill(sampler.pid, sign)
        wait_until(lambda: sampler.pid is None)
    assert sampler.samples()
    assert sampler.problem.endswith(problem)
    assert ("incomplete" in sampler.problem) == bool(problem)


def test_a_place_that_cannot_be_written_costs_the_samples_and_not_the_run(journal, tmp_path):
    with sampling(tmp_path / "absent" / "samples.jsonl") as sampler:
        pass
    assert sampler.samples() == ()
    assert "ended early (exit code 1): FileNotFoundError" in sampler.problem
    with sampling(journal, 2**22 + 1) as sampler:
        pass
    assert sampler.samples() == ()
    assert sampler.problem == f"Process {2**22 + 1} had ended before it could be sampled."


@pytest.mark.skipif(not no_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_the_host_is_sampled_and_the_reason_given(tmp_path):
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl") as sampler:
        wait_until(lambda: sampler.samples())
    assert sampler.problem.startswith("No GPU is sampled: NVML is not available (")


@pytest.mark.parametrize("period_s", [0, -1, float("nan"), float("inf"), 1e11, 3600.1])
def test_a_period_that_nobody_can_keep_is_refused(tmp_path, period_s):
    with pytest.raises(UsageError, match="above 0 and at most 3600 s, got "):
        SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", period_s=period_s)


def test_the_sampler_process_imports_nothing_heavy(tmp_path):
    code = "import sys, rooflines.profiler.samplers.__main__; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "psutil" in modules
    assert not {"torch", "numpy", "pandas", "pyarrow", "numba", "rich"} & set(modules)


def test_a_line_cut_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "samples.jsonl"
    with path.open("wb") as file:
        write_entry(file, JournalEntry(started=True))
        write_entry(file, JournalEntry(sample=sample(1, power_w=70.0)))
        write_entry(file, JournalEntry(problem="The GPU was lost."))
        file.write(b'{"sample":{"time_ns":2,')
    journal = read_journal(path)
    assert (journal.started, journal.samples, journal.problems) == (True, (sample(1, power_w=70.0),), ("The GPU was lost.",))


def test_gpus_in_use_are_the_run_s_own_and_those_that_hold_memory(monkeypatch):
    import torch

    from rooflines.profiler.samplers.process import gpus_in_use

    held = [0, 0, 1 << 20, 1 << 21]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(held))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: held[index])
    assert gpus_in_use(torch.device("cuda", 1)) == ("cuda:1", "cuda:2", "cuda:3")
    held[1:] = [1 << 20, 0, 0]
    assert gpus_in_use(torch.device("cuda", 1)) == ("cuda:1",)


@pytest.mark.gpu
@pytest.mark.skipif(no_gpu(), reason="this machine has no GPU")
def test_nvml_reads_a_real_gpu(tmp_path):
    from rooflines.profiler.samplers.process import torch_gpus

    gpus = torch_gpus("cuda:0")
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", gpus=gpus) as sampler:
        wait_until(lambda: sum(reading.device == "cuda:0" for reading in sampler.samples()) >= 3)
    assert "GPU" not in sampler.problem
    readings = [reading for reading in sampler.samples() if reading.device == "cuda:0"]
    assert all(reading.memory_used_bytes > 0 for reading in readings)
    assert all(reading.sm_clock_hz is None or 1e8 < reading.sm_clock_hz < 1e10 for reading in readings)
    assert all(reading.power_w is None or 1 < reading.power_w < 5000 for reading in readings)


def test_the_table_has_typed_columns_even_where_nothing_was_measured(tmp_path):
    import pandas

    path = tmp_path / "samples.parquet"
    write_samples([], path)
    assert read_samples(path) == ()
    write_samples([sample(1)], path)
    table = pandas.read_parquet(path)
    assert table["power_w"].dtype == "float64"
    assert table["power_w"].isna().all()
    path.write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"samples\.parquet"):
        read_samples(path)
