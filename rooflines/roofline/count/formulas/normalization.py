"""Batch, layer, group, instance, RMS and weight norm, forward and backward."""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.count.formulas.families import texts
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import Tensors, named

BATCH_NORM = texts("normalization.batch_norm")
# These keep no statistics for a backward: only what they call does.
_WITHOUT_STATISTICS = frozenset({"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::instance_norm"})


def _statistics_dtype(inputs: TensorArg, parameter: TensorArg | None) -> str:
    """The dtype of statistics that were not recorded: that of the parameters, but float32 for half-precision
    data, as on GPUs."""
    dtype = inputs.dtype if parameter is None else parameter.dtype
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _kept(hints: Hints, made: int, count: int, inputs: TensorArg, parameter: TensorArg | None) -> int:
    """Bytes of saved statistics in addition to the ``made`` ones of the result.

    A CPU keeps those of half-precision data in half precision, which shows where the trace says to the byte
    what the call allocated.
    """
    narrow = count * size_of((parameter or inputs).dtype)
    return (
        narrow
        if hints.output_bytes == made + narrow
        else count * size_of(_statistics_dtype(inputs, parameter))
    )


def batch_norm(signature: Signature, hints: Hints, schema: str) -> Work:
    """In training the statistics of the batch are computed, saved for the backward, and mixed into the
    running ones."""
    if isinstance(signature.arg(3), bool):
        schema = "self weight bias training"  # _native_batch_norm_legit.no_stats
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    weight, bias, *running = args.optionals("weight", "bias", "mean", "var")
    training = args.flag("training") if args.has("training") else "with_update" in signature.name
    made = written(inputs)
    if "functional" in signature.name:
        made += written(*running)
    if training and signature.name not in _WITHOUT_STATISTICS:
        channels = inputs.shape[1] if len(inputs.shape) > 1 else 1
        made += _kept(hints, made, 2 * channels, inputs, weight or running[0])
    if hints.outputs is not None:
        made = written(*hints.outputs)
    return Work(
        other_flops=inputs.numel * ((costs.MEAN_AND_VARIANCE if training else 0) + costs.SCALE_AND_SHIFT),
        bytes_read=size(inputs, weight, bias, *running),
        bytes_written=made + (written(*running) if training and "functional" not in signature.name else 0),
        precision=precision_of(inputs.dtype),
    )


def _groups(args: Arguments, inputs: TensorArg) -> int:
    """How many means a norm has: one for each row of the normalized dimensions, or for each group of a
    sample."""
    if args.has("group"):
        return args.integer("n") * args.integer("group")
    if args.given("normalized_shape") is None:  # some traces record numbers and leave lists empty
        # The parameters have the shape of what is normalized, and each mean is that of one such row.
        parameter = args.optional("weight") or args.optional("bias")
        if parameter is not None and parameter.numel:
            return inputs.numel // parameter.numel
    return prod(inputs.shape[: len(inputs.shape) - len(args.sizes("normalized_shape"))])


def affine_norm(signature: Signature, hints: Hints, schema: str) -> Work:
    """Statistics over a row or a group, then normalize; a weight is one more multiply and a bias one more
    add.

    The native forms keep the means and deviations for their backward.
    """
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    weight, bias = args.optionals("weight", "bias")
    made = written(inputs)
    if hints.outputs is not None:
        made = written(*hints.outputs)
    elif "native" in signature.name:
        made += _kept(hints, made, 2 * _groups(args, inputs), inputs, weight)
    cost = costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + (weight is not None) + (bias is not None)
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(inputs, weight, bias),
        bytes_written=made,
        precision=precision_of(inputs.dtype),
    )


# Batch norm over several devices, step by step: the statistics of this one, those of all, the normalization;
# and its backward.


@named
def statistic(*tensors: Tensors) -> int:
    """Bytes of a statistic that was not recorded, by the dtype of the first tensor that there is."""
    return size_of(_statistics_dtype(next(tensor.tensors[0] for tensor in tensors if tensor), None))


@named
def lengths(direction: Tensors, dim: int) -> int:
    """Slices of a direction that have a length each: along its first or its last dimension."""
    if dim not in (0, direction.rank - 1):
        raise NotCounted(f"a weight norm along dimension {dim}")
    return int(direction[dim])
