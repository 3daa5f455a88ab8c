"""Any figure of a page as Matplotlib draws it, in the colours of a theme and the width asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rooflines.reports.charts.ceilings import ceilings_figure
from rooflines.reports.charts.curves import beams_figure, choices_figure, curves_figure
from rooflines.reports.charts.figure import roofline_figure, steps_figure
from rooflines.reports.charts.kinds import Beams, CeilingMarks, Choices, Curves, Rooflines, StepTimes
from rooflines.reports.charts.paper import SANS
from rooflines.reports.charts.usage import Timeline
from rooflines.reports.charts.usage_figure import timeline_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_IN = 7.6
_ROOFLINE_SHAPE, _STEPS_SHAPE = 0.63, 0.235
_TALLEST_ROOFLINE_IN, _LOWEST_STEPS_IN = 6.0, 1.5


def draw(drawing: msgspec.Struct, *, width_in: float = WIDTH_IN, dark: bool = False, family: str = SANS) -> Figure:
    """The picture of ``drawing``. Raises TypeError for what no chart is of."""
    match drawing:
        case Rooflines():
            height_in = min(_ROOFLINE_SHAPE * width_in, _TALLEST_ROOFLINE_IN)
            return roofline_figure(
                drawing.analysis, width_in=width_in, height_in=height_in, dark=dark, family=family, paths=drawing.paths
            )
        case StepTimes():
            height_in = max(_STEPS_SHAPE * width_in, _LOWEST_STEPS_IN)
            return steps_figure(drawing.analysis, width_in=width_in, height_in=height_in, dark=dark, family=family)
        case Timeline():
            return timeline_figure(drawing, width_in=width_in, dark=dark, family=family)
        case Curves():
            return curves_figure(drawing, width_in=width_in, dark=dark)
        case Choices():
            return choices_figure(drawing, width_in=width_in, dark=dark)
        case Beams():
            return beams_figure(drawing, width_in=width_in, dark=dark)
        case CeilingMarks():
            return ceilings_figure(drawing.measured, drawing.compared, dark=dark, titled=False)
    raise TypeError(f"no chart draws a {type(drawing).__name__}")
