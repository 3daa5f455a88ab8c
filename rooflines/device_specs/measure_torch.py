"""Measurements by torch operators, on any device that torch has: matrix products and transfers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

from rooflines.device_specs import detect
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Precision
from rooflines.units import binary_bytes, si

if TYPE_CHECKING:
    import torch

    from rooflines.kernels.micro.matmul import Scaling, Shape

Access = Literal["read", "write", "copy", "triad"]

_SLOWEST_GEMM = 1 / 20  # of fp32, for the half precisions on a CPU; slower means emulated element by element
_TRIAL_S, _TRIAL_CALLS = 5e-3, 64  # a trial is that long, so that starting a kernel does not matter, but no more calls than that
_LONGEST_CALLS = 2  # shares of the budget: a shape whose product would take longer is not tried


def gemm(
    meter: Meter,
    device: torch.device,
    precision: Precision,
    shapes: tuple[Shape, ...],
    trial_side: int,
    detail: str,
    *,
    scaling: Scaling = "tensor",
    variant: str = "",
) -> None:
    """The fastest matrix product of ``precision`` among ``shapes`` [m, n, k] that fit the memory and the time.

    A product of ``trial_side`` cubed tells first whether the device has the precision at all; it is measured where no other fits.
    ``scaling`` is that of fp8. A ``variant`` is a further roof below the main one.
    """
    import torch

    from rooflines.kernels.micro import clock, matmul

    def trial(shape: Shape) -> float:
        return quickest(meter, device, matmul.multiplication(shape, precision, device, scaling))

    what = f"GEMM {precision}" + (f" ({variant})" if variant else "")
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
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # no such product here: the message is torch's
            meter.progress(f"{what}: not available ({(str(error).splitlines() or [type(error).__name__])[0]})")
            return
        fp32 = max((one.value for one in meter.found if one.kind == "compute" and one.precision == "fp32"), default=0.0)
        if device.type == "cpu" and precision in ("bf16", "fp16") and rate < fp32 * _SLOWEST_GEMM:
            meter.progress(f"{what}: skipped, emulated at {si(rate, 'FLOP/s')}")
            return
        free = free_bytes(device)
        rates: dict[Shape, float] = {}
        for shape in shapes:
            if fits(shape, free) and matmul.flops(shape) / max(rate, *rates.values(), 0.0) < _LONGEST_CALLS * meter.share_s:
                rates[shape] = matmul.flops(shape) / trial(shape)
        best = max(rates, key=lambda shape: rates[shape], default=small)
        multiply = matmul.multiplication(best, precision, device, scaling)
        m, n, k = best
        of = f", the best of {len(rates)} shapes" if len(rates) > 1 else ""
        meter.figure(
            matmul.flops(best), partial(clock.timed, device, multiply),
            f"{matmul.operator(precision)} [{m}, {k}] @ [{k}, {n}] ({detail}){of}", kind="compute", name=f"GEMM {precision}",
            unit="OP/s" if precision == "int8" else "FLOP/s", precision=precision, engine="matrix",
            accumulate=matmul.accumulate(precision), variant=variant,
        )  # fmt: skip


def fits(shape: Shape, free: int) -> bool:
    """Whether the matrices of a product take less than half of ``free`` bytes while they are made, which is in fp32 and one by one."""
    from rooflines.kernels.micro import matmul

    return matmul.footprint_bytes(shape, "fp32") * 2 < free / 2


def quickest(meter: Meter, device: torch.device, call: Callable[[], object]) -> float:
    """Seconds of one call at best: of three tries of some milliseconds each, after a first call that chooses and loads its kernel."""
    from rooflines.kernels.micro import clock

    call()
    once = clock.timed(device, call, 1).seconds
    calls = max(1, min(_TRIAL_CALLS, int(_TRIAL_S / once)))
    best, deadline = once, time.perf_counter() + meter.share_s / 2
    for _ in range(3):
        best = min(best, clock.timed(device, call, calls).seconds / calls)
        if time.perf_counter() > deadline:
            break
    return best


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
        "write": lambda: transfer.write(target),
        "copy": lambda: transfer.copy(first, target),
        "triad": lambda: transfer.triad(first, second, target),
    }
    operator = {"read": "torch.sum", "write": "Tensor.fill_", "copy": "Tensor.copy_", "triad": "torch.add(alpha=)"}
    for access in accesses:
        call, work = calls[access]()
        call()
        meter.figure(work, partial(clock.timed, device, call), f"{operator[access]} on tensors of {binary_bytes(size_bytes)}",
                     kind="memory", name=f"{level} {access}", unit="B/s", level=level, access=access)  # fmt: skip


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
