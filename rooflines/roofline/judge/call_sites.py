"""Joins the rows of a call whose shapes depend on the data.

Attribution makes one row per signature. An embedding that sees another number of indices in each step then
has one row per step, each with a fraction of a call. These rows become one. The rows of a server stay
separate, because its prefill and decode steps differ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from rooflines.profiler.read.records import Int64s
from rooflines.roofline.analysis import Kernel, LineShare, OperatorRow, Unmodeled
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.judge.shapes import path_pattern, shapes_range

_LAUNCH = ("grid", "block", "registers", "shared_bytes")
_AnyRow = TypeVar("_AnyRow", OperatorRow, Unmodeled)


def by_call_site(
    rows: Sequence[_AnyRow], join: Callable[[Sequence[_AnyRow]], _AnyRow], *, apart: bool
) -> tuple[tuple[_AnyRow, ...], Int64s]:
    """The rows of call sites, longest first, and the place among them of each of ``rows``; ``join`` makes one
    of several. ``apart`` leaves each as it is."""
    found = []
    for members in grouped(
        range(len(rows)), lambda at: at if apart or rows[at].calls >= 1 else _site(rows[at])
    ).values():
        members.sort(key=lambda at: -rows[at].time_s)
        found.append((join([rows[at] for at in members]), members))
    found.sort(key=lambda one: (-one[0].time_s, one[0].name, one[0].module))
    place = np.empty(len(rows), np.int64)
    for at, (_, members) in enumerate(found):
        place[members] = at
    return tuple(row for row, _ in found), place


def _site(row: OperatorRow | Unmodeled) -> tuple[object, ...]:
    own = (row.precision, row.category) if isinstance(row, OperatorRow) else (row.reason,)
    return (row.name, row.module, row.phase, *own)


def unmodeled(members: Sequence[Unmodeled]) -> Unmodeled:
    """The row of ``members``, longest first."""
    return members[0] if len(members) == 1 else replace(members[0], **_shared(members))


def summed(members: Sequence[OperatorRow]) -> OperatorRow:
    """The row of ``members``, longest first. Its time is bound + headroom + the time of members without a
    bound."""
    longest = members[0]
    if len(members) == 1:
        return longest
    time_s, flops, size = (
        _total(getattr(row, name) for row in members) for name in ("time_s", "flops", "bytes")
    )
    bounded = [row for row in members if row.lower_bound_s is not None]
    judged_s = sum(row.time_s for row in bounded)
    # A member faster than its bound counts with its time, unless all are: then the efficiency above 1 is the
    # sign that it should be.
    lower_s = sum(min(row.lower_bound_s or 0.0, row.time_s) for row in bounded)
    implausible = bool(bounded) and all(row.flag for row in bounded)
    if implausible:
        lower_s = sum(row.lower_bound_s or 0.0 for row in bounded)
    bounds: Counter[str] = Counter()
    for row in members:
        bounds[row.bound] += round(row.time_s * 1e12)
    most = max(bounds, key=bounds.__getitem__)
    leading = next(row for row in members if row.bound == most)
    return replace(
        leading,
        **_shared(members),
        flops=flops,
        matrix_flops=_total(row.matrix_flops for row in members),
        bytes=size,
        intensity_flop_per_byte=flops / size if flops and size else None,
        flop_per_s=flops / time_s
        if flops and time_s > 0 and _rated(members, "flops", "flop_per_s")
        else None,
        byte_per_s=size / time_s if size and time_s > 0 and _rated(members, "bytes", "byte_per_s") else None,
        lower_bound_s=lower_s if bounded else None,
        efficiency=lower_s / judged_s
        if any(row.efficiency is not None for row in bounded) and judged_s > 0
        else None,
        headroom_s=sum(row.headroom_s or 0.0 for row in bounded) if bounded else None,
        flag=longest.flag if implausible else None,
        inferred=next((row.inferred for row in members if row.inferred), None),
        assumption=next((row.assumption for row in members if row.assumption), None),
    )


def _rated(members: Sequence[OperatorRow], amount: str, rate: str) -> bool:
    """Whether all that have an ``amount`` have a ``rate``: none where the time is doubtful, or is not that of
    the work."""
    return all(getattr(row, rate) is not None for row in members if getattr(row, amount))


def _shared(members: Sequence[OperatorRow] | Sequence[Unmodeled]) -> dict[str, Any]:
    """What rows with and without a work model have."""
    time_s = _total(row.time_s for row in members)
    by_name = grouped((kernel for row in members for kernel in row.kernels), lambda kernel: kernel.name)
    exposed = [row.exposed_s for row in members if row.exposed_s is not None]
    in_steps = [row.step_times_s for row in members if row.step_times_s is not None]
    return {
        "module": path_pattern([row.module for row in members]),
        "shapes": shapes_range([row.shapes for row in members]),
        "calls": _total(row.calls for row in members),
        "time_s": time_s,
        "step_times_s": tuple(map(math.fsum, zip(*in_steps, strict=True)))
        if len(in_steps) == len(members)
        else None,
        "exposed_s": sum(exposed) if exposed else None,
        "lines": line_shares(
            (line.place, line.share * row.time_s / (time_s or 1.0)) for row in members for line in row.lines
        ),
        "kernels": tuple(
            sorted(map(merged_kernel, by_name.values()), key=lambda kernel: (-kernel.time_s, kernel.name))
        ),
    }


def line_shares(shares: Iterable[tuple[str, float]]) -> tuple[LineShare, ...]:
    """The lines with the sums of their shares, the largest first."""
    return tuple(LineShare(place=place, share=share) for place, share in longest_first(shares).items())


def _total(values: Iterable[float]) -> int | float:
    """The sum, an integer where it is one: thirds of a call in each of three shapes are one call."""
    parts = list(values)
    whole = sum(parts)
    return (
        whole
        if isinstance(whole, int)
        else int(near)
        if (near := math.fsum(parts)).is_integer() and abs(near) < 2**53
        else near
    )


def merged_kernel(group: Sequence[Kernel]) -> Kernel:
    """One kernel for ``group``, with the name of the first: sums, and what is the same in all of them."""
    time_s = sum(one.time_s for one in group)
    first = group[0]
    occupied = [one.occupancy * one.time_s for one in group if one.occupancy is not None]
    return replace(
        first,
        calls=sum(one.calls for one in group),
        time_s=time_s,
        streams=tuple(sorted({stream for one in group for stream in one.streams})),
        occupancy=sum(occupied) / time_s if len(occupied) == len(group) and time_s > 0 else None,
        **{
            name: None for name in _LAUNCH if any(getattr(one, name) != getattr(first, name) for one in group)
        },
    )
