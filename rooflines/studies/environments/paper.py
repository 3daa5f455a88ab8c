"""What the paper printed, from the CSV files of this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from rooflines.studies.study import number, paper_rows

_FOLDER = Path(__file__).parent
DEVICES = {"mps": "Apple M3 Pro (paper)", "cpu": "4-vCPU cloud (paper)", "t4": "Tesla T4 (paper)"}
# What its roofline plots reveal by its conclusion 5.
BOUNDS = {"mps": "mixed, by network", "cpu": "always memory-bound", "t4": "compute-bound for deep networks"}


class Complexity(msgspec.Struct, frozen=True, kw_only=True):
    """A network in the paper's table of complexity. ``flops`` counts a multiply-add of one image as one; intensity as printed."""

    parameters: float
    flops: float
    model_bytes: float
    intensity_as_printed: float

    @property
    def proxy(self) -> float:
        """The paper's proxy with its unit put right, FLOP/byte: it divided GFLOP by MB."""
        return self.flops / self.model_bytes


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's table of throughput; what it did not measure is None."""

    model: str
    device: str
    train_per_s: float
    validation_per_s: float
    train_flop_per_s: float
    validation_flop_per_s: float
    peak_memory_bytes: float | None
    train_epoch_s: float
    validation_epoch_s: float
    gpu_busy: float | None
    cpu_busy: float | None


class Roofs(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the paper: its peak in FLOP/s and its bandwidth in byte/s."""

    flop_per_s: float
    byte_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on a kernel is bound by arithmetic."""
        return self.flop_per_s / self.byte_per_s


@cache
def complexity() -> dict[str, Complexity]:
    """Return the networks by name."""
    return {
        row["model"]: Complexity(
            parameters=float(row["params_m"]) * 1e6, flops=float(row["flops_per_image_g_as_printed"]) * 1e9,
            model_bytes=float(row["model_size_mb"]) * 1e6, intensity_as_printed=float(row["intensity_as_printed"]),
        )
        for row in paper_rows(_FOLDER / "environments_complexity.csv")
    }  # fmt: skip


@cache
def throughput() -> tuple[Throughput, ...]:
    """Return the table of throughput."""
    return tuple(
        Throughput(
            model=row["model"], device=row["device"], train_per_s=float(row["train_images_per_s"]),
            validation_per_s=float(row["val_images_per_s"]), train_flop_per_s=float(row["train_tflops"]) * 1e12,
            validation_flop_per_s=float(row["val_tflops"]) * 1e12, validation_epoch_s=float(row["val_epoch_s"]),
            peak_memory_bytes=number(row["peak_gpu_memory_mb"], 1e6), train_epoch_s=float(row["train_epoch_s"]),
            gpu_busy=number(row["gpu_util_percent"], 0.01), cpu_busy=number(row["cpu_util_percent"], 0.01),
        )
        for row in paper_rows(_FOLDER / "environments_throughput.csv")
    )  # fmt: skip


@cache
def speedups() -> dict[str, tuple[str, str, str]]:
    """Return the speedups by network as printed: M3 Pro over CPU, T4 over CPU, T4 over M3 Pro."""
    rows = paper_rows(_FOLDER / "environments_speedups.csv")
    return {row["model"]: (row["m3_over_cpu"], row["t4_over_cpu"], row["t4_over_m3"]) for row in rows}


@cache
def roofs() -> dict[str, Roofs]:
    """Return the paper's devices by the names in its table of throughput."""
    names = {"apple-m3-pro-mps": "mps", "cloud-cpu-4vcpu": "cpu", "tesla-t4": "t4"}
    return {
        names[row["device"]]: Roofs(
            flop_per_s=float(row["peak_fp32_gflops"]) * 1e9, byte_per_s=float(row["memory_bandwidth_gbs"]) * 1e9
        )
        for row in paper_rows(_FOLDER / "environments_ceilings.csv")
    }


@cache
def batch_sweep() -> dict[str, tuple[tuple[float, float], ...]]:
    """Return (batch size, images/s) by network; the batch whose loss became NaN has no throughput."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in paper_rows(_FOLDER / "environments_batch_sweep.csv"):
        rate = number(row["images_per_s"])
        if rate is not None:
            found.setdefault(row["model"], []).append((float(row["batch_size"]), rate))
    return {name: tuple(points) for name, points in found.items()}
