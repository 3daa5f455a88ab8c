"""The roofline: the least time of a call, and a row against its roofs.

A call that does ``f`` FLOPs and must move ``b`` bytes cannot take less than ``max(f / compute, b / memory,
latency)`` (Williams, Waterman, Patterson: "Roofline", CACM 52(4), 2009, with the latency of an operator as a
third roof).

A copy between host and device is judged by the link, everything else by arithmetic, memory and the device's
shortest kernel. A row that reaches less than a third of the roof that sets its bound is ``inefficient``:
neither its arithmetic nor its bytes explain its time. The same holds for the shortest kernel: a call
that takes more than three times as long is not bound by its latency.

Kineto names copies ``Memcpy HtoD (Pageable -> Device)``: the direction, and whether the host's memory is
pinned. The device reads pinned memory by itself. Pageable memory is copied to a pinned buffer by the host
first, which is slower than the link; the link is the roof of both, because the same copy from pinned memory
would have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.profiler.read.records import KERNEL, Trace
from rooflines.roofline.analysis import Bound
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.own.rows import TimeRow

Way = Literal["H2D", "D2H"]

FROM_HOST = ("HtoD", "Host -> Device", "HostToDevice", "H2D", "M2D")
TO_HOST = ("DtoH", "Device -> Host", "DeviceToHost", "D2H", "D2M")
# A row is a transfer where copies over the link take more than this share of its device time.
_MOSTLY = 0.5
# An efficiency above this is flagged: past the noise of a time and of a ceiling.
IMPLAUSIBLE = 1.05
# Below this share of the roof that sets its bound a row is inefficient.
INEFFICIENT = 1 / 3
# The least kernel of a trace is a floor where it has this many, and none that takes longer than this, because
# such a one works.
FEWEST_KERNELS = 10
LONGEST_FLOOR_NS = 5_000
SHORTEST_KERNEL = "shortest kernel"
# Why an efficiency above 1 should not be trusted, by what bounds the row.
_FLAGS = {
    "memory": "faster than the {} ceiling allows: its data was in a nearer cache, or the ceiling is too low",
    "compute": (
        "faster than the compute ceiling allows: it ran in a lower precision than its operands have, "
        "or the ceiling is too low"
    ),
    "convolution": (
        "faster than the compute ceiling allows: an algorithm with fewer FLOPs (Winograd, FFT), or "
        "the ceiling is too low"
    ),
    "transfer": "faster than the link allows: the ceiling is too low",
}
_FASTER_THAN_LATENCY = "faster than the shortest measured operator: the latency ceiling is too high"


@dataclass(frozen=True, slots=True)
class Placement:
    """One call compared with the roofs: its lower bound in seconds, the bounding roof, and all roofs that
    apply.

    ``attainable_flop_per_s`` is the roof above its arithmetic intensity; None without FLOPs or without the
    roofs it needs.
    """

    lower_bound_s: float
    bound: Bound
    attainable_flop_per_s: float | None = None
    memory_level: str | None = None
    engine: str | None = None


def place_on_roofline(
    work: Work, ceilings: Ceilings, *, footprint_bytes: int | None = None, precision: str | None = None
) -> Placement | None:
    """The placement of one call of ``work``; None when no ceiling applies to it.

    ``footprint_bytes`` is the memory that the call's bytes lie in, where that is less than its traffic (an
    operator in place reads and writes the same bytes). ``precision`` replaces the precision of the matrix
    part (``tf32`` where the library runs fp32 products in it).
    """
    compute_s, engine = _compute_seconds(work, ceilings, precision or work.precision)
    memory_s, level = memory_seconds(work.bytes, footprint_bytes or work.bytes, ceilings)
    latency = ceilings.latency()
    latency_s = latency.value if latency else 0.0
    lower = max(compute_s, memory_s, latency_s)
    if lower <= 0:
        return None
    bound: Bound = "latency" if latency_s == lower else "compute" if compute_s == lower else "memory"
    attainable = None
    if work.flops and (compute_s or memory_s):
        attainable = work.flops / max(compute_s, memory_s)
    return Placement(lower, bound, attainable, level, engine)


def footprint(name: str, work: Work) -> int:
    """The memory that the bytes of one call of the operator ``name`` lie in; in place (``add_``,
    ``_foreach_mul_``) it writes what it has read."""
    in_place = name.partition(".")[0].endswith("_") and not name.endswith("__")
    return max(work.bytes_read, work.bytes_written) if in_place else work.bytes


def memory_seconds(size_bytes: int, footprint_bytes: int, ceilings: Ceilings) -> tuple[float, str | None]:
    """The least time to move ``size_bytes`` that lie in ``footprint_bytes`` of memory, and the outermost
    level that takes part.

    What was just written may still be in the caches: as much as fits. So the nearest level holds its
    capacity's worth of the footprint, the next one its own of what is left, and every byte moves at the rate
    of the level that holds it. A footprint that fits into one level is judged by that level or nearer ones; a
    large one almost entirely by DRAM. It is a bound, not a prediction: judged by DRAM alone, an addition over
    40 MB in a 32 MB cache would reach 200 %.
    """
    left, seconds, outermost = footprint_bytes, 0.0, None
    for level in ceilings.memory_levels():
        if left <= 0:
            break
        held = left if level.capacity_bytes is None else min(left, level.capacity_bytes)
        seconds += held / footprint_bytes * size_bytes / level.value
        left -= held
        outermost = level.level
    return (seconds, outermost) if left <= 0 else (0.0, None)


def _compute_seconds(work: Work, ceilings: Ceilings, precision: str | None) -> tuple[float, str | None]:
    """The least time for the arithmetic, and the engine that sets it.

    Matrix and vector units work side by side where a device has both, so the longer part counts; where the
    same units do both (the highest matrix roof is the vector peak), the parts add up.
    """
    if precision is None or not work.flops:
        return 0.0, None
    matrix = ceilings.compute(precision, "matrix") if work.matrix_flops else None
    vector = ceilings.compute(work.precision or precision, "vector") if work.other_flops else None
    matrix_s = work.matrix_flops / matrix.value if matrix else 0.0
    vector_s = work.other_flops / vector.value if vector else 0.0
    if matrix is not None and vector is not None and matrix.engine == "vector":
        return matrix_s + vector_s, "vector"
    if matrix_s >= vector_s:
        return matrix_s, matrix.engine if matrix else None
    return vector_s, "vector"


def way_of(name: str) -> Way | None:
    """The direction of the copy with this name, None for any other work."""
    if "memcpy" not in name.lower():
        return None
    if any(word in name for word in FROM_HOST):
        return "H2D"
    return "D2H" if any(word in name for word in TO_HOST) else None


@dataclass(frozen=True, slots=True)
class Judgment:
    """A row compared with the roofs, in seconds over all of its calls: ``lower_bound_s`` and ``headroom_s``
    are None where nothing bounds it.

    ``headroom_s`` is what could be saved: time above the bound, of a transfer no more than what no
    computation hides.
    """

    bound: Bound
    lower_bound_s: float | None = None
    headroom_s: float | None = None
    efficiency: float | None = None
    nearest_roof: Literal["compute", "memory"] | None = None
    attainable_flop_per_s: float | None = None
    memory_level: str | None = None
    engine: str | None = None
    flag: str | None = None


def judge(row: TimeRow, ceilings: Ceilings | None, precision: str | None) -> Judgment:
    """Compare ``row`` with ``ceilings``; ``precision`` is that of its matrix part."""
    judged = _judged(row, ceilings, precision)
    if row.doubt is not None:
        return Judgment(judged.bound if judged.lower_bound_s is None else "unknown", flag=row.doubt)
    if judged.efficiency is None:
        return replace(
            judged,
            flag="no device time was recorded for its work"
            if row.time_ns <= 0 and row.exposed_ns is not None
            else None,
        )
    if judged.efficiency <= IMPLAUSIBLE:
        return judged
    why = row.count.category if judged.bound == "compute" and row.count.category in _FLAGS else judged.bound
    return replace(judged, flag=_FLAGS.get(why, _FASTER_THAN_LATENCY).format(judged.memory_level))


def _judged(row: TimeRow, ceilings: Ceilings | None, precision: str | None) -> Judgment:
    time_s = row.time_ns / 1e9
    work = row.count.work
    # What a collective moves goes over the link to other devices, which no ceiling of this one bounds.
    communicates = row.count.category == "communication"
    works = work is not None and bool(work.flops or work.bytes)
    copies = [(way, kernel) for kernel in row.kernels if (way := way_of(kernel.name)) is not None]
    copying_ns = sum(kernel.time_ns for _, kernel in copies)
    if copies and not communicates and copying_ns > _MOSTLY * sum(kernel.time_ns for kernel in row.kernels):
        number = sum(kernel.calls for _, kernel in copies)
        return _transferred(row, {way for way, _ in copies}, number, works, ceilings)
    if communicates:
        return Judgment("communication")
    if not works and ceilings is not None:
        # A view or a dispatcher does no work at all: its time is what calling it costs.
        latency = ceilings.latency()
        explained_s = latency.value if latency is not None else LONGEST_FLOOR_NS / 1e9
        is_far = row.kernels and time_s / row.calls * INEFFICIENT > explained_s
        return Judgment("inefficient" if is_far else "latency", lower_bound_s=0.0, headroom_s=time_s)
    if work is None or ceilings is None:
        return Judgment("unknown")
    if row.kernels and all(kernel.name.lower().startswith(("memset", "memcpy")) for kernel in row.kernels):
        # Copies and memsets are shorter than any kernel.
        kept = tuple(roof for roof in ceilings.ceilings if roof.name != SHORTEST_KERNEL)
        ceilings = msgspec.structs.replace(ceilings, ceilings=kept)
    placement = place_on_roofline(
        work, ceilings, footprint_bytes=footprint(row.signature.name, work), precision=precision
    )
    if placement is None:
        return Judgment("unknown")
    lower_s = placement.lower_bound_s * row.calls
    efficiency = lower_s / time_s if time_s > 0 else None
    bound, nearest = bound_class(placement.bound, efficiency)
    return Judgment(
        bound,
        lower_bound_s=lower_s,
        headroom_s=max(0.0, time_s - lower_s),
        efficiency=efficiency,
        nearest_roof=nearest,
        attainable_flop_per_s=placement.attainable_flop_per_s,
        memory_level=placement.memory_level,
        engine=placement.engine,
    )


def bound_class(roof: Bound, efficiency: float | None) -> tuple[Bound, Literal["compute", "memory"] | None]:
    """The class of a row whose bound ``roof`` sets, and the roof that it is nearest to where it is far from
    all of them."""
    if efficiency is None or efficiency >= INEFFICIENT:
        return roof, None
    return "inefficient", roof if roof == "compute" or roof == "memory" else None


def _transferred(
    row: TimeRow, ways: set[Way], copies: int, works: bool, ceilings: Ceilings | None
) -> Judgment:
    """A row of ``copies`` between host and device. Without work (``item``) a number crosses, whose bytes take
    no time."""
    time_s = row.time_ns / 1e9
    work = row.count.work if row.count.category == "copy" else None
    # What it reads is on one side of the link, what it writes on the other; dtypes may be converted on either
    # side.
    size = min(work.bytes_read, work.bytes_written) if work is not None else None
    exposed_s = time_s if row.exposed_ns is None else row.exposed_ns / 1e9
    links = [link for link in ceilings.main("link") if link.name in ways] if ceilings is not None else []
    link = max(links, key=lambda link: link.value, default=None)  # of both ways the faster one
    if not works:
        lower_s = 0.0
    elif size is None or link is None:
        return Judgment("transfer")
    else:
        lower_s = size * min(row.calls, copies) / link.value
    headroom_s = min(max(0.0, time_s - lower_s), exposed_s)
    return Judgment(
        "transfer", lower_s, headroom_s, efficiency=lower_s / time_s if works and time_s > 0 else None
    )


def with_shortest_kernel(ceilings: Ceilings, trace: Trace) -> Ceilings:
    """``ceilings`` with the least time that a kernel took in ``trace`` as their latency, where they have none
    of their own.

    No kernel takes less, however little it does: starting and ending it takes one to a few microseconds. The
    same where the trace has too few kernels, or none that is so short.
    """
    durations = (trace.device.end_ns - trace.device.start_ns)[trace.device.kind == KERNEL]
    if ceilings.latency() is not None or len(durations) < FEWEST_KERNELS:
        return ceilings
    least_ns = int(np.min(durations[durations > 0], initial=LONGEST_FLOOR_NS + 1))
    if least_ns > LONGEST_FLOOR_NS:
        return ceilings
    detail = f"shortest kernel in this trace, of {len(durations):,}"
    floor = Ceiling(
        kind="latency",
        name=SHORTEST_KERNEL,
        value=least_ns / 1e9,
        unit="s",
        source=Source(kind="trace", detail=detail),
    )
    return msgspec.structs.replace(ceilings, ceilings=(*ceilings.ceilings, floor))
