"""What is measured on a GPU: chosen shapes and precisions, the whole sequence rehearsed without a GPU, and the laws on a real one."""

import gzip
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rooflines.device_specs import measure, measure_gpu, measure_torch
from rooflines.device_specs.conditions import Watch
from rooflines.device_specs.measure_gpu import product_precisions, product_shapes, transposed_shapes
from rooflines.device_specs.measure_torch import copy_bytes, fits
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Conditions
from rooflines.device_specs.rounds import Way, ready
from rooflines.errors import DeviceError
from rooflines.kernels.micro import dispatch, matmul, transfer
from rooflines.kernels.micro.repeats import Timing

NEEDS_GPU = pytest.mark.skipif(not (torch.cuda.is_available() and torch.version.cuda), reason="torch sees no NVIDIA GPU")
DEVICE = torch.device("cuda", 0)

QUICK = {
    *(("compute", f"FMA {precision}", "") for precision in ("fp32", "fp64", "fp16")),
    *(("compute", f"GEMM {precision}", "") for precision in ("fp32", "fp64", "fp16", "bf16", "tf32", "fp8", "int8")),
    *(("memory", f"HBM {access}", "") for access in ("read", "write", "copy", "triad")),
    ("latency", "kernel launch", ""),
    ("latency", "operator dispatch", ""),
    ("link", "H2D", ""),
    ("link", "D2H", ""),
}
FULL = {
    ("compute", "GEMM fp8", "a scale per row"),
    ("compute", "GEMM fp8", "slow accumulation"),
    ("memory", "shared memory read", "within a block"),
}


@pytest.mark.parametrize(("capability", "precisions"), [
    ((6, 1), {"fp32", "fp64", "fp16"}),
    ((7, 0), {"fp32", "fp64", "fp16"}),
    ((7, 5), {"fp32", "fp64", "fp16", "int8"}),
    ((8, 0), {"fp32", "fp64", "fp16", "bf16", "tf32", "int8"}),
    ((8, 9), {"fp32", "fp64", "fp16", "bf16", "tf32", "fp8", "int8"}),
    ((9, 0), {"fp32", "fp64", "fp16", "bf16", "tf32", "fp8", "int8"}),
    (None, {"fp32", "fp64", "fp16", "bf16", "fp8", "int8"}),  # AMD
])  # fmt: skip
def test_precisions_of_a_generation(capability, precisions):
    assert set(product_precisions(capability)) == precisions


def test_shapes_are_what_every_library_takes():
    quick, full = product_shapes(False), product_shapes(True)
    assert set(quick) < set(full)
    assert all(side % 128 == 0 for shape in full for side in shape)
    assert len(set(full)) == len(full)


@pytest.mark.parametrize("multiprocessors", [40, 108, 128, 132, 148])
def test_transposed_shapes_fill_whole_waves_and_have_longer_sums(multiprocessors):
    quick, full = (transposed_shapes(full, multiprocessors) for full in (False, True))
    assert set(quick) < set(full)
    assert len(set(full)) == len(full)
    assert {side for _, side in full} == {"left", "right", ""}
    assert all(size % 128 == 0 for shape, _ in full for size in shape)
    # tiles of 128 rows and 128 or 256 columns
    waves = [shape for shape, _ in quick if shape[0] // 128 * (shape[1] // 256) % multiprocessors == 0]
    assert waves
    assert max(k for (_, _, k), _ in quick) > max(k for shape in product_shapes(False)[:2] for k in shape)


@pytest.mark.parametrize(("device", "kept"), [("cuda", [4096]), ("cpu", [4096, 8192])])
def test_products_that_take_long_are_not_tried(monkeypatch, device, kept):
    # at 10 TFLOP/s a product of 8192 cubed takes 0.11 s, one of 16384 cubed 0.88 s
    monkeypatch.setattr(matmul, "multiplication", lambda *_: None)
    monkeypatch.setattr(measure_torch, "quickest", lambda *_: matmul.flops((1024,) * 3) / 10e12)
    monkeypatch.setattr(measure_torch, "free_bytes", lambda _: 1 << 40)
    plan = Plan(0.0, lambda _: None)
    shapes = tuple((side,) * 3 for side in (4096, 8192, 16384))
    measure_torch.gemm(plan, torch.device(device), "fp32", shapes, 1024, "library")
    (figure,) = plan.figures
    assert [way.detail for way in figure.ways] == [f"torch.mm [{side}, {side}] @ [{side}, {side}] (library)" for side in kept]


def test_products_of_a_fixed_layout_are_tried_once(monkeypatch):
    monkeypatch.setattr(matmul, "multiplication", lambda *_: None)
    monkeypatch.setattr(measure_torch, "quickest", lambda *_: 1e-9)
    monkeypatch.setattr(measure_torch, "free_bytes", lambda _: 1 << 40)
    for precision, tried in (("fp16", ["[32, 32] @ [32, 32]", "[32, 32].T @ [32, 32]"]), ("int8", ["[32, 32] @ [32, 32]"])):
        plan = Plan(0.0, lambda _: None)
        shape = (32, 32, 32)
        measure_torch.gemm(plan, DEVICE, precision, (shape,), 32, "library", transposed=((shape, "left"),))
        (figure,) = plan.figures
        assert [way.detail for way in figure.ways] == [f"{matmul.operator(precision)} {words} (library)" for words in tried]


def test_sizes_of_products_and_copies():
    # A product fits half of what is free.
    # three matrices in fp32 are 3 x 4 x 8192^2 bytes, 0.75 GiB; twice that while they are made
    assert fits((8192, 8192, 8192), (3 << 30) + 1)
    assert not fits((8192, 8192, 8192), 3 << 30)
    # Copies over a link leave room at both ends.
    assert copy_bytes(80 << 30, 64 << 30) == 256 << 20
    assert copy_bytes(80 << 30, 1 << 30) == 128 << 20
    assert copy_bytes(80 << 30, 0) == 1 << 20
    # Bytes over a link count once.
    source, target = torch.ones(256), torch.zeros(256)
    call, crossed = transfer.crossing(source, target)
    call()
    assert crossed == 1024
    assert torch.equal(source, target)


@pytest.mark.parametrize(("rate", "kept"), [(300.0, True), (200.0, False)])
def test_a_cache_is_kept_only_above_the_memory_behind_it(rate, kept):
    said = []
    plan = Plan(0.0, said.append)
    run = ready(lambda calls: Timing(calls * 1.0), 200.0)
    plan.figure(Way("x", run), kind="memory", name="HBM read", unit="B/s", level="HBM")
    cache = ready(lambda calls: Timing(calls * 1.0), rate)
    plan.figure(Way("x", cache), above="HBM", kind="memory", name="L2 read", unit="B/s", level="L2")
    plan.measure()
    assert [one.ceiling.name for one in plan.series] == (["HBM read", "L2 read"] if kept else ["HBM read"])
    assert any("skipped" in line for line in said) == (not kept)


def test_a_way_that_fails_is_left_out_and_the_others_go_on():
    said = []
    plan = Plan(0.0, said.append)

    def fails(calls):
        raise RuntimeError("no kernel image")

    ways = Way("bad", ready(fails, 1.0)), Way("good", ready(lambda calls: Timing(calls * 1.0), 1.0))
    plan.figure(*ways, kind="memory", name="HBM read", unit="B/s")
    plan.figure(Way("bad", ready(fails, 1.0)), kind="memory", name="HBM copy", unit="B/s")
    with pytest.raises(RuntimeError):
        plan.measure()
    plan.refuse = lambda error: f"left out ({error})"
    plan.measure()
    assert [(one.ceiling.name, one.ceiling.source.detail) for one in plan.series] == [("HBM read", "good")]
    assert said.count("HBM copy: left out (no kernel image)") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_our_kernels_say_why():
    assert measure_gpu.unusable(DEVICE)


def test_a_device_spins_after_everything_is_prepared_and_before_the_first_round():
    order = []

    def made(name):
        def make():
            order.append(f"make {name}")
            return (lambda calls: (order.append(name), Timing(calls * 1.0))[1]), 1.0

        return make

    plan = Plan(0.0, lambda _: None)
    plan.spin = lambda: order.append("spin")
    for name in ("first", "second"):
        plan.figure(Way(name, made(name)), kind="memory", name=name, unit="B/s")
    plan.measure()
    spun = order.index("spin")
    assert order[:spun] == ["make first", "first", "make second", "second"]
    assert "make" not in " ".join(order[spun:])
    assert order[spun + 1] == "first"


def test_a_figure_measured_apart_has_its_values_and_conditions():
    plan = Plan(0.0, lambda _: None)
    clock_hz = [2e8]
    plan.spin = lambda: clock_hz.__setitem__(0, 1e9)
    plan.watch = Watch(lambda: Conditions(clock_hz=clock_hz[0]))
    found = iter([3e-6, None, 2e-6])

    def sample():
        clock_hz[0] = 2e8  # the device is idle while the host reads the trace
        return next(found)

    plan.measure_apart("in a trace", sample, 3, name="kernel launch")
    plan.measure_apart("never", lambda: None, 2, name="operator dispatch")
    (series,) = plan.series
    assert (series.values, series.quiet) == ((3e-6, 2e-6), (True, True))
    assert (series.ceiling.value, series.ceiling.source.detail) == (2e-6, "in a trace")
    assert series.ceiling.conditions == Conditions(clock_hz=1e9)


def test_a_way_is_dropped_below_the_share_that_the_plan_sets():
    for behind, tried in ((0.95, ["fast"]), (0.8, ["fast", "slow"])):
        plan = Plan(0.0, lambda _: None)
        plan.behind = behind
        ways = [Way(name, ready(lambda calls, s=seconds: Timing(calls * s), 1.0)) for name, seconds in (("fast", 1.0), ("slow", 1.1))]
        figure = plan.figure(*ways, kind="memory", name="HBM read", unit="B/s")
        plan.measure()
        assert [way.detail for way in figure.tried()] == tried


def test_shortest_kernel_of_a_recorded_trace():
    path = Path(__file__).parents[1] / "data" / "traces" / "bert-small_h100_inference.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert dispatch.shortest_kernel_s(trace) == pytest.approx(1.6e-6)  # of 60 kernels
    # copies and memory sets are no kernels, nor are the host's calls that start kernels
    others = [event for event in trace["traceEvents"] if event.get("cat") != "kernel"]
    assert {"gpu_memcpy", "cuda_runtime"} <= {event.get("cat") for event in others}
    assert dispatch.shortest_kernel_s({"traceEvents": others}) is None


@pytest.mark.ci
@pytest.mark.parametrize(("full", "sustained", "kernels"), [
    (False, False, True), pytest.param(True, False, True, marks=pytest.mark.slow), (True, True, False),
], ids=str)  # fmt: skip
def test_rehearsal_measures_every_figure(full, sustained, kernels):
    words = ["yes" if word else "no" for word in (full, sustained, kernels)]
    result = subprocess.run([sys.executable, "-m", "tests.device_specs.cuda_rehearsal", *words], capture_output=True, text=True,
                            check=True, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"})  # fmt: skip
    rehearsed = json.loads(result.stdout)
    ceilings = rehearsed["ceilings"]
    keys = [(one["kind"], one["name"], one["variant"]) for one in ceilings]
    assert len(set(keys)) == len(keys)
    expected = QUICK | FULL if full else QUICK
    if not kernels:
        expected = {key for key in expected if not key[1].startswith(("FMA", "shared"))}
        assert any("CUDA kernels: skipped (no NVVM)" in line for line in rehearsed["said"])
        # the same arrays as with our kernels, which the L2 cache is too small for
        streams = [one["source"]["detail"] for one in ceilings if one["name"].startswith("HBM") and not one["variant"]]
        assert len(streams) == 4
        assert all("tensors of 4.00 KiB" in detail for detail in streams), streams
    # a CPU emulates some precisions, whose rates are then marked
    skipped = {line.split(":")[0] for line in rehearsed["said"] if line.endswith(": emulated")}
    expected = {key for key in expected if key[1] not in skipped}
    assert expected <= set(keys), rehearsed["said"]
    for one in ceilings:
        assert one["value"] > 0
        assert one["source"]["kind"] == "measured"
        assert one["unit"] == {"latency": "s", "compute": "OP/s" if one["precision"] == "int8" else "FLOP/s"}.get(one["kind"], "B/s")
        if one["kind"] == "compute":
            assert one["accumulate"] == {"int8": "int32"}.get(one["precision"], one["accumulate"])
            assert one["accumulate"]
    check_order(rehearsed["order"], full)
    launch = next(one for one in ceilings if one["name"] == "kernel launch")
    if kernels:  # the traces of the rehearsal have a kernel of 1e-12 s, shorter than a call of nothing
        assert launch["value"] == pytest.approx(1e-12)
        assert launch["source"]["detail"].startswith("shortest kernel in a trace")
    else:  # and here one that takes longer than the graph's
        assert launch["value"] < 1
        assert launch["source"]["detail"].startswith("aten::add_ on one element, 1000 times in a CUDA graph")
    held = {key[:2] for key in keys if key[2] == "sustained"}
    # caches are not held; whether one is kept at all depends here on what the CPU happens to do
    main = {(one["kind"], one["name"]) for one in ceilings if one["kind"] in ("compute", "memory") and not one.get("capacity_bytes")}
    assert held == (main if sustained else set())


def check_order(order, full):
    """Everything is prepared, then the clocks rise, then memory is measured before arithmetic; traces come last, on raised clocks.

    They are raised again in each visit of arithmetic, which may follow one that the power limit held down.
    """
    kinds = [kind for kind, _ in itertools.groupby(one.split()[0] for one in order)]
    assert kinds[:3] == ["prepare", "spin", "visit"]
    assert kinds[-6:] == ["spin", "trace"] * 3
    for one, after in itertools.pairwise(order):
        if one.startswith(("visit GEMM", "visit FMA")):
            assert after == "spin"
    first = list(dict.fromkeys(one.split()[1] for one in order if one.startswith("visit")))
    names = ["HBM", "L2", *(["shared"] if full and "shared" in first else []), "kernel", "operator", "FMA", "GEMM", "H2D", "D2H"]
    assert first == [name for name in names if name != "FMA" or "FMA" in first]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path))


def measured(**options):
    said = []
    return measure.measure("cuda:0", progress=said.append, force=True, remeasure=True, **options), said


@pytest.mark.gpu
@NEEDS_GPU
def test_quick_set_on_the_gpu(cache):
    found, said = measured(budget_s=2.0)
    capability = torch.cuda.get_device_capability(DEVICE)
    names = {one.name for one in found.ceilings}
    assert {f"GEMM {precision}" for precision in product_precisions(capability)} <= names, said
    assert {f"HBM {access}" for access in ("read", "write", "copy", "triad")} <= names, said
    assert found.latency().name == "kernel launch"
    assert all(one.conditions is not None and one.conditions.clock_hz for one in found.ceilings if one.source.kind == "measured"), said
    if not measure_gpu.unusable(DEVICE):
        assert {"FMA fp32", "FMA fp64", "FMA fp16", "L2 read"} <= names, said
    assert measure.measure("cuda", budget_s=2.0) == found
    with pytest.raises(DeviceError):
        measure.measure("cuda:99")


@pytest.mark.gpu
@pytest.mark.slow  # the GPU check measures the full set in a part of its own
@NEEDS_GPU
def test_full_set_and_sustained_on_the_gpu(cache):
    """Rates stand in the order that hardware has, and none is above its burst for long."""
    found, said = measured(full=True, sustained_s=0.5, budget_s=4.0)
    main = {one.name: one.value for one in found.ceilings if not one.variant}
    held = {one.name: one for one in found.ceilings if one.variant == "sustained"}
    assert {name for name in main if name.startswith(("GEMM", "HBM", "FMA"))} == set(held)
    for name, one in held.items():
        assert one.value <= 1.1 * main[name], said
    # pinned memory is read by the device itself, pageable memory copied once more by the host
    links = {(one.name, one.variant): one.value for one in found.ceilings if one.kind == "link"}
    for way in ("H2D", "D2H"):
        assert links[way, "pageable"] <= 1.1 * links[way, ""]
    if "L2 read" in main and "shared memory read" in main:
        assert main["HBM read"] < main["L2 read"] < main["shared memory read"], said
    # no product runs on tensor cores below the vector units' peak of the same precision
    for precision in ("fp32", "fp64"):
        if f"FMA {precision}" in main:
            assert main[f"GEMM {precision}"] >= 0.5 * main[f"FMA {precision}"], said
    assert main["HBM copy"] > main["H2D"]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")
def test_links_between_two_gpus(cache):
    found, _ = measured(full=True, budget_s=4.0)
    names = {one.name for one in found.ceilings if one.kind == "link"}
    assert {"cuda:0 to cuda:1", "cuda:1 to cuda:0"} <= names


@pytest.mark.gpu
@NEEDS_GPU
def test_our_own_use_does_not_make_the_gpu_busy():
    from rooflines.device_specs.conditions import GpuState, busy

    held = torch.ones(1 << 26, device=DEVICE)
    state = GpuState(str(torch.cuda.get_device_properties(DEVICE).uuid))
    try:
        assert f"pid {os.getpid()}" not in busy(state)
    finally:
        state.close()
        del held
