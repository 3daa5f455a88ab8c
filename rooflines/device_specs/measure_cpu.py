"""The ceilings of a CPU: Numba kernels for the vector units and every memory level, torch for products and dispatch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.measure_torch import fits, gemm, quickest, torch_threads
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Ceiling, Precision
from rooflines.units import binary_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rooflines.kernels.micro.fma import Variant
    from rooflines.kernels.micro.repeats import Repeats, Timing
    from rooflines.kernels.micro.team import Team

Access = Literal["read", "write", "update", "copy", "triad"]
_Vector = Literal["fp32", "fp64"]
_VECTORS: tuple[_Vector, ...] = ("fp32", "fp64")
_QUICK: tuple[Access, ...] = ("read", "update", "copy", "triad")
_ALL: tuple[Access, ...] = ("read", "write", "update", "copy", "triad")
# How many arrays an access works on, and how often it moves the length of one.
_ARRAYS: dict[Access, int] = {"read": 1, "write": 1, "update": 1, "copy": 2, "triad": 3}
_TRANSFERS: dict[Access, int] = {"read": 1, "write": 1, "update": 2, "copy": 2, "triad": 3}
_STORES = {False: "ordinary stores", True: "non-temporal stores"}

_SMALLEST_DRAM = 256 << 20
_CACHES_PER_DRAM = 4  # STREAM's rule: each array at least four times the last cache
_INNER_PER_OUTER = 3  # a working set of so many inner caches lies in the next level for certain
_NOTICEABLE = 1.15  # how much faster a smaller working set must be to show that a shared cache is not all ours
_FULL_FIGURES = 64  # some of which some CPUs lack
# The last: a 3x3 convolution of ResNet-50 as a product.
_SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (3136, 256, 2304))


def measure_cpu(meter: Meter, threads: int, *, full: bool = False) -> None:
    """The figures of this CPU with ``threads`` threads: those that judge a run, or with ``full`` every one there is.

    A run is judged by the FMA rate in fp32 and fp64, reads, updates, copies and triads on every memory level, the products of five
    precisions and torch's dispatch. ``full`` adds writes, the sizes of the caches checked against a curve, and as variants (further
    roofs): FMA without SIMD and without fusing, FMA and memory on one thread, the slower kind of stores to memory, dispatch by NumPy
    and by Numba.
    """
    import torch

    from rooflines.kernels.micro import numa
    from rooflines.kernels.micro.team import Team

    if full:  # a fair share for each, whatever the budget
        meter.share_s *= 24 / _FULL_FIGURES
    nodes = numa.nodes(detect.usable_cpus())
    variants: tuple[Variant, ...] = ("", "scalar", "no FMA") if full else ("",)
    with Team(threads, numa.places(threads, nodes)) as team:
        for kernel in variants:
            for precision in _VECTORS:
                _fma(meter, team, precision, kernel)
        _memory(meter, team, _ALL if full else _QUICK, full=full)
        if full:
            _check_caches(meter, team)
    if full and threads > 1:
        with Team(1, numa.places(1, nodes)) as alone:
            for precision in _VECTORS:
                _fma(meter, alone, precision, "", "1 thread")
            _memory(meter, alone, _ALL, "1 thread")
    with torch_threads(threads):
        precisions: tuple[Precision, ...] = ("fp32", "fp64", "bf16", "fp16")
        for product in precisions:
            library = "oneDNN" if product in ("bf16", "fp16") else _blas()
            gemm(meter, torch.device("cpu"), product, _SHAPES, 256, f"{library}, {_threads(threads)}")
        _int8(meter, threads)
    _dispatch(meter, full)


def _fma(meter: Meter, team: Team, precision: _Vector, kernel: Variant, variant: str = "") -> None:
    import numpy as np

    from rooflines.kernels.micro import fma, vectors

    dtype = {"fp32": np.float32, "fp64": np.float64}[precision]
    lanes = fma.lanes(dtype, kernel)
    # a page for each thread's values: stores of one thread never touch another thread's cache lines
    values = [np.ones(max(lanes, 4096), dtype=dtype)[:lanes] for _ in range(team.size)]
    scale, shift = dtype(0.5), dtype(1.0)

    def run(thousands: int) -> Timing:
        return team.run([partial(fma.KERNELS[kernel], own, scale, shift, 1000 * thousands) for own in values])

    run(1)  # compiles
    repeats = meter.rate(fma.flops(dtype, 1000, kernel) * team.size, run, private=True)
    width = "scalar" if kernel == "scalar" else f"{vectors.vector_bytes() * 8}-bit"
    what = "recurrences of a multiplication and an addition" if kernel == "no FMA" else "FMA recurrences"
    detail = f"{fma.ACCUMULATORS} independent {width} {what} (Numba), {_threads(team.size)}, per processor time"
    meter.add(repeats, detail, kind="compute", name=f"FMA {precision}", unit="FLOP/s", precision=precision, engine="vector",
              accumulate=precision, variant=variant or kernel, threads=team.size)  # fmt: skip


# --- memory ------------------------------------------------------------------------------------------------------------------------


class _Level(NamedTuple):
    """One memory level as a team measures it; ``capacity_bytes`` is None for DRAM, ``private``: no two threads share an instance."""

    name: str
    capacity_bytes: int | None
    working_set_bytes: int
    private: bool
    detail: str


def _memory(meter: Meter, team: Team, accesses: tuple[Access, ...], variant: str = "", *, full: bool = False) -> None:
    """Bandwidth of every level, outermost first, so that a cache slower than what lies behind it is noticed and measured again."""
    outside: dict[Access, Ceiling] = {}
    array_bytes, detail = _dram_bytes()
    arrays = _arrays(team, array_bytes)
    for access in accesses:
        outside[access] = _dram(meter, team, arrays, access, detail, variant, full)
    del arrays
    caches = detect.cpu().caches
    for number in reversed(range(len(caches))):
        level = _level(meter, team, number)
        for access in accesses:
            arrays = _arrays(team, level.working_set_bytes // _ARRAYS[access], _ARRAYS[access])
            outside[access] = _cache(meter, team, arrays, access, level, outside[access], variant)


def _dram_bytes() -> tuple[int, str]:
    """The size of each of the three arrays, and how to describe it."""
    last_cache_bytes = max((cache.size_bytes * cache.instances for cache in detect.cpu().caches), default=0)
    wanted = max(_SMALLEST_DRAM, _CACHES_PER_DRAM * last_cache_bytes)
    array_bytes = min(wanted, detect.memory_available_bytes() // 4 // 3)  # three arrays in at most a quarter of what is free
    detail = f"arrays of {binary_bytes(array_bytes)}"
    return array_bytes, detail if array_bytes == wanted else f"{detail} (memory is short: {binary_bytes(wanted)} would be needed)"


def _level(meter: Meter, team: Team, number: int) -> _Level:
    """Cache ``number`` from the core outwards, and the working set to measure: half of it, or less of a last one that is not all ours.

    The L3 that a virtual machine reports is often shared with strangers. Where reads from half of it are noticeably slower than from
    three times the level before, that smaller working set is measured.
    """
    from rooflines.kernels.micro.repeats import calls_for

    caches = detect.cpu().caches
    cache = caches[number]
    capacity = cache.capacity_bytes(team.size)
    private = cache.instances >= team.size
    half = capacity // 2
    detail = f"working set {binary_bytes(half)}"
    last = number > 0 and number == len(caches) - 1
    certain = _INNER_PER_OUTER * caches[number - 1].capacity_bytes(team.size) if last else half
    if certain >= half:
        return _Level(cache.level, capacity, half, private, detail)
    rates: dict[int, list[float]] = {certain: [], half: []}
    runs = {size: _kernel(team, _arrays(team, size, 1), "read") for size in rates}
    calls = {size: calls_for(meter.sample_s, run) for size, (run, _) in runs.items()}
    for _ in range(3):
        for size, (run, work) in runs.items():
            seconds, busy = run(calls[size])
            rates[size].append(work * calls[size] / (seconds * busy))
    near, far = (sorted(rates[size])[1] for size in (certain, half))
    if near < far * _NOTICEABLE:
        return _Level(cache.level, capacity, half, private, detail)
    detail = f"working set {binary_bytes(certain)} because from {binary_bytes(half)} reads are slower"
    return _Level(cache.level, capacity, certain, private, detail)


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


def _kernel(
    team: Team, arrays: list[list[NDArray[Any]]], access: Access, past_caches: bool = False
) -> tuple[Callable[[int], Timing], int]:
    """A call that makes so many passes of ``access`` on each thread's slices of ``arrays``, run once; and the bytes of a pass."""
    import numpy as np

    from rooflines.kernels.micro import stream

    kernel = getattr(stream, f"{access}_past_caches" if past_caches else access)
    scalars = (3.0,) if access == "triad" else ()
    slices = [
        [array.view(np.int64) if access == "read" else array for array in own] for own in zip(*arrays[: _ARRAYS[access]], strict=True)
    ]

    def run(passes: int) -> Timing:
        return team.run([partial(kernel, *own, *scalars, passes) for own in slices])

    run(1)
    return run, sum(array.nbytes for array in arrays[0]) * _TRANSFERS[access]


def _dram(meter: Meter, team: Team, arrays: list[list[NDArray[Any]]], access: Access, detail: str, variant: str, full: bool) -> Ceiling:
    """The bandwidth of DRAM by ``access``, with ordinary stores or past the caches: the faster, and if ``full`` the other as a variant.

    An update has no use for non-temporal stores: what it writes is in the cache.
    """
    ways = (False, True) if access in ("write", "copy", "triad") else (False,)
    found: dict[bool, Repeats] = {}
    for past_caches in ways:
        run, work = _kernel(team, arrays, access, past_caches)
        found[past_caches] = meter.rate(work, run)
    best = max(ways, key=lambda way: (not found[way].disturbed, found[way].median))

    def keep(past_caches: bool, variant: str) -> Ceiling:
        stores = f", {_STORES[past_caches]}" if len(ways) > 1 else ""
        how = f"{access} kernel (Numba), {detail}{stores}, {_threads(team.size)}"
        return meter.add(found[past_caches], how, kind="memory", name=f"DRAM {access}", unit="B/s", level="DRAM", access=access,
                         variant=variant, threads=team.size)  # fmt: skip

    kept = keep(best, variant)
    if full and len(ways) > 1:
        keep(not best, _STORES[not best])
    return kept


def _cache(
    meter: Meter, team: Team, arrays: list[list[NDArray[Any]]], access: Access, level: _Level, outside: Ceiling, variant: str
) -> Ceiling:
    """The bandwidth of a cache by ``access``; ``outside`` is the same access of the next level outwards."""
    run, work = _kernel(team, arrays, access)
    repeats = meter.rate(work, run, private=level.private)
    detail = f"{level.detail}, per processor time" if level.private else level.detail
    if repeats.median < outside.value:
        again = meter.rate(work, run, private=level.private)
        repeats = max(repeats, again, key=lambda one: (not one.disturbed, one.median))
        if repeats.median < outside.value:
            detail += f", slower than {outside.level}"
    return meter.add(repeats, f"{access} kernel (Numba), {detail}, {_threads(team.size)}", kind="memory", name=f"{level.name} {access}",
                     unit="B/s", level=level.name, access=access, capacity_bytes=level.capacity_bytes, variant=variant,
                     threads=team.size)  # fmt: skip


def _check_caches(meter: Meter, team: Team) -> None:
    """Hold the sizes of the caches against a measured curve; figures of a level that ends elsewhere say so in their detail."""
    from rooflines.kernels.micro import ladder

    caches = [(cache.level, cache.capacity_bytes(team.size)) for cache in detect.cpu().caches]
    if not caches:
        return
    points = ladder.curve(team, 2 * caches[-1][1])
    notes = {
        reach.level: f", but reads slow down beyond {binary_bytes(reach.reach_bytes)}, not {binary_bytes(reach.stated_bytes)} as stated"
        for reach in ladder.reaches(points, caches)
        if reach.contradicts and reach.reach_bytes is not None
    }
    for number, one in enumerate(meter.found):
        if one.kind == "memory" and one.level in notes:
            source = msgspec.structs.replace(one.source, detail=one.source.detail + notes[one.level])
            meter.found[number] = msgspec.structs.replace(one, source=source)
    for level, note in notes.items():
        meter.progress(f"{level}{note}")


# --- torch, NumPy and Numba --------------------------------------------------------------------------------------------------------


def _int8(meter: Meter, threads: int) -> None:
    """The fastest int8 product on the operators and shapes there are."""
    import torch

    from rooflines.kernels.micro import clock, int8, matmul

    device = torch.device("cpu")
    rates: dict[tuple[str, matmul.Shape], float] = {}
    free = detect.memory_available_bytes()
    slowest = max((one.value for one in meter.found if one.kind == "compute" and one.precision == "fp32"), default=0.0) / 20
    with torch_threads(1):
        small = (256, 256, 256)
        usable = {
            name
            for name, product in int8.products(small).items()
            if matmul.flops(small) / quickest(meter, device, product) * threads > slowest  # else multiplied one by one
        }
    for shape in _SHAPES if usable else ():
        if fits(shape, free):
            for name, product in int8.products(shape).items():
                if name in usable:
                    rates[name, shape] = matmul.flops(shape) / quickest(meter, device, product)
    if not rates:
        meter.progress("GEMM int8: not available, or emulated")
        return
    name, shape = max(rates, key=lambda key: rates[key])
    m, n, k = shape
    meter.figure(
        matmul.flops(shape), partial(clock.timed, device, int8.products(shape)[name]),
        f"{name} [{m}, {k}] @ [{k}, {n}] (oneDNN, {_threads(threads)}), the best of {len(rates)} operators and shapes", kind="compute",
        name="GEMM int8", unit="OP/s", precision="int8", engine="matrix", accumulate="int32", threads=threads,
    )  # fmt: skip


def _dispatch(meter: Meter, full: bool) -> None:
    from rooflines.kernels.micro import dispatch

    kinds = [("", "aten::zero_", dispatch.operator_seconds)]
    if full:
        kinds += [("NumPy", "numpy.negative", dispatch.ufunc_seconds), ("Numba", "a compiled function", dispatch.compiled_seconds)]
    calls = max(100, int(meter.sample_s / 0.4e-6))
    for variant, what, sample in kinds:
        repeats = meter.settle(partial(sample, calls))
        if repeats.median > 0:
            meter.add(repeats, f"{what} on one element less the Python call around it, {calls} calls, processor time", kind="latency",
                      name="operator dispatch", unit="s", variant=variant)  # fmt: skip


def _blas() -> str:
    """The library behind torch's float32 and float64 products on this CPU."""
    import torch

    if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return "MKL"
    return "Accelerate" if detect.cpu().machine == "arm64" else "BLAS"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
