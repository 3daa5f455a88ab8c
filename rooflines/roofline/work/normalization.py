"""Batch, layer, group, instance and RMS norm, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work.arguments import Arguments, size, size_of
from rooflines.roofline.work.costs import (
    BATCH_NORM_BACKWARD,
    BATCH_NORM_EVAL_BACKWARD,
    LAYER_NORM_BACKWARD,
    MEAN_AND_VARIANCE,
    RMS_NORM,
    RMS_NORM_BACKWARD,
    SCALE_AND_SHIFT,
)
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import formula

BATCH_NORM: Final[dict[str, str]] = {
    "aten::batch_norm": "self weight bias mean var training",
    "aten::_batch_norm_impl_index": "self weight bias mean var training",
    "aten::native_batch_norm": "self weight bias mean var training",
    "aten::_native_batch_norm_legit": "self weight bias mean var training",
    "aten::cudnn_batch_norm": "self weight bias mean var training",
    "aten::miopen_batch_norm": "self weight bias mean var training",
    "aten::instance_norm": "self weight bias mean var training",
}
# The mode is in the name; every one has ``self weight bias mean var``.
_BATCH_NORM_TRAINING: Final = {
    "aten::_batch_norm_with_update": True,
    "aten::_batch_norm_no_update": False,
    "aten::_native_batch_norm_legit_no_training": False,
}
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
    "aten::native_group_norm": "self weight bias",
}
_AFFINE_NORM_BACKWARD: Final[dict[str, str]] = {
    "aten::native_layer_norm_backward": "grad self normalized_shape mean rstd weight bias output_mask",
    "aten::native_group_norm_backward": "grad self mean rstd weight n c hxw group output_mask",
}


def _mask(args: Arguments, length: int) -> tuple[bool, ...]:
    """Which gradients were asked for; all of them where traces record no values, as training does."""
    return args.mask("output_mask", length) if not args.has("output_mask") or args.recorded("output_mask") else (True,) * length


def _written(*tensors: TensorArg | None) -> int:
    return sum(tensor.numel * size_of(tensor.dtype) for tensor in tensors if tensor is not None)


def _batch_norm(signature: Signature, schema: str, training: bool | None = None) -> Work:
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    parameters = (args.optional("weight"), args.optional("bias"))
    running = (args.optional("mean"), args.optional("var"))
    if training is None:
        training = args.flag("training")
    return Work(
        other_flops=inputs.numel * ((MEAN_AND_VARIANCE if training else 0) + SCALE_AND_SHIFT),
        bytes_read=size(inputs, *parameters, *running),
        bytes_written=_written(inputs) + (_written(*running) if training else 0),
        precision=precision_of(inputs.dtype),
    )


def _batch_norm_backward(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    training = args.flag("training", absent=True)
    grad_input, grad_weight, grad_bias = _mask(args, 3)
    saved = [args.optional(name) for name in (("save_mean", "save_var") if training else ("mean", "var"))]
    return Work(
        other_flops=inputs.numel * (BATCH_NORM_BACKWARD if training else BATCH_NORM_EVAL_BACKWARD),
        bytes_read=size(grad, inputs, weight, *saved),
        bytes_written=_written(*[inputs] * grad_input, *[weight] * (grad_weight + grad_bias)),
        precision=precision_of(inputs.dtype),
    )


def _affine_norm(signature: Signature, schema: str) -> Work:
    """Statistics over a row or a group, then normalise; a weight is one more multiply and a bias one more add."""
    args = Arguments(signature, schema)
    inputs, weight, bias = args.tensor("self"), args.optional("weight"), args.optional("bias")
    cost = MEAN_AND_VARIANCE + SCALE_AND_SHIFT + (weight is not None) + (bias is not None)
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(inputs, weight, bias),
        bytes_written=_written(inputs),
        precision=precision_of(inputs.dtype),
    )


def _affine_norm_backward(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    grad_input, grad_weight, grad_bias = _mask(args, 3)
    return Work(
        other_flops=inputs.numel * LAYER_NORM_BACKWARD,
        bytes_read=size(grad, inputs, weight, args.optional("mean"), args.optional("rstd")),
        bytes_written=_written(*[inputs] * grad_input, *[weight] * (grad_weight + grad_bias)),
        precision=precision_of(inputs.dtype),
    )


for _name, _schema in BATCH_NORM.items():
    formula(_name, category="normalisation")(partial(_batch_norm, schema=_schema))
for _name, _training in _BATCH_NORM_TRAINING.items():
    formula(_name, category="normalisation")(partial(_batch_norm, schema="self weight bias mean var", training=_training))
for _name, _schema in _BATCH_NORM_BACKWARD.items():
    formula(_name, category="normalisation")(partial(_batch_norm_backward, schema=_schema))
for _name, _schema in _AFFINE_NORM.items():
    formula(_name, category="normalisation")(partial(_affine_norm, schema=_schema))
for _name, _schema in _AFFINE_NORM_BACKWARD.items():
    formula(_name, category="normalisation")(partial(_affine_norm_backward, schema=_schema))


@formula("aten::rms_norm", "aten::_fused_rms_norm", category="normalisation")
def _rms_norm(signature: Signature) -> Work:
    args = Arguments(signature, "self normalized_shape weight=None eps=None")
    inputs, weight = args.tensor("self"), args.optional("weight")
    return Work(
        other_flops=inputs.numel * RMS_NORM,
        bytes_read=size(inputs, weight),
        bytes_written=_written(inputs),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::_fused_rms_norm_backward", category="normalisation")
def _rms_norm_backward(signature: Signature) -> Work:
    args = Arguments(signature, "grad self normalized_shape rstd weight output_mask")
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.optional("weight")
    grad_input, grad_weight = _mask(args, 2)
    return Work(
        other_flops=inputs.numel * RMS_NORM_BACKWARD,
        bytes_read=size(grad, inputs, args.optional("rstd"), weight),
        bytes_written=_written(*[inputs] * grad_input, *[weight] * grad_weight),
        precision=precision_of(inputs.dtype),
    )
