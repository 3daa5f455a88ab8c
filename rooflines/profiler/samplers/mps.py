"""Memory that Metal's driver holds for this process (Apple GPUs): only the process itself can ask."""

from __future__ import annotations

from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.update_time import RateLimited

NOTED_EVERY_S, NOTED_SHARE = 0.1, 0.005


class MpsSampler:
    """Driver memory of this process: torch's tensors, its allocator's cache, and Metal's own memory.

    Another process cannot read these values; the run itself calls ``note`` between steps, where it costs nothing
    that is timed. Ten samples a second are kept at most, in ``noted``.
    """

    def __init__(self) -> None:
        self.noted: tuple[DeviceSample, ...] = ()
        self._rarely = RateLimited(self._read, every_s=NOTED_EVERY_S, share=NOTED_SHARE)

    def _read(self) -> DeviceSample:
        import torch

        held_bytes = torch.mps.driver_allocated_memory()
        return DeviceSample(time_ns=now_ns(), source="mps", device="mps", process_memory_bytes=held_bytes)

    def note(self) -> None:
        """Take a sample unless the latest is recent."""
        if (sample := self._rarely()) is not None:
            self.noted = (*self.noted, sample)
