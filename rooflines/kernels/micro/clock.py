"""Time calls on a torch device: CUDA events on a GPU, ``perf_counter_ns`` elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from rooflines.kernels.micro.repeats import Timing, share


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has finished everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def timed(device: torch.device, call: Callable[[], object], calls: int) -> Timing:
    """The time of ``calls`` calls of ``call`` in a row.

    On CUDA between two events in the current stream, so the time of the host counts only where it is slower than the device. On a
    CPU with the share of torch's threads that really ran.
    """
    synchronize(device)
    if device.type == "cuda":
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            return Timing(start.elapsed_time(end) * 1e-3)  # elapsed_time is in milliseconds
    begin, before = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(calls):
        call()
    synchronize(device)
    after, end_ns = time.process_time_ns(), time.perf_counter_ns()
    took = max(1, end_ns - begin)
    # torch's idle threads spin for a while before they sleep, so an undisturbed call keeps all of them at work
    busy = share(after - before, took * torch.get_num_threads()) if device.type == "cpu" else 1.0
    return Timing(took * 1e-9, busy)
