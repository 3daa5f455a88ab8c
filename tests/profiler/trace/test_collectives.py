"""The collectives of a rank: noted on the kernel, told by the operators around the launch, or by the kernel's name alone."""

from pathlib import Path

import pytest

from rooflines.profiler.trace.collectives import Exchange, kind_of, read_collectives
from rooflines.profiler.trace.reader import read_trace
from tests.traces import kernel, launch, op, span, trace

DATA = Path(__file__).parent.parent.parent / "data" / "traces"


def only(*events):
    found = read_collectives(trace(*events))
    assert len(found) == 1
    return found.exchanges[found.what[0]]


def noted(**args):
    return {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic_1(args)", "pid": 0, "tid": 9, "ts": 10, "dur": 5,
            "args": {"stream": 9, "device": 0, "correlation": 1, **args}}  # fmt: skip


def test_what_the_kernel_notes_counts():
    exchange = only(
        noted(**{
            "Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 400, "dtype": "BFloat16", "Group size": 4,
            "Process Group Name": "3", "Process Group Ranks": "[0, 2, 4, 6]",
        })
    )  # fmt: skip
    # every rank has 4 x 100 elements of 2 bytes at the end
    assert exchange == Exchange("allgather", 800, 100, 400, "bfloat16", "3", 4, (0, 2, 4, 6))


def test_a_kernel_that_notes_a_collective_is_one_whatever_its_name():
    args = {"Collective name": "allreduce", "In msg nelems": 6, "Out msg nelems": 6, "dtype": "Float", "Group size": 4}
    assert only(noted(**args) | {"name": "void symm_mem_kernel<4>(float*)"}).kind == "allreduce"
    for nothing in (None, "", 7):
        assert len(read_collectives(trace(noted(**{"Collective name": nothing}) | {"name": "void symm_mem_kernel<4>(float*)"}))) == 0
    assert len(read_collectives(trace(noted(**args) | {"name": "Memcpy DtoD", "cat": "gpu_memcpy"}))) == 0


@pytest.mark.parametrize("name", ["mscclKernel_Sum_float_Simple(x)", "ncclDevKernel_Generic(x)", "rcclGenericKernel(x)"])
def test_the_libraries_are_told_by_their_kernels_names(name):
    assert len(read_collectives(trace(kernel(name, 0, 5, 1)))) == 1


def test_a_list_of_ranks_that_was_cut_is_none():
    exchange = only(noted(**{"Collective name": "allreduce", "Group size": 64, "Process Group Ranks": "[0, 1, ..., 63]"}))
    assert (exchange.group_size, exchange.group_ranks) == (64, None)


def test_numbers_that_nothing_can_be_are_none():
    exchange = only(noted(**{"Collective name": "allgather", "In msg nelems": -4, "Group size": -2, "dtype": "Float"}))
    assert exchange == Exchange("allgather", dtype="float32")


@pytest.mark.parametrize(
    ("name", "sent", "received", "size"),
    [
        ("allreduce", 6, 6, 6), ("_reduce_scatter_base", 12, 3, 12), ("reduce_scatter", None, 3, 12), ("allgather", 3, None, 12),
        ("all_to_allv", 5, 7, 7), ("broadcast", 6, 6, 6), ("barrier", 0, 0, None), ("gather", 3, 0, 12),
    ],
)  # fmt: skip
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


def test_what_a_process_group_notes_on_the_host_tells():
    mark = op("record_param_comms", 0, 20)
    mark["args"] |= {"Collective name": "allreduce", "In msg nelems": 50, "Out msg nelems": 50, "dtype": "Double"}
    exchange = only(mark, launch(2, 3, 1), kernel("ncclDevKernel_AllReduce_Sum_f64_RING_LL(args)", 30, 9, 1))
    assert exchange == Exchange("allreduce", 400, 50, 50, "float64")


def test_without_a_launch_the_name_tells_the_kind_alone():
    assert only(kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 30, 9, 1)) == Exchange("allreduce")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reducescatter"),
        ("ncclDevKernel_SendRecv(x)", "sendrecv"), ("ncclKernel_Reduce_RING_LL_Sum_float(x)", "reduce"),
        ("ncclDevKernel_Generic_1(ncclAllReduce*)", "other"), ("nccl:all_to_all", "alltoall"), ("send", "send"),
        ("c10d::recv_", "recv"),
        ("", "other"),
    ],
)  # fmt: skip
def test_kinds(name, kind):
    assert kind_of(name) == kind


def test_the_longest_of_the_published_trace():
    found = read_collectives(read_trace(DATA / "nccl_collectives.json.gz"))
    assert len(found) == 21
    longest = int(found.duration_ns.argmax())
    exchange = found.exchanges[found.what[longest]]
    assert (exchange.kind, exchange.elements_in, exchange.group_size, exchange.dtype) == ("allreduce", 2_049_000, 2, "float32")
    assert found.duration_ns[longest] == 5_993_392


def test_an_old_trace_tells_its_collectives_by_their_operators():
    found = read_collectives(read_trace(DATA / "ddp_rank0.json.gz"))
    told = [(one.kind, one.bytes) for one in (found.exchanges[what] for what in found.what)]
    # all of them are called SendRecv
    assert told[:5] == [
        ("alltoall", 3072), ("alltoall", 419_430_400), ("allreduce", 4 * 19_618_307), ("allreduce", 4 * 26_955_536),
        ("allgather", 1 << 30),
    ]  # fmt: skip


def test_no_communication_is_none():
    assert len(read_collectives(trace(kernel("gemm", 0, 5, 1)))) == 0
