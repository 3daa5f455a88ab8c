"""The sampler process: reads the samplers until it is stopped or the watched process has ended.

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
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.samplers import clock
from rooflines.profiler.samplers.amd import open_amd_gpus
from rooflines.profiler.samplers.base import PluggedInSampler, Sampler
from rooflines.profiler.samplers.host import HostSampler
from rooflines.profiler.samplers.loop import BUSIEST_SHARE, LOW_OVERHEAD_SHARE, SamplingLoop, StopRequests
from rooflines.profiler.samplers.nvml import open_gpus
from rooflines.profiler.samplers.rapl import RaplSampler, package_counters
from rooflines.profiler.samplers.storage import Entry, write_entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample until the end; 0 unless something unforeseen happened."""
    options = _parse(arguments)
    if options.epoch_ns is not None:
        clock.set_epoch(options.epoch_ns)
    stop: StopRequests = queue.SimpleQueue()
    # Ctrl-C reaches every process of the terminal's group; whether the run ends is its decision, and then it tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.put(None))

    def wait_for_order() -> None:
        # A byte on standard input, or its end, which comes by itself when the process that started us is killed. Not sys.stdin: its
        # lock, held here, would make the interpreter abort when it ends for another reason.
        os.read(0, 1)
        stop.put(None)

    threading.Thread(target=wait_for_order, daemon=True).start()

    with options.output.open("ab", buffering=0) as file:
        try:
            watched = psutil.Process(options.pid)
            samplers, problems = open_samplers(options.pid, options.period_s, options.gpus)
        except (psutil.Error, DeviceError):
            write_entry(file, Entry(problem=f"Process {options.pid} had ended before it could be sampled."))
            return 0
        for name, path in (plugin.split("=", 1) for plugin in options.plugins):
            samplers.append(PluggedInSampler(name, path, options.pid, options.period_s))
        for problem in problems:
            write_entry(file, Entry(problem=problem))
        share = LOW_OVERHEAD_SHARE if options.low_overhead else BUSIEST_SHARE
        SamplingLoop(samplers, file, watched=lambda: _runs(watched), period_s=options.period_s, stop=stop, share=share).run()
    return 0


def open_samplers(pid: int, period_s: float, gpus: Mapping[str, str] | None) -> tuple[list[Sampler], list[str]]:
    """All that can be sampled here, and a sentence for what should and cannot. Raises DeviceError without process ``pid``."""
    host = HostSampler(pid, period_s)
    amd, problems, others = open_amd_gpus(gpus, lambda: host.tree.pids)
    nvidia, more_problems = open_gpus(others, lambda: host.tree.pids)
    # On a machine with GPUs of one vendor, the other vendor's library may be missing.
    if nvidia or not (problems or (gpus is None and amd)):
        problems += more_problems
    samplers: list[Sampler] = [host, *amd, *nvidia]
    # Missing counters are not a problem of this run; missing permissions can be changed.
    if package_counters():
        try:
            samplers.append(RaplSampler(period_s=period_s))
        except DeviceError as error:
            problems.append(str(error))
    return samplers, problems


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
    parser.add_argument("--epoch-ns", type=int, help="what the process that starts us adds to the monotonic clock")
    parser.add_argument("--low-overhead", action="store_true", help="less often where readings cost what timed steps would feel")
    parser.add_argument("--all-gpus", dest="gpus", action="store_const", const=None, help="sample every GPU (the default)")
    parser.add_argument("--no-gpus", dest="gpus", action="store_const", const={}, help="sample no GPU")
    parser.add_argument("--gpu", dest="named", action="append", default=[], metavar="NAME=UUID", help="sample this GPU; repeatable")
    parser.add_argument("--plugin", dest="plugins", action="append", default=[], metavar="NAME=MODULE:OBJECT", help="repeatable")
    options = parser.parse_args(arguments)
    if options.named:
        options.gpus = dict(item.split("=", 1) for item in options.named)
    return options


if __name__ == "__main__":
    sys.exit(main())
