"""Rotary position embeddings: pairs of numbers of each head rotate by an angle of the token's position."""

from __future__ import annotations

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size, size_of
from rooflines.roofline.formulas.costs import ROTARY_EMBEDDING
from rooflines.roofline.formulas.record import Work, precision_of


def rotary_work(
    positions: TensorArg, rotated: tuple[TensorArg | None, ...], table: TensorArg, head_size: int, rotary: int | None = None
) -> Work:
    """The first ``rotary`` numbers of each head of the tensors in ``rotated`` rotate in place; as many as a row of ``table`` has where
    None.

    ``table`` has cosines and sines by position; as many rows are read as there are tokens, at most all.
    """
    if head_size <= 0 or len(table.shape) < 2:
        raise NotCounted("size of a head not recorded")
    rotary = table.shape[-1] if rotary is None else rotary
    found = [tensor for tensor in rotated if tensor is not None]
    counts = [tensor.numel // head_size * min(rotary, head_size) for tensor in found]
    touched = sum(count * size_of(tensor.dtype) for count, tensor in zip(counts, found, strict=True))
    rows = min(positions.numel, table.numel // table.shape[-1])
    return Work(
        other_flops=sum(counts) * ROTARY_EMBEDDING,
        bytes_read=touched + size(positions) + rows * table.shape[-1] * size_of(table.dtype),
        bytes_written=touched,
        precision=precision_of(found[0].dtype) if found else None,
    )
