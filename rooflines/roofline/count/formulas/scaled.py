"""Products of narrow numbers as libraries for inference call them, with scales, a bias, and the weight as [k,
n] or [n, k]; and conversions to narrow numbers and back.

Numbers of 4 bits lie two in an element (uint8, ``float4_e2m1fn_x2``), or eight in one of int32.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.count.formulas.matmul import product_flops
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.count.formulas.rows import PACKED, parse

# How many numbers an element of a weight may hold, where the activations hold one. Bytes are mostly two
# numbers of 4 bits.
_NUMBERS = {"int32": (8,), "uint8": (2, 1), "int8": (2, 1), "float4_e2m1fn_x2": (2,)}


def operand_precision(left: TensorArg, right: TensorArg) -> str | None:
    """The precision of a product: that of the left operand, to which a narrower weight is widened."""
    if left.dtype in PACKED and right.dtype in PACKED:
        return "fp4"
    return matrix_precision_of(left.dtype)


def sizes(left: TensorArg, right: TensorArg, out: TensorArg | None = None) -> tuple[int, int, int, int]:
    """Batch, m, k and n of ``left`` [.., m, k] with ``right`` [k, n] or [n, k], or [b, n, k] with ``left``
    [b, m, k].

    A weight packed along k is [n, k / numbers] or [k / numbers, n]. k counts numbers: twice the elements if
    both operands are of 4 bits. Where several readings fit, n is that of the result ``out`` [.., n]; without
    one, the weight is packed, except of two operands of int8.
    """
    if len(right.shape) < 2 or not left.shape:
        raise NotCounted("shapes of the operands not recorded")
    inner, (rows, columns) = left.shape[-1], right.shape[-2:]
    packed = (1,) if left.dtype in PACKED else _NUMBERS.get(right.dtype, (1,))
    if left.dtype == right.dtype == "int8":
        packed = (1, 2)
    fitting = [
        n for numbers in packed for n, depth in ((columns, rows), (rows, columns)) if depth * numbers == inner
    ]
    if not fitting:
        raise NotCounted(f"inner dimensions {inner} and {columns} differ")
    n = out.shape[-1] if out is not None and out.shape and out.shape[-1] in fitting else fitting[0]
    batch = right.shape[0] if len(right.shape) == 3 else 1
    numbers = 2 if operand_precision(left, right) == "fp4" else 1
    return batch, prod(left.shape[:-1]) // batch, inner * numbers, n


def scaled_work(signature: Signature, schema: str) -> Work:
    """The work of a call; the schema is that of ``rows.py``, with the operands named ``left`` and ``right``.

    The result is the argument ``out``, else it has the dtype of the argument ``out_dtype``, else that of
    ``left``.
    """
    plain, fields = parse(schema)
    args = Arguments(signature, plain)
    left, right = args.operands("left", "right")
    out, bias = args.optionals("out", "bias")
    batch, m, k, n = sizes(left, right, out)
    results = batch * m * n
    others = [
        args.optional(field.name)
        for field in fields
        if field.verb == "read" and field.name not in ("left", "right")
    ]
    return Work(
        matrix_flops=product_flops(batch, m, k, n),
        other_flops=results
        * (any(other is not bias and other is not None for other in others) + (bias is not None)),
        bytes_read=size(left, right, *others),
        bytes_written=written(out) if out else results * size_of(_out_dtype(args, left)),
        precision=operand_precision(left, right),
    )


def _out_dtype(args: Arguments, left: TensorArg) -> str:
    default = left.dtype if precision_of(left.dtype) not in (None, "fp8", "fp4") else ""
    dtype = args.dtype("out_dtype", default)
    if not dtype:
        raise NotCounted("dtype of the result not recorded")
    return dtype
