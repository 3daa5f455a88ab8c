"""The sampler process: reads the samplers until it is stopped or the watched process has ended.

It imports no torch and no numpy, so it is up in a fraction of a second and takes next to nothing from the run
it watches. See ``process`` for the side that starts it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping

import msgspec
import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.samplers import clock
from rooflines.profiler.samplers.amd import open_amd_gpus
from rooflines.profiler.samplers.base import PluggedInSampler, Sampler
from rooflines.profiler.samplers.host import HostSampler, runs
from rooflines.profiler.samplers.loop import BUSIEST_SHARE, LOW_OVERHEAD_SHARE, SamplingLoop, StopRequests
from rooflines.profiler.samplers.nvml import open_gpus
from rooflines.profiler.samplers.rapl import RaplSampler, package_counters
from rooflines.profiler.samplers.storage import JournalEntry, Order, write_entry


def main(order: Order) -> None:
    """Sample until the end."""
    if order.detached:
        if (sampler := os.fork()) != 0:
            os.write(1, str(sampler).encode())
            os._exit(0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    clock.set_epoch(order.epoch_ns)
    stop: StopRequests = queue.SimpleQueue()
    # Ctrl-C reaches every process of the terminal's group; whether the run ends is its decision, and then it
    # tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.put(None))

    told = True

    def wait_for_order() -> None:
        # A byte on standard input, or its end, which comes by itself when the process that started us is
        # killed. Not sys.stdin: its lock, held here, would make the interpreter abort when it ends for
        # another reason.
        nonlocal told
        told = bool(os.read(0, 1))
        stop.put(None)

    threading.Thread(target=wait_for_order, daemon=True).start()

    with open(order.output, "ab", buffering=0) as file:
        try:
            watched = psutil.Process(order.pid)
            samplers, problems = open_samplers(order.pid, order.period_s, order.gpus)
        except (psutil.Error, DeviceError):
            write_entry(
                file, JournalEntry(problem=f"Process {order.pid} had ended before it could be sampled.")
            )
            return
        samplers += [
            PluggedInSampler(name, path, order.pid, order.period_s) for name, path in order.plugins.items()
        ]
        for problem in problems:
            write_entry(file, JournalEntry(problem=problem))
        share = LOW_OVERHEAD_SHARE if order.low_overhead else BUSIEST_SHARE
        SamplingLoop(
            samplers, file, watched=lambda: runs(watched), period_s=order.period_s, stop=stop, share=share
        ).run()
    if order.farewell and not (told and runs(watched)):
        with contextlib.suppress(OSError):
            os.write(order.terminal, order.farewell.encode())


def open_samplers(
    pid: int, period_s: float, gpus: Mapping[str, str] | None
) -> tuple[list[Sampler], list[str]]:
    """All that can be sampled here, and a sentence for what should and cannot. Raises DeviceError without
    process ``pid``."""
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


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Order))
