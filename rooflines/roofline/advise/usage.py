"""Advice from the device samples: what was wrong with the machine, held it back, or left part of it idle
while the steps were timed.

These rules are not in ``findings.RULES``. Each says what was read and no more than that. Where seconds follow
from it they are given; where they do not, 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from msgspec.structs import replace

from rooflines.roofline.advise.case import device_kind
from rooflines.roofline.advise.findings import REPEAT
from rooflines.roofline.advise.host import GRAPHS_UNRECORDED
from rooflines.roofline.advise.plan import in_order
from rooflines.roofline.advise.verdict import ONE_THREAD, shares
from rooflines.roofline.analysis import Analysis, DeviceUsage, Finding, Usage
from rooflines.roofline.judge.usage.device_usage import HOST
from rooflines.units import binary_bytes, counted, percent, seconds, si

# A share of the time below which throttling is not worth a sentence.
THROTTLED = 0.02
# A smaller loss of clock is not throttling, even where the driver names a reason.
_LOST = 0.02
# Devices are unevenly used if the least used is busy for this much less of the time than the most used.
UNEVEN = 0.20
# A GPU that is busy for less of the time is waiting for something.
BUSY = 0.70
NEARLY_FULL = 0.95
# Pages read from disk, a second, from which on the run waits for a disk.
PAGES_PER_S = 10.0

# What the drivers' reasons are about, by words in them; a reason with none of them is something else.
_CAUSES = {
    "its power limit": ("power cap", "power brake", "board limit"),
    "heat": ("thermal", "processor hot"),
    "its driver": (),
}
_REMEDIES = {
    "its power limit": "a higher limit ({}), or lower precision, which takes less energy for the same work",
    "heat": "better cooling, or a lower power limit ({})",
    "its driver": "check {}",
}
# The commands that set or show these, on GPUs of NVIDIA's and AMD's.
_COMMANDS = {"its driver": ("nvidia-smi -q -d PERFORMANCE,CLOCK", "amd-smi metric --clock --power")}
_SET_LIMIT = ("nvidia-smi -pl", "amd-smi set --power-cap")
_SHOW_ERRORS = ("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER", "amd-smi metric --ecc")


_ECC = "Take this GPU out of use and check it"
# What says that the results, or all times, are in doubt, and what others delay.
_DOUBTS = (_ECC, GRAPHS_UNRECORDED, ONE_THREAD, REPEAT)


def find_in_usage(analysis: Analysis) -> tuple[Finding, ...]:
    """The findings of ``analysis.usage``."""
    if analysis.usage is None:
        return ()
    return tuple(finding for rule in _RULES if (finding := rule(analysis, analysis.usage)) is not None)


def ranked(findings: tuple[Finding, ...], step_s: float = math.inf) -> tuple[Finding, ...]:
    """Sort findings: doubts about the results first, then by saving, together at most a step; unknown savings
    last."""
    left_s = step_s
    found = list[Finding]()
    for one in sorted(in_order(findings), key=lambda finding: finding.title not in _DOUBTS):
        saves_s = min(one.most_s, left_s)
        about_s = None if one.about_s is None else min(one.about_s, saves_s)
        found.append(replace(one, saves_s=saves_s or None, about_s=about_s))
        left_s -= found[-1].gain_s
    return tuple(found)


def _uncorrected_errors(analysis: Analysis, usage: Usage) -> Finding | None:
    """Bits of the device's memory that were wrong and could not be put right."""
    wrong = [one for one in usage.devices if one.counts.get("ecc_uncorrected", 0) > 0]
    if not wrong:
        return None
    errors = ", ".join(f"{one.device} {one.counts['ecc_uncorrected']:.0f}" for one in wrong)
    return Finding(
        title=_ECC,
        evidence=(
            f"uncorrected memory errors (ECC) {_meanwhile(usage)}: {errors}; results of this run may be wrong"
        ),
        suggestion=f"{_SHOW_ERRORS[device_kind(analysis) == 'hip']}; then a reset, or another GPU",
    )


def _imbalance(analysis: Analysis, usage: Usage) -> Finding | None:
    """Several GPUs, some of which wait for others."""
    share = {one.device: one.gauges["gpu_utilization"].mean for one in usage.devices if _load_known(one)}
    share = {device: share[device] for device in share if len(usage.own) < 2 or device in usage.own}
    # A GPU that the process does not hold memory on is not part of the run; if that is unknown, all sampled
    # GPUs are.
    if len(share) < 2 or (
        len(usage.own) == 1 and any("process_memory_bytes" in one.gauges for one in usage.devices)
    ):
        return None
    least = min(share, key=lambda one: share[one])
    most = max(share, key=lambda one: share[one])
    if share[most] - share[least] < UNEVEN:
        return None
    named = ", ".join(f"{device} {percent(value)}" for device, value in share.items())
    wrapped = any(module.type == "DataParallel" for module in analysis.modules)
    why = (
        f"; the model is in DataParallel, which gathers on one device ({most} is busiest)" if wrapped else ""
    )
    # The busiest sets the pace: with the work spread evenly it would be busy for the mean.
    spread_s = (share[most] - sum(share.values()) / len(share)) * analysis.timed_s
    return Finding(
        title=f"Spread the work evenly: {least} works {percent(share[least])} of the time",
        saves_s=spread_s,
        evidence=f"share of the time in which a kernel ran: {named}{why}",
        suggestion=(
            "torch.nn.parallel.DistributedDataParallel, one process a GPU, in place of DataParallel"
            if wrapped
            else (
                "the same share of each batch for every GPU (rooflines analyze on the traces of all ranks "
                "shows which rank waits for which)"
            )
        ),
    )


def _throttling(cause: str, analysis: Analysis, usage: Usage) -> Finding | None:
    """Clocks held down for one kind of reason. Precondition: the clock fell, where its readings tell that."""
    held = [(one, share) for one in usage.devices if (share := _share(one, cause)) >= THROTTLED]
    if not held:
        return None
    worst, share = max(held, key=lambda one: one[1])
    reasons = ", ".join(
        f"{reason.reason} {percent(reason.fraction)}"
        for reason in worst.throttled
        if _cause(reason.reason) == cause
    )
    lost = worst.clock_loss_fraction
    compute = shares(analysis.bound_breakdown).get("compute", 0.0)
    warmest = worst.gauges.get("temperature_c") if cause == "heat" else None
    heat = f"; it reached {warmest.highest:.0f} °C" if warmest is not None else ""
    if lost is not None and lost < _LOST:
        return None
    clock = f"; this lowered its clock by {percent(lost)} on average" if lost else ""
    others = f"; {counted(len(held) - 1, 'more GPU')} too" if len(held) > 1 else ""
    # Only what the arithmetic units bound goes as the clock; several reasons at once share what is lost.
    part = min(1.0, share / worst.throttled_fraction) if worst.throttled_fraction else 0.0
    # What went on after the last reading of a device is not known.
    saved = 0.0 if worst.ended else analysis.timed_s * (lost or 0.0) * part * compute
    until = " until its samples end" if worst.ended else ""
    command = _COMMANDS.get(cause, _SET_LIMIT)[device_kind(analysis) == "hip"]
    basis = (
        f"; {percent(compute)} of the time is compute-bound and scales with the clock"
        if lost and compute
        else ""
    )
    return Finding(
        title=f"{worst.device} is held back by {cause}",
        saves_s=saved or None,
        evidence=(
            f"{_meanwhile(usage)} {worst.device} was throttled for {percent(share)} of the "
            f"time{until} ({reasons})"
            f"{clock}{basis}{others}"
        ),
        suggestion=(
            f"{_REMEDIES[cause].format(command)}{_limit(worst) if cause == 'its power limit' else heat}"
        ),
    )


def _low_utilization(analysis: Analysis, usage: Usage) -> Finding | None:
    """A GPU that is idle for much of the time, where no trace of it says why."""
    if analysis.idle_breakdown is not None:
        return None
    waiting = [one for one in usage.devices if one.device in usage.own and _load_known(one)]
    if not waiting:
        return None
    most = max(waiting, key=lambda one: one.gauges["gpu_utilization"].mean)
    share = most.gauges["gpu_utilization"].mean
    if share >= BUSY:
        return None
    return Finding(
        title=f"Keep {most.device} busy",
        saves_s=(1 - share) * analysis.timed_s or None,
        evidence=(
            f"{_meanwhile(usage)} a kernel ran on {most.device} for {percent(share)} of the time; "
            "without a trace the cause is unknown"
        ),
        suggestion="a trace of the device (rooflines profile), more loader workers, larger batches",
    )


def _nearly_full(analysis: Analysis, usage: Usage) -> Finding | None:
    """Memory of a device, or of the host, that is about to run out."""
    full = []
    for one in usage.devices:
        used = one.gauges.get("memory_used_bytes")
        total = one.gauges.get("memory_total_bytes")
        of_host = analysis.environment.memory_bytes if one.device == HOST else None
        whole = total.highest if total is not None else of_host
        if used is not None and whole and used.highest >= NEARLY_FULL * whole:
            full.append((one.device, used.highest, whole))
    if not full:
        return None
    device, used_bytes, whole = max(full, key=lambda one: one[1] / one[2])
    swaps = (
        "; the system will write to its swap"
        if device == HOST
        else ", including what torch's allocator keeps for reuse"
    )
    return Finding(
        title=f"The memory of {'this machine' if device == HOST else device} is nearly full",
        evidence=(
            f"{_meanwhile(usage)} {binary_bytes(used_bytes)} of {binary_bytes(whole)} were in use "
            f"({percent(used_bytes / whole)}){swaps}"
        ),
        suggestion="a smaller batch, activation checkpointing, or a lower precision",
    )


def _swapping(analysis: Analysis, usage: Usage) -> Finding | None:
    """A process that waits for its own memory to come back from a disk."""
    host = usage.of(HOST)
    if host is None or "process_major_faults" not in host.counts:
        return None
    pages = host.counts["process_major_faults"]
    time_s = host.counted_s["process_major_faults"]
    if pages < PAGES_PER_S * max(1.0, time_s):
        return None
    return Finding(
        title="Keep the memory of the process out of the swap",
        evidence=(
            f"{_meanwhile(usage)} {pages:,.0f} pages had to be read from disk in "
            f"{seconds(time_s)} (major page faults); files "
            "that are mapped and read once count too, and are harmless"
        ),
        suggestion="fewer loader workers, less of the data set in memory, or more memory",
    )


_RULES: tuple[Callable[[Analysis, Usage], Finding | None], ...] = (
    _uncorrected_errors,
    _imbalance,
    *(functools.partial(_throttling, cause) for cause in _CAUSES),
    _low_utilization,
    _nearly_full,
    _swapping,
)


def _cause(reason: str) -> str:
    """What a driver's reason for lower clocks is about."""
    return next(
        (cause for cause, words in _CAUSES.items() if any(word in reason for word in words)), "its driver"
    )


def _share(one: DeviceUsage, cause: str) -> float:
    """The longest that a reason of this kind held the clocks down, as a share of the time in which the device
    was read."""
    return max((reason.fraction for reason in one.throttled if _cause(reason.reason) == cause), default=0.0)


def _load_known(one: DeviceUsage) -> bool:
    """Whether it was read how busy a device was, and to the end."""
    return "gpu_utilization" in one.gauges and not one.ended


def _meanwhile(usage: Usage) -> str:
    return (
        "while the steps were timed" if usage.window == "timed pass" else f"during {seconds(usage.window_s)}"
    )


def _limit(one: DeviceUsage) -> str:
    limit = one.gauges.get("power_limit_w")
    power = one.gauges.get("power_w")
    drew = f"; it drew {si(power.mean, 'W')}" if power is not None else ""
    return f"{drew} of {si(limit.end, 'W')}" if limit is not None and drew else ""
