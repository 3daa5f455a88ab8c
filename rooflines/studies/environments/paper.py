"""What the paper printed, from the CSV files of this folder, in its units, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rooflines.studies.tables import printed

Printed: TypeAlias = Mapping[str, Any]
# What its roofline plots reveal by its conclusion 5.
BOUNDS = {"Apple M3 Pro": "mixed, by network", "4-vCPU cloud": "always memory-bound", "Tesla T4": "compute-bound for deep networks"}


def table(name: str) -> tuple[Printed, ...]:
    """Return the rows of ``environments_NAME.csv``."""
    return printed(Path(__file__).parent / f"environments_{name}.csv")


def complexity() -> dict[str, Printed]:
    """Return the table of complexity by network; a multiply-add of one image counts as one."""
    return {one["model"]: one for one in table("complexity")}


def roofs() -> dict[str, Printed]:
    """Return the peak and the bandwidth of each device."""
    return {one["device"]: one for one in table("ceilings")}


def proxy(one: Printed) -> float:
    """Return the paper's proxy of a network with its unit put right, FLOP/byte: it divided GFLOP by MB."""
    return float(1e3 * one["flops_per_image_g_as_printed"] / one["model_size_mb"])


def ridge(roof: Printed) -> float:
    """Return the FLOP/byte from which on a kernel is bound by arithmetic."""
    return float(roof["peak_fp32_gflops"] / roof["memory_bandwidth_gbs"])
