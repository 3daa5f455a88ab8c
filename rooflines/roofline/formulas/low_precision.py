"""Products of numbers narrower than 16 bits: int8, fp8 and int4, and the linear layers and convolutions of quantized networks.

The arithmetic of a product of 8-bit integers is int8. Where only the weight is narrow it is widened before it is multiplied, so the
precision is that of the activations. A result costs one multiplication by its scale, or ``QUANTIZE`` where it becomes an integer again.

The weights of ``quantized::linear`` and ``quantized::conv2d`` are packed objects: a recording opens them, a trace leaves them out.
torchao's layers call ``aten::_int_mm``, ``aten::_weight_int4pack_mm`` and ``aten::_scaled_mm``.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, distinct, size, size_of, written
from rooflines.roofline.formulas.convolution import sizes as convolution_sizes
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE, TANH
from rooflines.roofline.formulas.matmul import (
    SPARSE,
    activation_flops,
    grouped_product,
    layer_work,
    product,
    product_flops,
    product_work,
)
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, formula, hinted_formula, words

INTEGERS: Final = frozenset({"int8", "uint8", "qint8", "quint8"})


# --- products of 8-bit numbers -----------------------------------------------------------------------------------------------------


@formula("aten::_int_mm", category="matmul")
def _integer(signature: Signature) -> Work:
    """[m, k] @ [k, n] of int8, written as int32."""
    args = Arguments(signature, "self other")
    return product_work(args.tensor("self"), args.tensor("other"), out_dtype="int32")


def _scaled_work(args: Arguments, flops: int, results: int, out_dtype: str, scales: tuple[TensorArg, ...]) -> Work:
    """A product whose results are scaled, with an optional bias and a second scale."""
    left, right = args.tensor("self"), args.tensor("other")
    bias, result_scale = args.optional("bias"), args.optional("scale_result")
    return Work(
        matrix_flops=flops,
        other_flops=results * (1 + (bias is not None) + (result_scale is not None)),
        bytes_read=size(left, right, bias, result_scale, args.optional("offs"), *scales),
        bytes_written=results * size_of(out_dtype),
        precision=matrix_precision_of(left.dtype),
    )


_SCALES: Final = "self other scale_a scale_b"
_SCALE_LISTS: Final = "self other scale_a recipe_a swizzle_a scale_b recipe_b swizzle_b"
_LAST_AND_FIRST: Final = ((), (-1, -2), (1, 0), (-1, 0), (1, -2))  # left's and right's dimension that is summed over


def _scales(args: Arguments) -> tuple[TensorArg, ...]:
    """One tensor for each operand, or a list of them."""
    single = (args.optional("scale_a"), args.optional("scale_b"))
    return (*(scale for scale in single if scale is not None), *args.tensors("scale_a"), *args.tensors("scale_b"))


@formula("aten::_scaled_mm", category="matmul")
def _scaled(signature: Signature) -> Work:
    args = Arguments(signature, f"{_SCALES} bias=None scale_result=None out_dtype=None")
    return _scaled_product(args)


@formula("aten::_scaled_mm_v2", category="matmul")
def _scaled_by_recipe(signature: Signature) -> Work:
    args = Arguments(signature, f"{_SCALE_LISTS} bias out_dtype contraction_dim=()")
    if args.value("contraction_dim") not in _LAST_AND_FIRST:
        raise NotCounted("product over dimensions other than the last and the first")
    return _scaled_product(args)


def _scaled_product(args: Arguments) -> Work:
    left = args.tensor("self")
    flops, shape = product(left, args.tensor("other"))
    return _scaled_work(args, flops, prod(shape), args.dtype("out_dtype", left.dtype), _scales(args))


@formula("aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2", category="matmul")
def _scaled_grouped(signature: Signature) -> Work:
    """One product for each group; the result is bfloat16 where no dtype is given."""
    schema = f"{_SCALES} offs=None bias=None scale_result=None out_dtype=None"
    if signature.name.endswith("_v2"):
        schema = f"{_SCALE_LISTS} offs=None bias=None out_dtype=None"
    args = Arguments(signature, schema)
    flops, shape = grouped_product(args.tensor("self"), args.tensor("other"), args.optional("offs"))
    return _scaled_work(args, flops, prod(shape), args.dtype("out_dtype", "bfloat16"), _scales(args))


# --- products with a narrow weight -------------------------------------------------------------------------------------------------


@formula("aten::_weight_int8pack_mm", category="matmul")
def _eight_bit_weight(signature: Signature) -> Work:
    """[m, k] @ [n, k]^T of int8, a scale for each of the n."""
    args = Arguments(signature, "self other scales")
    weight = args.tensor("other")
    return layer_work(args.tensor("self"), weight.shape[0], weight, args.tensor("scales"), each=1)


@formula(*aten("_weight_int4pack_mm _weight_int4pack_mm_for_cpu"), "quantized::int4mm_packed_weight_cpu", category="matmul")
def _four_bit_weight(signature: Signature) -> Work:
    """[m, k] @ [n, k]^T of 4-bit integers, packed two to a byte; a scale and a zero for each group of a row, [k / group, n, 2]."""
    args = Arguments(signature, "self other group scales_and_zeros")
    weight, scales = args.tensor("other"), args.tensor("scales_and_zeros")
    return layer_work(args.tensor("self"), scales.shape[1], weight, scales, unpack=DEQUANTIZE)


@formula("aten::_weight_int4pack_mm_with_scales_and_zeros", category="matmul")
def _four_bit_weight_in_parts(signature: Signature) -> Work:
    args = Arguments(signature, "self other group scales zeros")
    weight = args.tensor("other")
    return layer_work(args.tensor("self"), weight.shape[0], weight, args.tensor("scales"), args.tensor("zeros"), unpack=DEQUANTIZE)


@formula("aten::_dyn_quant_matmul_4bit", category="matmul")
def _four_bit_dynamic(signature: Signature) -> Work:
    """The activations become int8, after a search for their range; the packed weight [k, n] holds its scales and bias."""
    args = Arguments(signature, "self packed block_size in_features out_features")
    inputs, packed = args.tensor("self"), args.tensor("packed")
    inner, outputs = args.integer("in_features"), args.integer("out_features")
    rows = inputs.numel // inner
    return Work(
        matrix_flops=product_flops(1, rows, inner, outputs),
        other_flops=inputs.numel * (2 + QUANTIZE) + rows * outputs * (1 + 1),  # scale, bias
        bytes_read=size(inputs, packed),
        bytes_written=rows * outputs * size_of(inputs.dtype),
        precision="int8",
    )


@formula("aten::_mixed_dtypes_linear", category="matmul")
def _mixed_linear(signature: Signature) -> Work:
    """16-bit activations with an 8- or 4-bit weight; a scale for each of the n outputs."""
    args = Arguments(signature, "self weight scale bias=None activation=None")
    inputs, scale, bias = args.tensor("self"), args.tensor("scale"), args.optional("bias")
    each = 1 + (bias is not None) + activation_flops(args, "activation")
    return layer_work(inputs, scale.shape[0], args.tensor("weight"), scale, bias, each=each)


# --- packed weights ----------------------------------------------------------------------------------------------------------------


def packed(args: Arguments, name: str = "packed") -> tuple[TensorArg, TensorArg | None]:
    """Weight and bias inside a packed object, as a recording has them."""
    found = args.value(name) if args.recorded(name) else None
    if not isinstance(found, tuple) or not found or not isinstance(found[0], TensorArg):
        raise NotCounted("packed weights not recorded in traces")
    bias = found[1] if len(found) > 1 else None
    return found[0], bias if isinstance(bias, TensorArg) else None


# Operator -> FLOPs of the activation that it has fused.
_LINEAR: Final[dict[str, int]] = {
    "quantized::linear": 0, "quantized::linear_relu": 1, "quantized::linear_leaky_relu": 2, "quantized::linear_tanh": TANH,
    "_quantized::linear": 0,
}  # fmt: skip
_DYNAMIC: Final[dict[str, int]] = {
    "quantized::linear_dynamic": 0, "quantized::linear_relu_dynamic": 1, "_quantized::linear_dynamic": 0,
    "quantized::linear_with_input_q_dq_qweight_dq_output_fp32": 0, "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32": 1,
}  # fmt: skip


def _linear_work(
    inputs: TensorArg, weight: TensorArg, bias: TensorArg | None, each: int, besides: int = 0, precision: str | None = "int8"
) -> Work:
    """[..., k] @ [n, k]^T with a bias and ``each`` more FLOPs a result."""
    outputs, inner = weight.shape
    if inputs.shape[-1] != inner:
        raise NotCounted(f"inner dimensions {inputs.shape[-1]} and {inner} differ")
    return layer_work(inputs, outputs, weight, bias, each=each + (bias is not None), besides=besides, precision=precision)


@formula(*_LINEAR, category="matmul")
def _quantized_linear(signature: Signature) -> Work:
    """8-bit integers in and out."""
    args = Arguments(signature, "self packed scale zero_point")
    return _linear_work(args.tensor("self"), *packed(args), QUANTIZE + _LINEAR[signature.name])


@formula(*_DYNAMIC, category="matmul")
def _dynamic_linear(signature: Signature) -> Work:
    """Floating point in and out: the input becomes int8, unless its scale is given after a search for its range; int8 product."""
    given = "_q_dq_" in signature.name
    args = Arguments(signature, "self scale zero_point packed" if given else "self packed reduce_range=False")
    inputs = args.tensor("self")
    return _linear_work(inputs, *packed(args), 1 + _DYNAMIC[signature.name], inputs.numel * (QUANTIZE + (0 if given else 2)))


@formula("quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16", "quantized::linear_dynamic_fp16_unpacked_weight",
         category="matmul")  # fmt: skip
def _half_weight_linear(signature: Signature) -> Work:
    """The packed weight is float16, widened before it is multiplied."""
    plain = signature.name.endswith("unpacked_weight")
    args = Arguments(signature, "self weight bias" if plain else "self packed")
    inputs = args.tensor("self")
    weight, bias = (args.tensor("weight"), args.optional("bias")) if plain else packed(args)
    stored = weight if plain else TensorArg(weight.shape, "float16")
    return _linear_work(inputs, stored, bias, int("relu" in signature.name), precision=precision_of(inputs.dtype))


@formula("onednn::linear_dynamic_fp16", "onednn::linear_relu_dynamic_fp16", category="matmul")
def _half_weight_transposed(signature: Signature) -> Work:
    """As above, with a weight that is laid out [k, n]."""
    args = Arguments(signature, "self weight bias")
    inputs, weight, bias = args.tensor("self"), args.tensor("weight"), args.optional("bias")
    each = (bias is not None) + ("relu" in signature.name)
    return layer_work(inputs, weight.shape[1], weight, bias, each=each, precision=precision_of(inputs.dtype))


_CONVOLUTION: Final = (
    *(f"quantized::conv{n}d{relu}" for n in (1, 2, 3) for relu in ("", "_relu")),
    *(f"_quantized::conv{n}d{relu}" for n in (2, 3) for relu in ("", "_relu")),
    *(f"_quantized::conv_transpose{n}d" for n in (1, 2)),
)
_CONVOLUTION_DYNAMIC: Final = tuple(f"quantized::conv{n}d_dynamic" for n in (1, 2, 3))
_CONVOLUTION_ADD: Final = ("quantized::conv2d_add", "quantized::conv2d_add_relu")
_TRANSPOSED: Final = tuple(f"quantized::conv_transpose{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_dynamic"))


def _packed_convolution(signature: Signature, hints: Hints, schema: str) -> Work:
    """A packed weight does not show its stride and padding: the sizes come from the result.

    Windows of k positions over n touch n, or k for each of the results where the stride jumps over some.
    """
    args = Arguments(signature, schema)
    inputs, (weight, bias), added = args.tensor("self"), packed(args), args.optional("added")
    if hints.outputs is None:
        raise NotCounted("output shapes not known")
    (out,) = hints.outputs
    kernel, transposed = weight.shape[2:], "transpose" in signature.name
    taps = weight.shape[1] * prod(kernel)  # [out, in / groups, k...], transposed [in, out / groups, k...]
    read = distinct(inputs)
    if not transposed:
        covered = map(min, inputs.shape[-len(kernel) :], map(int.__mul__, out.shape[-len(kernel) :], kernel))
        read = min(read, prod(inputs.shape[: -len(kernel)]) * prod(covered))
    dynamic = signature.name.endswith("_dynamic")
    cost = (1 if dynamic else QUANTIZE) + (bias is not None) + signature.name.endswith("_relu")
    return Work(
        matrix_flops=2 * taps * (inputs.numel if transposed else out.numel),
        other_flops=out.numel * (cost + (DEQUANTIZE + 1) * (added is not None)) + inputs.numel * (QUANTIZE + 2) * dynamic,
        bytes_read=read * size_of(inputs.dtype) + size(weight, bias, added),
        bytes_written=written(out),
        precision="int8",
    )


for _name in (*_CONVOLUTION, *_CONVOLUTION_DYNAMIC, *_TRANSPOSED):
    hinted_formula(_name, category="convolution")(partial(_packed_convolution, schema="self packed"))
for _name in _CONVOLUTION_ADD:
    hinted_formula(_name, category="convolution")(partial(_packed_convolution, schema="self added packed"))


@formula("mkldnn_prepacked::conv2d_run", category="convolution")
def _prepacked_convolution(_: Signature) -> Work:
    raise NotCounted("packed weights not recorded")


@formula(*(f"sparse::qlinear{kind}" for kind in ("", "_relu", "_dynamic", "_relu_dynamic", "_prepack")), category="matmul")
def _sparse_linear(_: Signature) -> Work:
    raise NotCounted(SPARSE)


# The forms that are given plain tensors, and the number of outputs.
_WRAPPED: Final[dict[str, str]] = {
    "_quantized::wrapped_fbgemm_linear_fp16_weight": "self weight bias outputs",
    "_quantized::wrapped_quantized_linear": "self scale zero weight w_scale w_zero bias out_scale out_zero outputs",
    "_quantized::_wrapped_quantized_linear_prepacked": "self scale zero weight out_scale out_zero outputs",
}


@formula(*_WRAPPED, category="matmul")
def _wrapped_linear(signature: Signature) -> Work:
    """Floating point in and out, the product in int8 or with a weight of float16; scales and zero points are tensors of one element."""
    args = Arguments(signature, _WRAPPED[signature.name])
    inputs, outputs, bias = args.tensor("self"), args.integer("outputs"), args.optional("bias")
    others = signature.tensors[1:]
    if signature.name.endswith("fp16_weight"):
        return layer_work(inputs, outputs, *others, each=int(bias is not None))
    each = (bias is not None) + QUANTIZE + DEQUANTIZE
    return layer_work(inputs, outputs, *others, each=each, besides=inputs.numel * QUANTIZE, precision="int8")


# --- oneDNN's fused operators on 8-bit tensors -------------------------------------------------------------------------------------

_ONEDNN: Final = "self x_scale x_zero weight w_scale w_zero"
_OUT: Final = "out_scale out_zero out_dtype"
_POST: Final = "other_scale other_zero binary alpha unary unary_scalars unary_algorithm"


def _requantized(args: Arguments, bias: TensorArg | None, added: TensorArg | None, dtype: str) -> int:
    """FLOPs a result: the scale, or the way back to integers; bias, second operand, fused functions."""
    fused = activation_flops(args, "attr") + activation_flops(args, "unary")
    return (QUANTIZE if dtype in INTEGERS else 1) + (bias is not None) + (DEQUANTIZE + 1) * (added is not None) + fused


@formula("onednn::qlinear_pointwise", category="matmul")
def _onednn_linear(signature: Signature) -> Work:
    """[..., k] @ [k, n], the weight laid out transposed; with a second operand (18 arguments) or without."""
    binary = len(signature.args) > 13
    args = Arguments(signature, f"{_ONEDNN} added bias {_OUT} {_POST}" if binary else f"{_ONEDNN} bias {_OUT} attr scalars algorithm")
    inputs, weight, bias, added = args.tensor("self"), args.tensor("weight"), args.optional("bias"), args.optional("added")
    dtype = args.dtype("out_dtype", inputs.dtype)
    others = signature.tensors[1:]  # of scales and zero points, those that are tensors
    return layer_work(inputs, weight.shape[1], *others, each=_requantized(args, bias, added, dtype), dtype=dtype)


@formula(*(f"onednn::{name}" for name in words("qconv1d_pointwise qconv2d_pointwise qconv3d_pointwise qconv_pointwise")),
         category="convolution")  # fmt: skip
def _onednn_convolution(signature: Signature) -> Work:
    """With a second operand that the result is added to and written to (22 arguments) or without."""
    binary = len(signature.args) > 17
    window = "stride padding dilation groups"
    args = Arguments(
        signature,
        f"{_ONEDNN} added bias {window} {_OUT} {_POST}" if binary else f"{_ONEDNN} bias {window} {_OUT} attr scalars algorithm",
    )
    inputs, weight, bias, added = args.tensor("self"), args.tensor("weight"), args.optional("bias"), args.optional("added")
    conv = convolution_sizes(args, inputs, weight, transposed=False)
    dtype = added.dtype if added is not None else args.dtype("out_dtype", inputs.dtype)
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * _requantized(args, bias, added, dtype),
        bytes_read=conv.input_bytes(inputs) + size(*signature.tensors) - size(inputs),
        bytes_written=conv.outputs * size_of(dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


@formula("quantized::matmul", category="matmul")
def _quantized_matmul(signature: Signature) -> Work:
    args = Arguments(signature, "self other scale zero_point")
    left = args.tensor("self")
    work = product_work(left, args.tensor("other"))
    return work + Work(other_flops=QUANTIZE * work.bytes_written // size_of(left.dtype), precision="int8")
