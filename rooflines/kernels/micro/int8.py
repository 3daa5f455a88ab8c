"""int8 matrix products on a CPU, added up in int32, by the operators that torch's quantised networks run.

``torch._int_mm`` multiplies two plain matrices and returns the sums. ``onednn::qlinear_pointwise``, which torch's x86 quantisation
compiles a linear layer to, has its weights laid out for the matrix units beforehand and rounds the sums to uint8 again. Neither has
a public name, and which is faster depends on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rooflines.kernels.micro.matmul import Shape

Product = Callable[[], torch.Tensor]
_SCALE, _ZERO = 1.0, 0


def products(shape: Shape) -> dict[str, Product]:
    """The operators that this build of torch has for [m, k] @ [k, n], by name: calls that multiply random numbers.

    ``torch._int_mm`` takes int8 and returns int32 [m, n]; ``onednn::qlinear_pointwise`` takes uint8 and int8 and returns what fits
    into uint8.
    """
    found: dict[str, Product] = {}
    for name, make in (("torch._int_mm", _plain), ("onednn::qlinear_pointwise", _packed)):
        try:
            product = make(*operands(shape))
            product()
        except (RuntimeError, AttributeError, TypeError, NotImplementedError):  # not built in, or not for this CPU
            continue
        found[name] = product
    return found


def operands(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """The left [m, k], from 0 to 127 so that it is the same number as int8 and as uint8, and the right [k, n] of a product."""
    m, n, k = shape
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(0, 128, (m, k), generator=generator, dtype=torch.int8)
    return left, torch.randint(-128, 128, (k, n), generator=generator, dtype=torch.int8)


def _plain(left: torch.Tensor, right: torch.Tensor) -> Product:
    out = torch.empty(left.shape[0], right.shape[1], dtype=torch.int32)
    return lambda: torch._int_mm(left, right, out=out)


def _packed(left: torch.Tensor, right: torch.Tensor) -> Product:
    unsigned = left.view(torch.uint8)
    weights = torch.ops.onednn.qlinear_prepack(right.t().contiguous(), list(left.shape))
    columns = right.shape[1]
    scales, zeros = torch.full((columns,), _SCALE), torch.zeros(columns, dtype=torch.int32)

    def product() -> torch.Tensor:
        multiplied: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, _SCALE, _ZERO, weights, scales, zeros, None, _SCALE, _ZERO, torch.uint8, "none", [], ""
        )
        return multiplied

    return product
