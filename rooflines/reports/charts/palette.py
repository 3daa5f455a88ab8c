"""Colors and patterns with one meaning everywhere: color is the category of an operator, ink and pattern are
what bounds it.

The eleven category colors start from Okabe and Ito's set and were moved apart, by search in OKLab under
simulated protanopia, deuteranopia and tritanopia (Machado 2009), until every pair stayed distinct with 3:1
contrast or more against the page (WCAG AA for graphics). Bound classes carry no hue, so that the two never
compete: they differ in lightness, in pattern and by a letter, and survive a grayscale print.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines.roofline.analysis import CATEGORIES

# "page" has no colors of its own: its figures name the variables of the page's style sheet, which hold those
# of either theme.
Theme = Literal["light", "dark", "page"]
THEMES: tuple[Theme, ...] = ("light", "dark")

# Every name with its color in the light and in the dark theme.
_COLORS = {
    "convolution": ("#0069B9", "#60AAFC"),
    "matmul": ("#BC2A00", "#F23A00"),
    "attention": ("#A32890", "#BE45B5"),
    "moe": ("#681000", "#F09000"),
    "normalization": ("#3E9949", "#199465"),
    "element-wise": ("#E45C00", "#FFE814"),
    "reduction": ("#3A86FF", "#5EDDF6"),
    "copy": ("#525252", "#FFFFFF"),
    "embedding": ("#00767C", "#9BE7B0"),
    "communication": ("#9F5B7A", "#FFB67C"),
    "optimizer": ("#411E85", "#8F6BFF"),
    "other": ("#8D8D8D", "#A6A6A6"),
}
# A study compares backends, and on its page color is the backend instead. Each has a shape as well, for
# print.
_BACKENDS = {
    "numba-cpu": ("o", "#0069B9", "#60AAFC"),
    "numba-cuda": ("D", "#411E85", "#8F6BFF"),
    "torch-cpu": ("s", "#E45C00", "#FFB67C"),
    "torch-cpu-compile": ("^", "#BC2A00", "#F23A00"),
    "torch-cuda": ("v", "#3E9949", "#199465"),
    "torch-cuda-compile": ("P", "#525252", "#FFFFFF"),
    "torch-mps": ("X", "#9F5B7A", "#BE45B5"),
    "numpy": ("o", "#0069B9", "#60AAFC"),
    "cupy": ("D", "#411E85", "#8F6BFF"),
}
# Series without a color of their own, models of a sweep for example, take these in turn.
SERIES_COLORS = (
    "series-1",
    "series-2",
    "series-3",
    "series-4",
    "series-5",
    "series-6",
    "series-7",
    "series-8",
)
_COLORS |= {name: (light, dark) for name, (_, light, dark) in _BACKENDS.items()}
_COLORS |= dict(
    zip(SERIES_COLORS, dict.fromkeys((light, dark) for _, light, dark in _BACKENDS.values()), strict=False)
)
_MARKS = {name: mark for name, (mark, _, _) in _BACKENDS.items()} | dict(
    zip(SERIES_COLORS, "osD^vPXh", strict=True)
)

# Everything with its own color.
COLORED = frozenset(_COLORS)


class Ink(msgspec.Struct, frozen=True, kw_only=True):
    """The neutral colors of a theme: page and panel, text, lines, an accent, a warning and a milder
    notice."""

    page: str
    panel: str
    text: str
    muted: str
    line: str
    grid: str
    roof: str
    faint_roof: str
    band: str
    accent: str
    warning: str
    notice: str


INK: dict[Theme, Ink] = {
    "light": Ink(
        page="#ffffff",
        panel="#f6f7f8",
        text="#16191d",
        muted="#596069",
        line="#d5d9de",
        grid="#e6e8eb",
        roof="#24292f",
        faint_roof="#737b85",
        band="#eceff2",
        accent="#0b5cad",
        warning="#b3261e",
        notice="#8a5a00",
    ),
    "dark": Ink(
        page="#15181c",
        panel="#1d2126",
        text="#e8eaed",
        muted="#a2abb5",
        line="#3a4149",
        grid="#2a2f36",
        roof="#d5dae0",
        faint_roof="#88919b",
        band="#22272d",
        accent="#7ab7ff",
        warning="#ff8a80",
        notice="#f2b84b",
    ),
}


# Matplotlib takes colors only: these stand for the variables until the SVG of a page is written.
_VARIABLES = {
    name: f"#0f{number:04x}"
    for number, name in enumerate((*msgspec.structs.asdict(INK["light"]), *sorted(COLORED)))
}
VARIABLE_OF = {
    color: name if name in INK["light"].__struct_fields__ else f"c-{name}"
    for name, color in _VARIABLES.items()
}
INK["page"] = Ink(**{name: _VARIABLES[name] for name in Ink.__struct_fields__})


class BoundStyle(msgspec.Struct, frozen=True):
    """How a bound class is drawn: its letter, what it means, the fill per theme, and a pattern (a CSS
    class)."""

    name: str
    letter: str
    meaning: str
    light: str
    dark: str
    pattern: str


BOUNDS: dict[str, BoundStyle] = {
    style.name: style
    for style in (
        BoundStyle("compute", "C", "limited by the arithmetic units", "#39424d", "#ced5dd", "solid"),
        BoundStyle("memory", "M", "limited by memory traffic", "#8893a0", "#7c8793", "diagonal"),
        BoundStyle(
            "inefficient",
            "E",
            "below a third of every roof: too small, badly shaped or a slow kernel",
            "#b4bdc7",
            "#5a636d",
            "sparse",
        ),
        BoundStyle(
            "latency", "L", "launching the operator takes longer than its work", "#c3cad2", "#4b545e", "dots"
        ),
        BoundStyle("transfer", "T", "copies between host and device", "#bcc5ce", "#545d67", "falling"),
        BoundStyle("communication", "X", "devices exchange data", "#a9b3be", "#636d78", "cross"),
        BoundStyle("input", "I", "the device waits for data", "#d3dae1", "#424a53", "vertical"),
        BoundStyle(
            "host", "H", "the device waits for the host to launch work", "#e4e8ec", "#2f363d", "horizontal"
        ),
        BoundStyle(
            "idle",
            "–",
            "the device runs nothing although work was launched, or for an unknown reason",
            "#eef1f4",
            "#272d33",
            "lines",
        ),
        BoundStyle(
            "unknown",
            "?",
            "no bound is known: no FLOP and byte count, or no ceiling",
            "#f4f6f8",
            "#22272d",
            "rings",
        ),
    )
}


def category_color(category: str, theme: Theme = "light") -> str:
    """The color of ``category``, or of a study's backend; an unknown one is drawn as ``other``."""
    name = category if category in COLORED else "other"
    return _VARIABLES[name] if theme == "page" else _COLORS[name][THEMES.index(theme)]


def category_mark(category: str) -> str:
    """Matplotlib's marker for a point of ``category``: a disc, but for the backends of a study, which have
    one each."""
    return _MARKS.get(category, "o")


def category_order(category: str) -> int:
    """Where ``category`` stands in a legend: the order of the analysis, unknown ones last."""
    return CATEGORIES.index(category) if category in CATEGORIES else len(CATEGORIES)


def bound_style(bound: str) -> BoundStyle:
    """The style of ``bound``; an unknown class is drawn as ``unknown``."""
    return BOUNDS.get(bound, BOUNDS["unknown"])


def contrast(first: str, second: str) -> float:
    """The WCAG contrast ratio of two ``#rrggbb`` colors, 1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: str) -> float:
    channels = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
