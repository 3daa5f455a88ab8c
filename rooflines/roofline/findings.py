"""Ranked advice: what to change first, the seconds a step it could save at most, the evidence, and a command to try.

Every finding is computed from the analysis, names the figures it rests on, and claims no more than the distance to a bound that was
measured. Each rule is one function; ``find`` runs them all and keeps the largest.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Analysis, Finding, OperatorRow
from rooflines.roofline.input_advice import load_faster
from rooflines.roofline.verdict import efficiency_of, plural, runs
from rooflines.units import percent, seconds, si

# What is below this share of a step is not worth a sentence.
WORTH = 0.02
MOST = 6
# A device that is idle for less of a step is as busy as one can ask.
IDLE = 0.05


def find(analysis: Analysis) -> tuple[Finding, ...]:
    """The findings of ``analysis``, largest saving first, in seconds of the timed (unprofiled) step."""
    span = analysis.timeline.span_s if analysis.timeline is not None else 0.0
    if not span:
        return ()
    if analysis.coverage is not None and analysis.coverage.shapes_recorded is False:
        # The few operators with a count, such as views, say nothing of the others.
        analysis = msgspec.structs.replace(analysis, operators=())
    # The trace divides the step, the timed pass says how long it is.
    scale = min(1.0, analysis.steps.median_s / span) if analysis.steps and span else 1.0
    # What happens only once is no advice for a step.
    rules = (load_faster,) if analysis.basis.start_up else _RULES
    found = [finding for rule in rules if (finding := rule(analysis, scale)) is not None and finding.saves_s >= WORTH * span * scale]
    more = [_MORE_STEPS] if analysis.basis.start_up else []
    return (*sorted(found, key=lambda finding: -finding.saves_s)[:MOST], *more)


_MORE_STEPS = Finding(
    title="Record more steps",
    saves_s=0.0,
    evidence="the only step contains start-up, so its times do not show what a step takes",
    suggestion="a program that makes at least five steps",
)


# What a repeated run should not take over: its directory, its formats, its silence.
_DROPPED = {"--output": 1, "-o": 1, "--formats": 1, "--quiet": 0, "-q": 0, "--remeasure": 0}


# What an option of ours is called in code that we cannot reach into.
_IN_CODE = {
    "--compile": "in the code: torch.compile the model",
    "--channels-last": "in the code: memory_format=torch.channels_last for the model and its images",
    "--precision": "in the code: run the step under torch.autocast",
    "--batch-size": "a larger batch",
}


def _command(analysis: Analysis, option: str) -> str:
    """The command that made the run, with ``option`` added or replaced; for a run made from Python, the option alone.

    A script, a loop and a step function are the user's: for them it is what to change in the code.
    """
    if analysis.workload.source != "model":
        return _IN_CODE[option.split()[0]]
    words = shlex.split(analysis.command)
    if words[:2] != ["rooflines", "profile"]:
        return option
    flag, *value = option.split()
    own = len(words) if "--" not in words else words.index("--")  # what follows -- is the script's
    kept: list[str] = []
    skip = 0
    for word in words[:own]:
        name = word.partition("=")[0]
        if skip:
            skip -= 1
        elif name == flag:
            skip = len(value) if "=" not in word else 0
        elif name in _DROPPED:
            skip = _DROPPED[name] if "=" not in word else 0
        else:
            kept.append(word)
    return shlex.join([*kept, flag, *value, *words[own:]])


def _sum(rows: list[OperatorRow]) -> float:
    return sum(row.time_s for row in rows)


def _lower_precision(analysis: Analysis, scale: float) -> Finding | None:
    """A half precision whose matrix roof lies above the one in use."""
    if analysis.workload.precision not in ("fp32", "tf32"):
        return None
    ceilings = Ceilings(device="", kind="", ceilings=analysis.ceilings)
    rows = [row for row in analysis.operators if row.matrix_flops and row.precision in ("fp32", "tf32")]
    now = ceilings.compute(rows[0].precision or "fp32", "matrix") if rows else None
    better = [c for p in ("bf16", "fp16") if (c := ceilings.compute(p, "matrix")) is not None and c.precision == p]
    best = max(better, key=lambda c: c.value, default=None)
    if now is None or best is None or best.value < 1.2 * now.value:
        return None
    # Only the part that the compute roof explains shrinks with it; the bytes halve as well, which is not counted on.
    saved = sum(row.time_s * (1 - now.value / best.value) for row in rows if row.bound == "compute") * scale
    return Finding(
        title=f"Run the matrix work in {best.precision}",
        saves_s=saved,
        evidence=(
            f"convolutions and matrix products in {rows[0].precision} take {seconds(_sum(rows))} a traced step; "
            f"this device's {best.name} roof is {si(best.value, best.unit)} against {si(now.value, now.unit)} "
            f"({now.name}, {now.source.kind})"
        ),
        suggestion=_command(analysis, f"--precision amp-{best.precision}"),
    )


def _slow_category(category: str) -> Callable[[Analysis, float], Finding | None]:
    """Operators of one kind that stay far below their own bound."""

    def rule(analysis: Analysis, scale: float) -> Finding | None:
        rows = [
            row
            for row in analysis.operators
            if row.category == category and row.headroom_s is not None and row.efficiency is not None and row.bound != "transfer"
        ]
        headroom = sum(row.headroom_s or 0.0 for row in rows)
        efficiency = efficiency_of(tuple(rows))
        if efficiency is None or efficiency > 0.8:
            return None
        worst = max(rows, key=lambda row: row.headroom_s or 0.0)
        where = f"{worst.name} in {worst.module}" if worst.module else worst.name
        name = plural(category)
        return Finding(
            title=f"{name[0].upper()}{name[1:]} {runs(category)} at {percent(efficiency)} of the bound",
            saves_s=headroom * scale,
            evidence=(
                f"{seconds(_sum(rows))} a traced step where the roofline allows {seconds(_sum(rows) - headroom)}; "
                f"the most is lost in {where} ({worst.shapes}): {seconds(worst.time_s)}, "
                f"{percent(worst.efficiency or 0.0)} of its bound"
            ),
            suggestion=_remedy(category, analysis),
        )

    return rule


def _remedy(category: str, analysis: Analysis) -> str:
    if (
        category in ("convolution", "normalisation", "reduction")
        and not analysis.workload.channels_last
        and analysis.workload.image_size
    ):
        return _command(analysis, "--channels-last")
    return _command(analysis, _more_per_launch(analysis))


def _more_per_launch(analysis: Analysis) -> str:
    """The option that makes the device do more for each call of the framework."""
    return f"--batch-size {2 * (analysis.workload.batch_size or 1)}" if analysis.workload.compiled else "--compile"


def _processor_idle(analysis: Analysis, scale: float) -> Finding | None:
    """Python and the framework between the operators of a CPU."""
    timeline = analysis.timeline
    assert timeline is not None
    # What the data loader takes of it is no matter of the host.
    idle_s = timeline.idle_s - (analysis.bound_breakdown or {}).get("input", 0.0)
    if analysis.idle_breakdown is not None or not timeline.span_s or idle_s < IDLE * timeline.span_s:
        return None
    share = percent(idle_s / timeline.span_s)
    return Finding(
        title="Keep the device busy",
        saves_s=idle_s * scale,
        evidence=f"for {share} of a traced step ({seconds(idle_s)}) no operator runs: Python and the framework are at work",
        suggestion=_command(analysis, _more_per_launch(analysis)),
    )


# Why a device is idle -> what to do about it, what the host did meanwhile, and what to try where no option of ours helps.
_IDLE = {
    "host_bound_s": ("Keep the device busy", "the host had not launched anything yet: Python and the framework were at work", None),
    "synchronisation_s": (
        "Let the host run ahead of the device",
        "the host was waiting for the device, so that the device then waited for the host",
        "no .item(), .cpu(), print of a tensor or synchronize() inside the step; copies with non_blocking=True",
    ),
    "kernel_wait_s": (
        "Launch less often",
        "work had been launched and had not begun",
        'larger launches, or a CUDA graph: torch.compile(mode="reduce-overhead")',
    ),
}


def _device_idle(cause: str) -> Callable[[Analysis, float], Finding | None]:
    """A device that has nothing to do, for one cause."""

    def rule(analysis: Analysis, scale: float) -> Finding | None:
        timeline, idle_s = analysis.timeline, (analysis.idle_breakdown or {}).get(cause, 0.0)
        assert timeline is not None
        if idle_s < IDLE * timeline.span_s or not idle_s:
            return None
        title, meanwhile, remedy = _IDLE[cause]
        share = percent(idle_s / timeline.span_s)
        return Finding(
            title=title,
            saves_s=idle_s * scale,
            evidence=f"for {share} of a traced step ({seconds(idle_s)}) the device ran nothing: {meanwhile}",
            suggestion=remedy or _command(analysis, _more_per_launch(analysis)),
        )

    return rule


def _exposed_communication(analysis: Analysis, scale: float) -> Finding | None:
    """Communication that no computation hides."""
    timeline = analysis.timeline
    assert timeline is not None
    exposed_s = timeline.exposed_communication_s
    if not exposed_s:
        return None
    return Finding(
        title="Hide the communication behind computation",
        saves_s=exposed_s * scale,
        evidence=(
            f"of {seconds(timeline.communication_s)} of communication a traced step {seconds(exposed_s)} run while nothing is "
            "computed; part of it may be waiting for a slower rank, which only the traces of all ranks tell"
        ),
        suggestion="smaller buckets (DistributedDataParallel(bucket_cap_mb=...)) or prefetching (FSDP); rooflines analyze on all ranks",
    )


def _small_operators(analysis: Analysis, scale: float) -> Finding | None:
    """Operators whose work is less than the cost of starting them."""
    rows = [row for row in analysis.operators if row.bound == "latency"]
    headroom = sum(row.headroom_s or 0.0 for row in rows)
    calls = sum(row.calls for row in rows)
    optimizer = sum(row.headroom_s or 0.0 for row in rows if row.phase == "optimizer")
    advice = _command(analysis, _more_per_launch(analysis))
    if optimizer > headroom / 2:
        advice = "a foreach or fused optimizer (torch.optim.SGD(..., fused=True)) instead of one small operator per parameter"
    return Finding(
        title="Fuse the small operators",
        saves_s=headroom * scale,
        evidence=f"{calls:,.0f} calls a step do less work than it takes to start them: {seconds(_sum(rows))} a traced step",
        suggestion=advice,
    )


_RULES: tuple[Callable[[Analysis, float], Finding | None], ...] = (
    _lower_precision,
    *(
        _slow_category(c)
        for c in ("convolution", "matmul", "attention", "normalisation", "element-wise", "reduction", "copy", "optimizer")
    ),
    load_faster,
    _processor_idle,
    *(_device_idle(cause) for cause in _IDLE),
    _exposed_communication,
    _small_operators,
)
