"""The devices' timeline for the page: what its script draws, every text escaped for plotly and every colour by theme."""

from __future__ import annotations

from typing import Any

import msgspec

from rooflines.reports.html_chart import plotly_text
from rooflines.reports.palette import INK, THEMES
from rooflines.reports.usage_chart import Timeline


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """The timeline as plain containers; a line that is not the first of its device in a row is marked as ``second``."""
    plain: dict[str, Any] = msgspec.to_builtins(timeline)
    for row in plain["rows"]:
        seen: set[str] = set()
        row |= {"name": plotly_text(row["name"]), "unit": plotly_text(row["unit"])}
        for line in row["lines"]:
            line["second"] = line["device"] in seen
            seen.add(line["device"])
            line["name"] = plotly_text(line["name"])
    plain["colours"] = {theme: msgspec.to_builtins(INK[theme]) for theme in THEMES}
    return plain
