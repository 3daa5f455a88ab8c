"""Operators on quantized tensors, and those that make them; their products are in ``low_precision.py``.

An operator is counted as it is defined: take the numbers out (``DEQUANTIZE``), compute, put them back (``QUANTIZE``).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, broadcast, size, size_of
from rooflines.roofline.formulas.costs import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    FAKE_QUANTIZE_BACKWARD,
    HARDSWISH,
    MEAN_AND_VARIANCE,
    QUANTIZE,
    SCALE_AND_SHIFT,
    SIGMOID,
    SOFTMAX,
    TRANSCENDENTAL,
)
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula, words
from rooflines.roofline.formulas.rows import Row, register

# --- to and from integers ----------------------------------------------------------------------------------------------------------

_INTEGERS: Final = "self.n * item('dtype')"
_CONVERSIONS: Final[dict[str, Row]] = {
    # Scale and zero point are numbers, or tensors of one element. A list of tensors has lists of them.
    "quantize_per_tensor": Row(
        "read self+, read scale?, read zero_point?, dtype", QUANTIZE, per="self", writes=_INTEGERS, precision="self"
    ),
    "quantize_per_channel": Row("read self, read scales, read zero_points, axis, dtype", QUANTIZE, per="self", writes=_INTEGERS),
    # after a search for the smallest and the largest element
    "quantize_per_tensor_dynamic": Row("read self, dtype, reduce_range", 2 + QUANTIZE, per="self", writes=_INTEGERS),
    # to float32; a tensor that was not quantized is cast
    "dequantize": Row(
        "read self+, dtype=None", other="self.n * DEQUANTIZE * (self.dtype[:1] == 'q')", writes="self.n * 4",
        precision="self dtype=float32",
    ),
    # rounded as integers would be, and a mask of what was in range
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"
    " _fake_quantize_per_tensor_affine_cachemask_tensor_qparams": Row(
        "read self, read scale?, read zero_point?, read enabled?", FAKE_QUANTIZE, per="self", result="self", writes="self.n"
    ),
    "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine": Row(
        "read self, read scale, read zero_point", QUANTIZE + DEQUANTIZE, per="self", result="self"
    ),
    "_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward": Row(
        "read grad, read self, read scale, read zero_point",
        FAKE_QUANTIZE_BACKWARD, per="self", result="self scale zero_point", precision="self",
    ),
    # The range of the input joins a moving average, then fake quantization. Both may be switched off by tensors, whose values are not
    # recorded: counted as switched on.
    "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional": Row(
        "read self, read observer_on, read fake_quant_on, update running_min, update running_max, write scale, write zero_point",
        2 + FAKE_QUANTIZE, per="self", result="self", writes="self.n",
    ),
}  # fmt: skip
register(_CONVERSIONS, "element-wise", namespace="aten::")

# The forms that exported graphs have: plain integer tensors, with separate scales.
_SCALED: Final = "read self, read scale?, read zero_point?"
_DECOMPOSED: Final[dict[str, Row]] = {
    "quantize_per_tensor quantize_per_channel quantize_per_token": Row(_SCALED, QUANTIZE, per="self", writes="self.n * results().item"),
    "dequantize_per_tensor dequantize_per_channel dequantize_per_token": Row(
        _SCALED, DEQUANTIZE, per="self", writes="self.n * results().item", precision="results"
    ),
}
register(_DECOMPOSED, "element-wise", namespace="quantized_decomposed::")
register({
    # the smallest and the largest element
    "choose_qparams choose_qparams_symmetric": Row("read self", 2, per="self", writes="results().full"),
}, "reduction", namespace="quantized_decomposed::")  # fmt: skip


# --- copies ------------------------------------------------------------------------------------------------------------------------

_COPIES: Final[dict[str, Row]] = {
    # the integers of a quantized tensor, or a quantized tensor of integers
    "aten::int_repr aten::_make_per_tensor_quantized_tensor aten::_make_per_channel_quantized_tensor": Row(
        "read self, read scale?, read zero_point?", result="self"
    ),
    "aten::_convert_weight_to_int4pack aten::_convert_weight_to_int4pack_for_cpu aten::_dyn_quant_pack_4bit_weight": Row(
        "read weight, read scales?, read bias?", writes="results().full"
    ),
    # the weight in its own order again; what was packed holds as many bytes
    "quantized::linear_unpack quantized::linear_unpack_fp16": Row("packed", reads="results().full", writes="results().full"),
    # to and from bfloat16, which another integer type holds: 4 and 2 bytes an element
    "quantization::_FloatToBfloat16Quantized": Row("view self", reads="4 * self.n", writes="2 * self.n"),
    "quantization::_Bfloat16QuantizedToFloat": Row("view self", reads="2 * self.n", writes="4 * self.n"),
}
register(_COPIES, "copy")

# A weight in the order that a library needs, perhaps as float16, and a separate bias.
_PREPACKED: Final = Row("read weight, read others*", result="weight others")
_PREPACKED_HALF: Final = replace(_PREPACKED, result="others", writes="2 * weight.n")
_SPACES: Final = ("quantized", "_quantized")
_PREPACK: Final = (
    *(f"{space}::{name}_prepack" for space in _SPACES for name in words(
        "linear conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
    )),
    *(f"{space}::linear_prepack_legacy" for space in _SPACES), "quantized::conv1d_prepack", "quantized::conv_prepack",
    "onednn::qlinear_prepack", "onednn::qconv_prepack", "_quantized::_wrapped_linear_prepack", "mkldnn_prepacked::conv2d_prepack",
    "quantized::make_quantized_cell_params", "quantized::embedding_bag_prepack",
)  # fmt: skip
_PREPACK_HALF: Final = (
    *(f"{space}::linear_prepack{kind}" for space in _SPACES for kind in ("_fp16", "_fp16_legacy")),
    "onednn::linear_prepack_fp16", "_quantized::wrapped_fbgemm_pack_gemm_matrix_fp16",
)  # fmt: skip
register({" ".join(_PREPACK): _PREPACKED, " ".join(_PREPACK_HALF): _PREPACKED_HALF}, "copy", functions=True)


# --- element-wise on quantized tensors ---------------------------------------------------------------------------------------------


def _on_quantized(schema: str, cost: int, each: str = "0") -> Row:
    """The row of an operator with ``cost`` FLOPs for each element of ``self``, and ``each`` more; its result is like ``self``."""
    return Row(schema, other=f"self.n * ({cost} + {each})", result="self", precision="=")


_ACTIVATIONS: Final[dict[str, int]] = {
    "hardswish": HARDSWISH, "elu": TRANSCENDENTAL + 3, "celu": TRANSCENDENTAL + 4, "leaky_relu": 2, "sigmoid": SIGMOID,
    "softmax": SOFTMAX, "prelu": 2,
}  # fmt: skip
_ELEMENTWISE: Final[dict[str, Row]] = {
    **{name: _on_quantized("read self, read weight?", DEQUANTIZE + cost + QUANTIZE) for name, cost in _ACTIVATIONS.items()},
    "relu6 clamp threshold": _on_quantized("read self", 2),  # compared with quantized bounds
}
register(_ELEMENTWISE, "element-wise", namespace="quantized::")


_PAIRS: Final = tuple(
    f"quantized::{op}{kind}" for op in ("add", "mul")
    for kind in ("", "_relu", "_out", "_relu_out", "_scalar", "_scalar_relu", "_scalar_out", "_scalar_relu_out")
)  # fmt: skip


@formula(*_PAIRS, "_quantized::add", "onednn::qadd", "onednn::qadd_relu", "onednn::qmul", category="element-wise")
def _pair(signature: Signature) -> Work:
    """Two tensors, or one and a number, which may come first; the tensor to write to may come last."""
    out = signature.name.endswith("_out") or (len(signature.args) == 3 and isinstance(signature.args[2], TensorArg))
    operands = [
        tensor for tensor in (signature.tensors[:-1] if out else signature.tensors) if tensor.shape or tensor.dtype.startswith("q")
    ]
    if not operands:
        raise NotCounted("shapes not recorded")
    results = prod(broadcast(tensor.shape for tensor in operands))
    dtype = operands[0].dtype
    if signature.name.startswith("onednn::"):
        dtype = Arguments(signature, "self scale zero other other_scale other_zero out_scale out_zero dtype").dtype("dtype", dtype)
    cost = DEQUANTIZE * len(operands) + 1 + ("relu" in signature.name) + QUANTIZE
    return Work(other_flops=cost * results, bytes_read=size(*operands), bytes_written=results * size_of(dtype))


# Every element from its own scale to the common one.
register({
    "cat cat_out": _on_quantized("read self+, dim", DEQUANTIZE + QUANTIZE),
    "cat_relu cat_relu_out": _on_quantized("read self+, dim", DEQUANTIZE + 1 + QUANTIZE),
}, "copy", namespace="quantized::")  # fmt: skip


# --- normalization -----------------------------------------------------------------------------------------------------------------

# Batch norm by the statistics of training, folded into a scale and a shift.
_VECTORS: Final = "read weight?, read bias?, read mean?, read var?"
_BY_STATISTICS: Final = DEQUANTIZE + SCALE_AND_SHIFT + QUANTIZE
_NORM: Final = DEQUANTIZE + MEAN_AND_VARIANCE + SCALE_AND_SHIFT + QUANTIZE
_AFFINE: Final = "bool(weight) + bool(bias)"
_NORMS: Final[dict[str, Row]] = {
    "quantized::batch_norm quantized::batch_norm1d quantized::batch_norm2d quantized::batch_norm3d aten::quantized_batch_norm":
        _on_quantized(f"read self, {_VECTORS}", _BY_STATISTICS),
    "quantized::batch_norm_relu quantized::batch_norm1d_relu quantized::batch_norm2d_relu quantized::batch_norm3d_relu":
        _on_quantized(f"read self, {_VECTORS}", _BY_STATISTICS + 1),
    "onednn::qbatch_norm2d": _on_quantized(f"read self, scale, zero, {_VECTORS}", _BY_STATISTICS),
    "quantized::layer_norm quantized::group_norm": _on_quantized("read self, shape, read weight?, read bias?", _NORM, _AFFINE),
    "quantized::instance_norm": _on_quantized("read self, read weight?, read bias?", _NORM, _AFFINE),
}  # fmt: skip
register(_NORMS, "normalization")


# --- nothing to do -----------------------------------------------------------------------------------------------------------------

register({
    "aten::q_scale aten::q_zero_point aten::q_per_channel_scales aten::q_per_channel_zero_points aten::q_per_channel_axis aten::qscheme"
    " aten::_empty_affine_quantized aten::_empty_per_channel_affine_quantized aten::empty_quantized": Row("self"),
    "quantized::dropout": Row("self"),  # in inference, which is all it knows, its input
    "quantized::make_quantized_cell_params_dynamic": Row("self"),  # holds what it is given
}, "other")  # fmt: skip
