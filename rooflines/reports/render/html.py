"""A page as one HTML file that opens without a network, as interactive as its blocks allow.

``templates/`` decides how it looks. Everything that came from a trace is escaped three times over where it has to be: as HTML by
Jinja, as JSON inside the page, and as plotly text, which reads tags of its own.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from functools import cache
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import structs

from rooflines.reports.charts.draw import WIDTH_IN, draw
from rooflines.reports.charts.figure import STEPS_GROUP, as_svg, drawn_steps
from rooflines.reports.charts.interactive import chart_data, roof_groups, timeline_data
from rooflines.reports.charts.kinds import CeilingMarks, Rooflines, StepTimes
from rooflines.reports.charts.palette import BOUNDS, COLOURED, INK, THEMES, category_colour
from rooflines.reports.charts.roofline import Chart, roofline_chart
from rooflines.reports.charts.usage import Timeline
from rooflines.reports.document import Bar, Block, Cell, Column, Facts, Figure, Findings, Page, Paragraph, Row, Table, texts, value_of
from rooflines.reports.words.text import shorten_name, shorten_path, shorten_shapes
from rooflines.roofline.analysis import CATEGORIES, Analysis
from rooflines.units import percent, seconds

SHOWN_AT_FIRST = 50
_MODULES_OPEN = 40
_HERE = Path(__file__).parent
# How wide the words of a long table are on a page; the pointer shows them in full.
_WIDTHS = {"name": 28, "path": 26, "shapes": 24}
_CUT = {"name": shorten_name, "path": shorten_path, "shapes": shorten_shapes}
# A figure for a window of this size: on a phone it is drawn again, so that its type is as large.
_SIZES_IN = {"wide": WIDTH_IN, "narrow": 4.2}
_ID = re.compile(r'(id="|url\(#|href="#)')
_MARK = re.compile(r"(<use [^>]*?)/>")
_POINT = re.compile(r'(<g id="[^"]*?point-(\d+)">)')


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page, path.parent), encoding="utf-8")
    return path


def render(page: Page, directory: Path = Path()) -> str:
    """The page as text, with links as from ``directory``."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    figures = {kind_of(figure): figure.drawing for figure in page.figures()}
    chart = roofline_chart(figures["roofline"].analysis) if "roofline" in figures else None  # type: ignore[attr-defined]
    usage = figures.get("timeline")
    colours = {name: {theme: category_colour(name, theme) for theme in THEMES} for name in _colours(page)}
    return environment.get_template("page.html.j2").render(
        page=page,
        sections=[section for section in page.sections if any(block.show != "brief" for block in section.blocks)],
        kind_of=kind_of,
        drawn=_drawn,
        svg=_svg,
        sizes=lambda figure: ("any",) if isinstance(figure.drawing, CeilingMarks) else _SIZES_IN,
        link=lambda file: quote(Path(relpath(file, directory)).as_posix()) if Path(file).is_file() else "",
        chart=lambda _: chart,
        roof_groups=roof_groups,
        slug=_slug,
        percent=percent,
        shown_at_first=SHOWN_AT_FIRST,
        ink=INK,
        bounds=BOUNDS,
        categories=colours,
        plotly=packed_plotly() if chart or usage else "",
        chart_json=embedded_json(chart_data(chart)) if chart else "",
        usage_json=embedded_json(timeline_data(usage)) if isinstance(usage, Timeline) else "",
    )


@cache
def packed_plotly() -> str:
    """The script that draws the interactive charts, packed by gzip in base 64: plotly.js with its basic traces only."""
    return base64.b64encode(gzip.compress((_HERE / "vendor" / "plotly-basic.min.js").read_bytes(), mtime=0)).decode()


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def kind_of(block: Block) -> str:
    """What the template has a macro for."""
    match block:
        case Paragraph() | Facts() | Table():
            return block.kind
        case Bar():
            return "bar"
        case Findings():
            return "findings"
        case Figure(drawing=Rooflines(interactive=True)):
            return "roofline"
        case Figure(drawing=Timeline()):
            return "timeline"
    return "picture"


def _colours(page: Page) -> list[str]:
    """The categories and backends whose colours the page needs."""
    used = dict.fromkeys(_slug(row.colour) for table in page.tables() for row in table.rows if row.colour)
    return [*CATEGORIES, *(name for name in used if name not in CATEGORIES)]


def _slug(colour: str) -> str:
    """The colour as the style sheet knows it."""
    return colour if colour in COLOURED else "other"


# --- tables ------------------------------------------------------------------------------------------------------------------------


def _drawn(table: Table) -> dict[str, Any]:
    """A table as the template lays it out."""
    found = texts(table, aligned=True)
    columns = [structs.replace(column, unit=unit, key=column.name) for column, unit in zip(found.columns, found.units, strict=True)]
    words = next((index for index, column in enumerate(columns) if not column.numeric), 0)
    shown = table.of_form(full=True)
    depths = [*(row.depth for row in shown), 0]
    levels = (level for level in range(1, max(depths) + 1) if sum(depth <= level for depth in depths[:-1]) <= _MODULES_OPEN)
    open_to = max(levels, default=1)
    rows = []
    for number, (row, line) in enumerate(zip(shown, found.rows, strict=True)):
        has_children = depths[number + 1] > row.depth
        detail = row.detail if table.kind == "main" else ()
        following = number + 1 < len(shown) and shown[number + 1].muted
        cells = () if row.heading else zip(found.places, columns, line, strict=True)
        rows.append(
            {
                "cells": [
                    _cell(table, row, place, column, text, is_name=at == words) for at, (place, column, text) in enumerate(cells)
                ],
                "classes": "muted" if row.muted else "here" if following else "",
                "heading": line[0] if row.heading else "",
                "detail": detail,
                "remarks": [] if detail else [part.text for part in row.detail if isinstance(part, Paragraph)],
                "depth": row.depth,
                "has_children": has_children,
                "is_open": has_children and row.depth < open_to,
                "is_hidden": row.depth > open_to,
            }
        )
    return {
        "title": table.title, "caption": table.caption or table.title, "sortable": table.kind == "main", "sorted_by": table.sorted_by,
        "columns": columns, "rows": rows, "total": found.total, "note": table.note_with(columns),
    }  # fmt: skip


def _cell(table: Table, row: Row, place: int, column: Column, text: str, *, is_name: bool) -> dict[str, Any]:
    given = row.cells[place] if place < len(row.cells) else ""
    cell = given if isinstance(given, Cell) else Cell(value=given)
    inset = not column.numeric and text.startswith(" ")
    sort = cell.sort if cell.sort is not None else value_of(given)
    sort = float(f"{sort:.6g}") if isinstance(sort, float) else sort
    shown = text if column.numeric else _CUT.get(column.format, lambda words, _: words)(text, _WIDTHS.get(column.format, 0))
    hover = "" if cell.hover == shown else cell.hover or (text if shown != text else "")
    classes = (("number", column.numeric), ("bar", cell.bar is not None), ("inset", inset), ("quiet", column.quiet))
    return {
        "text": shown,
        "classes": " ".join(name for name, on in classes if on),
        # The script sorts words by what the pointer or the cell shows where nothing else is said.
        "sort": None if isinstance(sort, str) and sort == (hover or shown) else "" if sort is None else sort,
        "hover": hover,
        "bar": cell.bar,
        "colour": _slug(row.colour) if is_name and row.colour and not row.muted and not inset else "",
        "letter": cell.letter,
        "warning": cell.warning,
        "opens": bool(is_name and table.kind == "main" and row.detail),
        "branch": is_name and table.kind == "tree",
    }


# --- figures -----------------------------------------------------------------------------------------------------------------------


def _svg(figure: Figure, dark: bool, size: str) -> str:
    """The figure's SVG for the page: with ids that no other figure has, and the operators' facts as what a pointer shows."""
    text = as_svg(draw(figure.drawing, width_in=_SIZES_IN.get(size, WIDTH_IN), dark=dark))
    text = text[text.index("<svg") :]
    match figure.drawing:
        case Rooflines(analysis=analysis):
            text = _with_titles(roofline_chart(analysis), text)
        case StepTimes(analysis=analysis):
            text = _with_step_titles(analysis, text)
    own = f"{figure.name}-{'dark' if dark else 'light'}-{size}-"
    return _ID.sub(lambda found: found[1] + own, text)


def _with_step_titles(analysis: Analysis, text: str) -> str:
    titles = [f"step {number}: {seconds(time_s)}" for number, time_s in drawn_steps(analysis)]
    before, group, marks = text.partition(f'<g id="{STEPS_GROUP}">')
    waiting = iter(titles)
    return before + group + _MARK.sub(lambda found: f"{found[1]}><title>{next(waiting)}</title></use>", marks, count=len(titles))


def _with_titles(chart: Chart | None, text: str) -> str:
    points = {} if chart is None else {point.row: point for point in chart.points}

    def titled(found: re.Match[str]) -> str:
        point = points.get(int(found[2]))
        if point is None:
            return found[0]
        lines = [f"{point.category}: {point.name}", *(f"{name}: {value}" for name, value in point.hover)]
        return f"{found[1]}<title>{html.escape(chr(10).join(lines), quote=False)}</title>"

    return _POINT.sub(titled, text)
