"""AITER's products (``aiter``).

Order of arguments: AITER, ``aiter/tuned_gemm.py``, ``aiter/ops/gemm_op_*.py``, ``batched_gemm_op_*.py``, ``opus/``, ``gradlib.py`` and
``triton/gemm/`` (commit e4048607; earlier names cf348df, 6e50988).
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import fp4_product, register_products

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
register_products(_PRODUCTS, namespace="aiter::")


# --- activations that become fp4 on the way ----------------------------------------------------------------------------------------


_LAST: Final = "dtype=15, write out?"
_NARROWED: Final[dict[str, Row]] = {
    "gemm_a16wfp4 gemm_a16wfp4_": fp4_product(f"read left, read right, read scale, atomic=False, {_LAST}"),
    "gemm_a16wfp4_preshuffle_": fp4_product(f"read left, read right, read scale, prequant=True, {_LAST}"),
    "batched_gemm_a16wfp4 batched_gemm_a16wfp4_": fp4_product(f"read left, read right, read scale, {_LAST}"),
}
register(_NARROWED, "matmul", namespace="aiter::")
