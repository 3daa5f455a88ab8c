"""Mixtures of experts of TensorRT-LLM, in FlashInfer too: grouped products
``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_...``, and quantization, routing and the last sum around them.

The name of a product has the dtypes of the result, of the weights and of the rows, that of the sums, and the
tile along the weights' rows, the tokens and k (``getFunctionName`` of the batched GEMM in FlashInfer, and the
two products of csrc/fused_moe/trtllm_backend/trtllm_fused_moe_runner.cu, 0.4): the first product [rows,
hidden] x [hidden, 2 inner], with the gate fused, then [rows, inner] x [inner, hidden]. Before the first
launch the runner allocates both results with the rows of every expert padded to whole tiles.

``quantize_with_block_size`` (FlashInfer 0.4, csrc/nv_internal/cpp/kernels/quantization.cu) writes 8-bit or
packed 4-bit values and the scale of every block; the routing and ``finalize`` kernels are those of
csrc/fused_moe/trtllm_backend.
"""

from __future__ import annotations

import re

from rooflines.profiler.read.signature import TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import NotCounted, known, size
from rooflines.roofline.count.formulas.experts import ELEMENT_BYTES, PRECISIONS, SPREAD
from rooflines.roofline.count.formulas.kernels import Launch, LaunchWork
from rooflines.roofline.count.formulas.record import Work, precision_of

CATEGORY = "moe"

_TYPE = r"(?:Mx)?(?:E\dm\d|Bfloat16|Fp16|Fp32)"
_NAME = re.compile(
    rf"bmm_(?P<y>{_TYPE})_(?P<w>{_TYPE}?)(?P<x>"
    rf"{_TYPE})_(?P<sum>\w+?)_t(?P<tile_n>\d+)x(?P<tile_rows>\d+)x\d+(?P<rest>\w*)"
)
_GATED = re.compile(r"swiGlu|geGlu", re.IGNORECASE)
_ALL_HERE = "every expert is on this device"
_BOOKKEEPING = "it writes every small integer tensor allocated before it"


def work(launch: Launch) -> LaunchWork:
    """The work of one of these kernels."""
    if launch.kernel.startswith("bmm_"):
        return _product(launch)
    if "quantize_with_block_size" in launch.kernel:
        return _quantize(launch)
    if "::finalize" in launch.kernel:
        return _finalize(launch)
    if "::routing" in launch.kernel:
        return _routing(launch)
    raise NotCounted("no formula for this kernel of the mixture of experts")


def _product(launch: Launch) -> LaunchWork:
    """The product of the rows of all tokens and their experts' weights; padding is not counted."""
    found = known(_NAME.match(launch.kernel), "kernel name of an unsupported version of the batched GEMM")
    y_type = found["y"].lower()
    x_type = found["x"].lower()
    w_type = (found["w"] or found["x"]).lower()
    tokens = launch.wrapped(0).shape[0]
    experts = launch.wrapped(1).shape[-1]
    chosen = _routed_rows(launch, tokens)
    inner, hidden = _results(launch, chosen.numel)
    gated = bool(_GATED.search(found["rest"]))
    first = gated or y_type == x_type
    k, n = (
        (hidden.shape[1], inner.shape[1] * (2 if gated else 1))
        if first
        else (inner.shape[1], hidden.shape[1])
    )
    rows = chosen.numel
    columns = inner.shape[1] if first else n
    if launch.grid is not None and launch.grid[0] * int(found["tile_n"]) < n:
        raise NotCounted("the grid does not match the weights inferred from the allocations")
    inputs = TensorArg((tokens if first else rows, k), "uint8")
    return (inputs, TensorArg((experts, n, k), "uint8")), Work(
        matrix_flops=2 * rows * n * k,
        other_flops=rows * columns * (costs.SILU + 1) if gated else 0,
        bytes_read=round(
            inputs.numel * ELEMENT_BYTES[x_type] + min(experts, rows) * n * k * ELEMENT_BYTES[w_type]
        ),
        bytes_written=round(rows * columns * ELEMENT_BYTES[y_type]),
        precision=PRECISIONS[x_type],
        assumption=f"{SPREAD}; {_ALL_HERE}",
    )


def _routed_rows(launch: Launch, tokens: int) -> TensorArg:
    """The experts chosen for each token, [tokens, top-k], as they were allocated."""
    found = (
        one
        for one in launch.allocated
        if len(one.shape) == 2 and one.shape[0] == tokens and one.shape[1] <= 64
    )
    return known(next(found, None), "the number of experts for a token is not recorded")


def _results(launch: Launch, rows: int) -> tuple[TensorArg, TensorArg]:
    """The results of the two products, [padded rows, inner] and [padded rows, hidden]."""
    found = [one for one in launch.allocated if len(one.shape) == 2 and one.shape[0] >= rows]
    if len(found) < 2 or found[-1].shape[0] != found[-2].shape[0]:
        raise NotCounted("the results of the products are not recorded")
    return found[-2], found[-1]


def _quantize(launch: Launch) -> LaunchWork:
    """Values and scales are allocated just before the launch: the largest of a block, a division, then the
    conversion."""
    inputs = launch.wrapped(0)
    results = launch.allocated[-2:]
    if len(results) < 2:
        raise NotCounted("the results of the quantization are not recorded")
    return (inputs,), Work(
        other_flops=inputs.numel * (costs.BASIC + costs.QUANTIZE),
        bytes_read=size(inputs),
        bytes_written=size(*results),
        precision=precision_of(inputs.dtype),
    )


def _routing(launch: Launch) -> LaunchWork:
    """Reads a score for each pair of token and expert; each of the kernels handles a part of the integers."""
    scores = launch.wrapped(1)
    integers = [one for one in launch.allocated if one.dtype == "int32"]
    return (scores,), Work(bytes_read=size(scores), bytes_written=size(*integers), assumption=_BOOKKEEPING)


def _finalize(launch: Launch) -> LaunchWork:
    """[padded rows, hidden] -> [tokens, hidden]: the rows of a token with its weights, multiplied and added;
    padding is not read."""
    tokens = launch.wrapped(0).shape[0]
    chosen = _routed_rows(launch, tokens)
    found = (
        one for one in reversed(launch.allocated) if len(one.shape) == 2 and one.shape[0] >= chosen.numel
    )
    rows = known(next(found, None), "the rows that the kernel adds are not recorded")
    hidden = rows.shape[1]
    return (rows, chosen), Work(
        other_flops=2 * chosen.numel * hidden,
        bytes_read=size(TensorArg((chosen.numel, hidden), rows.dtype)) + 2 * size(chosen),
        bytes_written=size(TensorArg((tokens, hidden), rows.dtype)),
        precision=precision_of(rows.dtype),
    )
