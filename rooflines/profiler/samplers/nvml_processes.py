"""The memory that the watched processes hold on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rooflines.profiler.samplers.nvml_device import NvmlDevice


class ProcessMemory:
    """The memory of the processes in ``pids`` on one GPU or slice.

    In a container NVML may number the processes as the host does, or list none: until one of our processes has been listed under an id
    that we know, their memory is unknown and no figure is given.
    """

    def __init__(self, gpu: NvmlDevice, pids: Callable[[], Collection[int]]) -> None:
        self._gpu = gpu
        self._pids = pids
        self._seen = False

    def read(self) -> int | None:
        """The bytes they hold together, None when that cannot be known."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        listed = self._gpu.ask("process memory", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        if listed is None:
            return None
        pids = self._pids()
        ours = [process.usedGpuMemory for process in listed if process.pid in pids]
        self._seen = self._seen or bool(ours)
        return sum(ours) if self._seen and None not in ours else None
