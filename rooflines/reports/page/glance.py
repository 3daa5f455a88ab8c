"""Records of the public API at a glance: the few lines that ``print`` shows, and the cell of a notebook.

``rooflines.shown`` imports this by name.
"""

from __future__ import annotations

from html import escape

from rooflines.profiler.records import Run
from rooflines.reports.page.statements import Shown, lines
from rooflines.reports.words.text import joined
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.dry_run.count import Count
from rooflines.roofline.predict.forecast import Forecast
from rooflines.serial import read_json_if_whole
from rooflines.units import percent

_ROWS = 10


def text(record: Shown) -> str:
    """The title, the verdict, and of an analysis the first findings, a line each."""
    return "\n".join(lines(record))


def html(record: Shown) -> str:
    """The lines of ``text``; of an analysis also the time by bound and the roofline, of other records the
    first rows."""
    if isinstance(record, Run):
        record = read_json_if_whole(record.directory / "analysis.json", Analysis) or record
    title, *more = lines(record)
    parts = [f"<p><b>{escape(title)}</b></p>", *(f"<p>{escape(line)}</p>" for line in more)]
    if isinstance(record, Analysis):
        parts += [_breakdown(record), _roofline(record)]
    elif isinstance(record, Comparison | Count | Forecast):
        parts.append(
            record.to_dataframe().head(_ROWS).dropna(axis="columns", how="all").to_html(index=False, border=0)
        )
    return joined("\n", *parts)


def _breakdown(analysis: Analysis) -> str:
    """A table with a bar for each class of bounds; empty where the step is not divided."""
    from rooflines.reports.page.run import bound_bar

    bar = bound_bar(analysis)
    if not bar:
        return ""
    rows = "".join(
        f"<tr><td>{escape(part.name)}</td><td>{escape(part.text)}</td><td>{percent(part.share)}</td>"
        '<td style="width:20em"><div '
        f'style="width:{part.share * 100:.1f}%;height:.8em;background:#6e7781"></div></td></tr>'
        for part in bar.rows[0].parts
    )
    return f"<table><caption>{escape(bar.caption)}</caption>{rows}</table>"


def _roofline(analysis: Analysis) -> str:
    """The roofline as SVG; empty where no operator has a place in it."""
    from rooflines.reports.charts.paper import as_svg, draw
    from rooflines.reports.page.roofline import roofline_of

    chart = roofline_of(analysis)
    if not chart:
        return ""
    svg = as_svg(draw(chart))
    return svg[svg.index("<svg") :]
