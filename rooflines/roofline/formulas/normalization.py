"""Batch, layer, group, instance, RMS and weight norm, forward and backward."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, Tensors, named, register

BATCH_NORM: Final[dict[str, str]] = {
    **dict.fromkeys(aten(
        "batch_norm _batch_norm_impl_index instance_norm native_batch_norm _native_batch_norm_legit"
        " _native_batch_norm_legit_functional cudnn_batch_norm miopen_batch_norm"
    ), "self weight bias mean var training"),
    # the mode is in the name
    **dict.fromkeys(aten(
        "_batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update _native_batch_norm_legit_no_training"
    ), "self weight bias mean var"),
}  # fmt: skip
# These keep no statistics for a backward: only what they call does.
_WITHOUT_STATISTICS: Final = frozenset({"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::instance_norm"})
_AFFINE_NORM: Final[dict[str, str]] = {
    "aten::layer_norm": "self normalized_shape weight=None bias=None",
    "aten::native_layer_norm": "self normalized_shape weight bias",
    "aten::group_norm": "self num_groups weight=None bias=None",
    "aten::native_group_norm": "self weight bias n c hxw group",
}


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


def _groups(args: Arguments, inputs: TensorArg) -> int:
    """How many means a norm has: one for each row of the normalized dimensions, or for each group of a sample."""
    if args.has("group"):
        return args.integer("n") * args.integer("group")
    if args.given("normalized_shape") is None:  # some traces record numbers and leave lists empty
        # The parameters have the shape of what is normalized, and each mean is that of one such row.
        parameter = args.optional("weight") or args.optional("bias")
        if parameter is not None and parameter.numel:
            return inputs.numel // parameter.numel
    return prod(inputs.shape[: len(inputs.shape) - len(args.sizes("normalized_shape"))])


def _affine_norm(signature: Signature, hints: Hints, schema: str) -> Work:
    """Statistics over a row or a group, then normalize; a weight is one more multiply and a bias one more add.

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
        other_flops=inputs.numel * cost, bytes_read=size(inputs, weight, bias), bytes_written=made, precision=precision_of(inputs.dtype)
    )


for _name, _schema in BATCH_NORM.items():
    hinted_formula(_name, category="normalization")(partial(_batch_norm, schema=_schema))
for _name, _schema in _AFFINE_NORM.items():
    hinted_formula(_name, category="normalization")(partial(_affine_norm, schema=_schema))


@formula("aten::rms_norm", "aten::_fused_rms_norm", category="normalization")
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


# Batch norm over several devices, step by step: the statistics of this one, those of all, the normalization; and its backward.


def _asked(*what: str) -> str:
    """Whether each gradient was asked for; all were where traces record no values, or none of lists, as training does."""
    unknown, mask = "value('output_mask') is None", f"asked('output_mask', {len(what)})"
    return "; ".join(f"to_{name} = {unknown} or {mask}[{index}]" for index, name in enumerate(what))


def _batch_norm_gradients(schema: str, asked: str) -> Row:
    """The bias's needs only ``grad``, and in inference the input's no input."""
    return Row(
        schema,
        where=f"{asked}; centered = to_weight or (to_self and training)",
        other="self.n * ((to_self or to_bias) + 3 * centered + (BATCH_NORM_BACKWARD - 4) * to_self if training"
        " else to_self + to_bias + (BATCH_NORM_EVAL_BACKWARD - 2) * to_weight)",
        reads="grad.size + weight.size * to_self + (self.size + (save_mean if training else mean).size) * centered"
        " + (save_var if training else var).size * (to_self or to_weight)",
        writes="self.full * to_self + (to_weight + to_bias) * (self[1] if self.rank > 1 else 1) * (weight or self).item",
        precision="self",
    )


def _affine_gradients(schema: str, count: str) -> Row:
    """A norm without parameters has no gradient of them, even if one was requested."""
    return Row(
        schema,
        where=f"{_asked('self', 'weight', 'bias')}; normalized = to_self or to_weight",
        other="self.n * (2 * normalized + (LAYER_NORM_BACKWARD - 5) * to_self + 2 * to_weight + to_bias)",
        reads="grad.size + (self.size + mean.size + rstd.size) * normalized + weight.size * to_self",
        writes=f"self.full * to_self + (to_weight + to_bias) * {count}",
        precision="self",
    )


_TENSORS: Final = "view weight?, view mean?, view var?, view save_mean?, view save_var?"
_ALL: Final = "to_self = 1; to_weight = 1; to_bias = 1; training = 1"
_GRADIENTS: Final[dict[str, Row]] = {
    "native_batch_norm_backward batch_norm_backward": _batch_norm_gradients(
        f"view grad, view self, {_TENSORS}, training, eps, output_mask", _asked("self", "weight", "bias")
    ),
    "cudnn_batch_norm_backward miopen_batch_norm_backward": _batch_norm_gradients(f"view self, view grad, {_TENSORS}", _ALL),
    "native_layer_norm_backward": _affine_gradients(
        "view grad, view self, normalized_shape, view mean?, view rstd?, view weight?, view bias?, output_mask",
        "(weight or bias).n * (weight or bias).item",
    ),
    "native_group_norm_backward": _affine_gradients(
        "view grad, view self, view mean?, view rstd?, view weight?, n, c, hxw, group, output_mask", "c * (weight or self).item"
    ),
    "_fused_rms_norm_backward": Row(
        "read grad, read self, normalized_shape, read rstd?, view weight?, output_mask",
        where=_asked("self", "weight"),
        other="self.n * ((to_self or to_weight) + (RMS_NORM_BACKWARD - 3) * to_self + 2 * to_weight)",
        also="weight.size * to_self", writes="self.full * to_self + weight.full * to_weight", precision="self",
    ),
}  # fmt: skip
register(_GRADIENTS, "normalization", namespace="aten::")


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
register(_PASSES, "normalization", namespace="aten::")
