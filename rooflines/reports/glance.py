"""Records of the public API at a glance: the few lines that ``print`` shows, and the cell of a notebook.

``rooflines.shown`` imports this by name.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rooflines.profiler.records import Run
from rooflines.reports.words.sentences import confidence, headline, per, saving, subject
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.dry_run.count import Count
from rooflines.roofline.predict.forecast import Forecast
from rooflines.serial import read_json_if_whole
from rooflines.units import percent, seconds

if TYPE_CHECKING:
    from rooflines.roofline.ranks.records import RankAnalysis

_FINDINGS = 3
_ROWS = 10


def text(record: Analysis | Comparison | Count | Forecast | Run | RankAnalysis) -> str:
    """The title, the verdict, and of an analysis the time of a step and the first findings, a line each."""
    return "\n".join(_lines(record))


def html(record: Analysis | Comparison | Count | Forecast | Run | RankAnalysis) -> str:
    """The lines of ``text``; of an analysis also the time by bound and the roofline, of other records the
    first rows."""
    if isinstance(record, Run):
        record = read_json_if_whole(record.directory / "analysis.json", Analysis) or record
    title, *lines = _lines(record)
    parts = [f"<p><b>{escape(title)}</b></p>", *(f"<p>{escape(line)}</p>" for line in lines)]
    if isinstance(record, Analysis):
        parts += [_breakdown(record), _roofline(record)]
    elif isinstance(record, Comparison | Count | Forecast):
        parts.append(
            record.to_dataframe().head(_ROWS).dropna(axis="columns", how="all").to_html(index=False, border=0)
        )
    return "\n".join(part for part in parts if part)


def _lines(record: Analysis | Comparison | Count | Forecast | Run | RankAnalysis) -> list[str]:
    if isinstance(record, Run):
        return [subject(record.facts), f"{record.facts.status} run in {record.directory}"]
    if isinstance(record, Count):
        from rooflines.reports.views.count import totals

        return [
            f"{len(record.operators)} distinct operator calls on {record.tensors} tensors",
            totals(record),
        ]
    if isinstance(record, Comparison):
        return [f"{record.b.source} compared with {record.a.source}", record.verdict]
    if not isinstance(record, Analysis):
        from rooflines.reports.views import predict, ranks

        found = predict.page(record) if isinstance(record, Forecast) else ranks.page(record)
        return [found.title, found.verdict, *(found.said if isinstance(record, Forecast) else ())]
    lines = [subject(record), headline(record), *confidence(record)]
    if record.steps is not None:
        lines.append(f"Step time: {seconds(record.steps.median_s)} (median of {record.steps.count})")
    return lines + [
        f"{number}. {one.title}: {saving(one, record.whole_s, per(record))}"
        for number, one in enumerate(record.findings[:_FINDINGS], 1)
    ]


def _breakdown(analysis: Analysis) -> str:
    """A table with a bar for each class of bounds; empty where the step is not divided."""
    from rooflines.reports.views.run import bound_bar

    bar = bound_bar(analysis)
    if bar is None:
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
    from rooflines.reports.views.roofline import roofline_of

    chart = roofline_of(analysis)
    if chart is None:
        return ""
    svg = as_svg(draw(chart))
    return svg[svg.index("<svg") :]
