"""Writing keys and values into a cache of pages: each token's numbers are read once and written once, at the dtype of the cache."""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.costs import QUANTIZE
from rooflines.roofline.formulas.record import Work, precision_of


def store(signature: Signature, schema: str) -> Work:
    """``key`` and ``value`` of each of the ``slots`` into their caches, perhaps by a scale each."""
    args = Arguments(signature, schema)
    slots = args.tensor("slots")
    new, caches = (args.tensor("key"), args.tensor("value")), (args.tensor("key_cache"), args.tensor("value_cache"))
    return stored(slots.numel, new, caches, slots, args.optional("k_scale"), args.optional("v_scale"))


def stored(tokens: int, new: tuple[TensorArg, ...], caches: tuple[TensorArg, ...], *others: TensorArg | None) -> Work:
    """``tokens`` rows of each of ``new`` go into the cache of the same place, ``others`` are read.

    ``new`` may have more rows than tokens: a captured graph pads its batch. Numbers become narrower by a scale.
    """
    read = written = flops = 0
    for tensor, cache in zip(new, caches, strict=True):
        if not tensor.shape or tensor.shape[0] < tokens:
            raise NotCounted("more tokens than keys")
        numbers = tensor.numel // max(tensor.shape[0], 1) * tokens
        read += numbers * size_of(tensor.dtype)
        written += numbers * size_of(cache.dtype)
        flops += numbers * QUANTIZE * (size_of(cache.dtype) < size_of(tensor.dtype))
    return Work(
        other_flops=flops,
        bytes_read=read + size(*others),
        bytes_written=written,
        precision=precision_of(new[0].dtype) if flops else None,
    )
