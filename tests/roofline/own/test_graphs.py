"""Kernels that graphs replay: the operators of their capture, of eager calls, or none. Microseconds in, nanoseconds out."""

import pytest

from rooflines.errors import TraceError
from rooflines.profiler.read.records import CaptureTrace
from rooflines.profiler.tree.tree import FORWARD, OPTIMIZER, module_annotation
from rooflines.roofline.own.graphs import NO_CAPTURE
from tests.roofline.rooms import divided, frame, runtime
from tests.traces import add, kernel, launch, mm, op, span, trace


def hip(ts, name, correlation, *, grid=None, tid=1):
    """A launch that ROCm records with the name of its kernel."""
    shape = {"grid": [grid, 1, 1], "block": [64, 1, 1]} if grid else {}
    return runtime("hipLaunchKernel", ts, 1, correlation, tid=tid, kernel=name, **shape)


def sized(event, grid):
    """A kernel with its grid, as CUDA records it."""
    return event | {"args": event["args"] | {"grid": [grid, 1, 1], "block": [128, 1, 1]}}


def captured(*events, start=0, end=100, of="hip", tid=1):
    """These events between the calls that begin and end a capture."""
    return [runtime(f"{of}StreamBeginCapture", start, tid=tid), *events, runtime(f"{of}StreamEndCapture", end, tid=tid)]


def replay(at, correlation, *names, of="hip", each=10, streams=(7,)):
    """A launch of a graph at ``at`` whose kernels run one after the other, 100 later."""
    ran = [
        kernel(name, at + 100 + each * i, each, correlation, stream=streams[i % len(streams)]) for i, name in enumerate(names)
    ]  # fmt: skip
    return [runtime(f"{of}GraphLaunch", at, 2, correlation), *ran]


def numbered(events, *nodes):
    """The launch of a graph, and its kernels with the numbers of their nodes."""
    ran = zip(events[1:], nodes, strict=True)
    return [events[0], *(event | {"args": event["args"] | {"graph node id": (5 << 32) + node}} for event, node in ran)]


def divide(events, *captures, tokens=None):
    """The attribution of ``events`` with these captures."""
    given = [CaptureTrace(trace(*one), f"capture{number}", tokens) for number, one in enumerate(captures)]
    return divided(*events, captures=given)


def rows(result):
    return {(row.signature.name, row.signature.shapes()): (row.calls, row.time_ns) for row in result.rows}


def gaps(result):
    return {gap.name: (gap.calls, gap.time_ns, gap.reason) for gap in result.gaps}


# Two products of different shapes by one kernel, an addition between them.
LAYER = [
    mm(10, 8, 4, 8, 16), hip(12, "gemm", 1), add(20, 8), hip(22, "plus", 2), mm(30, 8, 4, 16, 32), hip(32, "gemm", 3),
]  # fmt: skip
NAMES = ("gemm", "plus", "gemm")


def test_replayed_kernels_take_the_operators_of_the_capture_once_a_replay():
    result = divide([*replay(0, 50, *NAMES), *replay(1000, 51, *NAMES), *replay(2000, 52, *NAMES)], captured(*LAYER))
    assert rows(result) == {
        ("aten::mm", "4x8, 8x16"): (3, 30_000),
        ("aten::add", "1000, 1000"): (3, 30_000),
        ("aten::mm", "4x16, 16x32"): (3, 30_000),
    }
    assert (gaps(result), result.graphs_ns, result.matched_ns, result.notes) == ({}, 90_000, 90_000, ())
    assert sum(row.count.work.matrix_flops * row.calls for row in result.rows) == 3 * 2 * (4 * 8 * 16 + 4 * 16 * 32)


def test_an_operator_with_two_kernels_is_called_once_a_replay():
    both = captured(mm(10, 8, 4, 8, 16), hip(12, "split", 1), hip(14, "reduce", 2))
    result = divide([*replay(0, 50, "split", "reduce"), *replay(1000, 51, "split", "reduce")], both)
    assert rows(result) == {("aten::mm", "4x8, 8x16"): (2, 40_000)}


def test_modules_of_the_capture_are_called_once_a_replay():
    module = frame("nn.Module: Linear_0", 5, 40)
    outside = module | {"name": "nn.Module: Other_0", "ts": 200, "dur": 5}
    result = divide([*replay(0, 50, *NAMES), *replay(1000, 51, *NAMES)], [*captured(module, *LAYER), outside])
    called = {one.path: int(calls) for one, calls in zip(result.calls.modules, result.calls.module_calls, strict=True)}
    assert called == {"Linear_0": 2, "Other_0": 0}
    assert {result.calls.modules[row.module].path for row in result.rows} == {"Linear_0"}


def module_calls(result):
    return {one.path: int(calls) for one, calls in zip(result.calls.modules, result.calls.module_calls, strict=True) if calls}


def test_ranges_of_modules_count_and_the_python_stack_inside_of_them_does_not():
    stack = frame("nn.Module: Linear_0", 6, 38)
    marked = captured(span(module_annotation("fc", "Linear"), 5, 40), stack, *LAYER)
    assert module_calls(divide([*replay(0, 50, *NAMES), *replay(1000, 51, *NAMES)], marked)) == {"fc": 2}


def test_modules_are_called_in_replays_of_the_steps_alone():
    steps = [span("ProfilerStep#0", 5_000, 1_000), add(5_100, 800)]
    marked = captured(span(module_annotation("fc", "Linear"), 5, 40), *LAYER)
    assert module_calls(divide([*steps, *replay(0, 50, *NAMES), *replay(5_020, 51, *NAMES)], marked)) == {"fc": 1}


def test_a_trace_with_the_capture_needs_no_other_and_captured_calls_are_no_work():
    result = divide([*captured(*LAYER), *replay(1000, 50, *NAMES), *replay(2000, 51, *NAMES)])
    assert {name: calls for (name, _), (calls, _) in rows(result).items()} == {"aten::mm": 2, "aten::add": 2}
    assert result.matched_ns == 60_000


def test_a_graph_that_is_captured_and_not_replayed_is_no_work():
    other_thread = [mm(30, 8, 4, 16, 32, tid=2), hip(32, "gemm", 3, tid=2)]
    result = divide([*captured(*LAYER[:4], *other_thread), add(500, 5), launch(501, 1, 9), kernel("plus", 510, 10, 9)])
    assert rows(result) == {("aten::add", "1000, 1000"): (1, 10_000)}


def test_captures_of_two_threads_at_once_are_told_apart():
    other = [mm(15, 4, 4, 8, 64, tid=2), hip(16, "wide", 8, tid=2)]
    both = [*captured(*LAYER), *captured(*other, start=5, end=60, tid=2)]
    result = divide([*replay(0, 50, *NAMES), *replay(1000, 51, "wide")], both)
    assert result.matched_ns == 40_000
    assert rows(result)[("aten::mm", "4x8, 8x64")] == (1, 10_000)


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (("gemm", "plus", "other"), "launch 1 of 1, kernel 3 of 3: the replay ran other, the capture has gemm"),
        (("gemm", "gemm", "plus"), "launch 1 of 1, kernel 2 of 3: the replay ran gemm, the capture has plus"),
        (("plus", "gemm"), "launch 1 of 1, kernel 1 of 2: the replay ran plus, the capture has gemm"),
        (("gemm", "plus", "gemm", "gemm"), "launch 1 of 1, kernel 4 of 4: the replay ran gemm, the capture ends before it"),
        (("gemm",), "launch 1 of 1, the replay ran 1 kernel, the capture has 3"),
    ],
)
def test_a_capture_of_another_graph_is_refused_with_the_first_difference(names, difference):
    with pytest.raises(TraceError) as refused:
        divide(replay(0, 50, *names), captured(*LAYER))
    assert difference in refused.value.message
    assert refused.value.hint


def test_names_that_differ_in_the_middle_are_shown_around_the_difference():
    one, other = (f"{'a' * 200}{tile}{'b' * 200}" for tile in ("64x32", "64x16"))
    with pytest.raises(TraceError, match=r"ran …a+64x32b+…, the capture has …a+64x16b+…"):
        divide(replay(0, 50, one), captured(mm(10, 8, 4, 8, 16), hip(12, other, 1)))


def test_a_replay_that_fits_nothing_is_noted_beside_one_that_fits():
    result = divide([*replay(0, 50, *NAMES), *replay(1000, 51, "gemm", "other", "gemm")], captured(*LAYER))
    assert (result.graphs_ns, result.matched_ns) == (60_000, 30_000)
    reason = "fits no captured graph: kernel 2 of 3: the replay ran other, the capture has plus"
    assert gaps(result) == {"HIP graph 2": (1, 30_000, reason)}
    assert any("launch 2 of 2" in note and "the replay ran other" in note for note in result.notes)


def test_the_last_kernel_may_lack_its_record_and_its_operator_is_not_counted():
    result = divide(replay(0, 50, "gemm", "plus"), captured(*LAYER))
    assert rows(result) == {("aten::mm", "4x8, 8x16"): (1, 10_000), ("aten::add", "1000, 1000"): (1, 10_000)}
    assert sum(row.count.work.matrix_flops * row.calls for row in result.rows) == 2 * 4 * 8 * 16
    assert any("last kernel" in note for note in result.notes)


def test_a_graph_with_all_its_kernels_comes_before_one_without_a_record_of_the_last():
    result = divide(replay(0, 50, "gemm", "plus"), [*captured(*LAYER), *captured(mm(210, 5, 4, 9, 16), hip(212, "gemm", 7), add(220, 8),
                    hip(222, "plus", 8), start=200, end=300)])  # fmt: skip
    assert (("aten::mm", "4x9, 9x16") in rows(result), result.notes) == (True, ())


def test_kernels_of_several_streams_are_matched_by_name_and_occurrence():
    same = [*LAYER[:4], mm(30, 8, 4, 8, 16), LAYER[5]]
    swapped = replay(0, 50, "gemm", "gemm", "plus", streams=(7, 8))
    result = divide(swapped, captured(*same))
    assert rows(result) == {("aten::mm", "4x8, 8x16"): (2, 20_000), ("aten::add", "1000, 1000"): (1, 10_000)}
    joined = captured(*same, runtime("hipStreamWaitEvent", 40))
    assert divide(replay(0, 50, "gemm", "gemm", "plus"), joined).matched_ns == 30_000
    with pytest.raises(TraceError):
        divide(replay(0, 50, "gemm", "plus", "plus", streams=(7, 8)), captured(*same))


def test_kernels_of_one_name_with_several_shapes_need_one_stream_or_the_numbers_of_their_nodes():
    # The product of 2 * 4 * 16 * 32 FLOPs may have started first.
    joined = captured(*LAYER, runtime("hipStreamWaitEvent", 40))
    for names in (NAMES, ("gemm", "gemm", "plus")):
        with pytest.raises(TraceError, match="kernel 3 of 3: gemm was captured with several shapes"):
            divide(replay(0, 50, *names, streams=(7, 8)), joined)
    result = divide(numbered(replay(0, 50, "gemm", "gemm", "plus", streams=(7, 8)), 3, 1, 2), joined)
    assert rows(result)[("aten::mm", "4x16, 16x32")] == (1, 10_000)
    assert divide(replay(0, 50, *NAMES), joined).matched_ns == 30_000


def test_grids_that_differ_refuse_the_capture():
    nodes = captured(mm(10, 8, 4, 8, 16), hip(12, "gemm", 1, grid=32))
    ran = replay(0, 50, "gemm")
    shape = {"grid": [16, 1, 1], "block": [64, 1, 1]}
    with pytest.raises(TraceError, match="grid and block 16x1x1, 64x1x1, the capture has 32x1x1, 64x1x1"):
        divide([ran[0], ran[1] | {"args": ran[1]["args"] | shape}], nodes)
    assert divide([ran[0], ran[1] | {"args": ran[1]["args"] | shape | {"grid": [32, 1, 1]}}], nodes).matched_ns == 10_000


def test_copies_that_the_runtime_adds_are_listed_and_do_not_hinder():
    added = kernel("__amd_rocclr_fillBufferAligned.kd", 130, 10, 50)
    result = divide([*replay(0, 50, *NAMES), added], captured(*LAYER))
    assert gaps(result) == {"HIP graph 1": (1, 10_000, "a copy or fill that its capture does not have")}
    assert result.matched_ns == 30_000
    copied = captured(*LAYER, op("aten::copy_", 40, 5, dims=[[8], [8], []], types=["float", "float", "Scalar"]),
                      runtime("hipMemcpyAsync", 41, 2, 9))  # fmt: skip
    result = divide([*replay(0, 50, *NAMES), kernel("Memcpy DtoD (Device -> Device)", 130, 10, 50, cat="gpu_memcpy")], copied)
    assert (gaps(result), result.matched_ns) == ({}, 40_000)


def test_a_fill_is_not_matched_with_a_copy():
    copied = captured(*LAYER, op("aten::copy_", 40, 5, dims=[[8], [8], []], types=["float", "float", "Scalar"]),
                      runtime("hipMemcpyAsync", 41, 2, 9))  # fmt: skip
    result = divide([*replay(0, 50, *NAMES), kernel("Memset (Device)", 130, 10, 50, cat="gpu_memset")], copied)
    assert gaps(result) == {"HIP graph 1": (1, 10_000, "a copy or fill that its capture does not have")}


def test_replays_belong_to_the_step_that_launches_them():
    steps = [span(f"ProfilerStep#{number}", 10_000 * number, 9_000) for number in range(2)]
    work = [add(10_000 * number + 10, 5) for number in range(2)]
    ran = [replay(10_000 * number + 100 + 500 * i, 50 + 10 * number + i, *NAMES) for number in range(2) for i in range(2 + number)]
    result = divide([*steps, *work, *(event for one in ran for event in one)], captured(*LAYER))
    products = [row for row in result.rows if row.signature.name == "aten::mm"]
    assert (result.steps, [(row.calls, row.step_ns) for row in products]) == (2, [(5, (20_000, 30_000))] * 2)


def test_a_counted_range_around_the_launch_of_a_graph_owns_it():
    around = op("aten::mm", 0, 10, dims=[[4, 8], [8, 16]], types=["float", "float"])
    result = divide([around, *replay(2, 50, *NAMES)])
    assert rows(result) == {("aten::mm", "4x8, 8x16"): (1, 30_000)}
    result = divide([around, *replay(2, 50, *NAMES), *replay(1000, 51, *NAMES)], captured(*LAYER))
    assert rows(result)[("aten::mm", "4x8, 8x16")] == (2, 40_000)
    assert (result.graphs_ns, result.matched_ns) == (60_000, 30_000)


# --- batch sizes and pieces --------------------------------------------------------------------------------------------------------


def of_batch(batch, start):
    """The capture of one product for ``batch`` tokens."""
    mark = span(f"capture_{batch}_FULL", start - 2, 40)
    return [mark, *captured(mm(start + 2, 8, batch, 8, 16), hip(start + 4, "gemm", start), start=start, end=start + 30)]


def step(tokens, at, correlation):
    """A step of vLLM that generates ``tokens`` tokens and replays a graph."""
    mark = span(f"execute_{tokens}_context_0(sq0sk0sqsq0sqsk0)_generation_{tokens}(sq{tokens}sk900sqsq{tokens}sqsk900)", at - 5, 20)
    return [mark, *replay(at, correlation, "gemm")]


def test_the_smallest_captured_batch_that_holds_the_step_is_replayed():
    captures = [*of_batch(32, 0), *of_batch(16, 100), *of_batch(8, 200)]
    result = divide([*step(9, 1000, 50), *step(16, 2000, 51), *step(8, 3000, 52)], captures)
    assert rows(result) == {("aten::mm", "16x8, 8x16"): (2, 20_000), ("aten::mm", "8x8, 8x16"): (1, 10_000)}


def test_a_capture_for_fewer_tokens_than_the_step_computes_is_refused():
    with pytest.raises(TraceError, match="the step has 33 tokens, the capture only 32"):
        divide(step(33, 1000, 50), of_batch(32, 0))
    without_mark = of_batch(16, 0)[1:]
    with pytest.raises(TraceError, match="the capture only 16"):
        divide(step(33, 1000, 50), without_mark, tokens=16)


def test_captures_of_several_shapes_need_the_size_of_the_step():
    captures = [*of_batch(32, 0), *of_batch(16, 100)]
    with pytest.raises(TraceError, match="2 captured graphs with different shapes"):
        divide(replay(1000, 50, "gemm"), captures)


def test_pieces_with_the_same_kernels_are_replayed_in_the_order_of_their_capture():
    def piece(number, start):
        module = {"ph": "X", "cat": "python_function", "name": f"nn.Module: Layer_{number}", "pid": 7, "tid": 1, "ts": start + 1,
                  "dur": 20, "args": {}}  # fmt: skip
        return captured(module, mm(start + 2, 8, 4, 8, 16), hip(start + 4, "gemm", start), start=start, end=start + 30)

    pieces = [event for number in range(3) for event in piece(number, 100 * number)]
    ran = [event for number in range(6) for event in replay(1000 * number, 50 + number, "gemm")]
    result = divide(ran, pieces)
    assert {result.calls.modules[row.module].path: row.calls for row in result.rows} == {"Layer_0": 2, "Layer_1": 2, "Layer_2": 2}


def piece_of(width, start, of="hip"):
    """The capture of one piece for 16 tokens, a product with ``width`` summed elements."""
    first = hip(start + 4, "gemm", start) if of == "hip" else runtime("cudaLaunchKernel", start + 4, 1, start)
    return [
        span("capture_16_PIECEWISE", start - 2, 40),
        *captured(mm(start + 2, 8, 16, width, 16), first, start=start, end=start + 30, of=of),
    ]


def step_of(at, *names, of="hip", each=10):
    """A step of 16 tokens that replays one graph after the other, each with one kernel."""
    mark = span("execute_16_context_0(sq0sk0sqsq0sqsk0)_generation_16(sq16sk900sqsq16sqsk900)", at, 100 * len(names))
    ran = [replay(at + 5 + 100 * i, at + i + 1, name, of=of, each=each) for i, name in enumerate(names)]
    return [mark, *(event for one in ran for event in one)]


PIECES = [*piece_of(8, 0), *piece_of(8000, 100)]


def test_pieces_with_other_shapes_and_the_same_kernels_need_whole_steps():
    result = divide([*step_of(1000, "gemm", "gemm"), *step_of(2000, "gemm", "gemm")], PIECES)
    assert rows(result) == {("aten::mm", "16x8, 8x16"): (2, 20_000), ("aten::mm", "16x8000, 8000x16"): (2, 20_000)}
    refused = "2 captured graphs with different shapes have these kernels"
    for events in (step_of(1000, "gemm", "gemm", "gemm"), step_of(1000, "gemm", "gemm")[1:]):
        with pytest.raises(TraceError, match=refused):
            divide(events, PIECES)


def test_the_names_of_other_pieces_say_where_a_round_begins():
    head = [span("capture_16_PIECEWISE", -52, 40), *captured(add(-48, 8), hip(-46, "plus", 99), start=-50, end=-20)]
    # The recording begins with the last piece of a step: 1 + 3 replays, without the mark of the step.
    result = divide(step_of(1000, "gemm", "plus", "gemm", "gemm")[1:], [*head, *PIECES])
    assert rows(result) == {
        ("aten::mm", "16x8000, 8000x16"): (2, 20_000),
        ("aten::add", "1000, 1000"): (1, 10_000),
        ("aten::mm", "16x8, 8x16"): (1, 10_000),
    }


def test_a_larger_batch_with_the_same_kernels_is_noted():
    result = divide([*step(9, 1000, 50), *step(33, 2000, 51)], [*of_batch(64, 0), *of_batch(16, 100)])
    assert rows(result) == {("aten::mm", "16x8, 8x16"): (1, 10_000), ("aten::mm", "64x8, 8x16"): (1, 10_000)}
    assert [note for note in result.notes if "fit 1 replay;" in note and "data parallelism" in note]


# --- CUDA, which does not record what a launch captures ----------------------------------------------------------------------------

CUDA = [
    mm(10, 8, 4, 8, 16), runtime("cudaLaunchKernel", 12, 1, 1), add(20, 8), runtime("cudaLaunchKernel", 22, 1, 2),
    op("triton_poi_fused_mul_0", 30, 8), runtime("cuLaunchKernelEx", 32, 1, 3),
]  # fmt: skip
CUDA_NAMES = ("ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, X>", "triton_poi_fused_mul_0")


def test_cuda_kernels_are_matched_by_their_number_and_order():
    result = divide([*replay(0, 50, *CUDA_NAMES, of="cuda"), *replay(1000, 51, *CUDA_NAMES, of="cuda")], captured(*CUDA, of="cuda"))
    assert rows(result)[("aten::mm", "4x8, 8x16")] == (2, 20_000)
    assert result.matched_ns == 60_000
    assert gaps(result)["triton_poi_fused_mul_0"][:2] == (2, 20_000)


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (CUDA_NAMES[:2], "the replay ran 2 kernels, the capture has 3"),
        (
            (CUDA_NAMES[0], CUDA_NAMES[0], CUDA_NAMES[2]),
            "kernel 2 of 3: the replay ran ampere_sgemm_128x64_tn, the capture has aten::add",
        ),
        ((*CUDA_NAMES[:2], "triton_red_fused_sum_1"), "the replay ran triton_red_fused_sum_1, the capture has triton_poi_fused_mul_0"),
        ((CUDA_NAMES[2], *CUDA_NAMES[1:]), "kernel 1 of 3: the replay ran triton_poi_fused_mul_0, the capture has aten::mm"),
    ],
)
def test_cuda_kernels_that_contradict_the_captured_operators_are_refused(names, difference):
    with pytest.raises(TraceError) as refused:
        divide(replay(0, 50, *names, of="cuda"), captured(*CUDA, of="cuda"))
    assert difference in refused.value.message


def test_cuda_graphs_of_several_streams_need_the_numbers_of_their_nodes():
    # The product, which was captured first, starts last.
    ran = replay(0, 50, CUDA_NAMES[1], CUDA_NAMES[2], CUDA_NAMES[0], of="cuda", streams=(7, 8))
    with pytest.raises(TraceError):
        divide(ran, captured(*CUDA, of="cuda"))
    with pytest.raises(TraceError, match="it ran on several streams"):
        divide(replay(0, 50, "a", "b", CUDA_NAMES[2], of="cuda", streams=(7, 8)), captured(*CUDA, of="cuda"))
    result = divide(numbered(ran, 2, 3, 1), captured(*CUDA, of="cuda"))
    assert [row.kernels[0].name for row in result.rows if row.signature.name == "aten::mm"] == [CUDA_NAMES[0]]


PRODUCT = captured(*CUDA[:2], of="cuda")


def test_different_kernels_are_not_one_captured_graph():
    names = ("gemm_batch16", "gemv_batch1", "gemm_batch16")
    ran = [event for at, name in enumerate(names) for event in replay(1000 * (at + 1), 50 + at, name, of="cuda")]
    with pytest.raises(TraceError, match=r"kernel 1 of 1: the replay ran gemm_batch16, another .* ran gemv_batch1"):
        divide(ran, PRODUCT)
    # A capture in the trace itself refuses nothing but these: 3 * 10 us stay without an operator.
    result = divide([*PRODUCT, *ran])
    assert (rows(result), result.graphs_ns, result.matched_ns) == ({}, 30_000, 0)
    assert divide([*ran[:2], *ran[4:]], PRODUCT).matched_ns == 20_000


def test_different_grids_are_not_one_captured_graph():
    one, other = (with_grids(replay(1000 * at, 50 + at, "gemm", of="cuda"), grid) for at, grid in enumerate((128, 1)))
    with pytest.raises(TraceError, match=r"gemm with grid and block 128x1x1, 128x1x1, another .* with grid and block 1x1x1, 128x1x1"):
        divide([*one, *other], PRODUCT)


def test_cuda_pieces_with_other_shapes_are_not_told_apart_by_their_order():
    pieces = [*piece_of(8, 0, "cuda"), *piece_of(8000, 100, "cuda")]
    with pytest.raises(TraceError, match="2 captured graphs with different shapes"):
        divide(step_of(1000, "gemm_large", "gemm_small", "gemm_large", "gemm_small", of="cuda"), pieces)
    same = [*piece_of(8, 0, "cuda"), *piece_of(8, 100, "cuda")]
    assert rows(divide(step_of(1000, "a", "b", "a", "b", of="cuda"), same)) == {("aten::mm", "16x8, 8x16"): (4, 40_000)}


def test_branches_that_ran_on_one_stream_are_in_the_order_of_their_nodes():
    branches = captured(
        *CUDA[:2], mm(30, 8, 4, 16, 32), runtime("cudaLaunchKernel", 32, 1, 3), runtime("cudaStreamWaitEvent", 40), of="cuda"
    )
    ran = replay(0, 50, "second", "first", of="cuda")
    result = divide(numbered(ran, 12, 11), branches)
    assert {row.signature.shapes(): row.kernels[0].name for row in result.rows} == {"4x8, 8x16": "first", "4x16, 16x32": "second"}


MORE = {
    "a call of the host is no kernel": (NAMES, [*LAYER, runtime("hipLaunchHostFunc", 40, 1, 8)]),
    "a launch that ran meanwhile is no node": (NAMES, [*LAYER, hip(25, "eager", 9), kernel("eager", 26, 4, 9)]),
    "a launch of another thread": (NAMES, [*LAYER[:4], mm(30, 8, 4, 16, 32, tid=2), hip(32, "gemm", 3, tid=2)]),
    "a driver call in a runtime call is one launch": (CUDA_NAMES, [*CUDA, runtime("cuLaunchKernel", 12, 0.5, 1)]),
    "a Triton kernel without a name of its own": ((*CUDA_NAMES[:2], "triton__0d1d2d"), CUDA),
}


@pytest.mark.parametrize("case", MORE)
def test_what_does_not_hinder_a_match(case):
    names, nodes = MORE[case]
    of = "hip" if names == NAMES else "cuda"
    assert divide(replay(0, 50, *names, of=of), captured(*nodes, of=of)).matched_ns == 30_000


NORM = op(
    "_C::rms_norm", 10, 8, dims=[[4, 8], [4, 8], [8], []], types=["c10::BFloat16"] * 3 + ["Scalar"], concrete=["", "", "", "1e-5"]
)
ELEMENTWISE = CUDA_NAMES[1]


@pytest.mark.parametrize(
    ("operator", "name", "fits"),
    [
        (CUDA[0], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
        (CUDA[0], "void flash_fwd_kernel<X>", False),
        (CUDA[0], ELEMENTWISE, False),
        (CUDA[0], "ampere_sgemm_128x64_tn", True),
        (NORM, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
        (NORM, "fmha_cutlassF_bf16_aligned_64x128_rf_sm80", False),
        (NORM, ELEMENTWISE, False),
        (NORM, "void vllm::rms_norm_kernel<c10::BFloat16>", True),
        (NORM, "void flashinfer::norm::RMSNormKernel<8u>", True),
        (op("vllm::all_reduce", 10, 8), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", True),
        (op("vllm::unified_attention", 10, 8), "void flash_fwd_kernel<X>", True),
    ],
)
def test_what_a_kernel_does_contradicts_what_its_operator_does(operator, name, fits):
    nodes = captured(operator, CUDA[1], of="cuda")
    if fits:
        assert divide(replay(0, 50, name, of="cuda"), nodes).matched_ns == 10_000
    else:
        with pytest.raises(TraceError, match=f"the capture has {operator['name']}"):
            divide(replay(0, 50, name, of="cuda"), nodes)


def test_a_product_may_copy_its_bias_and_another_library_may_call_aten():
    two = captured(mm(10, 8, 4, 8, 16), runtime("cudaLaunchKernel", 12, 1, 1), runtime("cudaLaunchKernel", 14, 1, 2), of="cuda")
    assert divide(replay(0, 50, ELEMENTWISE, "ampere_sgemm_128x64_tn", of="cuda"), two).matched_ns == 20_000
    calls = captured(op("other::step", 10, 20), add(12, 4), runtime("cudaLaunchKernel", 20, 1, 1), of="cuda")
    assert divide(replay(0, 50, ELEMENTWISE, of="cuda"), calls).graphs_ns == 10_000


# --- captures that do not apply ----------------------------------------------------------------------------------------------------


def test_a_capture_is_refused_where_it_cannot_apply():
    with pytest.raises(TraceError, match="'capture0' contains no captured graph"):
        divide(replay(0, 50, "gemm"), replay(0, 50, "gemm"))
    with pytest.raises(TraceError, match="launches no graph"):
        divide([add(0, 5), launch(1, 1, 1), kernel("plus", 10, 5, 1)], captured(*LAYER))
    with pytest.raises(TraceError, match="no device events"):
        divide([add(0, 5)], captured(*LAYER))


# --- without a capture -------------------------------------------------------------------------------------------------------------

PLUS = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int)"


def test_replays_of_one_graph_are_one_row_with_its_kernels():
    events = [*replay(0, 50, *NAMES), *replay(1000, 51, *NAMES), *replay(2000, 52, "plus")]
    result = divide(events)
    assert gaps(result) == {"HIP graph 1": (2, 60_000, NO_CAPTURE), "HIP graph 2": (1, 10_000, NO_CAPTURE)}
    kernels = {one.name: one.calls for gap in result.gaps if gap.name == "HIP graph 1" for one in gap.kernels}
    assert kernels == {"gemm": 4, "plus": 2}


def eager(at, correlation, operator, name, grid):
    """An eager call of one kernel."""
    return [operator, runtime("cudaLaunchKernel", at + 1, 1, correlation), sized(kernel(name, at + 20, 5, correlation), grid)]


def with_grids(events, *grids):
    return [events[0], *(sized(event, grid) for event, grid in zip(events[1:], grids, strict=True))]


def test_a_vectorized_kernel_has_the_work_of_its_eager_calls():
    before = [*eager(0, 1, add(0, 5, 400_000), PLUS, 400), *eager(50, 2, add(50, 5, 400_000), PLUS, 400)]
    graph = with_grids(replay(1000, 50, PLUS, "other", PLUS, of="cuda"), 400, 400, 400)
    result = divide([*before, *graph])
    inferred = [row for row in result.rows if row.inferred]
    # Two calls in the graph, each a call of its own.
    assert [(row.signature.name, row.calls, row.time_ns, row.count.work.flops) for row in inferred] == [
        ("aten::add", 2, 20_000, 400_000)
    ]
    assert gaps(result) == {"CUDA graph 1": (1, 10_000, NO_CAPTURE)}


def test_the_place_of_an_inferred_call_is_that_of_the_graph():
    events = [
        span(module_annotation("first", "A"), 0, 40), span("Optimizer.step#SGD.step", 0, 40),
        *eager(0, 1, add(0, 5, 400_000), PLUS, 400),
        span(module_annotation("second", "B"), 990, 50), *with_grids(replay(1000, 50, PLUS, of="cuda"), 400),
    ]  # fmt: skip
    result = divide(events)
    (inferred,) = (row for row in result.rows if row.inferred)
    assert (result.calls.modules[inferred.module].path, inferred.phase) == ("second", FORWARD)
    assert result.phase.tolist() == [OPTIMIZER, FORWARD]


def test_an_operator_of_several_kernels_is_not_inferred_from_one():
    call = [*eager(0, 1, add(0, 9, 400_000), PLUS, 400), runtime("cudaLaunchKernel", 3, 1, 2), kernel("second", 40, 5, 2)]
    assert divide([*call, *with_grids(replay(1000, 50, PLUS, of="cuda"), 400)]).matched_ns == 0


def test_a_run_without_grids_stands_for_nothing():
    calls = [mm(0, 5, 64, 8, 64), add(50, 5, 4096), mm(100, 5, 64, 64, 64)]
    ran = [[hip(50 * i + 1, name, i), kernel(name, 50 * i + 20, 5, i)] for i, name in enumerate(NAMES)]
    plain = [*calls, *(event for one in ran for event in one)]
    assert divide([*plain, *replay(1000, 50, *NAMES)]).matched_ns == 0


@pytest.mark.parametrize(
    ("calls", "name", "grid"),
    [
        # Eager calls with two sizes, another grid, a grid of few blocks, a kernel that reads strided or broadcast operands.
        ([add(0, 5, 400_000), add(50, 5, 399_990)], PLUS, 400),
        ([add(0, 5, 400_000)], PLUS, 401),
        ([add(0, 5, 1_000)], PLUS, 2),
        ([add(0, 5, 400_000)], "void at::native::elementwise_kernel<128, 4, add>(int)", 400),
        # A product: its grid does not hold the summed dimension.
        ([mm(0, 5, 2048, 8, 2048)], "ampere_sgemm_128x64_tn", 512),
        ([mm(0, 5, 2048, 8, 2048)], PLUS.replace("CUDAFunctor_add", "gemm"), 2),
    ],
)
def test_a_kernel_is_not_inferred_where_doubt_remains(calls, name, grid):
    ran = [
        event for number, call in enumerate(calls) for event in eager(call["ts"], number + 1, call, name, 400 if grid == 401 else grid)
    ]
    result = divide([*ran, *with_grids(replay(1000, 50, name, of="cuda"), grid)])
    assert not [row for row in result.rows if row.inferred]
    assert gaps(result) == {"CUDA graph 1": (1, 10_000, NO_CAPTURE)}


WARM_UP = [
    *eager(0, 1, mm(0, 5, 64, 8, 64), "gemm", 4),
    *eager(50, 2, add(50, 5, 4096), PLUS, 8),
    *eager(100, 3, mm(100, 5, 64, 64, 64), "gemm", 4),
]


def test_a_run_of_the_whole_graph_before_it_stands_for_its_capture():
    graphs = [
        *with_grids(replay(1000, 50, "gemm", PLUS, "gemm", of="cuda"), 4, 8, 4),
        *with_grids(replay(2000, 51, "gemm", PLUS, "gemm", of="cuda"), 4, 8, 4),
    ]
    result = divide([*WARM_UP, *graphs])
    inferred = {(row.signature.name, row.signature.shapes()): row.calls for row in result.rows if row.inferred}
    assert inferred[("aten::mm", "64x8, 8x64")] == inferred[("aten::mm", "64x64, 64x64")] == 2
    assert (sum(inferred.values()), result.gaps, result.matched_ns) == (6, (), 60_000)


def test_runs_with_other_grids_orders_or_shapes_stand_for_nothing():
    graph = replay(1000, 50, "gemm", PLUS, "gemm", of="cuda")
    for grids in ((4, 9, 4), (4, 8, 5)):
        assert divide([*WARM_UP, *with_grids(graph, *grids)]).matched_ns == 0
    other = replay(1000, 50, PLUS, "gemm", "gemm", of="cuda")
    assert divide([*WARM_UP, *with_grids(other, 8, 4, 4)]).matched_ns == 0
    assert divide([*WARM_UP, *graph]).matched_ns == 0, "grids that are not recorded"
    twice = [
        *WARM_UP, *eager(200, 4, mm(200, 5, 64, 9, 64), "gemm", 4), *eager(250, 5, add(250, 5, 4096), PLUS, 8),
        *eager(300, 6, mm(300, 5, 64, 64, 64), "gemm", 4),
    ]  # fmt: skip
    assert divide([*twice, *with_grids(graph, 4, 8, 4)]).matched_ns == 0, "two runs with different calls"
