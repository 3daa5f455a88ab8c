"""Calls of one signature that take turns in being short and long, as those of layers with and without a sliding window do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.records import Int64s
from rooflines.roofline.resolvers.counts import Variant

# Fewer calls than this show no pattern; the longer kind takes this many times as long; half of each kind lies this near together.
_FEWEST, _APART, _TOGETHER = 8, 1.5, 0.2


def alternating(times_ns: Int64s) -> tuple[float, float] | None:
    """The medians in nanoseconds of the shorter and the longer kind if every other one of ``times_ns`` is of one kind, else None."""
    if len(times_ns) < _FEWEST:
        return None
    kinds = [np.percentile(times_ns[first::2], (25, 50, 75)) for first in (0, 1)]
    (_, short, _), (_, long, _) = sorted(kinds, key=lambda kind: float(kind[1]))
    tight = all(high - low <= _TOGETHER * median for low, median, high in kinds)
    return (float(short), float(long)) if tight and long >= _APART * short > 0 else None


def alternating_attention(
    variants: Sequence[Variant], variant_of: Int64s, began_ns: Int64s, times_ns: Int64s
) -> dict[int, tuple[float, float]]:
    """The two times of every variant of attention whose calls alternate; a call has a variant, a begin, and the time of its kernels."""
    found = {}
    for variant in distinct(variant_of)[0].tolist():
        if variants[variant].count.category == "attention":
            calls = np.flatnonzero(variant_of == variant)
            kinds = alternating(times_ns[calls[np.argsort(began_ns[calls], kind="stable")]])
            if kinds is not None:
                found[variant] = kinds
    return found
