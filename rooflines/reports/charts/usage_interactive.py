"""The devices' timeline for the page: what its script draws, every text escaped for plotly and every colour by theme."""

from __future__ import annotations

from typing import Any

import msgspec

from rooflines.reports.charts.interactive import plotly_text
from rooflines.reports.charts.palette import INK, THEMES
from rooflines.reports.charts.usage import Timeline


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """The timeline as plain containers; a line that is not the first of its device in a row is marked as ``second``."""
    plain: dict[str, Any] = msgspec.to_builtins(timeline)
    for row in plain["rows"]:
        seen: set[str] = set()
        for line in row["lines"]:
            line["second"] = line["device"] in seen
            seen.add(line["device"])
            line["name"] = plotly_text(line["name"])
    plain["colours"] = {theme: msgspec.to_builtins(INK[theme]) for theme in THEMES}
    return plain
