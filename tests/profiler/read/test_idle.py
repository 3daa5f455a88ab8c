"""Why the device was idle, and how long launched work waited: arithmetic that can be read off the trace."""

from pathlib import Path

import pytest

from rooflines.profiler.read import intervals
from rooflines.profiler.read.reader import read
from rooflines.profiler.tree.breakdown import step_breakdown
from rooflines.profiler.tree.idle import idle_causes
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.judge.step.traced_work import launch_queue
from rooflines.roofline.own.own import own
from tests.traces import add, kernel, launch, mm, span, trace

DATA = Path(__file__).parent.parent.parent / "data" / "traces"


def runtime(name, ts, dur):
    return {**launch(ts, dur, -1), "name": name, "args": {}}


def idle(*events):
    """Microseconds of idle time by cause; they sum to the device's idle time."""
    found = trace(*events)
    calls = tree(found)
    divided = own(count_calls(calls))
    causes = idle_causes(calls, intervals.subtract(divided.window, divided.busy))
    times = {cause: intervals.length(gaps) for cause, gaps in causes.items()}
    assert sum(times.values()) == divided.idle_ns
    return {f"{cause}_s": time_ns / 1e3 for cause, time_ns in times.items() if time_ns}


def queue(*events):
    found = trace(*events)
    divided = own(count_calls(tree(found)))
    return launch_queue(divided)


def test_the_cause_of_a_gap():
    # Until the launch the host was late and from then on the kernel waited.
    assert idle(launch(0, 2, 1), kernel("a", 5, 10, 1), launch(40, 2, 2), kernel("b", 50, 10, 2)) == {
        "host_bound_s": 25.0, "kernel_wait_s": 10.0,
    }  # fmt: skip
    # What was launched before the gap only waited.
    assert idle(launch(0, 2, 1), launch(3, 2, 2), kernel("a", 5, 10, 1), kernel("b", 20, 10, 2)) == {"kernel_wait_s": 5.0}
    # The data loader comes before a synchronization and both before the host.
    assert idle(
        launch(0, 2, 1), kernel("a", 5, 5, 1),
        runtime("cudaDeviceSynchronize", 8, 12), span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 25, tid=2),
        launch(50, 2, 2), kernel("b", 52, 10, 2),
    ) == {"synchronization_s": 5.0, "data_loading_s": 25.0, "host_bound_s": 10.0, "kernel_wait_s": 2.0}  # fmt: skip
    # The first launch of a kernel loads it.
    assert idle(launch(0, 2, 1), kernel("a", 5, 5, 1), launch(20, 5_000, 2), kernel("b", 5_030, 10, 2)) == {
        "host_bound_s": 5_010.0, "kernel_wait_s": 10.0,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "waits"), [
    ("cudaStreamSynchronize", True), ("hipEventSynchronize", True), ("cudaMemcpy", True), ("hipMemcpyWithStream", True),
    ("hipMemcpyAsync", False), ("cudaMemcpyAsync", False), ("cudaLaunchKernel", False),
    ("urEventWait", True), ("urQueueFinish", True), ("zeEventHostSynchronize", True), ("urEnqueueEventsWait", False),
    ("urEnqueueUSMMemcpy", False),
])  # fmt: skip
def test_which_calls_wait_for_the_device(name, waits):
    found = idle(launch(0, 2, 1), kernel("a", 5, 5, 1), runtime(name, 10, 20), launch(30, 2, 2), kernel("b", 30, 5, 2))
    assert found == {"synchronization_s" if waits else "host_bound_s": 20.0}


def test_copies_and_graphs_wait():
    # The copy of rocm on a stream returns when it is done.
    found = read(DATA / "toy_mi250_training.json.gz")
    launched_by = own(count_calls(tree(found))).calls.launch
    copies = [i for i, by in enumerate(launched_by) if by >= 0 and found.names[found.host.name[by]] == "hipMemcpyWithStream"]
    assert len(copies) == 2
    assert all(found.host.end_ns[launched_by[i]] > found.device.end_ns[i] for i in copies)
    # A graph that had been launched waits or lacks kernels.
    graph = launch(20, 5, 2) | {"name": "cudaGraphLaunch"}
    kernels = kernel("b", 5_000, 10, 2), kernel("c", 9_010, 10, 2)
    assert idle(launch(0, 2, 1), kernel("a", 5, 5, 1), graph, *kernels) == {"host_bound_s": 10.0, "graph_s": 4_980.0 + 4_000.0}


def test_gaps_whose_cause_is_outside_the_trace():
    # A gap before work without a launch has no known cause.
    assert idle(launch(0, 2, 1), kernel("a", 5, 10, 1), kernel("b", 40, 10, 99)) == {"unknown_s": 25.0}
    # A blocking copy waits for work that was launched before the recording began.
    blocked = (runtime("cudaMemcpy", 20, 493_000), launch(20, 493_000, 2) | {"name": "cudaMemcpy"})
    assert idle(launch(0, 2, 1), kernel("a", 5, 5, 1), *blocked, kernel("Memcpy HtoD", 490_020, 2_980, 2, cat="gpu_memcpy")) == {
        "host_bound_s": 10.0, "outside_s": 490_000.0,
    }  # fmt: skip
    # Overlapping streams leave no gap.
    assert idle(launch(0, 1, 1), launch(1, 1, 2), kernel("a", 5, 10, 1), kernel("b", 12, 10, 2, stream=8)) == {}


def test_the_queue_of_launches():
    # The queue is what is launched and has not begun.
    # Launched at 0, 1, 2; begun at 5, 15, 25; the span is 5 to 35.
    found = queue(*(launch(i, 1, i + 1) for i in range(3)), *(kernel("k", 5 + 10 * i, 10, i + 1) for i in range(3)))
    assert found.count == 3
    assert found.delay_median_s == pytest.approx(14e-6)
    assert found.queue_mean == pytest.approx((2 * 10 + 1 * 10) / 30)
    assert (found.queue_max, found.queue_empty_fraction) == (2, pytest.approx(1 / 3))
    # A device clock that is ahead makes no negative delay.
    assert queue(launch(10, 2, 1), kernel("a", 9, 5, 1)).delay_median_s == 0
    # Nothing launched is no queue.
    assert queue(kernel("a", 0, 5, 1)) is None
    assert queue(add(0, 5)) is None


def test_a_step_on_a_device_lasts_until_what_it_launched_has_ended():
    found = trace(
        span("ProfilerStep#1", 0, 20), mm(1, 5, 8, 8, 8), launch(2, 2, 1), kernel("a", 10, 30, 1),
        span("ProfilerStep#2", 20, 20), mm(21, 5, 8, 8, 8), launch(22, 2, 2), kernel("b", 50, 10, 2),
    )  # fmt: skip
    calls = tree(found)
    divided = own(count_calls(calls))
    assert divided.windows.tolist() == [[0, 40_000], [40_000, 60_000]]
    assert calls.step_names == ("ProfilerStep#1", "ProfilerStep#2")
    breakdown = step_breakdown(calls, divided.windows)
    assert breakdown["kernel_s"].tolist() == [30_000, 10_000]
    assert sum(breakdown.values()).tolist() == [40_000, 20_000]
    assert divided.span_ns == 60_000
