"""The report of a study as one page that opens without a network or scripts, and its figures as files beside it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from rooflines._version import __version__
from rooflines.reports.charts.figure import as_svg
from rooflines.reports.charts.palette import BOUNDS, INK, THEMES, category_colour
from rooflines.reports.charts.roofline import roofline_chart
from rooflines.reports.charts.study import as_png, draw
from rooflines.reports.document import Figure, Page, Rooflines, Table
from rooflines.reports.render.page import fill

_ID = re.compile(r'(id="|url\(#|href="#)')
_POINT = re.compile(r'(<g id="[^"]*?point-(\d+)">)')


def write(page: Page, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    path.write_text(render(page), encoding="utf-8")
    return path


def write_figures(page: Page, directory: Path) -> tuple[Path, ...]:
    """Every figure of ``page`` as NAME.svg and NAME.png in ``directory``."""
    directory.mkdir(exist_ok=True)
    written = []
    for figure in page.figures():
        picture = draw(figure)
        for suffix, content in ((".svg", as_svg(picture).encode()), (".png", as_png(picture))):
            path = directory / f"{figure.name}{suffix}"
            path.write_bytes(content)
            written.append(path)
    return tuple(written)


def render(page: Page) -> str:
    """The page as text."""
    return fill(
        "study.html.j2",
        page=page,
        figures={figure.name: {theme: _inline(figure, theme == "dark") for theme in THEMES} for figure in page.figures()},
        backends=_backends(page),
        is_table=lambda block: isinstance(block, Table),
        note=lambda block: block.note if isinstance(block, Rooflines) else "",
        colour=category_colour,
        ink=INK,
        bounds=BOUNDS,
        categories={},
        version=__version__,
    )


def _backends(page: Page) -> Sequence[str]:
    """The backends that the page colours, in the order of their first row."""
    return tuple(dict.fromkeys(row.backend for table in page.tables() for row in table.rows if row.backend))


def _inline(figure: Figure, dark: bool) -> str:
    """The figure's SVG for the page: with ids that no other figure has, and the operators' facts as what a pointer shows."""
    text = as_svg(draw(figure, dark=dark))
    text = text[text.index("<svg") :]
    if isinstance(figure, Rooflines):
        text = _with_titles(figure, text)
    own = f"{figure.name}-{'dark' if dark else 'light'}-"
    return _ID.sub(lambda found: found[1] + own, text)


def _with_titles(figure: Rooflines, text: str) -> str:
    chart = roofline_chart(figure.analysis)
    points = {} if chart is None else {point.row: point for point in chart.points}

    def titled(found: re.Match[str]) -> str:
        point = points.get(int(found[2]))
        if point is None:
            return found[0]
        lines = [f"{point.category}: {point.name}", *(f"{name}: {value}" for name, value in point.hover)]
        return f"{found[1]}<title>{html.escape(chr(10).join(lines), quote=False)}</title>"

    return _POINT.sub(titled, text)
