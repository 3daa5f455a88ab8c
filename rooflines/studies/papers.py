"""What the papers printed, from the files in ``papers/``; a figure that they did not measure is None."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent / "papers"


class PaperBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the backends paper's table of results."""

    backend: str
    epoch_s: float
    total_10_epochs_s: float
    samples_per_s: float
    final_accuracy: float
    max_accuracy: float
    process_memory_bytes: float
    device_memory_bytes: float | None


def backends() -> dict[str, PaperBackend]:
    """The table of the backends paper by backend."""
    found = {}
    for row in _rows("backends_mnist_cnn.csv"):
        device_mb = float(row["max_gpu_memory_mb"])
        found[row["backend"]] = PaperBackend(
            backend=row["backend"],
            epoch_s=float(row["epoch_s"]),
            total_10_epochs_s=float(row["total_10_epochs_s"]),
            samples_per_s=float(row["samples_per_s"]),
            final_accuracy=float(row["final_test_accuracy_percent"]) / 100,
            max_accuracy=float(row["max_test_accuracy_percent"]) / 100,
            process_memory_bytes=float(row["process_ram_mb"]) * 1e6,
            # 0 stands for "not measured": the paper measured it for torch-cuda alone
            device_memory_bytes=device_mb * 1e6 or None,
        )
    return found


def from_scratch() -> dict[str, dict[str, float]]:
    """The tables of the from-scratch paper: by ``numpy`` and ``cupy``, by quantity, in seconds and bytes."""
    units = {"s": 1.0, "ms": 1e-3, "MB": 1e6}
    found: dict[str, dict[str, float]] = {"numpy": {}, "cupy": {}}
    for row in _rows("from_scratch_mlp.csv"):
        found["numpy"][row["quantity"]] = float(row["numpy_cpu"]) * units[row["unit"]]
        found["cupy"][row["quantity"]] = float(row["cupy_gpu"]) * units[row["unit"]]
    return found


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
