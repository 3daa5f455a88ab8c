"""The device that a program of the user's runs on, found when its first steps end: nothing else says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rooflines.profiler.distributed import local_rank
from rooflines.profiler.options import find_device

if TYPE_CHECKING:
    import torch


class ProgramFacts(NamedTuple):
    """Where a program has put its work. None of it opens a context on a GPU.

    ``parameters`` are the elements that its optimizers update by device (``cuda:1``, ``cpu``), ``reserved_bytes`` what torch's
    allocator holds on each GPU. ``current`` is torch's current GPU, None before the program has used any; ``local_rank`` is what a
    launcher gave it.
    """

    parameters: Mapping[str, int]
    reserved_bytes: Mapping[int, int]
    current: int | None
    local_rank: int | None


def program_device(device: torch.device | str) -> torch.device | None:
    """The device for a program that was asked to run with ``device``; None if that is ``auto`` and the program may choose a GPU.

    Does not initialise CUDA: the program may still say which GPUs it sees. Raises DeviceError as ``find_device`` does.
    """
    import torch

    return None if str(device) == "auto" and torch.cuda.device_count() else find_device(device)


def program_facts(parameters: Mapping[str, int]) -> ProgramFacts:
    """The facts about this process, whose optimizers update ``parameters``."""
    import torch

    reserved: dict[int, int] = {}
    current = None
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        reserved = {index: torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count())}
        current = torch.cuda.current_device()
    return ProgramFacts(parameters, {index: held for index, held in reserved.items() if held}, current, local_rank())


def gpus_of(facts: ProgramFacts) -> tuple[int, ...]:
    """The GPUs of a program, the one that does most of its work first; empty for a program on the CPU.

    The first is where most of its parameters are, else most of its memory, else the current one of a program that has used CUDA
    without either: a rank holds a little memory on GPU 0, too, where it was not told to keep off. Between equals, the local rank and
    the current GPU decide. Parameters on the CPU and no memory on a GPU are a program on the CPU, whatever it has asked CUDA.
    """
    parameters = {int(name.partition(":")[2] or 0): count for name, count in facts.parameters.items() if name.startswith("cuda")}
    amounts = parameters or facts.reserved_bytes
    if not amounts:
        return () if facts.current is None or "cpu" in facts.parameters else (facts.current,)
    first = max(amounts, key=lambda gpu: (amounts[gpu], gpu == facts.local_rank, gpu == facts.current, -gpu))
    return first, *sorted({*parameters, *facts.reserved_bytes} - {first})
