"""One row against the roofs: its lower bound, what could be saved, and its class.

A copy between host and device is judged by the link, everything else by arithmetic, memory and the device's shortest kernel
(``model.py``). A row that reaches less than a third of the roof that sets its bound is ``far`` from any roof: neither its arithmetic
nor its bytes explain its time. The same holds for the shortest kernel: a call that takes more than three times as long is not bound by
its latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.profiler.trace.records import KERNEL, Trace
from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.analysis import Bound
from rooflines.roofline.attribution.rows import Row
from rooflines.roofline.bounds.model import Placement, place
from rooflines.roofline.bounds.transfers import Transfer, bytes_over_link, link_of, transfer_of
from rooflines.roofline.formulas import Work

# An efficiency above this is flagged: past the noise of a time and of a ceiling.
IMPLAUSIBLE = 1.05
# Below this share of the roof that sets its bound a row is far from every roof.
FAR = 1 / 3
# The least kernel of a trace is a floor where it has this many, and none that takes longer than this, because such a one works.
FEWEST_KERNELS = 10
LONGEST_FLOOR_NS = 5_000
SHORTEST_KERNEL = "shortest kernel"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A row compared with the roofs, in seconds over all of its calls: ``lower_bound_s`` and ``headroom_s`` are None where nothing
    bounds it.

    ``headroom_s`` is what could be saved: time above the bound, of a transfer no more than what no computation hides.
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


def judge(row: Row, ceilings: Ceilings | None, precision: str | None) -> Judgement:
    """Compare ``row`` with ``ceilings``; ``precision`` is that of its matrix part."""
    time_s, work = row.time_ns / 1e9, row.count.work
    judged = _judged(row, time_s, work, ceilings, precision)
    return replace(judged, flag=_flag(judged, time_s))


def _judged(row: Row, time_s: float, work: Work | None, ceilings: Ceilings | None, precision: str | None) -> Judgement:
    # What a collective moves goes over the link to other devices, which no ceiling of this one bounds.
    communicates = row.count.category == "communication"
    works = work is not None and bool(work.flops or work.bytes)
    transfer = None if communicates else transfer_of(row.kernels)
    if transfer is not None:
        return _transferred(row, transfer, time_s, works, ceilings)
    if communicates:
        return Judgement("communication")
    if not works and ceilings is not None:
        # A view or a dispatcher does no work at all: its time is what calling it costs.
        bound: Bound = "far" if row.kernels and _is_long(time_s / row.calls, ceilings) else "latency"
        return Judgement(bound, lower_bound_s=0.0, headroom_s=time_s)
    if work is None or ceilings is None:
        return Judgement("unknown")
    roofs = ceilings if _runs_kernels(row) else _without_floor(ceilings)
    placement = place(work, roofs, footprint_bytes=_footprint(row.signature, work), precision=precision)
    return _placed(placement, row.calls, time_s) if placement is not None else Judgement("unknown")


def _placed(placement: Placement, calls: int, time_s: float) -> Judgement:
    lower_s = placement.lower_bound_s * calls
    efficiency = lower_s / time_s if time_s > 0 else None
    bound, nearest = bound_class(placement.bound, efficiency)
    return Judgement(
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
    """The class of a row whose bound ``roof`` sets, and the roof that it is nearest to where it is far from all of them."""
    if efficiency is None or efficiency >= FAR:
        return roof, None
    return "far", roof if roof == "compute" or roof == "memory" else None


def _is_long(call_s: float, ceilings: Ceilings) -> bool:
    """Whether a call without work takes too long for the latency to explain it."""
    latency = ceilings.latency()
    return call_s * FAR > (latency.value if latency is not None else LONGEST_FLOOR_NS / 1e9)


# --- transfers ---------------------------------------------------------------------------------------------------------------------


def _transferred(row: Row, transfer: Transfer, time_s: float, works: bool, ceilings: Ceilings | None) -> Judgement:
    """A row of copies between host and device. Without work (``item``) a number crosses, whose bytes take no time."""
    size = bytes_over_link(row.count.work) if row.count.category == "copy" else None
    exposed_s = time_s if row.exposed_ns is None else row.exposed_ns / 1e9
    link = link_of(transfer, ceilings) if ceilings is not None else None
    if not works:
        lower_s = 0.0
    elif size is None or link is None:
        return Judgement("transfer")
    else:
        lower_s = size * min(row.calls, transfer.copies) / link.value
    headroom_s = min(max(0.0, time_s - lower_s), exposed_s)
    return Judgement("transfer", lower_s, headroom_s, efficiency=lower_s / time_s if works and time_s > 0 else None)


# --- the shortest kernel -----------------------------------------------------------------------------------------------------------


def with_shortest_kernel(ceilings: Ceilings, trace: Trace) -> Ceilings:
    """``ceilings`` with the least time that a kernel took in ``trace`` as their latency, where they have none of their own.

    No kernel takes less, however little it does: starting and ending it takes one to a few microseconds. The same where the trace has
    too few kernels, or none that is so short.
    """
    durations = (trace.device.end_ns - trace.device.start_ns)[trace.device.kind == KERNEL]
    if ceilings.latency() is not None or len(durations) < FEWEST_KERNELS:
        return ceilings
    least_ns = int(np.min(durations[durations > 0], initial=LONGEST_FLOOR_NS + 1))
    if least_ns > LONGEST_FLOOR_NS:
        return ceilings
    detail = f"shortest kernel in this trace, of {len(durations):,}"
    floor = Ceiling(kind="latency", name=SHORTEST_KERNEL, value=least_ns / 1e9, unit="s", source=Source(kind="trace", detail=detail))
    return msgspec.structs.replace(ceilings, ceilings=(*ceilings.ceilings, floor))


def _runs_kernels(row: Row) -> bool:
    """Whether a kernel is among what the row ran; on a CPU, where nothing is launched, it always is one."""
    return not row.kernels or any(not one.name.lower().startswith(("memset", "memcpy")) for one in row.kernels)


def _without_floor(ceilings: Ceilings) -> Ceilings:
    """``ceilings`` for copies and memsets, which are shorter than any kernel."""
    kept = tuple(one for one in ceilings.ceilings if one.name != SHORTEST_KERNEL)
    return msgspec.structs.replace(ceilings, ceilings=kept)


# --- what cannot be ----------------------------------------------------------------------------------------------------------------


def _footprint(signature: Signature, work: Work) -> int:
    """The memory that a call's bytes lie in: an operator in place (``add_``, ``_foreach_mul_``) writes what it has read."""
    in_place = signature.name.partition(".")[0].endswith("_") and not signature.name.endswith("__")
    return max(work.bytes_read, work.bytes_written) if in_place else work.bytes


def _flag(judged: Judgement, time_s: float) -> str | None:
    if time_s <= 0 and judged.efficiency is None:
        return "no device time was recorded for its work"
    if judged.efficiency is None or judged.efficiency <= IMPLAUSIBLE:
        return None
    if judged.bound == "memory":
        return f"faster than the {judged.memory_level} ceiling allows: its data was in a nearer cache, or the ceiling is too low"
    if judged.bound == "compute":
        return "faster than the compute ceiling allows: an algorithm with fewer FLOPs (Winograd, FFT), or the ceiling is too low"
    if judged.bound == "transfer":
        return "faster than the link allows: the ceiling is too low"
    return "faster than the shortest measured operator: the latency ceiling is too high"
