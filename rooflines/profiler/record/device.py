"""The device that a recording times and traces: everything that a recording asks of hardware is asked
here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.kernels.tf32 import tf32_state
from rooflines.profiler.distributed import local_rank
from rooflines.profiler.hooks.step_clock import StepClock
from rooflines.profiler.machine.environment import collect_environment
from rooflines.profiler.options import find_device
from rooflines.profiler.record.process import PeakMemory
from rooflines.profiler.record.tracer import Tracer
from rooflines.profiler.records import Environment
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.process import SamplerProcess, gpus_in_use, torch_gpus
from rooflines.profiler.samplers.update_time import RateLimited

if TYPE_CHECKING:
    import torch


# Events on the stream of the steps miss work that runs on other streams. Where their sum differs by more than
# this share from the time between two synchronizations (and by more than these take themselves), the latter
# is the time of the steps.
EVENTS_SHARE = 0.03
SYNCHRONIZE_NS = 1_000_000
NOTED_EVERY_S, NOTED_SHARE = 0.1, 0.005


def wall_step_ns(events_ns: Sequence[int], wall_ns: int) -> int | None:
    """The time of one of these steps, which took ``wall_ns`` together, if their events do not account for it;
    otherwise None."""
    apart_ns = abs(wall_ns - sum(events_ns))
    if not events_ns or apart_ns <= max(EVENTS_SHARE * wall_ns, SYNCHRONIZE_NS):
        return None
    return round(wall_ns / len(events_ns))


class MpsMemory:
    """Memory that Metal's driver holds for this process: torch's tensors, its allocator's cache, and Metal's
    own memory.

    Another process cannot read it: the run itself calls ``note`` between steps, where it costs nothing that
    is timed. At most ten samples a second are kept, in ``noted``.
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


class RecordedDevice:
    """The device ``torch_device`` of this machine, as a recording uses it; None is for a program whose first
    steps show it (``find``).

    The tests put a replayed one in its place (tests/replay), so nothing else in a recording may depend on a
    GPU being there.
    """

    def __init__(self, torch_device: torch.device | None) -> None:
        self.follows_program = torch_device is None
        self.is_found = not self.follows_program
        self.torch_device = torch_device or find_device("cpu")
        self._gpus: tuple[torch.device, ...] = (self.torch_device,) if self.type == "cuda" else ()

    def __str__(self) -> str:
        """torch's name of the device: ``cpu``, ``cuda:1``."""
        return str(self.torch_device)

    @property
    def type(self) -> str:
        """The kind of device: ``cpu``, ``cuda`` or ``mps``."""
        return self.torch_device.type

    @property
    def has_work(self) -> bool:
        """Whether this process has used a GPU."""
        import torch

        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    def find(self, parameters: Mapping[str, int]) -> None:
        """The program has made a step: the device is where it ran. Its optimizers update ``parameters``
        (elements by device)."""
        self._gpus = _gpus_of_program(parameters)
        self.torch_device = self._gpus[0] if self._gpus else find_device("cpu")
        self.is_found = True

    def environment(self) -> Environment:
        """The facts about this machine that the numbers of a run depend on. Raises DeviceError when torch
        cannot use the device."""
        return collect_environment(str(self.torch_device))

    def synchronize(self) -> None:
        """Wait until the device, and every other GPU in use, has finished everything it was given."""
        from rooflines.kernels.micro.clock import synchronize_device

        for device in self._gpus or (self.torch_device,):
            synchronize_device(device)

    def step_clock(self) -> StepClock:
        """A clock for steps on the device."""
        return StepClock(
            self.torch_device, None if self.is_found and self.type == "cpu" else self.synchronize
        )

    def peak_memory(self) -> PeakMemory:
        """A watch over the memory that steps on the device take."""
        return PeakMemory(self.torch_device)

    def tracer(self, *, all_threads: bool, **settings: Any) -> Tracer:
        """A tracer with ``settings`` of its own; without GPUs it sees ``all_threads`` of the program."""
        import torch

        cuda = self.type == "cuda" or (not self.is_found and torch.cuda.is_available())
        return Tracer(self._where, cuda=cuda, all_threads=all_threads or not cuda, **settings)

    def _where(self) -> torch.device:
        """The device, or what can be said of it before it is found."""
        return self.torch_device if self.is_found else next(iter(_gpus_of_program({})), self.torch_device)

    def sampler(self, path: Path) -> SamplerProcess:
        """A sampler of this process and of every GPU in use, which writes to ``path``; it has not been
        started."""
        import torch

        gpus = {}
        if self.type == "cuda":
            names = gpus_in_use(self.torch_device)
            self._gpus = tuple(torch.device(name) for name in names)
            gpus = torch_gpus(*names)
        # Steps on a GPU keep one thread of the host busy, and leave cores for the sampler.
        return SamplerProcess(os.getpid(), path, gpus=gpus, low_overhead=self.type == "cpu", detached=True)

    def tf32(self) -> dict[str, bool] | None:
        """Where TF32 is allowed now (``tf32_state``); None on devices that do not have it."""
        return tf32_state() if self.type == "cuda" else None


def _gpus_of_program(parameters: Mapping[str, int]) -> tuple[torch.device, ...]:
    """The GPUs of this process, whose optimizers update ``parameters``. Asking opens no context on a GPU."""
    import torch

    reserved: dict[int, int] = {}
    current = None
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        reserved = {index: torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count())}
        current = torch.cuda.current_device()
    held = {index: size for index, size in reserved.items() if size}
    return tuple(torch.device("cuda", index) for index in gpus_of(parameters, held, current, local_rank()))


def program_device(device: torch.device | str) -> torch.device | None:
    """The device for a program that was asked to run with ``device``; None if that is ``auto`` and the
    program may choose a GPU.

    Does not initialize CUDA: the program may still say which GPUs it sees. Raises DeviceError as
    ``find_device`` does.
    """
    import torch

    return None if str(device) == "auto" and torch.cuda.device_count() else find_device(device)


def gpus_of(
    parameters: Mapping[str, int], reserved_bytes: Mapping[int, int], current: int | None, rank: int | None
) -> tuple[int, ...]:
    """The GPUs of a program, the one that does most of its work first; empty for a program on the CPU.

    ``parameters`` are the elements that its optimizers update by device (``cuda:1``, ``cpu``),
    ``reserved_bytes`` what torch's allocator holds on each GPU. ``current`` is torch's current GPU, None
    before the program has used any; ``rank`` is the local one that a launcher gave it.

    The first is where most of its parameters are, else most of its memory, else the current one of a program
    that has used CUDA without either: a rank holds a little memory on GPU 0, too, where it was not told to
    keep off. Between equals, the local rank and the current GPU decide. Parameters on the CPU and no memory
    on a GPU are a program on the CPU, also where it has used CUDA.
    """
    on_gpus = {
        int(name.partition(":")[2] or 0): count
        for name, count in parameters.items()
        if name.startswith("cuda")
    }
    amounts = on_gpus or reserved_bytes
    if not amounts:
        return () if current is None or "cpu" in parameters else (current,)
    first = max(amounts, key=lambda gpu: (amounts[gpu], gpu == rank, gpu == current, -gpu))
    return first, *sorted({*on_gpus, *reserved_bytes} - {first})
