"""What all figures share: sizes of text, and axes at a place of the paper in the ink of a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines.reports.charts.palette import Ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SANS = "DejaVu Sans"
# Matplotlib measures text with a face that it ships; this one is as wide as the Libertinus that a Typst document is set in.
SERIF = "STIXGeneral"
TEXT, SMALL = 7.5, 6.8
POINTS_PER_INCH = 72.0


def paper(width: float, height: float, ink: Ink) -> Figure:
    """An empty figure of this size in points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH), facecolor=ink.page)


def text_width(text: str, size: float, family: str) -> float:
    """The width of ``text`` in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(family=family, size=size), ismath=False)
    return float(width)


def axes_at(
    figure: Figure, place: tuple[float, float, float, float], ink: Ink, *, edge: str = "", size: float = SMALL, family: str = SANS,
    sides: tuple[str, ...] = ("left", "bottom"),
) -> Axes:  # fmt: skip
    """Axes at left, bottom, width and height in points, with lines on ``sides`` in the colour ``edge`` and ticks of this size."""
    width, height = (float(inches) * POINTS_PER_INCH for inches in figure.get_size_inches())
    left, bottom, across, up = place
    axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
    axes.set_facecolor(ink.page)
    for side, spine in axes.spines.items():
        spine.set(visible=side in sides, color=edge or ink.line, linewidth=0.6)
    axes.tick_params(
        which="major", length=3, width=0.6, color=ink.faint_roof, labelcolor=ink.text, labelsize=size, labelfontfamily=family
    )
    axes.tick_params(which="minor", length=1.7, width=0.4, color=ink.line, labelleft=False, labelbottom=False)
    axes.set_axisbelow(True)
    return axes


def pushed_apart(places: list[float], least: float, top: float) -> list[float]:
    """Places in rising order, moved up until they are ``least`` apart, and back below ``top`` where that is too far."""
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + least)
    for index in reversed(range(len(places))):
        places[index] = min(places[index], top if index == len(places) - 1 else places[index + 1] - least)
    return places
