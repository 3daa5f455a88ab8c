"""The operators that ``ncu`` counts, and our count of each: ``python -m tests.gpu.operators cuda:0``.

Their compulsory bytes are also what their kernels move: each reads its inputs once and writes its result once, element by element, row
by row with rows that fit a block, a product whose smaller matrix fits one tile, a convolution of each channel by itself. Memory is far
larger than any cache: 2 GiB and more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from rooflines import count

# On a GPU, elements of 4 bytes in 1 GiB; on a CPU few, to count them by the same code.
ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 14}
_WIDTH = 64  # of the smaller matrix: no tile of a product is narrower, so that the larger matrix is read once
_ROW = 1024
OPERATORS = (
    "add fp32", "sum fp32", "relu bf16", "fp32 to bf16", "layer_norm fp32", "softmax fp32", "depthwise conv fp32", "embedding fp32",
    "mm fp32", "mm bf16",
)  # fmt: skip

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def _calls(elements: int, device: str) -> dict[str, Callable[[], Call]]:
    """Return what makes the call of each of ``OPERATORS``, of ``elements`` of 4 bytes (twice as many of 2 bytes) on ``device``."""

    def random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.rand(*sizes, device=device, dtype=dtype)

    half, rows, side = torch.bfloat16, elements // _ROW, 256 if device == "cuda" else 16
    return {
        "add fp32": lambda: (torch.add, (random(elements), random(elements))),
        "sum fp32": lambda: (torch.sum, (random(2 * elements),)),
        "relu bf16": lambda: (torch.relu, (random(2 * elements, dtype=half),)),
        # A copy of one type into another: a copy of the same type is no kernel, but a transfer of the driver's that ncu does not count.
        "fp32 to bf16": lambda: (torch.Tensor.to, (random(2 * elements), half)),
        "layer_norm fp32": lambda: (functional.layer_norm, (random(rows, _ROW), (_ROW,))),
        "softmax fp32": lambda: (torch.softmax, (random(rows, _ROW), -1)),
        # 3 x 3 on each channel by itself, by a kernel of torch's own: cuDNN may change the layout first, which moves everything again.
        "depthwise conv fp32": lambda: (
            functional.conv2d,
            (random(elements // (64 * side * side), 64, side, side), random(64, 1, 3, 3), None, 1, 1, 1, 64),
        ),
        # Every row of a table once, in random order.
        "embedding fp32": lambda: (functional.embedding, (torch.randperm(rows, device=device), random(rows, _ROW))),
        "mm fp32": lambda: (torch.mm, (random(elements // _WIDTH, _WIDTH), random(_WIDTH, _WIDTH))),
        "mm bf16": lambda: (
            torch.mm, (random(2 * elements // _WIDTH, _WIDTH, dtype=half), random(_WIDTH, _WIDTH, dtype=half))
        ),
    }  # fmt: skip


def count_operators(torch_device: str) -> Iterator[dict[str, Any]]:
    """Run each operator and yield our count of it: ``operator``, ``our_bytes`` and ``our_flops``, or why it is ``left_out``.

    On a GPU each runs a second time in an NVTX range of its name between cudaProfilerStart and cudaProfilerStop, for ``ncu``.
    """
    torch.set_float32_matmul_precision("highest")
    device = torch_device.partition(":")[0]
    with torch.no_grad():
        for name, call in _calls(ELEMENTS[device], device).items():
            yield {"operator": name, **_count(name, call, device)}


def _count(name: str, call: Callable[[], Call], device: str) -> dict[str, Any]:
    try:
        function, inputs = call()
        counted = count(function, *inputs)
        if device == "cuda":
            _profile(name, function, inputs)
    except torch.OutOfMemoryError:
        return {"left_out": "not enough free memory on the device"}
    return {"our_bytes": counted.bytes, "our_flops": counted.flops}


def _profile(name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    function(*inputs)  # loads the kernel
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    function(*inputs)
    torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    for _counted in count_operators(sys.argv[1]):
        sys.stdout.write(json.dumps(_counted) + "\n")
        sys.stdout.flush()
