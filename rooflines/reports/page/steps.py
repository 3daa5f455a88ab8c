"""The steps of a run: the time of each timed step, and each traced step by what was running."""

from __future__ import annotations

from rooflines.reports.charts.curves import StepTimesCurve
from rooflines.reports.document import (
    TIME,
    Bar,
    BarRow,
    CellValue,
    Column,
    Figure,
    Section,
    Table,
    said,
    section,
    table,
    timed_parts,
)
from rooflines.reports.words import sentences
from rooflines.roofline.advise.verdict import steps_differ
from rooflines.roofline.analysis import Analysis, TracedStep
from rooflines.units import seconds

# More traced steps than this are a sweep, not a table.
MOST_STEPS = 50


# What ran, by its key in the breakdown of a step: its name, the pattern that it is drawn with, and what it
# means.
_KINDS = {
    "kernel_s": ("kernel", "compute", "kernels of the device"),
    "memcpy_s": ("memcpy", "transfer", "copies that no kernel hides"),
    "memset_s": ("memset", "memory", "fills that neither kernels nor copies hide"),
    "communication_s": ("communication", "communication", "exchange between devices that nothing else hides"),
    "runtime_s": ("runtime calls", "host", "the host in the runtime while no device ran anything"),
    "dataloader_s": ("data loader", "input", "the host in the data loader"),
    "cpu_s": ("CPU operators", "inefficient", "operators on the host while no device ran anything"),
    "other_s": ("other", "idle", "nothing that was recorded"),
}


def steps_section(analysis: Analysis, under: str) -> Section:
    """The step times of the timed pass and the traced steps by part, below the heading ``under`` in a short
    form."""
    figure = None
    if analysis.steps and analysis.steps.durations_s:
        figure = Figure(
            name="steps",
            drawing=StepTimesCurve(steps=analysis.steps),
            caption="The timed steps in the order run.",
            note="The dark strip is the 95 % interval of the median, the light one the 10th to 90th "
            "percentile. The axis does not "
            "start at zero.",
        )
    texts = sentences.steps_sentences(analysis)
    return section(
        "steps", "Step times", figure, *said(texts), steps_bar(analysis), steps_table(analysis), under=under
    )


def _shown(analysis: Analysis) -> tuple[tuple[TracedStep, ...], list[str]]:
    """The traced steps, and what ran in any of them; nothing where there are fewer than two."""
    steps = analysis.traced_steps[:MOST_STEPS] if len(analysis.traced_steps) > 1 else ()
    return steps, [kind for kind in _KINDS if any(step.breakdown.get(kind) for step in steps)]


def steps_bar(analysis: Analysis) -> Bar | None:
    """A bar for each traced step, all on the scale of the longest; None where there are fewer than two."""
    (steps, kinds), number = _shown(analysis), len(analysis.traced_steps)
    if not kinds:
        return None
    longest_s = max(step.duration_s for step in steps)
    rows = []
    for step in steps:
        times = ((_KINDS[kind][0], step.breakdown[kind], *_KINDS[kind][1:]) for kind in kinds)
        rows.append(
            BarRow(label=step.name, text=seconds(step.duration_s), parts=timed_parts(times, longest_s))
        )
    more = f", the first {MOST_STEPS} of {number}" if number > MOST_STEPS else ""
    return Bar(
        name="steps-by-part",
        caption=f"Traced steps by what was running, on the scale of the longest{more}",
        rows=tuple(rows),
    )


def steps_table(analysis: Analysis) -> Table | None:
    """The traced steps, each with its time by what was running; None where there are fewer than two."""
    steps, kinds = _shown(analysis)
    if not kinds:
        return None
    by_kind = (Column(_KINDS[kind][0], "s", "scaled", priority=1) for kind in kinds)
    columns = (Column("step", format="text"), TIME, *by_kind)
    rows: list[tuple[CellValue, ...]] = [
        (step.name, step.duration_s, *(step.breakdown[kind] for kind in kinds)) for step in steps
    ]
    show = "always" if steps_differ(analysis) else "full"
    return table("traced-steps", columns, rows, "The traced steps, by what was running", show=show)
