"""Curves and scatter charts: what they draw lies on the paper, and intervals lie between the axes."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rooflines.reports.charts.curves import Beam, Beams, Choice, Choices, Curves, CurveSeries
from rooflines.reports.charts.paper import draw
from rooflines.reports.page.roofline import roofline_of
from tests import samples
from tests.reports import variants

LONG = "squeezenet1_1 · batch 128 · channels-last · amp-bf16 · max-autotune · 16 threads"
WIDE = CurveSeries(name="resnet18", x=(1, 2), y=(50, 60), low=(4, 58), high=(900, 62), color="series 1")
NAMED = CurveSeries(name="WWWW_MMMM_WWWW", x=(1, 2), y=(1, 2))
CHARTS = {
    "curves": Curves(x_title="batch size", y_title="throughput, samples/s", series=(WIDE,), log_x=True),
    "names": Curves(x_title="batch size", y_title="peak memory, B", series=(NAMED,)),
    "choices": Choices(
        x_title="peak memory, B", y_title="throughput, samples/s",
        choices=tuple(Choice(label=LONG, x=x, y=x, color="series 1", front=True) for x in (1.0, 4.0, 8.0)),
    ),
    "roofline": roofline_of(samples.analysis()),
    "large roofline": roofline_of(variants.large()),
    "long bars": Beams(x_title="time, s", beams=(Beam(color="pytorch", label=LONG[:60], value=1.0, text="1.00 s"),)),
    "bars": Beams(x_title="time, s", beams=(Beam(color="pytorch", label="matrix product", value=1.0, text="1.00 s"),)),
}  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("width_in", [7.6, 4.2])
@pytest.mark.parametrize("name", CHARTS)
def test_all_text_lies_on_the_paper(name, width_in):
    picture = draw(CHARTS[name], width_in=width_in)
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    paper, renderer = picture.bbox, canvas.get_renderer()
    for text in picture.axes[0].texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1, text.get_text()
        assert box.x1 <= paper.x1 + 1, text.get_text()
        assert box.y0 >= -1, text.get_text()
        assert box.y1 <= paper.y1 + 1, text.get_text()


def test_the_axis_holds_every_interval():
    low, high = draw(CHARTS["curves"]).axes[0].get_ylim()
    assert low <= 4
    assert high >= 900
