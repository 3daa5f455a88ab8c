"""Mixtures of experts: products with the weights of the experts that a token is routed to, and the routing itself.

FLOPs are those of tokens × experts per token (the rows). Which experts get the rows is data, so the number of experts whose weights are
read is an upper bound: as many as possible, at most all; such work states it. Of PyTorch's grouped products, a recording has it: as it
was on real tensors, and the mean of uniform routing on fake ones. Padding of rows to blocks is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, share, size, size_of
from rooflines.roofline.formulas.costs import SILU
from rooflines.roofline.formulas.matmul import grouped_product
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.scaled import FOUR_BIT, packing

DYNAMIC_QUANTIZE: Final = costs.DYNAMIC_QUANTIZE
INTEGERS: Final = ("int64", "int32", "int16", "uint32", "uint16")
SPREAD: Final = "all experts that the rows can reach are used"
UNIFORM: Final = "tokens are routed uniformly at random, mean number of experts used"
EVEN: Final = "tokens are spread evenly over the ranks"
LOCAL: Final = "all rows belong to experts of this rank"
# Bytes of one element in the formats that names of kernels have, with the scales of their blocks: one byte for 32 elements of the MX
# formats (OCP Microscaling Formats 1.0), for 16 elements of NVFP4.
ELEMENT_BYTES: Final[dict[str, float]] = {
    "mxfp4": 0.5 + 1 / 32, "mxe2m1": 0.5 + 1 / 32, "e2m1": 0.5 + 1 / 16,
    "mxe4m3": 1 + 1 / 32, "e4m3": 1, "fp8e4nv": 1, "fp8e4b8": 1, "fp8e5": 1, "fp8e5b16": 1,
    "bf16": 2, "bfloat16": 2, "fp16": 2, "fp32": 4,
}  # fmt: skip
PRECISIONS: Final[dict[str, str]] = {
    "mxfp4": "fp8", "mxe2m1": "fp8", "e2m1": "fp8", "mxe4m3": "fp8", "e4m3": "fp8",
    "fp8e4nv": "fp8", "fp8e4b8": "fp8", "fp8e5": "fp8", "fp8e5b16": "fp8",
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "fp32": "fp32",
}  # fmt: skip


def assumed(experts: int, global_experts: int | None = None, *, ranks: bool = False) -> str:
    """What the work of these experts assumes; nothing for a single one. ``ranks`` says that rows may be of experts on other ranks,
    whose number is not recorded."""
    return "; ".join(
        text for text, holds in ((SPREAD, experts > 1), (EVEN, global_experts not in (None, experts)), (LOCAL, ranks)) if holds
    )


def experts_hit(experts: int, chosen: int, tokens: int) -> float:
    """Experts that get a token, on average, where each of ``tokens`` chooses ``chosen`` of ``experts`` uniformly: an expert is left out
    by one token with probability 1 - chosen / experts."""
    return experts * (1 - (1 - min(chosen, experts) / experts) ** tokens)


def grouped_mm(signature: Signature) -> Work:
    """A recording adds the last two arguments (``profiler/dispatch/routing.py``)."""
    args = Arguments(signature, "self other offs=None bias=None out_dtype=None used=None chosen=None")
    left, right, offsets, bias = (args.tensor("self"), args.tensor("other"), args.optional("offs"), args.optional("bias"))
    flops, shape = grouped_product(left, right, offsets)
    used, chosen, assumption = args.given("used"), args.given("chosen"), ""
    weights: float = size(right)
    if len(left.shape) == 2 and len(right.shape) == 3 and right.shape[0]:
        groups, rows = right.shape[0], left.shape[0]
        if not isinstance(used, int):
            known = isinstance(chosen, int) and chosen > 0
            used = experts_hit(groups, chosen, rows // chosen) if known else min(groups, rows)
            assumption = "" if groups == 1 else UNIFORM if known else SPREAD
        weights = weights * used / groups
    made = prod(shape)
    return Work(
        matrix_flops=flops,
        other_flops=made * bool(bias),
        bytes_read=size(left, offsets, bias) + round(weights),
        bytes_written=made * size_of(args.dtype("out_dtype", left.dtype)),
        precision=matrix_precision_of(left.dtype),
        assumption=assumption,
    )


def product_of_experts(
    rows: int, inner: int, outputs: int, activations: TensorArg, weight: TensorArg, others: Iterable[TensorArg | None], made: int,
    precision: str | None = None, *, ranks: bool = False,
) -> Work:  # fmt: skip
    """``rows`` rows of ``inner`` numbers, each with an expert's [outputs, inner] of ``weight`` [experts, ...]; writes ``made`` bytes.

    ``activations`` are read as they are, perhaps once for several rows.
    """
    experts = weight.shape[0]
    return Work(
        matrix_flops=2 * rows * inner * outputs,
        bytes_read=size(activations) + share((weight, *others), experts, rows),
        bytes_written=made,
        precision=precision or (matrix_precision_of(activations.dtype) if activations.dtype not in FOUR_BIT else "fp4"),
        assumption=assumed(experts, ranks=ranks),
    )


def fused_experts(
    hidden: TensorArg, first: TensorArg, second: TensorArg, routing: tuple[TensorArg, TensorArg], others: Iterable[TensorArg | None],
    *, widened: bool = False, global_experts: int | None = None, inner: int | None = None, out: str = "",
    precision: str | None = None, ranks: bool = False,
) -> Work:  # fmt: skip
    """A whole layer: ``hidden`` [tokens, k] with ``first`` [experts, 2 * inner, k] ([experts, inner, k] without a gate), an activation,
    ``second`` [experts, k, inner], and the sum over a token's experts by the weights of ``routing`` (weights, ids).

    Weights may be packed along their last dimension, and activations of two numbers in an element, whose result is ``out``. fp8 and
    int8 weights mean that the activations are quantized too, unless ``widened``. ``others`` are scales and biases. ``global_experts``
    is the number of experts on all ranks; ids may be of experts on other ones; ``ranks`` says that they may be although that number is
    not recorded. ``inner`` is given where the layout of the weights hides it; the first product is as much wider as its weight is
    larger. What lies between the two products is not written.
    """
    fp4 = hidden.dtype in FOUR_BIT
    tokens, depth = hidden.shape[0], hidden.shape[-1] * (2 if fp4 else 1)
    if (
        (fp4 and not out)
        or len(hidden.shape) != 2
        or len(first.shape) != 3
        or len(second.shape) != 3
        or routing[1].numel % max(tokens, 1)
    ):
        raise NotCounted("shapes of the experts not understood")
    experts, rows = first.shape[0], routing[1].numel
    if global_experts is not None and global_experts > experts:
        rows = -(-rows * experts // global_experts)
    if inner is None:
        inner = second.shape[-1] * packing(depth, first.shape[-1])
        wide = first.shape[1]
        if wide not in (inner, 2 * inner):  # padding differs
            inner = wide // 2
    else:
        wide = inner if first.numel == second.numel else 2 * inner
    if not out and size_of(hidden.dtype) == 1:
        raise NotCounted("dtype of the result not recorded")
    quantized = not widened and first.dtype not in FOUR_BIT and size_of(first.dtype) == 1 and size_of(hidden.dtype) > 1
    precision = precision or ("fp4" if fp4 else matrix_precision_of(first.dtype if quantized else hidden.dtype))
    cost = (SILU + (wide > inner)) * rows * inner + 2 * rows * depth
    if quantized or fp4:
        cost += DYNAMIC_QUANTIZE * ((0 if fp4 else tokens * depth) + rows * inner)
    return Work(
        matrix_flops=2 * rows * depth * (wide + inner),
        other_flops=cost,
        bytes_read=size(hidden, *routing) + share((first, second, *others), experts, rows),
        bytes_written=tokens * depth * size_of(out or hidden.dtype),
        precision=precision,
        assumption=assumed(experts, global_experts, ranks=ranks),
    )
