"""TF32: whether float32 products and convolutions run on the tensor cores with ten bits of mantissa."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def _switches() -> dict[str, tuple[Any, str, Any, Any]]:
    """Where torch keeps the two switches: object, attribute, value for off, value for on.

    Torch 2.9 replaced ``allow_tf32`` by ``fp32_precision`` and raises when both have been used, so only the newer that exists is
    touched.
    """
    import torch

    def switch(new: Any, old: Any) -> tuple[Any, str, Any, Any]:
        return (new, "fp32_precision", "ieee", "tf32") if hasattr(new, "fp32_precision") else (old, "allow_tf32", False, True)

    backends = torch.backends
    return {
        "matmul": switch(backends.cuda.matmul, backends.cuda.matmul),
        "convolution": switch(getattr(backends.cudnn, "conv", None), backends.cudnn),
    }


def tf32_state() -> dict[str, bool]:
    """Whether ``matmul`` and ``convolution`` may use TF32 now."""
    return {name: getattr(owner, attribute) == on for name, (owner, attribute, _, on) in _switches().items()}


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Inside, TF32 is allowed or not, for both; afterwards as it was."""
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _, _ in _switches().values()]
    try:
        for owner, attribute, off, on in _switches().values():
            setattr(owner, attribute, on if allowed else off)
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)
