"""Disturbances of a run: other programs, and step times that vary too much to trust small gains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rooflines.device_specs.records import DISTURBED
from rooflines.profiler.machine.others import OTHERS_CORES, alike_steps, busy_elsewhere, quietest
from rooflines.profiler.machine.others import quiet_steps as quiet
from rooflines.profiler.read.records import Mask
from rooflines.profiler.records import Run, RunFile, StepTimes
from rooflines.roofline.analysis import Analysis, OtherPrograms, PageFaults, Steps
from rooflines.roofline.judge.usage.device_usage import HOST
from rooflines.units import counted, known_to, percent, seconds, significant

# A median that is known less well than this comes from a machine, or a program, that does not repeat itself.
WIDE = 0.10
# The fewest quiet timed steps that tell the time of a step, and the fewest quiet traced ones that divide it.
FEWEST_TIMED, FEWEST_TRACED = 5, 3
# The profiler makes steps of the shortest operators four times as long. Traced steps that took more than ten
# times as long spent most of their time waiting for a processor.
_MOST_DILATION = 10.0
# New pages that take more of a step decide which operators it is spent in.
_PAGING = 0.08
# The classes of operators that read and write memory, which may be new.
_TOUCHING = ("compute", "memory", "inefficient", "unknown")


class QuietSteps(NamedTuple):
    """Which timed and which traced steps count, and what the other programs did that disturbed the rest."""

    timed: Mask
    traced: Mask
    others: OtherPrograms | None
    #: the traced ones that they did not delay, of which ``traced`` are those that resemble the timed ones
    undisturbed: Mask


def quiet_steps(run: Run) -> QuietSteps:
    """The steps that other programs did not delay; all of them where that is not known, on a device, or where
    too few are left. Of the traced ones, those that resemble the timed ones in the pages that they took from
    the system.

    If fewer are left than are needed, the steps with the least delay are used, and ``others.judged`` is
    false: their times are upper limits. The host of a GPU needs a processor or two, so other programs disturb
    its steps only where they leave less than one free.
    """
    facts = run.facts
    times = facts.steps or StepTimes()
    threads = facts.environment.cpu_threads
    busy = busy_elsewhere(run.samples, threads, times.timed_began_ns) if threads else []
    mean = float(np.mean(busy)) if busy else 0.0
    every = np.ones(len(times.timed_ns), bool), np.ones(len(times.traced_ns), bool)
    if not _on_cpu(facts):
        whole = [sample.cpu_utilization for sample in run.samples if sample.cpu_utilization is not None]
        free = not threads or not whole or float(np.mean(whole)) * threads <= threads - 1
        return QuietSteps(*every, None if free or mean < OTHERS_CORES else _others(facts, mean), every[1])
    timed = quiet(times.timed_ns, times.timed_queue_ns, busy)
    traced = quiet(times.traced_ns, times.traced_queue_ns, busy)
    few = timed.sum() < min(FEWEST_TIMED, len(timed)), traced.sum() < min(FEWEST_TRACED, len(traced))
    if any(few) and mean < OTHERS_CORES:  # the program's own threads wait for each other
        return QuietSteps(*every, None, every[1])
    if few[0]:
        timed = quietest(times.timed_ns, times.timed_queue_ns, FEWEST_TIMED)
    if few[1]:
        traced = quietest(times.traced_ns, times.traced_queue_ns, FEWEST_TRACED)
    left_out = int((~timed).sum()), int((~traced).sum())
    if any(few):
        return QuietSteps(timed, traced, _others(facts, mean, left_out, judged=False), traced)
    pages = page_faults(facts)
    alike = alike_steps(times.traced_step_faults, pages.timed, traced) if pages is not None else traced
    return QuietSteps(
        timed,
        alike,
        _others(facts, mean, left_out) if mean >= OTHERS_CORES or any(left_out) else None,
        traced,
    )


def _others(
    facts: RunFile, busy: float, left_out: tuple[int, int] = (0, 0), *, judged: bool = True
) -> OtherPrograms:
    return OtherPrograms(
        busy=busy,
        threads=facts.environment.cpu_threads or 1,
        programs=facts.other_processes,
        timed_left_out=left_out[0],
        traced_left_out=left_out[1],
        judged=judged,
    )


def page_faults(facts: RunFile) -> PageFaults | None:
    """The pages that each step on a CPU took from the system; None where they were not counted."""
    steps = facts.steps
    if steps is None or not steps.timed_ns or not steps.timed_page_faults or not _on_cpu(facts):
        return None
    traced = (
        steps.traced_page_faults / len(steps.traced_ns)
        if steps.traced_page_faults is not None and steps.traced_ns
        else None
    )
    page_s = steps.page_ns / 1e9 if steps.page_ns is not None else None
    return PageFaults(timed=steps.timed_page_faults / len(steps.timed_ns), traced=traced, page_s=page_s)


def shared_machine(found: OtherPrograms) -> str:
    """What other programs did to the steps, for the head of a page, whose verdict says how busy they were."""
    parts = ("timed", found.timed_left_out), ("traced", found.traced_left_out)
    left_out = " and ".join(counted(number, f"{kind} step") for kind, number in parts if number)
    text = f"Left out because of delays: {left_out or 'no step'}."
    if not found.judged:
        text += (
            " Times are those of the steps with the least delay, and upper limits; efficiencies are lower "
            "limits."
        )
    return text


def shared_by(cores: Sequence[float | None], what: str) -> tuple[str, str] | None:
    """The status of a page of several measurements: how many processors other programs took at most, and
    during how many of them."""
    seen = [one for one in cores if one is not None and one >= OTHERS_CORES]
    if not seen:
        return None
    during = f"during {len(seen)} of {len(cores)} {what}" if len(cores) > 1 else "meanwhile"
    return (
        DISTURBED,
        f"Shared machine: other programs took up to {significant(max(seen), 2)} processors {during}.",
    )


def unsteady(analysis: Analysis) -> str:
    """The last sentence of a verdict where the times are disturbed; empty on a quiet machine."""
    steps, found = analysis.steps, analysis.other_programs
    wide = _half_width_s(steps) / steps.median_s if steps is not None and steps.median_s else 0.0
    interval = f"the median step is {known_to(wide)}" if wide > WIDE else ""
    if found is not None and not found.judged:
        return f"Shared machine: {busy(found, named=True)} and delayed nearly every step."
    if found is not None:
        return f"Shared machine: {busy(found, named=True)}{f', and {interval}' if interval else ''}."
    return f"Unsteady times: {interval}." if interval else ""


def is_delayed(analysis: Analysis) -> bool:
    """Whether other programs delayed nearly every step, so that times are upper limits."""
    return analysis.other_programs is not None and not analysis.other_programs.judged


def undivided(analysis: Analysis) -> str:
    """A sentence on traced steps of a CPU that other programs delayed so much that their shares are those of
    waiting; empty where they divide the step."""
    dilation = (analysis.steps.profiler_dilation if analysis.steps is not None else None) or 1.0
    of_cpu = analysis.environment.device.startswith("cpu")
    if analysis.other_programs is None or not of_cpu or dilation <= _MOST_DILATION:
        return ""
    return (
        f"Beside other programs the traced steps took {significant(dilation)} times as long as the timed "
        f"ones, so they do not tell what the {analysis.basis.per} is spent on."
    )


def is_slowed(analysis: Analysis) -> bool:
    """Whether something slowed the timed steps and not the traced ones: a profiler makes nothing faster, and
    a tenth is more than chance."""
    return analysis.steps is not None and (analysis.steps.profiler_dilation or 1.0) < 0.9


def busy_cores(analysis: Analysis) -> float | None:
    """The processors that the process kept busy during the timed steps, on average; None where they were not
    sampled."""
    usage = analysis.usage
    host = usage.of(HOST) if usage is not None and usage.window == "timed pass" else None
    gauge = host.gauges.get("process_cpu_utilization") if host is not None else None
    return gauge.mean if gauge is not None else None


def paging_s(analysis: Analysis, page_s: float | None = None, left_s: float = 0.0) -> float | None:
    """The time of a timed step in which it takes new pages from the system, at most the step; None where that
    is not known.

    A page costs ``page_s``, or what one took in the run, without ``left_s``; the busy threads share it.
    """
    found, steps = analysis.page_faults, analysis.steps
    page_s = page_s if page_s is not None or found is None else found.page_s
    if found is None or page_s is None or steps is None:
        return None
    return min(
        steps.median_s, found.timed * max(0.0, page_s - left_s) / max(1.0, busy_cores(analysis) or 1.0)
    )


def _paging_share(analysis: Analysis) -> float:
    """The share of the step that goes into new pages, 0 where it is too small to decide anything."""
    steps = analysis.steps
    share = (paging_s(analysis) or 0.0) / steps.median_s if steps is not None and steps.median_s else 0.0
    return share if share >= _PAGING else 0.0


def with_pages(analysis: Analysis) -> Analysis:
    """Return ``analysis`` with ranges of shares that hold wherever the time for new pages falls.

    In another run it is in operators of another class, or it is not there and the step is shorter.
    """
    others, share = analysis.other_programs, _paging_share(analysis)
    if others is None or not share:
        return analysis
    touching = sum(most for name, (_, most) in others.shares.items() if name in _TOUCHING)

    def wider(name: str, low: float, high: float) -> tuple[float, float]:
        if name not in _TOUCHING:
            return low * (1 - share), min(1.0, high / (1 - share))
        return max(0.0, low - share), min(1.0, high + min(share, touching - high))

    ends = {name: wider(name, *ends) for name, ends in others.shares.items()}
    return replace(analysis, other_programs=replace(others, shares=ends))


def paging(analysis: Analysis) -> str:
    """A sentence on new pages that take a good part of the step: their number differs from run to run, and so
    does the division."""
    share = _paging_share(analysis)
    if not share:
        return ""
    return (
        f"About {percent(share)} of the step goes into new pages of memory; which operators wait for "
        "them differs from run to run."
    )


def delayed(analysis: Analysis) -> str:
    """How long the steps of a run took that other programs disturbed."""
    steps, found = analysis.steps, analysis.other_programs
    assert found is not None
    if steps is None:
        return busy(found)
    of = f"10th to 90th percentile of {counted(steps.count, 'step')}"
    return f"steps took {seconds(steps.p10_s)} to {seconds(steps.p90_s)} ({of}) while {busy(found)}"


def noise_s(analysis: Analysis) -> float:
    """The smallest gain per step above the noise: half the interval of the median if ``unsteady`` is not
    empty."""
    return _half_width_s(analysis.steps) if unsteady(analysis) else 0.0


def _on_cpu(facts: RunFile) -> bool:
    return facts.environment.device.startswith("cpu")


def busy(found: OtherPrograms, *, named: bool = False) -> str:
    """How many processors other programs took, their names where ``named``."""
    # They were sampled at other moments than the steps, so single ones may have more than all have here.
    parts = sum(found.programs.values()) <= found.busy
    names = ", ".join(
        f"{name} {significant(cores, 2)}" if parts else name for name, cores in found.programs.items()
    )
    return (
        f"other programs took {significant(found.busy, 2)} of {found.threads} "
        f"processors{f' ({names})' if named and names else ''}"
    )


def _half_width_s(steps: Steps | None) -> float:
    if steps is None or steps.ci95_s is None:
        return 0.0
    low, high = steps.ci95_s
    return max(high - steps.median_s, steps.median_s - low)
