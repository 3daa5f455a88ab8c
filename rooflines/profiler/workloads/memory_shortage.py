"""Translate out-of-memory errors of torch, numpy and Python: requested memory, free memory, what to try."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from rooflines.arguments import arg
from rooflines.errors import OutOfMemoryError
from rooflines.profiler.records import Workload
from rooflines.units import binary_bytes, parse_bytes

if TYPE_CHECKING:
    import torch

# How torch (host, then device), numpy and the C++ library say that memory ran out; the first group is how
# much was asked for.
_ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]+ \w+)")
# Tensors of the size of the one asked for that a step holds at the same time, roughly.
_TENSORS = 16
_SHORTAGES = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "could not create a memory object",
)


def memory_shortage(
    error: BaseException, workload: Workload, device: torch.device
) -> OutOfMemoryError | None:
    """Our error for an out-of-memory one of torch, numpy or Python, with what was free and what to try; None
    for any other."""
    import torch

    text = str(error).strip()
    if not (
        isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(words in text for words in _SHORTAGES)
    ):
        return None
    size = _ASKED.search(text)
    asked = parse_bytes(size[1].replace("bytes", "B")) if size else None
    wanted = f"{binary_bytes(asked)} asked for, " if asked is not None else ""
    batch = f", batch {workload.batch_size}" if workload.batch_size else ""
    free, total, words = free_memory(device)
    fitting = _fitting(workload.batch_size or 1, asked, free, total)
    smaller = arg("batch_size", fitting) if fitting else "a smaller input"
    return OutOfMemoryError(
        f"out of memory in {workload.name} ({workload.mode}{batch}): {wanted}{words}.",
        hint=f"Try {smaller}"
        + ("." if workload.mode == "inference" else f", or {arg('precision', 'amp-bf16')}."),
    )


def _fitting(batch: int, asked: int | None, free: int, total: int) -> int:
    """The batch to try: half; if ``asked`` exceeds the memory, a power of two that leaves room; 0 if a batch
    of 1 does, too."""
    if asked is None or not free or asked <= total:
        return batch // 2
    if asked > batch * free:
        return 0
    return 1 << (max(batch * free // (asked * _TENSORS), 1).bit_length() - 1)


def free_memory(device: torch.device) -> tuple[int, int, str]:
    """Free and total memory of the device, in bytes and in words."""
    import psutil
    import torch

    if device.type == "cuda":
        try:
            unused, total = torch.cuda.mem_get_info(device)
        except RuntimeError:  # asking takes memory as well, for the context of this process
            return 0, 0, f"{device} is full"
        return int(unused), total, f"{binary_bytes(unused)} of {binary_bytes(total)} free on {device}"
    memory = psutil.virtual_memory()
    free = f"{binary_bytes(memory.available)} of {binary_bytes(memory.total)} free on the host"
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        limit = psutil.Process().rlimit(psutil.RLIMIT_AS)[0]
        if limit != psutil.RLIM_INFINITY:
            free += f", address space limited to {binary_bytes(limit)} (ulimit -v)"
    return memory.available, memory.total, free
