"""The figures of a page as files."""

from __future__ import annotations

from pathlib import Path

from rooflines.reports.charts.draw import draw
from rooflines.reports.charts.figure import as_png, as_svg
from rooflines.reports.document import Page

DIRECTORY = "figures"


def write_figures(page: Page, directory: Path) -> tuple[Path, ...]:
    """Every figure of ``page`` as NAME.svg and NAME.png in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures():
        picture = draw(figure.drawing)
        for suffix, content in ((".svg", as_svg(picture).encode()), (".png", as_png(picture))):
            path = directory / f"{figure.name}{suffix}"
            path.write_bytes(content)
            written.append(path)
    return tuple(written)
