"""The GPU half of the attribution on traces that other people recorded, against their published figures (tests/data/traces)."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.calls import build_calls
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import KERNEL, MEMCPY, MEMSET
from rooflines.roofline.attribution import attribute

pytestmark = pytest.mark.unit

DATA = Path(__file__).parent.parent / "data" / "traces"
# The published tables name the innermost operator, ours one with a formula around it: the same kernels under two names.
SAME = {
    "aten::embedding": ("aten::index_select",), "aten::is_nonzero": ("aten::_local_scalar_dense",),
    "aten::_scaled_dot_product_flash_attention": ("aten::_flash_attention_forward",),
    "aten::convolution": ("aten::miopen_convolution", "aten::add_"),  # with its bias
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
