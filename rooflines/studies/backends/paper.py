"""What the paper printed, from the CSV file of this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from rooflines.studies.study import paper_rows


class PaperBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's table of results, in its units. ``max_gpu_memory_mb`` is 0 where it was not measured."""

    backend: str
    epoch_s: float
    total_10_epochs_s: float
    samples_per_s: float
    final_test_accuracy_percent: float
    max_test_accuracy_percent: float
    process_ram_mb: float
    max_gpu_memory_mb: float


@cache
def backends() -> dict[str, PaperBackend]:
    """Return the paper's table of results by backend."""
    return {one.backend: one for one in paper_rows(Path(__file__).parent / "backends_mnist_cnn.csv", PaperBackend)}
