"""The job of several ranks that this process is one of: which rank it is, and what all ranks must agree on.

Ranks that exchange gradients wait for each other in every step. A rank that ends its recording a step before
the others would leave them waiting, so all make the same number of steps: rank 0 decides on it and tells the
others through the job's store.
"""

from __future__ import annotations

import datetime
import os
from typing import NamedTuple

# torchrun (and accelerate and DeepSpeed, which start alike), Open MPI, SLURM: rank and number of ranks.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
# ProcessRank 0 is at the same step, so it answers within a step or it is gone.
_PATIENCE_S = 60.0


class ProcessRank(NamedTuple):
    """A process of a job: its number, from 0, and how many there are."""

    number: int
    of: int


def rank_here() -> ProcessRank | None:
    """The rank that a launcher gave this process; None without a launcher and for a job of one process."""
    for number, of in _LAUNCHERS:
        try:
            rank = ProcessRank(int(os.environ[number]), int(os.environ[of]))
        except (KeyError, ValueError):
            continue
        return rank if rank.of > 1 and 0 <= rank.number < rank.of else None
    return None


def rank_of_program() -> int | None:
    """The rank that this process has in the program: of torch's process group, else as the launcher gave
    it."""
    import torch.distributed as ranks

    if ranks.is_available() and ranks.is_initialized():
        return ranks.get_rank()
    given = rank_here()
    return None if given is None else given.number


def local_rank() -> int | None:
    """The number of this process among those of its machine, as torchrun gives it; None without it."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdecimal() else None


def launched_at() -> datetime.datetime | None:
    """The start time of the launcher on this rank's host, the same for all ranks of the host; None if
    unknown."""
    import psutil

    try:
        return datetime.datetime.fromtimestamp(psutil.Process(os.getppid()).create_time())
    except psutil.Error:
        return None


class Agreement:
    """Numbers that all ranks of a job share. ``has_peers`` says whether there are others that wait for this
    process in every step."""

    def __init__(self) -> None:
        self._asked = 0

    @property
    def has_peers(self) -> bool:
        """Whether the program has joined other ranks by now."""
        import torch.distributed as ranks

        return ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1

    def on(self, number: int, otherwise: int) -> int:
        """The value that rank 0 passed; each rank must call this equally often. ``otherwise`` if rank 0 gives
        no answer in a minute."""
        if not self.has_peers:
            return number
        import torch.distributed as ranks
        from torch.distributed.distributed_c10d import _get_default_store

        self._asked += 1
        key = f"rooflines/{self._asked}"
        try:
            store = _get_default_store()
            if ranks.get_rank() == 0:
                store.set(key, str(number))
                return number
            store.wait([key], datetime.timedelta(seconds=_PATIENCE_S))
            return int(store.get(key))
        except (
            RuntimeError,
            ValueError,
            AttributeError,
        ):  # the store is missing or gone, or nothing came in time
            return otherwise
