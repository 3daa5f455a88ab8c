"""A process and all its descendants: what they hold now and what they have spent, together.

On Linux one read of ``/proc/PID/stat`` answers nearly everything; elsewhere psutil is asked.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.update_time import RateLimited

LINUX = sys.platform.startswith("linux")


def content(path: str) -> bytes:
    """The contents of a file of /proc, read at once."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def line_of(path: Path) -> str:
    """The contents of a small file of the kernel, empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# How often descendants are listed, and what that may take of a core. Where the kernel shows children (most do) it costs a read for
# every thread of the tree, elsewhere one for every process of the machine.
LISTING_EVERY_S, LISTING_SHARE = 0.25, 0.005
SHOWS_CHILDREN = LINUX and os.path.exists(f"/proc/self/task/{os.getpid()}/children")
# The unique set size is added up page by page, under a lock that the watched process needs to map memory: some 10 ms a gigabyte.
USS_EVERY_S, USS_SHARE = 5.0, 0.001


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

    Descendants are listed a few times a second. One that was born since counts with all it spent, one that is older (it was there
    when watching began, or was adopted) from then on; once seen it counts until it ends, also when its parent has. What short-lived
    children spent counts when their parent has waited for them. Raises DeviceError if process ``pid`` does not exist.
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
            raise DeviceError(f"process {pid} cannot be monitored: it does not exist or belongs to another user.")
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
        rss_bytes, threads = sum(one.rss_bytes for one in now.values()), sum(one.threads for one in now.values())
        return TreeReading(rss_bytes=rss_bytes, threads=threads, processes=len(now), spent=self._total)

    def _readings(self) -> dict[int, ProcessReading]:
        readings = {}
        for pid, started in tuple(self._members.items()):
            reading = self._read(pid)
            if reading is None or (started and reading.started != started):  # ended, and its number perhaps used again
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
        sizes = [size for size in map(_own_uss_bytes, self._before) if size is not None]
        return sum(sizes) if sizes else None


def spent_between(before: dict[int, ProcessReading], now: dict[int, ProcessReading], unseen_s: float) -> Spent:
    """Resources used by a tree between two readings of its processes by process id.

    A process without an earlier reading counts with all it spent if it is younger than ``unseen_s``, the time since it was last looked
    for new ones, and else not yet.
    When a process ends and its parent waits for it, all it ever spent is added to the parent's ``ended``: what was known of it before
    is taken off there. A process that ended unnoticed by any parent takes with it what it spent since the reading before.
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
    used = (Spent._make(value and max(0, value) for value in spent) for spent in (own, ended))
    return added(*used)


def added(one: Spent, other: Spent, sign: int = 1) -> Spent:
    """The sum (``sign`` 1) or the difference (-1); what only one of them knows is taken from it."""
    return Spent._make(a if b is None else (a or 0) + sign * b for a, b in zip(one, other, strict=True))


def read_process(pid: int) -> ProcessReading | None:
    """One process as Linux shows it, None when it has ended or is not ours to look at. See proc(5) for the fields."""
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
        ended=Spent((ended_user + ended_system) * TICK_S, ended_minor, ended_major, read_bytes, written_bytes),
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
        waiting.extend(children)


def _children(pid: int) -> Iterator[int]:
    """The children that each thread of ``pid`` has started."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                yield from map(int, content(f"/proc/{pid}/task/{thread}/children").split())


def _storage_bytes(pid: int) -> tuple[int | None, int | None]:
    """Bytes that the process had read from storage and written to it; what the page cache answers is neither."""
    try:
        lines = dict(line.split(b": ") for line in content(f"/proc/{pid}/io").splitlines())
        return int(lines[b"read_bytes"]), int(lines[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return None, None


def _own_uss_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, OSError, AttributeError):
        return None
