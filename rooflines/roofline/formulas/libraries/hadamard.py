"""Hadamard transforms of the last dimension, alone and with what comes before or after them."""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.rows import Row, register

# One addition a number in each of log2(k) steps, and a scale. Rows are padded to a power of 2.
_TRANSFORM: Final = "input.n * ((k - 1).bit_length() + 1)"
_QUANTIZE: Final = "bool(scale) * input.n * (QUANTIZE + 2)"
# The last ``rope_dim`` numbers of a head rotate by the token's position before the transform.
_ROTATION: Final = "heads * rope_dim * ROTARY_EMBEDDING"
_ROPE: Final = "read input[*heads k], read cos, read sin, read positions, rope_dim"
_TABLES: Final = "input.size + positions.size + min(positions.n, cos.n // cos[-1]) * (cos[-1] * cos.item + sin[-1] * sin.item)"
_PLAIN: Final = f"{_ROTATION} + bool(rotates) * {_TRANSFORM}"
_NARROW: Final = f"{_PLAIN} + {_QUANTIZE}"
_ROWS: Final[dict[str, Row]] = {
    "sgl_kernel::fast_hadamard_transform sglang::hadamard_transform _C::hadacore_transform": Row(
        "read input[*rows k]", other=_TRANSFORM, result="input"
    ),
    "aiter::rotate_activation aiter::_rotate_activation_bf16": Row("write out, read input[*rows k]", other=_TRANSFORM),
    "aiter::_rotate_activation_fp4quant": Row("write out, write scale?, read input[*rows k]", other=f"{_TRANSFORM} + {_QUANTIZE}"),
    "aiter::rope_rotate_activation": Row(
        f"write out, {_ROPE}, write scale?", other=f"{_ROTATION} + {_TRANSFORM} + {_QUANTIZE}", reads=_TABLES
    ),
    "aiter::_rope_rotate_activation_bf16": Row(f"write out, {_ROPE}, rotates=True", other=_PLAIN, reads=_TABLES),
    "aiter::_rope_rotate_activation_fp4quant": Row(
        f"write out, write scale?, {_ROPE}, group=32, shuffle=True, rotates=True", other=_NARROW, reads=_TABLES
    ),
    "aiter::_rope_rotate_activation_fp8quant": Row(
        f"write out, write scale?, {_ROPE}, group=128, rotates=True", other=_NARROW, reads=_TABLES
    ),
}
register(_ROWS, "element-wise")
