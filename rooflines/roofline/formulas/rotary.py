"""Rotary position embeddings: pairs of numbers of each head rotate by an angle of the token's position."""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.costs import RMS_NORM, ROTARY_EMBEDDING
from rooflines.roofline.formulas.record import Work, precision_of


def rotate_in_place(signature: Signature, schema: str = "positions query key head_size table is_neox") -> Work:
    """``query`` and perhaps ``key`` rotate in place; a row of ``table`` has the cosines and the sines of half a head each."""
    args = Arguments(signature, schema)
    rotated = (args.tensor("query"), args.optional("key"))
    return rotary_work(args.tensor("positions"), rotated, args.tensor("table"), args.integer("head_size"))


def normalise_and_rotate(signature: Signature, schema: str) -> Work:
    """Queries and keys inside ``qkv`` [tokens, heads * head] in place; cosines and sines are computed from a base."""
    args = Arguments(signature, schema)
    qkv, positions = args.tensor("qkv"), args.tensor("positions")
    part = TensorArg((positions.numel, (args.integer("heads_q") + args.integer("heads_k")) * args.integer("head")), qkv.dtype)
    return Work(
        other_flops=part.numel * (RMS_NORM + ROTARY_EMBEDDING),
        bytes_read=size(part, args.tensor("q_weight"), args.tensor("k_weight"), positions),
        bytes_written=size(part),
        precision=precision_of(qkv.dtype),
    )


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
