"""The figures: what is drawn and written, that names keep clear of each other, and that partial analyses are drawn too."""

import itertools
import math
import re
from itertools import pairwise

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.curves import StepTimesCurve
from rooflines.reports.charts.labels import Box
from rooflines.reports.charts.paper import SANS, SERIF, PaperSheet, as_svg, draw
from rooflines.reports.charts.roofline import MOST_LABELS
from rooflines.reports.page.roofline import roofline_of
from tests import samples
from tests.reports import variants


def roofline_figure(analysis, *, width_in=7.0, family=SANS, page=False):
    return roofline_of(analysis).figure(PaperSheet(width_in, family, page))


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def roofs(figure, analysis) -> set[str]:
    """The names of the roofs that are drawn."""
    numbers = [int(line.get_gid().partition(":")[2]) for line in figure.axes[0].lines if str(line.get_gid()).startswith("roof:")]
    return {roofline_of(analysis).roofs[number].ceiling.name for number in numbers}


def points(figure) -> list[tuple[float, float, float]]:
    """The place and the radius of every point, in pixels."""
    (axes,) = figure.axes
    (marks,) = axes.collections[-1:]
    scale = figure.dpi / 72
    places = axes.transData.transform(marks.get_offsets())
    return [(x, y, size**0.5 / 2 * scale) for (x, y), size in zip(places, marks.get_sizes(), strict=True)]


@pytest.mark.ci
def test_operators_and_roofs_are_drawn_with_their_names():
    # Every operator with work is a point and colors are named once with their share.
    figure = roofline_figure(samples.analysis())
    assert len(points(figure)) == 12
    assert [text for text in texts(figure) if text.startswith("convolution ")] == ["convolution 70 %"]
    assert texts(figure).count("!") == 1, "one is above its roof"
    # The roofs that judge are named with their source and every cache with its value.
    figure = roofline_figure(samples.analysis())
    assert roofs(figure, samples.analysis()) == {"FMA fp32", "DRAM triad", "L2 read", "L3 read"}
    assert {"FMA fp32 460 GFLOP/s, measured", "DRAM triad 45.0 GB/s, measured", "ridge 10.2 FLOP/byte"} <= set(texts(figure))
    assert {"L2 read 410 GB/s", "L3 read 160 GB/s"} <= set(texts(figure))


@pytest.mark.parametrize("family", [SANS, SERIF])
def test_the_names_of_parallel_roofs_lie_apart(family):
    first = samples.ceilings()[3]
    levels = (("L1", 1400e9, 96 << 10), ("L2", 410e9, 2 << 20), ("L3", 160e9, 32 << 20))
    caches = tuple(replace(first, name=f"{level} read", level=level, value=value, capacity_bytes=size) for level, value, size in levels)
    ceilings = (*samples.ceilings()[:3], *caches, *samples.ceilings()[5:])
    figure = roofline_figure(replace(samples.analysis(), ceilings=ceilings), family=family)
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


@pytest.mark.ci
@pytest.mark.parametrize("family", [SANS, SERIF])
@pytest.mark.parametrize("width_in", [5, 7, 9])
@pytest.mark.parametrize("analysis", [samples.analysis(), variants.large()], ids=["small", "large"])
def test_names_lie_on_nothing_and_their_lines_do_not_cross(analysis, width_in, family):
    figure = roofline_figure(analysis, width_in=width_in, family=family)
    figure.canvas.draw()
    (axes,) = figure.axes
    names = [text for text in axes.texts if str(text.get_gid()).startswith("name:")]
    assert len(names) >= (MOST_LABELS - 2 if width_in > 5 else 1)
    boxes = [Box(*text.get_window_extent().extents) for text in names]
    lines = {line.get_gid(): line for line in axes.lines}
    straight = [segment for gid, line in lines.items() if re.match("roof:|foot:", str(gid)) and line.get_linewidth() != 0.6
                for segment in pairwise(line.get_transform().transform(line.get_xydata()))]  # fmt: skip
    (ring,) = lines["ring:0"].get_transform().transform(lines["ring:0"].get_xydata())
    for index, (text, box) in enumerate(zip(names, boxes, strict=True)):
        assert figure.bbox.x0 <= box.left
        assert box.right <= figure.bbox.x1
        assert not [other for other in boxes[:index] if box.overlaps(other)]
        assert box.distance(*ring) >= 4.5 * figure.dpi / 72
        for x, y, radius in points(figure):
            assert box.distance(x, y) >= radius, text.get_text()
        for (ax, ay), (bx, by) in straight:
            for step in range(401):
                assert box.distance(ax + (bx - ax) * step / 400, ay + (by - ay) * step / 400) >= 0.5, text.get_text()
    leaders = [
        tuple(line.get_transform().transform(line.get_xydata()).ravel())
        for gid, line in lines.items()
        if str(gid).startswith("leader:")
    ]
    assert not any(crossing(one, other) for one, other in itertools.combinations(leaders, 2))


def crossing(one, other) -> bool:
    """Whether the lines of two segments meet inside both."""
    (ax, ay, bx, by), (cx, cy, dx, dy) = one, other
    determinant = (bx - ax) * (dy - cy) - (by - ay) * (dx - cx)
    if abs(determinant) < 1e-9:
        return False
    along = ((cx - ax) * (dy - cy) - (cy - ay) * (dx - cx)) / determinant
    along_other = ((cx - ax) * (by - ay) - (cy - ay) * (bx - ax)) / determinant
    return 0 < along < 1 and 0 < along_other < 1


@pytest.mark.parametrize("width_in", [4.2, 7.6, 9])
def test_the_name_of_a_roof_lies_on_no_point(width_in):
    """Points all along both roofs, as in a trace whose convolutions are faster than their bound."""
    compute, memory = 460e9, 45e9
    rows = samples.analysis().operators[:1] * 60
    rows = tuple(
        replace(
            row, module=f"part.{index}", time_s=0.001, intensity_flop_per_byte=intensity,
            flop_per_s=min(compute, memory * intensity) * 1.25 ** (index % 3 - 1),
        )
        for index, row in enumerate(rows)
        for intensity in [10 ** (-1 + 4 * index / 60)]
    )  # fmt: skip
    figure = roofline_figure(variants.replaced(operators=rows), width_in=width_in, page=True)
    figure.canvas.draw()
    names = [text for text in figure.axes[0].texts if text.get_text().endswith(("FLOP/s, measured", "GB/s, measured"))]
    assert len(names) == 2
    for name in names:
        x, y = name.get_transform().transform(name.get_position())
        angle, half = math.radians(name.get_rotation()), name.get_size() * figure.dpi / 72 / 2
        length = PaperSheet(width_in).length(name.get_text(), name.get_size()) * figure.dpi / 72
        box = Box(0.0, -half, length, half)
        for across, up, radius in points(figure):
            along = (across - x) * math.cos(angle) + (up - y) * math.sin(angle)
            assert box.distance(along, (up - y) * math.cos(angle) - (across - x) * math.sin(angle)) >= radius, name.get_text()


@pytest.mark.ci
def test_names_of_a_crowd_find_room_next_to_it():
    row = samples.analysis().operators[0]
    crowd = tuple(replace(row, module=f"layer.part{n}", time_s=row.time_s * (1 + n / 50)) for n in range(8))
    figure = roofline_figure(variants.replaced(operators=crowd), width_in=9)
    assert sum(str(text.get_gid()).startswith("name:") for text in figure.axes[0].texts) >= 6


@pytest.mark.ci
def test_names_are_no_formulas_and_figures_repeat():
    # A name is never read as a formula.
    sample = samples.analysis()
    rows = tuple(replace(row, name="$\\frac{1}{", module="<script>") for row in sample.operators)
    svg = as_svg(roofline_figure(replace(sample, operators=rows)))
    assert "$\\frac{1}{ &lt;script&gt;" in svg
    assert "<script" not in svg
    # The same figure is the same text in the face asked for.
    first, second = (as_svg(roofline_figure(samples.analysis(), family=SERIF), "Libertinus Serif") for _ in range(2))
    assert first == second
    assert set(re.findall(r"font-family: '([^']+)'", first)) == {"Libertinus Serif"}


def test_without_ceilings_or_a_trace_the_rest_is_drawn_and_the_reason_is_written():
    rows = tuple(replace(row, efficiency=None, headroom_s=None, lower_bound_s=None) for row in samples.analysis().operators)
    figure = roofline_figure(replace(samples.analysis(), ceilings=(), operators=rows))
    assert len(points(figure)) == 12
    assert any(text.startswith("No ceilings are known") for text in texts(figure))
    bare = replace(samples.analysis(), operators=(), totals=None, coverage=None)
    figure = roofline_figure(bare)
    assert roofs(figure, bare) == {"FMA fp32", "DRAM triad", "L2 read", "L3 read"}
    assert any(text.startswith("No operators") for text in texts(figure))


@pytest.mark.ci
def test_what_is_drawn_on_a_page_and_of_steps():
    # What can be switched on is drawn on a page only.
    assert roofs(roofline_figure(samples.analysis(), page=True), samples.analysis()) > roofs(
        roofline_figure(samples.analysis()), samples.analysis()
    )
    assert "1" in texts(roofline_figure(samples.analysis(), width_in=4.2, page=True))
    # Steps are drawn with their median.
    figure = draw(StepTimesCurve(steps=samples.analysis().steps))
    assert "median 84.0 ms" in texts(figure)
    assert any(len(line.get_xdata()) == 12 for line in figure.axes[0].lines)


@pytest.mark.ci
def test_no_window_system_is_touched():
    import subprocess
    import sys

    code = (
        "import sys; from tests import samples; from rooflines.reports.charts.paper import as_svg, draw; "
        "from rooflines.reports.page.roofline import roofline_of; import rooflines.reports.render.html; "
        "assert 'matplotlib' not in sys.modules; "
        "as_svg(draw(roofline_of(samples.analysis()))); assert not {'matplotlib.pyplot', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
