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
    """One call to count, made of ``elements`` of 4 bytes (twice as many of 2 bytes) on a device.

    ``bytes_within`` and ``flops_within`` are how far the hardware's counters may be from our count (None: only reported).
    """

    make: Callable[[int, str], Call]
    bytes_within: float | None = _BYTES
    flops_within: float | None = None


def _random(device: str, *sizes: int, **options: Any) -> Any:
    import torch

    return torch.rand(*sizes, device=device, **options)


def _add(elements: int, device: str) -> Call:
    import torch

    return torch.add, (_random(device, elements), _random(device, elements))


def _sum(elements: int, device: str) -> Call:
    import torch

    return torch.sum, (_random(device, 2 * elements),)


def _relu(elements: int, device: str) -> Call:
    import torch

    return torch.relu, (_random(device, 2 * elements, dtype=torch.bfloat16),)


def _convert(elements: int, device: str) -> Call:
    """A copy of one type into another: a copy of the same type is no kernel, but a transfer of the driver's that ncu does not count."""
    import torch

    return torch.Tensor.to, (_random(device, 2 * elements), torch.bfloat16)


def _layer_norm(elements: int, device: str) -> Call:
    import torch

    return torch.nn.functional.layer_norm, (_random(device, elements // _ROW, _ROW), (_ROW,))


def _softmax(elements: int, device: str) -> Call:
    import torch

    return torch.softmax, (_random(device, elements // _ROW, _ROW), -1)


def _convolution(elements: int, device: str) -> Call:
    """3 x 3 on each channel by itself, by a kernel of torch's own: cuDNN may change the layout first, which moves everything again."""
    import torch

    side = 256 if device == "cuda" else 16
    images = _random(device, elements // (64 * side * side), 64, side, side)
    weight = _random(device, 64, 1, 3, 3)
    return torch.nn.functional.conv2d, (images, weight, None, 1, 1, 1, 64)


def _embedding(elements: int, device: str) -> Call:
    """Every row of a table once, in random order."""
    import torch

    rows = elements // _ROW
    return torch.nn.functional.embedding, (torch.randperm(rows, device=device), _random(device, rows, _ROW))


def _product(elements: int, device: str) -> Call:
    import torch

    return torch.mm, (_random(device, elements // _WIDTH, _WIDTH), _random(device, _WIDTH, _WIDTH))


def _product_bf16(elements: int, device: str) -> Call:
    import torch

    return torch.mm, (
        _random(device, 2 * elements // _WIDTH, _WIDTH, dtype=torch.bfloat16),
        _random(device, _WIDTH, _WIDTH, dtype=torch.bfloat16),
    )


# The FLOPs of an addition are not compared, because torch compiles ``a + alpha * b`` to FMAs; those of functions of an element
# (softmax) are counted by convention. Products of bf16 run on tensor cores, whose instructions these counters do not see.
OPERATORS = {
    "add fp32": Operator(_add),
    "sum fp32": Operator(_sum, flops_within=_FLOPS),
    "relu bf16": Operator(_relu),
    "fp32 to bf16": Operator(_convert),
    "layer_norm fp32": Operator(_layer_norm),
    "softmax fp32": Operator(_softmax),
    "depthwise conv fp32": Operator(_convolution),
    "embedding fp32": Operator(_embedding),
    "mm fp32": Operator(_product, flops_within=_FLOPS),
    "mm bf16": Operator(_product_bf16),
}


def count_operators(torch_device: str) -> Iterator[dict[str, Any]]:
    """Run each operator and yield our count of it: ``operator``, ``our_bytes`` and ``our_flops``, or why it is ``left_out``.

    On a GPU each runs a second time in an NVTX range of its name between cudaProfilerStart and cudaProfilerStop, for ``ncu``.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    device = torch_device.partition(":")[0]
    with torch.no_grad():
        for name, operator in OPERATORS.items():
            yield {"operator": name, **_count(name, operator, device)}


def _count(name: str, operator: Operator, device: str) -> dict[str, Any]:
    import torch

    from rooflines.roofline.counting.count import count

    try:
        function, inputs = operator.make(ELEMENTS[device], device)
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
