"""Products of numbers narrower than 16 bits: int8, fp8 and int4, and the linear layers and convolutions of
quantized networks.

The arithmetic of a product of 8-bit integers is int8. Where only the weight is narrow it is widened before it
is multiplied, so the precision is that of the activations. A result costs one multiplication by its scale, or
``QUANTIZE`` where it becomes an integer again.

The weights of ``quantized::linear`` and ``quantized::conv2d`` are packed objects: a recording opens them, a
trace leaves them out. torchao's layers call ``aten::_int_mm``, ``aten::_weight_int4pack_mm`` and
``aten::_scaled_mm``.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    NotCounted,
    distinct,
    known,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.convolution import sizes as convolution_sizes
from rooflines.roofline.count.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.count.formulas.matmul import activation_flops, layer_work
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import named

# --- products of 8-bit numbers ----------------------------------------------------------------------------


@named
def plainly_contracted(dims: Argument) -> bool:
    """True; raises NotCounted where a product sums over other dimensions than the last of the left operand,
    the first of the right."""
    if dims not in ((), (-1, -2), (1, 0), (-1, 0), (1, -2)):
        raise NotCounted("product over dimensions other than the last and the first")
    return True


# --- packed weights ---------------------------------------------------------------------------------------


def opened(signature: Signature) -> Signature:
    """The call with weight and bias in the place of each packed object, as a recording has them."""
    args: list[Argument] = []
    objects = [
        arg for arg in signature.args if isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg)
    ]
    if not objects:
        raise NotCounted("packed weights not recorded in traces")
    for arg in signature.args:
        args += (*arg, None)[:2] if arg in objects else (arg,)
    return Signature(signature.name, tuple(args))


def packed_convolution(signature: Signature, hints: Hints, schema: str) -> Work:
    """A packed weight does not show its stride and padding: the sizes come from the result.

    Windows of k positions over n touch n, or k for each of the results where the stride jumps over some.
    """
    args = Arguments(opened(signature), schema)
    inputs, weight = args.operands("self", "weight")
    bias, added = args.optionals("bias", "added")
    (out,) = known(hints.outputs, "output shapes not known")
    kernel = weight.shape[2:]
    transposed = "transpose" in signature.name
    taps = weight.shape[1] * prod(kernel)  # [out, in / groups, k...], transposed [in, out / groups, k...]
    read = distinct(inputs)
    if not transposed:
        covered = map(min, inputs.shape[-len(kernel) :], map(int.__mul__, out.shape[-len(kernel) :], kernel))
        read = min(read, prod(inputs.shape[: -len(kernel)]) * prod(covered))
    dynamic = signature.name.endswith("_dynamic")
    cost = (1 if dynamic else QUANTIZE) + (bias is not None) + signature.name.endswith("_relu")
    return Work(
        matrix_flops=2 * taps * (inputs.numel if transposed else out.numel),
        other_flops=out.numel * (cost + (DEQUANTIZE + 1) * (added is not None))
        + inputs.numel * (QUANTIZE + 2) * dynamic,
        bytes_read=read * size_of(inputs.dtype) + size(weight, bias, added),
        bytes_written=written(out),
        precision="int8",
    )


# --- oneDNN's fused operators on 8-bit tensors ------------------------------------------------------------

_OUT = "out_scale out_zero out_dtype"
_POST = "other_scale other_zero binary alpha unary unary_scalars unary_algorithm"


def _onednn(signature: Signature, window: str = "") -> tuple[Arguments, int]:
    """The arguments, with a second operand that the result is added to, or without; and FLOPs a result: the
    scale, or the way back to integers; bias, second operand, fused functions."""
    binary = len(signature.args) > 13 + len(window.split())
    added, after = ("added ", _POST) if binary else ("", "attr scalars algorithm")
    args = Arguments(
        signature, f"self x_scale x_zero weight w_scale w_zero {added}bias {window} {_OUT} {after}"
    )
    second = args.optional("added")
    dtype = (
        second.dtype if second is not None and window else args.dtype("out_dtype", args.tensor("self").dtype)
    )
    fused = activation_flops(args, "attr", "unary")
    each = QUANTIZE if matrix_precision_of(dtype) == "int8" else 1
    return args, each + (args.optional("bias") is not None) + (DEQUANTIZE + 1) * (second is not None) + fused


def onednn_linear(signature: Signature) -> Work:
    """[..., k] @ [k, n], the weight laid out transposed."""
    args, each = _onednn(signature)
    inputs = args.tensor("self")
    outputs = args.tensor("weight").shape[1]
    others = signature.tensors[1:]  # of scales and zero points, those that are tensors
    return layer_work(inputs, outputs, *others, each=each, dtype=args.dtype("out_dtype", inputs.dtype))


def onednn_convolution(signature: Signature) -> Work:
    """The result is written to the second operand, where there is one."""
    args, each = _onednn(signature, "stride padding dilation groups")
    inputs = args.tensor("self")
    added = args.optional("added")
    conv = convolution_sizes(args, inputs, args.tensor("weight"), transposed=False)
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * each,
        bytes_read=conv.input_bytes(inputs) + size(*signature.tensors) - size(inputs),
        bytes_written=conv.outputs
        * size_of(added.dtype if added is not None else args.dtype("out_dtype", inputs.dtype)),
        precision=matrix_precision_of(inputs.dtype),
    )
