"""Attention of a generation as servers compute it: one kernel per layer, in place of the operators that
transformers calls.

**Masks and scores.** transformers gives a kernel a mask, or computes products, softmax and products. Here a
prompt of n tokens is one causal kernel within the window w of its layer (``sliding_window``). It meets m (m +
1) / 2 + (n - m) m pairs of query and key for each head, with m = min(n, w), and reads the keys and values of
each group of heads once. A token of decode meets and reads min(w, context) keys. Soft caps and sinks cost
nothing. A mask that is not that of a window stays, and all its pairs count.

**Multi-head latent attention** (MLA, DeepSeek-V2, arXiv 2405.04434). The KV cache has a latent of ``rank``
numbers and a rotated key of ``rope`` numbers a token, for all heads. transformers expands the cache to keys
and values of each head in every step. Servers absorb the expansion: the query of a head is multiplied with
the key half of its weights, its result with the value half, so that a step of decode reads the latents alone.
In prefill they expand, too. In both one kernel does what lies between the projections: rotation, the new
entries of the cache, attention.

**Sparse attention** (DeepSeek-V3.2, arXiv 2512.02556). A query meets the ``selected`` keys that an indexer
finds, fewer where there are fewer. In prefill these pairs count on expanded keys and values, which makes the
fewest products: kernels that absorb the expansion there, or meet more pairs, make more. The indexer's kernel
meets every pair, with small heads in fp8, and reads a key of 8 bits a number, and a scale of 32 bits, for
each token of the context.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from rooflines.roofline.count.formulas import Work
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.lengths import pairs
from rooflines.roofline.dry_run.count import OperatorCount, PhaseCount
from rooflines.roofline.judge.operator_rows import with_ancestors
from rooflines.roofline.judge.shapes import sizes_in

if TYPE_CHECKING:
    import torch

KERNEL = "latent_attention"
FLASH = "aten::_flash_attention_forward"
_EXPANSION = ".kv_b_proj"
# Besides the expansion: the projections to the latent, of the queries, and of the result, by the names that
# networks give them.
_DOWN = (".kv_a_proj_with_mqa",)
_QUERIES = (".q_b_proj", ".q_proj")
_OUTPUT = (".o_proj",)
_PRODUCTS = ("aten::mm", "aten::addmm")
# What selects keys, and its queries and key.
_INDEXER, _INDEX_QUERIES, _INDEX_KEY = ".indexer", ".indexer.wq_b", ".indexer.wk"
SELECTION = "index_scores"
# Up to this depth of a head, PyTorch's attention takes keys and values for several heads of queries without
# copies.
_GROUPED = 256


@contextlib.contextmanager
def one_kernel(generator: Any) -> Iterator[None]:
    """Inside, attention of a causal model of transformers calls one kernel, without a mask where that is
    causal within a window."""
    network: Any = getattr(generator, "network", None)
    if not getattr(network, "_can_set_attn_implementation", bool)():
        yield
        return
    import torch
    from transformers import AttentionInterface

    called = AttentionInterface()["sdpa"]

    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *args: Any,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **keywords: Any,
    ) -> Any:
        """query [b, h, s_q, d], key [b, g, s_k, d], value [b, g, s_k, d_v] -> [b, s_q, h, d_v]"""
        queries = query.shape[2]
        keys = key.shape[2]
        window = sliding_window or getattr(module, "sliding_window", None) or 0
        causal = keywords.get("is_causal", getattr(module, "is_causal", True))
        if causal and window and queries == 1 and keys <= window:
            attention_mask = None
        known = queries in (1, keys) if attention_mask is None else queries == keys and window
        plain = attention_mask is None and key.shape[-1] == value.shape[-1] <= _GROUPED
        if plain or not known or not causal or "position_bias" in keywords or key.shape[-1] < value.shape[-1]:
            return called(module, query, key, value, attention_mask, *args, **keywords)
        turned = (tensor.transpose(1, 2) for tensor in (query, key, value))
        left = None if attention_mask is None else window - 1
        found = torch.ops.aten._flash_attention_forward(
            *turned, None, None, queries, keys, 0.0, True, False, window_size_left=left
        )
        return found[0][..., : value.shape[-1]], None

    AttentionInterface.register("sdpa", attend)
    network.config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        AttentionInterface.register("sdpa", called)


class _Sizes(NamedTuple):
    """Sizes of one layer: heads, numbers in a latent, in a rotated key, in the rest of a key, in a value;
    bytes of a number."""

    heads: int
    rank: int
    rope: int
    key: int
    value: int
    item: int


def with_served_latent_attention(phase: PhaseCount, batch: int, selected: int | None = None) -> PhaseCount:
    """Return the phase of ``batch`` sequences with all latent attention as servers compute it, where a query
    meets at most ``selected`` keys; the same object where it has none."""
    count = phase.count
    layers = {
        row.module.removesuffix(_EXPANSION): list[OperatorCount]()
        for row in count.operators
        if row.module.endswith(_EXPANSION)
    }
    for row in count.operators:
        for path in with_ancestors(row.module):
            if path in layers:
                layers[path].append(row)
    absorbs = phase.tokens < phase.keys
    most = min(phase.keys, selected or phase.keys)
    made: list[OperatorCount] = []
    replaced: set[str] = set()
    for layer, rows in layers.items():
        products = {row.module.removeprefix(layer): row for row in rows if row.name in _PRODUCTS}
        sizes = _sizes(products)
        if sizes is not None:
            made += _rows(layer, sizes, phase, batch, absorbs, most, products[_EXPANSION])
            replaced |= {layer, layer + _EXPANSION} if absorbs else {layer}
        if sizes is not None and {_INDEX_QUERIES, _INDEX_KEY} <= products.keys():
            made.append(_selection(layer, products, phase, batch))
            replaced.add(layer + _INDEXER)
    if not made:
        return phase
    gone = [row for row in count.operators if row.module in replaced]
    kept = [row for row in count.operators if row.module not in replaced]
    return replace(phase, count=count.exchanged((*kept, *made), gone, made))


def _sizes(products: Mapping[str, OperatorCount]) -> _Sizes | None:
    """The sizes of a layer by the products in it; None where they are not all plain ones."""
    down, expansion, queries, output = (
        next((_product(products[name]) for name in names if name in products), None)
        for names in (_DOWN, (_EXPANSION,), _QUERIES, _OUTPUT)
    )
    if down is None or expansion is None or queries is None or output is None:
        return None
    (_, _, latent), (tokens, rank, expanded), (_, _, asked), (_, result, _) = down, expansion, queries, output
    rope, keys = latent - rank, expanded - result  # of all heads: heads * key
    if rope <= 0 or keys <= 0 or (asked - keys) % rope:
        return None
    heads = (asked - keys) // rope
    size = products[_EXPANSION]
    item = (size.bytes_read or 0) // size.calls // (tokens * rank + rank * expanded)
    return _Sizes(heads, rank, rope, keys // heads, result // heads, item)


def _product(row: OperatorCount) -> tuple[int, int, int]:
    """[m, k] @ [k, n] of a row."""
    left, right = sizes_in(row.shapes)[-2:]
    return prod(left[:-1]), left[-1], right[-1]


def _rows(
    layer: str, of: _Sizes, phase: PhaseCount, batch: int, absorbs: bool, most: int, like: OperatorCount
) -> Iterator[OperatorCount]:
    """The rows of a layer whose queries meet at most ``most`` keys."""
    tokens = batch * phase.tokens
    keys = batch * (most if phase.tokens == 1 else phase.keys)
    latent = of.rank + of.rope
    head = of.key + of.rope, of.value
    if absorbs:
        for inner, outer in ((of.key, of.rank), (of.rank, of.value)):
            shapes = f"{of.heads}x{tokens}x{inner}, {of.heads}x{inner}x{outer}"
            work = Work(
                matrix_flops=2 * of.heads * tokens * inner * outer,
                bytes_read=of.item * of.heads * inner * (tokens + outer),
                bytes_written=of.item * of.heads * tokens * outer,
                precision=like.precision,
            )
            yield OperatorCount.of(
                work,
                name="aten::bmm",
                module=layer + _EXPANSION,
                phase=like.phase,
                shapes=shapes,
                category="matmul",
            )
        head = latent, of.rank
        cached = keys * latent
    else:
        cached = keys * (of.heads * (of.key + of.value) + of.rope)
    met = batch * of.heads * pairs(phase.tokens, phase.keys, most - 1, 0, lower_right=True)
    work = Work(
        matrix_flops=2 * met * sum(head),
        other_flops=met * (1 + SOFTMAX),
        bytes_read=of.item * (tokens * of.heads * head[0] + cached),
        bytes_written=of.item
        * tokens
        * (of.heads * head[1] + latent),  # the result, and the new entries of the cache
        precision=like.precision,
    )
    shapes = f"{batch}x{of.heads}x{phase.tokens}x{head[0]}, {batch}x{keys // batch}x{latent}"
    yield OperatorCount.of(
        work, name=KERNEL, module=layer, phase=like.phase, shapes=shapes, category="attention"
    )


def _selection(
    layer: str, products: Mapping[str, OperatorCount], phase: PhaseCount, batch: int
) -> OperatorCount:
    """The kernel that scores every key for each query."""
    (_, _, wide), (_, _, depth) = _product(products[_INDEX_QUERIES]), _product(products[_INDEX_KEY])
    heads = wide // depth
    met = batch * heads * pairs(phase.tokens, phase.keys, None, 0, lower_right=True)
    work = Work(
        matrix_flops=2 * met * depth,
        other_flops=3 * met,  # the positive part, times the weight of its head, added up
        bytes_read=batch * (phase.tokens * heads * (depth + 4) + phase.keys * (depth + 4)),
        bytes_written=batch * phase.tokens * (depth + 4),  # the new keys
        precision="fp8",
    )
    return OperatorCount.of(
        work,
        name=SELECTION,
        module=layer + _INDEXER,
        phase=products[_EXPANSION].phase,
        shapes=f"{batch}x{heads}x{phase.tokens}x{depth}, {batch}x{phase.keys}x{depth}",
        category="attention",
    )
