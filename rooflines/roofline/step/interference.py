"""Disturbances of a run: other programs, and step times that vary too much to trust small gains."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.records import Run, RunFile
from rooflines.roofline.analysis import Analysis, OtherPrograms, PageFaults, Steps
from rooflines.units import percent, significant

# Other programs that keep at least this many processors busy make a shared machine. The sampler itself takes about 0.01.
OTHER_PROGRAMS_CORES = 0.2
# A median that is known less well than this comes from a machine, or a program, that does not repeat itself.
WIDE = 0.10


def other_programs(run: Run) -> OtherPrograms | None:
    """Processor use of other programs while the steps were timed; None if small or not sampled.

    The host of a GPU needs a processor or two, so other programs disturb its steps only where they leave less than one free.
    """
    threads = run.facts.environment.cpu_threads
    used = [
        (sample.cpu_utilization * threads, sample.process_cpu_utilization)
        for sample in run.samples
        if threads and sample.cpu_utilization is not None and sample.process_cpu_utilization is not None
    ]
    if not threads or not used:
        return None
    in_all, ours = np.mean(used, axis=0).tolist()
    busy = in_all - ours
    if busy < OTHER_PROGRAMS_CORES or (not _on_cpu(run.facts) and in_all <= threads - 1):
        return None
    return OtherPrograms(busy=busy, threads=threads)


def page_faults(facts: RunFile) -> PageFaults | None:
    """The pages that each step on a CPU took from the system; None where they were not counted."""
    steps = facts.steps
    if steps is None or not steps.timed_ns or not steps.timed_page_faults or not _on_cpu(facts):
        return None
    traced = steps.traced_page_faults / len(steps.traced_ns) if steps.traced_page_faults is not None and steps.traced_ns else None
    return PageFaults(timed=steps.timed_page_faults / len(steps.timed_ns), traced=traced)


def shared_machine(found: OtherPrograms | None, facts: RunFile) -> list[str]:
    """A note on other programs."""
    if found is None:
        return []
    slowed = "operators that use all threads slow down most" if _on_cpu(facts) else "the host launches the work of the device later"
    return [f"{_busy(found)} while the steps were timed: times are of a shared machine; {slowed}"]


def unsteady(analysis: Analysis) -> str:
    """The first sentence of a verdict if the times are disturbed; empty on a quiet machine."""
    wide = _half_width_s(analysis.steps) / analysis.steps.median_s if analysis.steps is not None and analysis.steps.median_s else 0.0
    interval = f"the median step is known to ±{percent(wide)} only" if wide > WIDE else ""
    if analysis.other_programs is not None:
        opening = f"Shared machine: {_busy(analysis.other_programs)} while the steps were timed"
        return f"{opening}, and {interval}." if interval else f"{opening}."
    return f"Unsteady times: {interval}." if interval else ""


def noise_s(analysis: Analysis) -> float:
    """The smallest gain per step above the noise: half the interval of the median if ``unsteady`` is not empty."""
    return _half_width_s(analysis.steps) if unsteady(analysis) else 0.0


def _on_cpu(facts: RunFile) -> bool:
    return facts.environment.device.startswith("cpu")


def _busy(found: OtherPrograms) -> str:
    return f"other programs kept {significant(found.busy, 2)} of {found.threads} processors busy"


def _half_width_s(steps: Steps | None) -> float:
    if steps is None or steps.ci95_s is None:
        return 0.0
    low, high = steps.ci95_s
    return max(high - steps.median_s, steps.median_s - low)
