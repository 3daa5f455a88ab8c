"""The ceilings of a GPU: NVIDIA and AMD through torch's CUDA interface and, on NVIDIA, kernels of our own; Apple through MPS."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch

from rooflines.device_specs import detect, measure_kernels
from rooflines.device_specs.conditions import GpuState, Watch, refuse_if_busy
from rooflines.device_specs.derive import FP32_PER_SM_CYCLE
from rooflines.device_specs.measure_torch import cache_reads, free_bytes, gemm, host_links, peer_links, transfers
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Precision
from rooflines.device_specs.rounds import Way
from rooflines.errors import DeviceError
from rooflines.kernels.micro import clock, dispatch
from rooflines.kernels.micro.matmul import Scaling, Shape, Side
from rooflines.kernels.micro.repeats import Run, Timing
from rooflines.kernels.micro.transfer import Access
from rooflines.units import si

_ACCESSES: tuple[Access, ...] = ("read", "write", "copy", "triad")
_LARGEST_MPS = 256 << 20  # bytes a tensor at most
# Rounds of a GPU that nothing else uses differ by less than this, so a way further behind will not be the fastest.
_BEHIND = 0.95
_SPIN_BYTES = 64 << 20
_LAUNCHES = 1000
_TRACES, _TRACED = 3, 100  # traces, and operators of each kind in one


def measure_cuda(
    plan: Plan, device: torch.device, *, full: bool = False, sustained_s: float | None = None, force: bool = False
) -> None:
    """Measure every figure of one GPU that judges a run; what its memory has no room for is left out.

    ``full`` adds more shapes of products, the two slower ways to multiply fp8, shared memory, pageable copies and the links to other
    GPUs. With ``sustained_s`` every compute and memory figure is also measured over this many seconds. Raises DeviceError where other
    processes keep the device busy, naming them; with ``force`` it is measured all the same and every figure says "disturbed".
    """
    state = _state(device)
    with torch.cuda.device(device), contextlib.nullcontext() if state is None else contextlib.closing(state):
        torch.zeros(1, device=device)  # a context of this process on the device, which NVML then lists
        torch.cuda.empty_cache()  # what a run before left with the allocator is free for the measurement
        torch.cuda.synchronize(device)
        facts = detect.gpu(device.index)
        if state is not None:
            plan.disturbed_by = refuse_if_busy(state, f"{facts.name} ({device})", force=force)
            plan.watch = Watch(state.read)
        plan.sustained_s = sustained_s
        plan.keeps = False  # the largest products alone may fill the memory
        plan.refuse = partial(_why, device)
        plan.behind = _BEHIND
        plan.spin = _spin(device)
        try:
            for what, planned in _figures(plan, device, facts, full):
                with _left_out(plan, what, device):
                    planned()
            plan.measure()
            # last, because a process that has been traced launches kernels more slowly
            with _left_out(plan, "kernel launch (traced)", device):
                _traced_launch(plan, device)
        finally:
            torch.cuda.empty_cache()


def _spin(device: torch.device) -> Callable[[], object]:
    """Some milliseconds of copies, which raise the clocks of the multiprocessors and of the memory and draw little power."""
    source, target = (torch.empty(min(_SPIN_BYTES, free_bytes(device) // 8) // 4, device=device) for _ in range(2))
    return lambda: clock.timed(device, lambda: target.copy_(source), 32)


def _figures(plan: Plan, device: torch.device, facts: detect.Gpu, full: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, and the function that plans it, by our own kernels or, where these cannot be compiled, by torch.

    First what needs little power (memory, caches, launches), then arithmetic, so that no figure is taken at a clock that the figure
    before it has pulled down; the links, which need no clock, are last.
    """
    from rooflines.kernels.micro.cuda_stream import array_bytes

    nvidia, l2_bytes, why_not = torch.version.hip is None, facts.l2_bytes, measure_kernels.unusable(device)
    if not why_not:
        yield "HBM", partial(measure_kernels.streams, plan, device, l2_bytes, full=full)
        if l2_bytes:
            yield "L2 read", partial(measure_kernels.l2, plan, device, l2_bytes)
        if full:
            yield "shared memory read", partial(measure_kernels.shared, plan, device)
    else:
        if nvidia:
            extra = detect.cuda_extra(torch.version.cuda, None)
            hint = f" pip install 'rooflines[{extra}]' may help" if extra else ""
            plan.progress(f"CUDA kernels: skipped ({why_not}); memory is measured with torch.{hint}")
        yield "HBM", lambda: transfers(plan, device, "HBM", array_bytes(free_bytes(device), l2_bytes), _ACCESSES)
        if l2_bytes:
            yield "L2 read", partial(cache_reads, plan, device, l2_bytes)
    yield "kernel launch", partial(_kernel_launch, plan, device)
    yield "operator dispatch", partial(_dispatch, plan, device)
    if not why_not:
        units: tuple[Literal["fp32", "fp64", "fp16"], ...] = ("fp32", "fp64", "fp16")
        for unit in units if facts.compute_capability >= (5, 3) else units[:2]:
            yield f"FMA {unit}", partial(measure_kernels.fma, plan, device, unit)
    elif nvidia:
        yield "FMA fp32", partial(derived_fp32, plan, facts)
    library = "cuBLAS" if nvidia else "hipBLAS"
    transposed = transposed_shapes(full, facts.multiprocessors)
    scalings: dict[str, Scaling] = {"a scale per row": "row", "slow accumulation": "tensor, slow accumulation"}
    for precision in product_precisions(facts.compute_capability if nvidia else None):
        product = partial(gemm, plan, device, precision)
        yield f"GEMM {precision}", partial(product, product_shapes(full), 1024, library, transposed=transposed)
        for variant, scaling in scalings.items() if precision == "fp8" and full else ():
            yield f"GEMM fp8 ({variant})", partial(product, _CUBES, 1024, library, scaling=scaling, variant=variant)
    yield "links to the host", partial(host_links, plan, device, pageable=full)
    if full:
        yield "links to other GPUs", partial(peer_links, plan, device)


# Multiples of every tile that cuBLAS has, from where a device fills up to where its memory ends.
_CUBES: tuple[Shape, ...] = tuple((side,) * 3 for side in (4096, 8192, 16384))
_MORE_SHAPES: tuple[Shape, ...] = (
    (6144, 6144, 6144),
    (12288, 12288, 12288),
    (8192, 8192, 16384),
    (16384, 8192, 4096),
    (8192, 28672, 8192),  # the wider half of a transformer's feed-forward block
)


def product_shapes(full: bool) -> tuple[Shape, ...]:
    """The matrix products [m, n, k] to try for a device's peak, both operands stored as they are multiplied."""
    return _CUBES + _MORE_SHAPES if full else _CUBES


def transposed_shapes(full: bool, multiprocessors: int) -> tuple[tuple[Shape, Side], ...]:
    """The matrix products [m, n, k] to try with one operand stored transposed; on the right as ``nn.Linear`` stores its weight.

    cuBLAS divides the result into tiles of 128 rows or a multiple. With 128 rows a multiprocessor every round of tiles keeps all of
    them busy, however wide the result. A longer sum per tile (k) makes up for the start and the end of each.
    """
    waves = (128 * multiprocessors, 8192, 8192)
    quick: tuple[tuple[Shape, Side], ...] = ((waves, "right"), ((8192, 8192, 16384), "right"))
    return (*quick, (_CUBES[-2], "right"), (_CUBES[-2], "left"), (waves, "left"), (waves, "")) if full else quick


def product_precisions(capability: tuple[int, int] | None) -> tuple[Precision, ...]:
    """The precisions in which a GPU of this compute capability may multiply matrices; None for an AMD GPU, which is just tried.

    fp64 and fp32 everywhere; fp16 since Pascal; int8 since Turing; bf16 and TF32 since Ampere; fp8 since Ada.
    """
    if capability is None:
        return "fp32", "fp64", "fp16", "bf16", "fp8", "int8"
    since: dict[Precision, tuple[int, int]] = {
        "fp32": (0, 0), "fp64": (0, 0), "fp16": (5, 3), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5),
    }  # fmt: skip
    return tuple(precision for precision, first in since.items() if capability >= first)


def _state(device: torch.device) -> GpuState | None:
    """What NVML knows of ``device``; None where NVML is not there or does not know it."""
    try:
        return GpuState(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
    except DeviceError:
        return None


@contextlib.contextmanager
def _left_out(plan: Plan, what: str, device: torch.device) -> Iterator[None]:
    """Leave a figure out, with a message, if it cannot be planned."""
    try:
        yield
    except Exception as error:  # every version of Numba, toolkit and driver fails in its own way
        plan.progress(f"{what}: {_why(device, error)}")


def _why(device: torch.device, error: Exception) -> str:
    """Why a figure is left out: memory that another process holds, a kernel that does not compile.

    Raises ``error`` where the device itself has failed: then nothing after it could be measured either.
    """
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "not enough free memory on the device"
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        raise error from None
    return f"left out ({(str(error).splitlines() or [type(error).__name__])[0]})"


def derived_fp32(plan: Plan, gpu: detect.Gpu) -> None:
    """Vector FP32 as multiprocessors x rate x highest clock, where all three are known exactly.

    Not for the H20, whose advertised rate does not follow from its multiprocessors and clock.
    """
    rate = FP32_PER_SM_CYCLE.get(gpu.compute_capability)
    if rate is None or gpu.sm_clock_hz is None or re.search(r"\bH20\b", gpu.name):
        return
    major, minor = gpu.compute_capability
    detail = (
        f"{gpu.multiprocessors} multiprocessors x {rate} FLOP per cycle (compute capability {major}.{minor}) x"
        f" {si(gpu.sm_clock_hz, 'Hz', 4)}, the driver's highest clock"
    )
    plan.derive(detail, kind="compute", name="FMA fp32", value=gpu.multiprocessors * rate * gpu.sm_clock_hz, unit="FLOP/s",
                precision="fp32", engine="vector", accumulate="fp32")  # fmt: skip


def _kernel_launch(plan: Plan, device: torch.device) -> None:
    """Plan the latency of a kernel among kernels already queued on the device: the time from start to start."""

    def graph() -> tuple[Run, float]:
        return partial(clock.timed, device, dispatch.launch_graph(device, _LAUNCHES)), _LAUNCHES

    detail = f"aten::add_ on one element, {_LAUNCHES} times in a CUDA graph, from start to start"
    plan.figure(Way(detail, graph), kind="latency", name="kernel launch")


def _traced_launch(plan: Plan, device: torch.device) -> None:
    """Keep the shortest duration of a one-element kernel in traces of torch's profiler, as another way to find the launch roof.

    The roof bounds durations of a trace, from a kernel's start to its end. Those leave the gap between two kernels out, which the time
    from start to start in a graph has. The shorter of the two is the roof.
    """
    detail = f"shortest kernel in a trace of aten::add_ and aten::zero_ on one element, {_TRACED} times each"
    plan.measure_apart(
        detail, lambda: dispatch.shortest_kernel_s(dispatch.traced_launches(device, _TRACED)), _TRACES, name="kernel launch"
    )


def _dispatch(plan: Plan, device: torch.device) -> None:
    """Plan the pace of eager operators, many in a row, so that the host never waits for the device's answer."""

    def make() -> tuple[Run, float]:
        tensor = dispatch.smallest_kernel(device)

        def run(calls: int) -> Timing:
            with torch.inference_mode():
                return clock.timed(device, tensor.zero_, _LAUNCHES * calls)

        return run, _LAUNCHES

    plan.figure(Way(f"aten::zero_ on one element, {_LAUNCHES} times in a row", make), kind="latency", name="operator dispatch")


# --- MPS ---------------------------------------------------------------------------------------------------------------------------


def measure_mps(plan: Plan, device: torch.device, *, full: bool = False) -> None:
    """Measure every figure of an Apple GPU that judges a run; ``full`` adds bf16 and the copies from and to the host."""
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "bf16") if full else ("fp32", "fp16")
    for precision in precisions:
        gemm(plan, device, precision, ((2048,) * 3, (4096,) * 3), 512, "Metal")
    size = max(min(_LARGEST_MPS, detect.memory_available_bytes() // 8), 1 << 20)
    transfers(plan, device, "DRAM", size, _ACCESSES)
    _dispatch(plan, device)
    if full:
        host_links(plan, device, pageable=True)
    plan.keeps = False
    plan.measure()
