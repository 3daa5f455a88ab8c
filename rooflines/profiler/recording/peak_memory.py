"""Memory over a stretch of a run: the peak (a GPU's allocator, or the resident set) and the pages taken from the system."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any


class PeakMemory:
    """The peak since ``start()``. ``kind`` says what is counted; ``bytes()`` is None where it cannot be known."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.kind = "allocator" if device.type == "cuda" else "resident set"
        self._resettable = False

    def start(self) -> None:
        """Begin a new stretch."""
        if self._device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with contextlib.suppress(OSError):
            # Linux: writing 5 resets the high-water mark VmHWM of this process (proc(5)).
            Path("/proc/self/clear_refs").write_text("5")
            self._resettable = True

    def bytes(self) -> int | None:
        """The peak in bytes since ``start()``, or None where the system cannot tell."""
        if self._device.type == "cuda":
            import torch

            return int(torch.cuda.max_memory_allocated(self._device))
        if not self._resettable:
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None


def page_faults() -> int | None:
    """Pages that this process has taken from the system so far without reading a disk; None where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def since(before: int | None) -> int | None:
    """Page faults after a reading of ``page_faults``; None where there is none."""
    now = page_faults()
    return None if before is None or now is None else now - before
