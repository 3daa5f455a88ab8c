"""The machine's CPU and memory, and what a process and its descendants hold of them now and have spent.

On Linux one read of ``/proc/PID/stat`` answers nearly everything about a process; elsewhere psutil is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.update_time import RateLimited

LINUX = sys.platform.startswith("linux")
TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# How often descendants are listed, and what that may take of a core. Where the kernel shows children (most
# do) it costs a read for every thread of the tree, elsewhere one for every process of the machine.
LISTING_EVERY_S, LISTING_SHARE = 0.25, 0.005
SHOWS_CHILDREN = LINUX and os.path.exists(f"/proc/self/task/{os.getpid()}/children")
# The unique set size is added up page by page, under a lock that the watched process needs to map memory:
# some 10 ms a gigabyte.
USS_EVERY_S, USS_SHARE = 5.0, 0.001
# The system counts CPU time in ticks of 10 ms: over a shorter interval the quotient says more about ticks
# than about load.
SHORTEST_INTERVAL_S = 0.05
# Clocks and temperatures are read from every core and over slow buses, and they change slowly; a line for
# every core is read as often as it costs next to nothing, which is always but on machines with very many.
SLOW_EVERY_S, SLOW_SHARE = 1.0, 0.002
CORES_SHARE = 0.003
# The driver, the label of its sensor for a whole package, and the step it counts in, in degrees: the kernel's
# documentation of coretemp (Intel) and k10temp (AMD); zenpower is an alternative to the latter; the rest are
# of ARM boards, without labels. Tdie is the temperature; Tctl is what the fan follows, which on some
# processors lies above it.
_SENSORS: tuple[tuple[str, str, float | None], ...] = (
    ("coretemp", r"Package id \d+", 1.0),
    ("k10temp", r"Tdie", 0.125),
    ("k10temp", r"Tctl", 0.125),
    ("zenpower", r"Tdie", 0.125),
    ("cpu_thermal", r"", None),
)
HWMON = Path("/sys/class/hwmon")
Times = dict[str, float]


def content(path: str) -> bytes:
    """Read a file of /proc at less cost than ``open``, which queries sizes and positions that have no meaning
    here."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def line_of(path: Path) -> str:
    """The contents of a small file of the kernel, empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def own_peak_rss_bytes() -> int | None:
    """The high-water mark of this process's resident set (VmHWM in proc(5)); None where the system does not
    show it."""
    marks = re.search(r"^VmHWM:\s+(\d+) kB", line_of(Path("/proc/self/status")), re.MULTILINE)
    return int(marks[1]) * 1024 if marks else None


class Spent(NamedTuple):
    """Resources used by processes. Faults and bytes are None if the system does not report them."""

    cpu_s: float = 0.0
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class ProcessReading(NamedTuple):
    """One process. ``ended`` are the resources used by its reaped children and their descendants.

    The system counts the bytes of ended children as the parent's own, so all bytes are in ``ended``.
    """

    started: float
    age_s: float
    rss_bytes: int
    threads: int
    own: Spent
    ended: Spent


class TreeReading(NamedTuple):
    """What the living processes of a tree hold, and what the tree has ``spent`` since it is watched."""

    rss_bytes: int
    threads: int
    processes: int
    spent: Spent


class ProcessTree:
    """The process ``pid`` and its descendants; the process that asks is not counted as one.

    Descendants are listed a few times a second. One that was born since counts with all it spent, one that is
    older (it was there when watching began, or was adopted) from then on; once seen it counts until it ends,
    also when its parent has. What short-lived children spent counts when their parent has waited for them.
    Raises DeviceError if process ``pid`` does not exist.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._read: Callable[[int], ProcessReading | None] = read_process if LINUX else read_process_anywhere
        # The memory that would be freed if the tree ended: every few seconds at most, None in between.
        self.uss_bytes = RateLimited(self._uss_bytes, every_s=USS_EVERY_S, share=USS_SHARE)
        self._list = RateLimited(self._add_descendants, every_s=LISTING_EVERY_S, share=LISTING_SHARE)
        self._members = {pid: 0.0}
        self._list()
        self._listed_at = time.monotonic()
        self._before = self._readings()
        if pid not in self._before:
            raise DeviceError(
                f"process {pid} cannot be monitored: it does not exist or belongs to another user."
            )
        self._total = Spent()

    @property
    def pids(self) -> frozenset[int]:
        """The processes of the tree that were alive at the latest reading."""
        return frozenset(self._before)

    def read(self) -> TreeReading | None:
        """The tree now, or None when none of it is left."""
        listed = self._list()
        now_at = time.monotonic()
        now = self._readings()
        self._total = added(self._total, spent_between(self._before, now, now_at - self._listed_at))
        self._before = now
        if listed is not None:
            self._listed_at = now_at
        if not now:
            return None
        return TreeReading(
            rss_bytes=sum(process.rss_bytes for process in now.values()),
            threads=sum(process.threads for process in now.values()),
            processes=len(now),
            spent=self._total,
        )

    def _readings(self) -> dict[int, ProcessReading]:
        readings = {}
        for pid, started in tuple(self._members.items()):
            reading = self._read(pid)
            if reading is None or (
                started and reading.started != started
            ):  # ended, and its number perhaps used again
                del self._members[pid]
            else:
                self._members[pid] = reading.started
                readings[pid] = reading
        return readings

    def _add_descendants(self) -> int:
        for pid in descendants(self._root):
            if pid != os.getpid():  # the sampler is a child of the run it watches, and no part of it
                self._members.setdefault(pid, 0.0)
        return len(self._members)

    def _uss_bytes(self) -> int | None:
        sizes = []
        for pid in self._before:
            with contextlib.suppress(psutil.Error, OSError, AttributeError):
                sizes.append(int(psutil.Process(pid).memory_full_info().uss))
        return sum(sizes) if sizes else None


def spent_between(
    before: dict[int, ProcessReading], now: dict[int, ProcessReading], unseen_s: float
) -> Spent:
    """Resources used by a tree between two readings of its processes by process id.

    A process without an earlier reading counts with all it spent if it is younger than ``unseen_s``, the time
    since it was last looked for new ones, and else not yet. When a process ends and its parent waits for it,
    all it ever spent is added to the parent's ``ended``: what was known of it before is taken off there. A
    process that ended unnoticed by any parent takes with it what it spent since the reading before.
    """
    own, ended = Spent(), Spent()
    for pid, reading in now.items():
        earlier = before.get(pid)
        if earlier is not None and earlier.started == reading.started:
            own = added(own, added(reading.own, earlier.own, sign=-1))
            ended = added(ended, added(reading.ended, earlier.ended, sign=-1))
        elif reading.age_s <= unseen_s + 2 * TICK_S:
            own, ended = added(own, reading.own), added(ended, reading.ended)
    for pid, earlier in before.items():
        if pid not in now or now[pid].started != earlier.started:
            ended = added(ended, added(earlier.own, earlier.ended), sign=-1)
    own, ended = (Spent._make(value and max(0, value) for value in spent) for spent in (own, ended))
    return added(own, ended)


def added(one: Spent, other: Spent, sign: int = 1) -> Spent:
    """The sum (``sign`` 1) or the difference (-1); what only one of them knows is taken from it."""
    return Spent._make(a if b is None else (a or 0) + sign * b for a, b in zip(one, other, strict=True))


def read_process(pid: int) -> ProcessReading | None:
    """One process as Linux shows it, None when it has ended or is not ours to look at. See proc(5) for the
    fields."""
    try:
        stat = content(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name, in brackets, may hold anything, also brackets and spaces.
    fields = stat[stat.rindex(b")") + 2 :].split()
    alive = fields[0] not in (b"Z", b"X")
    minor, ended_minor, major, ended_major, user, system, ended_user, ended_system = map(int, fields[7:15])
    threads, _, started, _, rss_pages = map(int, fields[17:22])
    read_bytes, written_bytes = _storage_bytes(pid)
    return ProcessReading(
        started=float(started),
        age_s=time.clock_gettime(time.CLOCK_BOOTTIME) - started * TICK_S,
        rss_bytes=rss_pages * PAGE_BYTES,
        threads=threads if alive else 0,
        own=Spent((user + system) * TICK_S, minor, major),
        ended=Spent(
            (ended_user + ended_system) * TICK_S, ended_minor, ended_major, read_bytes, written_bytes
        ),
    )


def read_process_anywhere(pid: int) -> ProcessReading | None:
    """One process as psutil shows it on every system, None when it has ended or is not ours to look at."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            alive = process.status() != psutil.STATUS_ZOMBIE
            started = process.create_time()
            read_bytes = written_bytes = None
            with contextlib.suppress(psutil.Error, AttributeError):  # macOS has no such counters
                counted = process.io_counters()
                read_bytes, written_bytes = counted.read_bytes, counted.write_bytes
            return ProcessReading(
                started=started,
                age_s=time.time() - started,
                rss_bytes=process.memory_info().rss if alive else 0,
                threads=process.num_threads() if alive else 0,
                own=Spent(times.user + times.system),
                ended=Spent(
                    getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0),
                    read_bytes=read_bytes,
                    written_bytes=written_bytes,
                ),
            )
    except (psutil.Error, OSError):
        return None


def runs(process: psutil.Process) -> bool:
    """Whether the process still runs: neither gone, nor its number reused, nor dead and waiting for its
    parent to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def descendants(pid: int) -> Iterator[int]:
    """The ids of the children of ``pid``, of theirs and so on."""
    if not SHOWS_CHILDREN:
        with contextlib.suppress(psutil.Error, OSError):
            yield from (child.pid for child in psutil.Process(pid).children(recursive=True))
        return
    waiting = [pid]
    while waiting:
        children = list(_children(waiting.pop()))
        yield from children
        waiting += children


def _children(pid: int) -> Iterator[int]:
    """The children that each thread of ``pid`` has started."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                yield from map(int, content(f"/proc/{pid}/task/{thread}/children").split())


def _storage_bytes(pid: int) -> tuple[int | None, int | None]:
    """Bytes that the process had read from storage and written to it; what the page cache answers is
    neither."""
    try:
        lines = dict(line.split(b": ") for line in content(f"/proc/{pid}/io").splitlines())
        return int(lines[b"read_bytes"]), int(lines[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return None, None


class HostSampler(Sampler):
    """One sample of the machine and of the process ``pid`` with all its descendants (``ProcessTree`` says
    which and when).

    Utilizations are averages since the previous reading that had them, so the first reading after a start may
    lack them. Resident set sizes are added up: a page that two processes share counts in each. Counters of
    processes count from the sampler's start. Clock and temperature are read once a second, the unique set
    size every five, and they are absent in between. ``period_s`` is how often it will be read: the resolution
    of utilizations depends on it. Raises DeviceError if process ``pid`` does not exist.
    """

    def __init__(self, pid: int, period_s: float = 0.1) -> None:
        self.tree = ProcessTree(pid)
        self.period_s = SHORTEST_INTERVAL_S
        self._interval_s = max(period_s, SHORTEST_INTERVAL_S)
        self._temperature = CpuTemperature()
        self._frequency_hz = RateLimited(cpu_frequency_hz, every_s=SLOW_EVERY_S, share=SLOW_SHARE)
        self._temperature_c = RateLimited(self._temperature.read, every_s=SLOW_EVERY_S, share=SLOW_SHARE)
        self._core_times = RateLimited(_core_times, share=CORES_SHARE)
        self._cores = self._core_times() or []
        self._machine = _states(psutil.cpu_times())
        self._cpu_s = 0.0
        self._measured_at = time.monotonic()

    def counters(self) -> Sequence[Counter]:
        # Here and not at the first reading, which is within what is measured.
        for question in (self._frequency_hz, self._temperature_c, self.tree.uss_bytes):
            question.prime()
        tick, page_bytes = TICK_S / self._interval_s, float(PAGE_BYTES)
        counter = partial(Counter, source="psutil", device="host")
        busy = partial(counter, update_s=TICK_S, window_s=self._interval_s)
        counters = [
            busy(field="cpu_utilization", resolution=tick / max(1, len(self._cores))),
            busy(field="core_utilization", resolution=tick),
            busy(field="process_cpu_utilization", resolution=tick),
            counter(field="cpu_frequency_hz", update_s=SLOW_EVERY_S),
            counter(field="process_rss_bytes", resolution=page_bytes),
            counter(field="process_uss_bytes", update_s=USS_EVERY_S, resolution=page_bytes),
        ]
        if self._temperature.exists:
            resolution_c = self._temperature.resolution_c
            counters.append(counter(field="temperature_c", update_s=SLOW_EVERY_S, resolution=resolution_c))
        return counters

    def read(self) -> Sequence[DeviceSample]:
        tree = self.tree.read()
        now = time.monotonic()
        cpu_utilization = process_cpu_utilization = core_utilization = None
        elapsed_s = now - self._measured_at
        if elapsed_s >= SHORTEST_INTERVAL_S:
            machine = _states(psutil.cpu_times())
            cpu_utilization = busy_fraction(self._machine, machine)
            self._machine, self._measured_at = machine, now
            core_utilization = self._core_utilization()
            if tree is not None:
                process_cpu_utilization = (tree.spent.cpu_s - self._cpu_s) / elapsed_s
                self._cpu_s = tree.spent.cpu_s
        memory = psutil.virtual_memory()
        values: dict[str, Any] = {}
        if tree is not None:
            spent = tree.spent
            values = {
                "process_rss_bytes": tree.rss_bytes,
                "process_threads": tree.threads,
                "process_count": tree.processes,
                "process_read_bytes": spent.read_bytes,
                "process_written_bytes": spent.written_bytes,
                "process_minor_faults": spent.minor_faults,
                "process_major_faults": spent.major_faults,
            }
        sample = DeviceSample(
            time_ns=now_ns(),
            source="psutil",
            cpu_utilization=cpu_utilization,
            core_utilization=core_utilization,
            cpu_frequency_hz=self._frequency_hz(),
            temperature_c=self._temperature_c(),
            memory_used_bytes=memory.total
            - memory.available,  # others could not have it without making programs swap
            memory_total_bytes=memory.total,
            process_cpu_utilization=process_cpu_utilization,
            process_uss_bytes=self.tree.uss_bytes(),
            **values,
        )
        return (sample,)

    def _core_utilization(self) -> tuple[float, ...] | None:
        cores = self._core_times()
        if cores is None:
            return None
        before, self._cores = self._cores, cores
        if len(before) != len(cores):  # one went on or off: which is not said
            return None
        busy = [busy_fraction(*times) for times in zip(before, cores, strict=True)]
        # A tick is a tenth of a reading ten times a second: more digits would say nothing and fill the file.
        return None if None in busy else tuple(round(core, 3) for core in busy if core is not None)


def cpu_frequency_hz() -> float | None:
    """The cores' mean clock now, or None where the system does not tell."""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return frequency.current * 1e6 if frequency and frequency.current else None


def busy_fraction(before: Times, after: Times) -> float | None:
    """The share of the cores' time between two readings that was neither idle nor waiting for a disk; None
    when no time passed."""
    # Linux lets idle and iowait step back a little when cores go offline or times are corrected.
    spent = {state: max(0.0, seconds - before.get(state, seconds)) for state, seconds in after.items()}
    total = sum(spent.values())
    if not total:
        return None
    return 1 - (spent.get("idle", 0.0) + spent.get("iowait", 0.0)) / total


def _core_times() -> list[Times]:
    return [_states(core) for core in psutil.cpu_times(percpu=True)]


def _states(times: Any) -> Times:
    """Seconds by state; the time of guests is in that of users."""
    return {state: seconds for state, seconds in times._asdict().items() if not state.startswith("guest")}


class CpuTemperature:
    """The temperature sensors of the CPU packages, looked for once (Linux).

    ``resolution_c`` is the step they count in, None where that is not known.
    """

    def __init__(self, hwmon: Path = HWMON) -> None:
        self.resolution_c: float | None = None
        self._inputs: list[Path] = []
        sensors = [
            (line_of(path.with_name("name")), path) for path in sorted(hwmon.glob("hwmon*/temp*_input"))
        ]
        for driver, label, resolution_c in _SENSORS:
            if not self._inputs:
                self.resolution_c = resolution_c
                self._inputs = [
                    path
                    for name, path in sensors
                    if name == driver
                    and re.fullmatch(label, line_of(path.with_name(path.name.replace("_input", "_label"))))
                ]

    @property
    def exists(self) -> bool:
        """Whether there is a sensor."""
        return bool(self._inputs)

    def read(self) -> float | None:
        """The hottest package in degrees Celsius, None where nothing can be read."""
        readings = [int(text) for path in self._inputs if (text := line_of(path)).lstrip("-").isdigit()]
        return max(readings) / 1e3 if readings else None
