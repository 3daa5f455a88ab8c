"""The replay of a window: on paper, against a simulation of single events, and by laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.reader import read
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.replay.graph import StreamRun, WindowGraph, graph_of
from rooflines.roofline.replay.replay import Edit, cut, replay
from rooflines.roofline.replay.replays import _fitted
from tests.roofline.real import DATA
from tests.traces import kernel, launch, op, trace


def call(name: str, ts: float, dur: float, *, tid: int = 1):
    """A call of the runtime that launches nothing."""
    return launch(ts, dur, -1, tid=tid) | {"name": name, "args": {}}


def graph(*events, begin_us=0.0, end_us=None) -> WindowGraph:
    """The graph of all events of a trace, in microseconds."""
    calls = tree(trace(op("aten::mm", 0, 1), *events))
    device = calls.trace.device
    end_ns = int(device.end_ns.max()) if end_us is None else int(1000 * end_us)
    found = graph_of(calls, (int(1000 * begin_us), end_ns), np.ones(len(device), bool))
    assert found is not None
    return found


# Two streams: the second kernel of stream 8 waits for the second of stream 7 by an event, the host for the third of stream 7.
PAPER = (
    launch(0, 2, 1), kernel("one", 5, 40, 1),
    launch(10, 2, 2), kernel("two", 46, 50, 2),
    call("cudaEventRecord", 20, 1), call("cudaStreamWaitEvent", 22, 1),
    launch(24, 2, 3), kernel("beside", 97, 30, 3, stream=8),
    launch(30, 2, 4), kernel("three", 97, 20, 4),
    call("cudaStreamSynchronize", 40, 80),
    launch(130, 2, 5), kernel("four", 135, 10, 5),
)  # fmt: skip


def ends_us(found: WindowGraph, *edits: Edit) -> list[float]:
    return (replay(found, edits) / 1000).tolist()


def scaled(found: WindowGraph, **factors: float) -> Edit:
    """The kernels that begin at these microseconds of the example take this part of their time."""
    starts = {"one": 5, "two": 46, "beside": 97, "three": 97, "four": 135}
    lasting = {"one": 40, "two": 50, "beside": 30, "three": 20, "four": 10}
    scale = np.ones(len(found.event))
    for name, factor in factors.items():
        scale[found.lasting_ns == 1000 * lasting[name]] = factor
    assert len(starts) == len(found.event)
    return Edit(scale=scale)


def test_the_example_on_paper():
    found = graph(*PAPER)
    nothing = Edit()
    half = scaled(found, two=0.5)  # ends at 71; three 72 to 92, back at 95, launched at 105, four 110 to 120; beside 72 to 102
    gone = scaled(found, two=0.0)  # ends at 46; three 47 to 67, back at 70, launched at 80, four 85 to 95
    no_wait = Edit(without=np.ones(1, bool))  # launched at 52; four 118 to 128
    last = scaled(found, four=0.0)  # ends when it begins
    assert ends_us(found, nothing, half, gone, no_wait, last) == pytest.approx([145, 120, 95, 128, 135])
    # Without the wait the host is early, and the kernels alone decide: four 93 to 103, beside until 102.
    assert ends_us(found, no_wait.joined(half)) == pytest.approx([103])


def noted(kind: str, correlation: int, **args: int):
    """A wait as Kineto notes it."""
    known = {"cuda_sync_kind": kind, "device": 0, "correlation": correlation, **args}
    return {"ph": "X", "cat": "cuda_sync", "name": kind, "pid": 0, "tid": args["stream"], "ts": 0, "dur": 1, "args": known}


def named(name: str, ts: float, dur: float, correlation: int):
    return launch(ts, dur, correlation) | {"name": name}


# Two streams end together; stream 8 and the host wait for that of stream 7.
TOGETHER = (
    launch(0, 2, 1), kernel("one", 5, 91, 1), named("cudaEventRecord", 8, 1, 100),
    launch(10, 2, 2), kernel("other", 15, 81.5, 2, stream=9), named("cudaEventRecord", 18, 1, 101),
    named("cudaStreamWaitEvent", 22, 1, 102), launch(24, 2, 3), kernel("beside", 97, 30, 3, stream=8),
    named("cudaStreamSynchronize", 40, 60, 103), launch(110, 2, 4), kernel("four", 115, 10, 4),
)  # fmt: skip
NOTES = (
    noted("Stream Wait Event", 102, stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=100),
    noted("Stream Sync", 103, stream=7),
    noted("Context Sync", 104, stream=4294967295),
)


def test_a_wait_that_the_trace_notes_is_for_that_stream():
    unresolved = noted("Stream Wait Event", 102, stream=8, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1)
    for events, half_us in (((*TOGETHER, *NOTES), 127), (TOGETHER, 107), ((*TOGETHER, unresolved), 107)):
        found = graph(*events)
        assert found.lasting_ns.tolist() == [91_000, 10_000, 30_000, 81_500], "by stream: one and four, beside, other"
        shorter = Edit(scale=np.array([1, 1, 1, 0.5]))
        assert ends_us(found, Edit(), shorter) == pytest.approx([127, half_us], abs=1)


def test_an_event_that_was_recorded_before_other_work_does_not_wait_for_it():
    """Stream 8 waits for the first of two kernels; the second is long over when it begins, too."""
    events = (
        launch(0, 2, 1), kernel("one", 5, 10, 1), named("cudaEventRecord", 3, 1, 100), launch(6, 2, 2), kernel("two", 16, 10, 2),
        named("cudaEventRecord", 9, 1, 101), named("cudaStreamWaitEvent", 11, 1, 102), launch(40, 2, 3),
        kernel("beside", 45, 30, 3, stream=8),
    )  # fmt: skip
    note = noted("Stream Wait Event", 102, stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=100)
    for notes, awaited in (((), 1), ((note,), 0)):
        found = graph(*events, *notes)
        assert found.after.tolist() == [-1, -1, awaited]


def test_host_time_that_goes():
    found = graph(launch(0, 2, 1), kernel("one", 5, 10, 1), launch(100, 2, 2), kernel("two", 105, 10, 2))
    half = cut([(np.array([[15_000, 95_000]]), 0.5)])  # 40 of the 80 microseconds between them
    whole = cut([(np.array([[0, 100_000]]), 1.0)])  # launched at once: one behind the other
    assert ends_us(found, Edit(), half, whole) == pytest.approx([115, 75, 26])
    assert ends_us(found, Edit(rates=np.array([0.5]))) == pytest.approx([65])


def test_what_ran_late_without_a_reason_stays_as_late():
    found = graph(launch(0, 2, 1), kernel("one", 5, 10, 1), launch(10, 2, 2), kernel("two", 315, 10, 2))
    assert found.kept_ns.sum() == pytest.approx(299_000), "300 after the end of the first, of which 1 is usual"
    assert ends_us(found, Edit(), scaled_first(found)) == pytest.approx([325, 324]), "its launch arrives at 15"


def scaled_first(found: WindowGraph) -> Edit:
    scale = np.ones(len(found.event))
    scale[0] = 0.5
    return Edit(scale=scale)


@st.composite
def windows(draw):
    """Launches on up to three streams in one thread, with waits of the host and of streams, run by plain rules."""
    host, at, events, free, number = 0.0, 0.0, [], {}, 0
    recorded = 0.0
    for _ in range(draw(st.integers(1, 25))):
        host += draw(st.integers(1, 60))
        what = draw(st.sampled_from(["launch", "launch", "launch", "wait", "event"]))
        if what == "wait" and free:
            until = max(host + 2, max(free.values()) + 5)
            events.append(call("cudaDeviceSynchronize", host, until - host))
            host = until
        elif what == "event":
            events += [call("cudaEventRecord", host, 1), call("cudaStreamWaitEvent", host + 1, 1)]
            recorded, host = max(free.values(), default=0.0), host + 2
        else:
            number += 1
            stream, lasting = draw(st.integers(7, 9)), draw(st.integers(1, 80))
            at = max(host + 5, free.get(stream, -10.0) + 1, recorded + 1)
            recorded = 0.0
            free[stream] = at + lasting
            events += [launch(host, 1, number), kernel(f"k{number}", at, lasting, number, stream=stream)]
            host += 1
    if not number:
        events += [launch(host + 1, 1, 1), kernel("k", host + 6, 3, 1)]
    scales = draw(st.lists(st.floats(0, 1), min_size=max(1, number), max_size=max(1, number)))
    rate = draw(st.floats(0, 1))
    return events, np.array(scales), rate


def simulated(found: WindowGraph, edit: Edit) -> float:
    """One event after another, each as soon as all that it waits for is known."""
    scale = np.broadcast_to(edit.scale, len(found.event))
    without = np.broadcast_to(edit.without, len(found.wait_ns))
    launches, waits = edit.host(found, found.launch_ns).tolist(), edit.host(found, found.wait_ns).tolist()
    before = {run.first: run.before for run in found.order if isinstance(run, StreamRun)}
    ends: dict[int, float] = {}
    waited = [0.0]

    def wait_until(number: int) -> float:
        while len(waited) <= number:
            at = len(waited) - 1
            begin = waits[at] + waited[at]
            until = begin + found.call_ns[at]
            if found.target[at] >= 0 and not without[at]:
                until = max(until, end(int(found.target[at])) + found.return_ns[at])
            waited.append(waited[at] + until - begin)
        return waited[number]

    def end(piece: int) -> float:
        if piece not in ends:
            starts = [launches[piece] + found.arrival_ns[piece] + wait_until(int(found.waits_before[piece]))]
            previous = before.get(piece, piece - 1)
            if previous >= 0:
                starts.append(end(previous) + found.next_ns[piece])
            if found.after[piece] >= 0:
                starts.append(end(int(found.after[piece])) + found.after_ns[piece])
            ends[piece] = max(starts) + found.kept_ns[piece] + found.lasting_ns[piece] * scale[piece]
        return ends[piece]

    last = max(end(piece) for piece in range(len(found.event)))
    host = float(edit.host(found, np.array([found.host_ns]))[0]) + wait_until(found.host_waits)
    return max(last, host)


@given(windows())
def test_random_windows_are_those_of_a_simulation_of_single_events(window):
    events, scales, rate = window
    found = graph(*events)
    edits = [
        Edit(),
        Edit(scale=scales),
        Edit(rates=np.array([rate])),
        Edit(without=np.ones(len(found.wait_ns), bool)),
        Edit(scale=scales, rates=np.array([rate]), without=np.ones(len(found.wait_ns), bool)),
        cut([(np.array([[10_000, 200_000]]), rate)]),
    ]
    ends = replay(found, edits)
    assert ends == pytest.approx([simulated(found, edit) for edit in edits], abs=1)
    # No edit that shortens makes the window longer, and several never less than one.
    assert (ends[1:] <= ends[0] + 1).all()
    assert ends[4] <= ends[1:4].min() + 1


@given(windows())
def test_a_window_that_follows_the_rules_is_reproduced(window):
    events, _, _ = window
    found = graph(*events)
    assert replay(found, [Edit()])[0] == pytest.approx(found.end_ns, abs=0.05 * found.end_ns + 20_000)


def ran(after, durations, waits):
    """A host that launches kernels of one stream, each ``after`` the one before, and before some of them waits for the device."""
    host, end, events = 0.0, 0.0, []
    for number, (pause, duration, wait) in enumerate(zip(after, durations, waits, strict=True)):
        if wait:
            events.append(call("cudaStreamSynchronize", host, max(end - host, 0) + 0.5))
            host = max(host, end) + 0.5
        host += pause
        start = max(host + 2, end)
        end = start + duration
        events += [launch(host, 1, number), kernel("k", start, duration, number)]
    return events, end


@pytest.mark.parametrize("seed", range(20))
def test_kernels_that_are_faster_give_what_the_same_program_then_takes_less(seed):
    random = np.random.default_rng(seed)
    after, durations = random.integers(3, 60, 30).tolist(), random.integers(2, 80, 30).tolist()
    waits = (random.random(30) < 0.2).tolist()
    events, end = ran(after, durations, waits)
    _, sooner = ran(after, [duration / 10 for duration in durations], waits)
    found = graph(*events)
    same, faster = ends_us(found, Edit(), Edit(scale=np.full(30, 0.1)))
    assert same == pytest.approx(end, rel=1e-3)
    assert same - faster == pytest.approx(end - sooner, abs=0.01 * end)


def test_the_host_is_as_fast_as_the_timed_step_tells():
    """Ten kernels of 10 us, launched every 100 us under the profiler: the step that was timed took half as long."""
    events = [
        each for number in range(10) for each in (launch(100 * number, 2, number + 1), kernel("k", 100 * number + 5, 10, number + 1))
    ]
    found = graph(*events)
    assert ends_us(found, Edit()) == pytest.approx([915])
    pace = _fitted(found, 465_000.0)
    assert pace is not None
    assert pace.rates[0] == pytest.approx(0.5, abs=0.01)
    assert _fitted(found, 900_000.0).rates[0] == 1, "near enough as it is"
    assert _fitted(found, 50_000.0) is None, "the kernels alone take 100"


def test_the_waits_that_a_real_trace_notes():
    waits = read(DATA / "event_sync_multi_stream.json.gz").stream_waits
    columns = waits.correlation, waits.recorded, waits.device, waits.stream, waits.awaited
    assert [column.tolist() for column in columns] == [[54, 1389, 1410], [32, 1385, 62], [0, 0, 0], [-1, 24, -1], [20, 20, 28]]


@pytest.mark.parametrize("odd", [{"stream": []}, {"stream": "x"}, {"stream": 1 << 70}, {"device": {}}, {"correlation": None}])
def test_odd_notes_are_no_waits(odd):
    note = noted("Stream Sync", 103, stream=7)
    found = graph(*TOGETHER, note | {"args": note["args"] | odd})
    assert ends_us(found, Edit()) == pytest.approx([127], abs=1)
