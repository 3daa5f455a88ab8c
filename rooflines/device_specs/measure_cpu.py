"""The ceilings of a CPU: Numba kernels for the vector units and every memory level, torch for products and
dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rooflines.device_specs import detect
from rooflines.device_specs.measure_torch import cpu_reference, emulated, fits, gemm
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Precision
from rooflines.device_specs.rounds import RunAndWork, Way, ready
from rooflines.kernels.micro import clock, dispatch, fma, ladder, matmul, stream, vectors
from rooflines.kernels.micro.fma import Variant
from rooflines.kernels.micro.repeats import Run, Timing
from rooflines.kernels.micro.team import Team, nodes, places
from rooflines.kernels.threads import torch_threads
from rooflines.units import binary_bytes, counted

Access = Literal["read", "write", "update", "copy", "triad"]
_Vector = Literal["fp32", "fp64"]
_VECTORS: tuple[_Vector, ...] = ("fp32", "fp64")
_QUICK: tuple[Access, ...] = ("read", "update", "copy", "triad")
_ALL: tuple[Access, ...] = ("read", "write", "update", "copy", "triad")
# How many arrays an access works on, and how often it moves the length of one.
_ARRAYS: dict[Access, int] = {"read": 1, "write": 1, "update": 1, "copy": 2, "triad": 3}
_TRANSFERS: dict[Access, int] = {"read": 1, "write": 1, "update": 2, "copy": 2, "triad": 3}
_STORES = {False: "ordinary stores", True: "non-temporal stores"}
_ALONE = "1 thread"

_SMALLEST_DRAM = 256 << 20
_CACHES_PER_DRAM = 4  # STREAM's rule: at least four times the last cache
_SEGMENTS = 48  # of the array in DRAM: a multiple of the arrays that any access works on
_PAGE = (
    4096 // 8
    # elements: a part of memory starts on a page, so that its lines always fall into the same sets of an L1
    # cache
)
_INNER_PER_OUTER = 3  # a working set of this many inner caches is certainly in the next level
# The last: a 3x3 convolution of ResNet-50 as a product.
_SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (3136, 256, 2304))


def measure_cpu(plan: Plan, threads: int, *, full: bool = False) -> None:
    """Measure the figures of this CPU with ``threads`` threads: those that judge a run, or with ``full``
    every one there is.

    A run is judged by the FMA rate in fp32 and fp64, reads, updates, copies and triads on every memory level,
    the products of five precisions and torch's dispatch. FMA without SIMD, without fusing and on one thread
    are variants (further roofs) by which the laws check the others. ``full`` adds writes, the sizes of the
    caches checked against a curve, the sustained clock, and as variants memory on one thread, the slower kind
    of stores to memory, and dispatch by NumPy and by Numba.
    """
    groups = nodes(detect.usable_cpus())
    bound = places(threads, groups)
    with Team(threads, bound) as team, Team(1, places(1, groups)) as alone, torch_threads(threads):
        arrays = _Memory(team)
        near = [number for number, place in enumerate(bound) if place <= set(groups[0])]
        variants: tuple[Variant, ...] = ("", "scalar", "no FMA")
        for kernel in variants:
            for vector in _VECTORS:
                _fma(plan, team, vector, kernel)
        if threads > 1:
            for vector in _VECTORS:
                _fma(plan, alone, vector, "", _ALONE)
        _memory(
            plan,
            arrays.of(team, [[number] for number in range(threads)]),
            _ALL if full else _QUICK,
            further=full,
        )
        if full and threads > 1:
            _memory(plan, arrays.of(alone, [near or [0]]), _ALL, _ALONE)
        precisions: tuple[Precision, ...] = ("fp32", "fp64", "bf16", "fp16")
        for product in precisions:
            library = "oneDNN" if product in ("bf16", "fp16") else _blas()
            gemm(plan, torch.device("cpu"), product, _SHAPES, 256, f"{library}, {counted(threads, 'thread')}")
        _int8(plan, threads)
        _dispatch(plan, full)
        if full:
            _clock(plan, team)
        plan.measure()
        if full:
            _check_caches(plan, team)


def _fma(plan: Plan, team: Team, precision: _Vector, kernel: Variant, variant: str = "") -> None:
    dtype = {"fp32": np.float32, "fp64": np.float64}[precision]
    lanes = fma.lanes(dtype, kernel)
    # a page for each thread's values: stores of one thread never touch another thread's cache lines
    values = [np.ones(max(lanes, 4096), dtype=dtype)[:lanes] for _ in range(team.size)]
    scale = dtype(0.5)
    shift = dtype(1.0)

    def run(thousands: int) -> Timing:
        return team.run([partial(fma.KERNELS[kernel], own, scale, shift, 1000 * thousands) for own in values])

    width = "scalar" if kernel == "scalar" else f"{vectors.vector_bytes() * 8}-bit"
    what = "recurrences of a multiplication and an addition" if kernel == "no FMA" else "FMA recurrences"
    detail = f"{fma.ACCUMULATORS} independent {width} {what} (Numba), {counted(team.size, 'thread')}"
    plan.figure(
        Way(detail, ready(run, fma.flops(dtype, 1000, kernel) * team.size), private=True),
        kind="compute",
        precision=precision,
        engine="vector",
        accumulate=precision,
        variant=variant or kernel,
        threads=team.size,
    )


# --- memory -----------------------------------------------------------------------------------------------


class _Memory:
    """One array, cut into a slice per thread that this thread has written: written once, shared by all that
    measure memory.

    Memory lies on the NUMA node of the thread that first writes it. Caches are measured on a part of the
    slices, DRAM by segments: a pass over all of the array would take too long for one sample. Every sample
    goes on where the last one stopped, so for any access a segment is used again only after all others, when
    the caches have lost it.
    """

    def __init__(self, team: Team) -> None:
        last_cache_bytes = max(
            (cache.size_bytes * cache.instances for cache in detect.cpu().caches), default=0
        )
        wanted = max(_SMALLEST_DRAM, _CACHES_PER_DRAM * last_cache_bytes)
        size = min(wanted, detect.memory_available_bytes() // 4)
        self.detail = f"{binary_bytes(size)} in segments"
        if size < wanted:
            self.detail += f" (not enough memory: {binary_bytes(wanted)} needed)"
        elements = _whole(size // 8 // team.size, _SEGMENTS * stream.granule())
        self.slices = [stream.aligned_array(elements) for _ in range(team.size)]
        team.run([partial(own.fill, 1.0) for own in self.slices])
        self.next = 0  # the segment of every slice that was used least recently

    def of(self, team: Team, slices: Sequence[Sequence[int]]) -> _Place:
        """The slices that each thread of ``team`` works on."""
        return _Place(team, self, [[self.slices[number] for number in own] for own in slices])


class _Place(NamedTuple):
    """A team and the memory it works on: one or more slices a thread."""

    team: Team
    memory: _Memory
    slices: Sequence[Sequence[NDArray[Any]]]

    def segments(self, access: Access, past_caches: bool) -> RunAndWork:
        """A run whose every call works on the next segments, as many as the access has arrays; its bytes."""
        count = _ARRAYS[access]
        length = len(self.slices[0][0]) // _SEGMENTS
        kernel, scalars = _kernel(access, past_caches)
        turns = len(self.slices[0])  # slices that a thread takes by turns

        def walk(own: Sequence[NDArray[Any]], first: int, calls: int) -> None:
            for call in range(calls):
                array = own[call % turns]
                start = first + call // turns * count
                parts = [
                    array[length * number : length * (number + 1)]
                    for number in ((start + n) % _SEGMENTS for n in range(count))
                ]
                kernel(*_operands(access, parts), *scalars, 1)

        def run(calls: int) -> Timing:
            first = self.memory.next
            self.memory.next = (first + -(-calls // turns) * count) % _SEGMENTS
            return self.team.run([partial(walk, own, first, calls) for own in self.slices])

        return run, 8 * length * len(self.slices) * _TRANSFERS[access]

    def window(self, access: Access, size_bytes: int) -> RunAndWork:
        """A run whose every call is a pass over ``size_bytes`` of all threads together; its bytes.

        Each visit takes another place in memory: where a system gives out small pages, how they fall into the
        sets of a cache is luck.
        """
        count = _ARRAYS[access]
        step = stream.granule()
        whole = len(self.slices[0][0])
        length = min(_whole(size_bytes // 8 // count // self.team.size, step), _whole(whole // count, step))
        kernel, scalars = _kernel(access, False)

        def run(passes: int) -> Timing:
            first = min(whole // _SEGMENTS * self.memory.next, whole - count * length) // _PAGE * _PAGE
            each = [
                [own[0][first + length * n : first + length * (n + 1)] for n in range(count)]
                for own in self.slices
            ]
            return self.team.run(
                [partial(kernel, *_operands(access, parts), *scalars, passes) for parts in each]
            )

        return run, 8 * length * len(self.slices) * _TRANSFERS[access]


def _whole(elements: int, step: int) -> int:
    """The multiple of ``step`` at or below ``elements``, at least one."""
    return max(step, elements // step * step)


def _kernel(access: Access, past_caches: bool) -> tuple[Any, tuple[float, ...]]:
    """The kernel of an access, and the scalars it takes after its arrays."""
    return getattr(stream, f"{access}_past_caches" if past_caches else access), (
        3.0,
    ) if access == "triad" else ()


def _operands(access: Access, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [array.view("int64") if access == "read" else array for array in arrays]


def _memory(
    plan: Plan, place: _Place, accesses: tuple[Access, ...], variant: str = "", *, further: bool = False
) -> None:
    """Bandwidth of every level. With ``further`` the slower kind of stores to DRAM is kept as a variant.

    An update has no use for non-temporal stores: what it writes is in the cache.
    """
    threads = place.team.size
    shared: dict[str, Any] = {"kind": "memory", "variant": variant, "threads": threads}
    for access in accesses:
        kinds = (False, True) if access in ("write", "copy", "triad") else (False,)
        ways = []
        for past_caches in kinds:
            stores = _STORES[past_caches] if len(kinds) > 1 else ""
            detail = (
                f"{access} kernel (Numba), {place.memory.detail}{stores and f', {stores}'}, "
                f"{counted(threads, 'thread')}"
            )
            ways.append(
                Way(detail, partial(place.segments, access, past_caches), further=stores if further else "")
            )
        plan.figure(*ways, level="DRAM", access=access, **shared)
    for number, cache in enumerate(detect.cpu().caches):
        for access in accesses:
            ways = []
            for size in working_sets(number, threads):
                detail = (
                    f"{access} kernel (Numba), working set {binary_bytes(size)}, {counted(threads, 'thread')}"
                )
                ways.append(
                    Way(detail, partial(place.window, access, size), private=cache.instances >= threads)
                )
            plan.figure(
                *ways,
                level=cache.level,
                access=access,
                capacity_bytes=cache.capacity_bytes(threads),
                **shared,
            )


def working_sets(number: int, threads: int) -> tuple[int, ...]:
    """The working sets to measure cache ``number`` (from the core outwards) by: half of it, and for a last
    one a smaller set, too.

    The L3 that a virtual machine reports is often shared with strangers, and less than half of it is left.
    Three times the level before lies in the last one for certain.
    """
    caches = detect.cpu().caches
    half = caches[number].capacity_bytes(threads) // 2
    certain = (
        _INNER_PER_OUTER * caches[number - 1].capacity_bytes(threads)
        if 0 < number == len(caches) - 1
        else half
    )
    return (half, certain) if certain < half else (half,)


def _check_caches(plan: Plan, team: Team) -> None:
    """Compare the sizes of the caches with a measured curve; figures of a level that ends elsewhere are
    marked in their detail."""
    caches = [(cache.level, cache.capacity_bytes(team.size)) for cache in detect.cpu().caches]
    if not caches:
        return
    for reach in ladder.reaches(ladder.curve(team, 2 * caches[-1][1]), caches):
        if reach.contradicts and reach.reach_bytes is not None:
            ends = binary_bytes(reach.reach_bytes)
            stated = binary_bytes(reach.stated_bytes)
            plan.notes[reach.level] = f", but reads slow down beyond {ends}, not {stated} as stated"
            plan.progress(f"{reach.level}{plan.notes[reach.level]}")


# --- torch, NumPy and Numba -------------------------------------------------------------------------------


def _int8(plan: Plan, threads: int) -> None:
    """int8 products by the operators and shapes there are."""
    device = torch.device("cpu")
    small = (256, 256, 256)
    with torch_threads(1):
        reference = cpu_reference(small)
        usable = [
            name
            for name, product in matmul.int8_products(small).items()
            if not emulated(small, product, reference)
        ]
    if not usable:
        plan.progress("GEMM int8: not available or emulated")
        return

    def make(name: str, shape: matmul.Shape) -> RunAndWork:
        return partial(clock.timed_on_device, device, matmul.int8_products(shape)[name]), matmul.flops(shape)

    free = detect.memory_available_bytes()
    plan.figure(
        *(
            Way(
                f"{name} [{m}, {k}] @ [{k}, {n}] (oneDNN, {counted(threads, 'thread')})",
                partial(make, name, (m, n, k)),
                renewed=True,
            )
            for m, n, k in _SHAPES
            if fits((m, n, k), free)
            for name in usable
        ),
        kind="compute",
        precision="int8",
        engine="matrix",
        accumulate="int32",
        threads=threads,
    )


def _dispatch(plan: Plan, full: bool) -> None:
    kinds: list[tuple[str, str, Callable[[], Run]]] = [("", "aten::zero_", dispatch.operator)]
    if full:
        kinds += [
            ("NumPy", "numpy.negative", dispatch.ufunc),
            ("Numba", "a compiled function", dispatch.compiled_function),
        ]
    for variant, what, make in kinds:
        way = Way(f"{what} on one element less the surrounding Python call, CPU time", ready(make(), 1))
        plan.figure(way, kind="latency", name="operator dispatch", variant=variant)


def _clock(plan: Plan, team: Team) -> None:
    """The clock that the cores sustain together on chains of integer operations, for ceilings that are
    derived from it.

    Vector units that draw more power may run slower.
    """
    per_call = 10_000

    def run(calls: int) -> Timing:
        return team.run([partial(fma.chain, 1, 3, per_call * calls)] * team.size)

    plan.figure(Way("", ready(run, fma.LINKS * per_call), private=True), kind="clock", name="clock")


def _blas() -> str:
    """The library behind torch's float32 and float64 products on this CPU."""
    if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return "MKL"
    return "Accelerate" if detect.cpu().machine == "arm64" else "BLAS"
