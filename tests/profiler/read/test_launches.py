"""Which call launched what: by the correlation id, and by time where several calls have it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.exchanges import kind_of
from rooflines.profiler.read.launches import launching
from rooflines.profiler.read.reader import read, whole_part
from rooflines.profiler.read.records import Exchange
from rooflines.profiler.read.request_marks import RequestMark, request_mark
from rooflines.profiler.tree.collectives import read_collectives
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.judge.step.traced_work import _quantile
from rooflines.roofline.own.own import own
from tests.traces import add, kernel, launch, mm, op, span, trace


def launched(*events):
    """When the launch of each device event began, in the order of these, -1 for none; and the number of doubtful ids."""
    found = trace(*events)
    by, doubtful = launching(found)
    return [int(found.host.start_ns[one]) // 1000 if one >= 0 else -1 for one in by], doubtful


def query(ts, correlation, *, tid=1):
    """A runtime call that launches nothing."""
    return launch(ts, 1, correlation, tid=tid) | {"name": "cudaEventQuery"}


def test_which_call_launched_what():
    # The call with the correlation id launched it.
    assert launched(launch(0, 1, 5), launch(2, 1, 6), kernel("b", 9, 1, 6), kernel("a", 8, 1, 5), kernel("c", 10, 1, 7)) == (
        [0, 2, -1],
        0,
    )
    assert launched(launch(0, 1, 5), kernel("a", 8, 1, 5), kernel("b", 9, 1, 5)) == ([0, 0], 0)  # a graph
    # Launches are linked by their ids.
    # External ids link launches only where no event has a correlation id.
    old = [by_external_id(launch(0, 1, 5), 5), by_external_id(launch(2, 1, 6), 6), by_external_id(kernel("a", 8, 1, 6), 6)]
    assert launched(*old) == ([2], 0)
    # Since then the external id is that of the operator.
    assert launched(launch(0, 1, 6), by_external_id(kernel("a", 8, 1, 6), 6)) == ([-1], 0)
    assert launched(*old, kernel("b", 9, 1, 7)) == ([-1, -1], 0)
    # A call that launches nothing takes nothing.
    assert launched(query(3, 2, tid=1), launch(2, 1, 2, tid=5), kernel("a", 8, 1, 2)) == ([2], 0)
    assert launched(query(3, 2), kernel("a", 8, 1, 2)) == ([3], 0)  # who else
    # An id that is given again is that of the latest launch before.
    again = (launch(100, 1, 2), launch(0, 1, 2, tid=9), launch(200, 1, 2))
    assert launched(*again, kernel("a", 10, 5, 2), kernel("b", 20, 5, 2), kernel("c", 30, 5, 2), kernel("d", 150, 5, 2)) == (
        [0, 0, 0, 100],
        1,
    )
    assert launched(*again, kernel("early", -5, 1, 2)) == ([0], 1)


def by_external_id(event, number):
    """The event with an external id in place of the correlation id."""
    rest = {key: value for key, value in event["args"].items() if key != "correlation"}
    return event | {"args": rest | {"External id": number}}


def test_kernels_of_several_processes_and_collectives():
    # Two processes with the same ids have each their own kernel.
    events = [
        mm(0, 10, 8, 8, 8), launch(1, 2, 2), kernel("gemm", 50, 10, 2),
        add(3, 10, tid=2), launch(4, 2, 2, tid=2), kernel("add", 55, 30, 2) | {"pid": 1},
    ]  # fmt: skip
    found = trace(*events)
    result = own(count_calls(tree(found)))
    assert {row.signature.name: row.time_ns for row in result.rows} == {"aten::mm": 10_000, "aten::add": 30_000}
    assert [note.split()[-1] for note in result.notes] == ["1."]
    # What a collective is told by is its own launch.
    size = {"dims": [[100]], "types": ["float"]}
    found = trace(
        op("nccl:all_reduce", 0, 10, **size), launch(1, 2, 2), op("nccl:broadcast", 5, 10, tid=2, **size), query(6, 2, tid=2),
        kernel("ncclDevKernel_Generic(args)", 20, 5, 2),
    )  # fmt: skip
    collectives = read_collectives(found)
    assert [collectives.exchanges[what].kind for what in collectives.what] == ["allreduce"]


TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=12, unique=True)


@given(TIMES, TIMES)
def test_any_kernel_is_the_latest_launch_s_or_that_of_its_turn(calls, kernels):
    found, _ = launched(*(launch(ts, 0.5, number) for ts, number in calls), *(kernel("k", ts, 1, number) for ts, number in kernels))
    for (ts, number), by in zip(sorted(kernels, key=lambda one: one[0]), found, strict=True):
        own = sorted(start for start, of in calls if of == number)
        turns = sorted(begin for begin, of in kernels if of == number)
        latest = max((start for start in own if start <= ts), default=own[0] if own else -1)
        turn = own[turns.index(ts)] if len(own) == len(turns) else latest
        assert by == (turn if turn <= ts else latest)


@pytest.mark.parametrize("length", [1, 2, 3, 10, 11, 100, 1001])
def test_the_quantile_is_that_of_numpy(length):
    values = np.random.default_rng(length).integers(0, 10 ** length.bit_length(), length)
    assert _quantile(values, 0.9) == float(np.quantile(values, 0.9))


DATA = Path(__file__).parent.parent.parent / "data" / "traces"


def only(*events):
    found = read_collectives(trace(*events))
    assert len(found) == 1
    return found.exchanges[found.what[0]]


def noted(**args):
    return {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic_1(args)", "pid": 0, "tid": 9, "ts": 10, "dur": 5,
            "args": {"stream": 9, "device": 0, "correlation": 1, **args}}  # fmt: skip


def test_what_a_kernel_notes_of_a_collective():
    # What the kernel notes counts.
    exchange = only(
        noted(**{
            "Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 400, "dtype": "BFloat16", "Group size": 4,
            "Process Group Name": "3", "Process Group Ranks": "[0, 2, 4, 6]",
        })
    )  # fmt: skip
    # every rank has 4 x 100 elements of 2 bytes at the end
    assert exchange == Exchange("allgather", 800, 100, 400, "bfloat16", "3", 4, (0, 2, 4, 6))
    # A kernel that notes a collective is one whatever its name.
    args = {"Collective name": "allreduce", "In msg nelems": 6, "Out msg nelems": 6, "dtype": "Float", "Group size": 4}
    assert only(noted(**args) | {"name": "void symm_mem_kernel<4>(float*)"}).kind == "allreduce"
    for nothing in (None, "", 7):
        assert len(read_collectives(trace(noted(**{"Collective name": nothing}) | {"name": "void symm_mem_kernel<4>(float*)"}))) == 0
    assert len(read_collectives(trace(noted(**args) | {"name": "Memcpy DtoD", "cat": "gpu_memcpy"}))) == 0


@pytest.mark.parametrize("name", ["mscclKernel_Sum_float_Simple(x)", "ncclDevKernel_Generic(x)", "rcclGenericKernel(x)"])
def test_the_libraries_are_told_by_their_kernels_names(name):
    assert len(read_collectives(trace(kernel(name, 0, 5, 1)))) == 1


def test_what_a_collective_cannot_tell():
    # A list of ranks that was cut is none.
    exchange = only(noted(**{"Collective name": "allreduce", "Group size": 64, "Process Group Ranks": "[0, 1, ..., 63]"}))
    assert (exchange.group_size, exchange.group_ranks) == (64, None)
    # Numbers that nothing can be are none.
    exchange = only(noted(**{"Collective name": "allgather", "In msg nelems": -4, "Group size": -2, "dtype": "Float"}))
    assert exchange == Exchange("allgather", dtype="float32")


@pytest.mark.parametrize(("name", "sent", "received", "size"), [
    ("allreduce", 6, 6, 6), ("_reduce_scatter_base", 12, 3, 12), ("reduce_scatter", None, 3, 12), ("allgather", 3, None, 12),
    ("all_to_allv", 5, 7, 7), ("broadcast", 6, 6, 6), ("barrier", 0, 0, None), ("gather", 3, 0, 12),
])  # fmt: skip
def test_sizes_are_those_of_nccl_tests(name, sent, received, size):
    # among four ranks, in elements of four bytes
    args = {"Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "dtype": "Float", "Group size": 4}
    assert only(noted(**args)).bytes == (None if size is None else 4 * size)


def test_operators_around_the_launch_tell():
    exchange = only(
        op("c10d::alltoall_base_", 0, 20, dims=[[768], [3392], [], []], types=["int", "int", "", ""]),
        span("nccl:all_to_all", 1, 15) | {"args": {"Input Dims": [[3392]], "Input type": ["int"]}},
        launch(2, 3, 1),
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 30, 9, 1, stream=84),
    )
    # the operator writes its first argument and sends its second
    assert exchange == Exchange("alltoall", 4 * 3392, 3392, 768, "int32")


def test_the_kind_of_a_collective():
    # What a process group notes on the host tells.
    mark = op("record_param_comms", 0, 20)
    mark["args"] |= {"Collective name": "allreduce", "In msg nelems": 50, "Out msg nelems": 50, "dtype": "Double"}
    exchange = only(mark, launch(2, 3, 1), kernel("ncclDevKernel_AllReduce_Sum_f64_RING_LL(args)", 30, 9, 1))
    assert exchange == Exchange("allreduce", 400, 50, 50, "float64")
    # Without a launch the name tells the kind alone.
    assert only(kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 30, 9, 1)) == Exchange("allreduce")


@pytest.mark.parametrize(("name", "kind"), [
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reducescatter"),
    ("ncclDevKernel_SendRecv(x)", "sendrecv"), ("ncclKernel_Reduce_RING_LL_Sum_float(x)", "reduce"),
    ("ncclDevKernel_Generic_1(ncclAllReduce*)", "other"), ("nccl:all_to_all", "alltoall"), ("send", "send"),
    ("c10d::recv_", "recv"),
    ("", "other"),
])  # fmt: skip
def test_kinds(name, kind):
    assert kind_of(name) == kind


def test_collectives_of_published_traces():
    # The longest of the published trace.
    found = read_collectives(read(DATA / "nccl_collectives.json.gz"))
    assert len(found) == 21
    longest = int(found.duration_ns.argmax())
    exchange = found.exchanges[found.what[longest]]
    assert (exchange.kind, exchange.elements_in, exchange.group_size, exchange.dtype) == ("allreduce", 2_049_000, 2, "float32")
    assert found.duration_ns[longest] == 5_993_392
    # An old trace tells its collectives by their operators.
    found = read_collectives(read(DATA / "ddp_rank0.json.gz"))
    told = [(one.kind, one.bytes) for one in (found.exchanges[what] for what in found.what)]
    # all of them are called SendRecv
    assert told[:5] == [
        ("alltoall", 3072), ("alltoall", 419_430_400), ("allreduce", 4 * 19_618_307), ("allreduce", 4 * 26_955_536),
        ("allgather", 1 << 30),
    ]  # fmt: skip
    # No communication is none.
    assert len(read_collectives(trace(kernel("gemm", 0, 5, 1)))) == 0


DECODE = "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk60sqsq3sqsk60)"
PREFILL = "execute_10_context_2(sq10sk10sqsq52sqsk52)_generation_0(sq0sk0sqsq0sqsk0)"  # prompts of 4 and 6 tokens: 16 + 36


@pytest.mark.parametrize(("name", "expected"), [
    ("execute_context_0(0)_generation_8(8)", RequestMark("decode", 8, 8, decode_requests=8)),
    ("execute_context_2(700)_generation_0(0)", RequestMark("prefill", 2, 700)),
    ("execute_context_1(888_788544)_generation_0(0)", RequestMark("prefill", 1, 888)),
    ("execute_context_1(512)_generation_8(8)", RequestMark("mixed", 9, 520, decode_requests=8)),
    ("execute_context_0(0)_generation_8(24)", RequestMark("decode", 8, 24, decode_requests=8, is_draft=True)),
    (DECODE, RequestMark("decode", 3, 3, 60, 3, 60, decode_requests=3)),
    ("execute_13_context_2(sq10sk10sqsq52sqsk52)_generation_3(sq3sk60sqsq3sqsk60)",
     RequestMark("mixed", 5, 13, 70, 55, 112, 3, parts=((2, 10, 10, 52, 52), (3, 3, 60, 3, 60)))),
    ("step[DECODE bs=32]", RequestMark("decode", 32, 32, decode_requests=32)),
    ("step[DECODE bs=3 g_sq=3 g_sqsq=3 g_sqsk=60 g_sk=60]", RequestMark("decode", 3, 3, 60, 3, 60, decode_requests=3)),
    ("step[EXTEND bs=2 toks=10]", RequestMark("prefill", 2, 10)),
    ("step[EXTEND bs=2 toks=10 c_sq=10 c_sqsq=52 c_sqsk=52 c_sk=10]", RequestMark("prefill", 2, 10, 10, 52, 52)),
    ("step[MIXED bs=5]", RequestMark("mixed", 5)),
    ("step[MIXED bs=5 c=2 g=3 c_sq=10 c_sk=10 c_sqsq=52 c_sqsk=52 g_sq=3 g_sk=60 g_sqsq=3 g_sqsk=60]",
     RequestMark("mixed", 5, 13, 70, 55, 112, 3, parts=((2, 10, 10, 52, 52), (3, 3, 60, 3, 60)))),
    ("step[TARGET_VERIFY bs=2 c_sq=8 c_sqsq=32 c_sqsk=400 c_sk=100]",
     RequestMark("decode", 2, 8, 100, 32, 400, decode_requests=2, is_draft=True)),
    ("prefill[bs=2 tok=10 ctx=[4, 6] sqsq=52 sqsk=52 sk=10]", RequestMark("prefill", 2, 10, 10, 52, 52)),
    ("decode[bs=117/128 tok=117 d=117]", RequestMark("decode", 117, 117, decode_requests=117)),
    ("decode[bs=5 tok=13 p=2 d=3 sqsq=55 sqsk=112 sk=70]", RequestMark("mixed", 5, 13, 70, 55, 112, decode_requests=3)),
    ("[Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 31 gen reqs",
     RequestMark("mixed", 32, decode_requests=31)),
    ("[Executor] _forward_step 12: 0 ctx reqs, 31 gen reqs", RequestMark("decode", 31, decode_requests=31)),
])  # fmt: skip
def test_a_mark_says_what_its_name_says(name, expected):
    assert request_mark(name) == expected


@pytest.mark.parametrize("name", [
    "execute_context_0(0)_generation_0(0)",  # nothing runs
    "step[IDLE bs=0]",
    "step[DECODE bs=0]",
    "step[DECODE]",
    "step[EXTEND bs=x toks=10]",
    "execute_context_2(1)_generation_0(0)",  # two requests with one token
    "execute_context_0(5)_generation_8(8)",  # tokens without a request
    "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk2sqsq3sqsk2)",  # fewer keys than tokens
    "execute_10_context_2(sq10sk10sqsq40sqsk52)_generation_0(sq0sk0sqsq0sqsk0)",  # 10² / 2 = 50 at least
    "execute_10_context_2(sq10sk10sqsq101sqsk101)_generation_0(sq0sk0sqsq0sqsk0)",  # 10² at most
    "execute_10_context_2(sq10sk12sqsq52sqsk51)_generation_0(sq0sk0sqsq0sqsk0)",  # fewer pairs than squares
    f"execute_context_1({10**17})_generation_0(0)",
    f"execute_context_1({'9' * 4000})_generation_0(0)",
    "execute_context_1(512)_generation_8(8)_more",
    "prefill[image]",
    "execute_model",
    "step[1]",
])  # fmt: skip
def test_numbers_that_no_batch_has_are_no_mark(name):
    assert request_mark(name) is None


def steps(*events):
    calls = tree(trace(*events))
    return list(zip(calls.step_names, calls.steps.tolist(), calls.batches or [None] * len(calls.steps), strict=True))


def test_marks_are_steps():
    # Marks are steps and work after a mark is of its step.
    found = steps(span(PREFILL, 0, 100), add(10, 50), add(130, 10), span(DECODE, 200, 100), add(210, 50), add(320, 30))
    assert [(name, bounds) for name, bounds, _ in found] == [(PREFILL, [0, 140_000]), (DECODE, [200_000, 340_000])]
    assert [batch.kind for *_, batch in found] == ["prefill", "decode"], "the last one grows by no more than another"
    # A single step has all that follows.
    ((_, bounds, _),) = steps(span(DECODE, 0, 100), add(10, 50), add(130, 10))
    assert bounds == [0, 140_000]
    # Marks in one another are one step that has what both say.
    plain, sums = "step[DECODE bs=3]", DECODE
    ((name, bounds, batch),) = steps(span(plain, 0, 100), span(sums, 10, 50), add(20, 10))
    assert (name, bounds) == (plain, [0, 100_000])
    assert batch == request_mark(sums)
    ((_, _, batch),) = steps(span(plain, 0, 100), span("step[DECODE bs=4]", 10, 50), add(20, 10))
    assert batch == request_mark(plain), "two batches are not mixed"


def test_which_marks_are_no_steps():
    # Steps of the profiler count where they enclose more.
    training = [span("ProfilerStep#1", 0, 300), add(10, 100), add(210, 80)]
    ((name, _, _),) = steps(*training, span(DECODE, 100, 20), add(105, 10), add(150, 20))
    assert name == "ProfilerStep#1"
    ((name, _, _),) = steps(span("ProfilerStep#1", 0, 300), span(DECODE, 5, 290), add(10, 100))
    assert name == DECODE
    # Device events of a step may be missing.
    events = trace(span(DECODE, 0, 100), add(10, 50), launch(20, 5, 1), kernel("k", 60, 5, 1))
    assert len(tree(events).steps) == 1
    assert not len(tree(whole_part(replace(events, cut_ns=100_000))).steps)
    # Marks of the device and marks without work are no steps.
    on_device = {**span(DECODE, 0, 50), "cat": "gpu_user_annotation"}
    ((_, bounds, _),) = steps(span(DECODE, 0, 100), on_device, launch(10, 5, 1), span(DECODE, 200, 50))
    assert bounds[0] == 0
