"""torchao's own operators. Its layers call ``aten`` operators, and its affine quantization dispatches to them.

Order of arguments: torchao 0.18 (commit 36027d82d): the schemas in ``torchao/ops.py`` and the operators in
``torchao/prototype/blockwise_fp8_training/kernels.py``, some of which hand their products to ``aten::_scaled_mm_v2``, and
``torchao/quantization/quantize_/workflows/float8/kernels.py``.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import layer_work, product_flops, product_work
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import formula


@formula("torchao::mx_fp8_bf16", category="matmul")
def _block_scaled(signature: Signature) -> Work:
    """[m, k] @ [k, n] of fp8 with a scale for every 32 elements; bfloat16 results."""
    args = Arguments(signature, "left right left_scale right_scale")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, out_dtype="bfloat16", precision="fp8")


@formula("torchao::blockwise_scaled_mm", category="matmul", wraps=True)
def _blockwise(signature: Signature) -> Work:
    args = Arguments(signature, "left right left_scale recipe_left right_scale recipe_right out_dtype")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, each=1, out_dtype=args.dtype("out_dtype", "bfloat16"))


@formula("torchao::triton_fp8_gemm_1x128_128x128", "torchao::triton_fp8_gemm_1x128_128x1", "ao::blockwise_fp8_gemm", category="matmul")
def _blockwise_in_triton(signature: Signature) -> Work:
    """[.., m, k] with [k, n], or with [n, k] and bfloat16 results."""
    transposed = signature.name.startswith("ao::")
    order = "left left_scale right right_scale" if transposed else "left right left_scale right_scale block=128 out=None"
    args = Arguments(signature, order)
    left, right = args.tensor("left"), args.tensor("right")
    results = prod(left.shape[:-1]) * right.shape[0 if transposed else -1]
    return Work(
        matrix_flops=product_flops(1, 1, left.shape[-1], results),
        other_flops=results,
        bytes_read=size(left, right, args.tensor("left_scale"), args.tensor("right_scale")),
        bytes_written=results * (2 if transposed else size_of(args.dtype("out", "float32"))),
        precision=matrix_precision_of(left.dtype),
    )


@formula("torchao::int_matmul", category="matmul", wraps=True)
def _integers(signature: Signature) -> Work:
    """[m, k] @ [k, n] of int8, written as int32."""
    args = Arguments(signature, "left right")
    return product_work(args.tensor("left"), args.tensor("right"), out_dtype="int32")


@formula("torchao::int_scaled_matmul", category="matmul", wraps=True)
def _scaled_integers(signature: Signature) -> Work:
    """The same, with a scale for each row, in whose dtype the results are."""
    args = Arguments(signature, "left right scale")
    left, right, scale = args.tensor("left"), args.tensor("right"), args.tensor("scale")
    return product_work(left, right, scale, each=1, out_dtype=scale.dtype, precision="int8")


@formula("torchao::scaled_int8_mm", category="matmul")
def _integer(signature: Signature) -> Work:
    """[m, k] @ [k, n] of int8, scaled by rows and columns, in the dtype of the scales."""
    args = Arguments(signature, "left right left_scale right_scale")
    operands = [args.tensor(name) for name in ("left", "right", "left_scale", "right_scale")]
    return product_work(*operands, each=2, out_dtype=operands[2].dtype, precision="int8")


@formula("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", category="matmul")
def _sparse(signature: Signature) -> Work:
    """A weight of which two in four elements are stored, [n, k / 2]: the products with these are counted."""
    args = Arguments(signature, "input input_scale weight weight_meta weight_scale bias=None out_dtype=None")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    rows, outputs = prod(inputs.shape[:-1]), weight.shape[0]
    results = rows * outputs
    return Work(
        matrix_flops=product_flops(1, rows, weight.shape[1], outputs),
        other_flops=results * (2 + (bias is not None)),
        bytes_read=size(inputs, weight, bias, *(args.tensor(name) for name in ("input_scale", "weight_meta", "weight_scale"))),
        bytes_written=results * size_of(args.dtype("out_dtype", "bfloat16")),
        precision="fp8",
    )


@formula("torchao::float8_linear_cpu", category="matmul")
def _packed_linear(signature: Signature) -> Work:
    """The packed weight holds [n, k] in blocks."""
    args = Arguments(signature, "input input_scales weight weight_scales bias out_dtype")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    others = (weight, bias, args.tensor("input_scales"), args.tensor("weight_scales"))
    outputs, dtype = weight.numel // inputs.shape[-1], args.dtype("out_dtype", "bfloat16")
    return layer_work(inputs, outputs, *others, each=2 + (bias is not None), dtype=dtype)


@formula("torchao::da8w4_linear_cpu", category="matmul")
def _packed_integers(signature: Signature) -> Work:
    """[.., k] of 8-bit integers with a weight of 4-bit ones [n, k] in blocks, whose sums of columns are known."""
    args = Arguments(signature, "input input_scales input_zeros weight weight_scales weight_zeros compensation bias out_dtype")
    inputs, weight, bias = args.tensor("input"), args.tensor("weight"), args.optional("bias")
    small = ("input_scales", "input_zeros", "weight_scales", "weight_zeros", "compensation")
    others = (weight, bias, *(args.optional(name) for name in small))
    outputs, dtype = 2 * weight.numel // inputs.shape[-1], args.dtype("out_dtype", "bfloat16")
    return layer_work(inputs, outputs, *others, each=2 + (bias is not None), unpack=DEQUANTIZE, dtype=dtype)


@formula("torchao::_scaled_embedding_bag", category="copy")
def _bags(signature: Signature) -> Work:
    """Rows of 8 bits, widened and added up bag by bag."""
    args = Arguments(signature, "weight indices offsets scale o_scale mode include_last out_dtype")
    weight, indices, offsets = args.tensor("weight"), args.tensor("indices"), args.tensor("offsets")
    elements = indices.numel * weight.shape[-1]
    results = (offsets.numel - args.flag("include_last")) * weight.shape[-1]
    return Work(
        other_flops=elements * (DEQUANTIZE + 1),
        bytes_read=selected(weight, elements) + size(indices, offsets, args.tensor("scale")),
        bytes_written=results * size_of(args.dtype("out_dtype", "float32")),
        precision="fp32",
    )


@formula("torchao::to_sparse_semi_structured_cutlass_sm9x_f8", category="copy")
def _compress(signature: Signature) -> Work:
    """Half of the elements, and two bits for the place of each."""
    weight = Arguments(signature, "weight").tensor("weight")
    return Work(bytes_read=size(weight), bytes_written=written(weight) // 2 + weight.numel // 8)
