"""Collectives: this rank's bytes by hand, as recorded, traced and noted by a process group; the link bounds them, not a ceiling."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.analyze import analyze
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.traces import operator_events
from tests.roofline.rooms import attributed
from tests.roofline.test_analyze import run_of
from tests.traces import add, kernel, launch, op, span, trace

SHARD, WHOLE = TensorArg((6, 4)), TensorArg((18, 4))  # one rank's part and that of three
PART, ALL = 6 * 4 * 4, 18 * 4 * 4  # their bytes

# Name, arguments, bytes read, bytes written.
CALLS = [
    ("c10d::allreduce_", ((SHARD,), MISSING, MISSING, None), PART, PART),
    ("c10d::allreduce_coalesced_", ((SHARD, WHOLE), MISSING, MISSING), PART + ALL, PART + ALL),
    ("c10d::broadcast_", ((SHARD,), MISSING, 0, 0), 0, PART),
    ("c10d::reduce_", ((SHARD,), MISSING, MISSING, 0, 0), PART, 0),
    ("c10d::send", ((SHARD,), MISSING, 1, 0), PART, 0),
    ("c10d::recv_", ((SHARD,), MISSING, 1, 0), 0, PART),
    ("c10d::_allgather_base_", (WHOLE, SHARD, MISSING), PART, ALL),
    ("c10d::allgather_", (((SHARD, SHARD, SHARD),), (SHARD,), MISSING), PART, ALL),
    ("c10d::_reduce_scatter_base_", (SHARD, WHOLE, MISSING, MISSING), ALL, PART),
    ("c10d::reduce_scatter_", ((SHARD,), ((SHARD, SHARD, SHARD),), MISSING, MISSING), ALL, PART),
    ("c10d::alltoall_base_", (WHOLE, SHARD, MISSING, (), ()), PART, ALL),
    ("c10d::scatter_", ((SHARD,), ((SHARD, SHARD, SHARD),), MISSING, 0), ALL, PART),
    ("c10d::scatter_", ((SHARD,), (), MISSING, 0), 0, PART),  # not the root
    ("c10d::gather_", ((), (SHARD,), MISSING, 0), PART, 0),  # not the root
    ("c10d::barrier", (TensorArg((1,), "uint8"), MISSING, ()), 0, 0),
    ("_c10d_functional::all_reduce", (SHARD, "sum", "0"), PART, PART),
    ("_c10d_functional::all_gather_into_tensor", (SHARD, 3, "0"), PART, ALL),
    ("_c10d_functional::all_gather_into_tensor_coalesced", ((SHARD, SHARD), 3, "0"), 2 * PART, 2 * ALL),
    ("_c10d_functional::reduce_scatter_tensor", (WHOLE, "sum", 3, "0"), ALL, PART),
    ("_c10d_functional::all_to_all_single", (SHARD, (2, 9, 7), (1, 2, 3), "0"), PART, ALL),
    ("_c10d_functional::all_to_all_single", (SHARD, (), (), "0"), PART, PART),
    ("_c10d_functional::wait_tensor", (SHARD,), 0, 0),
    ("_dtensor::shard_dim_alltoall", (SHARD, 0, 1, "0"), PART, PART),
    ("nccl:all_reduce", (SHARD,), PART, PART),
    ("symm_mem::one_shot_all_reduce_copy", (WHOLE, SHARD, "sum", "0"), PART, PART),
    ("symm_mem::one_shot_all_reduce_copy_out", (WHOLE, SHARD, "sum", "0", SHARD), PART, PART),
    ("symm_mem::multimem_all_gather_out", (SHARD, "0", WHOLE), PART, ALL),
    ("symm_mem::reduce_scatter_out", (WHOLE, "0", False, SHARD), ALL, PART),
    ("symm_mem::nvshmem_put", (SHARD, 1), PART, 0),
    ("symm_mem::nccl_get", (SHARD, 1), 0, PART),
    ("record_param_comms", ("allreduce", 24, 24, 6), PART, PART),
    ("record_param_comms", ("_allgather_base", 24, 72, 15), 24 * 2, 72 * 2),
    ("record_param_comms", ("reduce_scatter_tensor_coalesced", 72, 24, 6), ALL, PART),
    ("record_param_comms", ("_reduce_oop", 24, 24, 6), PART, 0),
    ("record_param_comms", ("wait", 0, 0, 0), 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "read", "written"), CALLS)
def test_bytes_of_this_rank(name, args, read, written):
    found = count(Signature(name, args))
    assert (found.kind, found.category) == ("counted", "communication"), found
    assert found.work == Work(bytes_read=read, bytes_written=written)


@pytest.mark.parametrize(("name", "args"), [
    ("c10d::allgather_", (None, (SHARD,), MISSING)),  # traces: a list of lists reads as None
    ("c10d::scatter_", ((SHARD,), None, MISSING, 0)),
    ("c10d::allreduce_", ((), MISSING, MISSING, None)),  # traces: a list of more than 30 tensors is empty
    ("record_param_comms", ("allreduce_sparse", 24, 24, 6)), ("record_param_comms", ("init", 0, 0, 0)),
    ("record_param_comms", ("allreduce", 24, 24, MISSING)), ("record_param_comms", ()),
    ("c10d::some_day_", ((SHARD,),)),
])  # fmt: skip
def test_what_is_not_recorded_is_unknown_and_still_communication(name, args):
    found = count(Signature(name, args))
    assert (found.kind, found.category) == ("unknown", "communication")
    assert found.reason


@given(st.integers(1, 50), st.integers(1, 8), st.sampled_from(["float32", "bfloat16", "int64"]))
def test_scattering_undoes_gathering(rows, ranks, dtype):
    """What one rank reads of the one it writes of the other."""
    part, whole = TensorArg((rows, 3), dtype), TensorArg((rows * ranks, 3), dtype)
    gathered = count(Signature("_c10d_functional::all_gather_into_tensor", (part, ranks, "0"))).work
    scattered = count(Signature("_c10d_functional::reduce_scatter_tensor", (whole, "sum", ranks, "0"))).work
    assert (gathered.bytes_read, gathered.bytes_written) == (scattered.bytes_written, scattered.bytes_read)
    assert gathered.bytes_written == ranks * gathered.bytes_read


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_recording_and_a_trace_agree(group, tmp_path):
    """Real calls in a group of one, where everything is as large as its input. A list of lists is in the recording only."""
    tensor, result = torch.rand(6, 4), torch.empty(6, 4)

    def step():
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.all_to_all_single(result, tensor)
        dist.barrier()
        dist.all_gather([result], tensor)

    recorded = Counter()
    for call, times in record(step, None).calls.items():
        if call.signature.name.startswith("c10d::"):
            recorded[call.signature.name, count(call.signature, outputs=call.outputs).work] += times
    calls = trace(*operator_events(step, tmp_path / "t.json"))
    traced = Counter((one.name, count(one).work) for one in calls.signatures if one.name.startswith("c10d::"))
    gathered = ("c10d::allgather_", Work(bytes_read=PART, bytes_written=PART))
    assert recorded - traced == Counter([gathered])
    assert traced - recorded == Counter([("c10d::allgather_", None)])
    assert recorded["c10d::allreduce_", Work(bytes_read=PART, bytes_written=PART)] == 1


def test_the_process_group_s_own_event_is_read():
    noted = op("record_param_comms", 0, 5) | {
        "args": {"Collective name": "allreduce", "In msg nelems": 2049000, "Out msg nelems": 2049000, "dtype": "Float", "Group size": 2}
    }
    other = op("record_param_comms", 9, 5) | {"args": {**noted["args"], "dtype": "BFloat16"}}
    again = {**noted, "ts": 20}
    found = trace(noted, other, again)
    assert [count(one).work for one in found.signatures] == [
        Work(bytes_read=size * 2049000, bytes_written=size * 2049000) for size in (4, 2)
    ]
    assert found.host.signature.tolist() == [0, 1, 0]


def test_older_traces_have_the_tensors_at_nccl_s_annotation():
    """Neither the list at the operator nor what the process group notes was recorded; where they are, they count, and it does not."""
    inside = span("nccl:all_reduce", 3, 10) | {"args": {"Input Dims": [[24]], "Input type": ["float"]}}
    kernels = launch(4, 1, 1), kernel("ncclKernel_AllReduce", 20, 30, 1)
    noted = {"Collective name": "allreduce", "In msg nelems": 24, "Out msg nelems": 24, "dtype": "Float"}
    for args, owner in (({}, "nccl:all_reduce"), (noted, "record_param_comms")):
        events = op("c10d::allreduce_", 1, 20), op("record_param_comms", 2, 15) | {"args": args}, inside
        (row,) = attributed(*events, *kernels).rows
        assert (row.signature.name, row.time_ns) == (owner, 30_000)
        assert row.count.work == Work(bytes_read=PART, bytes_written=PART)


def test_the_link_bounds_a_collective(tmp_path):
    """No ceiling of this device says how fast it could be: counted, but without a lower bound, an efficiency or a gain."""
    found = analyze(run_of(
        tmp_path,
        op("c10d::allreduce_", 0, 50, dims=[[[1000]], [], [], []], types=["TensorList", "", "", ""]),
        op("c10d::barrier", 60, 10, dims=[[1]], types=["unsigned char"]),
        add(80, 20),
    )).analysis  # fmt: skip
    reduced, barrier = (next(row for row in found.operators if row.name == name) for name in ("c10d::allreduce_", "c10d::barrier"))
    assert (reduced.bytes, barrier.bytes) == (8000, 0)
    for row in (reduced, barrier):
        assert (row.bound, row.category) == ("communication", "communication")
        assert (row.lower_bound_s, row.efficiency, row.headroom_s, row.memory_level, row.flag) == (None,) * 5
    assert found.bound_breakdown["communication"] == pytest.approx(60e-6)
    assert found.coverage.unmodeled == ()
    assert found.totals.bytes == 8000 + 12 * 1000
    assert all("communication" not in finding.title for finding in found.findings)


# --- a product and a collective in one operator ------------------------------------------------------------------------------------


def test_a_product_of_gathered_rows_is_counted_by_its_results():
    """[6, 4] of each of three ranks with [4, 5] and [4, 7]."""
    signature = Signature("symm_mem::fused_all_gather_matmul", (SHARD, (TensorArg((4, 5)), TensorArg((4, 7))), 0, "0"))
    assert count(signature).kind == "composite"  # how many ranks there are is not among the arguments
    work = count(signature, outputs=(WHOLE, TensorArg((18, 5)), TensorArg((18, 7)))).work
    assert work == Work(2 * 18 * 4 * 12, 0, ALL + 4 * 12 * 4, ALL + 18 * 12 * 4, "fp32")


def test_a_product_whose_sum_is_scattered_is_the_whole_product():
    signature = Signature("symm_mem::fused_matmul_reduce_scatter", (WHOLE, TensorArg((4, 5)), "sum", 0, "0"))
    assert count(signature).kind == "composite"
    assert count(signature, outputs=(TensorArg((6, 5)),)).work == Work(2 * 18 * 4 * 5, 0, ALL + 80, 120, "fp32")


def test_products_of_fp8_read_their_scales():
    """A multiplication for each element of the product."""
    shard, whole, right, scale = (
        TensorArg((6, 4), "float8_e4m3fn"),
        TensorArg((18, 4), "float8_e4m3fn"),
        TensorArg((4, 5), "float8_e4m3fn"),
        TensorArg(()),
    )
    gathered = Signature("symm_mem::fused_all_gather_scaled_matmul", (shard, (right,), scale, (scale,), 0, "0", (None,), (None,)))
    work = count(gathered, outputs=(whole, TensorArg((18, 5), "bfloat16"))).work
    assert work == Work(2 * 18 * 4 * 5, 90, 72 + 20 + 8, 72 + 180, "fp8")
    scattered = Signature("symm_mem::fused_scaled_matmul_reduce_scatter", (whole, right, scale, scale, "sum", 0, 0, "0"))
    work = count(scattered, outputs=(TensorArg((6, 5), "bfloat16"),)).work
    assert work == Work(2 * 18 * 4 * 5, 90, 72 + 20 + 8, 60, "fp8")


def test_a_product_whose_operand_arrives_in_parts():
    work = count(Signature("symm_mem::_async_input_mm", (WHOLE, TensorArg((4, 5)), TensorArg((3,), "uint32"), 0))).work
    assert work == Work(2 * 18 * 4 * 5, 0, ALL + 80, 18 * 5 * 4, "fp32")


def test_a_process_group_records_what_it_sends():
    work = count(Signature("nccl:all_to_all", (SHARD,))).work
    assert (work.bytes_read, work.bytes_written, work.assumption) == (PART, PART, "as many bytes received as sent")
