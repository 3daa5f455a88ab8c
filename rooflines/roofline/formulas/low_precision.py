"""Products of numbers narrower than 16 bits: int8, fp8 and int4, and the linear layers and convolutions of quantized networks.

The arithmetic of a product of 8-bit integers is int8. Where only the weight is narrow it is widened before it is multiplied, so the
precision is that of the activations. A result costs one multiplication by its scale, or ``QUANTIZE`` where it becomes an integer again.

The weights of ``quantized::linear`` and ``quantized::conv2d`` are packed objects: a recording opens them, a trace leaves them out.
torchao's layers call ``aten::_int_mm``, ``aten::_weight_int4pack_mm`` and ``aten::_scaled_mm``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, distinct, size, size_of, written
from rooflines.roofline.formulas.convolution import sizes as convolution_sizes
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE, TANH
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.matmul import SPARSE, activation_flops, layer_work
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula, uncounted, words
from rooflines.roofline.formulas.rows import Row, named, register

INTEGERS: Final = frozenset({"int8", "uint8", "qint8", "quint8"})


# --- products of 8-bit numbers -----------------------------------------------------------------------------------------------------


@named
def plainly_contracted(dims: Argument) -> bool:
    """True; raises NotCounted where a product sums over other dimensions than the last of the left operand, the first of the right."""
    if dims not in ((), (-1, -2), (1, 0), (-1, 0), (1, -2)):
        raise NotCounted("product over dimensions other than the last and the first")
    return True


# Results are scaled by one tensor for each operand, or a list of them, and have an optional bias and a second scale.
_SCALES: Final = "read self, read other, read scale_a*, read scale_b*"
_SCALE_LISTS: Final = "read self, read other, read scale_a*, recipe_a, swizzle_a, read scale_b*, recipe_b, swizzle_b"
_RESULT: Final = "read bias?, read scale_result?, out_dtype=None"
_SCALED: Final = Row(
    f"{_SCALES}, {_RESULT}", where="made = results_of(self, other)", matrix="multiply_adds(self, other)",
    other="made * (1 + bool(bias) + bool(scale_result))", writes="made * item('out_dtype', self.dtype)",
)  # fmt: skip
# one product for each group; the result is bfloat16 where no dtype is given
_GROUPED: Final = Row(
    f"{_SCALES}, read offs?, {_RESULT}", matrix="grouped_flops(self, other, offs)",
    other="made * (1 + bool(bias) + bool(scale_result))", writes="made * item('out_dtype', 'bfloat16')",
    where="made = grouped_results(self, other, offs); routed = self.rank == 2 and other.rank == 3",
    also="share(other[0], self[0], other) - other.size if routed else 0", assumption=SPREAD, given="routed and other[0] > 1",
)  # fmt: skip
_SCALED_PRODUCTS: Final[dict[str, Row]] = {
    "_scaled_mm": _SCALED,
    "_scaled_mm_v2": replace(
        _SCALED, schema=f"{_SCALE_LISTS}, read bias?, out_dtype, contraction_dim=()", other="made * (1 + bool(bias))",
        fits="plainly_contracted(known('contraction_dim'))",
    ),
    "_scaled_grouped_mm": _GROUPED,
    "_scaled_grouped_mm_v2": replace(
        _GROUPED, schema=f"{_SCALE_LISTS}, read offs?, read bias?, out_dtype=None", other="made * (1 + bool(bias))"
    ),
}  # fmt: skip
register(_SCALED_PRODUCTS, "matmul", namespace="aten::")

# --- products with a narrow weight -------------------------------------------------------------------------------------------------


def product_row(schema: str, item: str, each: str = "", besides: str = "", n: str = "n", precision: str = "") -> Row:
    """The row of a product whose schema binds m rows of k numbers and perhaps ``n``: ``each`` FLOPs a result, which has ``item`` bytes,
    and what is done ``besides``."""
    other = f"m * ({n}) * ({each or 0}) + {besides or 0}" if each or besides else ""
    return Row(schema, matrix=f"2 * m * k * ({n})", other=other, writes=f"m * ({n}) * {item}", precision=precision)


_NARROW: Final[dict[str, Row]] = {
    # [m, k] @ [k, n] of int8, written as int32
    "aten::_int_mm": product_row("read self[m k], read other[k n]", "4"),
    # [m, k] @ [n, k]^T of int8, a scale for each of the n
    "aten::_weight_int8pack_mm": product_row("read self[*m k], read other[n k], read scales", "self.item", each="1"),
    # [m, k] @ [n, k]^T of 4-bit integers, packed two to a byte; a scale and a zero for each group of a row, [k / group, n, 2]
    "aten::_weight_int4pack_mm aten::_weight_int4pack_mm_for_cpu quantized::int4mm_packed_weight_cpu": product_row(
        "read self[*m k], read other, group, read scales_and_zeros[groups n two]", "self.item", besides="DEQUANTIZE * k * n"
    ),
    "aten::_weight_int4pack_mm_with_scales_and_zeros": product_row(
        "read self[*m k], read other, group, read scales, read zeros", "self.item", besides="DEQUANTIZE * k * other[0]", n="other[0]"
    ),
    # The activations become int8, after a search for their range. The packed weight [k, n] holds its scales and bias.
    "aten::_dyn_quant_matmul_4bit": product_row(
        "read self[*m k], read packed_weight, block_size, in_features, n", "self.item", each="2", besides="self.n * (2 + QUANTIZE)",
        precision="=int8",
    ),
    # 16-bit activations with an 8- or 4-bit weight; a scale for each of the n outputs
    "aten::_mixed_dtypes_linear": product_row(
        "read self[*m k], read weight, read scale, read bias?, activation=None", "self.item",
        each="1 + bool(bias) + activation_cost(value('activation'))", n="scale[0]",
    ),
}  # fmt: skip
register(_NARROW, "matmul")


# --- packed weights ----------------------------------------------------------------------------------------------------------------


def opened(signature: Signature) -> Signature:
    """The call with weight and bias in the place of each packed object, as a recording has them."""
    args: list[Argument] = []
    objects = [arg for arg in signature.args if isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg)]
    if not objects:
        raise NotCounted("packed weights not recorded in traces")
    for arg in signature.args:
        args += (*arg, None)[:2] if arg in objects else (arg,)
    return Signature(signature.name, tuple(args))


def _linear(schema: str, each: int, besides: str = "", precision: str = "=int8") -> Row:
    """[..., k] @ [n, k]^T with a bias and ``each`` more FLOPs a result."""
    return product_row(schema, "self.item", f"bool(bias) + {each}", besides, precision=precision)


_PACKED: Final = "read self[*m k], read weight[n k], read bias?"
_PACKED_HALF: Final = "read self[*m k], view weight[n k], read bias?"
_RANGE: Final = f"self.n * {QUANTIZE + 2}"


def _half_weight(each: int) -> Row:
    """The packed weight is float16, widened before it is multiplied."""
    return replace(_linear(_PACKED_HALF, each, precision="self"), reads="self.size + 2 * weight.n + bias.size")


_GIVEN_RANGE: Final = "read self[*m k], scale, zero_point, read weight[n k], read bias?"
_LINEAR: Final[dict[str, Row]] = {
    # 8-bit integers in and out
    "quantized::linear _quantized::linear": _linear(_PACKED, QUANTIZE),
    "quantized::linear_relu": _linear(_PACKED, QUANTIZE + 1),
    "quantized::linear_leaky_relu": _linear(_PACKED, QUANTIZE + 2),
    "quantized::linear_tanh": _linear(_PACKED, QUANTIZE + TANH),
    # Floating point in and out: the input becomes int8, unless its scale is given after a search for its range; int8 product.
    "quantized::linear_dynamic _quantized::linear_dynamic": _linear(_PACKED, 1, _RANGE),
    "quantized::linear_relu_dynamic": _linear(_PACKED, 2, _RANGE),
    "quantized::linear_with_input_q_dq_qweight_dq_output_fp32": _linear(_GIVEN_RANGE, 1, f"self.n * {QUANTIZE}"),
    "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32": _linear(_GIVEN_RANGE, 2, f"self.n * {QUANTIZE}"),
    "quantized::linear_dynamic_fp16": _half_weight(0),
    "quantized::linear_relu_dynamic_fp16": _half_weight(1),
}
register(_LINEAR, "matmul", given=opened)

# The forms that are given plain tensors: scales and zero points are of one element, the product in int8 or with a weight of float16.
_TO_INT8: Final = f"self.n * {QUANTIZE}"
_UNPACKED: Final[dict[str, Row]] = {
    "quantized::linear_dynamic_fp16_unpacked_weight": _linear(_PACKED, 0, precision="self"),
    # a weight that is laid out [k, n]
    "onednn::linear_dynamic_fp16": _linear("read self[*m k], read weight[k n], read bias?", 0, precision="self"),
    "onednn::linear_relu_dynamic_fp16": _linear("read self[*m k], read weight[k n], read bias?", 1, precision="self"),
    "_quantized::wrapped_fbgemm_linear_fp16_weight": _linear("read self[*m k], read weight, read bias?, n", 0, precision="self"),
    "_quantized::wrapped_quantized_linear": _linear(
        "read self[*m k], read scale?, read zero?, read weight, read w_scale?, read w_zero?, read bias?, read out_scale?,"
        " read out_zero?, n",
        QUANTIZE + DEQUANTIZE, _TO_INT8,
    ),
    "_quantized::_wrapped_quantized_linear_prepacked": product_row(
        "read self[*m k], read scale?, read zero?, read weight?, read out_scale?, read out_zero?, n",
        "self.item", each=f"{QUANTIZE + DEQUANTIZE}", besides=_TO_INT8, precision="=int8",
    ),
}  # fmt: skip
register(_UNPACKED, "matmul")


def _packed_convolution(signature: Signature, hints: Hints, schema: str) -> Work:
    """A packed weight does not show its stride and padding: the sizes come from the result.

    Windows of k positions over n touch n, or k for each of the results where the stride jumps over some.
    """
    args = Arguments(opened(signature), schema)
    inputs, weight, bias, added = args.tensor("self"), args.tensor("weight"), args.optional("bias"), args.optional("added")
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


for _name in (
    *(f"quantized::conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_relu", "_dynamic")),
    *(f"_quantized::conv{n}d{kind}" for n in (2, 3) for kind in ("", "_relu")),
    *(f"quantized::conv_transpose{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_dynamic")),
    "_quantized::conv_transpose1d", "_quantized::conv_transpose2d", "quantized::conv2d_add", "quantized::conv2d_add_relu",
):  # fmt: skip
    _operands = "self added weight bias" if "_add" in _name else "self weight bias"
    hinted_formula(_name, category="convolution")(partial(_packed_convolution, schema=_operands))


uncounted("mkldnn_prepacked::conv2d_run", category="convolution", reason="packed weights not recorded")
uncounted(*(f"sparse::qlinear{kind}" for kind in ("", "_relu", "_dynamic", "_relu_dynamic", "_prepack")), category="matmul",
          reason=SPARSE)  # fmt: skip


# --- oneDNN's fused operators on 8-bit tensors -------------------------------------------------------------------------------------

_OUT: Final = "out_scale out_zero out_dtype"
_POST: Final = "other_scale other_zero binary alpha unary unary_scalars unary_algorithm"


def _onednn(signature: Signature, window: str = "") -> tuple[Arguments, int]:
    """The arguments, with a second operand that the result is added to, or without; and FLOPs a result: the scale, or the way back to
    integers; bias, second operand, fused functions."""
    binary = len(signature.args) > 13 + len(window.split())
    added, after = ("added ", _POST) if binary else ("", "attr scalars algorithm")
    args = Arguments(signature, f"self x_scale x_zero weight w_scale w_zero {added}bias {window} {_OUT} {after}")
    second = args.optional("added")
    dtype = second.dtype if second is not None and window else args.dtype("out_dtype", args.tensor("self").dtype)
    fused = activation_flops(args, "attr") + activation_flops(args, "unary")
    each = QUANTIZE if dtype in INTEGERS else 1
    return args, each + (args.optional("bias") is not None) + (DEQUANTIZE + 1) * (second is not None) + fused


@formula("onednn::qlinear_pointwise", category="matmul")
def _onednn_linear(signature: Signature) -> Work:
    """[..., k] @ [k, n], the weight laid out transposed."""
    args, each = _onednn(signature)
    inputs, outputs = args.tensor("self"), args.tensor("weight").shape[1]
    others = signature.tensors[1:]  # of scales and zero points, those that are tensors
    return layer_work(inputs, outputs, *others, each=each, dtype=args.dtype("out_dtype", inputs.dtype))


@formula(*(f"onednn::{name}" for name in words("qconv1d_pointwise qconv2d_pointwise qconv3d_pointwise qconv_pointwise")),
         category="convolution")  # fmt: skip
def _onednn_convolution(signature: Signature) -> Work:
    """The result is written to the second operand, where there is one."""
    args, each = _onednn(signature, "stride padding dilation groups")
    inputs, added = args.tensor("self"), args.optional("added")
    conv = convolution_sizes(args, inputs, args.tensor("weight"), transposed=False)
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * each,
        bytes_read=conv.input_bytes(inputs) + size(*signature.tensors) - size(inputs),
        bytes_written=conv.outputs * size_of(added.dtype if added is not None else args.dtype("out_dtype", inputs.dtype)),
        precision=matrix_precision_of(inputs.dtype),
    )


register({
    "quantized::matmul": Row(
        "read self, read other", where="made = results_of(self, other)", matrix="multiply_adds(self, other)", other="QUANTIZE * made",
        writes="made * self.item", precision="=int8",
    ),
}, "matmul")  # fmt: skip
