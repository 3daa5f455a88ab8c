"""The ceilings of a CPU: Numba kernels for the vector units and every memory level, torch for products and dispatch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rooflines.device_specs import detect
from rooflines.device_specs.measure_torch import gemm, torch_threads
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Ceiling, Precision
from rooflines.units import binary_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rooflines.kernels.micro.repeats import Timing
    from rooflines.kernels.micro.team import Team

Access = Literal["read", "update", "copy", "triad"]
_ACCESSES: tuple[Access, ...] = ("read", "update", "copy", "triad")
# How many arrays an access works on, and how often it moves the length of one.
_ARRAYS: dict[Access, int] = {"read": 1, "update": 1, "copy": 2, "triad": 3}
_TRANSFERS: dict[Access, int] = {"read": 1, "update": 2, "copy": 2, "triad": 3}

_SMALLEST_DRAM = 256 << 20
_CACHES_PER_DRAM = 4  # STREAM's rule: each array at least four times the last cache


def measure_cpu(meter: Meter, threads: int) -> None:
    """Every figure of this CPU with ``threads`` threads."""
    import torch

    from rooflines.kernels.micro.team import Team

    device = torch.device("cpu")
    with Team(threads) as team:
        for precision in ("fp32", "fp64"):
            _fma(meter, team, precision)
        _cpu_memory(meter, team)
    with torch_threads(threads):
        sides = ((1024, 1024, 1024), (2048, 2048, 2048), (3136, 256, 2304))  # the last: a 3x3 convolution of ResNet-50 as a product
        precisions: tuple[Precision, ...] = ("fp32", "fp64", "bf16", "fp16")
        for precision in precisions:
            library = "oneDNN" if precision in ("bf16", "fp16") else _blas()
            gemm(meter, device, precision, sides, 256, f"{library}, {_threads(threads)}")
    _operator_dispatch(meter)


def _fma(meter: Meter, team: Team, precision: Literal["fp32", "fp64"]) -> None:
    import numpy as np

    from rooflines.kernels.micro import fma, vectors

    dtype = {"fp32": np.float32, "fp64": np.float64}[precision]
    # a page for each thread's values: stores of one thread never touch another thread's cache lines
    values = [np.ones(max(fma.lanes(dtype), 4096), dtype=dtype)[: fma.lanes(dtype)] for _ in range(team.size)]
    scale, shift = dtype(0.5), dtype(1.0)

    def run(thousands: int) -> Timing:
        return team.run([partial(fma.recur, own, scale, shift, 1000 * thousands) for own in values])

    run(1)  # compiles
    repeats = meter.rate(fma.flops(dtype, 1000) * team.size, run, private=True)
    recurrences = f"{fma.ACCUMULATORS} independent {vectors.vector_bytes() * 8}-bit FMA recurrences (Numba)"
    detail = f"{recurrences}, {_threads(team.size)}, per processor time"
    meter.add(repeats, detail, kind="compute", name=f"FMA {precision}", unit="FLOP/s", precision=precision, engine="vector",
              accumulate=precision)  # fmt: skip


def _cpu_memory(meter: Meter, team: Team) -> None:
    """Bandwidth of every level, outermost first, so that a cache slower than what lies behind it is noticed and measured again."""
    caches = detect.cpu().caches
    outside: dict[Access, Ceiling] = {}
    last_cache_bytes = max((cache.size_bytes * cache.instances for cache in caches), default=0)
    available = detect.memory_available_bytes()
    wanted = max(_SMALLEST_DRAM, _CACHES_PER_DRAM * last_cache_bytes)
    array_bytes = min(wanted, available // 4 // 3)  # three arrays in at most a quarter of what is free
    detail = f"arrays of {binary_bytes(array_bytes)}"
    if array_bytes < wanted:
        detail += f" (memory is short: {binary_bytes(wanted)} would be needed)"
    arrays = _arrays(team, array_bytes)
    for access in _ACCESSES:
        outside[access] = _bandwidth(meter, team, arrays, access, "DRAM", None, detail, None, False)
    del arrays
    for cache in reversed(caches):
        capacity = cache.capacity_bytes(team.size)
        for access in _ACCESSES:
            count = _ARRAYS[access]
            arrays = _arrays(team, capacity // 2 // count, count)
            detail = f"working set {binary_bytes(capacity // 2)}"
            private = cache.instances >= team.size
            outside[access] = _bandwidth(meter, team, arrays, access, cache.level, capacity, detail, outside[access], private)


def _arrays(team: Team, size_bytes: int, count: int = 3) -> list[list[NDArray[Any]]]:
    """``count`` arrays of about ``size_bytes``, each cut into one slice per thread that only this thread has written.

    Memory lies on the NUMA node of the thread that first writes it. Each thread's slices are cut to whole vectors for the kernels.
    """
    from rooflines.kernels.micro import stream

    step = stream.granule()
    elements = max(step, size_bytes // 8 // team.size // step * step)
    slices = [[stream.aligned(elements) for _ in range(team.size)] for _ in range(count)]
    for array in slices:
        team.run([partial(own.fill, 1.0) for own in array])
    return slices


def _bandwidth(
    meter: Meter,
    team: Team,
    arrays: list[list[NDArray[Any]]],
    access: Access,
    level: str,
    capacity: int | None,
    detail: str,
    outside: Ceiling | None,
    private: bool,
) -> Ceiling:
    """Measure ``access`` on each thread's slices of ``arrays``.

    ``outside`` is the same access of the next level outwards; ``private`` says that no two threads share an instance of this level.
    """
    import numpy as np

    from rooflines.kernels.micro import stream

    count = _ARRAYS[access]
    slices = list(zip(*arrays[:count], strict=True))  # one tuple of arrays per thread
    work = sum(array.nbytes for array in arrays[0]) * _TRANSFERS[access]

    def job(own: tuple[NDArray[Any], ...], passes: int) -> Callable[[], object]:
        if access == "read":
            return partial(stream.read, own[0].view(np.int64), passes)
        if access == "update":
            return partial(stream.update, own[0], passes)
        if access == "copy":
            return partial(stream.copy, own[0], own[1], passes)
        return partial(stream.triad, own[0], own[1], own[2], 3.0, passes)

    def run(passes: int) -> Timing:
        return team.run([job(own, passes) for own in slices])

    if private:
        detail += ", per processor time"
    run(1)  # compiles, and brings the slices into the cache
    repeats = meter.rate(work, run, private=private)
    if outside is not None and repeats.median < outside.value:
        again = meter.rate(work, run, private=private)
        repeats = max(repeats, again, key=lambda one: (not one.disturbed, one.median))
        if repeats.median < outside.value:
            detail += f", slower than {outside.level}"
    return meter.add(repeats, f"{access} kernel (Numba), {detail}, {_threads(team.size)}", kind="memory", name=f"{level} {access}",
                     unit="B/s", level=level, access=access, capacity_bytes=capacity)  # fmt: skip


def _operator_dispatch(meter: Meter) -> None:
    from rooflines.kernels.micro import dispatch

    calls = max(100, int(meter.sample_s / 0.4e-6))
    repeats = meter.settle(partial(dispatch.operator_seconds, calls))
    if repeats.median > 0:
        meter.add(repeats, f"aten::zero_ on one element less the Python call around it, {calls} calls, processor time", kind="latency",
                  name="operator dispatch", unit="s")  # fmt: skip


def _blas() -> str:
    """The library behind torch's float32 and float64 products on this CPU."""
    import torch

    if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return "MKL"
    return "Accelerate" if detect.cpu().machine == "arm64" else "BLAS"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
