"""How far the shares of the bound classes differ from step to step beside other programs.

Another program delays one operator in one step and another in the next, or the time between them. So each
traced step is divided by itself, at the lengths of a short, a median and a long timed step: a longer one
reaches less of its roofs, and more of its operators are inefficient. The spread of these shares gives the
interval that holds 95 % of further steps (Student's t), which is wide where there are few steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.records import Mask
from rooflines.roofline.analysis import OperatorRow, Steps
from rooflines.roofline.judge.bounds import INEFFICIENT
from rooflines.roofline.judge.step.partition import BOUND_ORDER, Partition
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.uncertainty import Floats, half_width

_INEFFICIENT, _UNKNOWN, _HOST = (BOUND_ORDER.index(name) for name in ("inefficient", "unknown", "host"))


def share_ranges(
    attribution: Attribution,
    judged: Sequence[OperatorRow],
    divided: Partition,
    traced: Partition,
    steps: Steps,
    quiet: Mask,
) -> dict[str, tuple[float, float]]:
    """The least and the largest share of each class of ``divided`` in a step of a CPU, by those in ``quiet``
    and on the clock of its steps; ``judged`` go with the rows of ``attribution``, and ``traced`` is their
    division.

    What a step deviates from the mean is added to the shares of ``divided``. Waiting for data has none: it is
    timed apart. Empty of a single step.
    """
    rows = (*attribution.rows, *attribution.gaps)
    roofs = [
        one.nearest_roof or ("latency" if one.bound == "inefficient" else one.bound)
        if one.efficiency is not None
        else one.bound
        for one in judged
    ]
    roof = np.array([*map(BOUND_ORDER.index, roofs), *[_UNKNOWN] * len(attribution.gaps), _HOST], np.int64)
    least_s = np.full(len(roof), np.inf)
    least_s[: len(judged)] = [np.inf if one.efficiency is None else one.lower_bound_s for one in judged]

    def shares(times: Floats, step_s: float) -> Floats:
        lasting = times * (step_s / times.sum())
        classes = np.where(least_s < INEFFICIENT * lasting, _INEFFICIENT, roof)
        return np.bincount(classes, lasting, len(BOUND_ORDER)) / step_s

    host_ns = intervals.covered((traced.causes or {})["host_bound"], attribution.windows)
    host_ns = np.maximum(0.0, host_ns - attribution.ranges_ns / attribution.per) * attribution.factor
    lasting_ns = np.array([row.step_ns for row in rows]).reshape(len(rows), -1 if rows else len(host_ns))
    each = np.column_stack((lasting_ns.T, host_ns))[quiet]
    if len(each) < 2:
        return {}
    steady_ns = np.array([row.time_ns / attribution.per for row in rows])
    found = divided.bounds()
    mean = shares(np.append(steady_ns, 1e9 * found["host"]), steps.median_s)
    low, high = np.zeros((2, len(BOUND_ORDER)))
    for step_s in (steps.p10_s, steps.median_s, steps.p90_s):
        away = np.array([shares(times, step_s) - mean for times in each])
        half = [half_width(of_class) * math.sqrt(len(each) + 1) for of_class in away.T.tolist()]
        low, high = np.minimum(low, away.mean(axis=0) - half), np.maximum(high, away.mean(axis=0) + half)
    share = np.array([found.get(name, 0.0) / divided.step_s for name in BOUND_ORDER])
    ends = zip(BOUND_ORDER, (share + low).clip(0).tolist(), (share + high).clip(max=1).tolist(), strict=True)
    return {name: (least, most) for name, least, most in ends if most > least}
