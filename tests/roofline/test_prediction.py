"""Predicted gains: what follows from the figures of an analysis, and that nothing follows from missing ones."""

import pytest
from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling
from rooflines.profiler.records import MemoryAtPeak
from rooflines.roofline.analysis import DeviceUsage, Gauge, Input, Kernel, Memory, PageFaults, Rate, StepDivision, Timeline, Usage
from rooflines.roofline.predict.change import HUGE_PAGES, Change, PageCosts, PredictedStep, best_split, reorders
from rooflines.roofline.predict.options import gain_of, predict
from tests import samples

MIB = 1 << 20


def case(*rows, whole_s=0.1, mode="inference", **facts):
    """An analysis whose step is ``rows`` and nothing else, so that traced and timed seconds are the same."""
    found = samples.analysis()
    busy_s = sum(row.time_s for row in rows)
    idle_s = whole_s - busy_s - (facts["input"].wait_s if "input" in facts else 0.0)
    return replace(
        found, operators=rows, coverage=None, findings=(), bound_breakdown=None,
        steps=replace(found.steps, median_s=whole_s), workload=replace(found.workload, mode=mode),
        timeline=Timeline(span_s=whole_s, busy_s=busy_s, idle_s=idle_s, compute_s=busy_s),
        division=StepDivision(of="host", step_s=whole_s), **facts,
    )  # fmt: skip


def row(name, category="element-wise", *, time_s=0.1, flops=0, size=0, calls=1, shapes="", bound="memory", **facts):
    """A row of the sample analysis with these figures."""
    base = samples.analysis().operators[0]
    matrix_flops = flops if category in ("convolution", "matmul") else 0
    return replace(
        base, name=name, category=category, time_s=time_s, flops=flops, matrix_flops=matrix_flops,
        bytes=size, calls=calls, shapes=shapes, bound=bound, lower_bound_s=time_s / 2, **facts,
    )  # fmt: skip


def product(**facts):
    return row("aten::mm", "matmul", flops=46_000_000_000 // 2, size=3 * MIB, bound="compute", **facts)


def busy(cores):
    gauge = Gauge(start=cores, end=cores, mean=cores, median=cores, lowest=cores, highest=cores)
    host = DeviceUsage(device="host", readings=9, gauges={"process_cpu_utilization": gauge})
    return Usage(window="timed pass", began_ns=0, window_s=1.0, devices=(host,))


def fed(wait_s, *, workers=0, load_s=0.05):
    return Input(
        loader="DataLoader", wait_s=wait_s, wait_fraction=wait_s / 0.1, unit="images", delay_s=wait_s, workers=workers,
        loader_rate=Rate(per_s=4 / load_s), step_rate=Rate(per_s=80.0),
    )  # fmt: skip


def change(kind, environment=None, **options):
    return Change(kind=kind, label=kind, options=options, environment=environment or {})


BF16 = change("precision", precision="bf16")


def test_a_product_keeps_its_efficiency_under_the_roof_of_the_new_precision():
    # 460 and 900 GFLOP/s: 46 GFLOP in 0.1 s are half of the first, and take 0.1 * 460 / 900 s at half of the second.
    assert predict(BF16, case(product())).speedup == pytest.approx(900 / 460)


def test_new_pages_do_not_follow_the_roof_of_the_new_precision():
    # 10,000 pages at 4 us are 0.04 s, which halve with the bytes; the other 0.06 s follow the roof.
    analysis = case(product(), page_faults=PageFaults(timed=10_000.0))
    assert predict(BF16, analysis, PageCosts(4e-6)).speedup == pytest.approx(0.1 / (0.02 + 0.06 * 460 / 900))
    # at most the whole time of the operators
    assert predict(BF16, analysis, PageCosts(1.0)).speedup == pytest.approx(2.0)


def test_an_operator_bound_by_memory_moves_half_the_bytes():
    wide = row("aten::relu", size=4096 * MIB)
    found = predict(BF16, case(product(time_s=0.05, shapes=""), replace(wide, time_s=0.05)))
    assert found.speedup == pytest.approx(0.1 / (0.05 * 460 / 900 + 0.025), rel=0.01)


def test_autocast_also_casts_the_parameters():
    memory = Memory(peak_bytes=1, at_peak=MemoryAtPeak(parameters=300_000_000))
    found = predict(change("precision", precision="amp-bf16"), case(product(), memory=memory))
    assert found.speedup == pytest.approx(0.1 / (0.1 * 460 / 900 + 1.5 * 300_000_000 / 45e9))
    assert "casting" in found.reason
    # Without the memory of a step, the weights of its products.
    weights = product(shapes="1x1, 1000x1000")
    found = predict(change("precision", precision="amp-bf16"), case(replace(weights, bytes=100 * MIB), memory=None))
    assert found.speedup == pytest.approx(0.1 / (0.1 * 460 / 900 + 1.5 * 4_000_000 / 45e9))


def test_no_gain_is_predicted_without_a_roof_of_the_precision():
    fp32 = tuple(one for one in samples.ceilings() if one.precision != "bf16")
    assert predict(BF16, case(product(), ceilings=fp32)) is None
    assert predict(BF16, replace(case(product()), steps=None)) is None


def convolution(**facts):
    return row("aten::conv2d", "convolution", flops=10**9, size=1200 * MIB, shapes="4x64x99x99, 1024x1024x10x10", **facts)


def test_a_convolution_on_a_cpu_converts_its_activations_unless_they_are_channels_last():
    first = case(convolution())
    found = reorders(first.operators[0], PredictedStep(first))
    assert found.weights_s / found.activations_s == pytest.approx(1 / 2, rel=0.05)
    last = replace(first, workload=replace(first.workload, channels_last=True))
    assert reorders(last.operators[0], PredictedStep(last)) == (0.0, pytest.approx(found.weights_s))
    compiled = replace(first, compiled=True)
    assert reorders(compiled.operators[0], PredictedStep(compiled)) == (0.0, 0.0)


def test_channels_last_saves_the_conversions():
    small = row("aten::conv2d", "convolution", flops=10**9, size=450_000_000, shapes="4x64x99x99, 8x64x3x3")
    found = predict(change("channels-last", channels_last=True), case(small))
    assert found.speedup == pytest.approx(0.1 / (0.1 - 2 * 450_000_000 / 45e9), rel=0.05)
    # An element-wise operator that reaches half of the rate of memory says how fast bytes are moved here.
    half = case(replace(small, time_s=0.06), row("aten::relu", time_s=0.04))
    assert predict(change("channels-last", channels_last=True), half).speedup == pytest.approx(
        0.1 / (0.1 - 2 * 2 * 450_000_000 / 45e9), rel=0.1
    )
    kernels = (Kernel(name="nchwToNhwcKernel", calls=1, time_s=0.02), Kernel(name="gemm", calls=1, time_s=0.08))
    device = case(replace(small, kernels=kernels), idle_breakdown={"host_bound_s": 0.0})
    assert predict(change("channels-last", channels_last=True), device).speedup == pytest.approx(1.25)
    assert predict(change("channels-last", channels_last=True), case(product())) is None


def test_fused_operators_do_not_write_and_read_what_is_between_them():
    size = (1, 64, 512, 512)
    tensor = 64 * 512 * 512 * 4
    shapes = "x".join(map(str, size))
    norm = row("aten::batch_norm", "normalization", time_s=0.04, size=2 * tensor, shapes=shapes, module="layer1.bn")
    relu = row("aten::relu", time_s=0.04, size=2 * tensor, shapes=shapes, module="layer1.relu")
    elsewhere = replace(relu, module="layer2.relu", time_s=0.02)
    # One edge of 2 tensors, of 4 that move in 0.08 s.
    assert predict(change("compile", compile="on"), case(norm, relu, elsewhere)).speedup == pytest.approx(0.1 / 0.06)
    training = case(norm, relu, elsewhere, mode="training")
    assert predict(change("compile", compile="on"), training).speedup == pytest.approx(0.1 / 0.08)
    assert predict(change("compile", compile="on"), replace(training, compiled=True)) is None


def test_a_fused_call_saves_its_share_of_the_time_between_calls():
    norm = row("aten::batch_norm", "normalization", time_s=0.03, size=8, shapes="1", module="a.bn")
    relu = row("aten::relu", time_s=0.03, size=8, shapes="1", module="a.relu")
    found = predict(change("compile", compile="on"), case(norm, relu))
    # 0.04 s between two calls, of which one stays; half of the bytes.
    assert found.speedup == pytest.approx(0.1 / (0.1 - 0.02 - 0.03))


def test_a_larger_batch_shares_what_does_not_depend_on_it():
    weights = row("aten::mm", "matmul", time_s=0.04, flops=1, size=450_000_000, shapes="1x1, 112500000")
    found = predict(change("batch-size", batch_size=8), case(weights, row("aten::relu", time_s=0.04, size=2**31)))
    # 0.04 s for weights and 0.02 s between calls stay, 0.04 s double.
    assert found.speedup == pytest.approx(2 * 0.1 / (0.04 + 0.02 + 0.08), rel=0.01)
    assert predict(change("batch-size", batch_size=8), case(row("aten::relu", size=2**31))).speedup == pytest.approx(1.0, rel=0.01)


def test_amdahl_from_the_cores_that_were_busy():
    half = case(product(), usage=busy(1.5))
    assert predict(change("threads", threads=1), half).speedup == pytest.approx(1 / 1.5)
    assert predict(change("threads", threads=1), case(product(), usage=busy(1.0))).speedup == pytest.approx(1.0)
    assert predict(change("threads", threads=4), half).speedup == pytest.approx(1.0)  # two cores
    assert predict(change("threads", threads=1), case(product())) is None


def on_processors(analysis, processors, **facts):
    environment = replace(analysis.environment, cpu_threads=processors, **facts)
    return replace(analysis, environment=environment)


@pytest.mark.parametrize(
    ("load_s", "cores", "options", "after_s"),
    [
        (0.02, 1.0, {"data_workers": 2}, 0.05),  # the step alone
        (0.16, 0.8, {"data_workers": 2}, 0.08),  # two workers
        (0.05, 1.5, {"data_workers": 1, "threads": 1}, 0.10),  # what two threads did in 0.05 s
    ],
)
def test_workers_leave_the_slowest_of_step_and_loader(load_s, cores, options, after_s):
    analysis = on_processors(case(product(time_s=0.05), input=fed(0.05, load_s=load_s), usage=busy(cores)), 4)
    assert predict(change("data-workers", **options), analysis).speedup == pytest.approx(0.1 / after_s)


def test_threads_and_workers_that_share_processors_have_no_prediction():
    analysis = case(product(time_s=0.05), input=fed(0.05), usage=busy(1.5))
    both, split = change("data-workers", data_workers=1), change("data-workers", data_workers=1, threads=1)
    assert predict(both, on_processors(analysis, 2)) is None
    assert predict(split, on_processors(analysis, 2)) is not None
    assert predict(both, on_processors(analysis, 3)) is not None


@pytest.mark.parametrize(
    ("processors", "threads", "split"),
    [
        (2, 2, (1, 1)),
        (16, 16, (2, 14)),  # 0.05 * 16 / 14 s; one worker needs 0.1 s
        (32, 16, (2, None)),  # enough for all
    ],
)
def test_workers_get_processors_of_their_own(processors, threads, split):
    analysis = case(product(time_s=0.05), input=fed(0.05, load_s=0.1), usage=busy((threads * 0.05 + 0.05) / 0.1))
    assert best_split(PredictedStep(on_processors(analysis, processors, threads=threads, cpu_cores=processors))) == split


def test_a_faster_step_still_waits_for_its_loader():
    alone = case(product(time_s=0.05), input=fed(0.05))
    assert predict(BF16, alone).speedup == pytest.approx(0.1 / (0.05 + 0.05 * 460 / 900))
    workers = case(product(time_s=0.05), input=fed(0.05, workers=1, load_s=0.09))
    assert predict(BF16, workers).speedup == pytest.approx(0.1 / 0.09)


def test_a_fused_optimizer_passes_once_over_its_tensors():
    loop = row("aten::add_", "optimizer", time_s=0.06, size=10**6, calls=100, phase="optimizer", shapes="64, 64")
    analysis = case(
        product(time_s=0.04), loop, mode="training", memory=Memory(peak_bytes=1, at_peak=MemoryAtPeak(parameters=90_000_000))
    )
    found = predict(change("optimizer", optimizer="sgd,fused"), analysis)
    assert found.speedup == pytest.approx(0.1 / (0.04 + 5 * 90_000_000 / 45e9))
    assert predict(change("optimizer", optimizer="sgd,fused"), case(product(), mode="training")) is None


def test_a_fused_optimizer_exchanges_as_much_as_before():
    exchange = row("c10d::broadcast_", "optimizer", time_s=0.06, size=10**6, calls=9, phase="optimizer", bound="communication")
    memory = Memory(peak_bytes=1, at_peak=MemoryAtPeak(parameters=90_000_000))
    analysis = case(product(time_s=0.04), exchange, mode="training", memory=memory)
    assert predict(change("optimizer", optimizer="sgd,fused"), analysis) is None


def test_pages_cost_what_they_were_measured_to_cost():
    analysis = case(product(), page_faults=PageFaults(timed=10_000.0), usage=busy(2.0))
    keep, huge = change("allocator", {"MALLOC_TRIM_THRESHOLD_": "1"}), change("allocator", {HUGE_PAGES: "1"})
    assert predict(keep, analysis, PageCosts(4e-6)).speedup == pytest.approx(0.1 / 0.08)
    assert predict(huge, analysis, PageCosts(4e-6, 2e-6)).speedup == pytest.approx(0.1 / 0.09)
    assert predict(huge, analysis, PageCosts(4e-6)) is None
    assert predict(keep, analysis) is None
    assert predict(keep, case(product()), PageCosts(4e-6)) is None
    # What a page took in the run, where nothing was measured afterwards.
    known = case(product(), page_faults=PageFaults(timed=10_000.0, page_s=4e-6), usage=busy(2.0))
    assert predict(BF16, known).speedup == pytest.approx(predict(BF16, known, PageCosts(4e-6)).speedup)


def test_a_graph_saves_the_waits_for_launches():
    analysis = case(product(time_s=0.05), idle_breakdown={"host_bound_s": 0.04, "kernel_wait_s": 0.01})
    assert predict(change("cuda-graphs", cuda_graphs=True), analysis).speedup == pytest.approx(2.0)
    assert predict(change("cuda-graphs", cuda_graphs=True), case(product())) is None


def test_pinned_copies_run_at_the_rate_of_their_link():
    def link(rate, variant=""):
        return Ceiling(kind="link", name="H2D", value=rate, unit="B/s", source=samples.MEASURED, variant=variant)

    analysis = case(product(), ceilings=(*samples.ceilings(), link(20e9), link(5e9, "pageable")))
    analysis = replace(analysis, division=StepDivision(of="device", step_s=0.1, host_to_device_s=0.04))
    assert predict(change("pin-memory", pin_memory=True), analysis).speedup == pytest.approx(0.1 / 0.07)
    assert predict(change("pin-memory", pin_memory=True), case(product())) is None


def test_the_parts_that_go_are_all_of_a_prediction():
    # What is replayed is what is predicted: casts, too, are time of rows.
    memory = Memory(peak_bytes=1, at_peak=MemoryAtPeak(parameters=100 * MIB))
    rows = product(time_s=0.05), row("aten::relu", time_s=0.04, size=2**31, shapes="64x64")
    step = PredictedStep(case(*rows, memory=memory))
    plain, cast = (gain_of(change("precision", precision=name), step) for name in ("bf16", "amp-bf16"))
    assert cast.speedup < plain.speedup
    for gain in (plain, cast):
        assert gain.speedup == pytest.approx(step.saved(sum(gain.of.values())))
        assert set(gain.of) == {0, 1}


def test_what_is_far_from_every_roof_has_no_traffic_to_save_on_a_processor():
    far = [row(name, time_s=0.02, size=2**20, shapes="64x64", bound="inefficient") for name in ("aten::relu", "aten::add")]
    found = gain_of(change("compile", compile="on"), PredictedStep(case(*far)))
    assert sum(saved_s for key, saved_s in found.of.items() if isinstance(key, int)) == 0
    near = [replace(one, bound="memory") for one in far]
    found = gain_of(change("compile", compile="on"), PredictedStep(case(*near)))
    assert sum(saved_s for key, saved_s in found.of.items() if isinstance(key, int)) > 0
