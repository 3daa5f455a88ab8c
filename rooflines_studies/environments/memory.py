"""The peak memory of the paper's training steps for two sizes of images, counted without running them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.ext import PointResult

if TYPE_CHECKING:
    from rooflines.ext import WorkerChannel

# The size of Tiny-ImageNet's images, and the one for which the paper gives its complexity.
SIZES = (64, 224)


def count_memory(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``: bytes of parameters, gradients, optimizer, activations and inputs at the
    peak of a step."""
    from rooflines.ext import PointOptions, count_network

    point = task["point"]
    model, batch = str(point["options"]["model"]), int(point["options"]["batch_size"])
    channel.stage("counting the memory of a step")
    values = {}
    for size in SIZES:
        options = PointOptions(device="cpu", mode="training", batch_size=batch, image_size=size)
        _, counted = count_network(model, options, memory=True)
        assert counted.memory is not None
        values[f"peak_{size}_bytes"] = float(counted.memory.peak_bytes)
    return PointResult(point=point["id"], round=task["round"], values=values)
