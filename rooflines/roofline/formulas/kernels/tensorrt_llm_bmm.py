"""Grouped matrix products that TensorRT-LLM generates for mixtures of experts, in FlashInfer too: ``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_...``.

The name has the dtypes of the result, of the weights and of the rows, that of the sums, and the tile along the weights' rows, the
tokens and k (``getFunctionName`` of the batched GEMM in FlashInfer, and the two products of
csrc/fused_moe/trtllm_backend/trtllm_fused_moe_runner.cu, 0.4): the first product [rows, hidden] x [hidden, 2 inner], with the gate
fused, then [rows, inner] x [inner, hidden]. Before the first launch the runner allocates both results with the rows of every
expert padded to whole tiles.
"""

from __future__ import annotations

import re
from typing import Final

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.kernels.experts import ELEMENT_BYTES, PRECISIONS, touched
from rooflines.roofline.formulas.kernels.launch import Launch
from rooflines.roofline.formulas.record import Work

CATEGORY: Final = "moe"

_TYPE: Final = r"(?:Mx)?(?:E\dm\d|Bfloat16|Fp16|Fp32)"
_NAME: Final = re.compile(
    rf"bmm_(?P<y>{_TYPE})_(?P<w>{_TYPE}?)(?P<x>{_TYPE})_(?P<sum>\w+?)_t(?P<tile_n>\d+)x(?P<tile_rows>\d+)x\d+(?P<rest>\w*)"
)
_GATED: Final = re.compile(r"swiGlu|geGlu", re.IGNORECASE)
_ALL_HERE: Final = "every expert is on this device"


def work(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """The product of the rows of all tokens and their experts' weights; padding is not counted."""
    found = _NAME.match(launch.kernel)
    if found is None:
        raise NotCounted("kernel name of an unsupported version of the batched GEMM")
    y_type, x_type = found["y"].lower(), found["x"].lower()
    w_type = (found["w"] or found["x"]).lower()
    tokens, experts = launch.wrapped(0).shape[0], launch.wrapped(1).shape[-1]
    chosen = routed_rows(launch, tokens)
    inner, hidden = _results(launch, chosen.numel)
    gated = bool(_GATED.search(found["rest"]))
    first = gated or y_type == x_type
    k, n = (hidden.shape[1], inner.shape[1] * (2 if gated else 1)) if first else (inner.shape[1], hidden.shape[1])
    rows, columns = chosen.numel, inner.shape[1] if first else n
    if launch.grid is not None and launch.grid[0] * int(found["tile_n"]) < n:
        raise NotCounted("the grid does not match the weights inferred from the allocations")
    inputs = TensorArg((tokens if first else rows, k), "uint8")
    return (inputs, TensorArg((experts, n, k), "uint8")), Work(
        matrix_flops=2 * rows * n * k,
        other_flops=rows * columns * (costs.SILU + 1) if gated else 0,
        bytes_read=round(inputs.numel * ELEMENT_BYTES[x_type] + touched(experts, rows) * n * k * ELEMENT_BYTES[w_type]),
        bytes_written=round(rows * columns * ELEMENT_BYTES[y_type]),
        precision=PRECISIONS[x_type],
        assumption=f"{SPREAD}; {_ALL_HERE}",
    )


def routed_rows(launch: Launch, tokens: int) -> TensorArg:
    """The experts chosen for each token, [tokens, top-k], as they were allocated."""
    found = next((one for one in launch.allocated if len(one.shape) == 2 and one.shape[0] == tokens and one.shape[1] <= 64), None)
    if found is None:
        raise NotCounted("the number of experts for a token is not recorded")
    return found


def _results(launch: Launch, rows: int) -> tuple[TensorArg, TensorArg]:
    """The results of the two products, [padded rows, inner] and [padded rows, hidden]."""
    found = [one for one in launch.allocated if len(one.shape) == 2 and one.shape[0] >= rows]
    if len(found) < 2 or found[-1].shape[0] != found[-2].shape[0]:
        raise NotCounted("the results of the products are not recorded")
    return found[-2], found[-1]
