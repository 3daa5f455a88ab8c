"""AITER's products (``aiter``).

Order of arguments: AITER, ``aiter/tuned_gemm.py``, ``aiter/ops/gemm_op_*.py``, ``batched_gemm_op_*.py``, ``opus/``, ``gradlib.py`` and
``triton/gemm/`` (commit e4048607; earlier names cf348df, 6e50988).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision, register

_SCALED: Final = "left, right, read scale_a, read scale_b"
_OUT: Final = "left, right, write out"
_PRODUCTS: Final[dict[str, str]] = {
    "gemm_a16w16_": "left, right, read bias?, out_dtype=15, write out?",
    "gemm_a16w16_atomic_": "left, right, out_dtype=15, write out?",
    "gemm_a16w16": "left, right, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_c?",
    "_opus_gemm_a16w16_tune_raw batched_gemm_bf16_tune batched_gemm_bf16": f"{_OUT}, read bias?",
    "_opus_gemm_bf16_dispatch": f"{_OUT}, groups, read scale_a?, read scale_b?, read bias?",
    "_gemm_a16w16_asm gemm_a16w16_asm": f"{_OUT}, semaphore, read bias?",
    "gemm_a8w8 gemm_a8w8_CK gemm_a8w8_bpreshuffle gemm_a4w4": f"{_SCALED}, read bias?, out_dtype=15",
    "gemm_a8w8_blockscale gemm_a8w8_blockscale_bpreshuffle batched_gemm_a8w8_mxscale": f"{_SCALED}, out_dtype=15",
    "gemm_afp4wfp4_": f"{_SCALED}, out_dtype=15, write out?",
    "gemm_a8w8_bpreshuffle_ck gemm_a8w8_bpreshuffle_cktile gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile"
    " gemm_a8w8_blockscale_bpreshuffle_ck gemm_a8w8_blockscale_bpreshuffle_cktile _flatmm_a8w8_blockscale_asm"
    " flatmm_a8w8_blockscale_asm mi350_a8w8_blockscale_asm gfx950_a8w8_blockscale_asm gemm_a4w4_blockscale gemm_a8w8_tune"
    " gemm_a8w8_bpreshuffle_tune gemm_a8w8_bpreshuffle_cktile_tune gemm_a8w8_blockscale_tune gemm_a8w8_blockscale_cktile_tune"
    " gemm_a8w8_blockscale_bpreshuffle_tune gemm_a8w8_blockscale_bpreshuffle_cktile_tune gemm_a4w4_blockscale_tune"
    " batched_gemm_a8w8_tune _opus_gemm_a8w8_blockscale_bpreshuffle_tune_raw _mxfp4_gemm_asm _mxfp8_mxfp8_gemm_asm"
    " _mxfp8_mxfp4_gemm_asm": f"{_SCALED}, write out",
    "gemm_a8w8_ck batched_gemm_a8w8": f"{_SCALED}, write out, read bias?",
    "_gemm_a8w8_asm gemm_a8w8_asm _gemm_a4w4_asm gemm_a4w4_asm": f"{_SCALED}, write out, kernel, read bias?",
    "_nvfp4_gemm_asm": f"{_SCALED}, global_a, global_b, write out",
    "_gemm_a8w8_blockscale_bpreshuffle_asm gemm_a8w8_blockscale_bpreshuffle_asm": f"{_OUT}, read scale_a, read scale_b, read bias?",
    "_opus_bmm_a8w8_mxscale_raw": f"{_OUT}, read scale_a, read scale_b",
    "hipb_mm": "left, right, solution, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_out?",
    "rocb_mm": "left, right",
}
register(_PRODUCTS, namespace="aiter::")


# --- activations that become fp4 on the way ----------------------------------------------------------------------------------------


def to_fp4(signature: Signature, schema: str) -> Work:
    """Activations [.., m, k] with a weight of 4-bit numbers, [n, k / 2] or [b, n, k / 2], perhaps in blocks [n / 16, 8 * k]."""
    args = Arguments(signature, schema)
    left, right, out = args.tensor("left"), args.tensor("right"), args.optional("out")
    wide = left.dtype not in FOUR_BIT
    inner = left.shape[-1] * (1 if wide else 2)
    batch = right.shape[0] if len(right.shape) == 3 else 1
    if right.dtype not in FOUR_BIT or 2 * right.numel % (batch * inner) or (wide and size_of(left.dtype) < 2):
        raise NotCounted(f"inner dimensions {inner} and {right.shape[-1]} differ")
    n, rows = 2 * right.numel // (batch * inner), left.numel // left.shape[-1]
    dtype = args.dtype("dtype", left.dtype if wide else "bfloat16")
    return Work(
        matrix_flops=product_flops(1, rows, inner, n),
        other_flops=left.numel * DYNAMIC_QUANTIZE * wide + rows * n,
        bytes_read=size(left, right, args.tensor("scale"), args.optional("left_scale")),
        bytes_written=written(out) if out else rows * n * size_of(dtype),
        precision="fp4" if wide else operand_precision(left, right),
    )


formula("aiter::gemm_a16wfp4", "aiter::gemm_a16wfp4_", category="matmul")(
    partial(to_fp4, schema="left right scale atomic=False dtype=15 out=None")
)
formula("aiter::gemm_a16wfp4_preshuffle_", category="matmul")(
    partial(to_fp4, schema="left right scale prequant=True dtype=15 out=None")
)
formula("aiter::batched_gemm_a16wfp4", "aiter::batched_gemm_a16wfp4_", category="matmul")(
    partial(to_fp4, schema="left right scale dtype=15 out=None")
)
