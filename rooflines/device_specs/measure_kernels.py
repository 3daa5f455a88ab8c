"""The figures of an NVIDIA GPU that torch has no operator for, or a slower one: our own CUDA kernels, compiled by Numba.

Numba needs NVVM, a part of the CUDA toolkit that torch does not bring along. Where it is missing, or too new for the driver,
``unusable`` gives the reason and the measurements by torch operators remain.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rooflines.device_specs.measure_torch import free_bytes, transfer_run
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.rounds import Way
from rooflines.kernels.micro import clock, transfer
from rooflines.kernels.micro.repeats import Run
from rooflines.units import binary_bytes, significant

if TYPE_CHECKING:
    from rooflines.kernels.micro.cuda_fma import Precision
    from rooflines.kernels.micro.cuda_stream import Access, Pattern, WorkingSet

# Steps of the recurrences and passes over a memory in one launch: some milliseconds on a small GPU and on a large one, much longer
# than it takes to start a kernel.
_FMA_ITERATIONS = 350
_L2_BYTES = 4 << 30
_SHARED_PASSES = 4000


def unusable(device: torch.device) -> str:
    """The reason why our CUDA kernels cannot run on ``device``, in one line; empty if one ran with a correct result."""
    if torch.version.hip is not None:
        return "Numba compiles for NVIDIA GPUs only"
    try:
        from numba import cuda

        from rooflines.kernels.micro import cuda_stream
        from rooflines.kernels.micro.cuda_vectors import SIMULATED, launcher

        if SIMULATED:
            return "NUMBA_ENABLE_CUDASIM is set: Numba simulates a GPU"
        cuda.select_device(device.index)
        source = torch.arange(4096, dtype=torch.float32, device=device)
        target = torch.zeros_like(source)
        launcher(cuda_stream.copy(cuda_stream.UNROLL), 4, 32, _array(source), _array(target), source.numel() // 4)()
        torch.cuda.synchronize(device)
        if not torch.equal(source, target):
            return "a copy by a Numba kernel gave wrong results"
    except Exception as error:  # every version of Numba, toolkit and driver fails in its own way
        return (str(error).strip().splitlines() or [type(error).__name__])[0].strip() or type(error).__name__
    return ""


def fma(plan: Plan, device: torch.device, precision: Precision) -> None:
    """Plan the FMA peak of the vector units, all threads that the device holds at once."""
    from rooflines.kernels.micro import cuda_fma
    from rooflines.kernels.micro.cuda_vectors import THREADS

    kernel = cuda_fma.kernel_of(precision)
    blocks = _fill(device, kernel, cuda_fma.SIGNATURES[precision], THREADS)
    threads = blocks * THREADS
    lanes = 2 if precision == "fp16" else 1

    def make() -> tuple[Run, float]:
        if precision == "fp16":
            values = torch.ones(2 * threads, dtype=torch.float16, device=device).view(torch.int32)
            scale, shift = (np.full(2, number, np.float16).view(np.int32)[0] for number in (0.5, 1.0))
        else:
            torch_type, numpy_type = {"fp32": (torch.float32, np.float32), "fp64": (torch.float64, np.float64)}[precision]
            values = torch.ones(threads, dtype=torch_type, device=device)
            scale, shift = numpy_type(0.5), numpy_type(1.0)
        work = cuda_fma.flops(threads, _FMA_ITERATIONS, lanes)
        return _run(device, kernel, (blocks, THREADS), values, scale, shift, _FMA_ITERATIONS), work

    recurrences = f"{cuda_fma.RECURRENCES} independent recurrences{' of pairs' if lanes == 2 else ''} a thread"
    way = Way(f"{recurrences}, {_grid(device, blocks, THREADS)}", make)
    plan.figure(way, kind="compute", precision=precision, engine="vector", accumulate=precision)


def streams(plan: Plan, device: torch.device, l2_bytes: int | None, *, full: bool) -> None:
    """Plan read, write, copy and triad of device memory, by our kernels in several access patterns and by torch's operator.

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
            ways[access] = Way(f"{transfer.OPERATORS[access]}, {arrays}", partial(transfer_run, device, access, size))
        plan.figure(*ways.values(), kind="memory", level="HBM", access=access)


def _stream(device: torch.device, access: Access, pattern: Pattern, blocks: int, size: int) -> tuple[Run, float]:
    """The run of one access in one pattern over arrays of ``size`` bytes, and the bytes of one launch."""
    from rooflines.kernels.micro import cuda_stream

    vectors = size // 16
    first, second, target = transfer.operands(size, device)
    sums = torch.empty(cuda_stream.sums_of(blocks * pattern.threads), device=device)
    arguments: tuple[Any, ...] = {
        "read": (first, sums, vectors),
        "write": (target, np.float32(1), vectors),
        "copy": (first, target, vectors),
        "triad": (first, second, target, np.float32(3), vectors),
    }[access]
    kernel = cuda_stream.kernel_of(access, pattern.unroll)
    return _run(device, kernel, (blocks, pattern.threads), *arguments), cuda_stream.moved_bytes(access, size)


def l2(plan: Plan, device: torch.device, l2_bytes: int) -> None:
    """Plan the read bandwidth of the L2 cache by several grids and working sets of up to half of it."""
    from rooflines.kernels.micro import cuda_stream
    from rooflines.kernels.micro.cuda_vectors import THREADS

    count = torch.cuda.get_device_properties(device).multi_processor_count
    resident = _fill(device, cuda_stream.read_again, cuda_stream.READ_AGAIN, THREADS) // count

    def make(work: WorkingSet) -> tuple[Run, float]:
        source, sums = torch.ones(work.vectors * 4, device=device), torch.empty(work.blocks * THREADS, device=device)
        passes = max(1, _L2_BYTES // (work.vectors * 16))
        run = _run(device, cuda_stream.read_again, (work.blocks, THREADS), source, sums, work.vectors, passes)
        return run, work.vectors * 16 * passes

    ways = [
        Way(f"read kernel past L1, working set {binary_bytes(work.vectors * 16)}, {_grid(device, work.blocks, THREADS)}",
            partial(make, work))
        for work in cuda_stream.working_sets(l2_bytes, count, resident)
    ]  # fmt: skip
    plan.figure(*ways, kind="memory", above="HBM", level="L2", access="read", capacity_bytes=l2_bytes)


def shared(plan: Plan, device: torch.device) -> None:
    """Plan the read bandwidth of all shared memories together: a variant, because nothing stays there from one kernel to the next."""
    from rooflines.kernels.micro import cuda_shared

    threads = cuda_shared.THREADS
    blocks = _fill(device, cuda_shared.read, cuda_shared.SIGNATURE, threads)

    def make() -> tuple[Run, float]:
        source, sums = torch.ones(cuda_shared.VECTORS * 4, device=device), torch.empty(blocks * threads, device=device)
        run = _run(device, cuda_shared.read, (blocks, threads), source, sums, _SHARED_PASSES)
        return run, cuda_shared.read_bytes(blocks, _SHARED_PASSES)

    way = Way(f"read kernel, {_grid(device, blocks, threads)}", make)
    plan.figure(way, kind="memory", name="shared memory read", level="shared", access="read", variant="within a block")


def _fill(device: torch.device, kernel: Any, signature: tuple[Any, ...], threads: int) -> int:
    """How many blocks of ``threads`` threads of ``kernel`` the device holds at once; compiles it."""
    from rooflines.kernels.micro.cuda_vectors import resident_blocks

    facts = torch.cuda.get_device_properties(device)
    return facts.multi_processor_count * resident_blocks(kernel, signature, threads, facts.max_threads_per_multi_processor)


def _grid(device: torch.device, blocks: int, threads: int) -> str:
    """A launch in words."""
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return f"{threads} threads x {significant(blocks / count)} blocks a multiprocessor (Numba)"


def _array(tensor: torch.Tensor) -> Any:
    """``tensor`` as Numba sees it, the same memory."""
    from numba import cuda

    return cuda.as_cuda_array(tensor)


def _run(device: torch.device, kernel: Any, grid: tuple[int, int], *arguments: Any) -> Run:
    """A run of launches of ``kernel`` with ``grid`` (blocks, threads). It keeps the tensors alive: Numba's view of them does not."""
    from rooflines.kernels.micro.cuda_vectors import launcher

    call = launcher(kernel, *grid, *(_array(one) if isinstance(one, torch.Tensor) else one for one in arguments))
    return lambda calls: (clock.timed(device, call, calls), arguments)[0]
