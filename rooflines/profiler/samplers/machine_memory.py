"""The memory of the machine."""

from __future__ import annotations

from typing import NamedTuple

import psutil

from rooflines.profiler.samplers.procfs import LINUX, HeldFile

MEMINFO = "/proc/meminfo"


class Memory(NamedTuple):
    """Bytes there are, and those that programs could not have without making others swap."""

    total_bytes: int
    used_bytes: int


class MachineMemory:
    """Reads it: on Linux two lines of one file, elsewhere by psutil."""

    def __init__(self, meminfo: str = MEMINFO) -> None:
        self._file: HeldFile | None = None
        if LINUX:
            file = HeldFile(meminfo)
            # Kernels before 3.14 do not say what is available; psutil has an estimate for them.
            if _parsed(file.start()) is None:
                file.close()
            else:
                self._file = file

    def read(self) -> Memory:
        memory = _parsed(self._file.start()) if self._file is not None else None
        if memory is not None:
            return memory
        asked = psutil.virtual_memory()
        return Memory(asked.total, asked.total - asked.available)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _parsed(text: bytes) -> Memory | None:
    """``MemTotal`` and ``MemAvailable``, in KiB (proc(5)): the first and the third line."""
    words = text.split(None, 8)
    if len(words) < 9 or words[0] != b"MemTotal:" or words[6] != b"MemAvailable:":
        return None
    total, available = int(words[1]) << 10, int(words[7]) << 10
    # In some containers the file shows the machine's available memory next to the container's total; psutil handles this too.
    return Memory(total, total - available) if available <= total else None
