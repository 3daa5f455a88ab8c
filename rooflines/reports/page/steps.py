"""The steps of a run: the time of each timed step, and each traced step by what was running."""

from __future__ import annotations

from rooflines.reports.charts.curves import StepTimesCurve
from rooflines.reports.document import (
    TIME,
    Block,
    CellValue,
    Column,
    Figure,
    Section,
    Table,
    said,
    section,
    table,
)
from rooflines.reports.words import sentences
from rooflines.roofline.advise.verdict import steps_differ
from rooflines.roofline.analysis import Analysis

# More traced steps than this are a sweep, not a table.
MOST_STEPS = 50


# What ran, by its key in the breakdown of a step: its name, and what it means.
_KINDS = {
    "kernel_s": ("kernel", "kernels of the device"),
    "memcpy_s": ("memcpy", "copies that no kernel hides"),
    "memset_s": ("memset", "fills that neither kernels nor copies hide"),
    "communication_s": ("communication", "exchange between devices that nothing else hides"),
    "runtime_s": ("runtime calls", "the host in the runtime while no device ran anything"),
    "dataloader_s": ("data loader", "the host in the data loader"),
    "cpu_s": ("CPU operators", "operators on the host while no device ran anything"),
    "other_s": ("other", "nothing that was recorded"),
}


def steps_section(analysis: Analysis, under: str, *parts: Block | None) -> Section:
    """The step times of the timed pass with the ``parts`` of a step, and the traced steps, below the heading
    ``under`` in a short form."""
    figure = None
    if analysis.steps and analysis.steps.durations_s:
        figure = Figure(
            name="steps",
            drawing=StepTimesCurve(steps=analysis.steps),
            note="Dark: 95 % interval of the median. Light: 10th to 90th percentile.",
        )
    first, *more = said(sentences.steps_sentences(analysis))
    return section(
        "steps",
        "Step times",
        figure,
        first,
        *parts,
        folded=(*more, steps_table(analysis)),
        fold="Warm-up and traced steps",
        under=under,
        columns=6,
    )


def steps_table(analysis: Analysis) -> Table | None:
    """The traced steps, each with its time by what was running; None where there are fewer than two."""
    steps = analysis.traced_steps[:MOST_STEPS] if len(analysis.traced_steps) > 1 else ()
    kinds = [kind for kind in _KINDS if any(step.breakdown.get(kind) for step in steps)]
    if not kinds:
        return None
    by_kind = (Column(_KINDS[kind][0], "s", "scaled", priority=1, help=_KINDS[kind][1]) for kind in kinds)
    columns = (Column("step", format="text"), TIME, *by_kind)
    rows: list[tuple[CellValue, ...]] = [
        (step.name, step.duration_s, *(step.breakdown[kind] for kind in kinds)) for step in steps
    ]
    show = "always" if steps_differ(analysis) else "full"
    return table("traced-steps", columns, rows, "The traced steps, by what was running", show=show)
