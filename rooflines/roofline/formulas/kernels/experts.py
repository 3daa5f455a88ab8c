"""Mixture of experts: what the rows that tokens send to their experts make a grouped product compute and move."""

from __future__ import annotations

from typing import Final

# Bytes of one element in the formats of weights and activations, with the scales of their blocks: one byte for 32 elements of the MX
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


def touched(experts: int, rows: int) -> int:
    """Experts whose weights are read for this many rows, at most."""
    return min(experts, rows)
