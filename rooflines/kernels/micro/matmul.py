"""Matrix multiplication by the library that torch uses on a device: oneDNN or BLAS, cuBLAS, Metal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

Shape = tuple[int, int, int]

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def flops(shape: Shape) -> int:
    """FLOPs of [m, k] @ [k, n]: m * n dot products of k multiplications and k additions."""
    m, n, k = shape
    return 2 * m * n * k


def footprint_bytes(shape: Shape, precision: str) -> int:
    """Memory of the three matrices."""
    m, n, k = shape
    return (m * k + k * n + m * n) * DTYPES[precision].itemsize


def multiplication(shape: Shape, precision: str, device: torch.device) -> Callable[[], torch.Tensor]:
    """A call that multiplies two matrices of uniform random numbers into a third, which it returns.

    Random and not zero, because the power a multiplier draws, and with it the clock, depends on the bits that change.
    """
    m, n, k = shape
    dtype = DTYPES[precision]
    generator = torch.Generator(device=device).manual_seed(0)
    left = torch.rand(m, k, generator=generator, device=device, dtype=torch.float32).sub_(0.5).to(dtype)
    right = torch.rand(k, n, generator=generator, device=device, dtype=torch.float32).sub_(0.5).to(dtype)
    out = torch.empty(m, n, device=device, dtype=dtype)

    def multiply() -> torch.Tensor:
        return torch.mm(left, right, out=out)

    return multiply


@contextlib.contextmanager
def float32_matmul(precision: str) -> Iterator[None]:
    """Inside, float32 matrices are multiplied exactly (``fp32``) or by TF32 tensor cores (``tf32``), whatever the user chose.

    Torch 2.9 replaced ``allow_tf32`` by ``fp32_precision`` and raises when both have been used, so only the newer that exists is
    touched.
    """
    attribute = "fp32_precision" if hasattr(torch.backends.cuda.matmul, "fp32_precision") else "allow_tf32"
    values = {"fp32_precision": ("ieee", "tf32"), "allow_tf32": (False, True)}[attribute]
    backends = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    switches = [backend for backend in backends if backend is not None and hasattr(backend, attribute)]
    before = [getattr(switch, attribute) for switch in switches]
    try:
        for switch in switches:
            setattr(switch, attribute, values[precision == "tf32"])
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            setattr(switch, attribute, value)
