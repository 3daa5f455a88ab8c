"""What ran when in one step: every nanosecond of real steps in its place, and segments by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from rooflines.roofline.judge.step.activity import MOST_SEGMENTS, activity
from rooflines.serial import to_json
from tests.roofline.real import analysis_of, every_trace, named
from tests.roofline.rooms import analyzed, attributed, runtime
from tests.traces import add, kernel, launch, mm, span


@every_trace
def test_work_and_idle_time_are_the_step(path):
    analysis = analysis_of(path)
    found = analysis.activity
    assert found.busy_ns + sum(lane.busy_ns for lane in found.of("idle")) == found.duration_ns
    worked = found.of("stream") if analysis.idle_breakdown is not None else found.of("thread")
    if len(worked) == 1 and not found.left_out:
        assert worked[0].busy_ns == found.busy_ns
    assert sum(lane.busy_ns for lane in worked) >= found.busy_ns or found.left_out
    idle = {lane.cause for lane in found.of("idle")} - {"profiler"}
    assert analysis.idle_breakdown is None or {f"{cause}_s" for cause in idle} <= analysis.idle_breakdown.keys()


@every_trace
def test_segments_lie_in_the_step_one_after_another(path):
    analysis = analysis_of(path)
    found = analysis.activity
    for lane in found.lanes:
        begins, lasting = np.array(lane.begins_ns), np.array(lane.durations_ns)
        assert (lasting > 0).all()
        assert begins[0] >= 0
        assert (begins[1:] >= (begins + lasting)[:-1]).all()
        assert (begins + lasting)[-1] <= found.duration_ns
        assert lasting.sum() == lane.busy_ns
        assert len(begins) <= lane.count
        assert len(lane.items) == (0 if lane.kind == "idle" else len(begins))
        assert {*lane.items, lane.longest} <= set(range(len(found.names)))
    assert len(found.names) == len(found.rows) == len(set(zip(found.names, found.rows, strict=True)))
    assert all(-1 <= row < len(analysis.rows) and (name or row >= 0) for name, row in zip(found.names, found.rows, strict=True))
    assert sum(len(lane.begins_ns) for lane in found.lanes) <= MOST_SEGMENTS
    assert len(to_json(analysis)) - len(to_json(replace(analysis, activity=None))) < 70_000


@pytest.mark.parametrize("name", ["resnet50_v100_training_2021_schema", "bert-small_h100_inference", "toy_mi250_training"])
def test_the_step_is_one_that_was_traced(name):
    analysis = named(name)
    found = analysis.activity
    lengths = sorted(step.duration_s for step in analysis.traced_steps)
    own = next(step.duration_s for step in analysis.traced_steps if step.name == found.step)
    assert own == pytest.approx(found.duration_ns / 1e9)
    assert own in (lengths[(len(lengths) - 1) // 2], lengths[len(lengths) // 2])
    # Where nothing is merged, a row has the time that it took in that step.
    at = [step.name for step in analysis.traced_steps].index(found.step)
    if not found.unplaced:
        for index, row in enumerate(analysis.operators if len(analysis.traced_steps) > 1 else ()):
            own_ns = sum(
                lasting
                for lane in found.of("stream")
                for lasting, item in zip(lane.durations_ns, lane.items, strict=True)
                if found.rows[item] == index
            )
            assert own_ns == pytest.approx(row.step_times_s[at] * 1e9, abs=2)


@pytest.mark.parametrize("name", ["resnet50_v100_training_2021_schema", "ddp_rank0"])
def test_a_row_that_ran_has_a_segment_or_is_unplaced(name):
    analysis = named(name)
    found = analysis.activity
    at = [step.name for step in analysis.traced_steps].index(found.step)
    placed = {found.rows[item] for lane in found.of("stream") for item in lane.items}
    ran = {index for index, row in enumerate(analysis.rows) if row.step_times_s[at] > 0}
    assert (placed | {*found.unplaced}, placed & {*found.unplaced}) == (ran, set())


def _step(number: int, begin: float) -> list[dict]:
    """A step of 100 µs: a product on stream 7, an addition on stream 9 beside it, and a wait of the host."""
    one, two = 10 * number + 1, 10 * number + 2
    return [
        span(f"ProfilerStep#{number}", begin, 100),
        mm(begin + 1, 8, 64, 64, 64), launch(begin + 2, 2, one), kernel("gemm", begin + 20, 50, one),
        add(begin + 10, 8), launch(begin + 12, 2, two), kernel("add", begin + 30, 20, two, stream=9),
        runtime("cudaDeviceSynchronize", begin + 20, 60),
    ]  # fmt: skip


def test_streams_the_host_and_idle_time_by_hand(tmp_path):
    analysis = analyzed(tmp_path, *_step(1, 1000), *_step(2, 1100), *_step(3, 1200))
    found = analysis.activity
    names = [row.name for row in analysis.rows]
    of = {(lane.kind, lane.stream, lane.cause): lane for lane in found.lanes}
    first, second, host = of["stream", 7, None], of["stream", 9, None], of["thread", None, None]
    assert (found.duration_ns, found.busy_ns) == (100_000, 50_000)

    def items(lane):
        return [(found.names[item], names[found.rows[item]] if found.rows[item] >= 0 else None) for item in lane.items]

    assert (first.begins_ns, first.durations_ns, items(first)) == ((20_000,), (50_000,), [("", "aten::mm")])
    assert (second.begins_ns, second.durations_ns, items(second)) == ((30_000,), (20_000,), [("", "aten::add")])
    assert items(host) == [("aten::mm", "aten::mm"), ("aten::add", "aten::add"), ("cudaDeviceSynchronize", None)]
    assert host.begins_ns == (1_000, 10_000, 20_000)
    assert (host.role, found.names[host.longest]) == ("main", "cudaDeviceSynchronize")
    assert sum(lane.busy_ns for lane in found.of("idle")) == 50_000
    assert (found.steps, found.unplaced) == (3, ())


def test_short_neighbors_are_one_segment_of_the_longest(tmp_path):
    # A hundred products of 1 µs and additions of 2 µs within 1/2000 of a step of 1 s.
    events = [span("ProfilerStep#1", 0, 1_000_000), mm(1, 20, 64, 64, 64), launch(2, 2, 1), add(30, 20), launch(31, 2, 2)]
    for number in range(100):
        events += [kernel("gemm", 1000 + 4 * number, 1, 1), kernel("add", 1001 + 4 * number, 2, 2)]
    analysis = analyzed(tmp_path, *events)
    (lane,) = analysis.activity.of("stream")
    names = [row.name for row in analysis.rows]
    assert lane.count == 200
    assert (lane.begins_ns, lane.durations_ns) == ((1_000_000,), (300_000,))
    assert [names[analysis.activity.rows[item]] for item in lane.items] == ["aten::add"]
    assert [names[row] for row in analysis.activity.unplaced] == ["aten::mm"]


def test_the_median_is_that_of_the_steps_that_count():
    events = [event for number, begin, lasting in ((1, 0, 100), (2, 100, 300), (3, 400, 320), (4, 720, 900))
              for event in (span(f"ProfilerStep#{number}", begin, lasting), mm(begin + 1, 50, 64, 64, 64))]  # fmt: skip
    chosen = {}
    for quiet in ([True] * 4, [True, False, False, False], [True, False, True, True]):
        attribution = attributed(*events, quiet=np.array(quiet))
        found = activity(attribution, None, np.arange(len(attribution.rows) + len(attribution.gaps)))
        chosen[found.step] = found.steps
    assert chosen == {"ProfilerStep#2": 4, "ProfilerStep#1": 1, "ProfilerStep#3": 3}
