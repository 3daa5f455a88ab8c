"""Operators on quantized tensors, and those that make them; their products are in ``low_precision.py``.

An operator is counted as it is defined: take the numbers out (``DEQUANTIZE``), compute, put them back
(``QUANTIZE``).
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, broadcast, size, size_of
from rooflines.roofline.count.formulas.costs import (
    DEQUANTIZE,
    QUANTIZE,
)
from rooflines.roofline.count.formulas.record import Work

# --- element-wise on quantized tensors --------------------------------------------------------------------


def pair(signature: Signature) -> Work:
    """Two tensors, or one and a number, which may come first; the tensor to write to may come last."""
    out = signature.name.endswith("_out") or (
        len(signature.args) == 3 and isinstance(signature.args[2], TensorArg)
    )
    operands = [
        tensor
        for tensor in (signature.tensors[:-1] if out else signature.tensors)
        if tensor.shape or tensor.dtype.startswith("q")
    ]
    if not operands:
        raise NotCounted("shapes not recorded")
    results = prod(broadcast(tensor.shape for tensor in operands))
    dtype = operands[0].dtype
    if signature.name.startswith("onednn::"):
        dtype = Arguments(
            signature, "self scale zero other other_scale other_zero out_scale out_zero dtype"
        ).dtype("dtype", dtype)
    cost = DEQUANTIZE * len(operands) + 1 + ("relu" in signature.name) + QUANTIZE
    return Work(
        other_flops=cost * results, bytes_read=size(*operands), bytes_written=results * size_of(dtype)
    )
