"""Kernels of triton_kernels around its grouped products: which token goes to which expert, and the sum of a token's results.

``topk`` (triton_kernels/topk.py, 3.4 and 3.5) chooses the experts and writes a bit for each pair of token and expert;
``routing`` (triton_kernels/routing.py) counts and sorts them; ``_finalize_matmul_scatter`` (triton_kernels/matmul_ogs.py) adds the rows
of a token.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size
from rooflines.roofline.formulas.kernels.launch import Launch, allocations
from rooflines.roofline.formulas.record import Work, precision_of

CATEGORY: Final = "moe"

_WHOLE: Final = "it reads the arguments of the operator around it and writes all that this allocated"


def work(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """The bytes of a kernel, and the additions of the one that has any."""
    return _finalize(launch) if launch.kernel.startswith("_finalize") else _bookkeeping(launch)


def _bookkeeping(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """At most the tensors around the launch; each of these kernels handles a part of them."""
    if launch.operator is None or not launch.operator.tensors:
        raise NotCounted("the tensors of the operator around the kernel are not recorded")
    inputs = launch.operator.tensors
    return inputs, Work(bytes_read=size(*inputs), bytes_written=size(*allocations(launch.inside)), assumption=_WHOLE)


def _finalize(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """[.., rows, n] -> [tokens, n]: the rows of a token added."""
    tokens = launch.wrapped(0).shape[0]
    partial = next((one for one in reversed(launch.allocated) if len(one.shape) >= 3), None)
    if partial is None or partial.shape[-2] < tokens:
        raise NotCounted("the rows that the kernel adds are not recorded")
    n = partial.shape[-1]
    return (partial,), Work(
        other_flops=partial.numel - tokens * n,
        bytes_read=size(partial),
        bytes_written=size(TensorArg((tokens, n), partial.dtype)),
        precision=precision_of(partial.dtype),
    )
