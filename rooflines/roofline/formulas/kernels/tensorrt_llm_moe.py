"""Kernels around the grouped products of TensorRT-LLM's mixture of experts, in FlashInfer too: quantization, routing, the last sum.

``quantize_with_block_size`` (FlashInfer 0.4, csrc/nv_internal/cpp/kernels/quantization.cu) writes 8-bit or packed 4-bit values and the
scale of every block; the routing and ``finalize`` kernels are those of csrc/fused_moe/trtllm_backend.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size
from rooflines.roofline.formulas.kernels.launch import Launch
from rooflines.roofline.formulas.kernels.tensorrt_llm_bmm import routed_rows
from rooflines.roofline.formulas.record import Work, precision_of

CATEGORY: Final = "moe"

_BOOKKEEPING: Final = "it writes every small integer tensor allocated before it"


def work(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """The work of one of these kernels."""
    if "quantize_with_block_size" in launch.kernel:
        return _quantize(launch)
    if "::finalize" in launch.kernel:
        return _finalize(launch)
    if "::routing" in launch.kernel:
        return _routing(launch)
    raise NotCounted("no formula for this kernel of the mixture of experts")


def _quantize(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """Values and scales are allocated just before the launch: the largest of a block, a division, then the conversion."""
    inputs, results = launch.wrapped(0), launch.allocated[-2:]
    if len(results) < 2:
        raise NotCounted("the results of the quantization are not recorded")
    return (inputs,), Work(
        other_flops=inputs.numel * (costs.BASIC + costs.QUANTIZE),
        bytes_read=size(inputs),
        bytes_written=size(*results),
        precision=precision_of(inputs.dtype),
    )


def _routing(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """Reads a score for each pair of token and expert; each of the kernels handles a part of the integers."""
    scores = launch.wrapped(1)
    integers = [one for one in launch.allocated if one.dtype == "int32"]
    return (scores,), Work(bytes_read=size(scores), bytes_written=size(*integers), assumption=_BOOKKEEPING)


def _finalize(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """[padded rows, hidden] -> [tokens, hidden]: the rows of a token with its weights, multiplied and added; padding is not read."""
    tokens = launch.wrapped(0).shape[0]
    chosen = routed_rows(launch, tokens)
    rows = next((one for one in reversed(launch.allocated) if len(one.shape) == 2 and one.shape[0] >= chosen.numel), None)
    if rows is None:
        raise NotCounted("the rows that the kernel adds are not recorded")
    hidden = rows.shape[1]
    return (rows, chosen), Work(
        other_flops=2 * chosen.numel * hidden,
        bytes_read=size(TensorArg((chosen.numel, hidden), rows.dtype)) + 2 * size(chosen),
        bytes_written=size(TensorArg((tokens, hidden), rows.dtype)),
        precision=precision_of(rows.dtype),
    )
