"""The equations of the roofline, each test the arithmetic; and rows judged by them: bound, headroom, class, transfers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import rooflines
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.reports.page.operators import operator_table
from rooflines.reports.words.sentences import roofs_of_run
from rooflines.reports.words.text import bound_words
from rooflines.roofline.analyze import analyze
from rooflines.roofline.compare.compare import compare
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.judge.bounds import bound_class, memory_seconds, place_on_roofline, with_shortest_kernel
from rooflines.roofline.judge.bounds import judge as judge_row
from tests.roofline.real import named
from tests.roofline.rooms import divided
from tests.traces import add, kernel, launch, mm, op, trace

SOURCE = Source(kind="measured", detail="test")


def compute(value, precision, engine):
    return Ceiling(
        kind="compute", name=f"{engine} {precision}", value=value, unit="FLOP/s", source=SOURCE, precision=precision, engine=engine
    )


def memory(value, level, capacity):
    return Ceiling(kind="memory", name=level, value=value, unit="B/s", source=SOURCE, level=level, capacity_bytes=capacity)


LATENCY = Ceiling(kind="latency", name="dispatch", value=1e-6, unit="s", source=SOURCE)
CPU = Ceilings(device="cpu", kind="cpu", ceilings=(
    compute(400e9, "fp32", "vector"), compute(200e9, "fp32", "matrix"), compute(900e9, "bf16", "matrix"),
    memory(400e9, "L2", 2_000_000), memory(200e9, "L3", 30_000_000), memory(40e9, "DRAM", None), LATENCY,
))  # fmt: skip
GPU = Ceilings(device="gpu", kind="cuda", ceilings=(
    compute(60e12, "fp32", "vector"), compute(800e12, "bf16", "matrix"), memory(4e12, "HBM", None), LATENCY,
))  # fmt: skip


def test_matrix_work_that_runs_on_the_vector_units_is_judged_by_their_peak():
    # A GEMM is not the peak: 200 GFLOP/s measured for it, 400 for the units it runs on.
    placed = place_on_roofline(Work(matrix_flops=400_000_000_000, bytes_read=1000, precision="fp32"), CPU)
    assert (placed.lower_bound_s, placed.bound, placed.engine) == (pytest.approx(1.0), "compute", "vector")


def test_on_shared_units_the_parts_add_up_and_beside_each_other_the_longer_counts():
    work = Work(matrix_flops=400_000_000_000, other_flops=200_000_000_000, bytes_read=1000, precision="fp32")
    assert place_on_roofline(work, CPU).lower_bound_s == pytest.approx(1.0 + 0.5)
    work = Work(matrix_flops=800_000_000_000_000, other_flops=30_000_000_000_000, bytes_read=1000, precision="bf16")
    # bf16 vector arithmetic is done in fp32 registers: 30e12 / 60e12 = 0.5 s beside 1 s of matrix work.
    assert place_on_roofline(work, GPU).lower_bound_s == pytest.approx(1.0)


def test_memory_bound_and_attainable():
    placed = place_on_roofline(
        Work(other_flops=1_000_000_000, bytes_read=2_000_000_000_000, bytes_written=2_000_000_000_000, precision="fp32"), GPU
    )
    assert (placed.lower_bound_s, placed.bound, placed.memory_level) == (pytest.approx(1.0), "memory", "HBM")
    assert placed.attainable_flop_per_s == pytest.approx(1e9)  # intensity 1/4000 FLOP/byte x 4 TB/s


def test_a_tiny_operator_is_latency_bound():
    assert place_on_roofline(Work(other_flops=10, bytes_read=80, precision="fp32"), CPU).bound == "latency"


def test_bytes_move_at_the_rate_of_the_levels_that_can_hold_them():
    assert memory_seconds(1_000_000, 1_000_000, CPU) == (pytest.approx(1e6 / 400e9), "L2")
    # 12 MB: 2 MB can lie in L2, 10 MB in L3.
    assert memory_seconds(12_000_000, 12_000_000, CPU) == (pytest.approx(2e6 / 400e9 + 10e6 / 200e9), "L3")
    # 132 MB: 100 MB must come from DRAM.
    assert memory_seconds(132_000_000, 132_000_000, CPU) == (pytest.approx(2e6 / 400e9 + 30e6 / 200e9 + 100e6 / 40e9), "DRAM")


def test_an_operator_in_place_moves_more_bytes_than_it_lies_in():
    # add_ on 1 MB: reads a and b, writes a: 3 MB of traffic in 2 MB.
    assert memory_seconds(3_000_000, 2_000_000, CPU) == (pytest.approx(3e6 / 400e9), "L2")


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_more_bytes_never_take_less_time(a, b):
    low, high = sorted((a, b))
    assert memory_seconds(low, low, CPU)[0] <= memory_seconds(high, high, CPU)[0] * (1 + 1e-12)


@given(st.integers(0, 10**15), st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_lower_bound_is_never_below_any_of_its_parts(flops, read, written):
    work = Work(matrix_flops=flops, bytes_read=read, bytes_written=written, precision="fp32")
    placed = place_on_roofline(work, CPU)
    assert placed.lower_bound_s >= max(flops / 400e9, LATENCY.value) * (1 - 1e-12)
    assert placed.lower_bound_s >= (read + written) / 400e9 * (1 - 1e-12)


def test_without_ceilings_there_is_no_bound():
    empty = Ceilings(device="", kind="cpu", ceilings=())
    assert place_on_roofline(Work(matrix_flops=10, bytes_read=10, precision="fp32"), empty) is None
    # No int8 roof is known: the bytes still bound it, the arithmetic does not.
    assert place_on_roofline(Work(matrix_flops=10**12, bytes_read=200 * 10**9, precision="int8"), GPU).bound == "memory"


def uploading(*, hidden_us, name="Memcpy HtoD (Pinned -> Device)"):
    """A copy of 4 MB that takes 1000 us, beside a kernel on another stream that runs for ``hidden_us`` of it."""
    size = 1_000_000
    events = [
        op("aten::copy_", 0, 20, dims=[[size], [size], []], types=["float", "float", ""], concrete=["", "", "True"]),
        launch(5, 2, 1), kernel(name, 100, 1000, 1, stream=8, cat="gpu_memcpy"),
    ]  # fmt: skip
    if hidden_us:
        events += [add(30, 20, size), launch(35, 2, 2), kernel("elementwise", 100, hidden_us, 2)]
    return trace(*events)


def ceilings_with(*, link=10e9, latency=None):
    source = Source(kind="user", detail="")
    found = [
        Ceiling(kind="memory", name="HBM", value=1e12, unit="B/s", level="HBM", source=source),
        Ceiling(kind="compute", name="fp32", value=1e13, unit="FLOP/s", precision="fp32", engine="vector", source=source),
    ]
    if link:
        found += [Ceiling(kind="link", name=name, value=link, unit="B/s", level="host", source=source) for name in ("H2D", "D2H")]
    if latency:
        found.append(Ceiling(kind="latency", name="kernel launch", value=latency, unit="s", source=source))
    return Ceilings(device="", kind="cuda", ceilings=tuple(found))


def analyzed(found, ceilings):
    return analyze(run_of_trace("t.json", found), ceilings, found).analysis


def row_of(analysis, name):
    (row,) = [row for row in analysis.operators if row.name == name]
    return row


@pytest.mark.parametrize(("hidden_us", "headroom_us"), [(0, 600), (100, 600), (700, 300), (1000, 0)])
def test_only_the_exposed_part_of_a_copy_can_be_saved(hidden_us, headroom_us):
    """4 MB at 10 GB/s are 400 us, of 1000."""
    analysis = analyzed(uploading(hidden_us=hidden_us), ceilings_with())
    row = row_of(analysis, "aten::copy_")
    assert (row.bound, row.lower_bound_s) == ("transfer", pytest.approx(400e-6))
    assert (row.exposed_s, row.headroom_s) == (pytest.approx((1000 - hidden_us) * 1e-6), pytest.approx(headroom_us * 1e-6))
    totals = analysis.totals
    assert totals.lower_bound_s + totals.headroom_s + totals.unjudged_s == pytest.approx(totals.time_s)
    assert totals.unjudged_s == pytest.approx((600 - headroom_us) * 1e-6, abs=1e-12)


def test_without_ceilings_nothing_is_judged_not_even_a_view():
    found = trace(add(30, 10), op("aten::t", 10, 5, dims=[[4, 4]], types=["float"]))
    assert row_of(analyzed(found, ceilings_with()), "aten::t").bound == "latency"
    for row in analyzed(found, None).operators:
        assert (row.bound, row.lower_bound_s, row.headroom_s, row.efficiency) == ("unknown", None, None, None)


def test_without_a_link_a_copy_is_a_transfer_that_nothing_bounds():
    row = row_of(analyzed(uploading(hidden_us=0), ceilings_with(link=None)), "aten::copy_")
    assert (row.bound, row.lower_bound_s, row.headroom_s, row.efficiency) == ("transfer", None, None, None)


@pytest.mark.parametrize("name", [
    "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Host -> Device)", "CopyHostToDevice Memcpy H2D",
])  # fmt: skip
def test_every_direction_and_kind_of_host_memory_has_the_link_as_its_roof(name):
    row = row_of(analyzed(uploading(hidden_us=0, name=name), ceilings_with()), "aten::copy_")
    assert (row.bound, row.lower_bound_s) == ("transfer", pytest.approx(400e-6))


def test_a_copy_on_the_device_is_judged_by_its_memory():
    row = row_of(analyzed(uploading(hidden_us=0, name="Memcpy DtoD (Device -> Device)"), ceilings_with()), "aten::copy_")
    assert (row.bound, row.nearest_roof, row.lower_bound_s) == ("inefficient", "memory", pytest.approx(8e-6))


def kernels(*durations, cat="kernel"):
    return trace(*(kernel("k", 10 * i, duration, i, cat=cat) for i, duration in enumerate(durations)))


@pytest.mark.parametrize(("found", "floor_us"), [
    (kernels(*[4.0] * 9, 1.5), 1.5),
    (kernels(*[0.0] * 20, 2.0), 2.0),  # whole microseconds, rounded down
    (kernels(*[4.0] * 8, 1.5), None),  # too few
    (kernels(*[9.0] * 20), None),  # each of them works
    (kernels(*[1.0] * 20, cat="gpu_memset"), None),
])  # fmt: skip
def test_a_floor_needs_enough_kernels_and_a_short_one(found, floor_us):
    latency = with_shortest_kernel(ceilings_with(), found).latency()
    assert (latency and latency.value) == (floor_us and pytest.approx(floor_us * 1e-6))


def test_a_measured_latency_stays():
    ceilings = ceilings_with(latency=3e-6)
    assert with_shortest_kernel(ceilings, kernels(*[2.0] * 20)) is ceilings


def test_memsets_are_shorter_than_the_shortest_kernel():
    filled = [
        op("aten::zero_", 0, 20, dims=[[1000]], types=["float"]),
        launch(5, 2, 1),
        kernel("Memset (Device)", 30, 1, 1, cat="gpu_memset"),
    ]
    work = [event for i in range(2, 20) for event in (add(100 * i, 20), launch(100 * i + 5, 2, i), kernel("k", 100 * i + 30, 2, i))]
    analysis = analyzed(trace(*filled, *work), ceilings_with())
    assert (row_of(analysis, "aten::add").bound, row_of(analysis, "aten::add").efficiency) == ("latency", pytest.approx(1))
    assert (row_of(analysis, "aten::zero_").bound, row_of(analysis, "aten::zero_").flag) == ("inefficient", None)


@pytest.mark.parametrize(("roof", "efficiency", "expected"), [
    ("memory", 0.34, ("memory", None)), ("memory", 0.33, ("inefficient", "memory")), ("compute", 0.1, ("inefficient", "compute")),
    ("compute", 1.2, ("compute", None)), ("memory", None, ("memory", None)), ("latency", 0.1, ("inefficient", None)),
    ("latency", 0.34, ("latency", None)),
])  # fmt: skip
def test_below_a_third_of_every_roof_the_class_is_inefficient(roof, efficiency, expected):
    assert bound_class(roof, efficiency) == expected


@pytest.mark.parametrize(
    ("took_us", "expected"),
    [(20, ("memory", None)), (36, ("memory", None)), (37, ("inefficient", "memory")), (400, ("inefficient", "memory"))],
)
def test_the_nearer_roof_is_named(took_us, expected):
    """12 MB at 1 TB/s are 12 us; a million FLOPs at 10 TFLOP/s are 0.1."""
    found = trace(add(0, 20, 1_000_000), launch(5, 2, 1), kernel("k", 30, took_us, 1))
    row = row_of(analyzed(found, ceilings_with()), "aten::add")
    assert (row.bound, row.nearest_roof) == expected


def test_reports_name_the_nearest_roof_and_the_link():
    analysis = named("resnet50_v100_training_2021_schema")
    slow = next(row for row in analysis.operators if row.bound == "inefficient")
    assert bound_words(slow) == f"inefficient ({slow.nearest_roof})"
    assert [roof.name for roof in roofs_of_run(analysis)] == ["fp32 vector", "HBM HBM2", "shortest kernel", "H2D"]
    table = operator_table(analysis)
    bound = [column.label for column in table.columns].index("class")
    titles = {row.cells[bound].hover for row in table.rows if row.cells[bound].sort == "transfer"}
    assert any("judged by the link; from or to pageable memory" in title for title in titles)


def test_two_traces_of_one_device_are_judged_by_the_same_ceilings():
    """The shortest kernel is each trace's own."""
    source = Source(kind="trace", detail="")
    sides = []
    for value in (1e-6, 2e-6):
        floor = Ceiling(kind="latency", name="shortest kernel", value=value, unit="s", source=source)
        analysis = analyzed(uploading(hidden_us=100), ceilings_with())
        sides.append(replace(analysis, ceilings=(*analysis.ceilings, floor)))
    assert not any("different ceilings" in note for note in compare(*sides).notes)


def test_only_a_convolution_may_have_an_algorithm_with_fewer_flops():
    source = Source(kind="measured", detail="")
    slow = Ceiling(kind="compute", name="FMA", engine="vector", precision="fp32", value=1e9, unit="FLOP/s", source=source)
    ceilings = Ceilings(device="cpu", kind="cpu", ceilings=(slow,))
    concrete = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    convolution = {"dims": [[1, 64, 32, 32], [64, 64, 3, 3], *[[]] * 7], "types": ["float", "float", *[""] * 7], "concrete": concrete}
    for event, reason in ((mm(0, 10, 512, 512, 512), "lower precision"), (op("aten::convolution", 0, 10, **convolution), "Winograd")):
        assert reason in judge_row(divided(event).rows[0], ceilings, "fp32").flag


def test_fused_attention_in_fp32_is_bounded_by_three_products_in_tf32(tmp_path):
    concrete = ["", "", "", "", "False", "0.", "False", ""]
    dims = {"dims": [[2, 16, 1024, 64]] * 3 + [[]] * 5, "types": ["float"] * 3 + [""] + ["Scalar"] * 3 + [""], "concrete": concrete}
    name = "aten::_scaled_dot_product_efficient_attention"
    devices = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}]}
    bounds = {}
    for kind in ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "fmha_cutlassF_f32_aligned_64x64_rf_sm75"):
        events = [op(name, 0, 20, **dims), launch(5, 5, 1), kernel(kind, 30, 1000, 1)]
        (tmp_path / f"{kind}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **devices}))
        (row,) = rooflines.analyze(tmp_path / f"{kind}.json").operators
        bounds[kind[-4:]] = row.lower_bound_s
    assert bounds["sm80"] == pytest.approx(row.matrix_flops / (156e12 / 3))
    # Without tensor cores the softmax is on the same units.
    assert bounds["sm75"] == pytest.approx(row.flops / 19.5e12)
