"""What all figures share: the sheet that they are drawn for, axes and text on it, and their output as SVG and
PNG.

Figures are built without pyplot, so nothing global changes and no window opens.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from rooflines.reports.charts.palette import INK, Ink, Theme, category_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SANS = "DejaVu Sans"
# Matplotlib measures text with a face that it ships; this one is as wide as the Libertinus that a Typst
# document is set in.
SERIF = "STIXGeneral"
TEXT, SMALL = 7.5, 6.8
POINTS_PER_INCH = 72.0
WIDTH_IN = 7.6
# The widths of a figure with many marks, for wide and for narrow windows.
WIDE = (9.0, 4.2)
# The same of a figure that takes half of a page.
HALF = (6.2, 4.2)
_PNG_DPI = 160


# Keywords of Matplotlib.
Style: TypeAlias = dict[str, Any]


class PaperSheet(NamedTuple):
    """What a figure is drawn for. On a ``page`` colors are variables, and what can be switched on there is
    drawn as well."""

    width_in: float = WIDTH_IN
    family: str = SANS
    page: bool = False

    @property
    def width(self) -> float:
        """The width in points."""
        return self.width_in * POINTS_PER_INCH

    @property
    def theme(self) -> Theme:
        """The theme of the colors."""
        return "page" if self.page else "light"

    @property
    def ink(self) -> Ink:
        """The neutral colors."""
        return INK[self.theme]

    def color(self, category: str) -> str:
        """The color of a category or backend."""
        return category_color(category, self.theme)

    def figure(self, width: float, height: float) -> Figure:
        """An empty figure of this size in points."""
        from matplotlib.figure import Figure

        return Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH), facecolor=self.ink.page)

    def axes(
        self,
        figure: Figure,
        place: tuple[float, float, float, float],
        *,
        size: float = SMALL,
        sides: tuple[str, ...] = ("left", "bottom"),
    ) -> Axes:
        """Axes at left, bottom, width and height in points, with lines on ``sides`` and ticks of this
        size."""
        ink = self.ink
        width, height = (float(inches) * POINTS_PER_INCH for inches in figure.get_size_inches())
        left, bottom, across, up = place
        axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
        axes.set_facecolor(ink.page)
        for side, spine in axes.spines.items():
            spine.set(visible=side in sides, color=ink.line, linewidth=0.6)
        axes.tick_params(
            which="major",
            length=3,
            width=0.6,
            color=ink.faint_roof,
            labelcolor=ink.text,
            labelsize=size,
            labelfontfamily=self.family,
        )
        axes.tick_params(
            which="minor", length=1.7, width=0.4, color=ink.line, labelleft=False, labelbottom=False
        )
        axes.set_axisbelow(True)
        axes.xaxis.set_gid("x-axis")
        axes.yaxis.set_gid("y-axis")
        return axes

    def write(self, axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
        """Text at ``x``, ``y`` in the units of the axes, or of the ``transform`` given."""
        # A name may hold anything: control characters are no XML, and a dollar sign is not the start of a
        # formula.
        text = "".join(character if character.isprintable() else "\ufffd" for character in text)
        own = {
            "size": TEXT,
            "color": self.ink.text,
            "va": "center",
            "family": self.family,
            "parse_math": False,
        }
        axes.text(x, y, text, **{**own, **style})

    def length(self, text: str, size: float = SMALL) -> float:
        """The width of ``text`` in points."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        with _any_script():
            width, _, _ = text_to_path.get_text_width_height_descent(
                text, FontProperties(family=self.family, size=size), ismath=False
            )
        return float(width)


class Mark(NamedTuple):
    """What a page makes of a mark: the title and the named lines that the pointer shows, the switch that it
    belongs ``to``, and whether it is ``off`` from the start."""

    text: tuple[str, Sequence[tuple[str, str]]] | None = None
    to: str = ""
    off: bool = False


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure shows, as data. A mark of the figure has its kind and its name as id: ``point:17``."""

    # The widths that a page has it in: for windows of any size, or for wide and for narrow ones.
    widths_in: ClassVar[tuple[float, ...]] = (WIDTH_IN, 4.2)
    # Whether the page as data has it, because no table does.
    is_data: ClassVar[bool] = False

    def figure(self, sheet: PaperSheet) -> Figure:
        """Draw it with Matplotlib."""
        raise NotImplementedError

    def page_marks(self) -> dict[str, Mark]:
        """What a page makes of the marks, by their ids; a number at the end of an id is the place in a
        collection."""
        return {}

    def page_facts(self) -> dict[str, Any]:
        """What else the script of a page has to know of it."""
        return {}

    def page_switches(self) -> dict[str, Any]:
        """The switches beside it on a page: ``categories``, groups of ``roofs``, names of ``ranks``,
        ``devices`` with a ``focus``."""
        return {}


def draw(drawing: Drawing, *, width_in: float = WIDTH_IN, family: str = SANS) -> Figure:
    """The figure of ``drawing`` for print."""
    return drawing.figure(PaperSheet(width_in, family))


def as_svg(figure: Figure, family: str | None = None) -> str:
    """The figure as SVG with its text as text; ``family`` is the font family of the text."""
    import matplotlib

    buffer = io.StringIO()
    # The salt fixes the ids in the file: the same figure is the same text.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rooflines"}), _any_script():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text.replace(SERIF, family) if family else text


def as_png(figure: Figure, dpi: float = _PNG_DPI) -> bytes:
    """The figure as a PNG that is the same from run to run."""
    buffer = io.BytesIO()
    with _any_script():
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


@contextmanager
def _any_script() -> Iterator[None]:
    """Without the warning for every character that the face does not have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def logarithmic(
    axes: Axes, axis: str, low: float, high: float, factor: float = 1.0, *, steps: Iterable[int] = (1,)
) -> None:
    """Make ``axis`` logarithmic from ``low`` to ``high``, with numbers in multiples of ``factor`` at
    ``steps`` of every decade."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    axes.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
    values = [step * factor * 10.0**power for power in decades(low, high, factor) for step in steps]
    values = [value for value in values if low <= value <= high]
    one = getattr(axes, f"{axis}axis")
    one.set_major_locator(FixedLocator(values))
    one.set_ticklabels([f"{value / factor:g}" for value in values])
    one.set_minor_locator(LogLocator(subs=range(2, 10)))
    one.set_minor_formatter(NullFormatter())


def decades(low: float, high: float, factor: float = 1.0) -> range:
    """The powers of ten, as multiples of ``factor``, that reach from ``low`` to ``high``."""
    return range(math.floor(math.log10(low / factor)), math.ceil(math.log10(high / factor)) + 1)


def pushed_apart(places: list[float], least: float, top: float) -> list[float]:
    """Places in rising order, moved up until they are ``least`` apart, and back below ``top`` where that is
    too far."""
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + least)
    for index in reversed(range(len(places))):
        places[index] = min(places[index], top if index == len(places) - 1 else places[index + 1] - least)
    return places
