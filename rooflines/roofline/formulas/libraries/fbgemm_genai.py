"""FBGEMM's GenAI operators: products of fp8, int8 and int4 numbers, grouped products, and quantization to fp8.

Order of arguments: FBGEMM 1.9 (commit 71d6f8b22): ``fbgemm_gpu/experimental/gen_ai/src/quantize/quantize.cpp``; MSLK
(meta-pytorch/MSLK: ``csrc/gemm/gemm_torch.cpp``) has the same operators in its namespace ``mslk``. A weight is [n, k]. How many tokens
each group of a grouped product has is data; together they are the rows of the input, which the stacked forms hold packed.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula, words

_RESULT: Final = 2  # bytes of a float16 or bfloat16 result

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = words(
    "f8f8bf16 f8f8bf16_rowwise f8f8f16_rowwise f8f8bf16_rowwise_batched f8f8bf16_rowwise_out f8f8bf16_rowwise_preshuffle"
    " f8f8f16_rowwise_preshuffle f8f8bf16_tensorwise f8f8bf16_blockwise f8f8bf16_groupwise f8f8bf16_cublas f8f8bf16_lite i8i8bf16"
    " i8i8bf16_dynamic fp8fp8bf16_fast_gemv"
)
_MIXED: Final = {  # the weight's elements a byte
    "bf16i4bf16_rowwise": 2, "bf16i4bf16_shuffled": 2, "f8i4bf16_rowwise": 2, "f8i4bf16_shuffled": 2, "bf16_fast_gemv": 1,
    "bf16fp8bf16_fast_gemv": 1,
}  # fmt: skip


@formula(*(f"fbgemm::{name}" for name in (*_SCALED, *_MIXED)), category="matmul")
def _scaled(signature: Signature) -> Work:
    """[..., m, k] @ [..., n, k]^T with scales; each result is scaled once, or each element of a narrow weight is widened."""
    args = Arguments(signature, "left right")
    left, right = args.tensor("left"), args.tensor("right")
    packing = _MIXED.get(signature.name.rpartition("::")[2], 0)
    inner, outputs = left.shape[-1], right.shape[-2]
    rows = prod(left.shape[:-1])
    small = [one for one in signature.args[2:] if isinstance(one, TensorArg)]
    results = rows * outputs
    if signature.name.endswith("_out"):
        small.pop()  # the result
    widened = DEQUANTIZE * right.numel * packing if packing and right.dtype != left.dtype else 0
    return Work(
        matrix_flops=product_flops(1, rows, inner, outputs),
        other_flops=widened or results * bool(small),
        bytes_read=size(left, right, *small),
        bytes_written=results * _RESULT,
        precision=matrix_precision_of(left.dtype),
    )


@formula("fbgemm::bf16bf16bf16_grouped_stacked", "fbgemm::bf16bf16bf16_grouped_grad", "fbgemm::f8f8bf16_rowwise_grouped_stacked",
         "fbgemm::f8f8bf16_groupwise_grouped", category="matmul")  # fmt: skip
def _stacked(signature: Signature) -> Work:
    """[tokens, k] of all groups with [groups, n, k]; no more weights are read than groups have a token."""
    tensors = signature.tensors
    if len(tensors) < 3 or len(tensors[1].shape) != 3:
        raise NotCounted("shapes not recorded")
    left, right, *small = tensors
    if not left.dtype.startswith("float8"):
        small = small[:1]  # the sizes; a result may follow
    rows, (groups, outputs, inner) = left.numel // max(left.shape[-1], 1), right.shape
    if left.shape[-1] != inner:  # the gradient of the input: [tokens, n] @ [groups, n, k]
        outputs, inner = inner, outputs
    touched = min(groups, rows)
    return Work(
        matrix_flops=product_flops(1, rows, inner, outputs),
        other_flops=rows * outputs if len(small) > 1 and left.dtype.startswith("float8") else 0,
        bytes_read=size(left, *small) + touched * outputs * inner * right.itemsize,
        bytes_written=rows * outputs * _RESULT,
        precision=matrix_precision_of(left.dtype),
        assumption="every group has a token" if groups > 1 else "",
    )


@formula("fbgemm::bf16bf16bf16_grouped_wgrad", category="matmul")
def _weight_gradient(signature: Signature) -> Work:
    """[tokens, n] of each group with its [tokens, k]: a gradient [n, k] for each group."""
    args = Arguments(signature, "left right sizes")
    left, right, sizes = args.tensor("left"), args.tensor("right"), args.tensor("sizes")
    return Work(
        matrix_flops=product_flops(1, left.shape[-1], left.shape[0], right.shape[-1]),
        bytes_read=size(left, right, sizes),
        bytes_written=sizes.numel * left.shape[-1] * right.shape[-1] * left.itemsize,
        precision=matrix_precision_of(left.dtype),
    )


@formula("fbgemm::bf16bf16bf16_grouped", "fbgemm::bf16bf16bf16_grouped_cat", category="matmul")
def _listed(signature: Signature) -> Work:
    """A list of inputs with a list of weights, in bfloat16, which traces do not record of lists."""
    args = Arguments(signature, "left right")
    lefts, rights = args.tensors("left"), args.tensors("right")
    if not lefts or len(lefts) != len(rights):
        raise NotCounted("tensors of the list not recorded")
    pairs = list(zip(lefts, rights, strict=True))
    results = sum(prod(left.shape[:-1]) * right.shape[0] for left, right in pairs)
    return Work(
        matrix_flops=sum(product_flops(1, prod(left.shape[:-1]), left.shape[-1], right.shape[0]) for left, right in pairs),
        bytes_read=_RESULT * sum(left.numel + right.numel for left, right in pairs),
        bytes_written=_RESULT * results,
        precision="bf16",
    )


# --- quantization ------------------------------------------------------------------------------------------------------------------


@formula("fbgemm::quantize_fp8_per_row", "fbgemm::quantize_fp8_per_tensor", "fbgemm::quantize_fp8_per_col", category="element-wise")
def _quantize(signature: Signature) -> Work:
    """The largest magnitude of each row, of each column or of all, and a byte an element."""
    inputs = Arguments(signature, "self").tensor("self")
    kind = signature.name.rpartition("_")[2]
    scales = {"row": prod(inputs.shape[:-1]), "col": inputs.shape[-1], "tensor": 1}[kind]
    return Work(
        other_flops=inputs.numel * (QUANTIZE + 2),
        bytes_read=size(inputs),
        bytes_written=inputs.numel + 4 * scales,
        precision=precision_of(inputs.dtype),
    )


@formula("fbgemm::quantize_fp8_per_tensor_fixed_scale", "fbgemm::per_tensor_quantize_i8", category="element-wise")
def _quantize_by(signature: Signature) -> Work:
    inputs = Arguments(signature, "self").tensor("self")
    return Work(0, inputs.numel * QUANTIZE, size(inputs), inputs.numel, precision_of(inputs.dtype))
