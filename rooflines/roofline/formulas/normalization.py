"""Batch, layer, group, instance, RMS and weight norm, forward and backward."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, Tensors, named, register

_BATCH_NORM: Final = "self weight bias mean var training"
BATCH_NORM: Final[dict[str, str]] = {
    # these keep no statistics for a backward: only what they call does
    "aten::batch_norm": _BATCH_NORM,
    "aten::_batch_norm_impl_index": _BATCH_NORM,
    "aten::instance_norm": _BATCH_NORM,
    "aten::native_batch_norm": _BATCH_NORM,
    "aten::_native_batch_norm_legit": _BATCH_NORM,
    "aten::_native_batch_norm_legit_functional": _BATCH_NORM,
    "aten::cudnn_batch_norm": _BATCH_NORM,
    "aten::miopen_batch_norm": _BATCH_NORM,
    # the mode is in the name
    "aten::_batch_norm_with_update": "self weight bias mean var",
    "aten::_batch_norm_with_update_functional": "self weight bias mean var",
    "aten::_batch_norm_no_update": "self weight bias mean var",
    "aten::_native_batch_norm_legit_no_training": "self weight bias mean var",
}
_WITHOUT_STATISTICS: Final = frozenset({"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::instance_norm"})
_BATCH_NORM_BACKWARD: Final[dict[str, str]] = {
    "aten::native_batch_norm_backward": "grad self weight mean var save_mean save_var training eps output_mask",
    "aten::batch_norm_backward": "grad self weight mean var save_mean save_var training eps output_mask reserve",
    "aten::cudnn_batch_norm_backward": "self grad weight mean var save_mean save_var eps reserve",
    "aten::miopen_batch_norm_backward": "self grad weight mean var save_mean save_var eps",
}
_AFFINE_NORM: Final[dict[str, str]] = {
    "aten::layer_norm": "self normalized_shape weight=None bias=None",
    "aten::native_layer_norm": "self normalized_shape weight bias",
    "aten::group_norm": "self num_groups weight=None bias=None",
    "aten::native_group_norm": "self weight bias n c hxw group",
}
_AFFINE_NORM_BACKWARD: Final[dict[str, str]] = {
    "aten::native_layer_norm_backward": "grad self normalized_shape mean rstd weight bias output_mask",
    "aten::native_group_norm_backward": "grad self mean rstd weight n c hxw group output_mask",
}


def _mask(args: Arguments, length: int) -> tuple[bool, ...]:
    """Which gradients were asked for; all of them where traces record no values, or none of lists, as training does."""
    return (True,) * length if args.has("output_mask") and not _has_value(args, "output_mask") else args.mask("output_mask", length)


def _has_value(args: Arguments, name: str) -> bool:
    """Whether the trace has the value of a list; some record numbers and leave lists empty."""
    return args.recorded(name) and args.value(name) is not None


def _statistics_dtype(inputs: TensorArg, parameter: TensorArg | None) -> str:
    """The dtype of statistics that were not recorded: that of the parameters, but float32 for half-precision data, as on GPUs."""
    dtype = inputs.dtype if parameter is None else parameter.dtype
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _kept(hints: Hints, made: int, count: int, inputs: TensorArg, parameter: TensorArg | None) -> int:
    """Bytes of saved statistics in addition to the ``made`` ones of the result.

    A CPU keeps those of half-precision data in half precision, which shows where the trace says to the byte what the call allocated.
    """
    narrow = count * size_of((parameter or inputs).dtype)
    return narrow if hints.output_bytes == made + narrow else count * size_of(_statistics_dtype(inputs, parameter))


def _channels(inputs: TensorArg) -> int:
    return inputs.shape[1] if len(inputs.shape) > 1 else 1


def _batch_norm(signature: Signature, hints: Hints, schema: str) -> Work:
    """In training the statistics of the batch are computed, saved for the backward, and mixed into the running ones."""
    if isinstance(signature.arg(3), bool):
        schema = "self weight bias training"  # _native_batch_norm_legit.no_stats
    args = Arguments(signature, schema)
    inputs, weight, bias = args.tensor("self"), args.optional("weight"), args.optional("bias")
    running = (args.optional("mean"), args.optional("var"))
    training = args.flag("training") if args.has("training") else "with_update" in signature.name
    made = written(inputs)
    if "functional" in signature.name:
        made += written(*running)
    if training and signature.name not in _WITHOUT_STATISTICS:
        made += _kept(hints, made, 2 * _channels(inputs), inputs, weight or running[0])
    if hints.outputs is not None:
        made = written(*hints.outputs)
    return Work(
        other_flops=inputs.numel * ((costs.MEAN_AND_VARIANCE if training else 0) + costs.SCALE_AND_SHIFT),
        bytes_read=size(inputs, weight, bias, *running),
        bytes_written=made + (written(*running) if training and "functional" not in signature.name else 0),
        precision=precision_of(inputs.dtype),
    )


def _batch_norm_backward(signature: Signature, schema: str) -> Work:
    """Reads and computes what the gradients that were asked for need: the bias's only ``grad``, in inference the input's no input."""
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    training = args.flag("training", absent=True)
    of_input, of_weight, of_bias = _mask(args, 3)
    mean, deviation = [args.optional(name) for name in (("save_mean", "save_var") if training else ("mean", "var"))]
    centred = of_weight or (of_input and training)
    if training:
        cost = (of_input or of_bias) + 3 * centred + (costs.BATCH_NORM_BACKWARD - 4) * of_input
    else:
        cost = of_input + of_bias + (costs.BATCH_NORM_EVAL_BACKWARD - 2) * of_weight
    read = [grad, weight if of_input else None]
    read += [inputs, mean] if centred else []
    read += [deviation] if of_input or of_weight else []
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(*read),
        bytes_written=written(inputs if of_input else None)
        + (of_weight + of_bias) * _channels(inputs) * size_of((weight or inputs).dtype),
        precision=precision_of(inputs.dtype),
    )


def _groups(args: Arguments, inputs: TensorArg) -> int:
    """How many means a norm has: one for each row of the normalised dimensions, or for each group of a sample."""
    if args.has("group"):
        return args.integer("n") * args.integer("group")
    if not _has_value(args, "normalized_shape"):
        # The parameters have the shape of what is normalised, and each mean is that of one such row.
        parameter = args.optional("weight") or args.optional("bias")
        if parameter is not None and parameter.numel:
            return inputs.numel // parameter.numel
    return prod(inputs.shape[: len(inputs.shape) - len(args.sizes("normalized_shape"))])


def _affine_norm(signature: Signature, hints: Hints, schema: str) -> Work:
    """Statistics over a row or a group, then normalise; a weight is one more multiply and a bias one more add.

    The native forms keep the means and deviations for their backward.
    """
    args = Arguments(signature, schema)
    inputs, weight, bias = args.tensor("self"), args.optional("weight"), args.optional("bias")
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


def _affine_norm_backward(signature: Signature, schema: str) -> Work:
    """Reads and computes what the gradients that were asked for need."""
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    of_input, of_weight, of_bias = _mask(args, 3)
    normalised = of_input or of_weight
    cost = 2 * normalised + (costs.LAYER_NORM_BACKWARD - 5) * of_input + 2 * of_weight + of_bias
    # a norm without parameters has no gradient of them, even if one was requested
    parameter = weight or args.optional("bias")
    if parameter is None and args.has("bias"):
        of_weight = of_bias = False
    count = args.integer("c") if args.has("c") else parameter.numel if parameter is not None else 0
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(
            grad, *((inputs, args.optional("mean"), args.optional("rstd")) if normalised else ()), weight if of_input else None
        ),
        bytes_written=written(inputs if of_input else None) + (of_weight + of_bias) * count * size_of((parameter or inputs).dtype),
        precision=precision_of(inputs.dtype),
    )


for _name, _schema in BATCH_NORM.items():
    hinted_formula(_name, category="normalisation")(partial(_batch_norm, schema=_schema))
for _name, _schema in _BATCH_NORM_BACKWARD.items():
    formula(_name, category="normalisation")(partial(_batch_norm_backward, schema=_schema))
for _name, _schema in _AFFINE_NORM.items():
    hinted_formula(_name, category="normalisation")(partial(_affine_norm, schema=_schema))
for _name, _schema in _AFFINE_NORM_BACKWARD.items():
    formula(_name, category="normalisation")(partial(_affine_norm_backward, schema=_schema))


@formula("aten::rms_norm", "aten::_fused_rms_norm", category="normalisation")
def _rms_norm(signature: Signature) -> Work:
    """The fused form keeps the reciprocal root mean squares, one a row."""
    args = Arguments(signature, "self normalized_shape weight=None eps=None")
    inputs, weight = args.tensor("self"), args.optional("weight")
    kept = _groups(args, inputs) * size_of(_statistics_dtype(inputs, None)) if "fused" in signature.name else 0
    return Work(
        other_flops=inputs.numel * costs.RMS_NORM,
        bytes_read=size(inputs, weight),
        bytes_written=written(inputs) + kept,
        precision=precision_of(inputs.dtype),
    )


@formula("aten::_fused_rms_norm_backward", category="normalisation")
def _rms_norm_backward(signature: Signature) -> Work:
    args = Arguments(signature, "grad self normalized_shape rstd weight output_mask")
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    of_input, of_weight = _mask(args, 2)
    return Work(
        other_flops=inputs.numel * ((of_input or of_weight) + (costs.RMS_NORM_BACKWARD - 3) * of_input + 2 * of_weight),
        bytes_read=size(grad, inputs, args.optional("rstd"), weight if of_input else None),
        bytes_written=written(inputs if of_input else None, weight if of_weight else None),
        precision=precision_of(inputs.dtype),
    )


# Batch norm over several devices, step by step: the statistics of this one, those of all, the normalisation; and its backward.


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


_PASSES: Final[dict[str, Row]] = {
    # mean and deviation of each channel; ``update_stats`` mixes them into the running ones
    "batch_norm_stats": Row(
        "read self, eps", costs.MEAN_AND_VARIANCE, per="self", writes="2 * (self[1] if self.rank > 1 else 1) * statistic(self)"
    ),
    "batch_norm_update_stats": Row(
        "read self, update mean?, update var?", costs.MEAN_AND_VARIANCE, per="self",
        writes="2 * (self[1] if self.rank > 1 else 1) * statistic(mean, self)",
    ),
    # [devices, channels] means and deviations into one of each channel; the input gives only its dtype
    "batch_norm_gather_stats batch_norm_gather_stats_with_counts": Row(
        "self, read mean, read invstd, update running_mean?, update running_var?, momentum, eps, read count?",
        costs.GATHER_STATISTICS, per="mean", writes="2 * mean[-1] * mean.item",
    ),
    # sum(g) and sum(g * (x - m)) of each channel, and of them the gradients of weight and bias
    "batch_norm_backward_reduce": Row(
        "read grad, read self, read mean, view invstd?, view weight?, of_input, of_weight, of_bias", 4, per="self", precision="self",
        also="invstd.size if of_weight else 0",
        writes="mean.n * (2 * of_input * mean.item + (of_weight + of_bias) * (weight or mean).item)",
    ),
    # scale and shift by statistics that are given
    "batch_norm_elemt": Row(
        "read self, read weight?, read bias?, read mean?, read invstd?", costs.SCALE_AND_SHIFT, per="self", result="self"
    ),
    # (g - a - (x - m) * b) * c, where a and b come from the sums of all devices
    "batch_norm_backward_elemt": Row(
        "read grad, read self, read mean?, read invstd?, read weight?, read sum_dy?, read sum_dy_xmu?, read count?",
        costs.BATCH_NORM_BACKWARD - 4, per="self", result="self", precision="self",
    ),
    # v * g / norm(v), each slice along the first or the last dimension by itself; the norms are kept
    "_weight_norm_interface": Row(
        "read v, read g, dim=0", costs.WEIGHT_NORM, per="v", result="v", writes="lengths(v, dim) * statistic(g)"
    ),
    "_weight_norm_interface_backward": Row(
        "read grad, read v, read g, read norms", costs.WEIGHT_NORM_BACKWARD, per="v", result="v g", precision="v"
    ),
}  # fmt: skip
register(_PASSES, "normalisation", namespace="aten::")
