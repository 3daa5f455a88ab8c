"""Multi-head latent attention (MLA, DeepSeek-V2, arXiv 2405.04434) as servers compute it, in place of transformers' operators.

The KV cache has a latent of ``rank`` numbers and a rotated key of ``rope`` numbers a token, for all heads. transformers expands the
cache to keys and values of each head in every step. Servers absorb the expansion: the query of a head is multiplied with the key half
of its weights, its result with the value half, so that a step of decode reads the latents alone. In prefill they expand, too. In both
one kernel does what lies between the projections: rotation, the new entries of the cache, attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rooflines.roofline.counting.count import Count, OperatorCount
from rooflines.roofline.formulas import Work
from rooflines.roofline.formulas.costs import SOFTMAX
from rooflines.roofline.formulas.lengths import pairs
from rooflines.roofline.operator_rows import with_ancestors
from rooflines.roofline.shapes import sizes_in

if TYPE_CHECKING:
    from rooflines.roofline.counting.phases import GenerationCount, PhaseCount

AS_SERVED: Final = "MLA as servers compute it: one kernel for attention, its expansion absorbed in decode"
KERNEL: Final = "latent_attention"
_EXPANSION: Final = ".kv_b_proj"
# Besides the expansion: the projections to the latent, of the queries, and of the result, by the names that networks give them.
_DOWN, _QUERIES, _OUTPUT = (".kv_a_proj_with_mqa",), (".q_b_proj", ".q_proj"), (".o_proj",)
_PRODUCTS: Final = ("aten::mm", "aten::addmm")
# A module with this below it attends to some of the keys.
_SELECTS: Final = ".indexer"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of one layer: heads, numbers in a latent, in a rotated key, in the rest of a key, in a value; bytes of a number."""

    heads: int
    rank: int
    rope: int
    key: int
    value: int
    item: int


def with_served_latent_attention(generation: GenerationCount) -> GenerationCount:
    """Return the generation with all latent attention as servers compute it; the same object where it has none."""
    batch = generation.workload.batch_size or 1
    phases = tuple(_served(phase, batch) for phase in generation.phases)
    return generation if phases == generation.phases else replace(generation, phases=phases)


def _served(phase: PhaseCount, batch: int) -> PhaseCount:
    rows = phase.count.operators
    layers = {row.module.removesuffix(_EXPANSION) for row in rows if row.module.endswith(_EXPANSION)}
    layers -= {layer for layer in layers if any(row.module.startswith(layer + _SELECTS) for row in rows)}
    sizes = {layer: found for layer in layers if (found := _sizes(layer, rows)) is not None}
    absorbs = phase.tokens < phase.keys
    kept: list[OperatorCount] = []
    replaced: list[OperatorCount] = []
    for row in rows:
        expands = absorbs and row.module.removesuffix(_EXPANSION) in sizes and row.module.endswith(_EXPANSION)
        (replaced if row.module in sizes or expands else kept).append(row)
    made = [row for layer, of in sizes.items() for row in _rows(layer, of, phase, batch, absorbs)]
    return replace(phase, count=_changed(phase.count, (*kept, *made), replaced, made)) if made else phase


def _sizes(layer: str, rows: Iterable[OperatorCount]) -> _Sizes | None:
    """The sizes of a layer by the products in it; None where they are not all plain ones."""
    products = {row.module.removeprefix(layer): row for row in rows if row.module.startswith(layer) and row.name in _PRODUCTS}
    found = [
        next((_product(products[name]) for name in names if name in products), None)
        for names in (_DOWN, (_EXPANSION,), _QUERIES, _OUTPUT)
    ]
    down, expansion, queries, output = found
    if down is None or expansion is None or queries is None or output is None:
        return None
    (_, _, latent), (tokens, rank, expanded), (_, _, asked), (_, result, _) = down, expansion, queries, output
    rope, keys = latent - rank, expanded - result  # of all heads: heads * key
    if rope <= 0 or keys <= 0 or (asked - keys) % rope:
        return None
    heads, size = (asked - keys) // rope, products[_EXPANSION]
    item = (size.bytes_read or 0) // size.calls // (tokens * rank + rank * expanded)
    return _Sizes(heads, rank, rope, keys // heads, result // heads, item)


def _product(row: OperatorCount) -> tuple[int, int, int]:
    """[m, k] @ [k, n] of a row."""
    left, right = sizes_in(row.shapes)[-2:]
    return prod(left[:-1]), left[-1], right[-1]


def _rows(layer: str, of: _Sizes, phase: PhaseCount, batch: int, absorbs: bool) -> Iterator[OperatorCount]:
    tokens, keys = batch * phase.tokens, batch * phase.keys
    like = next(row for row in phase.count.operators if row.module == layer + _EXPANSION)

    def made(name: str, module: str, category: str, shapes: str, work: Work) -> OperatorCount:
        return OperatorCount(
            name=name, module=module, phase=like.phase, shapes=shapes, category=category, calls=1, precision=like.precision,
            engine=work.engine, flops=work.flops, matrix_flops=work.matrix_flops, bytes=work.bytes, bytes_read=work.bytes_read,
            bytes_written=work.bytes_written,
        )  # fmt: skip

    head = of.key + of.rope, of.value
    if absorbs:
        for inner, outer in ((of.key, of.rank), (of.rank, of.value)):
            shapes = f"{of.heads}x{tokens}x{inner}, {of.heads}x{inner}x{outer}"
            work = Work(
                matrix_flops=2 * of.heads * tokens * inner * outer,
                bytes_read=of.item * of.heads * inner * (tokens + outer),
                bytes_written=of.item * of.heads * tokens * outer,
            )
            yield made("aten::bmm", layer + _EXPANSION, "matmul", shapes, work)
        head = of.rank + of.rope, of.rank
        cached = keys * (of.rank + of.rope)
    else:
        cached = keys * (of.heads * (of.key + of.value) + of.rope)
    met = batch * of.heads * pairs(phase.tokens, phase.keys, None, 0, lower_right=True)
    work = Work(
        matrix_flops=2 * met * sum(head),
        other_flops=met * (1 + SOFTMAX),
        bytes_read=of.item * (tokens * of.heads * head[0] + cached),
        bytes_written=of.item * tokens * (of.heads * head[1] + of.rank + of.rope),  # the result, and the new entries of the cache
    )
    shapes = f"{batch}x{of.heads}x{phase.tokens}x{head[0]}, {batch}x{phase.keys}x{of.rank + of.rope}"
    yield made(KERNEL, layer, "attention", shapes, work)


def _changed(count: Count, rows: tuple[OperatorCount, ...], less: list[OperatorCount], more: list[OperatorCount]) -> Count:
    """``count`` with other rows: those that are gone, and those that are new, in its totals and modules."""
    differences: dict[str, list[int]] = {}
    for sign, changed in ((-1, less), (1, more)):
        for row in changed:
            figures = row.flops or 0, row.matrix_flops or 0, row.bytes or 0
            for path in with_ancestors(row.module):
                before = differences.get(path, [0, 0, 0])
                differences[path] = [a + sign * b for a, b in zip(before, figures, strict=True)]
    modules = []
    for module in count.modules:
        flops, matrix, size = differences.get(module.path, (0, 0, 0))
        modules.append(
            replace(module, flops=module.flops + flops, matrix_flops=module.matrix_flops + matrix, bytes=module.bytes + size)
        )
    totals = {
        field: sum(getattr(row, field) or 0 for row in rows)
        for field in ("flops", "matrix_flops", "bytes", "bytes_read", "bytes_written")
    }
    ordered = sorted(rows, key=lambda row: (-(row.flops or 0), -(row.bytes or 0), row.name, row.module))
    return replace(count, **totals, operators=tuple(ordered), modules=tuple(modules))
