"""Operators on quantized tensors, and those that make them; their products are in ``low_precision.py``.

An operator is counted as it is defined: take the numbers out (``DEQUANTIZE``), compute, put them back (``QUANTIZE``).
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, broadcast, distinct, size, size_of, written
from rooflines.roofline.formulas.convolution import touched
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
from rooflines.roofline.formulas.pooling import pooled_size
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, formula, hinted_formula, words

# --- to and from integers ----------------------------------------------------------------------------------------------------------


def _pointwise(tensor: TensorArg, cost: int, dtype: str, *others: TensorArg | None) -> Work:
    """One result for each element; ``others`` are scales, zero points and the like."""
    return Work(
        other_flops=cost * tensor.numel,
        bytes_read=size(tensor, *others),
        bytes_written=tensor.numel * size_of(dtype),
        precision=precision_of(tensor.dtype) or precision_of(dtype),
    )


@formula("aten::quantize_per_tensor", category="element-wise")
def _quantize(signature: Signature) -> Work:
    """The scale and zero point are numbers, or tensors of one element; a list of tensors has a list of them."""
    args = Arguments(signature, "self scale zero_point dtype")
    tensors = args.tensors("self") or (args.tensor("self"),)
    dtype = _given_dtype(args)
    work = sum((_pointwise(tensor, QUANTIZE, dtype) for tensor in tensors), Work())
    return work + Work(bytes_read=size(args.optional("scale"), args.optional("zero_point")))


def _given_dtype(args: Arguments) -> str:
    dtype = args.dtype("dtype", "")
    if not dtype:
        raise NotCounted("argument 'dtype' not recorded")
    return dtype


@formula("aten::quantize_per_channel", category="element-wise")
def _quantize_channels(signature: Signature) -> Work:
    args = Arguments(signature, "self scales zero_points axis dtype")
    return _pointwise(args.tensor("self"), QUANTIZE, _given_dtype(args), args.tensor("scales"), args.tensor("zero_points"))


@formula("aten::quantize_per_tensor_dynamic", category="element-wise")
def _quantize_by_range(signature: Signature) -> Work:
    """After a search for the smallest and the largest element."""
    args = Arguments(signature, "self dtype reduce_range")
    return _pointwise(args.tensor("self"), 2 + QUANTIZE, _given_dtype(args))


@formula("aten::dequantize", category="element-wise")
def _dequantize(signature: Signature) -> Work:
    """To float32; one that was not quantized is cast."""
    args = Arguments(signature, "self")
    tensors = args.tensors("self") or (args.tensor("self"),)
    return sum((_pointwise(t, DEQUANTIZE if t.dtype.startswith("q") else 0, "float32") for t in tensors), Work())


@formula(*aten("int_repr _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor"), category="copy")
def _reinterpret(signature: Signature) -> Work:
    """The integers of a quantized tensor, or a quantized tensor of integers: a copy."""
    args = Arguments(signature, "self scale=None zero_point=None")
    inputs = args.tensor("self")
    return Work(
        bytes_read=size(inputs, args.optional("scale"), args.optional("zero_point")), bytes_written=inputs.numel * size_of(inputs.dtype)
    )


_FAKE: Final = aten(
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"
    " _fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
)


@formula(*_FAKE, category="element-wise")
def _fake_quantize(signature: Signature) -> Work:
    """Rounded as integers would be, and a mask of what was in range."""
    args = Arguments(signature, "self scale zero_point enabled")
    extra = [args.optional(name) for name in ("scale", "zero_point", "enabled")]
    inputs = args.tensor("self")
    return _pointwise(inputs, FAKE_QUANTIZE, inputs.dtype, *extra) + Work(bytes_written=inputs.numel)


@formula(*aten("_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine"), category="element-wise")
def _fake_quantize_learnable(signature: Signature) -> Work:
    args = Arguments(signature, "self scale zero_point")
    inputs = args.tensor("self")
    return _pointwise(inputs, QUANTIZE + DEQUANTIZE, inputs.dtype, args.tensor("scale"), args.tensor("zero_point"))


@formula(*aten("_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward"),
         category="element-wise")  # fmt: skip
def _fake_quantize_backward(signature: Signature) -> Work:
    args = Arguments(signature, "grad self scale zero_point")
    grad, inputs, scale, zero = (args.tensor(name) for name in ("grad", "self", "scale", "zero_point"))
    return Work(
        other_flops=FAKE_QUANTIZE_BACKWARD * inputs.numel,
        bytes_read=size(grad, inputs, scale, zero),
        bytes_written=written(inputs, scale, zero),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::_fused_moving_avg_obs_fq_helper", "aten::_fused_moving_avg_obs_fq_helper_functional", category="element-wise")
def _observe_and_fake_quantize(signature: Signature) -> Work:
    """The range of the input joins a moving average, then fake quantization; both may be switched off by tensors, whose values are not
    recorded: counted as switched on."""
    args = Arguments(signature, "self observer_on fake_quant_on running_min running_max scale zero_point")
    inputs = args.tensor("self")
    state = [args.tensor(name) for name in ("running_min", "running_max", "scale", "zero_point")]
    switches = [args.tensor(name) for name in ("observer_on", "fake_quant_on")]
    return _pointwise(inputs, 2 + FAKE_QUANTIZE, inputs.dtype, *state[:2], *switches) + Work(
        bytes_written=inputs.numel + written(*state)
    )


@hinted_formula(*(f"quantized_decomposed::{name}" for name in words(
    "quantize_per_tensor dequantize_per_tensor quantize_per_channel dequantize_per_channel quantize_per_token dequantize_per_token"
)), category="element-wise")  # fmt: skip
def _decomposed(signature: Signature, hints: Hints) -> Work:
    """The forms that exported graphs have: plain integer tensors, with separate scales."""
    inputs, (out,) = signature.tensors[0], hints.results(signature)
    cost = DEQUANTIZE if "::dequantize" in signature.name else QUANTIZE
    return _pointwise(inputs, cost, out.dtype, *signature.tensors[1:])


@hinted_formula("quantized_decomposed::choose_qparams", "quantized_decomposed::choose_qparams_symmetric", category="reduction")
def _choose_range(signature: Signature, hints: Hints) -> Work:
    """The smallest and the largest element."""
    inputs = signature.tensors[0]
    return Work(
        other_flops=2 * inputs.numel,
        bytes_read=size(inputs),
        bytes_written=written(*hints.results(signature)),
        precision=precision_of(inputs.dtype),
    )


@hinted_formula(*aten("_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight"),
                category="copy")  # fmt: skip
def _repacked(signature: Signature, hints: Hints) -> Work:
    return Work(bytes_read=size(*signature.tensors), bytes_written=written(*hints.results(signature)))


_PREPACK: Final = (
    *(f"{space}::{name}_prepack" for space in ("quantized", "_quantized") for name in words(
        "linear conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
    )),
    "quantized::conv1d_prepack", "quantized::conv_prepack", "onednn::qlinear_prepack", "onednn::qconv_prepack",
    "onednn::linear_prepack_fp16", *(f"{space}::linear_prepack{kind}" for space in ("quantized", "_quantized") for kind in (
        "_legacy", "_fp16", "_fp16_legacy"
    )), "_quantized::_wrapped_linear_prepack", "_quantized::wrapped_fbgemm_pack_gemm_matrix_fp16", "mkldnn_prepacked::conv2d_prepack",
    "quantized::make_quantized_cell_params", "quantized::embedding_bag_prepack",
)  # fmt: skip


@hinted_formula("quantized::linear_unpack", "quantized::linear_unpack_fp16", category="copy")
def _unpacked(signature: Signature, hints: Hints) -> Work:
    """The weight in its own order again; what was packed holds as many bytes."""
    results = written(*hints.results(signature))
    return Work(bytes_read=results, bytes_written=results)


@formula("quantization::_FloatToBfloat16Quantized", "quantization::_Bfloat16QuantizedToFloat", category="copy")
def _bfloat16_in_integers(signature: Signature) -> Work:
    """Casts to and from bfloat16, which another integer type holds: 4 and 2 bytes an element."""
    elements = Arguments(signature, "self").tensor("self").numel
    there = signature.name.endswith("FloatToBfloat16Quantized")
    return Work(bytes_read=elements * (4 if there else 2), bytes_written=elements * (2 if there else 4))


@formula(*_PREPACK, category="copy")
def _prepacked(signature: Signature) -> Work:
    """A weight in the order that a library needs, as float16 if the name has it; a separate bias."""
    weight, *others = signature.tensors
    itemsize = size_of("float16" if "fp16" in signature.name else weight.dtype)
    return Work(bytes_read=size(weight, *others), bytes_written=weight.numel * itemsize + written(*others))


# --- element-wise on quantized tensors ---------------------------------------------------------------------------------------------

_ACTIVATIONS: Final[dict[str, int]] = {
    "hardswish": HARDSWISH, "elu": TRANSCENDENTAL + 3, "celu": TRANSCENDENTAL + 4, "leaky_relu": 2, "sigmoid": SIGMOID,
    "softmax": SOFTMAX, "prelu": 2,
}  # fmt: skip
_ON_INTEGERS: Final[dict[str, int]] = {"relu6": 2, "clamp": 2, "threshold": 2}  # compared with quantized bounds


@formula(*(f"quantized::{name}" for name in _ACTIVATIONS), category="element-wise")
def _activation(signature: Signature) -> Work:
    args = Arguments(signature, "self weight")
    inputs = args.tensor("self")
    cost = DEQUANTIZE + _ACTIVATIONS[signature.name.removeprefix("quantized::")] + QUANTIZE
    return _on_quantized(inputs, cost, args.optional("weight"))


@formula(*(f"quantized::{name}" for name in _ON_INTEGERS), category="element-wise")
def _bounded(signature: Signature) -> Work:
    inputs = Arguments(signature, "self").tensor("self")
    return _on_quantized(inputs, _ON_INTEGERS[signature.name.removeprefix("quantized::")])


def _on_quantized(inputs: TensorArg, cost: int, *others: TensorArg | None) -> Work:
    return Work(
        other_flops=cost * inputs.numel, bytes_read=size(inputs, *others), bytes_written=inputs.numel * size_of(inputs.dtype)
    )  # fmt: skip


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


@formula("quantized::cat", "quantized::cat_relu", "quantized::cat_out", "quantized::cat_relu_out", category="copy")
def _join(signature: Signature) -> Work:
    """Every element from its own scale to the common one."""
    tensors = Arguments(signature, "self dim").tensors("self")
    if not tensors:
        raise NotCounted("shapes of 'self' not recorded")
    elements = sum(tensor.numel for tensor in tensors)
    cost = DEQUANTIZE + ("relu" in signature.name) + QUANTIZE
    return Work(other_flops=cost * elements, bytes_read=size(*tensors), bytes_written=written(*tensors))


# --- normalisation and pooling -----------------------------------------------------------------------------------------------------

_BATCH_NORM: Final = tuple(f"quantized::batch_norm{n}{relu}" for n in ("", "1d", "2d", "3d") for relu in ("", "_relu"))


@formula(*_BATCH_NORM, "aten::quantized_batch_norm", "onednn::qbatch_norm2d", category="normalisation")
def _batch_norm(signature: Signature) -> Work:
    """By the statistics of training, folded into a scale and a shift."""
    args = Arguments(signature, f"self {'scale zero ' if signature.name.startswith('onednn') else ''}weight bias mean var")
    vectors = [args.optional(name) for name in ("weight", "bias", "mean", "var")]
    return _on_quantized(args.tensor("self"), DEQUANTIZE + SCALE_AND_SHIFT + ("relu" in signature.name) + QUANTIZE, *vectors)


@formula("quantized::layer_norm", "quantized::group_norm", "quantized::instance_norm", category="normalisation")
def _norm(signature: Signature) -> Work:
    instance = signature.name.endswith("instance_norm")
    args = Arguments(signature, "self weight=None bias=None" if instance else "self shape weight=None bias=None")
    affine = [args.optional("weight"), args.optional("bias")]
    cost = DEQUANTIZE + MEAN_AND_VARIANCE + SCALE_AND_SHIFT + sum(vector is not None for vector in affine) + QUANTIZE
    return _on_quantized(args.tensor("self"), cost, *affine)


@formula("quantized::max_pool1d", "quantized::max_pool2d", *aten("quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d"),
         category="reduction")  # fmt: skip
def _max_pool(signature: Signature) -> Work:
    """A window of k elements is k comparisons of integers."""
    args = Arguments(signature, "self kernel stride=() padding=0 dilation=1 ceil=False")
    inputs, rank = args.tensor("self"), int(signature.name[-2])
    extents = inputs.shape[-rank:]
    kernel = args.integers("kernel", rank)
    stride = kernel if args.value("stride") == () else args.integers("stride", rank)
    padding, dilation = args.integers("padding", rank), args.integers("dilation", rank)
    out = tuple(map(pooled_size, extents, kernel, stride, padding, dilation, (args.flag("ceil"),) * rank))
    planes = prod(inputs.shape[:-rank])
    covered = planes * prod(map(touched, extents, kernel, stride, padding, dilation, out))
    return Work(
        other_flops=planes * prod(out) * prod(kernel),
        bytes_read=min(covered, distinct(inputs)) * size_of(inputs.dtype),
        bytes_written=planes * prod(out) * size_of(inputs.dtype),
    )


# --- nothing to do -----------------------------------------------------------------------------------------------------------------


@formula(
    *aten(
        "q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis qscheme"
        " _empty_affine_quantized _empty_per_channel_affine_quantized empty_quantized"
    ),
    "quantized::dropout",  # in inference, which is all it knows, its input
    "quantized::make_quantized_cell_params_dynamic",  # holds what it is given
    category="other",
)
def _nothing(_: Signature) -> Work:
    return Work()
