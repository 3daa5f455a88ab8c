"""Free memory in the C heap that the system has mapped already, for what the profiler stores while steps are traced.

The profiler's records are small blocks between those of the step. They split the memory that the step before has freed, so the step
takes new pages from the system, thousands in each: a batch norm of 0.1 ms took 1.8 ms. The timed steps do not pay for that.
"""

from __future__ import annotations

import ctypes
import sys

import psutil

# The reserve, and the most that it takes of the machine's free memory.
RESERVE_BYTES, _LEAST_LEFT = 256 << 20, 16
# Below the smallest threshold from which glibc maps a block by itself (128 KiB).
_BLOCK_BYTES = 64 << 10


class HeapReserve:
    """The reserve from its creation to ``release``. Where the heap is not glibc's it does nothing."""

    def __init__(self) -> None:
        self._pin: int | None = None
        self._free = None
        if sys.platform != "linux" or not hasattr(heap := ctypes.CDLL(None), "gnu_get_libc_version"):
            return
        heap.malloc.restype, heap.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        heap.free.argtypes = [ctypes.c_void_p]
        size = min(RESERVE_BYTES, psutil.virtual_memory().available // _LEAST_LEFT)
        blocks = [heap.malloc(_BLOCK_BYTES) for _ in range(size // _BLOCK_BYTES)]
        # The heap ends behind this block, so what lies before it is not given back to the system.
        self._free, self._pin = heap.free, heap.malloc(_BLOCK_BYTES)
        for block in filter(None, blocks):
            ctypes.memset(block, 0, _BLOCK_BYTES)
            heap.free(block)

    def release(self) -> None:
        """Let the C library give the reserve back."""
        if self._free is not None and self._pin is not None:
            self._free(self._pin)
        self._pin = None
