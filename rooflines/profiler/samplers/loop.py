"""Reading several samplers, each at its own pace, into one journal.

A thread for each and not one loop in turn: a driver that hangs, as one does whose GPU falls off the bus, then
delays neither the other readings nor the end of the process, and every series keeps its own rhythm. A thread
sleeps between readings, and what it asks of the system or a driver does not hold the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.storage import JournalEntry, write_entry

# A SimpleQueue because a signal handler may put into it at any moment: an Event's lock could already be held
# by the thread it interrupted. What is put there is the order to stop: None, or what went wrong.
StopRequests = queue.SimpleQueue[OSError | None]

# What one sampler may take of a core. One that takes more at the period asked for, on a machine of very many
# cores or with very many processes to watch, is read less often.
BUSIEST_SHARE = 0.02
# During steps timed on the CPU: half a thousandth of the machine. A step that keeps all cores busy waits for
# the one that is taken and loses this share whole; waking up and what a reading pushes out of the caches cost
# it about as much again, and on few cores all are busy.
LOW_OVERHEAD_SHARE = min(BUSIEST_SHARE, 0.0005 * (os.cpu_count() or 1))
COST_SMOOTHED_OVER = 8  # readings
# How long measuring counters may hold up the start; a sampler that takes longer joins the others when it is
# ready.
COUNTERS_TIMEOUT_S = 3.0
# How long a reading that is under way may hold up the end.
LAST_READING_S = 1.0
# How often it is looked whether there is still something to watch.
LOOK_EVERY_S = 1.0
# A series without a reading for this time and this many periods has a gap that is reported.
GAP_S, GAP_PERIODS = 2.0, 10


@dataclass
class SamplingLoop:
    """Reads ``samplers`` into ``file`` until there is an order in ``stop`` or ``watched`` says that there is
    nothing left to watch.

    A sampler is read every ``period_s`` seconds or as often as it allows, without catching up on readings
    that were missed. One that raises is closed and the reason written down; the others go on. A sampler takes
    at most ``share`` of a core. ``run`` raises OSError when the file cannot be written.
    """

    samplers: Sequence[Sampler]
    file: BinaryIO
    watched: Callable[[], bool]
    period_s: float
    stop: StopRequests
    share: float = BUSIEST_SHARE

    def __post_init__(self) -> None:
        self._writing = threading.Lock()
        self._begin = threading.Event()
        self._end = threading.Event()
        self._ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(sampler,), daemon=True) for sampler in self.samplers
        ]

    def run(self) -> None:
        """Sample until the end."""
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + COUNTERS_TIMEOUT_S
        with contextlib.suppress(queue.Empty):
            for _ in self._threads:
                self._ready.get(timeout=max(0.0, deadline - time.monotonic()))
        self._write(JournalEntry(started=True))
        self._begin.set()
        failure = None
        while self.watched():
            try:
                failure = self.stop.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                continue
            break
        self._end.set()
        deadline = time.monotonic() + LAST_READING_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if failure is not None:
            raise failure
        silent = sum(thread.is_alive() for thread in self._threads)
        if silent:
            self._write(
                JournalEntry(problem=f"{silent} of {len(self._threads)} samplers did not respond at the end.")
            )

    def _serve(self, sampler: Sampler) -> None:
        try:
            try:
                counters = sampler.counters()
                if sampler.fields:
                    self._write(JournalEntry(fields=dict(sampler.fields)))
                for counter in counters:
                    self._write(JournalEntry(counter=counter))
            finally:
                self._ready.put(None)
            self._begin.wait()
            self._read_on(sampler)
        except DeviceError as error:
            self._write(JournalEntry(problem=str(error)))
        except (Exception, SystemExit) as error:
            self._write(JournalEntry(problem=f"{sampler} stopped: {type(error).__name__}: {error}."))
        finally:
            sampler.close()

    def _read_on(self, sampler: Sampler) -> None:
        period_s = max(self.period_s, sampler.period_s)
        due = began = time.monotonic()
        gap_s = 0.0
        cost_s = period_s * self.share  # the most that does not yet lengthen the period
        ended = False
        while True:
            before_s = time.thread_time()
            for reading in sampler.read():
                self._write(JournalEntry(sample=reading))
            # Smoothed, because now and then a reading holds what is read less often.
            cost_s += (time.thread_time() - before_s - cost_s) / COST_SMOOTHED_OVER
            # The last reading follows the order to end, so that the samples lie around what was watched.
            if ended:
                break
            step_s = max(period_s, cost_s / self.share)
            now = time.monotonic()
            due += step_s * max(1, -(-(now - due) // step_s))
            ended = self._end.wait(due - now)
            last, began = began, time.monotonic()
            gap_s = max(gap_s, began - last - step_s)
        if gap_s > max(GAP_S, GAP_PERIODS * period_s):
            self._write(JournalEntry(problem=f"{sampler} could not read for {gap_s:.1f} s."))

    def _write(self, entry: JournalEntry) -> None:
        """Write one line; when that fails there is nothing more to do here, for anyone."""
        try:
            with self._writing:
                if not self.file.closed:
                    write_entry(self.file, entry)
        except OSError as error:
            self._end.set()
            self.stop.put(error)
