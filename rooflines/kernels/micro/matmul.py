"""Matrix multiplication by the library that torch uses on a device: oneDNN or BLAS, cuBLAS and cuBLASLt, Metal.

fp8 is e4m3 through ``torch._scaled_mm`` with fp32 scales and bf16 out, int8 is ``torch._int_mm`` with int32 out: these two are what
torch's own quantised layers call, and have no public name that all versions share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch

from rooflines.kernels.tf32 import tf32

Shape = tuple[int, int, int]
Side = Literal["", "left", "right"]  # the operand that is stored transposed
# How fp8 is scaled and summed: one scale a matrix, one a row of the result's side; and every partial sum added in fp32 registers
# instead of being left in the tensor core's own, narrower accumulator (use_fast_accum off).
Scaling = Literal["tensor", "row", "tensor, slow accumulation"]

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
_OUT = {"fp8": torch.bfloat16, "int8": torch.int32}


def flops(shape: Shape) -> int:
    """FLOPs of [m, k] @ [k, n]: m * n dot products of k multiplications and k additions."""
    m, n, k = shape
    return 2 * m * n * k


def footprint_bytes(shape: Shape, precision: str) -> int:
    """Memory of the three matrices."""
    m, n, k = shape
    return (m * k + k * n) * DTYPES[precision].itemsize + m * n * out_dtype(precision).itemsize


def out_dtype(precision: str) -> torch.dtype:
    """The type of the product of two matrices of ``precision``."""
    return _OUT.get(precision, DTYPES[precision])


def accumulate(precision: str) -> str:
    """The type in which the library adds the products up."""
    return {"fp64": "fp64", "int8": "int32"}.get(precision, "fp32")


def operator(precision: str) -> str:
    """The name of the operator that multiplies matrices of ``precision``."""
    return {"fp8": "torch._scaled_mm", "int8": "torch._int_mm"}.get(precision, "torch.mm")


def has_free_layout(precision: str) -> bool:
    """Whether either operand may be stored transposed; fp8 and int8 lie as cuBLASLt wants them."""
    return precision not in _OUT


def words(shape: Shape, transposed: Side = "") -> str:
    """A product in words: ``[m, k] @ [k, n]``, with ``.T`` behind an operand that is stored transposed."""
    m, n, k = shape
    left = f"[{k}, {m}].T" if transposed == "left" else f"[{m}, {k}]"
    return f"{left} @ {f'[{n}, {k}].T' if transposed == 'right' else f'[{k}, {n}]'}"


def multiplication(
    shape: Shape, precision: str, device: torch.device, scaling: Scaling = "tensor", transposed: Side = ""
) -> Callable[[], torch.Tensor]:
    """A call that multiplies two matrices of uniform random numbers into a third, which it returns.

    Random and not zero, because the power a multiplier draws, and with it the clock, depends on the bits that change. fp8 and int8
    operands lie as cuBLASLt wants them, the left by rows and the right by columns; their dimensions must be multiples of 16. Of the
    others the operand ``transposed`` is stored transposed. Raises what torch raises where the device has no such product.
    """
    m, n, k = shape
    dtype = DTYPES[precision]
    generator = torch.Generator(device=device).manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        if dtype == torch.int8:
            return torch.randint(-128, 128, (rows, columns), generator=generator, device=device, dtype=dtype)
        return torch.rand(rows, columns, generator=generator, device=device, dtype=torch.float32).sub_(0.5).to(dtype)

    left = matrix(k, m).t() if transposed == "left" else matrix(m, k)
    right = matrix(n, k).t() if transposed == "right" or not has_free_layout(precision) else matrix(k, n)
    out = torch.empty(m, n, device=device, dtype=out_dtype(precision))
    if precision == "int8":
        return lambda: torch._int_mm(left, right, out=out)
    if precision == "fp8":
        rows, columns = ((m, 1), (1, n)) if scaling == "row" else ((), ())
        scales = torch.ones(rows, device=device), torch.ones(columns, device=device)
        fast = scaling != "tensor, slow accumulation"
        return lambda: torch._scaled_mm(left, right, *scales, out_dtype=out.dtype, use_fast_accum=fast, out=out)
    return lambda: torch.mm(left, right, out=out)


def float32_matmul(precision: str) -> AbstractContextManager[None]:
    """Inside, float32 matrices are multiplied exactly (``fp32``) or by TF32 tensor cores (``tf32``), whatever the user has set."""
    return tf32(precision == "tf32")
