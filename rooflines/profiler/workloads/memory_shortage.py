"""Translate out-of-memory errors of torch, numpy and Python: requested memory, free memory, what to try."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from rooflines.arguments import arg
from rooflines.errors import OutOfMemoryError
from rooflines.profiler.records import Workload
from rooflines.units import binary_bytes

if TYPE_CHECKING:
    import torch

# How torch (host, then device), numpy and the C++ library say that memory ran out; the first group is how much was asked for.
_ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]+ \w+)")
_SHORTAGES = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "could not create a memory object")


def memory_shortage(error: BaseException, workload: Workload, device: torch.device) -> OutOfMemoryError | None:
    """Our error for an out-of-memory one of torch, numpy or Python, with what was free and what to try; None for any other."""
    import torch

    text = str(error).strip()
    if not (isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(words in text for words in _SHORTAGES)):
        return None
    found = _ASKED.search(text)
    asked = f"{_allocation(found[1])} asked for, " if found else ""
    batch = f", batch {workload.batch_size}" if workload.batch_size else ""
    smaller = arg("batch_size", workload.batch_size // 2) if workload.batch_size and workload.batch_size > 1 else "a smaller input"
    return OutOfMemoryError(
        f"out of memory in {workload.name} ({workload.mode}{batch}): {asked}{_free_memory(device)}.",
        hint=f"Try {smaller}" + ("." if workload.mode == "inference" else f", or {arg('precision', 'amp-bf16')}."),
    )


def _allocation(text: str) -> str:
    """``text`` as torch or numpy print a size; plain bytes get a prefix."""
    number, unit = text.split()
    return binary_bytes(int(number)) if unit == "bytes" and number.isdigit() else text


def _free_memory(device: torch.device) -> str:
    import psutil
    import torch

    if device.type == "cuda":
        try:
            unused, total = torch.cuda.mem_get_info(device)
        except RuntimeError:  # asking takes memory as well, for the context of this process
            return f"{device} is full"
        return f"{binary_bytes(unused)} of {binary_bytes(total)} free on {device}"
    memory = psutil.virtual_memory()
    free = f"{binary_bytes(memory.available)} of {binary_bytes(memory.total)} free on the host"
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        limit = psutil.Process().rlimit(psutil.RLIMIT_AS)[0]
        if limit != psutil.RLIM_INFINITY:
            free += f", address space limited to {binary_bytes(limit)} (ulimit -v)"
    return free
