"""Times of operators on a GPU of which only the data sheet is known, by a law whose coefficients were fitted
to published measurements.

A call takes ``start + (compute^2 + memory^2)^(1/2)``: its arithmetic at a share of the rate in the sheet, its
traffic at a share of the bandwidth, of which the longer one hides most of the other. The shares are those of
its kind of kernel in its kind of code: ``eager`` (each operator by itself), ``compiled`` (``torch.compile``:
what is not a product is fused, so that less of its traffic remains than is counted), ``served`` (the kernels
and CUDA graphs of servers).

``benchmarks/calibration.py`` fits the coefficients and writes ``coefficients.json``, with the sources and
with the errors of predictions for devices and models that were left out, from which the intervals are.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.records import Workload
from rooflines.roofline.judge.bounds import Placement
from rooflines.roofline.judge.shapes import sizes_in
from rooflines.roofline.predict.efficiencies import Estimate
from rooflines.roofline.predict.forecast import Operator
from rooflines.roofline.predict.winograd import products_saved
from rooflines.serial import read_json

_FILE = Path(__file__).with_name("coefficients.json")
Code: TypeAlias = Literal["eager", "compiled", "served"]
# Kernels of a category that has no coefficients of its own are like these.
_OTHER = "element-wise"


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The shares of rate and bandwidth that a kind of kernel reaches, and what starting one takes."""

    compute: float
    memory: float
    start_s: float = 0.0

    def seconds(self, compute_s: float, memory_s: float) -> float:
        """The time of a call whose arithmetic and traffic take these times at the roofs."""
        return self.start_s + math.hypot(compute_s / self.compute, memory_s / self.memory)


class CodeShares(msgspec.Struct, frozen=True):
    """The shares of one kind of code by kind of kernel, what it was fitted to, and the factor within which
    90 % of the steps lie that were left out.

    A host launches one call after the other, each in ``launch_s``, so a step takes at least that for each of
    its calls. It is the shortest time for each call of any step that was fitted.
    """

    shares: Mapping[str, Share]
    wide: float
    basis: str
    launch_s: float = 0.0


class Coefficients(msgspec.Struct, frozen=True):
    """The content of ``coefficients.json``."""

    sources: tuple[str, ...]
    codes: Mapping[Code, CodeShares]


@functools.cache
def coefficients() -> Coefficients:
    """The coefficients that come with the package."""
    return read_json(_FILE, Coefficients)


def code_of(workload: Workload) -> Code:
    """The kind of code that a workload is predicted as."""
    return "served" if workload.mode == "generate" else "compiled" if workload.compiled else "eager"


def kernel_of(one: Operator) -> str:
    """The kind of kernel: the category; of a convolution also whether it has groups, or one for each
    channel, or runs without matrix units, of attention whether it is that of prompts."""
    if one.category == "attention" and one.phase == "prefill":
        return "prefill attention"
    if one.category == "convolution":
        channels = [size[1] for size in sizes_in(one.shapes)["backward" in one.name :] if len(size) > 1]
        if len(channels) > 1 and channels[0] != channels[1]:
            return "depthwise convolution" if channels[1] == 1 else "grouped convolution"
        if one.precision == "fp32":
            return "fp32 convolution"
    return one.category


class Calibrated:
    """Times of calls on a GPU with these ``roofs`` in ``code``, by ``known`` coefficients (default: those of
    the package)."""

    host_times = ()

    def __init__(self, roofs: Ceilings, code: Code, known: Coefficients | None = None) -> None:
        self._roofs = roofs
        self._of = (known or coefficients()).codes[code]
        self._code = code

    def estimate_of(self, one: Operator, placed: Placement) -> Estimate:
        """The time of one call of ``one``, never less than its bound; what is fused has none by itself."""
        kernel = kernel_of(one)
        share = self._of.shares.get(kernel, self._of.shares[_OTHER])
        bound_s = placed.lower_bound_s if self._code == "eager" or one.matrix_flops else 0.0
        time_s = max(share.seconds(*roof_seconds(one, self._roofs)), bound_s)
        # The errors of whole steps tell nothing of the error of one call.
        return Estimate(
            time_s=time_s,
            low_s=bound_s,
            high_s=None,
            lower_bound_s=bound_s,
            basis=f"{kernel} in {self._code} code",
        )

    def total(self, parts: Iterable[tuple[Estimate, float]]) -> Estimate:
        """The sum of estimates, each times its number of calls."""
        sums: dict[str, float] = defaultdict(float)
        for one, calls in parts:
            sums["time"] += calls * one.time_s
            sums["bound"] += calls * one.lower_bound_s
            sums["launches"] += calls * self._of.launch_s
        time_s = max(sums["time"], sums["launches"])
        return Estimate(
            time_s=time_s,
            low_s=max(time_s / self._of.wide, sums["bound"]),
            high_s=time_s * self._of.wide,
            lower_bound_s=sums["bound"],
            basis=self._of.basis,
        )

    def outside_s(self, calls: float, operators_s: float) -> None:
        """The time of the host is in the estimate."""


def roof_seconds(one: Operator, roofs: Ceilings) -> tuple[float, float]:
    """The times of the arithmetic and of the traffic of one call at the roofs of products as torch makes them
    and of DRAM; of a convolution without matrix units for the fewest products that are known."""
    work, memory, compute_s = one.work, roofs.outermost_memory(), 0.0
    if one.precision:
        matrix, vector = (roofs.compute(one.precision, engine) for engine in ("matrix", "vector"))
        if matrix is not None:
            fewer = products_saved(one) if matrix.engine == "vector" else 1.0
            compute_s = work.matrix_flops / matrix.value / fewer
        if vector is not None:
            compute_s = max(compute_s, work.other_flops / vector.value)
    return compute_s, work.bytes / memory.value if memory is not None else 0.0
