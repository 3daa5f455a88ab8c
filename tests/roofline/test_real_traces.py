"""Traces that other people recorded, against their published figures and closed forms (tests/data/traces)."""

import ast
import csv
import functools
import gzip
import json
from collections import Counter

import pytest

from rooflines.profiler.tree.breakdown import step_breakdown
from rooflines.roofline.judge.step.partition import whole_trace
from tests.roofline import rooms
from tests.roofline.real import DATA, named

RESNET = "resnet50_v100_training_2021_schema"

# The published tables name the innermost operator, ours one with a formula around it: the same kernels under two names.
SAME = {
    "aten::embedding": ("aten::index_select",), "aten::is_nonzero": ("aten::_local_scalar_dense",),
    "aten::_scaled_dot_product_flash_attention": ("aten::_flash_attention_forward",),
    "aten::convolution": ("aten::miopen_convolution", "aten::add_"),  # with its bias
}  # fmt: skip


def rows(name):
    with open(DATA / name, newline="") as file:
        return list(csv.DictReader(file))


@functools.cache
def attributed(name):
    found = rooms.attributed(of=DATA / f"{name}.json.gz")
    return found.trace, found


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference"])
def test_the_timeline_is_the_published_one_within_a_microsecond(name):
    trace, _ = attributed(name)
    found = whole_trace(trace, 0)
    expected = {row["quantity"]: float(row["milliseconds"]) for row in rows("device_timeline.csv") if row["trace"] == name}
    assert found.span_s * 1e3 == pytest.approx(expected["total_time"], abs=1e-3)
    assert found.busy_s * 1e3 == pytest.approx(expected["busy_time"], abs=1e-3)
    assert found.idle_s * 1e3 == pytest.approx(expected["idle_time"], abs=1e-3)
    assert found.compute_s * 1e3 == pytest.approx(expected["computation_time"], abs=1e-3)
    assert found.exposed_memcpy_s * 1e3 == pytest.approx(expected["exposed_memcpy_time"], abs=1e-3)


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference"])
def test_operators_have_the_published_device_time(name):
    _, found = attributed(name)
    published = {row["op"]: float(row["device_time_us"]) for row in rows("op_device_time.csv") if row["trace"] == name}
    ours: Counter[str] = Counter()
    for row in found.rows:
        ours[row.signature.name] += row.time_ns
    parts = {op: SAME.get(op, (op,)) for op, time_ns in ours.items() if time_ns}
    assert sorted(part for names in parts.values() for part in names) == sorted(published)
    for op, names in parts.items():
        assert ours[op] / 1e3 == pytest.approx(sum(published[part] for part in names), abs=0.01), op


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference", "toy_mi250_training"])
def test_all_of_the_device_time_has_an_operator_with_a_count(name):
    _, found = attributed(name)
    assert found.orphans == 0
    assert sum(gap.time_ns for gap in found.gaps) == 0
    assert sum(row.time_ns for row in found.rows) - found.overlap_ns == found.busy_ns


# Its published table, too, names the innermost operator. The convolution and the ReLU are rows of ours around it; zeros are filled for
# the gradient of the pooling (855 us), by zero_ itself (1026 us) and for the 1 that the backward begins with (6 us).
RESNET_SAME = {
    "aten::convolution": {"aten::cudnn_convolution": 126619.0},
    "aten::relu_": {"aten::clamp_min": 17860.0},
    "aten::max_pool2d_with_indices_backward": {"aten::max_pool2d_with_indices_backward": 3822.0, "aten::fill_": 855.0},
    "aten::zero_": {"aten::fill_": 1026.0},
    "aten::ones_like": {"aten::fill_": 6.0},
}


@pytest.fixture
def resnet():
    return attributed(RESNET)


def test_an_old_trace_has_flops_and_bytes_for_nearly_all_of_its_time(resnet):
    """What is left: how large the windows of the max-pooling are can be told from nothing in the trace."""
    _, found = resnet
    missing = sum(gap.time_ns for gap in found.gaps)
    assert missing / (missing + sum(row.time_ns for row in found.rows)) < 0.01
    assert [(gap.name, gap.reason) for gap in found.gaps] == [("aten::max_pool2d_with_indices", "argument 'kernel' not recorded")]


def test_matrix_flops_of_a_training_step_are_the_closed_form(resnet):
    """Multiply-accumulates of ResNet-50 at 224 x 224, layer by layer; a step makes all of them three times, but for the gradient of the
    images, which nobody needs."""
    _, found = resnet
    first = 64 * 3 * 7 * 7 * 112 * 112
    macs, channels, size = first, 64, 56
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            smaller = size // stride if block == 0 else size
            macs += channels * width * size**2 + width * width * 9 * smaller**2 + width * 4 * width * smaller**2
            macs += channels * 4 * width * smaller**2 if block == 0 else 0
            channels, size = 4 * width, smaller
    macs += 2048 * 1000
    assert macs == pytest.approx(4.089e9, rel=1e-4)
    measured = sum(row.calls * row.count.work.matrix_flops for row in found.rows if row.count.work)
    assert measured / 6 == 2 * 32 * (3 * macs - first)


def test_rows_say_what_was_inferred_and_from_what(resnet):
    _, found = resnet
    said = {row.signature.name: row.inferred for row in found.rows}
    assert said["aten::convolution"] == "output from its backward call; 'transposed' from the operators around it"
    assert said["aten::cudnn_convolution_backward_input"] == "'self_size' from aten::cudnn_convolution_backward"
    assert said["aten::cudnn_convolution_backward_weight"] == "'weight_size' from aten::cudnn_convolution_backward"
    assert said["aten::cudnn_batch_norm"] == "its mode from its backward call"
    assert said["aten::mean"] == "output from its backward call"
    assert said["aten::sum"] == "output from its consumer aten::view"
    assert (said["aten::addmm"], said["aten::cudnn_batch_norm_backward"]) == (None, None)


def test_operators_of_resnet50_have_the_published_device_time(resnet):
    _, found = resnet
    published = {row["name"]: float(row["device_self_us"]) for row in rows("resnet50_v100_ops_and_kernels.csv") if row["kind"] == "op"}
    published = {op: time_us for op, time_us in published.items() if time_us}
    ours: Counter[str] = Counter()
    for row in found.rows:
        ours[row.signature.name] += row.time_ns
    for gap in found.gaps:
        ours[gap.name] += gap.time_ns
    parts: Counter[str] = Counter()
    for op, time_ns in ours.items():
        if time_ns:
            named = RESNET_SAME.get(op, {op: time_ns / 1e3})
            assert time_ns / 1e3 == pytest.approx(sum(named.values()), abs=1e-6), op
            parts.update(named)
    assert dict(parts) == pytest.approx(published)


def test_the_step_breakdown_of_resnet50_is_the_published_one(resnet):
    _, found = resnet
    expected = {row["quantity"]: float(row["value"]) for row in rows("resnet50_v100_step_breakdown.csv")}
    ours = {kind: ns / 1e3 for kind, ns in step_breakdown(found.calls, found.windows).items()}
    kinds = ("kernel", "memcpy", "memset", "runtime", "dataloader", "other")
    names = {**{kind: f"{kind}_s" for kind in kinds}, "cpu_exec": "cpu_s"}
    assert (found.windows[:, 1] - found.windows[:, 0]).mean() / 1e3 == pytest.approx(expected["average_step_us"], rel=0.005)
    for name, kind in names.items():
        assert ours[kind].mean() == pytest.approx(expected[f"{name}_us"], rel=0.005), name
    for index, step in enumerate(range(5, 11)):
        assert ours["kernel_s"][index] == pytest.approx(expected[f"kernel_us_step_{step}"], rel=0.005), step


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference"])
def test_products_have_the_published_flops(name):
    """That source adds the bias in addmm, as we do, and leaves a convolution's out, which is not among our matrix FLOPs either."""
    _, found = attributed(name)
    published = [row for row in rows("op_work.csv") if row["trace"] == name]
    checked = 0
    for one in published:
        shapes = [tuple(shape) for shape in ast.literal_eval(one["input_dims"]) if shape]
        works = {
            row.count.work
            for row in found.rows
            if row.signature.name == one["op"] and [tensor.shape for tensor in row.signature.tensors] == shapes
        }
        if one["op"] in ("aten::addmm", "aten::convolution", "aten::_scaled_dot_product_flash_attention"):
            (work,) = works
            flops = work.flops if one["op"] == "aten::addmm" else work.matrix_flops
            assert flops == int(one["flops_per_call"]), one["input_dims"]
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", ["bert-small_h100_inference", RESNET, "gpt-oss_b200_prefill", "cpu_only"])
def test_an_example_is_an_event_of_the_file(name):
    """The begin, the length and the stream of each row's example are those of one of its kernels, on a CPU of one of its calls."""
    events = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))["traceEvents"]
    there = {(event["name"], round(float(event["ts"]), 3)): event for event in events if event.get("ph") == "X"}
    analysis = named(name)
    found = [(row, row.example) for row in (*analysis.operators, *analysis.coverage.unmodeled) if row.example is not None]
    assert found
    for row, example in found:
        names = [kernel.name for kernel in row.kernels] or [row.name]
        (event,) = (there[key] for key in ((one, round(example.ts_us, 3)) for one in names) if key in there)
        assert example.lasts_s * 1e6 == pytest.approx(float(event["dur"]), abs=2e-3)
        assert example.at_s >= 0
        assert example.stream is None or str(example.stream) in (str(event["args"].get("stream")), str(event["tid"]))
    of_rows = [example for _, example in found]
    assert all(finding.example is None or finding.example in of_rows for finding in analysis.findings)
