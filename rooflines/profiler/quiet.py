"""What other programs did to the steps of a run, and which steps they left alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rooflines.profiler.samplers.fields import DeviceSample

# Other programs that keep at least this many processors busy make a shared machine. The sampler itself takes about 0.01.
OTHERS_CORES = 0.2
# A step is quiet if its threads waited for a processor for at most this share of it. On an idle machine they wait for less than 1 %.
_QUIET_SHARE = 0.05
# A tenth of a second is ten ticks of the processors' clocks: a sample of an idle machine may show a core busy for two of them.
_SOME_CORES = 0.3
# Steps whose pages from the system differ by less are alike: a tensor of 400 KB.
_ALIKE_PAGES = 100


def is_quiet(step_ns: int, queue_ns: int) -> bool:
    """Whether a step of ``step_ns`` in which threads waited ``queue_ns`` for a processor ran undisturbed."""
    return queue_ns <= _QUIET_SHARE * step_ns


def busy_elsewhere(samples: Sequence[DeviceSample], threads: int, from_ns: int | None = None) -> list[float]:
    """Return how many of the machine's ``threads`` processors other programs kept busy in each sample since ``from_ns``."""
    return [
        sample.cpu_utilization * threads - sample.process_cpu_utilization
        for sample in samples
        if sample.cpu_utilization is not None
        and sample.process_cpu_utilization is not None
        and (from_ns is None or sample.time_ns >= from_ns)
    ]


def is_shared(busy: Sequence[float]) -> bool:
    """Whether other programs computed at some time, in samples of ``busy_elsewhere``: else threads wait for their own process only."""
    return max(busy, default=0.0) >= _SOME_CORES


def quiet_steps(steps_ns: Sequence[int], queue_ns: Sequence[int], busy: Sequence[float]) -> npt.NDArray[np.bool_]:
    """Return which steps ran undisturbed; all of them where nothing says otherwise."""
    if len(queue_ns) != len(steps_ns) or not is_shared(busy):
        return np.ones(len(steps_ns), bool)
    return np.array([is_quiet(*step) for step in zip(steps_ns, queue_ns, strict=True)], bool)


def alike_steps(faults: Sequence[int], timed: float, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which of the ``chosen`` traced steps resemble the timed ones: the half whose page ``faults`` are nearest to their mean.

    Whether a tensor gets new pages differs from step to step, and new pages take time. All are kept where the faults of
    each are not known.
    """
    if len(faults) != len(chosen) or not chosen.any():
        return chosen
    away = np.abs(np.array(faults) - timed)
    return chosen & (away <= max(float(np.median(away[chosen])), float(away[chosen].min()) + _ALIKE_PAGES))
