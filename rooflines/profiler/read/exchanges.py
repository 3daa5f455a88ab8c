"""What a communication kernel exchanges, as a process group notes it: the kind, the elements, the ranks of
the group."""

from __future__ import annotations

import re
from dataclasses import replace

from rooflines.profiler.read.records import Exchange
from rooflines.profiler.read.signature import COLLECTIVE_DTYPES, DTYPE_BYTES, SCALAR_TYPES

# Kinds by how their names begin without underscores; the first that fits counts. What no name tells is
# ``other``.
_KINDS = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "sendrecv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "barrier",
)
_NO_LETTERS = re.compile(r"[^a-z]+")


def kind_of(name: str) -> str:
    """The kind of collective that a noted name, an operator's or a kernel's says: ``_allgather_base``,
    ``nccl:all_reduce``, ``ncclDevKernel_SendRecv(...)``; ``other`` where it says none."""
    plain = _NO_LETTERS.sub("", name.partition("(")[0].rpartition(":")[2].lower())
    return next((kind for kind in _KINDS if kind in plain), "other")


def sized(one: Exchange) -> Exchange:
    """``one`` with its bytes and the size of its group, where its elements tell them."""
    size = one.group_size or _size_by_ratio(one.kind, one.elements_in, one.elements_out)
    elements = _elements(one.kind, one.elements_in, one.elements_out, size)
    itemsize = DTYPE_BYTES.get(one.dtype) if one.dtype else None
    return replace(one, bytes=elements * itemsize if elements and itemsize else None, group_size=size)


def _size_by_ratio(kind: str, elements_in: int | None, elements_out: int | None) -> int | None:
    """The ranks in the group of an all-gather or a reduce-scatter, whose tensors are as many times as large
    on one side."""
    if kind not in ("allgather", "reducescatter") or not elements_in or not elements_out:
        return None
    small, large = (elements_in, elements_out) if kind == "allgather" else (elements_out, elements_in)
    return large // small if large % small == 0 and large > small else None


def _elements(kind: str, elements_in: int | None, elements_out: int | None, size: int | None) -> int | None:
    """The elements of the whole tensor: nccl-tests' size."""
    if kind in ("allgather", "gather"):
        return elements_in * size if elements_in and size else elements_out
    if kind in ("reducescatter", "scatter"):
        return elements_out * size if elements_out and size else elements_in
    if kind == "barrier":
        return None
    return max(elements_in or 0, elements_out or 0) or None


def noted(note: Exchange) -> Exchange:
    """The collective that a process group notes on a communication kernel; the ``kind`` and ``dtype`` of
    ``note`` are as Kineto prints them."""
    sent, received, size = (
        value if value is not None and value >= 0 else None
        for value in (note.elements_in, note.elements_out, note.group_size)
    )
    dtype = SCALAR_TYPES.get(COLLECTIVE_DTYPES.get(note.dtype or "", -1))
    return sized(
        replace(
            note,
            kind=kind_of(note.kind),
            elements_in=sent,
            elements_out=received,
            dtype=dtype,
            group_size=size,
        )
    )


def bus_factor(kind: str, ranks: int) -> float | None:
    """Bus bandwidth / algorithm bandwidth of a collective among ``ranks``; None for a kind that has none.

    These are the factors of NVIDIA's nccl-tests (doc/PERFORMANCE.md there), for sizes as ``Exchange.bytes``
    counts them.
    """
    if kind == "allreduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("allgather", "reducescatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if kind in ("broadcast", "reduce", "sendrecv") else None
