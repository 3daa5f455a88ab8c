"""The steps of a run: the time of each timed step, and each traced step by what was running."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.reports.charts.curves import StepTimes
from rooflines.reports.document import Bar, BarRow, Column, Figure, Part, Section, Table, Value, said, section, table
from rooflines.reports.words import sentences
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.verdict import steps_differ
from rooflines.units import seconds

# More traced steps than this are a sweep, not a table.
MOST_STEPS = 50


class _Kind(NamedTuple):
    """What ran: its name, the pattern that it is drawn with, and what it means."""

    name: str
    pattern: str
    meaning: str = ""


_KINDS = {
    "kernel_s": _Kind("kernel", "compute", "kernels of the device"),
    "memcpy_s": _Kind("memcpy", "transfer", "copies that no kernel hides"),
    "memset_s": _Kind("memset", "memory", "fills that neither kernels nor copies hide"),
    "communication_s": _Kind("communication", "communication", "exchange between devices that nothing else hides"),
    "runtime_s": _Kind("runtime calls", "host", "the host in the runtime while the device ran nothing"),
    "dataloader_s": _Kind("data loader", "input", "the host in the data loader"),
    "cpu_s": _Kind("CPU operators", "far", "operators on the host while the device ran nothing"),
    "other_s": _Kind("other", "idle", "nothing that was recorded"),
}


def steps_section(analysis: Analysis, under: str) -> Section:
    """The step times of the timed pass and the traced steps by part, below the heading ``under`` in a short form."""
    figure = None
    if analysis.steps is not None and analysis.steps.durations_s:
        figure = Figure(
            name="steps", drawing=StepTimes(steps=analysis.steps), caption="The timed steps in the order run.",
            note="The dark strip is the 95 % interval of the median, the light one the 10th to 90th percentile. The axis does not "
            "start at zero.",
        )  # fmt: skip
    texts = sentences.steps_sentences(analysis)
    return section("steps", "Step times", figure, *said(texts), steps_bar(analysis), steps_table(analysis), under=under)


def _kinds(analysis: Analysis) -> dict[str, _Kind]:
    """What ran in any of the steps shown, by its key; empty where there are fewer than two."""
    steps = analysis.traced_steps[:MOST_STEPS]
    kinds = [kind for kind in steps[0].breakdown if any(step.breakdown[kind] for step in steps)] if len(steps) > 1 else []
    named = _KINDS if "kernel_s" in kinds else {**_KINDS, "cpu_s": _Kind("CPU operators", "compute")}
    return {kind: named.get(kind, _Kind(kind.removesuffix("_s"), "unknown")) for kind in kinds}


def steps_bar(analysis: Analysis) -> Bar | None:
    """A bar for each traced step, all on the scale of the longest; None where there are fewer than two."""
    steps, kinds = analysis.traced_steps[:MOST_STEPS], _kinds(analysis)
    longest_s = max((step.duration_s for step in steps), default=0.0)
    if not kinds or longest_s <= 0:
        return None

    def part(kind: _Kind, time_s: float) -> Part:
        return Part(name=kind.name, share=time_s / longest_s, text=seconds(time_s), pattern=kind.pattern, meaning=kind.meaning)

    rows = tuple(
        BarRow(
            label=step.name,
            text=seconds(step.duration_s),
            parts=tuple(part(kind, step.breakdown[key]) for key, kind in kinds.items() if step.breakdown[key] > 0),
        )
        for step in steps
    )
    more = f", the first {MOST_STEPS} of {len(analysis.traced_steps)}" if len(analysis.traced_steps) > MOST_STEPS else ""
    return Bar(name="steps-by-part", caption=f"Traced steps by what was running, on the scale of the longest{more}", rows=rows)


def steps_table(analysis: Analysis) -> Table | None:
    """The traced steps, each with its time by what was running; None where there are fewer than two."""
    kinds = _kinds(analysis)
    if not kinds:
        return None
    by_kind = (Column(kind.name, "s", "scaled", priority=1) for kind in kinds.values())
    columns = (Column("step", format="text"), Column("time", "s", "scaled"), *by_kind)
    rows: list[tuple[Value, ...]] = [
        (step.name, step.duration_s, *(step.breakdown[kind] for kind in kinds)) for step in analysis.traced_steps[:MOST_STEPS]
    ]
    show = "always" if steps_differ(analysis) else "full"
    return table("traced-steps", columns, rows, "The traced steps, by what was running", show=show)
