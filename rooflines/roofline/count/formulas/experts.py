"""Mixtures of experts: products with the weights of the experts that a token is routed to, and the routing
itself.

FLOPs are those of tokens × experts per token (the rows). Which experts get the rows is data, so the number of
experts whose weights are read is an upper bound: as many as possible, at most all; such work states it. Of
PyTorch's grouped products, a recording has it: as it was on real tensors, and the mean of uniform routing on
fake ones. Padding of rows to blocks is not counted.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas.arguments import Arguments, size, size_of
from rooflines.roofline.count.formulas.matmul import grouped_product
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of

SPREAD = "all experts that the rows can reach are used"
UNIFORM = "tokens are routed uniformly at random, mean number of experts used"
# Bytes of one element in the formats that names of kernels have, with the scales of their blocks: one byte
# for 32 elements of the MX formats (OCP Microscaling Formats 1.0), for 16 elements of NVFP4.
ELEMENT_BYTES: dict[str, float] = {
    "mxfp4": 0.5 + 1 / 32,
    "mxe2m1": 0.5 + 1 / 32,
    "e2m1": 0.5 + 1 / 16,
    "mxe4m3": 1 + 1 / 32,
    "e4m3": 1,
    "fp8e4nv": 1,
    "fp8e4b8": 1,
    "fp8e5": 1,
    "fp8e5b16": 1,
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "fp32": 4,
}
PRECISIONS: dict[str, str] = {
    **dict.fromkeys(ELEMENT_BYTES, "fp8"),
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}


def experts_hit(experts: int, chosen: int, tokens: int) -> float:
    """Experts that get a token, on average, where each of ``tokens`` chooses ``chosen`` of ``experts``
    uniformly: an expert is left out by one token with probability 1 - chosen / experts."""
    return experts * (1 - (1 - min(chosen, experts) / experts) ** tokens)


def grouped_mm(signature: Signature) -> Work:
    """A recording adds the last two arguments (``profiler/calls/routing.py``)."""
    args = Arguments(signature, "self other offs=None bias=None out_dtype=None used=None chosen=None")
    left, right = args.operands("self", "other")
    offsets, bias = args.optionals("offs", "bias")
    flops, shape = grouped_product(left, right, offsets)
    used = args.given("used")
    chosen = args.given("chosen")
    assumption = ""
    weights: float = size(right)
    if len(left.shape) == 2 and len(right.shape) == 3 and right.shape[0]:
        groups = right.shape[0]
        rows = left.shape[0]
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
