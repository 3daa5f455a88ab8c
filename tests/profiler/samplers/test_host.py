"""What a process and its descendants spend: the arithmetic on made-up readings, and real processes that are born, spend and end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rooflines.profiler.samplers import host
from rooflines.profiler.samplers.host import (
    LINUX,
    SHORTEST_INTERVAL_S,
    SLOW_EVERY_S,
    USS_EVERY_S,
    CpuTemperature,
    HostSampler,
    ProcessReading,
    ProcessTree,
    Spent,
    descendants,
    read_process,
    read_process_anywhere,
    spent_between,
)
from rooflines.profiler.samplers.update_time import RateLimited
from tests.processes import wait_until

linux = pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
IDLE = "import time; print(flush=True); time.sleep(600)"
SPIN = "import time\nwhile time.process_time() < {}: pass"
# Runs the lines that it is given, one by one, and says when each is done.
OBEY = "import os, subprocess, sys\nfor line in sys.stdin:\n exec(line)\n print(flush=True)"
# /proc reads a process's resident set from counters that each processor adds to in batches of max(32, 2 * processors) pages.
UNCOUNTED_BYTES = psutil.cpu_count() * max(32, 2 * psutil.cpu_count()) * os.sysconf("SC_PAGE_SIZE")


class Obedient:
    """A process that runs one line of Python after another."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, "-c", OBEY], stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        self.pid = self._process.pid
        self.run("pass")

    def run(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "\n"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def process():
    process = Obedient()
    yield process
    process.end()


def reading(own_s=0.0, ended_s=0.0, started=1.0, age_s=100.0, read_bytes=None):
    own, ended = Spent(own_s, 0, 0), Spent(ended_s, 0, 0, read_bytes, read_bytes)
    return ProcessReading(started=started, age_s=age_s, rss_bytes=1, threads=1, own=own, ended=ended)


@pytest.mark.parametrize(("before", "now", "cpu_s"), [
    ({1: reading(5)}, {1: reading(7)}, 2),
    # born since: all it spent; seen late: nothing until the next reading
    ({1: reading(5)}, {1: reading(5), 2: reading(0.3, age_s=0.5)}, 0.3),
    ({1: reading(5)}, {1: reading(5), 2: reading(40.0, age_s=60)}, 0),
    # ended, and its parent waited: what it spent since the reading before
    ({1: reading(5), 2: reading(3)}, {1: reading(5, ended_s=4)}, 1),
    # lived and ended between the readings
    ({1: reading(5)}, {1: reading(5, ended_s=4)}, 4),
    # a grandchild and its parent ended, each waited for
    ({1: reading(5), 2: reading(3), 3: reading(2, ended_s=1)}, {1: reading(5, ended_s=3 + 2 + 1 + 0.5)}, 0.5),
    # ended and nobody waited: never less than nothing, and never off what others spent
    ({1: reading(5), 2: reading(3)}, {1: reading(7)}, 2),
    # the number used again by another process
    ({1: reading(5), 2: reading(3)}, {1: reading(5), 2: reading(0.25, started=9, age_s=0.5)}, 0.25),
    ({1: reading(5)}, {}, 0),
])  # fmt: skip
def test_cpu_time_of_a_tree_between_two_readings(before, now, cpu_s):
    assert spent_between(before, now, unseen_s=1.0).cpu_s == pytest.approx(cpu_s)


@pytest.mark.parametrize(("before", "now", "read_bytes"), [
    # of an ended child its parent's, once
    ({1: reading(read_bytes=100), 2: reading(read_bytes=40)}, {1: reading(read_bytes=100 + 40 + 5)}, 5),
    ({1: reading()}, {1: reading()}, None),
    ({1: reading()}, {1: reading(), 2: reading(read_bytes=7, age_s=0.1)}, 7),
])  # fmt: skip
def test_bytes_that_no_process_tells_are_absent_and_what_one_tells_counts_once(before, now, read_bytes):
    assert spent_between(before, now, 1.0).read_bytes == read_bytes


@linux
def test_both_ways_to_read_a_process_agree():
    fast, anywhere, later = read_process(os.getpid()), read_process_anywhere(os.getpid()), read_process(os.getpid())
    assert fast.threads == anywhere.threads
    assert fast.rss_bytes == pytest.approx(anywhere.rss_bytes, rel=0.05)
    # What only grows lies between what was read before and after, however long that took; ticks are cut.
    assert fast.own.cpu_s - 0.02 <= anywhere.own.cpu_s <= later.own.cpu_s + 0.02
    assert fast.age_s - 1.1 <= anywhere.age_s <= later.age_s + 1.1, "the time of the boot has whole seconds"
    assert fast.ended.read_bytes <= anywhere.ended.read_bytes


@linux
def test_a_tree_is_read_alike_without_proc(process, monkeypatch):
    for name in ("LINUX", "SHOWS_CHILDREN"):
        monkeypatch.setattr(host, name, False)
    sampler = HostSampler(process.pid)
    process.run("child = subprocess.Popen(['sleep', '60'])")
    (reading,) = sampler.read()

    def child_is_seen():
        nonlocal reading
        time.sleep(SHORTEST_INTERVAL_S)
        (reading,) = sampler.read()
        return len(sampler.tree.pids) == 2

    wait_until(child_is_seen)
    assert reading.process_threads == 2
    assert 0 <= reading.process_cpu_utilization < psutil.cpu_count() + 1
    assert reading.process_minor_faults is reading.process_major_faults is None


@linux
def test_a_name_of_brackets_and_spaces_confuses_nobody(tmp_path):
    name = tmp_path / "a) S 1 (b"
    name.symlink_to(sys.executable)
    with subprocess.Popen([name, "-c", "import time; time.sleep(60)"]) as child:
        found = read_process(child.pid)
        child.kill()
    assert found.threads == 1
    assert found.age_s < 60


@pytest.mark.parametrize("read", [read_process, read_process_anywhere])
def test_no_process_is_no_reading(read):
    assert read(2**22 + 1) is None


def test_descendants_are_those_that_psutil_finds(process):
    process.run(f"child = subprocess.Popen([sys.executable, '-c', {OBEY!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)")
    process.run('child.stdin.write(\'c = subprocess.Popen(["sleep", "60"])\\n\'); child.stdin.flush(); child.stdout.readline()')
    found = sorted(descendants(process.pid))
    assert found == sorted(child.pid for child in psutil.Process(process.pid).children(recursive=True))
    assert len(found) == 2


def test_children_that_came_and_went_between_two_readings_are_counted(process):
    tree = ProcessTree(process.pid)
    for _ in range(3):
        process.run(f"subprocess.run([sys.executable, '-c', {SPIN.format(0.2)!r}])")
    ended = psutil.Process(process.pid).cpu_times()
    assert ended.children_user + ended.children_system > 3 * 0.2 - 0.1
    for _ in range(2):
        assert tree.read().spent.cpu_s == pytest.approx(ended.children_user + ended.children_system, abs=0.1)


def test_a_child_counts_from_its_birth_also_where_it_is_seen_later(process):
    tree = ProcessTree(process.pid)
    process.run(f"child = subprocess.Popen([sys.executable, '-c', {(SPIN.format(0.1) + chr(10) + IDLE)!r}], stdout=subprocess.PIPE)")
    process.run("child.stdout.readline() and None")
    wait_until(lambda: tree.read() and len(tree.pids) == 2)
    assert tree.read().spent.cpu_s > 0.1 - 0.03  # ticks are cut


def test_a_child_that_is_watched_until_it_ends_counts_once(process):
    tree = ProcessTree(process.pid)
    process.run(f"child = subprocess.Popen([sys.executable, '-c', {SPIN.format(0.5)!r}])")
    seen = [tree.read().spent.cpu_s for _ in range(20) if time.sleep(0.05) is None]
    process.run("child.wait()")
    ended = psutil.Process(process.pid).cpu_times()
    assert seen == sorted(seen)
    assert tree.read().spent.cpu_s == pytest.approx(ended.children_user + ended.children_system, abs=0.1)


def test_a_child_of_an_ended_child_stays_in_the_tree(process):
    tree = ProcessTree(process.pid)
    process.run("held, holder = os.pipe()")
    process.run("(os.fork() or (os.fork(), os.read(held, 1), os._exit(0))) and None")
    wait_until(lambda: tree.read() and len(tree.pids) == 3)
    (child,) = (pid for pid in tree.pids if psutil.Process(pid).ppid() == process.pid)
    (grandchild,) = tree.pids - {child, process.pid}
    os.kill(child, signal.SIGKILL)
    process.run("os.wait() and None")
    tree.read()
    assert tree.pids == {process.pid, grandchild}


def test_a_tree_of_which_nothing_is_left_has_no_reading(process):
    tree = ProcessTree(process.pid)
    process.end()
    assert tree.read() is None


@linux
def test_pages_that_a_process_touches_are_minor_faults(process):
    sampler = HostSampler(process.pid)
    (before,) = sampler.read()
    process.run("import mmap; held = mmap.mmap(-1, 64 << 20); held[:] = bytes(64 << 20)")
    (after,) = sampler.read()
    huge_page = 2 << 20
    assert after.process_minor_faults - before.process_minor_faults >= (64 << 20) // huge_page
    assert after.process_rss_bytes - before.process_rss_bytes >= (64 << 20) - UNCOUNTED_BYTES
    assert after.process_major_faults >= before.process_major_faults >= 0


@linux
def test_bytes_that_a_process_writes_are_counted(process, tmp_path):
    sampler = HostSampler(process.pid)
    process.run(f"file = open({str(tmp_path / 'file')!r}, 'wb'); file.write(bytes(8 << 20)); file.flush(); os.fsync(file.fileno())")
    (after,) = sampler.read()
    on_disk = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip() != "tmpfs"
    assert after.process_written_bytes >= (8 << 20 if on_disk else 0)


def test_shared_pages_count_twice_in_the_resident_set_and_not_in_the_unique_one(process):
    process.run("held = bytearray(b'x' * (64 << 20)); none, holder = os.pipe()")
    (alone,) = HostSampler(process.pid).read()
    process.run("(os.fork() or (os.read(none, 1), os._exit(0))) and None")
    (shared,) = HostSampler(process.pid).read()
    assert shared.process_rss_bytes - alone.process_rss_bytes >= (64 << 20) - 2 * UNCOUNTED_BYTES
    assert alone.process_uss_bytes >= 64 << 20
    assert shared.process_uss_bytes < 64 << 20


def test_the_cores_are_as_busy_as_the_machine(process):
    sampler = HostSampler(process.pid)
    process.run("pass")
    time.sleep(0.5)
    (reading,) = sampler.read()
    assert len(reading.core_utilization) == psutil.cpu_count()
    assert all(0 <= core <= 1 for core in reading.core_utilization)
    assert sum(reading.core_utilization) / len(reading.core_utilization) == pytest.approx(reading.cpu_utilization, abs=0.1)
    assert reading.memory_used_bytes < reading.memory_total_bytes


def test_costs_and_resolution_of_the_host():
    # What is costly is read rarely.
    sampler = HostSampler(os.getpid())
    sampler.counters()
    began = time.monotonic()
    readings = [sampler.read()[0] for _ in range(50)]
    elapsed_s = time.monotonic() - began
    assert readings[0].process_uss_bytes is not None
    assert sum(one.process_uss_bytes is not None for one in readings) <= 1 + elapsed_s / USS_EVERY_S
    assert sum(one.cpu_frequency_hz is not None for one in readings) <= 2 + elapsed_s / SLOW_EVERY_S
    # Counters say how coarse ticks are.
    counters = {counter.field: counter for counter in HostSampler(os.getpid(), period_s=0.5).counters()}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    process = counters["process_cpu_utilization"]
    assert (process.update_s, process.window_s, process.resolution) == (tick_s, 0.5, tick_s / 0.5)
    assert counters["cpu_utilization"].resolution == tick_s / 0.5 / psutil.cpu_count()
    assert {counter.source for counter in counters.values()} == {"psutil"}


def test_a_question_is_asked_as_rarely_as_it_costs(monkeypatch):
    clock = {"time": 0.0}

    def question():
        clock["time"] += 0.02
        return clock["time"]

    monkeypatch.setattr(time, "monotonic", lambda: clock["time"])
    monkeypatch.setattr(time, "thread_time", lambda: clock["time"])
    for ask, expected in (
        (RateLimited(question, every_s=0.5, share=0.01), pytest.approx(100 * 0.01 / 0.02, rel=0.1)),
        (RateLimited(lambda: 1, every_s=1.0, share=0.01), pytest.approx(100, abs=12)),
    ):
        until, answers = clock["time"] + 100, 0
        while clock["time"] < until:
            answers += ask() is not None
            clock["time"] += 0.1
        assert answers == expected


def sensors(directory: Path, driver: str, **labeled: int) -> None:
    directory.mkdir(parents=True)
    (directory / "name").write_text(f"{driver}\n")
    for number, (label, millidegrees) in enumerate(labeled.items(), start=1):
        (directory / f"temp{number}_input").write_text(f"{millidegrees}\n")
        if label != "_":
            (directory / f"temp{number}_label").write_text(label.replace("_", " ") + "\n")


@pytest.mark.parametrize(("drivers", "temperature"), [
    # the hottest package
    # the hottest package
    ([("nvme", {"Composite": 91000}), ("coretemp", {"Package_id_0": 61000, "Core_0": 88000}), ("coretemp", {"Package_id_1": 64000})],
     64.0),
    ([("k10temp", {"Tctl": 82125, "Tdie": 62125, "Tccd1": 60000})], 62.125),  # the die, not what the fan follows
    ([("k10temp", {"Tctl": 55500})], 55.5),
    ([("cpu_thermal", {"_": 48312})], 48.312),  # no label where the driver has only one
    ([("acpitz", {"_": 27800})], None),
])  # fmt: skip
def test_the_temperature_of_the_processor(tmp_path, drivers, temperature):
    for number, (driver, labeled) in enumerate(drivers):
        sensors(tmp_path / f"hwmon{number}", driver, **labeled)
    found = CpuTemperature(tmp_path)
    assert (found.read(), found.exists) == (temperature, temperature is not None)
    assert (found.resolution_c == 1.0) == (temperature == 64.0)
