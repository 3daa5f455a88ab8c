"""The page of a step with changes."""

from __future__ import annotations

from rooflines.reports.document import Column, Page, Paragraph, section, table
from rooflines.reports.words.sentences import replay_words
from rooflines.roofline.replay.what_if import WhatIf
from rooflines.units import percent, seconds


def page(found: WhatIf) -> Page:
    """Return the page of ``rooflines whatif``: each change alone, and the step after it."""
    of = "step" if found.per == "step" else "trace"
    last_s = found.changes[-1].step_s if found.changes else found.step_s
    columns = (
        Column("change", format="text", least=20),
        Column("alone", "s", "scaled", help="what the step gains by this change alone"),
        Column(of, "s", "scaled", help="with this change and those above it"),
        Column("of now", "%", "share", help="the same, as a part of the step as it is"),
    )
    rows = [
        (one.change, one.alone_s, one.step_s, one.step_s / found.step_s if found.step_s else None)
        for one in found.changes
    ]
    changes = table("changes", columns, rows, "Changes", show="always")
    whole = "A step takes" if of == "step" else "The trace takes"
    part = percent(last_s / found.step_s if found.step_s else 1.0)
    return Page(
        kind="whatif",
        name=f"Changes of {found.workload.name}",
        title=" · ".join(filter(None, (found.workload.name, found.environment.device_name))),
        verdict=f"{whole} {seconds(found.step_s)}; with these changes about {seconds(last_s)} ({part}).",
        sections=(
            section("changes", "Changes, one after another", changes),
            section("method", "Method", Paragraph(replay_words(found.replay, of), show="always")),
        ),
    )
