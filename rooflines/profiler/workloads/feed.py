"""Batches of a data set for a step, through torch's ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError

if TYPE_CHECKING:
    import torch


class Feed:
    """The batches of a data set without end, as (images, labels) on a device.

    Every epoch has another order; both it and the random transforms follow ``seed``. The last, incomplete batch of an epoch is left
    out. ``move`` takes images to the device and into the precision of the network.
    """

    def __init__(
        self,
        images: Any,
        batch_size: int,
        device: torch.device,
        move: Callable[[torch.Tensor], torch.Tensor],
        *,
        workers: int = 0,
        pin_memory: bool = False,
        seed: int = 0,
    ) -> None:
        if len(images) < batch_size:
            raise WorkloadError(
                f"the data has {len(images)} images, fewer than a batch of {batch_size}.", hint=f"Use a smaller {arg('batch_size')}."
            )
        self.loader = make_loader(images, batch_size, workers=workers, pin_memory=pin_memory, seed=seed, training=True)
        self._device = device
        self._move = move
        self._batches = chain.from_iterable(repeat(self.loader))

    def __call__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next batch: images [N, C, H, W] and labels [N]."""
        images, labels = next(self._batches)
        return self._move(images), labels.to(self._device, non_blocking=True)


def make_loader(images: Any, batch_size: int, *, workers: int, pin_memory: bool, seed: int, training: bool) -> Any:
    """Return a ``DataLoader`` of ``images``: shuffled and without an incomplete batch for training, in order for tests."""
    import torch

    return torch.utils.data.DataLoader(
        images, batch_size=batch_size, shuffle=training, drop_last=training, num_workers=workers, pin_memory=pin_memory,
        persistent_workers=workers > 0, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
