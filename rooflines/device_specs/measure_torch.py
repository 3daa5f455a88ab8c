"""Measurements by torch operators, on any device that torch has: matrix products and transfers."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

from rooflines.device_specs import detect
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Precision
from rooflines.units import binary_bytes, si

if TYPE_CHECKING:
    import torch

Access = Literal["read", "copy", "triad"]

_SLOWEST_GEMM = 1 / 20  # of fp32, for the half precisions on a CPU; slower means emulated element by element
_LONGEST_CALLS = 2  # shares of the budget: a shape whose product would take longer is not tried


def gemm(
    meter: Meter,
    device: torch.device,
    precision: Precision,
    shapes: tuple[tuple[int, int, int], ...],
    trial_side: int,
    detail: str,
) -> None:
    """The fastest matrix product of ``precision`` among ``shapes`` [m, n, k] that fit the memory and the time.

    A product of ``trial_side`` cubed tells first whether the device has the precision at all; it is measured where no other fits.
    """
    import torch

    from rooflines.kernels.micro import clock, matmul

    def trial(shape: tuple[int, int, int]) -> float:
        multiply = matmul.multiplication(shape, precision, device)
        multiply()  # the first call chooses a kernel and allocates its workspace
        best, deadline = math.inf, time.perf_counter() + meter.share_s / 2
        for _ in range(3):
            best = min(best, clock.timed(device, multiply, 1).seconds)
            if time.perf_counter() > deadline:
                break
        return best

    with matmul.float32_matmul(precision):
        try:
            small = (trial_side,) * 3
            if device.type == "cpu":
                # alone: a thread that is kept from its core would make all others wait at the end of so short a product
                threads = torch.get_num_threads()
                with torch_threads(1):
                    rate = matmul.flops(small) / trial(small) * threads
            else:
                rate = matmul.flops(small) / trial(small)
        except (RuntimeError, TypeError) as error:  # no such product on this device: the message is torch's
            meter.progress(f"GEMM {precision}: not available ({str(error).splitlines()[0]})")
            return
        fp32 = max((one.value for one in meter.found if one.kind == "compute" and one.precision == "fp32"), default=0.0)
        if device.type == "cpu" and precision in ("bf16", "fp16") and rate < fp32 * _SLOWEST_GEMM:
            meter.progress(f"GEMM {precision}: skipped, emulated at {si(rate, 'FLOP/s')}")
            return
        free = free_bytes(device)
        rates: dict[tuple[int, int, int], float] = {}
        for shape in shapes:
            fits = matmul.footprint_bytes(shape, "fp32") * 2 < free / 2  # operands are made in fp32
            if fits and matmul.flops(shape) / max(rate, *rates.values(), 0.0) < _LONGEST_CALLS * meter.share_s:
                rates[shape] = matmul.flops(shape) / trial(shape)
        best = max(rates, key=lambda shape: rates[shape], default=small)
        multiply = matmul.multiplication(best, precision, device)
        repeats = meter.rate(matmul.flops(best), partial(clock.timed, device, multiply))
    m, n, k = best
    meter.add(repeats, f"torch.mm [{m}, {k}] @ [{k}, {n}] ({detail})", kind="compute", name=f"GEMM {precision}", unit="FLOP/s",
              precision=precision, engine="matrix", accumulate="fp64" if precision == "fp64" else "fp32")  # fmt: skip


def free_bytes(device: torch.device) -> int:
    """The memory that a measurement may use."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return detect.memory_available_bytes()


def transfers(meter: Meter, device: torch.device, level: str, size_bytes: int, accesses: tuple[Access, ...]) -> None:
    """Bandwidth of the device's outermost memory by torch operators on float32 tensors of ``size_bytes``."""
    from rooflines.kernels.micro import clock, transfer

    first, second, target = transfer.operands(size_bytes, device)
    calls = {
        "read": lambda: transfer.read(first),
        "copy": lambda: transfer.copy(first, target),
        "triad": lambda: transfer.triad(first, second, target),
    }
    operator = {"read": "torch.sum", "copy": "Tensor.copy_", "triad": "torch.add(alpha=)"}
    for access in accesses:
        call, work = calls[access]()
        call()
        repeats = meter.rate(work, partial(clock.timed, device, call))
        meter.add(repeats, f"{operator[access]} on tensors of {binary_bytes(size_bytes)}", kind="memory", name=f"{level} {access}",
                  unit="B/s", level=level, access=access)  # fmt: skip


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Inside, torch's operators use ``threads`` threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
