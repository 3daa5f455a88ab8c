"""What of an operator a change would save: chains that fuse, conversions of layout, updates of one parameter
after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rooflines.profiler.read.communication_kernels import communicates
from rooflines.roofline.analysis import OperatorRow, Row
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.judge.shapes import tensor_bytes, tensors

FUSABLE = ("element-wise", "normalization", "reduction", "copy")
CONVERTS = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose|SubTensorOp|transpose_NHWC|transpose_NCHW",
    re.I,
)
_FUSED = re.compile(r"_fused_|fused_?adam|fused_?sgd|triton_|split.*optimizer", re.IGNORECASE)
_AT_ONCE = re.compile(rf"_foreach_|multi_tensor|{_FUSED.pattern}", re.IGNORECASE)


class Chain(NamedTuple):
    """Operators of one module and phase that can become ``kernels``, ``fused`` calls less. One by one they
    move ``bytes``, of which ``inside_bytes`` pass between them; at least ``outside_bytes`` do not."""

    rows: tuple[OperatorRow, ...]
    kernels: float
    fused: float
    bytes: float
    inside_bytes: float
    outside_bytes: float


def chains(rows: Iterable[OperatorRow], *, training: bool) -> list[Chain]:
    """The chains that fusable ``rows`` with shapes form.

    A tensor between two operators is written and read. In training it is written all the same, because the
    backward pass reads it.
    """
    shaped = (row for row in rows if row.category in FUSABLE and row.bytes and tensors(row))
    found = []
    for (*_, shape), members in grouped(
        shaped, lambda row: (row.module.rpartition(".")[0], row.phase, tensors(row)[0])
    ).items():
        # The operator that is called most often begins each chain or is in each.
        kernels, *others = longest_first((row.name, row.calls) for row in members).values()
        fused = sum(others)
        if fused > 0:
            each = tensor_bytes(shape, members[0].precision)
            size = sum(row.bytes for row in members)
            inside = min(size, (1 if training else 2) * fused * each)
            # Each kernel reads a tensor and writes one.
            found.append(
                Chain(
                    tuple(members),
                    kernels,
                    fused,
                    size,
                    inside,
                    max(size - inside, min(size, 2 * kernels * each)),
                )
            )
    return found


def conversion_s(row: Row) -> float:
    """Return the time of the kernels of ``row`` that only change the layout."""
    return sum(kernel.time_s for kernel in row.kernels if CONVERTS.search(kernel.name))


def exchanges_data(row: Row) -> bool:
    """Whether it exchanges data with other devices."""
    if isinstance(row, OperatorRow):
        return "communication" in (row.bound, row.category)
    exchanging_s = sum(kernel.time_s for kernel in row.kernels if communicates(kernel.name))
    return communicates(row.name) or exchanging_s > 0.5 * sum(kernel.time_s for kernel in row.kernels)


def transfers(row: Row) -> bool:
    """Whether it copies between host and device."""
    return any(kernel.name.startswith("Memcpy") and "DtoD" not in kernel.name for kernel in row.kernels)


def in_loop(row: Row) -> bool:
    """Whether it updates one parameter after the other."""
    return row.phase == "optimizer" and not exchanges_data(row) and not updates_at_once(row, _AT_ONCE)


def updates_at_once(row: Row, fused: re.Pattern[str] = _FUSED) -> bool:
    """Whether a kernel or operator of this kind updates many parameters."""
    return any(fused.search(name) for name in (row.name, *(kernel.name for kernel in row.kernels)))
