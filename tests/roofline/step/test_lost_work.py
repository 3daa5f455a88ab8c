"""Launches without a kernel and kernels without a launch: intact traces have none, and what is taken out of one is counted."""

import functools
import gzip
import json

import pytest

import rooflines
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import CallCount, Work
from rooflines.roofline.judge.bounds import judge
from rooflines.roofline.own.rows import TimeRow
from tests.roofline.real import DATA, analysis_of, every_trace
from tests.roofline.rooms import analyzed, attributed, copied, printed, runtime
from tests.traces import kernel, launch, mm, span

RECORDED = DATA.parent / "gpu_runs" / "script-on-cuda-0" / "train.py.pt.trace.json.gz"
GPU_RUNS = sorted((DATA.parent / "gpu_runs").rglob("*.trace.json.gz"))


@every_trace
def test_an_intact_trace_has_lost_nothing(path):
    coverage = analysis_of(path).coverage
    assert coverage is None or coverage.lost is None


@pytest.mark.parametrize("path", GPU_RUNS, ids=[path.parent.name for path in GPU_RUNS])
def test_our_own_recordings_have_lost_nothing(path):
    assert analysis_of(path).coverage.lost is None


@functools.cache
def recorded():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


def without(directory, chosen):
    """The analysis of a recorded training without the ``chosen`` events."""
    left = [event for event in recorded()["traceEvents"] if not any(event is one for one in chosen)]
    path = directory / "lost.json"
    path.write_text(json.dumps({**recorded(), "traceEvents": left}))
    return rooflines.analyze(path)


def of_kind(kind):
    events = [event for event in recorded()["traceEvents"] if event.get("cat") == kind and "Memcpy" not in event["name"]]
    return sorted(events, key=lambda event: event["ts"])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("first", "last", "place"), [(0, 40, "at the start of the recording in"), (-40, None, "at the end in"), (100, 140, "in between in")]
)
def test_kernels_taken_out_of_a_trace_are_counted_where_they_were(tmp_path, first, last, place):
    kernels = of_kind("kernel")
    found, whole = without(tmp_path, kernels[first:last]), analysis_of(RECORDED)
    lost = found.coverage.lost
    assert (lost.without_kernel, lost.launches, lost.without_launch) == (40, len(kernels), 0)
    assert (lost.at_start, lost.at_end) == (40 * (first == 0), 40 * (first < 0))
    (note,) = [note for note in found.notes if note.startswith("The trace has no kernel for 40 of 360 kernel launches (11 %)")]
    assert place in note
    assert lost.steps[0] in note
    assert ("192021" in note) == (first == 0)
    # A row that has lost no kernel is as it was; one that has lost more than a few is not judged.
    of = {(row.name, row.module, row.phase, row.shapes): row for row in whole.operators}
    rows = [(row, of[row.name, row.module, row.phase, row.shapes]) for row in found.operators]
    assert all(row.time_s <= before.time_s * (1 + 1e-9) and row.flops == before.flops for row, before in rows)
    unjudged = [row for row, before in rows if before.efficiency is not None and row.efficiency is None]
    assert unjudged
    assert all(row.flag.startswith("too little device time") and row.flop_per_s is None for row in unjudged)
    assert lost.flops_fraction == pytest.approx(sum(row.flops for row in unjudged) / found.totals.flops)
    caveat = "no kernel in the trace for 11 % of the kernel launches; rows with"
    assert any(one.startswith(caveat) for one in found.caveats)
    assert caveat in printed(found)


def test_a_few_lost_kernels_leave_a_row_its_efficiency(tmp_path):
    found = without(tmp_path, of_kind("kernel")[:1])
    assert (found.coverage.lost.without_kernel, found.coverage.lost.flops_fraction) == (1, 0)
    assert [row.efficiency is None for row in found.operators] == [row.efficiency is None for row in analysis_of(RECORDED).operators]


def test_a_collective_that_lost_kernels_is_still_communication():
    row = TimeRow(Signature("nccl:all_reduce"), CallCount("counted", Work(), "communication"), -1, 0, calls=10, time_ns=50.0, lost=1)
    judged = judge(row, None, None)
    assert (judged.bound, judged.efficiency, judged.flag.partition(":")[0]) == ("communication", None, "too little device time")


def test_launches_taken_out_of_a_trace_leave_kernels_without_an_operator(tmp_path):
    launches = [event for kind in ("cuda_runtime", "cuda_driver") for event in of_kind(kind) if "Launch" in event["name"]]
    gone = launches[100:140]
    ids = {event["args"]["correlation"] for event in gone}
    lasting = sum(event["dur"] for event in of_kind("kernel") if event["args"]["correlation"] in ids) / 1e6
    found = without(tmp_path, gone)
    lost = found.coverage.lost
    assert (lost.without_kernel, lost.without_launch, lost.events, lost.streams) == (0, 40, 460, (7,))
    assert lost.without_launch_s * found.basis.steps == pytest.approx(lasting)
    assert any(note.startswith("The trace has no launch for 40 of 460 device events (9 %)") for note in found.notes)
    assert any("no launch in the trace for 9 %" in caveat for caveat in found.caveats)


PAIR = (mm(0, 9, 8, 8, 8), launch(1, 2, 1), kernel("first", 10, 5, 1), mm(80, 9, 8, 8, 8), launch(81, 2, 9), kernel("last", 90, 5, 9))


@pytest.mark.parametrize(
    "events",
    {
        "copies and fills of no bytes": (runtime("cudaMemsetAsync", 30, 2, 4), runtime("cudaMemcpyAsync", 40, 2, 5)),
        "calls that launch nothing": (runtime("cudaStreamSynchronize", 30, 2, 4), runtime("cudaLaunchHostFunc", 40, 2, 5)),
        "a graph of many kernels": (runtime("cudaGraphLaunch", 30, 2, 4), kernel("a", 40, 5, 4), kernel("b", 50, 5, 4)),
        "launches into a capture": (
            runtime("cudaStreamBeginCapture", 30), launch(32, 2, 4), launch(36, 2, 5, tid=2), runtime("cudaStreamEndCapture", 40),
        ),
        "a capture begun before the recording": (launch(32, 2, 4), runtime("hipStreamEndCapture", 40)),
        "the driver's call in a runtime call": (runtime("cudaLaunchKernelExC", 30, 9, 4), runtime("cuLaunchKernelEx", 32, 2, 5),
                                                kernel("a", 40, 5, 4)),
        "a runtime call around the driver's": (runtime("cudaLaunchKernel", 30, 9, 4), runtime("cuLaunchKernel", 32, 2, 5),
                                               kernel("a", 40, 5, 5)),
        "a kernel launched before the recording": (kernel("before", -20, 5, 77),),
        "a device event without an id": (kernel("a", 40, 5, 0), kernel("b", 50, 5, -1)),
        "two processes that share an id": (launch(30, 2, 4), launch(32, 2, 4, tid=2), kernel("a", 40, 5, 4)),
        "a launch without an id": (runtime("hipLaunchKernel", 30, 2, -1),),
        "ranges and copies": (span("mine", 20, 40), runtime("cudaMemcpyAsync", 30, 2, 4), copied("Memcpy", 40, 5, 4)),
    }.items(),
    ids=lambda case: case[0],
)  # fmt: skip
def test_what_need_not_have_a_counterpart_is_not_lost(events):
    lost = attributed(*PAIR, *events[1]).lost
    assert (len(lost.launches), len(lost.events)) == (0, 0)


@pytest.mark.parametrize(
    "name", ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipExtModuleLaunchKernel", "hipGraphLaunch"]
)
def test_a_launch_of_every_kind_can_be_lost(name):
    lost = attributed(*PAIR, runtime(name, 30, 2, 4)).lost
    assert (len(lost.launches), lost.at_start, lost.at_end, lost.launched) == (1, 0, 0, 3)  # of PAIR two


def test_a_trace_without_launches_or_with_a_cut_says_nothing_of_lost_ones(tmp_path):
    kernels = [event for event in PAIR if event["cat"] == "kernel"]
    assert analyzed(tmp_path, *kernels).coverage.lost is None
    text = json.dumps({"traceEvents": [*PAIR, launch(30, 2, 4), launch(40, 2, 5)]})
    (tmp_path / "cut.json").write_text(text[: text.index('"last"')])
    assert rooflines.analyze(tmp_path / "cut.json", partial=True).coverage.lost is None


def test_losses_do_not_depend_on_the_order_of_the_file():
    events = (*PAIR, launch(30, 2, 4), launch(40, 2, 5), kernel("alone", 60, 5, 12))
    there, back = (attributed(*order).lost for order in (events, events[::-1]))
    assert (there.launches.tolist(), there.events.tolist()) == (back.launches.tolist(), back.events.tolist())
    assert (len(there.launches), len(there.events)) == (2, 1)
