"""Colours and patterns with one meaning everywhere: colour is the category of an operator, ink and pattern are what bounds it.

The eleven category colours start from Okabe and Ito's set and were moved apart, by search in OKLab under simulated protanopia,
deuteranopia and tritanopia (Machado 2009), until every pair stayed distinct with 3:1 contrast or more against the page (WCAG AA for
graphics). Bound classes carry no hue, so that the two never compete: they differ in lightness, in pattern and by a letter, and survive
a grayscale print.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines.roofline.analysis import CATEGORIES

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

_CATEGORY: dict[Theme, dict[str, str]] = {
    "light": {
        "convolution": "#0069B9",
        "matmul": "#BC2A00",
        "attention": "#A32890",
        "moe": "#681000",
        "normalisation": "#3E9949",
        "element-wise": "#E45C00",
        "reduction": "#3A86FF",
        "copy": "#525252",
        "embedding": "#00767C",
        "communication": "#9F5B7A",
        "optimizer": "#411E85",
        "other": "#8D8D8D",
    },
    "dark": {
        "convolution": "#60AAFC",
        "matmul": "#F23A00",
        "attention": "#BE45B5",
        "moe": "#F09000",
        "normalisation": "#199465",
        "element-wise": "#FFE814",
        "reduction": "#5EDDF6",
        "copy": "#FFFFFF",
        "embedding": "#9BE7B0",
        "communication": "#FFB67C",
        "optimizer": "#8F6BFF",
        "other": "#A6A6A6",
    },
}

# A study compares backends, and on its page colour is the backend instead. Each has a shape as well, for print.
_BACKEND: dict[Theme, dict[str, str]] = {
    "light": {
        "numba-cpu": "#0069B9", "numba-cuda": "#411E85", "torch-cpu": "#E45C00", "torch-cpu-compile": "#BC2A00",
        "torch-cuda": "#3E9949", "torch-cuda-compile": "#525252", "torch-mps": "#9F5B7A", "numpy": "#0069B9", "cupy": "#411E85",
    },
    "dark": {
        "numba-cpu": "#60AAFC", "numba-cuda": "#8F6BFF", "torch-cpu": "#FFB67C", "torch-cpu-compile": "#F23A00",
        "torch-cuda": "#199465", "torch-cuda-compile": "#FFFFFF", "torch-mps": "#BE45B5", "numpy": "#60AAFC", "cupy": "#8F6BFF",
    },
}  # fmt: skip
_BACKEND_MARKS = {
    "numba-cpu": "o", "numba-cuda": "D", "torch-cpu": "s", "torch-cpu-compile": "^", "torch-cuda": "v", "torch-cuda-compile": "P",
    "torch-mps": "X", "numpy": "o", "cupy": "D",
}  # fmt: skip


# Series without a colour of their own, models of a sweep for example, take these in turn.
SERIES = ("series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8")
for _theme, _names in (("light", _BACKEND["light"]), ("dark", _BACKEND["dark"])):
    _names |= dict(zip(SERIES, dict.fromkeys(_names.values()), strict=False))
_BACKEND_MARKS |= dict(zip(SERIES, ("o", "s", "D", "^", "v", "P", "X", "h"), strict=True))

# Everything with its own colour.
COLOURED = frozenset((*_CATEGORY["light"], *_BACKEND["light"]))


class Ink(msgspec.Struct, frozen=True, kw_only=True):
    """The neutral colours of a theme: page and panel, text, lines, an accent, a warning and a milder notice."""

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
        page="#ffffff", panel="#f6f7f8", text="#16191d", muted="#596069", line="#d5d9de", grid="#e6e8eb", roof="#24292f",
        faint_roof="#737b85", band="#eceff2", accent="#0b5cad", warning="#b3261e", notice="#8a5a00",
    ),
    "dark": Ink(
        page="#15181c", panel="#1d2126", text="#e8eaed", muted="#a2abb5", line="#3a4149", grid="#2a2f36", roof="#d5dae0",
        faint_roof="#88919b", band="#22272d", accent="#7ab7ff", warning="#ff8a80", notice="#f2b84b",
    ),
}  # fmt: skip


class BoundStyle(msgspec.Struct, frozen=True):
    """How a bound class is drawn: its letter, what it means, the fill per theme, and a pattern (a CSS class)."""

    name: str
    letter: str
    meaning: str
    light: str
    dark: str
    pattern: str

    def fill(self, theme: Theme) -> str:
        """The ground colour of the pattern."""
        return self.light if theme == "light" else self.dark


BOUNDS: dict[str, BoundStyle] = {
    style.name: style
    for style in (
        BoundStyle("compute", "C", "limited by the arithmetic units", "#39424d", "#ced5dd", "solid"),
        BoundStyle("memory", "M", "limited by memory traffic", "#8893a0", "#7c8793", "diagonal"),
        BoundStyle("far", "F", "far from any roof: too small, badly shaped or a slow kernel", "#b4bdc7", "#5a636d", "sparse"),
        BoundStyle("latency", "L", "launching the operator takes longer than its work", "#c3cad2", "#4b545e", "dots"),
        BoundStyle("transfer", "T", "copies between host and device", "#bcc5ce", "#545d67", "falling"),
        BoundStyle("communication", "X", "devices exchange data", "#a9b3be", "#636d78", "cross"),
        BoundStyle("input", "I", "the device waits for data", "#d3dae1", "#424a53", "vertical"),
        BoundStyle("host", "H", "the device runs nothing because the host has launched nothing", "#e4e8ec", "#2f363d", "horizontal"),
        BoundStyle("idle", "–", "the device runs nothing although work was launched, or for an unknown reason", "#eef1f4", "#272d33",
                   "lines"),
        BoundStyle("unknown", "?", "no bound is known: no FLOP and byte count, or no ceiling", "#f4f6f8", "#22272d", "rings"),
    )
}  # fmt: skip


def category_colour(category: str, theme: Theme = "light") -> str:
    """The colour of ``category``, or of a study's backend; an unknown one is drawn as ``other``."""
    colours = _CATEGORY[theme]
    return colours.get(category) or _BACKEND[theme].get(category) or colours["other"]


def category_mark(category: str) -> str:
    """Matplotlib's marker for a point of ``category``: a disc, but for the backends of a study, which have one each."""
    return _BACKEND_MARKS.get(category, "o")


def category_order(category: str) -> int:
    """Where ``category`` stands in a legend: the order of the analysis, unknown ones last."""
    return CATEGORIES.index(category) if category in CATEGORIES else len(CATEGORIES)


def bound_style(bound: str) -> BoundStyle:
    """The style of ``bound``; an unknown class is drawn as ``unknown``."""
    return BOUNDS.get(bound, BOUNDS["unknown"])


def contrast(first: str, second: str) -> float:
    """The WCAG contrast ratio of two ``#rrggbb`` colours, 1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
