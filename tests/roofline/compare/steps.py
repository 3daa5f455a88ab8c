"""Analyses with times of their traced steps that scatter: the same for the same seed."""

import numpy as np
from msgspec.structs import replace

from rooflines.roofline.analysis import Analysis, TracedStep


def with_steps(whole: Analysis, seed: int = 0, *, steps: int = 20, scatter: float = 0.02) -> Analysis:
    """``whole`` with ``steps`` traced steps, in which the times of the rows and the idle time scatter log-normally."""
    noise = np.random.default_rng(seed)

    def times(time_s):
        return tuple((time_s * np.exp(scatter * noise.standard_normal(steps))).tolist())

    operators = tuple(replace(row, step_times_s=times(row.time_s)) for row in whole.operators)
    unmodeled = tuple(replace(row, step_times_s=times(row.time_s)) for row in whole.coverage.unmodeled)
    each = zip(*(row.step_times_s for row in (*operators, *unmodeled)), times(whole.timeline.idle_s), strict=True)
    traced = tuple(TracedStep(name=f"ProfilerStep#{number}", duration_s=sum(parts), breakdown={}) for number, parts in enumerate(each))
    coverage = replace(whole.coverage, unmodeled=unmodeled)
    return replace(whole, operators=operators, coverage=coverage, traced_steps=traced)
