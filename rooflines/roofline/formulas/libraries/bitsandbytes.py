"""bitsandbytes: products and layers of 8-bit integers and 4-bit weights, blockwise quantization, and optimizers with 8-bit states.

4-bit weights are packed two to a byte, with a scale for each block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import product_row

# [..., k] @ [n, k]^T of int8; a scaled one multiplies each result by the scales of its row and its column.
_INT8: Final = "read left[*m k], read right[n =k]"
_SCALED: Final = f"{_INT8}, read row_stats?, read col_stats?"
_EACH: Final = "2 + bool(bias)"
# [..., k] with a weight [n, k] of 4 bits, widened as it is read.
_4_BIT: Final = "read self[*m k], read packed, shape[n =k], read absmax?"
_WIDEN: Final = "DEQUANTIZE * k * n"
_PRODUCTS: Final[dict[str, Row]] = {
    "int8_linear_matmul": product_row(_INT8, "4", precision="=int8"),
    "int8_scaled_mm": product_row(f"{_SCALED}, read bias?, dtype=None", "item('dtype', 'float16')", _EACH, precision="=int8"),
    "gemv_4bit": product_row(f"{_4_BIT}, read code?, blocksize", "self.item", besides=_WIDEN),
    "gemm_4bit": product_row(
        f"{_4_BIT}, blocksize, quant_type, read bias?, read absmax_8bit?, read absmax_code?, offset=None",
        "self.item",
        each="bool(bias)",
        besides=_WIDEN,
    ),
}
register(_PRODUCTS, "matmul", namespace="bitsandbytes::")

# Columns with outliers are multiplied separately; their number is not recorded.
_MIXED: Final = product_row(f"view wide, {_SCALED}, view outliers?, read bias?", "wide.item", _EACH, precision="=int8")
register({"bitsandbytes::int8_mixed_scaled_mm": replace(_MIXED, fits="not outliers.n")}, "matmul", wraps=True)

_CONVERSIONS: Final[dict[str, Row]] = {
    # int8 and the largest magnitude of each row; the double form also by columns
    "int8_vectorwise_quant": Row("read self[*rows k]", DYNAMIC_QUANTIZE, "self", writes="self.n + 4 * rows"),
    "int8_double_quant": Row("read self[*rows k]", 2 * DYNAMIC_QUANTIZE, "self", writes="2 * self.n + 4 * (rows + k)"),
    "int8_vectorwise_dequant": Row("read self, read stats", other="DEQUANTIZE * self.n", writes="4 * self.n", precision="=fp32"),
    "int8_mm_dequant": Row(
        "read self, read row_stats, read col_stats, dtype=None, read bias?",
        other="self.n * (2 + bool(bias))",
        writes="self.n * item('dtype', 'float16')",
        precision="=fp32",
    ),
    "quantize_4bit": Row("read self, blocksize", DYNAMIC_QUANTIZE, "self", writes="up(self.n, 2) + 4 * up(self.n, blocksize)"),
    "dequantize_4bit": Row(
        "read self, read absmax, blocksize, quant_type, shape[*numbers], dtype",
        other="DEQUANTIZE * numbers",
        writes="numbers * item('dtype', '')",
        precision="dtype",
    ),
    "quantize_blockwise": Row("read self, read code, blocksize", DYNAMIC_QUANTIZE, "self", writes="self.n + 4 * up(self.n, blocksize)"),
    "dequantize_blockwise": Row(
        "read self, read absmax, read code, blocksize, dtype",
        other="DEQUANTIZE * self.n",
        writes="self.n * item('dtype', '')",
        precision="dtype",
    ),
}
register(_CONVERSIONS, "element-wise", namespace="bitsandbytes::")

# Two states are Adam's, LAMB's or AdEMAMix's, one that of momentum, RMSprop, Adagrad or Lion. 8-bit states widen and narrow again.
_STATES: Final = "name, read grad, update param, update state1, update state2?"
_STEP: Final = "ADAM if state2 else SGD_MOMENTUM + SGD"
_OPTIMIZERS: Final[dict[str, Row]] = {
    "optimizer_update_32bit": Row(f"{_STATES}, unorm=None", other=f"param.n * ({_STEP})", precision="param"),
    "optimizer_update_8bit_blockwise": Row(
        f"{_STATES}, beta1, beta2, beta3, alpha, eps, step, lr, qmap1, qmap2, update absmax1?, update absmax2?",
        other=f"param.n * (({_STEP}) + (1 + bool(state2)) * (DEQUANTIZE + QUANTIZE + 2))",
        precision="param",
    ),
}
register(_OPTIMIZERS, "optimizer", namespace="bitsandbytes::")
