"""How long calls take on a torch device: CUDA events on a GPU, ``perf_counter_ns`` elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has finished everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds_per_call(device: torch.device, call: Callable[[], object], calls: int) -> float:
    """Average time of ``call`` over ``calls`` calls in a row, in seconds.

    On CUDA between two events in the current stream, so the time of the host counts only where it is slower than the device.
    """
    synchronize(device)
    if device.type == "cuda":
        with torch.cuda.device(device):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3 / calls  # elapsed_time is in milliseconds
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    synchronize(device)
    return (time.perf_counter_ns() - begin) * 1e-9 / calls
