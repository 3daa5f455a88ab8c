"""xformers' operators apart from attention: SwiGLU, matrices of which two in four elements are kept, rows by index.

Order of arguments: facebookresearch/xformers 8de65ecb~1 (xformers/csrc/swiglu/swiglu_op.cpp, removed since) and ca6d2aa
(xformers/csrc/sparse24, xformers/ops/indexing.py). A pair of bits says where each kept element was, and one bit an element is a mask.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.costs import SILU
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import product, product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula

# --- SwiGLU ------------------------------------------------------------------------------------------------------------------------


@formula("xformers::dual_gemm_silu_identity_mul", category="matmul")
def _gated(signature: Signature) -> Work:
    """[rows, k] with two weights [n, k]; the two results, and the one times the activation of the other."""
    args = Arguments(signature, "input gate gate_bias up up_bias")
    inputs, gate, up = args.tensor("input"), args.tensor("gate"), args.tensor("up")
    biases = [bias for bias in (args.optional("gate_bias"), args.optional("up_bias")) if bias is not None]
    results = inputs.shape[0] * gate.shape[0]
    return Work(
        matrix_flops=2 * product_flops(1, inputs.shape[0], inputs.shape[1], gate.shape[0]),
        other_flops=results * (SILU + 1 + len(biases)),
        bytes_read=size(inputs, gate, up, *biases),
        bytes_written=3 * results * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


# The gradients of both results, and their product again.
_GATED_BACKWARD: Final = Pass("read gate, read up, read grad", SILU + 7, per="gate", result="gate gate gate")
register({"xformers::silu_bw_fused": _GATED_BACKWARD}, "element-wise")


@formula("xformers::gemm_fused_operand_sum", category="matmul")
def _product_and_sum(signature: Signature) -> Work:
    """[m, k] @ [k, n], and the sum of each row of the first: a gradient of a weight and of a bias."""
    args = Arguments(signature, "left right")
    left, right = args.tensor("left"), args.tensor("right")
    flops, (rows, columns) = product(left, right)
    return Work(flops, left.numel, size(left, right), rows * (columns + 1) * size_of(left.dtype), matrix_precision_of(left.dtype))


# --- two of four elements ----------------------------------------------------------------------------------------------------------


@formula("xformers::sparse24_sparsify_both_ways", "xformers::sparse24_apply", category="copy")
def _sparsify(signature: Signature) -> Work:
    """Half of the elements and their places, of the matrix and of its transpose; the mask is an argument, or made and returned."""
    args = Arguments(signature, "input mask=None")
    inputs, mask = args.tensor("input"), args.optional("mask")
    return Work(
        other_flops=inputs.numel if mask is None else 0,
        bytes_read=size(inputs, mask),
        bytes_written=written(inputs) + 2 * inputs.numel // 8 + (inputs.numel // 8 if mask is None else 0),
        precision=precision_of(inputs.dtype) if mask is None else None,
    )


# Zeros in place of the other elements.
_MASKED: Final = Pass("read input, read mask?", 1, result="input")
register({"xformers::sparse24_apply_dense_output": _MASKED, "xformers::sparseNM_dense": _MASKED}, "element-wise")


@formula("xformers::_sparse24_sm90_cutlass_compress", category="copy")
def _compress(signature: Signature) -> Work:
    inputs = Arguments(signature, "input").tensor("input")
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // 2 + inputs.numel // 8)


_PRODUCTS: Final = {
    "xformers::_sparse24_gemm": "packed dense meta",
    "xformers::_sparse24_fp8_sm90_cutlass_gemm": "packed meta dense row_scale=None column_scale=None",
}


@formula(*_PRODUCTS, category="matmul")
def _sparse_product(signature: Signature) -> Work:
    """[m, k / 2] packed, with [k, n]: the products with the kept elements."""
    args = Arguments(signature, _PRODUCTS[signature.name])
    packed, dense = args.tensor("packed"), args.tensor("dense")
    if len(dense.shape) != 2 or 2 * packed.shape[-1] != dense.shape[0]:
        raise NotCounted("shapes of the operands not understood")
    scales = [scale for scale in (args.optional("row_scale"), args.optional("column_scale")) if scale is not None]
    results = packed.shape[0] * dense.shape[1]
    return Work(
        matrix_flops=product_flops(1, packed.shape[0], packed.shape[1], dense.shape[1]),
        other_flops=results * bool(scales),
        bytes_read=size(packed, dense, args.tensor("meta"), *scales),
        bytes_written=results * max(size_of(packed.dtype), 2),
        precision=matrix_precision_of(packed.dtype),
    )


# --- rows by index -----------------------------------------------------------------------------------------------------------------


@formula("_ScaledIndexAdd", "_ScaledIndexAddBackward", category="copy")
def _scaled_add(signature: Signature) -> Work:
    """Rows [rows, m, k], times a scale [k] and a number, added to those of a tensor; backward, the gradients of rows and scale."""
    back = signature.name.endswith("Backward")
    gradients, call = parts(signature) if back else ((), signature)
    args = Arguments(call, "target index source scale=None alpha=1.0")
    index, source, scale = args.tensor("index"), args.tensor("source"), args.optional("scale")
    rows = source.numel * size_of(args.tensor("target").dtype)
    scaled = scale is not None
    if back:
        return Work(
            other_flops=source.numel * (1 + 3 * scaled),
            bytes_read=selected(gradients[0], source.numel) + size(index, scale) + size(source) * scaled,
            bytes_written=written(source) + (source.numel * size_of(scale.dtype) if scale is not None else 0),
            precision=precision_of(source.dtype),
        )
    return Work(0, source.numel * (2 + scaled), size(index, source, scale) + rows, rows, precision_of(source.dtype))


@formula("_IndexSelectCat", "_IndexSelectCatBackward", category="copy")
def _select(signature: Signature) -> Work:
    """Rows of several matrices one after the other; backward, those rows among zeros."""
    back = signature.name.endswith("Backward")
    tensors = (parts(signature)[1] if back else signature).tensors
    half = len(tensors) // 2
    if not half or len(tensors) % 2:
        raise NotCounted("tensors not recorded")
    sources, indices = tensors[:half], tensors[half:]
    pairs = [(source, index.numel * source.shape[-1]) for source, index in zip(sources, indices, strict=True)]
    rows = sum(elements * size_of(source.dtype) for source, elements in pairs)
    read = rows if back else sum(selected(source, elements) for source, elements in pairs)
    return Work(bytes_read=read + size(*indices), bytes_written=written(*sources) if back else rows)
