"""Calls of one signature that take turns in being short and long, as those of layers with and without a sliding window do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.intervals import lengths_by_group
from rooflines.profiler.trace.records import Int64s
from rooflines.roofline.resolvers.counts import Variant

# Fewer calls than this show no pattern; the longer kind takes this many times as long; half of each kind lies this near together.
_FEWEST, _APART, _TOGETHER = 8, 1.5, 0.2


def alternating(times_ns: Int64s) -> tuple[float, float] | None:
    """The medians in nanoseconds of the shorter and the longer kind if every other one of ``times_ns`` is of one kind, else None."""
    if len(times_ns) < _FEWEST:
        return None
    # Not numpy.percentile, which imports numpy's masked arrays.
    ordered = [np.sort(times_ns[first::2]).tolist() for first in (0, 1)]
    (_, short, _), (_, long, _) = kinds = sorted(
        ((each[len(each) // 4], each[len(each) // 2], each[3 * len(each) // 4]) for each in ordered), key=lambda kind: kind[1]
    )
    tight = all(high - low <= _TOGETHER * median for low, median, high in kinds)
    return (float(short), float(long)) if tight and long >= _APART * short > 0 else None


def alternating_attention(
    variants: Sequence[Variant], variant_of: Int64s, call: Int64s, start_ns: Int64s, end_ns: Int64s
) -> dict[int, tuple[float, float]]:
    """The two times of every variant of attention whose calls alternate; of each kernel, in order, its variant, call, begin and end."""
    found = {}
    for variant in distinct(variant_of)[0].tolist():
        if variants[variant].count.category == "attention":
            chosen = np.flatnonzero(variant_of == variant)
            # Calls in the order in which their first kernels begin.
            calls, number = distinct(call[chosen])
            first = np.full(len(calls), len(chosen))
            np.minimum.at(first, number, np.arange(len(chosen)))
            times_ns = lengths_by_group(number, start_ns[chosen], end_ns[chosen], len(calls))
            kinds = alternating(times_ns[np.argsort(first, kind="stable")])
            if kinds is not None:
                found[variant] = kinds
    return found
