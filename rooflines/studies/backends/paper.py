"""What the paper printed, from the CSV file of this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from rooflines.studies.study import paper_rows


class PaperBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's table of results."""

    epoch_s: float
    total_10_epochs_s: float
    samples_per_s: float
    final_accuracy: float
    max_accuracy: float
    process_memory_bytes: float
    device_memory_bytes: float | None


@cache
def backends() -> dict[str, PaperBackend]:
    """Return the paper's table of results by backend."""
    return {
        row["backend"]: PaperBackend(
            epoch_s=float(row["epoch_s"]), total_10_epochs_s=float(row["total_10_epochs_s"]), samples_per_s=float(row["samples_per_s"]),
            final_accuracy=float(row["final_test_accuracy_percent"]) / 100, max_accuracy=float(row["max_test_accuracy_percent"]) / 100,
            process_memory_bytes=float(row["process_ram_mb"]) * 1e6,
            # 0 stands for "not measured": the paper measured it for torch-cuda alone
            device_memory_bytes=float(row["max_gpu_memory_mb"]) * 1e6 or None,
        )
        for row in paper_rows(Path(__file__).parent / "backends_mnist_cnn.csv")
    }  # fmt: skip
