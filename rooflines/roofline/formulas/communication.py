"""Collectives and messages between ranks: the bytes that this rank must read from and write to its own memory, once each.

The link between the devices bounds them, no ceiling of this device does: they are counted, and no least time is claimed for them. What
passes through the link depends on the algorithm (a ring sends an all-reduce's tensor nearly twice); neither that nor the arithmetic of
a reduction is counted. A call does not say which rank makes it. So a broadcast's tensor counts as written (its root reads as much
instead), and of a reduction or gathering to one rank what every rank reads counts, not what only the root writes.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, size, size_of, written
from rooflines.roofline.formulas.matmul import product
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula, words
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


@formula(*(f"symm_mem::{name}" for name in words(
    "one_shot_all_reduce_out multimem_one_shot_all_reduce_out multimem_one_shot_reduce_out two_shot_all_reduce_out reduce_scatter_out"
    " multimem_all_gather_out nvshmem_all_to_all nccl_all_to_all_nd tile_reduce one_shot_all_reduce_copy_out"
)), category="communication")  # fmt: skip
def _into(signature: Signature) -> Work:
    """From the first tensor into the last; ``copy`` takes its input from the second, and the buffer is its way."""
    tensors = signature.tensors[1 if "copy" in signature.name else 0 :]
    if len(tensors) < 2:
        raise NotCounted("tensors not recorded")
    return Work(bytes_read=size(tensors[0]), bytes_written=written(tensors[-1]))


# A product and a collective in one operator: both are at work at the same time, and the product is what the device computes.


@hinted_formula("symm_mem::fused_all_gather_matmul", "symm_mem::fused_all_gather_scaled_matmul", category="matmul")
def _gathered_product(signature: Signature, hints: Hints) -> Work:
    """The rows of all ranks with each of several weights. In a trace the operators inside have the products; how many ranks there are
    is not among the arguments."""
    args = Arguments(signature, "self others scale scales")
    scaled = "scaled" in signature.name
    scales = (args.tensor("scale"), *args.tensors("scales")) if scaled else ()
    shard, others = args.tensor("self"), args.tensors("others")
    if not hints.outputs or len(hints.outputs) < len(others):
        raise Dispatches
    results = hints.outputs[len(hints.outputs) - len(others) :]
    whole = results[0].numel // results[0].shape[-1] * shard.shape[-1] * size_of(shard.dtype)
    return Work(
        matrix_flops=sum(2 * result.numel * shard.shape[-1] for result in results),
        other_flops=sum(result.numel for result in results) if scaled else 0,
        bytes_read=whole + size(*others, *scales),
        bytes_written=written(*results) + (whole if len(hints.outputs) > len(others) else 0),
        precision=matrix_precision_of(shard.dtype),
    )


@hinted_formula("symm_mem::fused_matmul_reduce_scatter", "symm_mem::fused_scaled_matmul_reduce_scatter", category="matmul")
def _scattered_product(signature: Signature, hints: Hints) -> Work:
    """The product of this rank's operands, of whose sum over the ranks it keeps a part."""
    args = Arguments(signature, "self other scale_left scale_right")
    left, right = args.tensor("self"), args.tensor("other")
    scales = (args.tensor("scale_left"), args.tensor("scale_right")) if "scaled" in signature.name else ()
    if not hints.outputs:
        raise Dispatches
    flops, shape = product(left, right)
    return Work(
        matrix_flops=flops,
        other_flops=prod(shape) if scales else 0,
        bytes_read=size(left, right, *scales),
        bytes_written=written(*hints.outputs),
        precision=matrix_precision_of(left.dtype),
    )


register({
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
