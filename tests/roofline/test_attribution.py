"""Whose time it is, on traces whose arithmetic can be read off. Times are microseconds in, nanoseconds out."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.calls import build_calls, module_annotation
from rooflines.roofline.attribution import attribute
from tests.traces import add, allocation, kernel, launch, mm, op, span, trace

pytestmark = pytest.mark.unit


def divide(*events):
    found = trace(*events)
    calls = build_calls(found)
    result = attribute(found, calls)
    total = sum(row.time_ns for row in result.rows) + sum(gap.time_ns for gap in result.gaps)
    assert total + result.idle_ns - result.overlap_ns == result.span_ns
    return result


def times(result):
    rows: dict[str, int] = {}
    for row in result.rows:
        rows[row.signature.name] = rows.get(row.signature.name, 0) + row.time_ns
    return rows, {gap.name: gap.time_ns for gap in result.gaps}


# --- CPU ---------------------------------------------------------------------------------------------------------------------------


def test_the_outermost_counted_operator_owns_everything_below_it():
    result = divide(span("ProfilerStep#0", 0, 100), mm(10, 50, 8, 8, 8), op("aten::resolve_conj", 20, 5), op("mylib::helper", 30, 10))
    assert times(result) == ({"aten::mm": 50_000}, {})
    assert (result.span_ns, result.idle_ns) == (100_000, 50_000)


def test_an_unknown_operator_is_listed_with_its_own_time_only():
    result = divide(span("ProfilerStep#0", 0, 100), op("mylib::block", 10, 60), mm(20, 30, 8, 8, 8), op("mylib::block", 80, 10))
    assert times(result) == ({"aten::mm": 30_000}, {"mylib::block": 30_000 + 10_000})
    assert result.gaps[0].calls == 2
    assert result.gaps[0].reason


def test_a_dispatcher_is_no_gap_its_own_time_is_a_row_without_work():
    node = "autograd::engine::evaluate_function: MmBackward0"
    result = divide(op(node, 0, 20), mm(5, 10, 8, 8, 8))
    assert times(result) == ({node: 10_000, "aten::mm": 10_000}, {})


def test_what_lies_outside_the_steps_is_not_counted():
    result = divide(
        mm(0, 5, 8, 8, 8),
        span("ProfilerStep#0", 20, 50), mm(30, 10, 8, 8, 8), mm(75, 2, 8, 8, 8),
        span("ProfilerStep#1", 80, 20),
    )  # fmt: skip
    assert times(result) == ({"aten::mm": 10_000}, {})
    assert result.span_ns == 70_000


def test_a_step_mark_that_misses_the_work_is_no_step():
    result = divide(mm(0, 10, 8, 8, 8), mm(20, 10, 8, 8, 8), span("ProfilerStep#6", 31, 1))
    assert (result.steps, result.span_ns) == (0, 30_000)
    assert times(result) == ({"aten::mm": 20_000}, {})


@pytest.mark.parametrize("events", [
    [op("ProfilerStep#1", 0, 0)], [op("ProfilerStep#1", 0, 0), mm(0, 0, 8, 8, 8)], [span("only an annotation", 0, 5)], [],
])  # fmt: skip
def test_a_trace_without_any_time_is_divided_into_nothing(events):
    result = divide(*events)
    assert (result.span_ns, result.busy_ns, result.idle_ns) == (0, 0, 0)


def test_two_threads_at_once_overlap():
    result = divide(span("ProfilerStep#0", 0, 100), mm(10, 50, 8, 8, 8), mm(30, 50, 8, 8, 8, tid=2))
    assert (result.busy_ns, result.overlap_ns) == (70_000, 30_000)


def test_a_list_takes_its_item_size_from_what_the_call_allocated():
    cat = op("aten::cat", 0, 10, dims=[[[4, 8], [4, 8]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    counted = {}
    for size in (4, 2):
        (row,) = divide(cat, allocation(2, 64 * size)).rows
        counted[size] = row.count.work.bytes
    assert counted == {4: 2 * 64 * 4, 2: 2 * 64 * 2}


def test_rows_are_split_by_module_and_phase_and_signature():
    result = divide(
        span(module_annotation("a", "Linear"), 0, 20), mm(1, 5, 8, 8, 8), mm(8, 5, 8, 8, 8),
        span(module_annotation("b", "Linear"), 30, 20), mm(31, 5, 8, 8, 8), mm(38, 5, 8, 8, 9),
    )  # fmt: skip
    assert sorted((row.module, row.calls) for row in result.rows) == [(0, 2), (1, 1), (1, 1)]


# --- GPU ---------------------------------------------------------------------------------------------------------------------------


def test_a_kernel_belongs_to_the_counted_operator_around_its_launch():
    result = divide(
        op("aten::linear", 0, 20, dims=[[8, 8], [8, 8], []], types=["float", "float", ""], concrete=["", "", ""]), mm(5, 10, 8, 8, 8),
        launch(6, 2, 11), kernel("gemm", 100, 30, 11),
    )  # fmt: skip
    assert times(result) == ({"aten::linear": 30_000}, {})
    assert result.span_ns == 30_000


def test_kernels_of_one_call_on_two_streams_are_a_union():
    result = divide(mm(0, 20, 8, 8, 8), launch(1, 2, 1), launch(5, 2, 2), kernel("a", 100, 30, 1), kernel("b", 120, 30, 2, stream=8))
    assert times(result) == ({"aten::mm": 50_000}, {})
    assert result.overlap_ns == 0


def test_kernels_of_two_operators_at_once_overlap_and_the_sum_still_holds():
    result = divide(
        mm(0, 5, 8, 8, 8), launch(1, 2, 1), add(10, 5), launch(11, 2, 2), kernel("a", 100, 30, 1), kernel("b", 110, 30, 2, stream=8),
    )  # fmt: skip
    assert times(result) == ({"aten::mm": 30_000, "aten::add": 30_000}, {})
    assert (result.busy_ns, result.overlap_ns) == (40_000, 20_000)


def test_kernels_without_operator_or_launch_are_listed_and_orphans_counted():
    result = divide(
        launch(0, 2, 1), kernel("lonely", 10, 5, 1), kernel("orphan", 20, 7, 99),
        op("mylib::fused", 30, 9), launch(31, 2, 3), kernel("mine", 40, 11, 3),
    )  # fmt: skip
    assert times(result)[1] == {"lonely": 5_000, "orphan": 7_000, "mylib::fused": 11_000}
    assert result.orphans == 1
    assert result.idle_ns == result.span_ns - 23_000


def test_a_trace_with_nothing_but_kernels_has_orphans_only():
    result = divide(kernel("a", 0, 5, 1), kernel("b", 10, 5, 2))
    assert (times(result), result.orphans) == (({}, {"a": 5_000, "b": 5_000}), 2)


def test_time_launched_as_a_graph_is_said_and_never_dropped():
    graph = launch(0, 2, 1) | {"name": "cudaGraphLaunch"}
    result = divide(graph, kernel("a", 20, 5, 1), kernel("b", 25, 5, 1), add(40, 5), launch(41, 2, 2), kernel("c", 60, 5, 2))
    assert result.graphs_ns == 10_000
    assert times(result) == ({"aten::add": 5_000}, {"a": 5_000, "b": 5_000})


def test_calls_without_a_count_are_calls_of_the_operator_not_of_its_kernels():
    result = divide(op("mylib::fused", 0, 9), launch(1, 2, 1), launch(4, 2, 2), kernel("a", 20, 5, 1), kernel("b", 30, 5, 2))
    assert [(gap.name, gap.calls, gap.time_ns) for gap in result.gaps] == [("mylib::fused", 1, 10_000)]


def test_work_that_ran_no_kernel_is_kept_with_no_time():
    result = divide(mm(0, 5, 8, 8, 8), add(10, 5), launch(11, 2, 2), kernel("b", 110, 30, 2))
    assert times(result)[0] == {"aten::mm": 0, "aten::add": 30_000}


def test_a_device_event_belongs_to_the_step_that_launched_it():
    result = divide(
        mm(0, 5, 8, 8, 8), launch(1, 2, 1), span("ProfilerStep#0", 10, 20), mm(11, 5, 8, 8, 8), launch(12, 2, 2),
        kernel("before", 15, 5, 1), kernel("mine", 40, 5, 2),
    )  # fmt: skip
    assert times(result) == ({"aten::mm": 5_000}, {})


def test_the_optimizer_s_long_lists_are_the_parameters():
    # Traces leave lists of more than 30 tensors out: the dims are there and empty.
    lists = {"dims": [[], [], []], "types": ["TensorList", "TensorList", "Scalar"], "concrete": ["", "", "-0.1"]}
    update = op("aten::_foreach_add_", 51, 5, **lists)
    counter = op("aten::_foreach_add_", 58, 5, dims=[[], []], types=["TensorList", "Scalar"], concrete=["", "1"])
    found = trace(span("Optimizer.step#Adam.step", 50, 20), update, counter)
    calls = build_calls(found)
    assert {gap.name for gap in attribute(found, calls).gaps} == {"aten::_foreach_add_"}
    known = attribute(found, calls, parameter_elements=1000)
    (row,) = known.rows
    # p += -0.1 * g: a multiplication and an addition an element; p and g read, p written.
    assert (row.count.work.other_flops, row.count.work.bytes) == (2 * 1000, 3 * 4 * 1000)
    # The counter of steps is a number a tensor, not a parameter each: it stays uncounted.
    assert [(gap.name, gap.calls) for gap in known.gaps] == [("aten::_foreach_add_", 1)]


def test_under_autocast_the_call_with_the_cast_arguments_is_the_operator():
    outer = mm(0, 40, 64, 64, 64)
    cast = op(
        "aten::copy_", 5, 8, dims=[[64, 64], [64, 64], []], types=["c10::BFloat16", "float", "Scalar"], concrete=["", "", "False"]
    )
    inner = op("aten::mm", 20, 15, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    result = divide(outer, op("aten::to", 4, 10), cast, inner)
    rows = {
        (row.signature.name, row.count.kind, row.count.work.precision if row.count.work else None): row.time_ns for row in result.rows
    }
    assert rows["aten::mm", "counted", "bf16"] == 15_000
    assert rows["aten::mm", "composite", None] == 40_000 - 10_000 - 15_000
    assert rows["aten::copy_", "counted", None] == 8_000


def test_allocations_on_the_host_do_not_size_what_a_gpu_wrote():
    cat = op("aten::cat", 0, 10, dims=[[[1 << 19, 2], [1 << 19, 2]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    total = 1 << 21
    on_gpu = allocation(2, 2 * total + 512) | {"args": {"Bytes": 2 * total + 512, "Device Type": 1, "Device Id": 0}}
    (row,) = divide(cat, allocation(1, 16), on_gpu, launch(3, 1, 7), kernel("cat", 50, 5, 7)).rows
    assert row.count.work.bytes == 2 * total * 2  # half precision, whatever the allocator rounded up
