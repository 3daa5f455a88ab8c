"""The figures: what is drawn and written, that names keep clear of each other, and that partial analyses are drawn too."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.figure import as_svg, roofline_figure, steps_figure
from rooflines.reports.charts.labels import Box
from rooflines.reports.charts.paper import SANS, SERIF
from tests import samples
from tests.reports import variants


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def drawn(figure, prefix: str) -> set[str]:
    return {line.get_gid() for axes in figure.axes for line in axes.lines if str(line.get_gid()).startswith(prefix)}


def test_every_operator_with_work_is_a_point():
    assert len(drawn(roofline_figure(samples.analysis()), "point-")) == 12


def test_the_roofs_that_judge_are_named_with_their_source_and_every_cache_with_its_value():
    figure = roofline_figure(samples.analysis())
    assert drawn(figure, "roof-") == {"roof-FMA fp32", "roof-DRAM triad", "roof-L2 read", "roof-L3 read"}
    assert {"FMA fp32 460 GFLOP/s, measured", "DRAM triad 45.0 GB/s, measured", "ridge 10.2 FLOP/byte"} <= set(texts(figure))
    assert {"L2 read 410 GB/s", "L3 read 160 GB/s"} <= set(texts(figure))


@pytest.mark.parametrize("family", [SANS, SERIF])
def test_the_names_of_parallel_roofs_lie_apart(family):
    first = samples.ceilings()[3]
    levels = (("L1", 1400e9, 96 << 10), ("L2", 410e9, 2 << 20), ("L3", 160e9, 32 << 20))
    caches = tuple(replace(first, name=f"{level} read", level=level, value=value, capacity_bytes=size) for level, value, size in levels)
    roofs = (*samples.ceilings()[:3], *caches, *samples.ceilings()[5:])
    figure = roofline_figure(replace(samples.analysis(), ceilings=roofs), family=family)
    figure.canvas.draw()
    (axes,) = figure.axes
    names = [text for text in axes.texts if text.get_text().startswith(("L1 ", "L2 ", "L3 ", "DRAM "))]
    assert len(names) == 4
    corners = [text.get_transform().transform(text.get_position()) for text in names]
    for index, (x, y) in enumerate(corners):
        angle = math.radians(names[index].get_rotation())
        for other_x, other_y in corners[:index]:
            # Square to the slope the lines of text are more than their height apart.
            apart = abs((other_y - y) * math.cos(angle) - (other_x - x) * math.sin(angle))
            assert apart > names[index].get_size() * figure.dpi / 72


def test_colours_are_named_once_with_their_share():
    found = [text for text in texts(roofline_figure(samples.analysis())) if text.startswith("convolution ")]
    assert found == ["convolution 70 %"]


def test_an_operator_above_its_roof_is_marked():
    assert texts(roofline_figure(samples.analysis())).count("!") == 1


@pytest.mark.parametrize("family", [SANS, SERIF])
@pytest.mark.parametrize("size", [(7, 4.5), (5, 3.5), (10, 6)])
def test_names_do_not_lie_on_each_other_or_outside(family, size):
    figure = roofline_figure(samples.analysis(), width_in=size[0], height_in=size[1], family=family)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts if str(text.get_gid()).startswith("name-")]
    assert boxes
    for index, box in enumerate(boxes):
        assert not [other for other in boxes[:index] if box.overlaps(other)]
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("family", [SANS, SERIF])
@pytest.mark.parametrize("analysis", [samples.analysis(), variants.large()], ids=["small", "large"])
def test_no_name_lies_on_a_point(analysis, family):
    figure = roofline_figure(analysis, family=family)
    figure.canvas.draw()
    (axes,) = figure.axes
    points = [line for line in axes.lines if str(line.get_gid()).startswith("point-")]
    names = [text for text in axes.texts if str(text.get_gid()).startswith("name-")]
    assert points
    assert names
    for text in names:
        extent = text.get_window_extent()
        box = Box(extent.x0, extent.y0, extent.x1, extent.y1)
        for point in points:
            x, y = axes.transData.transform((point.get_xdata()[0], point.get_ydata()[0]))
            assert not box.touches(x, y, point.get_markersize() / 2 * figure.dpi / 72), (text.get_text(), point.get_gid())


@pytest.mark.parametrize("analysis", [samples.analysis(), variants.large()], ids=["small", "large"])
def test_everything_written_stays_on_the_paper(analysis):
    figure = roofline_figure(analysis)
    figure.canvas.draw()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text


def test_a_name_is_never_read_as_a_formula():
    sample = samples.analysis()
    rows = tuple(replace(row, name="$\\frac{1}{", module="<script>") for row in sample.operators)
    svg = as_svg(roofline_figure(replace(sample, operators=rows)))
    assert "$\\frac{1}{ &lt;script&gt;" in svg
    assert "<script" not in svg


def test_the_same_figure_is_the_same_text_in_the_face_asked_for():
    first, second = (as_svg(roofline_figure(samples.analysis(), family=SERIF), "Libertinus Serif") for _ in range(2))
    assert first == second
    assert set(re.findall(r"font-family: '([^']+)'", first)) == {"Libertinus Serif"}


def test_a_dark_figure_has_a_dark_page():
    red, green, blue, _ = roofline_figure(samples.analysis(), dark=True).get_facecolor()
    assert max(red, green, blue) < 0.2


def test_without_ceilings_points_are_drawn_and_the_reason_is_written():
    rows = tuple(replace(row, efficiency=None, headroom_s=None, lower_bound_s=None) for row in samples.analysis().operators)
    figure = roofline_figure(replace(samples.analysis(), ceilings=(), operators=rows))
    assert len(drawn(figure, "point-")) == 12
    assert any(text.startswith("No ceilings are known") for text in texts(figure))


def test_without_a_trace_the_roofs_are_drawn_and_the_reason_is_written():
    figure = roofline_figure(replace(samples.analysis(), operators=(), totals=None, coverage=None))
    assert drawn(figure, "roof-") == {"roof-FMA fp32", "roof-DRAM triad", "roof-L2 read", "roof-L3 read"}
    assert any(text.startswith("No operators") for text in texts(figure))


def test_with_nothing_the_figure_says_so():
    assert texts(roofline_figure(replace(samples.analysis(), operators=(), ceilings=(), totals=None, coverage=None)))[0].startswith(
        "No operators"
    )


def test_steps_are_drawn_with_their_median():
    figure = steps_figure(samples.analysis())
    assert "median 84.0 ms" in texts(figure)
    assert any(len(line.get_xdata()) == 12 for line in figure.axes[0].lines)


def test_without_steps_the_figure_says_so():
    assert texts(steps_figure(replace(samples.analysis(), steps=None)))[0].startswith("Step times are not available")


def test_no_window_system_is_touched():
    import subprocess
    import sys

    code = (
        "import sys; from tests import samples; from rooflines.reports.charts.figure import roofline_figure, as_svg; "
        "as_svg(roofline_figure(samples.analysis())); assert 'matplotlib.pyplot' not in sys.modules; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
