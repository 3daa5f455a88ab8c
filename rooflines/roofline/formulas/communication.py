"""Collectives and messages between ranks: the bytes that this rank must read from and write to its own memory, once each.

The link between the devices bounds them, no ceiling of this device does: they are counted, and no least time is claimed for them. What
passes through the link depends on the algorithm (a ring sends an all-reduce's tensor nearly twice); neither that nor the arithmetic of
a reduction is counted. A call does not say which rank makes it. So a broadcast's tensor counts as written (its root reads as much
instead), and of a reduction or gathering to one rank what every rank reads counts, not what only the root writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import matmul  # noqa: F401 (rows call its functions)
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size_of
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

_COLLECTIVES: Final[dict[str, Row]] = {
    "c10d::allreduce_ c10d::allreduce_coalesced_ _c10d_functional::all_reduce_ _c10d_functional::all_reduce_coalesced_"
    " nccl:all_reduce gloo:all_reduce symm_mem::two_shot_all_reduce_ symm_mem::multimem_all_reduce_": Row("update in_place+"),
    "c10d::reduce_ c10d::send c10d::check_for_nan _c10d_functional::isend nccl:reduce gloo:reduce nccl:send gloo:send"
    " symm_mem::nccl_put symm_mem::nccl_put_with_signal symm_mem::nvshmem_put symm_mem::nvshmem_put_with_signal":
        Row("read read+"),
    "c10d::broadcast_ c10d::recv_ c10d::recv_any_source_ _c10d_functional::broadcast_ _c10d_functional::broadcast"
    " _c10d_functional::irecv nccl:broadcast gloo:broadcast nccl:recv gloo:recv symm_mem::nccl_get symm_mem::nvshmem_get"
    " symm_mem::nvshmem_broadcast": Row("write written+"),
    "c10d::allgather_ c10d::_allgather_base_ c10d::allgather_coalesced_ c10d::allgather_into_tensor_coalesced_"
    " c10d::reduce_scatter_ c10d::_reduce_scatter_base_ c10d::reduce_scatter_tensor_coalesced_ c10d::alltoall_ c10d::alltoall_base_"
    " c10d::gather_into_tensor_": Row("write written+, read read+"),
    # only the root has the other side's tensors: the list is empty elsewhere
    "c10d::scatter_ c10d::gather_": Row(
        "write written*, read read*", fits="known('written') is not None and known('read') is not None"
    ),
    "c10d::barrier c10d::monitored_barrier_ _c10d_functional::wait_tensor _c10d_functional::_wrap_tensor_autograd"
    " nccl:all_reduce_barrier gloo:barrier symm_mem::_barrier symm_mem::_rendezvous symm_mem::nccl_wait_for_signal"
    " symm_mem::nccl_wait_signal symm_mem::nvshmem_wait_for_signal symm_mem::stream_write_value32_": Row("tensors"),
    # functional forms return what they write
    "_c10d_functional::all_reduce _c10d_functional::all_reduce_coalesced _dtensor::shard_dim_alltoall symm_mem::one_shot_all_reduce"
    " symm_mem::multimem_one_shot_all_reduce": Row("read inputs+", result="inputs"),
    # through a buffer
    "symm_mem::one_shot_all_reduce_copy": Row("buffer, read input", result="input"),
    # a process group records what it sends
    "nccl:all_to_all gloo:all_to_all": Row("read inputs+", result="inputs", assumption="as many bytes received as sent"),
    "_c10d_functional::all_gather_into_tensor _c10d_functional::all_gather_into_tensor_coalesced"
    " _c10d_functional::all_gather_into_tensor_out _c10d_functional_autograd::all_gather_into_tensor": Row(
        "read inputs+, group_size", writes="inputs.full * group_size"
    ),
    "_c10d_functional::reduce_scatter_tensor _c10d_functional::reduce_scatter_tensor_coalesced"
    " _c10d_functional::reduce_scatter_tensor_out _c10d_functional_autograd::reduce_scatter_tensor": Row(
        "read inputs+, operation, group_size", writes="inputs.full // group_size"
    ),
    # rows sent and rows received; as many where no sizes are given
    "_c10d_functional::all_to_all_single _c10d_functional_autograd::all_to_all_single": Row(
        "read input, output_split_sizes+", where="rows = sum(output_split_sizes) or (input[0] if input.rank else 1)",
        writes="rows * prod(input[1:]) * input.item",
    ),
}  # fmt: skip
register(_COLLECTIVES, "communication")
# From the first tensor into the last; ``copy`` takes its input from the second, and the buffer is its way.
_INTO: Final = Row("read input, view rest*", writes="written(rest.tensors[-1])", fits="rest")
register({
    "one_shot_all_reduce_out multimem_one_shot_all_reduce_out multimem_one_shot_reduce_out two_shot_all_reduce_out reduce_scatter_out"
    " multimem_all_gather_out nvshmem_all_to_all nccl_all_to_all_nd tile_reduce": _INTO,
    "one_shot_all_reduce_copy_out": replace(_INTO, schema="view buffer, read input, view rest*"),
}, "communication", namespace="symm_mem::", functions=True)  # fmt: skip


# A product and a collective in one operator: both are at work at the same time, and the product is what the device computes.


_PARTS: Final = "recorded_results().tensors[-len(others):]"  # the products with each of several weights
_GATHERED: Final = Row(
    "view self, read others+", where=f"rows = {_PARTS}[0].numel // {_PARTS}[0].shape[-1]; whole = rows * self[-1] * self.item;"
    f" made = sum(each.numel for each in {_PARTS})",
    matrix="2 * made * self[-1]", also="whole", precision="self",
    writes=f"written(*{_PARTS}) + whole * (len(recorded_results()) > len(others))",
)  # fmt: skip
_SCATTERED: Final = Row("read self, read other", matrix="multiply_adds(self, other)", writes="recorded_results().full")
register({
    # The rows of all ranks. In a trace the operators inside have the products; how many ranks there are is not among the arguments.
    "symm_mem::fused_all_gather_matmul": _GATHERED,
    "symm_mem::fused_all_gather_scaled_matmul": replace(
        _GATHERED, schema="view self, read others+, read scale, read scales*", other="made"
    ),
    # the product of this rank's operands, of whose sum over the ranks it keeps a part
    "symm_mem::fused_matmul_reduce_scatter": _SCATTERED,
    "symm_mem::fused_scaled_matmul_reduce_scatter": replace(
        _SCATTERED, schema="read self, read other, read scale_left, read scale_right", other="results_of(self, other)"
    ),
    # a product whose left operand arrives in parts
    "symm_mem::_async_input_mm": Row(
        "read self, read other", matrix="multiply_adds(self, other)", writes="results_of(self, other) * self.item"
    ),
}, "matmul")  # fmt: skip


# Kineto notes what a collective sends and receives at the event that a process group leaves: how its name begins, without underscores
# -> is it read, is it written. The first that fits counts.
_NOTED: Final[dict[str, tuple[bool, bool]]] = {
    "allreduce": (True, True), "allgather": (True, True), "reducescatter": (True, True), "alltoall": (True, True),
    "broadcast": (False, True), "reduce": (True, False), "gather": (True, False), "scatter": (False, True), "send": (True, False),
    "recv": (False, True), "barrier": (False, False), "wait": (False, False),
}  # fmt: skip


@formula("record_param_comms", category="communication")
def _noted(signature: Signature) -> Work:
    """Collective, elements sent and received, dtype: the event's metadata, which the trace reader gives as arguments."""
    args = Arguments(signature, "collective elements_in elements_out dtype")
    collective = str(args.value("collective")).replace("_", "")
    moved = next((moved for name, moved in _NOTED.items() if collective.startswith(name)), None)
    if moved is None or collective.endswith("sparse"):
        raise NotCounted("collective not recorded")
    read, written = moved
    itemsize = size_of(args.dtype("dtype", "")) if read or written else 0
    return Work(
        bytes_read=args.integer("elements_in") * itemsize if read else 0,
        bytes_written=args.integer("elements_out") * itemsize if written else 0,
    )
