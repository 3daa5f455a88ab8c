"""The sampler process: reads the samplers every period until told to stop or until the watched process has ended.

It imports no torch and no numpy, so it is up in a fraction of a second and takes next to nothing from the run it watches. See
``process`` for the side that starts it.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.host import HostSampler
from rooflines.profiler.samplers.journal import Entry, write_entry
from rooflines.profiler.samplers.nvml import open_gpus
from rooflines.profiler.samplers.rapl import RaplSampler, package_counters

# A SimpleQueue because a signal handler may put into it at any moment: an Event's lock could already be held by the thread it
# interrupted.
StopRequests = queue.SimpleQueue[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample until the end; 0 unless something unforeseen happened."""
    options = _parse(arguments)
    stop: StopRequests = queue.SimpleQueue()
    # Ctrl-C reaches every process of the terminal's group; whether the run ends is its decision, and then it tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.put("terminated"))
    threading.Thread(target=_wait_for_order, args=(stop,), daemon=True).start()

    with options.output.open("ab", buffering=0) as file:
        try:
            watched = psutil.Process(options.pid)
            samplers: list[Sampler] = [HostSampler(options.pid)]
        except (psutil.Error, DeviceError):
            write_entry(file, Entry(problem=f"Process {options.pid} had ended before it could be sampled."))
            return 0
        gpus, problems = open_gpus(options.gpus)
        samplers.extend(gpus)
        # A machine without counters is no problem of this run; one that keeps them from us may be changed.
        if package_counters():
            try:
                samplers.append(RaplSampler())
            except DeviceError as error:
                problems.append(str(error))
        for problem in problems:
            write_entry(file, Entry(problem=problem))
        write_entry(file, Entry(started=True))
        try:
            sample(samplers, file, watched, options.period_s, stop)
        finally:
            for sampler in samplers:
                sampler.close()
    return 0


def sample(samplers: list[Sampler], file: BinaryIO, watched: psutil.Process, period_s: float, stop: StopRequests) -> None:
    """Read every sampler each period, without catching up on periods that were missed; a sampler whose device is gone is dropped."""
    due = time.monotonic()
    while _runs(watched):
        for sampler in tuple(samplers):
            if not _record(sampler, file):
                samplers.remove(sampler)
                sampler.close()
        now = time.monotonic()
        due += period_s * max(1, -(-(now - due) // period_s))
        try:
            stop.get(timeout=due - now)
        except queue.Empty:
            continue
        return


def _record(sampler: Sampler, file: BinaryIO) -> bool:
    """Write one reading; False when the sampler's device is gone."""
    try:
        for reading in sampler.read():
            write_entry(file, Entry(sample=reading))
    except DeviceError as error:
        write_entry(file, Entry(problem=str(error)))
        return False
    return True


def _wait_for_order(stop: StopRequests) -> None:
    """A byte on standard input, or its end, is the order to stop: it ends by itself when the process that started us is killed."""
    # Not sys.stdin: its lock, held here, would make the interpreter abort when it ends for another reason.
    os.read(0, 1)
    stop.put("told")


def _runs(process: psutil.Process) -> bool:
    """Whether the watched process still runs: neither gone, nor its number reused, nor dead and waiting for its parent to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rooflines.profiler.samplers", description="Sample a process and its devices.")
    parser.add_argument("--pid", type=int, required=True, help="the process to watch")
    parser.add_argument("--output", type=Path, required=True, help="the file of JSON lines to append to")
    parser.add_argument("--period-s", type=float, required=True, help="seconds between two readings")
    parser.add_argument("--all-gpus", dest="gpus", action="store_const", const=None, help="sample every GPU (the default)")
    parser.add_argument("--no-gpus", dest="gpus", action="store_const", const={}, help="sample no GPU")
    parser.add_argument("--gpu", dest="named", action="append", default=[], metavar="NAME=UUID", help="sample this GPU; repeatable")
    options = parser.parse_args(arguments)
    if options.named:
        options.gpus = dict(item.split("=", 1) for item in options.named)
    return options


if __name__ == "__main__":
    sys.exit(main())
