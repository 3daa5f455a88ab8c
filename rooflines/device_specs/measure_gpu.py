"""The ceilings of a GPU: NVIDIA and AMD through torch's CUDA interface, Apple through MPS."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rooflines.device_specs import detect
from rooflines.device_specs.measure_torch import free_bytes, gemm, transfers
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Precision
from rooflines.units import binary_bytes, si

if TYPE_CHECKING:
    import torch

# FP32 FLOP per multiprocessor and cycle, FMA = 2, by compute capability: CUDA C++ Best Practices Guide, "Throughput of Native
# Arithmetic Instructions" (results per cycle, times 2).
_FP32_PER_SM_CYCLE = {
    (5, 0): 256, (5, 2): 256, (5, 3): 256, (6, 0): 128, (6, 1): 256, (6, 2): 256, (7, 0): 128, (7, 2): 128, (7, 5): 128, (8, 0): 128,
    (8, 6): 256, (8, 7): 256, (8, 9): 256, (9, 0): 256, (10, 0): 256, (10, 3): 256, (12, 0): 256, (12, 1): 256,
}  # fmt: skip
_LARGEST_MPS = 256 << 20  # bytes a tensor at most


def measure_cuda(meter: Meter, device: torch.device) -> None:
    """Every figure of one GPU; what its memory has no room for is left out."""
    import torch

    facts = detect.gpu(device.index)
    nvidia = torch.version.hip is None
    with torch.cuda.device(device):
        torch.cuda.empty_cache()  # what a run before left with the allocator is free for the measurement
        try:
            if nvidia:
                derived_fp32(meter, facts)
            capability = facts.compute_capability
            precisions: list[Precision] = ["fp32", "fp64", "fp16"]
            if not nvidia or capability >= (8, 0):
                precisions += ["bf16"]
            if nvidia and capability >= (8, 0):
                precisions += ["tf32"]
            for precision in precisions:
                sides = (4096, 8192, 16384)
                with _enough_memory(meter, f"GEMM {precision}"):
                    gemm(meter, device, precision, tuple((side,) * 3 for side in sides), 1024, "cuBLAS" if nvidia else "hipBLAS")
                torch.cuda.empty_cache()
            with _enough_memory(meter, "memory"):
                size = max(min(1 << 30, free_bytes(device) // 8), 1 << 20)
                transfers(meter, device, "HBM", size, ("read", "copy", "triad"))
            torch.cuda.empty_cache()
            if facts.l2_bytes:
                with _enough_memory(meter, "L2 read"):
                    _gpu_l2(meter, device, facts.l2_bytes)
            _kernel_launch(meter, device)
        finally:
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _enough_memory(meter: Meter, what: str) -> Iterator[None]:
    """Leave a figure out, and say so, where the device has no room for it: another process may hold the memory."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError:
        meter.progress(f"{what}: not enough free memory on the device")


def derived_fp32(meter: Meter, gpu: detect.Gpu) -> None:
    """Vector FP32 as multiprocessors x rate x highest clock, where all three are known exactly.

    Not for the H20, whose advertised rate does not follow from its multiprocessors and clock.
    """
    rate = _FP32_PER_SM_CYCLE.get(gpu.compute_capability)
    if rate is None or gpu.sm_clock_hz is None or re.search(r"\bH20\b", gpu.name):
        return
    major, minor = gpu.compute_capability
    detail = (
        f"{gpu.multiprocessors} multiprocessors x {rate} FLOP per cycle (compute capability {major}.{minor}) x"
        f" {si(gpu.sm_clock_hz, 'Hz', 4)}, the driver's highest clock"
    )
    meter.derive(detail, kind="compute", name="FMA fp32", value=gpu.multiprocessors * rate * gpu.sm_clock_hz, unit="FLOP/s",
                 precision="fp32", engine="vector", accumulate="fp32")  # fmt: skip


def _gpu_l2(meter: Meter, device: torch.device, l2_bytes: int) -> None:
    """Read bandwidth of the L2 cache; left out where it does not come out above the memory behind it."""
    import torch

    from rooflines.kernels.micro import clock, transfer

    source = torch.ones(l2_bytes // 2 // 4, device=device)
    call, work = transfer.repeated_read(source, 64)
    call()
    repeats = meter.rate(work, partial(clock.timed, device, call))
    behind = max((one.value for one in meter.found if one.level == "HBM"), default=0.0)
    if repeats.median <= behind:
        meter.progress(f"L2 read: left out, {si(repeats.median, 'B/s')} is not above the device memory")
        return
    meter.add(repeats, f"torch.sum 64 times over {binary_bytes(source.nbytes)} in one kernel", kind="memory", name="L2 read",
              unit="B/s", level="L2", access="read", capacity_bytes=l2_bytes)  # fmt: skip


def _kernel_launch(meter: Meter, device: torch.device) -> None:
    """Two latencies: of a kernel among kernels already queued on the device, and of an eager operator sent by the host.

    The first is the lower bound of a kernel's duration, the second the pace at which Python can feed the device.
    """
    import torch

    from rooflines.kernels.micro import clock, dispatch

    launches = 1000
    replay = dispatch.launch_graph(device, launches)
    replay()
    repeats = meter.latency(5, partial(clock.timed, device, replay))
    repeats = repeats._replace(median=repeats.median / launches)
    meter.add(repeats, f"aten::add_ on one element, {launches} times in a CUDA graph", kind="latency", name="kernel launch", unit="s")
    with torch.inference_mode():
        tensor = dispatch.smallest_kernel(device)
        clock.timed(device, tensor.zero_, 100)
        repeats = meter.latency(launches, partial(clock.timed, device, tensor.zero_))
    meter.add(repeats, f"aten::zero_ on one element, {launches} times in a row", kind="latency", name="operator dispatch", unit="s")


# --- MPS ---------------------------------------------------------------------------------------------------------------------------


def measure_mps(meter: Meter, device: torch.device) -> None:
    """Every figure of an Apple GPU."""
    import torch

    from rooflines.kernels.micro import clock, dispatch

    for precision in ("fp32", "fp16"):
        gemm(meter, device, precision, ((2048,) * 3, (4096,) * 3), 512, "Metal")
    size = max(min(_LARGEST_MPS, detect.memory_available_bytes() // 8), 1 << 20)
    transfers(meter, device, "DRAM", size, ("copy", "triad"))
    with torch.inference_mode():
        tensor = dispatch.smallest_kernel(device)
        clock.timed(device, tensor.zero_, 100)
        repeats = meter.latency(1000, partial(clock.timed, device, tensor.zero_))
    meter.add(repeats, "aten::zero_ on one element, 1000 times in a row", kind="latency", name="operator dispatch", unit="s")
