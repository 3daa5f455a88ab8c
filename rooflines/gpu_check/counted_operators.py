"""Ten operators whose compulsory bytes are also what their kernels move, and their counts, ours and under ``ncu``.

Each reads its inputs once and writes its result once: element by element, row by row with rows that fit a block, a product whose
smaller matrix fits one tile, a convolution of each channel by itself. Memory is far larger than any cache: 2 GiB and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# On a GPU, elements of 4 bytes in 1 GiB; on a CPU few, to count them by the same code.
ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 14}
# A kernel ends before the last of what it wrote has left the L2 cache, of 126 MB at most (B200): 6 % of 2 GiB. Memories that keep their
# error correction within the data (GDDR) move a sixteenth more.
_BYTES = 0.1
# Address arithmetic is done in integers; what remains is the ends of sums.
_FLOPS = 0.05
_WIDTH = 64  # of the smaller matrix: no tile of a product is narrower, so that the larger matrix is read once
_ROW = 1024

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Operator(NamedTuple):
    """How far the hardware's counters may be from our count of an operator (None: only reported)."""

    bytes_within: float | None = _BYTES
    flops_within: float | None = None


# The FLOPs of an addition are not compared, because torch compiles ``a + alpha * b`` to FMAs; those of functions of an element
# (softmax) are counted by convention. Products of bf16 run on tensor cores, whose instructions these counters do not see.
OPERATORS = {
    "add fp32": Operator(),
    "sum fp32": Operator(flops_within=_FLOPS),
    "relu bf16": Operator(),
    "fp32 to bf16": Operator(),
    "layer_norm fp32": Operator(),
    "softmax fp32": Operator(),
    "depthwise conv fp32": Operator(),
    "embedding fp32": Operator(),
    "mm fp32": Operator(flops_within=_FLOPS),
    "mm bf16": Operator(),
}


def _calls(elements: int, device: str) -> dict[str, Callable[[], Call]]:
    """What makes the call of each of ``OPERATORS``, of ``elements`` of 4 bytes (twice as many of 2 bytes) on ``device``."""
    import torch
    from torch.nn import functional

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
    import torch

    torch.set_float32_matmul_precision("highest")
    device = torch_device.partition(":")[0]
    with torch.no_grad():
        for name, call in _calls(ELEMENTS[device], device).items():
            yield {"operator": name, **_count(name, call, device)}


def _count(name: str, call: Callable[[], Call], device: str) -> dict[str, Any]:
    import torch

    from rooflines.roofline.counting.count import count

    try:
        function, inputs = call()
        counted = count(function, *inputs)
        if device == "cuda":
            _profile(name, function, inputs)
    except torch.OutOfMemoryError:
        return {"left_out": "not enough free memory on the device"}
    return {"our_bytes": counted.bytes, "our_flops": counted.flops}


def _profile(name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    import torch

    function(*inputs)  # loads the kernel
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    function(*inputs)
    torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
