"""A page as one HTML file that opens without a network, as interactive as its blocks allow.

``templates/`` decides how it looks. Everything that came from a trace is escaped: as HTML by Jinja, as XML in
a figure, and the data of the scripts are in base64.
"""

from __future__ import annotations

import re
from functools import partial
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from rooflines.reports.charts.palette import BOUNDS, COLORED, INK, THEMES, category_color
from rooflines.reports.document import Figure, Page, Plain
from rooflines.reports.render.figures import page_svg
from rooflines.reports.render.grid import drawn, packed, slug
from rooflines.units import percent


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` and return it."""
    path.write_text(render(page, path.parent), encoding="utf-8")
    return path


def render(page: Page, directory: Path | None = None) -> str:
    """The page as text, with links to other pages as from ``directory``."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    # A tenth of the scripts is their indentation.
    environment.filters["flush"] = lambda text: re.sub(r"\n +", "\n", text)
    return environment.get_template("page.html.j2").render(
        page=page,
        sections=[section for section in page.sections if section.of_full_form()],
        drawn=drawn,
        picture_of=partial(_picture, page),
        link=lambda file: (
            quote(Path(relpath(file, directory)).as_posix()) if directory and Path(file).is_file() else ""
        ),
        percent=percent,
        ink=INK,
        bounds=BOUNDS,
        categories={
            name: {theme: category_color(name, theme) for theme in THEMES} for name in sorted(COLORED)
        },
    )


# --- figures ----------------------------------------------------------------------------------------------


def _picture(page: Page, figure: Figure) -> Plain:
    """A figure as the template lays it out: for windows of any size, or for wide and for narrow ones, with
    what its script knows."""
    drawing, number = figure.drawing, page.figures().index(figure)
    sizes = ("wide", "narrow") if len(drawing.widths_in) > 1 else ("any",)
    widths = zip(sizes, drawing.widths_in, strict=True)
    svgs = {size: page_svg(drawing, width, f"{figure.name[0]}{number}{size[0]}") for size, width in widths}
    facts, lines = drawing.page_facts(), dict[str, int]()
    # Many marks share a line, so each line is written once.
    texts = {
        key: [
            lines.setdefault(line, len(lines))
            for line in (mark.text[0], *(f"{name}: {said}" for name, said in mark.text[1]))
        ]
        for key, mark in drawing.page_marks().items()
        if mark.text
    }
    switches: Plain = {
        "categories": [],
        "roofs": [],
        "ranks": [],
        "devices": [],
        "focus": "",
        **drawing.page_switches(),
    }
    return {
        **switches,
        "size": sizes[0],
        "svg": svgs[sizes[0]],
        "narrow": packed(svgs["narrow"]) if "narrow" in svgs else "",
        "facts": packed({**facts, "said": [*lines], "texts": texts}) if facts or texts else "",
        "zooms": "x" in facts,
        "categories": [(name, slug(name)) for name in switches["categories"]],
    }
