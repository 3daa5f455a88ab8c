"""NATTEN: attention of each token to a neighborhood of it in one, two or three dimensions, and the layouts that its kernels want.

A neighborhood is moved inside at the borders, so that every token has a whole one, except along causal dimensions. The kernels of
Hopper and Blackwell take tokens in tiles, padded, and with the groups of a dilation as more batches.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.attention import Attention, backward_work
from rooflines.roofline.formulas.costs import SOFTMAX
from rooflines.roofline.formulas.packed_attention import Layout, register_layouts
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula

_TILES: Final = "q_tile k_tile"
_PACKED: Final = "cum_q cum_k max_q max_k"
_SAVED: Final = "query key value out grad log_sum"

register_layouts(
    {
        "natten::fmha_forward": Layout((f"query key value causal scale {_TILES} {_PACKED}",)),
        "natten::hopper_fmha_forward": Layout((f"query key value causal scale {_TILES} schedule {_PACKED}",)),
        "natten::blackwell_fmha_forward": Layout((f"query key value causal scale {_TILES} persistent {_PACKED}",)),
    },
    {
        "natten::fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} splits delta {_PACKED}",)),
        "natten::hopper_fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} {_PACKED}",)),
        "natten::blackwell_fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} {_PACKED}",)),
    },
)

_NEIGHBORS: Final = "kernel stride dilation causal scale"
_TILED: Final = f"{_NEIGHBORS} q_shape k_shape layout"


def _along(extent: int, kernel: int, stride: int, dilation: int, causal: bool) -> int:
    """Pairs along one dimension: each token with its neighborhood, or with as much of it as is before it among the tokens of its
    dilation."""
    if not causal:
        return extent * kernel
    if stride != 1:
        raise NotCounted("a causal neighborhood that several tokens share")
    whole = 0
    for first in range(min(dilation, extent)):
        tokens = -(-(extent - first) // dilation)
        some = min(tokens, kernel)
        whole += some * (some + 1) // 2 + (tokens - some) * kernel
    return whole


def _sizes(args: Arguments, rank: int) -> Attention:
    query, value = args.tensor("query"), args.tensor("value")
    kernel, stride, dilation = (args.integers(name, rank) for name in ("kernel", "stride", "dilation"))
    causal = args.mask("causal", rank)
    if args.has("layout"):
        layout, batch = args.sizes("layout"), query.shape[0] // prod(dilation)
    else:
        layout, batch = query.shape[1:-2], query.shape[0]
    if len(layout) != rank:
        raise NotCounted("shapes not understood")
    pairs = prod(_along(*sizes) for sizes in zip(layout, kernel, stride, dilation, causal, strict=True))
    return Attention(batch * query.shape[-2] * pairs, query.shape[-1], value.shape[-1])


def _forward(signature: Signature, rank: int, schema: str) -> Work:
    """[batch, tokens of each dimension, heads, depth], or in tiles [batches, tokens, heads, depth]."""
    args = Arguments(signature, f"query key value {schema}")
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    sizes = _sizes(args, rank)
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, key, value),
        bytes_written=prod(query.shape[:-1]) * (value.shape[-1] * size_of(query.dtype) + 4),
        precision=matrix_precision_of(query.dtype),
    )


def _backward(signature: Signature, rank: int, schema: str) -> Work:
    args = Arguments(signature, f"{_SAVED} {schema}")
    return backward_work(args, _sizes(args, rank))


def _permute(signature: Signature, rank: int) -> Work:
    """Into whole tiles of each group of the dilation, the rest of which is padding."""
    args = Arguments(signature, "self tile dilation flip")
    inputs, tile, dilation = args.tensor("self"), args.integers("tile", rank), args.integers("dilation", rank)
    tiles = [-(-extent // one) for extent, one in zip(inputs.shape[1:-2], tile, strict=True)]
    padded = prod(-(-count // group) * group * one for count, group, one in zip(tiles, dilation, tile, strict=True))
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // max(prod(inputs.shape[1:-2]), 1) * padded)


def _unpermute(signature: Signature, rank: int) -> Work:
    args = Arguments(signature, "self layout tile dilation")
    inputs, dilation = args.tensor("self"), args.integers("dilation", rank)
    tokens = inputs.shape[0] // prod(dilation) * prod(args.sizes("layout"))
    moved = tokens * prod(inputs.shape[-2:]) * size_of(inputs.dtype)
    return Work(bytes_read=moved, bytes_written=moved)


for _rank in (1, 2, 3):
    for _kind, _schema in (("", _NEIGHBORS), ("hopper_", _TILED), ("blackwell_", _TILED)):
        formula(f"natten::{_kind}na{_rank}d_forward", category="attention")(partial(_forward, rank=_rank, schema=_schema))
        formula(f"natten::{_kind}na{_rank}d_backward", category="attention")(partial(_backward, rank=_rank, schema=_schema))
    formula(f"natten::token_permute_{_rank}d", category="copy")(partial(_permute, rank=_rank))
    formula(f"natten::token_unpermute_{_rank}d", category="copy")(partial(_unpermute, rank=_rank))
