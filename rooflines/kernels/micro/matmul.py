"""Matrix multiplication by the library that torch uses on a device: oneDNN or BLAS, cuBLAS and cuBLASLt,
Metal.

On a CPU int8 is added up in int32, by ``torch._int_mm`` or by ``onednn::qlinear_pointwise``, which torch's
x86 quantization compiles a linear layer to: it has its weights laid out for the matrix units beforehand and
rounds the sums to uint8 again. Which is faster depends on the CPU. On a GPU fp8 is e4m3 through
``torch._scaled_mm`` with fp32 scales and bf16 out, int8 is ``torch._int_mm`` with int32 out: these are what
torch's own quantized layers call, and have no public name that all versions share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch

from rooflines.kernels.tf32 import tf32

Shape = tuple[int, int, int]
Call = Callable[[], torch.Tensor]
Side = Literal["", "left", "right"]  # the operand that is stored transposed
# How fp8 is scaled and summed: one scale a matrix, one a row of the result's side; and every partial sum
# added in fp32 registers instead of being left in the tensor core's own, narrower accumulator (use_fast_accum
# off).
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
) -> Call:
    """A call that multiplies two matrices of uniform random numbers into a third, which it returns.

    Random and not zero, because the power a multiplier draws, and with it the clock, depends on the bits that
    change. fp8 and int8 operands lie as cuBLASLt wants them, the left by rows and the right by columns; their
    dimensions must be multiples of 16. Of the others the operand ``transposed`` is stored transposed. Raises
    what torch raises where the device has no such product.
    """
    m, n, k = shape
    dtype = DTYPES[precision]
    generator = torch.Generator(device=device).manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        if dtype == torch.int8:
            return torch.randint(-128, 128, (rows, columns), generator=generator, device=device, dtype=dtype)
        return (
            torch.rand(rows, columns, generator=generator, device=device, dtype=torch.float32)
            .sub_(0.5)
            .to(dtype)
        )

    left = matrix(k, m).t() if transposed == "left" else matrix(m, k)
    right = matrix(n, k).t() if transposed == "right" or not has_free_layout(precision) else matrix(k, n)
    out = torch.empty(m, n, device=device, dtype=out_dtype(precision))
    if precision == "int8":
        return lambda: torch._int_mm(left, right, out=out)
    if precision == "fp8":
        rows, columns = ((m, 1), (1, n)) if scaling == "row" else ((), ())
        scales = torch.ones(rows, device=device), torch.ones(columns, device=device)
        fast = scaling != "tensor, slow accumulation"
        return lambda: torch._scaled_mm(
            left, right, *scales, out_dtype=out.dtype, use_fast_accum=fast, out=out
        )
    return lambda: torch.mm(left, right, out=out)


def float32_matmul(precision: str) -> AbstractContextManager[None]:
    """Inside, float32 matrices are multiplied exactly (``fp32``) or by TF32 tensor cores (``tf32``). The
    user's setting is put back."""
    return tf32(precision == "tf32")


def int8_products(shape: Shape) -> dict[str, Call]:
    """The operators that this build of torch has for [m, k] @ [k, n], by name: calls that multiply random
    numbers.

    ``torch._int_mm`` takes int8 and returns int32 [m, n]; ``onednn::qlinear_pointwise`` takes uint8 and int8
    and returns what fits into uint8.
    """
    found: dict[str, Call] = {}
    for name, make in (("torch._int_mm", _plain), ("onednn::qlinear_pointwise", _packed)):
        try:
            product = make(*int8_operands(shape))
            product()
        except (
            RuntimeError,
            AttributeError,
            TypeError,
            NotImplementedError,
        ):  # not built in, or not for this CPU
            continue
        found[name] = product
    return found


def int8_operands(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """The left [m, k], from 0 to 127 so that it is the same number as int8 and as uint8, and the right [k, n]
    of a product."""
    m, n, k = shape
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(0, 128, (m, k), generator=generator, dtype=torch.int8)
    return left, torch.randint(-128, 128, (k, n), generator=generator, dtype=torch.int8)


def _plain(left: torch.Tensor, right: torch.Tensor) -> Call:
    out = torch.empty(left.shape[0], right.shape[1], dtype=torch.int32)
    return lambda: torch._int_mm(left, right, out=out)


def _packed(left: torch.Tensor, right: torch.Tensor) -> Call:
    unsigned = left.view(torch.uint8)
    weights = torch.ops.onednn.qlinear_prepack(right.t().contiguous(), list(left.shape))
    columns = right.shape[1]
    scales, zeros = torch.full((columns,), 1.0), torch.zeros(columns, dtype=torch.int32)

    def product() -> torch.Tensor:
        multiplied: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, 0, weights, scales, zeros, None, 1.0, 0, torch.uint8, "none", [], ""
        )
        return multiplied

    return product
