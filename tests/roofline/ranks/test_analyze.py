"""Several ranks: which kernels are one collective, what it waited for and reached, and who is late."""

import json
from dataclasses import replace

import msgspec
import pytest

import rooflines
from rooflines.errors import TraceError, UsageError
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.read.records import Rank, ReadOptions
from rooflines.roofline.ranks.analyze import analyze_parts, read_rank
from rooflines.roofline.ranks.records import RankAnalysis, Waiting
from tests.roofline.real import DATA
from tests.traces import kernel, launch, op, span


def collective(ts, dur, name="allreduce", *, elements=1000, group="0", ranks=(0, 1), stream=20, out=None):
    """A kernel that notes its collective: of float32, among ``ranks``."""
    args = {
        "stream": stream, "device": 0, "correlation": int(ts), "Collective name": name, "In msg nelems": elements,
        "Out msg nelems": elements if out is None else out, "dtype": "Float", "Group size": len(ranks), "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)),
    }  # fmt: skip
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"ncclDevKernel_{name}(args)",
        "pid": 0,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def bare(ts, dur, name="AllReduce", *, stream=20):
    """A kernel that notes nothing."""
    return kernel(f"ncclKernel_{name}_RING_LL_Sum_float(ncclDevComm*)", ts, dur, int(ts), stream=stream)


@pytest.fixture
def job(tmp_path):
    """The analysis of ranks given as lists of events; ``shift`` of a rank's clock in microseconds."""

    def analyze(*ranks, world=None, shift=None, names=None):
        parts = []
        for number, events in enumerate(ranks):
            plain = {"traceEvents": [event | {"ts": event["ts"] + (shift or {}).get(number, 0)} for event in events]}
            if names is None:
                plain["distributedInfo"] = {"rank": number, "world_size": world or len(ranks)}
            path = tmp_path / (names[number] if names else f"{number}.json")
            path.write_text(json.dumps(plain))
            parts.append(read_rank(str(path)))
        return analyze_parts(parts)

    return analyze


def test_a_late_rank_has_the_shortest_kernel(job):
    # both end at 150: rank 0 enters at 100 and waits for rank 1, which enters at 140
    found = job([kernel("gemm", 0, 80, 1), collective(100, 50)], [kernel("gemm", 0, 130, 1), collective(140, 10)])
    (row,) = found.collectives
    assert (row.kind, row.group, row.group_size, row.ranks, row.count, row.matched_by) == ("allreduce", "0", 2, 2, 1, "order")
    assert row.transfer_s == pytest.approx(10e-6)
    assert row.skew_s == row.skew_max_s == pytest.approx(40e-6)
    assert (row.waited_s, row.last_rank) == (pytest.approx(40e-6), 1)
    assert (found.straggler.rank, found.straggler.times_last, found.straggler.of) == (1, 1, 1)
    assert (found.straggler.waited_s, found.straggler.share) == (pytest.approx(40e-6), 1)
    assert [rank.waited_s for rank in found.ranks] == [pytest.approx(40e-6), 0]
    assert [rank.caused_wait_s for rank in found.ranks] == [0, pytest.approx(40e-6)]
    # (80 + 130) / 2 = 105
    compute = found.spread["compute_s"]
    assert (compute.max_rank, compute.min_rank, compute.mean) == (1, 0, pytest.approx(105e-6))
    assert compute.imbalance == pytest.approx(130 / 105 - 1)


def test_bandwidths_are_those_of_nccl_tests(job):
    four = tuple(range(4))
    events = [
        collective(100, 10, "allreduce", elements=1000, ranks=four),
        collective(200, 10, "_allgather_base", elements=250, out=1000, ranks=four),
        collective(300, 10, "_reduce_scatter_base", elements=1000, out=250, ranks=four),
        collective(400, 10, "all_to_all", elements=1000, ranks=four),
        collective(500, 10, "broadcast", elements=1000, ranks=four),
    ]
    found = job(*[events] * 4)
    # 1000 elements of 4 bytes in 10 us are 400 MB/s whichever collective
    assert {row.kind: row.algorithm_byte_per_s for row in found.collectives} == dict.fromkeys(
        ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast"), pytest.approx(4e8)
    )
    assert {row.kind: row.bus_byte_per_s for row in found.collectives} == {
        "allreduce": pytest.approx(4e8 * 2 * 3 / 4),
        "allgather": pytest.approx(4e8 * 3 / 4),
        "reducescatter": pytest.approx(4e8 * 3 / 4),
        "alltoall": pytest.approx(4e8 * 3 / 4),
        "broadcast": pytest.approx(4e8),
    }
    assert found.straggler is None  # all entered together
    assert all(row.last_rank is None for row in found.collectives)


def test_overlap_is_what_computes_at_the_same_time(job):
    # communication from 100 to 200, a kernel from 150 to 300: half of it is hidden
    found = job([collective(100, 100), kernel("gemm", 150, 150, 1)], [collective(100, 100)])
    first, second = found.ranks
    assert (first.hidden_fraction, second.hidden_fraction) == (pytest.approx(0.5), 0)
    assert first.exposed_communication_s == pytest.approx(50e-6)
    assert (first.span_s, first.busy_s, first.idle_s) == (pytest.approx(200e-6), pytest.approx(200e-6), 0)


def test_groups_are_kept_apart(job):
    # the same name and order, but two groups of two: ranks 0 and 1, ranks 2 and 3
    left, right = {"group": "tp", "ranks": (0, 1)}, {"group": "tp", "ranks": (2, 3)}
    calls = [collective(100, 30, **left), collective(120, 10, **left), collective(900, 5, **right), collective(880, 25, **right)]
    found = job(*([kernel("gemm", 0, 50, 1), call] for call in calls))
    assert [(row.ranks, row.last_rank) for row in sorted(found.collectives, key=lambda row: row.last_rank)] == [(2, 1), (2, 2)]
    assert found.unmatched == ()


def test_what_the_others_wait_is_shared_by_those_who_enter_last(job):
    three, first = {"ranks": (0, 1, 2)}, kernel("gemm", 0, 80, 1)
    found = job([first, collective(100, 50, **three)], *[[first, collective(140, 10, **three)]] * 2)
    assert [row.times_last for row in found.ranks] == [0, 1, 1]
    assert [row.caused_wait_s for row in found.ranks] == [0, pytest.approx(20e-6), pytest.approx(20e-6)]


def test_clocks_of_hosts_may_differ(job):
    calls = [[(100, 50), (1000, 80), (2500, 40)], [(130, 20), (1060, 20), (2520, 20)]]
    ranks = [[collective(ts, dur) for ts, dur in own] for own in calls]
    for shift in (0, 7_000_000):  # seven seconds
        (row,) = job(*ranks, shift={1: shift}).collectives
        assert (row.count, row.matched_by, row.last_rank) == (3, "order", 1)
        assert row.waited_s == pytest.approx((30 + 60 + 20) * 1e-6)


def test_the_kth_is_not_the_same_where_a_trace_begins_later(job):
    # rank 1 was not yet traced at the first, rank 0 no longer at the last; sizes are alike
    found = job(
        [collective(1000, 50), collective(5000, 50), collective(9000, 50)],
        [collective(5010, 40), collective(9010, 40), collective(13010, 40)],
    )
    (row,) = found.collectives
    assert (row.count, row.matched_by, row.waited_s) == (2, "time", pytest.approx(20e-6))
    assert [(one.kind, one.count) for one in found.unmatched] == [("allreduce", 2)]
    assert any("clocks agree" in note for note in found.notes)


def test_other_counts_are_matched_by_their_ends_or_not_at_all(job):
    first = [collective(1000, 500), collective(5000, 500), collective(9000, 500)]
    (row,) = job(first, [collective(5100, 400), collective(9200, 300)]).collectives
    assert (row.count, row.matched_by) == (2, "time")
    found = job(first, [collective(5100, 400), collective(9200, 300)], shift={1: 90_000_000})
    assert found.collectives == ()
    (left,) = found.unmatched
    assert (left.count, left.reason) == (5, "rank 1 has 2 of them and rank 0 3")
    assert [rank.matched for rank in found.ranks] == [0, 0]


def test_sizes_must_agree(job):
    found = job([collective(100, 50, elements=10)], [collective(100, 50, elements=20)])
    assert found.collectives == ()
    assert [one.count for one in found.unmatched] == [2]


def test_an_uneven_exchange_counts_what_the_busiest_rank_moves(job):
    found = job(
        [collective(100, 10, "all_to_allv", elements=100, out=300)], [collective(100, 10, "all_to_allv", elements=300, out=100)]
    )
    (row,) = found.collectives
    assert row.bytes == 1200


def test_messages_between_two_are_not_collectives(job):
    found = job([collective(100, 50, "send")], [collective(100, 50, "recv")])
    assert found.collectives == ()
    assert [(one.kind, one.count) for one in found.unmatched] == [("send", 1), ("recv", 1)]


def test_recordings_that_begin_apart_make_nobody_late(job):
    # both work for 80 us before the collective, but the recording of rank 1 begins 40 us later
    found = job([kernel("gemm", 0, 80, 1), collective(80, 60)], [kernel("gemm", 40, 80, 1), collective(120, 20)])
    assert found.waiting == Waiting(transfer_s=pytest.approx(20e-6), at_start_s=pytest.approx(20e-6), in_steps_s=0)
    assert [row.waited_at_start_s for row in found.ranks] == [pytest.approx(40e-6), 0]
    assert found.straggler is None
    # it also works 10 us longer, which the steps make
    found = job([kernel("gemm", 0, 80, 1), collective(80, 60)], [kernel("gemm", 30, 90, 1), collective(120, 20)])
    assert (found.waiting.at_start_s, found.waiting.in_steps_s) == (pytest.approx(15e-6), pytest.approx(5e-6))
    assert (found.straggler.rank, found.straggler.waited_s) == (1, pytest.approx(10e-6))


def test_what_is_waited_later_is_made_by_the_steps(job):
    found = job([collective(80, 60), collective(500, 50)], [collective(120, 20), collective(530, 20)])
    assert (found.waiting.at_start_s, found.waiting.in_steps_s) == (pytest.approx(20e-6), pytest.approx(15e-6))
    # the ranks of a second group have met in the first one
    other = {"group": "other"}
    found = job([collective(80, 60), collective(500, 50, **other)], [collective(120, 20), collective(530, 20, **other)])
    assert (found.waiting.at_start_s, found.waiting.in_steps_s) == (pytest.approx(20e-6), pytest.approx(15e-6))


def test_pairs_that_meet_later_were_apart_until_then(job):
    # two pairs that each begin together, and all four at 500: the recordings of the second pair began 100 us later
    left, right, every = {"group": "l", "ranks": (0, 1)}, {"group": "r", "ranks": (2, 3)}, {"group": "all", "ranks": (0, 1, 2, 3)}
    early = [collective(0, 10, **left), collective(500, 120, **every)]
    late = [collective(100, 10, **right), collective(600, 20, **every)]
    found = job(early, early, late, late)
    assert (found.waiting.in_steps_s, found.waiting.at_start_s) == (0, pytest.approx(2 * 100e-6 / 4))


def test_advice_for_the_job_is_that_of_its_ranks_and_names_the_late_one(job):
    slow = [kernel("gemm", 0, 400, 1), collective(400, 20), kernel("gemm", 430, 400, 2), collective(830, 20)]
    fast = [kernel("gemm", 0, 200, 1), collective(200, 220), kernel("gemm", 430, 200, 2), collective(630, 220)]
    found = job(fast, slow)
    first, *rest = found.findings
    assert first.title == "Let rank 1 keep up with the others"
    assert first.saves_s == pytest.approx(200e-6)  # (200 + 200) us on one of two ranks
    assert "computes 33 % more than the mean" in first.suggestion
    assert all("traces of all ranks" not in one.suggestion for one in found.findings)
    assert sum(one.saves_s for one in found.findings) <= found.spread["span_s"].mean
    assert [one.evidence[:15] for one in rest if one.title.startswith("Hide")] in ([], ["on 2 ranks of 2"])


def test_classes_are_the_mean_over_the_ranks(job, dlrm):
    found = job([kernel("gemm", 0, 100, 1), kernel("gemm", 200, 100, 2)], [kernel("gemm", 0, 200, 1), kernel("gemm", 200, 100, 2)])
    assert found.bound_breakdown is None  # no data sheet
    assert found.spread["idle_s"].mean == pytest.approx(50e-6)
    assert sum(dlrm.bound_breakdown.values()) == pytest.approx(dlrm.spread["span_s"].mean, rel=1e-3)
    assert dlrm.bound_breakdown["communication"] == pytest.approx(dlrm.spread["exposed_communication_s"].mean, rel=1e-3)
    assert sum(one.saves_s for one in dlrm.findings) <= dlrm.spread["span_s"].mean


def test_nobody_is_late_for_a_broadcast(job):
    (row,) = (found := job([collective(100, 50, "broadcast")], [collective(110, 40, "broadcast")])).collectives
    assert (row.transfer_s, row.last_rank, row.waited_s) == (pytest.approx(40e-6), None, None)
    assert found.straggler is None


def test_without_notes_the_streams_of_one_kind_may_have_different_numbers(job):
    ranks = [[bare(ts, 20, stream=stream) for ts in (100, 200, 300)] for stream in (20, 21)]
    found = job(*ranks)
    assert [(row.kind, row.ranks, row.count, row.matched_by) for row in found.collectives] == [("allreduce", 2, 3, "order")]
    assert found.unmatched == ()


def test_without_notes_ranks_that_share_streams_stay_in_their_groups(job):
    ranks = [[bare(ts, 20, stream=stream) for ts in (100, 200)] for stream in (20, 20, 24, 24)]
    assert [(row.ranks, row.count) for row in job(*ranks).collectives] == [(2, 2), (2, 2)]


def test_without_notes_and_on_several_streams_of_other_numbers_nothing_is_matched(job):
    found = job([bare(100, 50), bare(300, 20, stream=30)], [bare(100, 50, stream=21), bare(300, 20, stream=31)])
    assert found.collectives == ()
    assert {one.reason for one in found.unmatched} == {"no group is recorded, and no other rank has them on the same stream number"}


def test_without_notes_order_within_a_stream_counts(job):
    ranks = [[bare(100, 50), bare(300, 20, stream=30), bare(500, 30)], [bare(130, 20), bare(300, 20, stream=30), bare(500, 30)]]
    found = job(*ranks)
    assert sorted((row.count, row.group_size, row.bytes, row.bus_byte_per_s) for row in found.collectives) == [
        (1, 2, None, None),
        (2, 2, None, None),
    ]
    # of a job of eight, two ranks do not tell how many were in it
    assert {row.group_size for row in job(*ranks, world=8).collectives} == {None}


def test_a_part_of_the_job_says_so(job):
    four = {"ranks": (0, 1, 2, 3)}
    found = job([collective(100, 50, **four)], [collective(110, 40, **four)], world=4)
    (row,) = found.collectives
    assert (row.ranks, row.group_size) == (2, 4)
    assert any("2 of the job's 4 ranks were given" in note for note in found.notes)


def test_one_rank_of_a_group_is_not_matched(job):
    found = job([collective(100, 50, ranks=(0, 7))], [collective(100, 50, ranks=(1, 6))])
    assert {one.reason for one in found.unmatched} == {"only one rank of its group was given"}


def test_ranks_are_told_by_the_trace_then_the_name_then_the_place(job):
    events = [kernel("gemm", 0, 10, 1)]
    assert [row.rank for row in job(events, events, names=("x_rank11.json", "rank-3.json")).ranks] == [3, 11]
    assert [row.rank for row in job(events, events, names=("5.97-TP-7.trace.json", "5.97-TP-2.trace.json")).ranks] == [2, 7]
    assert [row.rank for row in job(events, events, names=("b.json", "a.json")).ranks] == [0, 1]
    with pytest.raises(UsageError, match="two traces belong to rank 1"):
        job(events, events, names=("rank1.json", "Rank_1.pt.trace.json"))


def test_steps_make_times_per_step_only_where_all_have_them(job):
    step = [span(f"ProfilerStep#{i}", 100 * i, 100) for i in (1, 2)]
    run = [launch(100 * i + 5, 5, i) for i in (1, 2)]
    work = [kernel("gemm", 120, 40, 1), kernel("gemm", 220, 40, 2)]
    with_steps = [*step, *run, *work]
    assert [row.compute_s for row in job(with_steps, with_steps).ranks] == [pytest.approx(40e-6)] * 2
    mixed = job(with_steps, work)
    assert mixed.per == "trace"
    assert [row.compute_s for row in mixed.ranks] == [pytest.approx(80e-6)] * 2
    assert any("different numbers of steps" in note for note in mixed.notes)


@pytest.fixture(scope="module")
def dlrm():
    """Eight ranks of DLRM, judged by the data sheet of their device."""
    return analyze_parts([read_rank(str(DATA / "dlrm_8ranks" / f"rank{rank}.json.gz"), judge=sheet_of) for rank in range(8)])


def test_eight_ranks_of_dlrm(dlrm):
    found = dlrm
    assert [row.rank for row in found.ranks] == list(range(8))
    assert found.unmatched == ()
    assert sum(row.count for row in found.collectives) == 8
    assert {row.ranks for row in found.collectives} == {8}
    by_size = {(row.kind, row.bytes): row for row in found.collectives}
    # the kernels of the largest all-reduce last 246, 307, 198, 291, 95, 96, 213 and 86 us
    row = by_size["allreduce", 4 * 394_241]
    assert (row.transfer_s, row.skew_s, row.last_rank) == (pytest.approx(86e-6), pytest.approx((307 - 86) * 1e-6), 7)
    assert row.waited_s == pytest.approx((160 + 221 + 112 + 205 + 9 + 10 + 127) * 1e-6)
    assert row.bus_byte_per_s == pytest.approx(4 * 394_241 / 86e-6 * 2 * 7 / 8)
    # of the first all-to-all 2146, 7635, 518, 6132, 4882, 4679, 514 and 10 us, of the fourth 514 ... 10 us on rank 5
    row = by_size["alltoall", 4 * 6144]
    assert (row.count, row.skew_max_s) == (2, pytest.approx(7625e-6))
    assert (found.straggler.rank, found.straggler.times_last) == (7, 5)
    waiting = sum(rank.communication_s * rank.steps for rank in found.ranks) / 8
    assert found.waiting.total_s == pytest.approx(waiting, rel=0.05)
    for rank in found.ranks:
        assert rank.span_s == pytest.approx(rank.busy_s + rank.idle_s)
        assert rank.matched == rank.collectives == 8


@pytest.mark.ci
def test_two_ranks_of_a_filtered_trace():
    found = analyze_parts([read_rank(str(DATA / f"ddp_rank{rank}.json.gz")) for rank in range(2)])
    assert found.world_size == 128
    # the traces hold other parts of the events: as many all-to-alls, but not the same ones
    matched = {(row.kind, row.bytes): (row.count, row.matched_by, row.group_size) for row in found.collectives}
    assert matched == {
        ("allgather", 1 << 30): (2, "order", 64),
        ("alltoall", 419_430_400): (1, "time", None),
        ("allreduce", 4 * 19_618_307): (1, "time", None),
        ("allreduce", 4 * 5_716_654): (1, "time", None),
    }
    assert sum(one.count for one in found.unmatched) == 20 - 2 * 5


def test_the_record_goes_to_json_and_back(job):
    found = job([collective(100, 50)], [collective(140, 10)])
    assert RankAnalysis.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.to_dict()["schema"] == "rooflines.ranks/1"
    with pytest.raises(msgspec.ValidationError):
        RankAnalysis.from_dict({"schema": "rooflines.ranks/2"})


def test_a_trace_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": [collective(i, 1) for i in range(1000)]}))
    with pytest.raises(TraceError, match=r"rank0\.json.*more than the memory limit"):
        read_rank(str(path), ReadOptions(memory_limit_bytes=1000))


def test_traces_that_name_no_ranks_and_are_of_different_devices_are_not_of_one_job():
    traces = [str(DATA / f"{name}.json.gz") for name in ("bert-small_h100_inference", "toy_mi250_training")]
    parts = [replace(read_rank(path), place=None) for path in traces]
    for some in (parts, [replace(parts[0], place=Rank(3, 8, None)), parts[1]]):
        with pytest.raises(UsageError, match="are of AMD Instinct MI210 and NVIDIA H100"):
            analyze_parts(some)
    ranks = [replace(part, place=Rank(number, 2, None)) for number, part in enumerate(parts)]
    assert len(analyze_parts(ranks).ranks) == 2


@pytest.mark.parametrize(("hours", "named"), [(0.5, False), (2000, True)])
def test_traces_that_name_no_ranks_and_were_recorded_months_apart_are_not_of_one_job(tmp_path, hours, named):
    now = 1.7e15
    for number, name in enumerate(("before.json", "after.json")):
        at = now + number * hours * 3.6e9
        events = [op("aten::a", at, 20), launch(at + 5, 5, 1), kernel("a", at + 12, 10, 1)]
        (tmp_path / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    paths = [str(tmp_path / name) for name in ("before.json", "after.json")]
    if named:
        with pytest.raises(UsageError, match="hours apart"):
            rooflines.analyze_ranks(paths)
    else:
        assert len(rooflines.analyze_ranks(paths).ranks) == 2
