"""Mixtures of experts: products with the weights of the experts that a token is routed to, and the routing
itself.

FLOPs are those of tokens × experts per token (the rows). Which experts get the rows is data, so the number of
experts whose weights are read is an upper bound: as many as possible, at most all; such work states it. Of
PyTorch's grouped products, a recording has it: as it was on real tensors, and the mean of uniform routing on
fake ones. Padding of rows to blocks is not counted.
"""

from __future__ import annotations

from rooflines.roofline.count.formulas.rows import named

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


@named
def experts_hit(experts: int, chosen: int, tokens: int) -> float:
    """Experts that get a token, on average, where each of ``tokens`` chooses ``chosen`` of ``experts``
    uniformly: an expert is left out by one token with probability 1 - chosen / experts."""
    return experts * (1 - (1 - min(chosen, experts) / experts) ** tokens)
