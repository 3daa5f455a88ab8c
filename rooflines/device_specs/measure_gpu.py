"""The ceilings of a GPU: NVIDIA and AMD through torch's CUDA interface and, on NVIDIA, kernels of our own;
Apple through MPS.

The kernels are for figures that torch has no operator for, or a slower one. Numba compiles them and needs
NVVM, a part of the CUDA toolkit that torch does not bring along. Where it is missing, or too new for the
driver, ``unusable`` gives the reason and the measurements by torch operators remain.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rooflines.device_specs import detect
from rooflines.device_specs.conditions import GpuState, Watch, refuse_if_busy
from rooflines.device_specs.derive import chip_rates
from rooflines.device_specs.measure_torch import (
    cache_reads,
    free_bytes,
    gemm,
    host_links,
    peer_links,
    transfer_run,
    transfers,
)
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Precision
from rooflines.device_specs.rounds import RunAndWork, Way
from rooflines.errors import DeviceError, first_line
from rooflines.kernels.micro import clock, dispatch, transfer
from rooflines.kernels.micro.matmul import Scaling, Shape, Side
from rooflines.kernels.micro.repeats import Run, Timing
from rooflines.kernels.micro.transfer import Access
from rooflines.units import binary_bytes, si, significant

if TYPE_CHECKING:
    from rooflines.kernels.micro.cuda_fma import Precision as Unit
    from rooflines.kernels.micro.cuda_stream import Pattern, WorkingSet

_ACCESSES: tuple[Access, ...] = ("read", "write", "copy", "triad")
_LARGEST_MPS = 256 << 20  # bytes a tensor at most
# Rounds of a GPU that nothing else uses differ by less than this, so a way further behind will not be the
# fastest.
_BEHIND = 0.95
_SPIN_BYTES = 64 << 20
_LAUNCHES = 1000
_TRACES, _TRACED = 3, 100  # traces, and operators of each kind in one
# Steps of the recurrences and passes over a memory in one launch: some milliseconds on a small GPU and on a
# large one, much longer than it takes to start a kernel.
_FMA_ITERATIONS = 350
_L2_BYTES = 4 << 30
_SHARED_PASSES = 4000


def measure_cuda(
    plan: Plan,
    device: torch.device,
    *,
    full: bool = False,
    sustained_s: float | None = None,
    force: bool = False,
) -> None:
    """Measure every figure of one GPU that judges a run; what its memory has no room for is left out.

    ``full`` adds more shapes of products, the two slower ways to multiply fp8, shared memory, pageable copies
    and the links to other GPUs. With ``sustained_s`` every compute and memory figure is also measured over
    this many seconds. Raises DeviceError where other processes keep the device busy, naming them; with
    ``force`` it is measured all the same and every figure says "disturbed".
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
    """Some milliseconds of copies, which raise the clocks of the multiprocessors and of the memory and draw
    little power."""
    source, target = (
        torch.empty(min(_SPIN_BYTES, free_bytes(device) // 8) // 4, device=device) for _ in range(2)
    )
    return lambda: clock.timed_on_device(device, lambda: target.copy_(source), 32)


def _figures(
    plan: Plan, device: torch.device, facts: detect.Gpu, full: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, and the function that plans it, by our own kernels or, where these cannot be
    compiled, by torch.

    First what needs little power (memory, caches, launches), then arithmetic, so that no figure is taken at a
    clock that the figure before it has pulled down; the links, which need no clock, are last.
    """
    from rooflines.kernels.micro.cuda_stream import array_bytes

    nvidia = torch.version.hip is None
    l2_bytes = facts.l2_bytes
    why_not = unusable(device)
    if not why_not:
        yield "HBM", partial(streams, plan, device, l2_bytes, full=full)
        if l2_bytes:
            yield "L2 read", partial(l2, plan, device, l2_bytes)
        if full:
            yield "shared memory read", partial(shared, plan, device)
    else:
        if nvidia:
            extra = detect.cuda_extra(torch.version.cuda, None)
            hint = f" pip install 'rooflines[{extra}]' may help" if extra else ""
            plan.progress(f"CUDA kernels: skipped ({why_not}); memory is measured with torch.{hint}")
        yield (
            "HBM",
            lambda: transfers(plan, device, "HBM", array_bytes(free_bytes(device), l2_bytes), _ACCESSES),
        )
        if l2_bytes:
            yield "L2 read", partial(cache_reads, plan, device, l2_bytes)
    yield "kernel launch", partial(_kernel_launch, plan, device)
    yield "operator dispatch", partial(_dispatch, plan, device)
    if not why_not:
        units: tuple[Unit, ...] = ("fp32", "fp64", "fp16")
        for unit in units if facts.compute_capability >= (5, 3) else units[:2]:
            yield f"FMA {unit}", partial(fma, plan, device, unit)
    elif nvidia:
        yield "FMA fp32", partial(derived_fp32, plan, facts)
    library = "cuBLAS" if nvidia else "hipBLAS"
    transposed = transposed_shapes(full, facts.multiprocessors)
    scalings: dict[str, Scaling] = {
        "a scale per row": "row",
        "slow accumulation": "tensor, slow accumulation",
    }
    for precision in product_precisions(facts.compute_capability if nvidia else None):
        product = partial(gemm, plan, device, precision)
        yield (
            f"GEMM {precision}",
            partial(product, product_shapes(full), 1024, library, transposed=transposed),
        )
        for variant, scaling in scalings.items() if precision == "fp8" and full else ():
            yield (
                f"GEMM fp8 ({variant})",
                partial(product, _CUBES, 1024, library, scaling=scaling, variant=variant),
            )
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
    """The matrix products [m, n, k] to try for a device's peak, both operands stored as they are
    multiplied."""
    return _CUBES + _MORE_SHAPES if full else _CUBES


def transposed_shapes(full: bool, multiprocessors: int) -> tuple[tuple[Shape, Side], ...]:
    """The matrix products [m, n, k] to try with one operand stored transposed; on the right as ``nn.Linear``
    stores its weight.

    cuBLAS divides the result into tiles of 128 rows or a multiple. With 128 rows a multiprocessor every round
    of tiles keeps all of them busy, however wide the result. A longer sum per tile (k) makes up for the start
    and the end of each.
    """
    waves = (128 * multiprocessors, 8192, 8192)
    quick: tuple[tuple[Shape, Side], ...] = ((waves, "right"), ((8192, 8192, 16384), "right"))
    return (
        (*quick, (_CUBES[-2], "right"), (_CUBES[-2], "left"), (waves, "left"), (waves, "")) if full else quick
    )


def product_precisions(capability: tuple[int, int] | None) -> tuple[Precision, ...]:
    """The precisions in which a GPU of this compute capability may multiply matrices; None for an AMD GPU,
    which is just tried.

    fp64 and fp32 everywhere; fp16 since Pascal; int8 since Turing; bf16 and TF32 since Ampere; fp8 since Ada.
    """
    if capability is None:
        return "fp32", "fp64", "fp16", "bf16", "fp8", "int8"
    since: dict[Precision, tuple[int, int]] = {
        "fp32": (0, 0),
        "fp64": (0, 0),
        "fp16": (5, 3),
        "bf16": (8, 0),
        "tf32": (8, 0),
        "fp8": (8, 9),
        "int8": (7, 5),
    }
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
    return f"left out ({first_line(error)})"


def derived_fp32(plan: Plan, gpu: detect.Gpu) -> None:
    """Vector FP32 as multiprocessors x rate x highest clock, where all three are known exactly.

    Not for the H20, whose advertised rate does not follow from its multiprocessors and clock.
    """
    chip = chip_rates(gpu.compute_capability)
    if chip is None or gpu.sm_clock_hz is None or re.search(r"\bH20\b", gpu.name):
        return
    rate, (major, minor) = chip.vector["fp32"], gpu.compute_capability
    plan.derive(
        f"{gpu.multiprocessors} multiprocessors x {rate:g} FLOP per cycle (compute capability "
        f"{major}.{minor}) x"
        f" {si(gpu.sm_clock_hz, 'Hz', 4)}, the driver's highest clock",
        kind="compute",
        name="FMA fp32",
        value=gpu.multiprocessors * rate * gpu.sm_clock_hz,
        unit="FLOP/s",
        precision="fp32",
        engine="vector",
        accumulate="fp32",
    )


def _kernel_launch(plan: Plan, device: torch.device) -> None:
    """Plan the latency of a kernel among kernels already queued on the device: the time from start to
    start."""

    def graph() -> RunAndWork:
        return partial(clock.timed_on_device, device, dispatch.launch_graph(device, _LAUNCHES)), _LAUNCHES

    detail = f"aten::add_ on one element, {_LAUNCHES} times in a CUDA graph, from start to start"
    plan.figure(Way(detail, graph), kind="latency", name="kernel launch")


def _traced_launch(plan: Plan, device: torch.device) -> None:
    """Keep the shortest duration of a one-element kernel in traces of torch's profiler, as another way to
    find the launch roof.

    The roof bounds durations of a trace, from a kernel's start to its end. Those leave the gap between two
    kernels out, which the time from start to start in a graph has. The shorter of the two is the roof.
    """
    plan.measure_apart(
        f"shortest kernel in a trace of aten::add_ and aten::zero_ on one element, {_TRACED} times each",
        lambda: dispatch.shortest_kernel_s(dispatch.traced_launches(device, _TRACED)),
        _TRACES,
        name="kernel launch",
    )


def _dispatch(plan: Plan, device: torch.device) -> None:
    """Plan the pace of eager operators, many in a row, so that the host never waits for the device's
    answer."""

    def make() -> RunAndWork:
        tensor = dispatch.smallest_kernel(device)

        def run(calls: int) -> Timing:
            with torch.inference_mode():
                return clock.timed_on_device(device, tensor.zero_, _LAUNCHES * calls)

        return run, _LAUNCHES

    plan.figure(
        Way(f"aten::zero_ on one element, {_LAUNCHES} times in a row", make),
        kind="latency",
        name="operator dispatch",
    )


# --- figures by our own CUDA kernels ----------------------------------------------------------------------


def unusable(device: torch.device) -> str:
    """The reason why our CUDA kernels cannot run on ``device``, in one line; empty if one ran with a correct
    result."""
    if torch.version.hip is not None:
        return "Numba compiles for NVIDIA GPUs only"
    try:
        from numba import cuda

        from rooflines.kernels.micro import cuda_stream
        from rooflines.kernels.micro.cuda_vectors import CUDA_IS_SIMULATED, cuda_launcher

        if CUDA_IS_SIMULATED:
            return "NUMBA_ENABLE_CUDASIM is set: Numba simulates a GPU"
        cuda.select_device(device.index)
        source = torch.arange(4096, dtype=torch.float32, device=device)
        target = torch.zeros_like(source)
        cuda_launcher(
            cuda_stream.copy(cuda_stream.UNROLL), 4, 32, _array(source), _array(target), source.numel() // 4
        )()
        torch.cuda.synchronize(device)
        if not torch.equal(source, target):
            return "a copy by a Numba kernel gave wrong results"
    except Exception as error:  # every version of Numba, toolkit and driver fails in its own way
        return first_line(error)
    return ""


def fma(plan: Plan, device: torch.device, precision: Unit) -> None:
    """Plan the FMA peak of the vector units, all threads that the device holds at once."""
    from rooflines.kernels.micro import cuda_fma
    from rooflines.kernels.micro.cuda_vectors import THREADS

    kernel = cuda_fma.kernel_of(precision)
    blocks = _fill(device, kernel, cuda_fma.SIGNATURES[precision], THREADS)
    threads = blocks * THREADS
    lanes = 2 if precision == "fp16" else 1

    def make() -> RunAndWork:
        if precision == "fp16":
            values = torch.ones(2 * threads, dtype=torch.float16, device=device).view(torch.int32)
            scale, shift = (np.full(2, number, np.float16).view(np.int32)[0] for number in (0.5, 1.0))
        else:
            torch_type, numpy_type = {
                "fp32": (torch.float32, np.float32),
                "fp64": (torch.float64, np.float64),
            }[precision]
            values = torch.ones(threads, dtype=torch_type, device=device)
            scale = numpy_type(0.5)
            shift = numpy_type(1.0)
        work = cuda_fma.flops(threads, _FMA_ITERATIONS, lanes)
        return _run(device, kernel, (blocks, THREADS), values, scale, shift, _FMA_ITERATIONS), work

    recurrences = (
        f"{cuda_fma.RECURRENCES} independent recurrences{' of pairs' if lanes == 2 else ''} a thread"
    )
    way = Way(f"{recurrences}, {_grid(device, blocks, THREADS)}", make)
    plan.figure(way, kind="compute", precision=precision, engine="vector", accumulate=precision)


def streams(plan: Plan, device: torch.device, l2_bytes: int | None, *, full: bool) -> None:
    """Plan read, write, copy and triad of device memory, by our kernels in several access patterns and by
    torch's operator.

    ``full`` tries more patterns.
    """
    from rooflines.kernels.micro import cuda_stream

    size = cuda_stream.array_bytes(free_bytes(device), l2_bytes)
    vectors = size // 16
    patterns = cuda_stream.PATTERNS + (cuda_stream.MORE_PATTERNS if full else ())

    arrays = f"arrays of {binary_bytes(size)}"
    for access, signature in cuda_stream.SIGNATURES.items():
        ways: dict[str, Way] = {}  # by what they say: on a small device some patterns have the same grid
        for pattern in patterns:
            fill = _fill(device, cuda_stream.kernel_of(access, pattern.unroll), signature, pattern.threads)
            if not fill:  # a block of this size does not fit on a multiprocessor
                continue
            blocks = cuda_stream.blocks_of(pattern, fill, vectors)
            grid = _grid(device, blocks, pattern.threads)
            detail = f"{access} kernel, {pattern.unroll} vectors a thread at once, {grid}, {arrays}"
            ways[detail] = Way(detail, partial(_stream, device, access, pattern, blocks, size))
        if access != "read":
            ways[access] = Way(
                f"{transfer.OPERATORS[access]}, {arrays}", partial(transfer_run, device, access, size)
            )
        plan.figure(*ways.values(), kind="memory", level="HBM", access=access)


def _stream(device: torch.device, access: Access, pattern: Pattern, blocks: int, size: int) -> RunAndWork:
    """The run of one access in one pattern over arrays of ``size`` bytes, and the bytes of one launch."""
    from rooflines.kernels.micro import cuda_stream

    vectors = size // 16
    first, second, target = transfer.operands(size, device)
    arguments: tuple[Any, ...] = {
        "read": (first, torch.empty(cuda_stream.sums_of(blocks * pattern.threads), device=device), vectors),
        "write": (target, np.float32(1), vectors),
        "copy": (first, target, vectors),
        "triad": (first, second, target, np.float32(3), vectors),
    }[access]
    kernel = cuda_stream.kernel_of(access, pattern.unroll)
    return _run(device, kernel, (blocks, pattern.threads), *arguments), cuda_stream.TRANSFERS[access] * size


def l2(plan: Plan, device: torch.device, l2_bytes: int) -> None:
    """Plan the read bandwidth of the L2 cache by several grids and working sets of up to half of it."""
    from rooflines.kernels.micro import cuda_stream
    from rooflines.kernels.micro.cuda_vectors import THREADS

    count = torch.cuda.get_device_properties(device).multi_processor_count
    resident = _fill(device, cuda_stream.read_again, cuda_stream.READ_AGAIN, THREADS) // count

    def make(work: WorkingSet) -> RunAndWork:
        source = torch.ones(work.vectors * 4, device=device)
        sums = torch.empty(work.blocks * THREADS, device=device)
        passes = max(1, _L2_BYTES // (work.vectors * 16))
        run = _run(device, cuda_stream.read_again, (work.blocks, THREADS), source, sums, work.vectors, passes)
        return run, work.vectors * 16 * passes

    ways = [
        Way(
            f"read kernel past L1, working set {binary_bytes(work.vectors * 16)}, "
            f"{_grid(device, work.blocks, THREADS)}",
            partial(make, work),
        )
        for work in cuda_stream.working_sets(l2_bytes, count, resident)
    ]
    plan.figure(*ways, kind="memory", above="HBM", level="L2", access="read", capacity_bytes=l2_bytes)


def shared(plan: Plan, device: torch.device) -> None:
    """Plan the read bandwidth of all shared memories together: a variant, because nothing stays there from
    one kernel to the next."""
    from rooflines.kernels.micro import cuda_stream

    threads = cuda_stream.SHARED_THREADS
    blocks = _fill(device, cuda_stream.read_shared, cuda_stream.READ_SHARED, threads)

    def make() -> RunAndWork:
        source = torch.ones(cuda_stream.SHARED_VECTORS * 4, device=device)
        sums = torch.empty(blocks * threads, device=device)
        run = _run(device, cuda_stream.read_shared, (blocks, threads), source, sums, _SHARED_PASSES)
        return run, cuda_stream.shared_bytes(blocks, _SHARED_PASSES)

    way = Way(f"read kernel, {_grid(device, blocks, threads)}", make)
    plan.figure(
        way, kind="memory", name="shared memory read", level="shared", access="read", variant="within a block"
    )


def _fill(device: torch.device, kernel: Any, signature: tuple[Any, ...], threads: int) -> int:
    """How many blocks of ``threads`` threads of ``kernel`` the device holds at once; compiles it."""
    from rooflines.kernels.micro.cuda_vectors import resident_blocks

    facts = torch.cuda.get_device_properties(device)
    return facts.multi_processor_count * resident_blocks(
        kernel, signature, threads, facts.max_threads_per_multi_processor
    )


def _grid(device: torch.device, blocks: int, threads: int) -> str:
    """A launch in words."""
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return f"{threads} threads x {significant(blocks / count)} blocks a multiprocessor (Numba)"


def _array(tensor: torch.Tensor) -> Any:
    """``tensor`` as Numba sees it, the same memory."""
    from numba import cuda

    return cuda.as_cuda_array(tensor)


def _run(device: torch.device, kernel: Any, grid: tuple[int, int], *arguments: Any) -> Run:
    """A run of launches of ``kernel`` with ``grid`` (blocks, threads). It keeps the tensors alive: Numba's
    view of them does not."""
    from rooflines.kernels.micro.cuda_vectors import cuda_launcher

    call = cuda_launcher(
        kernel, *grid, *(_array(one) if isinstance(one, torch.Tensor) else one for one in arguments)
    )
    return lambda calls: (clock.timed_on_device(device, call, calls), arguments)[0]


# --- MPS --------------------------------------------------------------------------------------------------


def measure_mps(plan: Plan, device: torch.device, *, full: bool) -> None:
    """Measure every figure of an Apple GPU that judges a run; ``full`` adds bf16 and the copies from and to
    the host."""
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
