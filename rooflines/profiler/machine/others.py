"""The other programs of this machine: how many processors they take while something is measured, and which
steps they left alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import numpy as np

from rooflines.profiler.read.records import Mask
from rooflines.profiler.samplers.fields import DeviceSample

# A program below this share of a processor is not worth its name, and no more than a few are.
_LEAST_CORES, _MOST = 0.05, 3
# The parent of Linux's kernel threads, by name: in a container its number may be that of any program.
_KERNEL_THREADS = "kthreadd"
# Other programs that keep at least this many processors busy make a shared machine. The sampler itself takes
# about 0.01.
OTHERS_CORES = 0.2
# A step is quiet if its threads waited for a processor for at most this share of it. On an idle machine they
# wait for less than 1 %.
_QUIET_SHARE = 0.05
# A tenth of a second is ten ticks of the processors' clocks: a sample of an idle machine may show a core busy
# for two of them.
_SOME_CORES = 0.3
# Steps whose pages from the system differ by less are alike: a tensor of 400 KB.
_ALIKE_PAGES = 100


class OthersMeter:
    """Measures from its creation on; the clocks behind it have a resolution of 10 ms."""

    def __init__(self) -> None:
        self._began, self._busy_s, self._spent_s = time.monotonic(), _others_s(), _spent_s()

    def cores(self) -> float:
        """The mean number of processors that other programs kept busy."""
        passed_s = time.monotonic() - self._began
        return max(0.0, (_others_s() - self._busy_s) / passed_s) if passed_s > 0 else 0.0

    def by_name(self) -> dict[str, float]:
        """The mean number of processors that programs with a name kept busy, most first; not those that have
        ended meanwhile."""
        import psutil

        passed_s, own = time.monotonic() - self._began, psutil.Process()
        ours = {own.pid, *(child.pid for child in own.children(recursive=True))}
        spent: dict[str, float] = {}
        for (pid, name), spent_s in _spent_s().items():
            if pid not in ours:
                spent[name] = spent.get(name, 0.0) + spent_s - self._spent_s.get((pid, name), 0.0)
        most = sorted(spent, key=lambda name: -spent[name])[:_MOST]
        return {name: spent[name] / passed_s for name in most if spent[name] > _LEAST_CORES * passed_s}


def _others_s() -> float:
    """Processor time of all programs but this one and its children, such as the workers of a data loader. A
    hypervisor's other guests (steal) are not programs of this machine."""
    import psutil

    whole, own, ours = psutil.cpu_times(), psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # its time is then in its parent's
            ours += sum(process.cpu_times()[:4])  # user and system, and those of its children
    return float(whole.user + whole.system + getattr(whole, "nice", 0.0) - ours)


def _spent_s() -> dict[tuple[int, str], float]:
    """Processor time of every process that may be read, by number and name; the kernel's own threads work for
    all of them."""
    import psutil

    every = [process.info for process in psutil.process_iter(["pid", "name", "cpu_times", "ppid"])]
    kernel = {info["pid"] for info in every if info["name"] == _KERNEL_THREADS}
    return {
        (info["pid"], info["name"] or str(info["pid"])): sum(info["cpu_times"][:2])
        for info in every
        if info["cpu_times"] is not None and info["ppid"] not in kernel
    }


def is_quiet(step_ns: int, queue_ns: int) -> bool:
    """Whether a step of ``step_ns`` in which threads waited ``queue_ns`` for a processor ran undisturbed."""
    return queue_ns <= _QUIET_SHARE * step_ns


def busy_elsewhere(samples: Sequence[DeviceSample], threads: int, from_ns: int | None = None) -> list[float]:
    """Return how many of the machine's ``threads`` processors other programs kept busy in each sample since
    ``from_ns``."""
    return [
        sample.cpu_utilization * threads - sample.process_cpu_utilization
        for sample in samples
        if sample.cpu_utilization is not None
        and sample.process_cpu_utilization is not None
        and (from_ns is None or sample.time_ns >= from_ns)
    ]


def is_shared(busy: Sequence[float]) -> bool:
    """Whether other programs computed at some time, in samples of ``busy_elsewhere``: else threads wait for
    their own process only."""
    return max(busy, default=0.0) >= _SOME_CORES


def quiet_steps(steps_ns: Sequence[int], queue_ns: Sequence[int], busy: Sequence[float]) -> Mask:
    """Return which steps ran undisturbed; all of them where nothing says otherwise."""
    if len(queue_ns) != len(steps_ns) or not is_shared(busy):
        return np.ones(len(steps_ns), bool)
    return np.array([is_quiet(*step) for step in zip(steps_ns, queue_ns, strict=True)], bool)


def quietest(steps_ns: Sequence[int], queue_ns: Sequence[int], fewest: int) -> Mask:
    """Return the ``fewest`` steps in which threads waited for a processor for the smallest share."""
    chosen = np.zeros(len(steps_ns), bool)
    chosen[np.argsort(np.divide(queue_ns, steps_ns), kind="stable")[:fewest]] = True
    return chosen


def alike_steps(faults: Sequence[int], timed: float, chosen: Mask) -> Mask:
    """Return which of the ``chosen`` traced steps resemble the timed ones: the half whose page ``faults`` are
    nearest to their mean.

    Whether a tensor gets new pages differs from step to step, and new pages take time. All are kept where the
    faults of each are not known.
    """
    if len(faults) != len(chosen) or not chosen.any():
        return chosen
    away = np.abs(np.array(faults) - timed)
    return chosen & (away <= max(float(np.median(away[chosen])), float(away[chosen].min()) + _ALIKE_PAGES))
