"""Hadamard transforms of the last dimension, alone and with what comes before or after them.

Order of arguments: sgl-kernel 0.3.21; SGLang 0.5.23 (``sglang/kernels/ops/quantization/hadamard.py``); vLLM 0.11.0 to 0.33.0 (the
schema of ``_C``); ROCm/aiter 6dc68e5 and e404860 (``aiter/ops/quant.py``).
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.costs import ROTARY_EMBEDDING
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula


def transform_flops(width: int) -> int:
    """FLOPs a number: one addition in each of log2(width) steps, and a scale. Rows are padded to a power of 2."""
    if width < 1:
        raise NotCounted("invalid size")
    return (width - 1).bit_length() + 1


@formula("sgl_kernel::fast_hadamard_transform", "sglang::hadamard_transform", "_C::hadacore_transform", category="element-wise")
def _returned(signature: Signature) -> Work:
    inputs = Arguments(signature, "input").tensor("input")
    return Work(
        other_flops=inputs.numel * transform_flops(inputs.shape[-1]),
        bytes_read=size(inputs),
        bytes_written=written(inputs),
        precision=precision_of(inputs.dtype),
    )


_AITER: Final[dict[str, str]] = {
    "rotate_activation": "out input",
    "_rotate_activation_bf16": "out input",
    "_rotate_activation_fp4quant": "out scale input",
    "rope_rotate_activation": "out input cos sin positions rope_dim scale=None",
    "_rope_rotate_activation_bf16": "out input cos sin positions rope_dim rotates=True",
    "_rope_rotate_activation_fp4quant": "out scale input cos sin positions rope_dim group=32 shuffle=True rotates=True",
    "_rope_rotate_activation_fp8quant": "out scale input cos sin positions rope_dim group=128 rotates=True",
}


@formula(*(f"aiter::{name}" for name in _AITER), category="element-wise")
def _rotated(signature: Signature) -> Work:
    """The last ``rope_dim`` numbers of a head rotate by the token's position before the transform; narrow results have scales."""
    args = Arguments(signature, _AITER[signature.name.removeprefix("aiter::")])
    inputs, out, scale = args.tensor("input"), args.tensor("out"), args.optional("scale")
    width, read, flops = inputs.shape[-1], size(inputs), 0
    if not args.has("rotates") or args.flag("rotates"):
        flops += inputs.numel * transform_flops(width)
    if args.has("positions"):
        positions, cos, sin = (args.tensor(name) for name in ("positions", "cos", "sin"))
        flops += inputs.numel // width * args.integer("rope_dim") * ROTARY_EMBEDDING
        rows = min(positions.numel, cos.numel // cos.shape[-1])
        read += size(positions) + rows * (cos.shape[-1] * size_of(cos.dtype) + sin.shape[-1] * size_of(sin.dtype))
    return Work(
        other_flops=flops + inputs.numel * DYNAMIC_QUANTIZE * (scale is not None),
        bytes_read=read,
        bytes_written=written(out, scale),
        precision=precision_of(inputs.dtype),
    )
