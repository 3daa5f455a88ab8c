"""Results of operators on fake tensors where torch's own rule is not that of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """torch's rule (2.14) is that of the CUDA kernel for 16-bit numbers; all others run a matrix product a group.

    [m, k] @ [g, k, n], rows in groups: [m, n]. [g, m, k] @ [k, n], columns in groups: [m, n]. [m, k] @ [k, n], both along k: [g, m, n].
    """
    m, n = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 3:
        return a.new_empty((a.shape[0], m, n), dtype=out_dtype)
    if a.dim() == b.dim() == 2 and offs is not None:
        return a.new_empty((offs.numel(), m, n), dtype=out_dtype)
    return a.new_empty((m, n), dtype=out_dtype)


def _layer_norm_backward(
    grad: torch.Tensor,
    inputs: torch.Tensor,
    shape: list[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Kernels return a contiguous gradient, torch's rule one that is laid out as ``grad``, which then seems to need a copy."""
    of = (inputs, weight, bias)
    return tuple(
        inputs.new_empty(x.shape, dtype=x.dtype) if x is not None and wanted else None for x, wanted in zip(of, mask, strict=True)
    )


# By the operator's name; what is called in place of the operator.
RULES: Final[dict[str, Callable[..., Any]]] = {
    "aten::_grouped_mm": _grouped_mm, "aten::native_layer_norm_backward": _layer_norm_backward,
}  # fmt: skip
