"""The kinds of figures that a page may hold, as data. ``charts.draw`` draws any of them."""

from __future__ import annotations

import msgspec

from rooflines.device_specs.compare import RoofComparison
from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Analysis


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of a backend through ``x`` and ``y``, with the ends of the interval of each ``y``.

    ``paper`` is a level that a paper printed for it, ``paper_points`` are (x, y) that it printed. ``colour`` is the name of its colour
    if that is not the backend.
    """

    backend: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    paper: float | None = None
    paper_points: tuple[tuple[float, float], ...] = ()
    colour: str = ""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over epochs, iterations or an option. ``fraction`` says that y is a share, shown in percent."""

    x_title: str
    y_title: str
    series: tuple[Series, ...]
    fraction: bool = False
    log_x: bool = False


class Beam(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal bar with its value in words; ``paper`` is what a paper printed for it."""

    backend: str
    label: str
    value: float
    text: str
    paper: float | None = None
    paper_text: str = ""
    colour: str = ""


class Beams(msgspec.Struct, frozen=True, kw_only=True):
    """Horizontal bars."""

    x_title: str
    beams: tuple[Beam, ...]


class Rooflines(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of an analysis on its roofs. ``interactive`` ones can be explored where a page runs scripts.

    ``paths`` connects the operators of a category in their order.
    """

    analysis: Analysis
    interactive: bool = False
    paths: bool = False


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a scatter chart; those on the ``front`` are not worse than any other in both directions."""

    label: str
    x: float
    y: float
    colour: str = ""
    front: bool = False


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """A scatter chart of what can be chosen between two quantities, with its Pareto front as a line."""

    x_title: str
    y_title: str
    choices: tuple[Choice, ...]
    log_x: bool = False
    fraction: bool = False


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The timed steps of an analysis in the order run."""

    analysis: Analysis


class CeilingMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The measured ceilings with what they are compared with."""

    measured: Ceilings
    compared: tuple[RoofComparison, ...] = ()
