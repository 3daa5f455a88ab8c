"""Advice on attention that is written as products and a softmax."""

from __future__ import annotations

import math
from typing import NamedTuple

from rooflines.roofline.advice.case import Advice, Case, Ran, total, whole
from rooflines.roofline.advice.matmul import MULTIPLE, culprits, is_hopper
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.bounds.model import place
from rooflines.roofline.formulas import Work
from rooflines.roofline.tensor_sizes import tensor_bytes
from rooflines.units import counted, seconds

_SOFTMAX = ("aten::softmax", "aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax")
# The backward pass of fused attention computes the scores once more: five products where the forward pass has two.
_BACKWARD_PRODUCTS = 2.5


class _Written(NamedTuple):
    """Attention written as operators: the softmax, the products around it and the other passes over the scores."""

    softmax: Ran
    products: list[Ran]
    passes: list[Ran]
    width: int

    @property
    def parts(self) -> list[Ran]:
        return [self.softmax, *self.products, *self.passes]


def hand_written(case: Case) -> Advice | None:
    """Attention as two products with a softmax between them, whose scores go through memory."""
    every = case.ran(lambda one: isinstance(one.row, OperatorRow))
    found: list[_Written] = []
    used: set[object] = set()
    for softmax in every:
        written = _around(softmax, [one for one in every if one.key not in used]) if softmax.row.name in _SOFTMAX else None
        if written is not None:
            found.append(written)
            used.update(part.key for part in written.parts)
    if not found:
        return None
    parts = [part for written in found for part in written.parts]
    time_s, fused_s = total(parts), sum(_fused_s(case, written) for written in found)
    if not case.analysis.ceilings:
        # The products remain; what only reads and writes the scores goes.
        fused_s = total([part for written in found for part in written.products])
    largest = max(found, key=lambda written: total(written.parts)).softmax.row
    scores = largest.shapes.partition(",")[0]
    basis = "the roofline of fused attention" if case.analysis.ceilings else "the products alone"
    return Advice(
        title="Use fused attention",
        saves_s=time_s - fused_s,
        evidence=(
            f"matrix products, softmax and other passes over the scores ({scores}) take {seconds(time_s)} {case.per} "
            f"({case.share(time_s)}){_in_modules(found)}; {basis}: {seconds(fused_s)}{_on_fallback(case, found)}"
        ),
        suggestion="torch.nn.functional.scaled_dot_product_attention(q, k, v), which does not write the scores to memory",
        of=whole(parts),
    )


def _around(softmax: Ran, every: list[Ran]) -> _Written | None:
    """The attention that ``softmax`` is part of; None where no product makes its scores and none reads its result."""
    scores = softmax.tensors[0] if softmax.tensors else ()
    if len(scores) < 3 or min(scores[-2:]) < 2:
        return None
    near = [one for one in every if one.row.phase == softmax.row.phase and _related(one.row.module, softmax.row.module)]
    products = [one for one in near if one.category == "matmul" and _uses(one, scores)]
    makes = [one for one in products if _operands(one)[1][-1] == scores[-1] and _operands(one)[1][-2] != scores[-1]]
    reads = [one for one in products if _operands(one)[0][-2:] == scores[-2:]]
    if sum(one.row.calls for one in products) < 2 * softmax.row.calls:
        return None
    if softmax.row.phase != "backward" and not (reads and (makes or len(reads) > 1)):
        return None
    widths = [size for one in products for factor in _operands(one) for size in factor[-2:] if size not in scores[-2:]]
    passes = [
        one
        for one in near
        if one.category in ("element-wise", "copy", "reduction") and one.key != softmax.key and scores in one.tensors
    ]
    return _Written(softmax, products, passes, min(widths, default=scores[-1]))


def _uses(product: Ran, scores: tuple[int, ...]) -> bool:
    """Whether a batched product reads scores of this size or makes them."""
    operands = _operands(product)
    if len(operands) < 2 or math.prod(operands[0][:-2]) != math.prod(scores[:-2]):
        return False
    (left, right), sizes = operands, scores[-2:]
    return sizes in (left[-2:], left[:-3:-1], right[-2:], right[:-3:-1], (left[-2], right[-1]))


def _operands(product: Ran) -> list[tuple[int, ...]]:
    """The two factors of a batched product; fewer where it is none."""
    return [tensor for tensor in product.tensors if len(tensor) >= 3][-2:]


def _related(one: str, other: str) -> bool:
    """Whether two modules are the same, or one is directly in the other."""
    return one == other or (one.rpartition(".")[0] == other and one != "") or (other.rpartition(".")[0] == one and other != "")


def _fused_s(case: Case, written: _Written) -> float:
    """The least time of fused attention over the same operands."""
    row, scores = written.softmax.row, written.softmax.tensors[0]
    assert isinstance(row, OperatorRow)
    queries, keys, batch = scores[-2], scores[-1], math.prod(scores[:-2])
    precision = next((one.row.precision for one in written.products if isinstance(one.row, OperatorRow)), None) or "fp32"
    flops, read, wrote = 4 * batch * queries * keys * written.width, queries + 2 * keys, queries
    if row.phase == "backward":
        flops, read, wrote = round(flops * _BACKWARD_PRODUCTS), 3 * queries + 2 * keys, queries + 2 * keys
    moved = tensor_bytes((batch, written.width), precision)
    judged = "fp32" if precision == "tf32" else precision
    work = Work(matrix_flops=flops, bytes_read=read * moved, bytes_written=wrote * moved, precision=judged)
    placement = place(work, case.ceilings, precision=precision)
    if placement is None:
        return 0.0
    attained = case.attainable(precision, [one.key for one in written.products]) if placement.bound == "compute" else 1.0
    return placement.lower_bound_s * row.calls / attained


def _in_modules(found: list[_Written]) -> str:
    modules = sorted({written.softmax.row.module for written in found} - {""})
    if not modules:
        return ""
    return f" in {modules[0]}" + (f" and {counted(len(modules) - 1, 'other module')}" if len(modules) > 1 else "")


def _on_fallback(case: Case, found: list[_Written]) -> str:
    """The part of the products that runs on kernels for sizes that are not aligned."""
    wrong = [(one, sizes) for written in found for one in written.products if (sizes := culprits(one, is_hopper(case)))]
    if not wrong:
        return ""
    time_s, size = sum(one.left_s for one, _ in wrong), max(wrong, key=lambda pair: pair[0].left_s)[1][0]
    return f"; {seconds(time_s)} are products on fallback kernels, because {size} is not a multiple of {MULTIPLE}"
