"""The laws of the chart: where roofs meet, where points stand, that everything is on the plot and nothing is named twice."""

import math

import pytest
from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling, Source
from rooflines.reports.charts.palette import BOUNDS, INK, THEMES, category_color, contrast
from rooflines.reports.charts.roofline import MOST_LABELS, MOST_POINTS, RooflineChart, roofline_drawing
from rooflines.reports.charts.roofline_figure import RooflinePoint
from rooflines.reports.page.roofline import chart_note, roofline_of
from rooflines.roofline.analysis import CATEGORIES, OtherPrograms
from rooflines.units import seconds
from tests.reports import variants
from tests.samples import analysis as sample
from tests.samples import ceilings


def chart_of(analysis) -> RooflineChart:
    chart = roofline_of(analysis)
    assert chart is not None
    return chart


ANALYSES = {"sample": sample(), "large": variants.large(), "small": variants.large(3)}
CHARTS = {name: chart_of(analysis) for name, analysis in ANALYSES.items()}


@pytest.fixture(params=CHARTS)
def chart(request) -> RooflineChart:
    return CHARTS[request.param]


def test_ridge_and_primary_roofs():
    # Ridge is compute over bandwidth.
    (ridge,) = CHARTS["sample"].ridges
    assert ridge.intensity == pytest.approx(460e9 / 45e9)
    assert ridge.flop_per_s == 460e9
    assert ridge.value == "10.2 FLOP/byte"
    # Roofs that judge the time are primary.
    assert {roof.ceiling.name for roof in CHARTS["sample"].roofs if roof.primary} == {"DRAM triad", "FMA fp32"}
    assert {roof.ceiling.name for roof in CHARTS["large"].roofs if roof.primary} == {"HBM read", "BF16 tensor", "FP32 FMA"}
    groups = {roof.ceiling.name: roof.group for roof in CHARTS["large"].roofs if not roof.primary}
    assert groups["L2 read"] == "caches"
    assert groups["HBM copy"] == "other access patterns"
    assert groups["FP8 tensor"] == "other precisions and engines"


def test_roofs_have_the_slope_of_their_bandwidth_and_meet_in_their_ridge(chart):
    # Memory roofs have the slope of their bandwidth.
    for roof in chart.roofs:
        if roof.ceiling.kind == "memory":
            for x, y in zip(roof.x[:2], roof.y[:2], strict=True):
                assert y / x == pytest.approx(roof.ceiling.value)
        else:
            assert roof.y[-1] == roof.ceiling.value
    # Primary roofs meet in their ridge.
    memory = next(roof for roof in chart.roofs if roof.primary and roof.ceiling.kind == "memory")
    highest = max(
        (roof for roof in chart.roofs if roof.primary and roof.ceiling.kind == "compute"), key=lambda roof: roof.ceiling.value
    )
    assert (memory.x[-1], memory.y[-1]) == pytest.approx((highest.x[0], highest.y[0]))
    # Area is time.
    longest = max(chart.points, key=lambda point: point.time_s)
    assert 0.2 <= longest.time_s / chart.full_s <= 1
    for point in chart.points:
        assert chart.diameter(point, 30, 0) ** 2 == pytest.approx(30**2 * point.time_s / chart.full_s)


def test_caches_and_the_precisions_of_the_run_are_drawn_from_the_start():
    assert {roof.ceiling.name for roof in CHARTS["sample"].roofs if roof.shown} == {"DRAM triad", "FMA fp32", "L2 read", "L3 read"}
    assert {roof.ceiling.name for roof in CHARTS["large"].roofs if roof.shown} == {"HBM read", "BF16 tensor", "FP32 FMA", "L2 read"}
    # A matrix product in bf16 that takes 2 % of the time: its roof is drawn, lighter.
    analysis = sample()
    row, rest = analysis.operators[3], sum(one.time_s for one in analysis.operators)
    product = replace(row, precision="bf16", engine="matrix", time_s=0.02 * rest)
    chart = chart_of(variants.replaced(operators=(*analysis.operators, product)))
    (roof,) = (roof for roof in chart.roofs if roof.ceiling.name == "GEMM bf16")
    assert (roof.primary, roof.shown, roof.group) == (False, True, "other precisions used")
    assert chart.limits.y[1] > roof.ceiling.value


def test_the_fastest_access_of_a_level_is_drawn_and_no_further_roof():
    cache, fma = ceilings()[3], ceilings()[0]
    slower = replace(cache, name="L2 write", access="write", value=cache.value / 2)
    single = replace(fma, variant="1 thread", value=fma.value * 2)
    chart = chart_of(variants.replaced(ceilings=(*ceilings(), slower, single)))
    assert {roof.ceiling.name: roof.shown for roof in chart.roofs if roof.ceiling.name.startswith("L2")} == {
        "L2 read": True,
        "L2 write": False,
    }
    assert [roof.ceiling.value for roof in chart.roofs if roof.ceiling.name == "FMA fp32"] == [fma.value]


def test_a_cache_leads_to_where_the_next_level_reaches_the_compute_roof():
    roofs = {roof.ceiling.name: roof for roof in CHARTS["sample"].roofs}
    assert (roofs["L2 read"].x[-2:], roofs["L2 read"].y[-2:]) == (
        pytest.approx((460e9 / 410e9, 460e9 / 160e9)), pytest.approx((460e9, 460e9)),
    )  # fmt: skip
    assert roofs["L3 read"].x[-1] == pytest.approx(460e9 / 45e9)
    knees = [460e9 / roofs[name].ceiling.value for name in ("L2 read", "L3 read")]
    assert all(CHARTS["sample"].limits.contains(knee, 460e9) for knee in knees)


@pytest.mark.parametrize("analysis", [sample(), variants.large()], ids=["sample", "large"])
def test_every_point_stands_at_its_intensity_and_speed(analysis):
    chart = chart_of(analysis)
    placeable = {index for index, row in enumerate(analysis.operators) if row.flops and row.bytes and row.time_s}
    assert {point.key for point in chart.points} <= placeable
    assert len(chart.points) + chart.left_out == len(placeable)
    for point in chart.points:
        row = analysis.operators[point.key]
        assert point.intensity == pytest.approx(row.flops / row.bytes)
        assert point.flop_per_s == pytest.approx(row.flops / row.time_s)
        assert point.category == row.category


def test_points_of_a_delayed_run_have_bars_of_their_speed():
    first, *rest = sample().operators
    timed = replace(first, step_times_s=(0.01, 0.02, 0.04))
    others = OtherPrograms(busy=1.5, threads=2, judged=False)
    delayed = replace(sample(), operators=(timed, *rest), other_programs=others)
    bars = {point.key: point.spread for point in chart_of(delayed).points}
    assert bars.pop(0) == pytest.approx((first.flops / 0.04, first.flops / 0.02))
    assert set(bars.values()) == {None}, "their times in each step are not known"
    quiet = replace(delayed, other_programs=replace(others, judged=True))
    assert {point.spread for point in chart_of(quiet).points} == {None}


def test_what_cannot_be_placed_and_outliers_are_counted():
    # What cannot be placed is counted.
    analysis = variants.large()
    copies = [row for row in analysis.operators if row.category == "copy"]
    chart = chart_of(analysis)
    time = seconds(sum(row.time_s for row in copies))
    assert f"Not on the chart, without FLOPs or bytes: {len(copies)} operators ({time})." in chart_note(analysis, chart)
    # An outlier without time does not stretch the axes.
    analysis = sample()
    outlier = replace(analysis.operators[0], flops=1, bytes=10**9, time_s=1e-6, headroom_s=0.0)
    with_outlier = chart_of(variants.replaced(operators=(*analysis.operators, outlier)))
    assert with_outlier.limits == CHARTS["sample"].limits
    assert (with_outlier.left_out, CHARTS["sample"].left_out) == (1, 0)
    long_outlier = chart_of(variants.replaced(operators=(*analysis.operators, replace(outlier, time_s=0.05))))
    assert long_outlier.limits.x[0] < 1e-9
    # Points are bounded.
    analysis = variants.large(MOST_POINTS + 400)
    chart = chart_of(analysis)
    assert len(chart.points) <= MOST_POINTS
    assert len(chart.points) + chart.left_out == sum(bool(row.flops and row.bytes) for row in analysis.operators)
    assert f"not among the {MOST_POINTS} longest" in chart_note(analysis, chart)
    assert min(point.time_s for point in chart.points) > 0


def test_limits_hold_everything_and_cut_empty_decades(chart):
    marks = [(p.intensity, p.flop_per_s) for p in chart.points] + [(r.intensity, r.flop_per_s) for r in chart.ridges]
    marks += [(ring.intensity, ring.flop_per_s) for ring in chart.rings]
    assert all(chart.limits.contains(x, y) for x, y in marks)
    assert all(chart.wide.contains(x, y) for x, y in marks)
    levels = [y for _, y in marks] + [roof.ceiling.value for roof in chart.roofs if roof.ceiling.kind == "compute" and roof.primary]
    for low, high, values in ((*chart.limits.x, [x for x, _ in marks]), (*chart.limits.y, levels)):
        span = math.log10(max(values) / min(values))
        if span > 2:
            assert min(values) / low < 10
            assert high / max(values) < 10
    assert all(chart.wide.y[1] > roof.ceiling.value for roof in chart.roofs if roof.ceiling.kind == "compute")


def test_ring_is_the_whole_run_and_the_band_the_upper_half_of_the_roof(chart):
    analysis, ring = sample(), CHARTS["sample"].rings[0]
    assert ring.intensity == pytest.approx(analysis.totals.flops / analysis.totals.bytes)
    assert ring.flop_per_s == pytest.approx(analysis.totals.flops / analysis.timeline.span_s)
    memory = next(roof for roof in chart.roofs if roof.primary and roof.ceiling.kind == "memory")
    top = max(roof.ceiling.value for roof in chart.roofs if roof.primary and roof.ceiling.kind == "compute")
    assert len(chart.band) == 3
    for x, upper in chart.band:
        assert upper == pytest.approx(min(top, memory.ceiling.value * x))


@pytest.mark.parametrize("name", CHARTS)
def test_the_names_are_those_with_the_most_headroom_and_all_differ(name):
    chart, analysis = CHARTS[name], ANALYSES[name]
    headrooms = sorted((row.headroom_s for row in analysis.operators if row.headroom_s), reverse=True)[:MOST_LABELS]
    assert [analysis.operators[point.key].headroom_s for point in chart.labeled] == headrooms
    names = [point.label for point in chart.labeled]
    assert len(set(names)) == len(names)


def test_equal_names_are_told_apart_and_of_repeated_layers_one_point_is_named():
    row = sample().operators[0]
    chart = chart_of(variants.replaced(operators=tuple(replace(row, bytes=row.bytes + i * 10**5) for i in range(6))))
    assert len({point.label for point in chart.labeled}) == 6
    names = [point.label for point in chart_of(variants.repeated()).labeled]
    assert len(names) == 2
    assert all("layers.*" in name and name.endswith("×12") for name in names)


def test_roofs_and_points_tell_everything():
    texts = {roof.ceiling.name: roof.text for roof in CHARTS["large"].roofs}
    assert texts["FP32 FMA"] == "FP32 FMA 60.0 TFLOP/s, data sheet"
    assert texts["HBM read"] == "HBM read 4.10 TB/s, measured"
    names = {name for name, _ in CHARTS["sample"].points[0].lines}
    assert {"module", "shapes", "time", "work", "traffic", "intensity", "achieved", "attainable", "efficiency", "bound"} <= names
    (warned,) = (point for point in CHARTS["sample"].points if point.warning)
    assert "still in cache" in warned.warning
    assert ("warning", warned.warning) in warned.lines


def test_roofs_without_points_points_without_roofs_and_roofs_of_the_wrong_kind():
    # Roofs without points and points without roofs.
    roofs = chart_of(variants.replaced(operators=(), totals=None))
    assert roofs.roofs
    assert not roofs.points
    points = chart_of(variants.replaced(ceilings=()))
    assert points.points
    assert not points.roofs
    assert not points.band
    assert roofline_of(variants.empty()) is None
    # A roof of the wrong kind does not break the chart.
    only_memory = chart_of(variants.replaced(ceilings=ceilings()[3:6]))
    assert {roof.ceiling.kind for roof in only_memory.roofs} == {"memory"}
    broken = Ceiling(kind="compute", name="zero", value=0.0, unit="FLOP/s", source=Source(kind="user", detail=""), precision="fp32")
    assert all(roof.ceiling.value > 0 for roof in chart_of(variants.replaced(ceilings=(broken, *ceilings()))).roofs)


@pytest.mark.parametrize("theme", THEMES)
def test_palette_has_contrast_and_no_color_twice(theme):
    ink = INK[theme]
    for ground in (ink.page, ink.panel):
        assert all(contrast(category_color(category, theme), ground) >= 3 for category in CATEGORIES)
        assert all(contrast(color, ground) >= 4.5 for color in (ink.text, ink.muted, ink.accent, ink.warning, ink.notice))
    assert len({category_color(category, theme) for category in CATEGORIES}) == len(CATEGORIES)
    assert len({style.letter for style in BOUNDS.values()}) == len(BOUNDS)


def test_points_of_any_origin_stand_on_roofs_and_those_with_a_label_are_named():
    points = [
        RooflinePoint(
            key=key, name=f"step {key}", label="step", gain_s=key, category="series-1", intensity=key, flop_per_s=1e9 * key, time_s=1.0
        )
        for key in (1, 2, 3)
    ]
    chart = roofline_drawing(points, ceilings())
    assert [point.label for point in chart.labeled] == ["step", "step #2", "step #3"]
    assert chart.legend == ()
    assert {roof.ceiling.name for roof in chart.roofs if roof.primary} == {"DRAM triad", "FMA fp32"}
    assert roofline_drawing((), ()) is None
