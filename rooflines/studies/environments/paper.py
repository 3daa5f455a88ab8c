"""What the paper printed, from the CSV files of this folder, in its units."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from msgspec import field

from rooflines.studies.study import paper_rows

_FOLDER = Path(__file__).parent
DEVICES = {"mps": "Apple M3 Pro (paper)", "cpu": "4-vCPU cloud (paper)", "t4": "Tesla T4 (paper)"}
# What its roofline plots reveal by its conclusion 5.
BOUNDS = {"mps": "mixed, by network", "cpu": "always memory-bound", "t4": "compute-bound for deep networks"}


class Complexity(msgspec.Struct, frozen=True, kw_only=True):
    """A network in the paper's table of complexity. ``gflop`` counts a multiply-add of one image as one; intensity as printed."""

    model: str
    parameters_m: float = field(name="params_m")
    gflop: float = field(name="flops_per_image_g_as_printed")
    model_mb: float = field(name="model_size_mb")
    intensity_as_printed: float

    @property
    def proxy(self) -> float:
        """The paper's proxy with its unit put right, FLOP/byte: it divided GFLOP by MB."""
        return 1e3 * self.gflop / self.model_mb


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's tables of throughput, epochs and utilization; what it did not measure is None."""

    model: str
    device: str
    train_per_s: float = field(name="train_images_per_s")
    validation_per_s: float = field(name="val_images_per_s")
    train_tflop_per_s: float = field(name="train_tflops")
    validation_tflop_per_s: float = field(name="val_tflops")
    peak_memory_mb: float | None = field(name="peak_gpu_memory_mb", default=None)
    train_epoch_s: float
    validation_epoch_s: float = field(name="val_epoch_s")
    gpu_percent: float | None = field(name="gpu_util_percent", default=None)
    cpu_percent: float | None = field(name="cpu_util_percent", default=None)


class Roofs(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the paper: its peak and its bandwidth."""

    device: str
    gflop_per_s: float = field(name="peak_fp32_gflops")
    gbyte_per_s: float = field(name="memory_bandwidth_gbs")

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on a kernel is bound by arithmetic."""
        return self.gflop_per_s / self.gbyte_per_s


class Speedups(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's table of speedups."""

    model: str
    m3_over_cpu: str
    t4_over_cpu: str
    t4_over_m3: str


class SweptBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the paper's batch sweep; the batch whose loss became NaN has no throughput."""

    model: str
    batch_size: float
    images_per_s: float | None = None


@cache
def complexity() -> dict[str, Complexity]:
    """Return the networks by name."""
    return {one.model: one for one in paper_rows(_FOLDER / "environments_complexity.csv", Complexity)}


@cache
def throughput() -> tuple[Throughput, ...]:
    """Return the table of throughput."""
    return tuple(paper_rows(_FOLDER / "environments_throughput.csv", Throughput))


@cache
def speedups() -> dict[str, Speedups]:
    """Return the speedups by network."""
    return {one.model: one for one in paper_rows(_FOLDER / "environments_speedups.csv", Speedups)}


@cache
def roofs() -> dict[str, Roofs]:
    """Return the paper's devices by the names in its table of throughput."""
    names = {"apple-m3-pro-mps": "mps", "cloud-cpu-4vcpu": "cpu", "tesla-t4": "t4"}
    return {names[one.device]: one for one in paper_rows(_FOLDER / "environments_ceilings.csv", Roofs)}


@cache
def batch_sweep() -> tuple[tuple[float, float], ...]:
    """Return (batch size, images/s) of SqueezeNet 1.1."""
    rows = paper_rows(_FOLDER / "environments_batch_sweep.csv", SweptBatch)
    return tuple((one.batch_size, one.images_per_s) for one in rows if one.images_per_s is not None)
