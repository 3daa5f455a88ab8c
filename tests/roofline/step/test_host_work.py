"""What the host did while the device was idle, and what it ran twice, on small traces and on real ones."""

import pytest

from rooflines.profiler.read import intervals
from rooflines.profiler.tree.idle import idle_causes
from rooflines.profiler.tree.lines import stack_lines
from rooflines.roofline.judge.step.host_work import host_work, is_compiled, recomputation, synchronizations
from tests.roofline.rooms import analyzed, attributed, copied, frame, runtime
from tests.traces import add, kernel, launch, op, span, trace


def explained(*events):
    """The waits and the work of the host in a trace of these events."""
    found = attributed(*events)
    causes = idle_causes(found.calls, intervals.subtract(found.window, found.busy))
    lines = stack_lines(found.calls)
    return synchronizations(found, causes, lines), host_work(found, causes["host_bound"], lines)


def step(*events):
    """Two kernels of 100 us with 3 ms between them, in which these events are."""
    return (
        span("ProfilerStep#1", 0, 4000),
        add(0, 20),
        launch(5, 5, 1),
        kernel("k", 10, 100, 1),
        add(3090, 20),
        launch(3095, 5, 2),
        kernel("k", 3100, 100, 2),
        *events,
    )


def test_a_wait_explains_the_gap_that_follows_as_far_as_it_lasted():
    item = (op("aten::item", 30, 100), op("aten::_local_scalar_dense", 31, 98), runtime("cudaStreamSynchronize", 40, 80, 9))
    waits, _ = explained(*step(*item, frame("train.py(41): step", 0, 4000), frame("torch/_tensor.py(1): item", 30, 100)))
    (found,) = waits
    assert (found.call, found.operator, found.where, found.calls) == ("cudaStreamSynchronize", "aten::item", "train.py(41): step", 1)
    assert found.wait_s == pytest.approx(80e-6)
    assert found.idle_s == pytest.approx(80e-6), "a host that had not waited would have been 80 us ahead"


def test_a_wait_while_the_device_is_idle_anyway_explains_nothing():
    waits, _ = explained(*step(runtime("cudaStreamSynchronize", 500, 20, 9)))
    assert [(found.calls, found.idle_s) for found in waits] == [(1, 0.0)]


def test_long_operators_of_the_host_are_work_and_short_ones_are_not():
    resize = op("aten::_upsample_bilinear2d_aa", 200, 1500, dims=[[8, 3, 640, 480]], types=["float"])
    _, work = explained(*step(resize, op("aten::empty", 210, 5), op("aten::view", 2000, 5)))
    assert next((one.kind, one.name, one.shapes) for one in work) == ("operator", "aten::_upsample_bilinear2d_aa", "8x3x640x480")
    assert work[0].idle_s == pytest.approx(1495e-6)
    assert "aten::view" not in [one.name for one in work]


@pytest.mark.parametrize(("again_us", "kind"), [(20, "runtime"), (1000, "operator")])
def test_an_operator_that_is_long_in_the_first_of_equal_calls_is_a_beginning(again_us, kind):
    equal = [op("aten::arange", at, us, dims=[[8]], types=["long"]) for at, us in ((200, 1000), (1300, again_us))]
    _, work = explained(*step(*equal))
    assert {one.kind for one in work if one.name == "aten::arange"} == {kind}


@pytest.mark.parametrize(("gaps_us", "more_us"), [((900, 50, 70), 840), ((900, 50), 0), ((900, 450, 470), 0)])
def test_what_the_first_of_equal_ranges_takes_longer_is_a_beginning(gaps_us, more_us):
    """Each range has two kernels of 100 us with a gap between them; without steps, the first of at least three is compared."""
    events, at = [], 0
    for k, gap in enumerate(gaps_us):
        length = 200 + gap
        events += [
            span("MoE", at, length), add(at, 2), launch(at, 1, 2 * k + 1), kernel("k", at, 100, 2 * k + 1),
            add(at + 100 + gap - 2, 2), launch(at + 100 + gap - 1, 1, 2 * k + 2), kernel("k", at + 100 + gap, 100, 2 * k + 2),
        ]  # fmt: skip
        at += length + 5
    _, work = explained(*events)
    found = [round(one.idle_s * 1e6) for one in work if one.name.startswith("the first of")]
    assert found == ([pytest.approx(more_us, abs=3)] if more_us else [])


def test_the_regions_of_compiled_code_are_ranges_of_the_host():
    region = op("Torch-Compiled Region: 0/0", 200, 2000), op("## Call CompiledFxGraph abc ##", 300, 1000)
    _, work = explained(*step(*region))
    (found,) = (one for one in work if one.kind == "compiled")
    assert (found.name, round(found.idle_s * 1e6)) == ("Torch-Compiled Region: 0/0", 2000)


def test_functions_that_launch_nothing_are_work_of_the_host():
    frames = (
        frame("train.py(3): main", 0, 4000),
        frame("train.py(9): preprocess", 200, 2500),
        frame("torchvision/transforms/functional.py(7): resize", 300, 2000),
    )
    _, work = explained(*step(*frames, op("aten::_upsample_bilinear2d_aa", 400, 1500)))
    assert [(one.kind, one.name) for one in work] == [("python", "train.py(9): preprocess")]
    assert work[0].idle_s == pytest.approx(2500e-6)


def test_long_calls_of_the_runtime_and_stretches_without_any_are_told_apart():
    _, work = explained(*step(op("aten::empty", 200, 1600), runtime("cudaModuleLoad", 210, 1500)))
    kinds = {one.kind: one for one in work}
    assert (kinds["runtime"].name, kinds["runtime"].idle_s) == ("cudaModuleLoad", pytest.approx(1500e-6))
    assert kinds["unrecorded"].idle_s == pytest.approx((3090 - 1800) * 1e-6)


def recomputing(*more):
    """A block that runs forward, and again inside the node of its checkpoint."""
    made = attributed(
        add(0, 10, seq=1),
        launch(2, 3, 1),
        kernel("forward", 20, 10, 1),
        op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 100, 100, tid=2, seq=1, fwd=1),
        op("CheckpointFunctionBackward", 101, 98, tid=2, seq=1, fwd=1),
        add(110, 10, tid=2, seq=2),
        launch(112, 3, 2, tid=2),
        kernel("again", 130, 12, 2),
        op("aten::neg", 150, 10, tid=2),
        launch(152, 3, 3, tid=2),
        kernel("gradient", 160, 10, 3),
        *more,
    )
    return recomputation(made)


def test_a_forward_pass_inside_the_backward_pass_is_recomputation():
    found = recomputing()
    assert (found.calls, found.operators, found.time_s) == (1, ("aten::add",), pytest.approx(12e-6))


def test_gradients_of_gradients_are_not():
    assert recomputing(op("aten::threshold_backward", 170, 10, tid=2, seq=3)) is None


@pytest.mark.parametrize(
    ("name", "compiled"),
    [("triton_poi_fused_add_0", True), ("## Call CompiledFxGraph fud64 ##", True), ("Torch-Compiled Region: 0/0", True),
     ("triton_kernel", False), ("_fwd_kernel", False)],
)  # fmt: skip
def test_code_of_the_compiler_is_known_by_its_names(name, compiled):
    assert is_compiled(trace(kernel(name, 0, 10, 1))) == compiled


@pytest.mark.parametrize("of", ["cuda", "hip"])
def test_calls_that_take_and_give_back_memory_of_the_device(of):
    taken = [runtime(f"{of}Malloc", 200 + 100 * at, 50) for at in range(3)]
    inside = (op("aten::empty", 1290, 1300), runtime(f"{of}Malloc", 1295, 1200))
    others = (runtime(f"{of}MallocHost", 800, 90), runtime(f"{of}HostFree", 900, 9))
    _, work = explained(*step(*taken, runtime(f"{of}Free", 600, 70), *inside, *others))
    found = {one.name: (one.calls, one.idle_s) for one in work if one.kind == "allocator"}
    assert found == {f"{of}Malloc": (4, pytest.approx(1350e-6)), f"{of}Free": (1, pytest.approx(70e-6))}
    assert not [one for one in work if one.kind == "runtime"], "no time twice"


def test_paths_are_cut_to_the_file_and_its_folder_unless_they_are_asked_for(tmp_path):
    events = [
        op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 12, 10, 1), frame("/home/me/secret/train.py(41): load", 30, 900),
        frame("pack/age/layers/linear.py(7): forward", 940, 900), op("aten::a", 1900, 20), launch(1905, 5, 2), kernel("a", 1912, 10, 2),
    ]  # fmt: skip
    names = {work.name for work in analyzed(tmp_path, *events).host_work}
    assert names == {"train.py(41): load", "layers/linear.py(7): forward"}
    kept = {work.name for work in analyzed(tmp_path, *events, keep_paths=True).host_work}
    assert kept == {"/home/me/secret/train.py(41): load", "pack/age/layers/linear.py(7): forward"}


def test_a_copy_from_pageable_memory_that_lasts_until_it_is_done_is_a_wait(tmp_path):
    copy = [op("aten::copy_", 20, 300), runtime("cudaMemcpyAsync", 25, 200, 2), copied("Memcpy HtoD (Pageable -> Device)", 150, 60, 2)]
    events = [op("aten::a", 0, 15), launch(5, 5, 1), kernel("a", 12, 100, 1), *copy, op("aten::a", 400, 20), launch(405, 5, 3)]
    found = analyzed(tmp_path, *events, kernel("a", 412, 10, 3))
    assert [(wait.call, wait.operator) for wait in found.synchronizations] == [("cudaMemcpyAsync", "aten::copy_")]
    assert found.idle_breakdown["synchronization_s"] > 0


def test_a_long_allocation_begins_to_use_a_library_and_memory_that_takes_long_is_a_stall(tmp_path):
    events = [
        op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 12, 10, 1), op("aten::conv", 30, 200_000), runtime("cudaFree", 40, 190_000),
        launch(200_010, 5, 2), kernel("b", 200_020, 10, 2), op("aten::empty_strided", 200_100, 3000), op("aten::a", 203_200, 20),
        launch(203_205, 5, 3), kernel("a", 203_212, 10, 3),
    ]  # fmt: skip
    found = analyzed(tmp_path, *events)
    assert found.findings[0].title == "Warm up before the recorded steps"
    assert {work.kind for work in found.host_work if work.name in ("cudaFree", "aten::empty_strided")} == {"runtime"}


@pytest.mark.parametrize(("name", "left_out"), [("Activity Buffer Request", True), ("Runtime Triggered Module Loading", False)])
def test_what_the_driver_loads_is_no_work_of_the_profiler(tmp_path, name, left_out):
    busy = [op("aten::relu", 0, 20), launch(5, 5, 1), kernel("relu", 12, 100, 1), op("aten::exp", 150, 5000)]
    overhead = {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": 200, "dur": 4000, "args": {}}
    found = analyzed(tmp_path, *busy, launch(160, 4900, 2), kernel("exp", 5070, 50, 2), overhead)
    assert (found.basis.overhead_s is not None) == left_out
    (advice,) = (one for one in found.findings if one.title == "Warm up before the recorded steps")
    assert (advice.saves_s > 4e-3) != left_out


def test_compiling_inside_of_a_trace_is_a_first_call(tmp_path):
    """The backward that torch.compile traces in it is none of the program."""
    compiling = [span("_compile.compile_inner (dynamo_timed)", 100, 5000), op("MmBackward0", 2000, 20, seq=3)]
    found = analyzed(
        tmp_path, op("aten::relu", 0, 20), launch(5, 5, 1), kernel("a", 12, 50, 1), *compiling, op("aten::exp", 5200, 20),
        launch(5205, 5, 2), kernel("b", 5212, 50, 2),
    )  # fmt: skip
    warm, *_ = found.findings
    assert warm.title == "Warm up before the recorded steps"
    assert "_compile.compile_inner (dynamo_timed) 5.00 ms" in warm.evidence
    assert found.workload.mode == "inference"
