"""Idle time of a device: what the host delays, single gaps, and work that waits for something else."""

import json

import pytest

import rooflines
from tests.roofline.rooms import analyzed, printed
from tests.traces import kernel, launch, mm, op, span


def test_a_precision_saves_only_after_the_host_where_that_is_late(tmp_path):
    """Three fp32 products of 60 us, each 200 us after the one before: 1/15 of their time changes nothing."""
    name = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    events = []
    for number in range(3):
        at = 200 * number
        events += [
            span(f"ProfilerStep#{number}", at, 200), mm(at, 20, 1024, 1024, 1024), launch(at + 5, 5, number),
            kernel("ampere_sgemm_128x64_nn", at + 12, 60, number),
        ]  # fmt: skip
    (tmp_path / "h100.json").write_text(json.dumps({"schemaVersion": 1, **name, "traceEvents": events}))
    found = rooflines.analyze(tmp_path / "h100.json")
    busy, precision = found.findings
    assert (busy.title, precision.title) == ("Keep the device busy", "Run the matrix work in bf16")
    assert precision.alone_s < 0.2 * precision.about_s
    assert 0 < precision.about_s < 60e-6
    assert "after the changes before it" in printed(found)


def test_a_long_call_of_a_new_kernel_is_one(tmp_path):
    found = analyzed(
        tmp_path, op("aten::a", 0, 20), launch(5, 5, 1), kernel("first", 20, 10, 1), op("aten::b", 50, 5000), launch(60, 4900, 2),
        kernel("second", 4970, 10, 2), op("aten::a", 6000, 5000), launch(6010, 4900, 3), kernel("first", 10920, 10, 3),
    )  # fmt: skip
    works = [work for work in found.host_work if work.kind == "runtime"]
    assert sum(work.idle_s for work in works) == pytest.approx(4900e-6, rel=0.05)


def test_all_idle_time_is_one_class_of_the_headline(tmp_path):
    """Idle for 60 of 100 us: 30 before a late launch, 30 before work whose launch is not in the trace."""
    found = analyzed(
        tmp_path, span("ProfilerStep#0", 0, 100), op("aten::a", 0, 4), launch(1, 2, 1), kernel("a", 0, 20, 1),
        op("aten::b", 48, 4), launch(49, 1, 2), kernel("b", 50, 10, 2), kernel("c", 90, 10, 99),
    )  # fmt: skip
    idle = found.timeline.idle_s / found.timeline.span_s
    assert idle == pytest.approx(0.6)
    assert "idle for 60 % of the step" in found.verdict, found.verdict


def test_a_gap_that_occurs_once_is_named_and_no_reason_to_compile(tmp_path):
    found = analyzed(tmp_path, op("aten::a", 0, 100), op("aten::b", 150, 100), op("aten::backward", 10_000, 100))
    assert (found.gap.before, found.gap.lasts_s) == ("aten::backward", pytest.approx(9750e-6))
    assert "occurs once in the trace" in found.verdict
    assert "Host-bound" not in found.verdict
    assert found.gap.host_s == pytest.approx(found.gap.lasts_s)
    assert "torch.compile" not in str(found.findings)


@pytest.mark.parametrize(("other", "is_one"), [(60, True), (100, False), (150, False)])
def test_a_gap_that_has_its_like_may_recur(tmp_path, other, is_one):
    found = analyzed(
        tmp_path, op("aten::a", 0, 10), op("aten::b", 160, 10), op("aten::a", 170 + other, 10), op("aten::c", 185 + other, 9)
    )
    assert (found.gap is not None) == is_one


def test_a_gap_of_a_single_step_may_recur_in_every_step(tmp_path):
    events = op("aten::a", 0, 100), op("aten::b", 150, 100), op("aten::backward", 10_000, 100)
    assert analyzed(tmp_path, span("ProfilerStep#0", 0, 10_200), *events).gap is None


def test_a_gap_on_a_device_is_named_too_and_counts_once(tmp_path):
    """10 ms before the second launch, which the host makes late, and 0.6 ms before the third."""
    found = analyzed(
        tmp_path, op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 20, 400, 1), op("aten::b", 10_415, 20), launch(10_418, 2, 2),
        kernel("b", 10_420, 400, 2), op("aten::c", 11_415, 20), launch(11_418, 2, 3), kernel("c", 11_420, 400, 3),
    )  # fmt: skip
    assert (found.gap.before, found.gap.lasts_s) == ("b", pytest.approx(10e-3))
    assert "Host-bound" not in found.verdict
    assert sum(finding.most_s for finding in found.findings) <= found.timeline.idle_s


def test_the_host_before_the_device_and_several_devices_are_told(tmp_path):
    found = analyzed(tmp_path, op("aten::a", 0, 500), op("aten::b", 600, 20), launch(605, 5, 1), kernel("b", 620, 100, 1))
    assert found.basis.before_s == pytest.approx(620e-6)
    assert found.caveats[0] == "without 620 µs before the first work of the device"
    other = kernel("b", 620, 100, 2) | {"args": {"correlation": 2, "device": 1, "stream": 7}}
    two = analyzed(tmp_path, op("aten::b", 600, 20), launch(605, 2, 1), launch(608, 2, 2), kernel("b", 620, 100, 1), other)
    assert two.basis.devices == 2
    assert "union over all devices" in two.verdict


def test_work_that_begins_before_its_launch_is_a_matter_of_clocks(tmp_path):
    late = [event for number in range(3) for event in (launch(100 * number + 50, 5, number), kernel("a", 100 * number, 40, number))]
    assert any("clocks of host and device differ" in note for note in analyzed(tmp_path, *late).notes)
    right = [event for number in range(3) for event in (launch(100 * number, 5, number), kernel("a", 100 * number + 50, 40, number))]
    assert not any("clocks" in note for note in analyzed(tmp_path, *right).notes)


@pytest.mark.parametrize(("wait", "late"), [(400, True), (40, False)])
def test_work_that_begins_long_after_its_launch_waits_for_something_that_is_not_in_the_trace(tmp_path, wait, late):
    events = []
    for number in range(20):
        at = 500 * number
        events += [op("aten::relu", at, 10), launch(at + 2, 5, number + 1), kernel("relu", at + wait, 100, number + 1)]
    analysis = analyzed(tmp_path, *events)
    named = [finding.title for finding in analysis.findings]
    assert ("Find out what launched work waits for" in named) == late
    assert ("Keep the device busy" in named) == (not late)
    assert (analysis.idle_breakdown.get("outside_s", 0.0) > 0) == late
    assert ("although work had been launched" in analysis.verdict) == late


def test_a_launch_that_takes_long_keeps_the_host_and_not_the_work(tmp_path):
    """The second call takes 600 µs, as one does that loads its kernel, and its work begins when it is over."""
    calls = [launch(5, 5, 1), launch(100, 600, 2)]
    found = analyzed(
        tmp_path, op("aten::relu", 0, 20), op("aten::exp", 90, 620), *calls, kernel("a", 12, 50, 1), kernel("b", 701, 50, 2)
    )
    assert found.idle_breakdown == {"host_bound_s": pytest.approx(638e-6), "kernel_wait_s": pytest.approx(1e-6)}
