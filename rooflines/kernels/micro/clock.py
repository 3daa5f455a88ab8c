"""Time calls on a torch device: CUDA events on a GPU, ``perf_counter_ns`` elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

import torch

from rooflines.kernels.micro.repeats import Timing, share

_PART_S = 2e-4  # of the shortest part: four hundred times the resolution of an event
_EVENTS = 256  # at most in one run, so that recording them takes no time of their own


def synchronize_device(device: torch.device) -> None:
    """Wait until ``device`` has finished everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def timed_on_device(device: torch.device, call: Callable[[], object], calls: int) -> Timing:
    """The time of ``calls`` calls of ``call`` in a row.

    On CUDA between two events in the current stream, so the time of the host counts only where it is slower
    than the device. On a CPU with the share of torch's threads that really ran.
    """
    if device.type == "cuda":
        return Timing(_ends(device, call, [calls])[-1])
    synchronize_device(device)
    begin, before = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(calls):
        call()
    synchronize_device(device)
    after, end_ns = time.process_time_ns(), time.perf_counter_ns()
    took = max(1, end_ns - begin)
    # torch's idle threads spin for a while before they sleep, so an undisturbed call keeps all of them at
    # work
    busy = share(after - before, took * torch.get_num_threads()) if device.type == "cpu" else 1.0
    return Timing(took * 1e-9, busy)


def timed_in_parts(device: torch.device, call: Callable[[], object], calls: int) -> Timing:
    """As ``timed_on_device``, on CUDA also with the pace of the fastest part of the calls.

    A GPU at its power limit lowers its clock within milliseconds of a product. A short kernel of a step that
    draws little power runs at the full clock, so the roof above it is the pace before the clock falls.
    """
    if device.type != "cuda":
        return timed_on_device(device, call, calls)
    stride = ceil(calls / _EVENTS)
    groups = [min(stride, calls - first) for first in range(0, calls, stride)]
    ends = _ends(device, call, groups)
    return Timing(ends[-1], peak_s=calls * fastest_pace(ends, groups))


def _ends(device: torch.device, call: Callable[[], object], groups: list[int]) -> list[float]:
    """When each group of calls ended on a CUDA device, in seconds; the first is the beginning, 0."""
    synchronize_device(device)
    with torch.cuda.device(device):
        events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(len(groups) + 1)
        ]
        events[0].record()
        for group, event in zip(groups, events[1:], strict=True):
            for _ in range(group):
                call()
            event.record()
        events[-1].synchronize()
    return [events[0].elapsed_time(event) * 1e-3 for event in events]  # elapsed_time is in milliseconds


def fastest_pace(ends: list[float], groups: list[int]) -> float:
    """The shortest time of one call in any part of at least ``_PART_S`` seconds, or in all of a shorter run.

    ``groups`` are the calls between one of the ``ends`` (seconds, the first of them 0) and the next.
    """
    width = min(len(groups), ceil(_PART_S * len(groups) / max(ends[-1], 1e-9)))
    parts = range(len(groups) - width + 1)
    return min((ends[first + width] - ends[first]) / sum(groups[first : first + width]) for first in parts)
