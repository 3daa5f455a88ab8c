"""The GPU half of the attribution on traces that other people recorded, against their published figures (tests/data/traces)."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.calls import build_calls
from rooflines.profiler.trace.reader import KERNEL, MEMCPY, MEMSET, read_trace
from rooflines.roofline.attribution import attribute

pytestmark = pytest.mark.unit

DATA = Path(__file__).parent.parent / "data" / "traces"
# The published tables name the innermost operator, ours the outermost that has a formula: the same kernels under two names.
SAME = {
    "aten::linear": "aten::addmm", "aten::layer_norm": "aten::native_layer_norm", "aten::embedding": "aten::index_select",
    "aten::scaled_dot_product_attention": "aten::_flash_attention_forward",
}  # fmt: skip


def rows(name):
    with open(DATA / name, newline="") as file:
        return list(csv.DictReader(file))


def attributed(name):
    trace = read_trace(DATA / f"{name}.json.gz")
    calls = build_calls(trace)
    return trace, attribute(trace, calls)


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference"])
def test_the_timeline_is_the_published_one_within_a_microsecond(name):
    trace, found = attributed(name)
    expected = {row["quantity"]: float(row["milliseconds"]) for row in rows("device_timeline.csv") if row["trace"] == name}
    compute = intervals.length(device_intervals(trace, KERNEL, MEMSET))
    exposed = intervals.length(intervals.subtract(device_intervals(trace, MEMCPY), device_intervals(trace, KERNEL, MEMSET)))
    assert found.span_ns / 1e6 == pytest.approx(expected["total_time"], abs=1e-3)
    assert found.busy_ns / 1e6 == pytest.approx(expected["busy_time"], abs=1e-3)
    assert found.idle_ns / 1e6 == pytest.approx(expected["idle_time"], abs=1e-3)
    assert compute / 1e6 == pytest.approx(expected["computation_time"], abs=1e-3)
    assert exposed / 1e6 == pytest.approx(expected["exposed_memcpy_time"], abs=1e-3)


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference"])
def test_operators_have_the_published_device_time(name):
    _, found = attributed(name)
    ours: Counter[str] = Counter()
    for row in found.rows:
        ours[SAME.get(row.signature.name, row.signature.name)] += row.time_ns
    checked = 0
    for row in rows("op_device_time.csv"):
        if row["trace"] == name and row["op"] in ours:
            assert ours[row["op"]] / 1e3 == pytest.approx(float(row["device_time_us"]), abs=0.01), row["op"]
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", ["bert-small_h100_inference", "vit-b16_mi300x_inference", "toy_mi250_training"])
def test_all_of_the_device_time_has_an_operator_with_a_count(name):
    _, found = attributed(name)
    assert found.orphans == 0
    assert sum(gap.time_ns for gap in found.gaps) == 0
    assert sum(row.time_ns for row in found.rows) - found.overlap_ns == found.busy_ns
