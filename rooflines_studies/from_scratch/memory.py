"""Measure the memory of an iteration of the perceptron by component. Nothing heavy may be imported here
before it has begun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.ext import PointResult

if TYPE_CHECKING:
    from rooflines.ext import WorkerChannel

PARTS = ("parameters", "input", "activations", "gradients", "overhead")


class MemoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the measurement."""

    backend: str
    widths: str
    samples: int


def measure_memory(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``: bytes of each component, and the growth in total that they should add up
    to."""
    from rooflines_studies.networks.perceptron_memory import measure

    job = msgspec.convert(task["point"]["options"], MemoryOptions)
    channel.stage("memory by component")
    found = measure(job.backend, [int(width) for width in job.widths.split("-")], job.samples)
    from rooflines_studies import network_runs

    values = {f"{name}_bytes": found[name] for name in (*PARTS, "total")}
    return network_runs.make_result(task, directory, values, how=found["how"])
