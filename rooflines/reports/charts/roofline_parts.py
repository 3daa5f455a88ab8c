"""What a roofline chart consists of: points, roofs, ridges, and the axes that hold them."""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec

from rooflines.device_specs.records import Ceiling
from rooflines.reports.charts.paper import Drawing
from rooflines.reports.words.ceilings import SOURCE_WORDS
from rooflines.units import si, significant


class RooflinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, or a whole step: ``key`` tells it from the others, ``category`` has its color, its area is
        its time.

    ``precision`` and ``engine`` say which compute roof judges it. Of the points with a ``label`` those with
    the largest ``gain_s`` are named. ``lines`` are its hover text. ``mark`` is its shape where that is not
    the category's.
    """

    key: int
    name: str
    category: str
    intensity: float
    flop_per_s: float
    time_s: float
    precision: str | None = None
    engine: str = "vector"
    label: str = ""
    gain_s: float = 0.0
    warning: str = ""
    mark: str = ""
    lines: tuple[tuple[str, str], ...] = ()


class Ring(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run, or a phase of it, as one point: all FLOPs over all bytes, at FLOPs over the time of a
    step."""

    name: str = "whole run"
    intensity: float
    flop_per_s: float
    lines: tuple[tuple[str, str], ...] = ()


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling as a line through ``x`` (FLOP/byte) and ``y`` (FLOP/s).

    ``primary`` roofs are drawn dark, the others lighter; those of a ``group`` are switched together, and
    ``shown`` ones are drawn from the start.
    """

    ceiling: Ceiling
    primary: bool
    shown: bool
    group: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def short(self) -> str:
        """Its name and value."""
        return f"{self.ceiling.name} {si(self.ceiling.value, self.ceiling.unit)}"

    @property
    def text(self) -> str:
        """Its name, value and source."""
        return f"{self.short}, {SOURCE_WORDS[self.ceiling.source.kind]}"


class Ridge(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory roof meets a compute roof: left of it bytes set the pace, right of it arithmetic
    does."""

    memory: str
    compute: str
    intensity: float
    flop_per_s: float

    @property
    def text(self) -> str:
        """Its intensity in words."""
        return f"ridge {significant(self.intensity)} FLOP/byte"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The axes: FLOP/byte from ``x_low`` to ``x_high``, FLOP/s from ``y_low`` to ``y_high``, both
    logarithmic."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def fraction(self, x: float, y: float) -> tuple[float, float]:
        """Where a value lies between the ends of the axes, 0 to 1."""
        return math.log(x / self.x_low) / math.log(self.x_high / self.x_low), math.log(
            y / self.y_low
        ) / math.log(self.y_high / self.y_low)

    def contains(self, x: float, y: float) -> bool:
        """Whether a value can be seen."""
        return self.x_low <= x <= self.x_high and self.y_low <= y <= self.y_high


class RooflineParts(Drawing, frozen=True, kw_only=True):
    """Everything to draw. ``wide`` limits also hold the roofs that are off from the start; ``labeled`` are
    the points with names.

    ``full_s`` is the time with the largest area, ``legend`` has the categories with their shares of the time,
    ``left_out`` is the number of points that would stretch the axes, ``missing`` says why there are no roofs
    or points. ``paths`` connects the points of a category in the order of their keys. ``band`` has the
    corners of the roof, from half of which on a strip is shaded.
    """

    widths_in: ClassVar[tuple[float, ...]] = (9.0, 4.2)

    roofs: tuple[Roof, ...]
    ridges: tuple[Ridge, ...]
    points: tuple[RooflinePoint, ...]
    labeled: tuple[RooflinePoint, ...]
    rings: tuple[Ring, ...]
    band: tuple[tuple[float, float], ...]
    limits: Limits
    wide: Limits
    y_factor: float
    y_unit: str
    legend: tuple[tuple[str, float], ...]
    full_s: float
    left_out: int
    missing: str = ""
    paths: bool = False

    def diameter(self, point: RooflinePoint, largest: float, smallest: float) -> float:
        """The diameter of a point, so that its area is its time; the smallest ones are kept large enough to
        see and to hit."""
        return max(smallest, largest * math.sqrt(point.time_s / self.full_s))
