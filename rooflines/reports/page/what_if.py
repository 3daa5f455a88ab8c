"""The page of a step with changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rooflines.reports.charts.curves import Curves, CurveSeries
from rooflines.reports.charts.palette import SERIES_COLORS
from rooflines.reports.document import Column, Figure, Page, Paragraph, section, table
from rooflines.reports.page.statements import Said
from rooflines.reports.words.sentences import replay_words
from rooflines.reports.words.text import joined
from rooflines.roofline.predict.what_if import PARTS, WhatIf
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
        Column("enough", "%", "share", help="this part of the change gives 95 % of its gain"),
    )
    rows = [
        (one.change, one.alone_s, one.step_s, one.step_s / found.step_s if found.step_s else None, one.enough)
        for one in found.changes
    ]
    changes = table("changes", columns, rows, "Changes", show="always")
    whole = "A step takes" if of == "step" else "The trace takes"
    part = percent(last_s / found.step_s if found.step_s else 1.0)
    return Page(
        kind="whatif",
        name=f"Changes of {found.workload.name}",
        title=joined(" · ", found.workload.name, found.environment.device_name),
        verdict=f"{whole} {seconds(found.step_s)}; with these changes about {seconds(last_s)} ({part}).",
        sections=(
            section("changes", "Changes, one after another", changes, _curves(found, of)),
            section("method", "Method", Paragraph(replay_words(found.replay, of), show="always")),
        ),
    )


def said(found: WhatIf) -> Iterator[Said]:
    """What each change gives, for a summary."""
    for place, one in enumerate(found.changes):
        text = (
            f"{one.change}: alone {seconds(one.alone_s)}; with those before it {seconds(one.step_s)} remain."
        )
        yield Said("saving", text, (f"/changes/{place}/alone_s", f"/changes/{place}/step_s"))
    yield Said("confidence", replay_words(found.replay, found.per), ("/replay/error",))


def _curves(found: WhatIf, of: str) -> Figure:
    """The step with a part of each change, on top of those above it."""
    colors = zip(found.changes, itertools.cycle(SERIES_COLORS))
    percents = tuple(100 * part for part in PARTS)
    series = tuple(
        CurveSeries(name=one.change, x=percents, y=one.curve_s, color=color) for one, color in colors
    )
    drawing = Curves(x_title="part of the change, %", y_title=f"{of}, s", series=series)
    caption = f"The {of} with a part of each change. Where a line is level, something else limits it."
    return Figure(name="parts", caption=caption, drawing=drawing)
