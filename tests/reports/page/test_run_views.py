"""Views of a run: kernels, time against bound, steps, memory and modules, by their laws on real traces."""

import pytest
from msgspec.structs import replace

from rooflines.profiler.records import HeldTensor, MemoryAtPeak, MemoryCurve
from rooflines.reports.charts.paper import as_svg, draw
from rooflines.reports.document import value_of
from rooflines.reports.page import run as view
from rooflines.reports.page.kernels import kernel_table
from rooflines.reports.page.memory import memory_section, parts_table
from rooflines.reports.page.operators import against_bars, modules_figure
from rooflines.reports.page.steps import MOST_STEPS, steps_table
from rooflines.reports.render.figures import page_svg
from rooflines.reports.render.formats import write
from rooflines.reports.render.grid import packed
from rooflines.reports.render.html import render
from rooflines.roofline.analysis import Memory, TracedStep
from tests.reports.variants import HOSTILE, hostile, repeated
from tests.roofline.real import named
from tests.samples import analysis as sample

GPU = ("bert-small_h100_inference", "vit-b16_mi300x_inference", "resnet50_v100_training_2021_schema", "dlrm_a100_training")


def cells(table, name):
    at = [column.name for column in table.columns].index(name)
    return [row.cells[at] for row in table.rows]


@pytest.mark.parametrize("name", GPU)
def test_kernels_have_all_kernel_time_and_a_roofline_point_where_their_operators_ran_nothing_else(name):
    analysis = named(name)
    table = kernel_table(analysis)
    kernels = [kernel for row in analysis.rows for kernel in row.kernels]
    assert sum(value_of(cell) for cell in cells(table, "time")) == pytest.approx(sum(kernel.time_s for kernel in kernels))
    assert sum(cells(table, "calls")) == pytest.approx(sum(kernel.calls for kernel in kernels))
    placed = [row for row, bound in zip(table.rows, cells(table, "bound"), strict=True) if value_of(bound)]
    assert placed
    for row in placed:
        rows = [analysis.operators[at] for at in row.points]
        flops, achieved = sum(one.flops for one in rows), row.cells[-4]
        assert (achieved is None) == (not flops)
        time = value_of(row.cells[2])
        assert not flops or achieved * time == pytest.approx(flops)
        assert time <= sum(one.time_s for one in rows) * 1.001


def test_an_occupancy_that_was_not_computed_is_absent():
    table = kernel_table(named("bert-small_h100_inference"))
    texts = dict(zip(map(value_of, cells(table, "kernel")), cells(table, "occupancy"), strict=True))
    assert value_of(texts["GEMM bf16 256x128x64 (CUTLASS, align 2)"]) is None  # 144 KiB of shared memory
    assert texts["reduce and"].text == "<1"  # one warp on 132 multiprocessors
    assert value_of(texts["flash attention forward bf16"]) == pytest.approx(0.01)
    assert "48 KiB" in table.note
    # Columns that a trace does not have are left out.
    assert "registers" not in [column.name for column in kernel_table(named("vit-b16_mi300x_inference")).columns]
    assert kernel_table(named("cpu_only")) is None
    assert "kernels" not in [section.name for section in view.page(sample()).sections]


@pytest.mark.parametrize("name", [*GPU, "sample"])
def test_bars_against_the_bound_are_the_times_of_their_rows(name):
    analysis = sample() if name == "sample" else named(name)
    bar = against_bars(analysis)
    lengths = [sum(part.share for part in row.parts) for row in bar.rows]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == pytest.approx(1)
    assert len(lengths) <= 12
    assert all("bound" in row.text for row in bar.rows)


def test_without_ceilings_there_are_no_bars():
    assert against_bars(named("ddp_rank0")) is None
    two = against_bars(replace(sample(), operators=sample().operators[:2], coverage=None))
    assert ("conv2d, layer1.0.conv2", "12.1 ms, bound 6.03 ms, 50 %") in [(row.label, row.text) for row in two.rows]
    assert against_bars(replace(sample(), operators=sample().operators[:1], coverage=None)) is None, "its row says the same"


def test_an_operator_faster_than_its_bound_is_marked_with_its_time():
    rows = sample().operators
    fast = replace(rows[2], lower_bound_s=rows[2].time_s * 2, efficiency=2.0, headroom_s=0.0, flag="the count is too high")
    bar = against_bars(replace(sample(), operators=(*rows[:2], fast, *rows[3:])))
    assert [(part.pattern, part.share) for part in bar.rows[0].parts] == [("doubt", pytest.approx(1))]
    assert bar.rows[0].text == "30.2 ms, bound 60.4 ms, !200 %"


def test_traced_steps_have_their_durations_and_many_are_cut():
    analysis = named("resnet50_v100_training_2021_schema")
    for step, row in zip(analysis.traced_steps, steps_table(analysis).rows, strict=True):
        assert sum(filter(None, row.cells[2:])) == pytest.approx(step.duration_s)
    many = tuple(TracedStep(name=f"step {at}", duration_s=1.0, breakdown={"cpu_s": 1.0}) for at in range(60))
    assert len(steps_table(replace(sample(), traced_steps=many)).rows) == MOST_STEPS
    assert steps_table(replace(sample(), traced_steps=many[:1])) is None


@pytest.mark.parametrize("name", GPU[:2])
def test_allocated_memory_of_a_trace_has_its_peak_in_the_curve(name):
    traced = named(name).memory.allocated
    assert traced.of == "device"
    assert max(traced.curve.parts["allocated"]) == traced.peak_bytes
    assert 1 < len(traced.curve.at) <= 200
    assert list(traced.curve.at) == sorted(traced.curve.at)
    assert traced.operator == "aten::addmm"
    assert f"over {traced.step}" in memory_section(named(name)).blocks[0].caption


def test_memory_that_was_not_followed_says_how_to_record_it():
    assert named("resnet50_v100_training_2021_schema").memory is None  # its events have no totals
    assert "profile_memory=True" in memory_section(named("resnet50_v100_training_2021_schema")).blocks[-1].text


FOLLOWED = Memory(
    peak_bytes=500, kind="allocator", at_peak=MemoryAtPeak(parameters=100, activations=300, overhead=100), operator="aten::mm",
    module=HOSTILE, phase="forward",
    curve=MemoryCurve(unit="calls", at=(0, 1, 2), parts={"parameters": (100, 100, 100), "activations": (0, 300, 0)}),
    largest=(HeldTensor(bytes=300, category="activations", dtype=HOSTILE, shape=None, operator=HOSTILE, module=HOSTILE),),
)  # fmt: skip


def test_memory_of_a_followed_step():
    rows = parts_table(FOLLOWED).rows
    assert [row.cells[1:5] for row in rows] == [
        ("parameters", 100, 100, 100), ("activations", 300, 0, 300), ("overhead", 100, None, None)
    ]  # fmt: skip
    figure = memory_section(replace(sample(), memory=FOLLOWED)).blocks[1]
    assert "the peak of 400 B is" in figure.caption
    # A run of an older version has the parts only.
    blocks = memory_section(replace(sample(), memory=replace(FOLLOWED, curve=None, largest=()))).blocks
    assert [block.kind for block in blocks] == ["text", "absent", "parts"]


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "sample"])
def test_modules_share_the_width_of_their_parent(name):
    icicle = modules_figure(sample() if name == "sample" else named(name)).drawing
    cells = icicle.cells()
    for node, cell in zip(icicle.nodes, cells, strict=True):
        if node.parent >= 0:
            around = cells[node.parent]
            assert around.x - 1e-9 <= cell.x
            assert cell.x + cell.width <= around.x + around.width + 1e-9
    assert len(page_svg(icicle, 7.6, "m")) + len(packed(icicle.page_facts())) < 40_000


@pytest.mark.ci
def test_names_of_anybody_are_harmless_in_every_format(tmp_path):
    modules = (*sample().modules, replace(sample().modules[-1], path=f"layer1.{HOSTILE}", type=HOSTILE))
    kernels = tuple(replace(row, kernels=tuple(replace(one, name=HOSTILE) for one in row.kernels)) for row in repeated().operators)
    analysis = replace(hostile(), memory=FOLLOWED, modules=modules, operators=(*hostile().operators, *kernels))
    page = view.page(analysis)
    assert "kernels" in [section.name for section in page.sections]
    assert "alert(" in render(page)
    assert "<script>alert" not in render(page)
    assert "<script>alert" not in as_svg(draw(modules_figure(analysis).drawing))
    for name in ("markdown", "text", "pdf"):
        assert write(page, name, tmp_path).stat().st_size
