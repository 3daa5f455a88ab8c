"""xformers' operators apart from attention: SwiGLU, matrices of which two in four elements are kept, rows by index.

A pair of bits says where each kept element was, and one bit an element is a mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import NotCounted, selected, size, size_of, written
from rooflines.roofline.formulas.costs import SILU
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

_PRODUCTS: Final[dict[str, Row]] = {
    # [rows, k] with two weights [n, k]; the two results, and the one times the activation of the other.
    "xformers::dual_gemm_silu_identity_mul": Row(
        "read input[rows k], read gate[n =k], read gate_bias?, read up, read up_bias?",
        matrix="2 * 2 * rows * k * n",
        other="rows * n * (SILU + 1 + len(gate_bias) + len(up_bias))",
        writes="3 * rows * n * input.item",
    ),
    # [m, k] @ [k, n], and the sum of each row of the first: a gradient of a weight and of a bias.
    "xformers::gemm_fused_operand_sum": Row(
        "read left[m k], read right[=k n]", 1, "left", matrix="2 * m * k * n", writes="m * (n + 1) * left.item"
    ),
}
register(_PRODUCTS, "matmul")
_ELEMENTS: Final[dict[str, Row]] = {
    # The gradients of both results, and their product again.
    "xformers::silu_bw_fused": Row("read gate, read up, read grad", SILU + 7, "gate", result="gate gate gate"),
    # Zeros in place of the other elements.
    "xformers::sparse24_apply_dense_output xformers::sparseNM_dense": Row("read input, read mask?", 1, result="input"),
}
register(_ELEMENTS, "element-wise")
_COPIES: Final[dict[str, Row]] = {
    # Half of the elements and their places, of the matrix and of its transpose; the mask is made and returned, or is an argument.
    "xformers::sparse24_sparsify_both_ways": Row("read input", 1, result="input", writes="2 * input.n // 8 + input.n // 8"),
    "xformers::sparse24_apply": Row("read input, read mask", result="input", writes="2 * input.n // 8"),
    "xformers::_sparse24_sm90_cutlass_compress": Row("read input", writes="input.n * input.item // 2 + input.n // 8"),
}
register(_COPIES, "copy")

# --- two of four elements ----------------------------------------------------------------------------------------------------------

# [m, k / 2] packed, with [k, n]: the products with the kept elements.
_SPARSE: Final = Row(
    "read packed[m half], read dense[k n], read meta", matrix="2 * m * half * n", writes="m * n * max(packed.item, 2)",
    fits="2 * half == k",
)  # fmt: skip
_SPARSE_PRODUCTS: Final[dict[str, Row]] = {
    "xformers::_sparse24_gemm": _SPARSE,
    "xformers::_sparse24_fp8_sm90_cutlass_gemm": replace(
        _SPARSE,
        schema="read packed[m half], read meta, read dense[k n], read row_scale?, read column_scale?",
        other="m * n * bool(row_scale or column_scale)",
    ),
}
register(_SPARSE_PRODUCTS, "matmul")

# --- rows by index -----------------------------------------------------------------------------------------------------------------

_ROWS: Final = "read index[rows], read source[=rows =m =k], read scale[=k]?"
_ADDITIONS: Final[dict[str, Row]] = {
    # Rows [rows, m, k], times a scale [k] and a number, added to those of a tensor.
    "_ScaledIndexAdd": Row(
        f"read target[targets m k], {_ROWS}",
        other="source.n * (2 + len(scale))",
        reads="source.n * target.item + index.size + source.size + scale.size",
        writes="source.n * target.item",
        precision="source",
    ),
    # The gradients of rows and scale.
    "_ScaledIndexAddBackward": Row(
        f"read grad, read target[targets m k], {_ROWS}",
        other="source.n * (1 + 3 * len(scale))",
        result="source",
        reads="selected(grad, source.n) + index.size + scale.size + source.size * len(scale)",
        writes="source.n * scale.item",
        precision="source",
    ),
}
register(_ADDITIONS, "copy", functions=True)


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
