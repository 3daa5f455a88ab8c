"""vLLM's compiled operators: norms, activations, rotary embedding, quantization (``_C``) and the KV cache (``_C_cache_ops``).

Order of arguments: vLLM, ``csrc/torch_bindings.cpp`` (commit 00256d5) and ``csrc/libtorch_stable/torch_bindings.cpp`` (commit 0135b6c),
compared with the schemas in the libraries of vLLM 0.11.0, 0.14.0, 0.19.0, 0.25.0 and 0.33.0 and of sgl-kernel 0.3.21.
Strings, such as the dtype of a cache, are not in traces; the cache's tensor has its dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.costs import DYNAMIC_QUANTIZE, GELU, QUANTIZE, RMS_NORM, SIGMOID, SILU
from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.narrow import to_fp4
from rooflines.roofline.formulas.rotary import rotate_in_place
from rooflines.roofline.formulas.rows import Row, register

# A gate and a factor lie side by side in the input: one activation and one product for each element of the result.
GATED: Final[dict[str, int]] = {
    "silu_and_mul": SILU + 1, "mul_and_silu": SILU + 1, "gelu_and_mul": GELU + 1, "gelu_tanh_and_mul": GELU + 1,
    "fatrelu_and_mul": 2, "swigluoai_and_mul": SILU + 6,  # two clamps, 1.702 * x, (up + 1) * glu
    "silu_and_mul_with_clamp": SILU + 4,
}  # fmt: skip
_PLAIN: Final[dict[str, int]] = {"relu_squared": 2, "gelu_new": GELU, "gelu_fast": GELU, "gelu_quick": SIGMOID + 2}
_INTO: Final = "write out, read input"
_NORMS: Final[dict[str, Row]] = {
    "rms_norm": Row(f"{_INTO}, read weight", RMS_NORM),
    "rms_norm_weightless": Row(_INTO, RMS_NORM - 1),
    "fused_add_rms_norm": Row("update input, update residual, read weight", RMS_NORM + 1),
    "fused_add_rms_norm_weightless": Row("update input, update residual", RMS_NORM),
    "rms_norm_static_fp8_quant": Row(f"{_INTO}, read weight, read scale", RMS_NORM + QUANTIZE),
    "fused_add_rms_norm_static_fp8_quant": Row(f"{_INTO}, update residual, read weight, read scale", RMS_NORM + 1 + QUANTIZE),
    "rms_norm_dynamic_per_token_quant rms_norm_per_block_quant": Row(
        f"{_INTO}, read weight, write scale, eps, read scale_ub?, update residual?", RMS_NORM + DYNAMIC_QUANTIZE
    ),
}
register(_NORMS, "normalisation", namespace="_C::")

_ELEMENTWISE: Final[dict[str, Row]] = {
    # The activation is per element of the result, and so is the search for a block's range.
    **{name: Row(_INTO, cost, per="out") for name, cost in (GATED | _PLAIN).items()},
    "silu_and_mul_quant": Row(f"{_INTO}, read scale", SILU + 1 + QUANTIZE, per="out"),
    "silu_and_mul_per_block_quant": Row(f"{_INTO}, write scales, group_size, read scale_ub?", SILU + 1 + DYNAMIC_QUANTIZE, per="out"),
    "static_scaled_fp8_quant": Row(f"{_INTO}, read scale", QUANTIZE),
    "dynamic_scaled_fp8_quant": Row(f"{_INTO}, write scale", DYNAMIC_QUANTIZE),
    "dynamic_per_token_scaled_fp8_quant": Row(f"{_INTO}, write scale, read scale_ub?", DYNAMIC_QUANTIZE),
    "static_scaled_int8_quant": Row(f"{_INTO}, read scale, read azp?", QUANTIZE),
    "dynamic_scaled_int8_quant": Row(f"{_INTO}, write scale, write azp?", DYNAMIC_QUANTIZE),
    "per_token_group_fp8_quant per_token_group_fp8_quant_packed per_token_group_quant_int8": Row(
        "read input, write out, write scale", DYNAMIC_QUANTIZE
    ),
    "mxfp8_experts_quant": Row("read input, read sizes, read offsets, read scale_offsets, write out, write scale", DYNAMIC_QUANTIZE),
    # Two numbers of 4 bits in an element of the result.
    "silu_and_mul_nvfp4_quant": Row("write out, write scales, read input, read scale", 2 * (SILU + 1 + DYNAMIC_QUANTIZE), per="out"),
}
register(_ELEMENTWISE, "element-wise", namespace="_C::")
_EXPERTS: Final = "out, scales, read input, read scale, read offsets, read scale_offsets"
_EXPERTS_TO_FP4: Final[dict[str, Row]] = {
    # The rows of all experts as NVFP4, each with its expert's scale. The result's rows and scales are padded, which is not counted.
    "_C::scaled_fp4_experts_quant sgl_kernel::scaled_fp4_experts_quant sglang::scaled_fp4_experts_quant": Row(
        _EXPERTS, DYNAMIC_QUANTIZE, writes="input.n // 2 + input.n // 16"
    ),
    # Behind a gate half as many numbers.
    "_C::silu_and_mul_scaled_fp4_experts_quant": Row(
        _EXPERTS, other="input.n // 2 * (SILU + 1 + DYNAMIC_QUANTIZE)", writes="input.n // 4 + input.n // 32"
    ),
}
register(_EXPERTS_TO_FP4, "element-wise")


# Older versions are given the results first.
_FP4: Final = (
    to_fp4("write out, read input, write block_scale, read scale"),
    to_fp4("read input, read scale, swizzled, write out?, write block_scale?"),
)
register({"_C::scaled_fp4_quant": _FP4}, "element-wise")


# The same memory.
register({"_C::weak_ref_tensor sgl_kernel::weak_ref_tensor _C::get_cuda_view_from_cpu_tensor": Row("input")}, "other")


# --- positions ---------------------------------------------------------------------------------------------------------------------


_ROTATED: Final = "_C::rotary_embedding _C::batched_rotary_embedding sgl_kernel::rotary_embedding sglang::rotary_embedding_with_key"
register({_ROTATED: rotate_in_place()}, "element-wise")


# Queries and keys inside [tokens, heads * head] are normalised and rotated in place; the values stay.
_NORMALISED_AND_ROTATED: Final = Row(
    "view qkv, heads_q, heads_k, heads_v, head, eps, read q_weight, read k_weight, view table[places rotary], is_neox, read positions",
    other="positions.n * (heads_q + heads_k) * (head * RMS_NORM + min(rotary, head) * ROTARY_EMBEDDING)",
    reads="positions.n * (heads_q + heads_k) * head * qkv.item + selected(table, positions.n * rotary)"
    " + q_weight.size + k_weight.size + positions.size",
    writes="positions.n * (heads_q + heads_k) * head * qkv.item",
    precision="qkv",
)
register({"_C::fused_qk_norm_rope": _NORMALISED_AND_ROTATED}, "normalisation")

# --- the KV cache ------------------------------------------------------------------------------------------------------------------


# Queries and keys rotate in place, and the keys go into the cache beside the compressed ones.
_ROTATED_KEYS: Final = rotate_in_place(
    "read positions, view q_pe[*heads head], view k_pe, view kv_c, view table, is_neox, read slots, view cache, dtype, read scale?",
    "q_pe k_pe",
)
_NARROWED, _COMPRESSED, _ = stored("kv_c", "cache")
# As many blocks as the map has rows; newer versions are given the bytes of a block.
_SWAPPED: Final = Row(
    "view source, target, read map", where="moved = map.n // 2 * (source.n // source[0] * source.item)", reads="moved + map.size",
    writes="moved",
)  # fmt: skip
_STORED: Final = "reshape_and_cache reshape_and_cache_flash"


_STORED_IN: Final = " ".join(f"{library}::{name}" for library in ("_C_cache_ops", "aiter") for name in _STORED.split())
_GATHERED: Final = "every row of the result is gathered"
_COPIES: Final[dict[str, Row | tuple[Row, ...]]] = {
    _STORED_IN: store("view key, view value, view key_cache, view value_cache, read slots, dtype, read k_scale?, read v_scale?"),
    "_C_cache_ops::concat_and_cache_mla_rope_fused": replace(
        _ROTATED_KEYS,
        other=f"{_ROTATED_KEYS.other} + {_NARROWED}",
        also=f"{_COMPRESSED} + slots.size + scale.size",
        writes=f"{_ROTATED_KEYS.writes} + slots.n * cache[-1] * cache.item",
    ),
    "_C_cache_ops::swap_blocks aiter::swap_blocks": (
        _SWAPPED,
        replace(_SWAPPED, schema="view source, target, block, read map", where="moved = map.n // 2 * block"),
    ),
    # Of every layer's cache [blocks, ...] as many blocks as the map [pairs, 2] has rows.
    "_C_cache_ops::copy_blocks aiter::copy_blocks": replace(
        _SWAPPED,
        schema="view keys+, view values+, read map",
        where="moved = map.n // 2 * (keys.n // keys[0] * keys.item + values.n // values[0] * values.item)",
    ),
    "_C_cache_ops::copy_blocks_mla": replace(_SWAPPED, schema="view source+, read map"),
    "_C_cache_ops::concat_mla_q sgl_kernel::concat_mla_absorb_q": Row("read input, read rotated, write out"),
    "_C_cache_ops::convert_fp8": Row(_INTO, QUANTIZE, precision="input out"),
    # The compressed keys and values and the rotated part, side by side; a row of the cache may hold scales too.
    "_C_cache_ops::concat_and_cache_mla aiter::concat_and_cache_mla aiter::concat_and_cache_mla_seg": Row(
        "read kv_c, read k_pe, view cache[*places width], read slots, dtype, read scale?",
        other="QUANTIZE * (first(kv_c, slots.n) * (cache.item < kv_c.item) + first(k_pe, slots.n) * (cache.item < k_pe.item))",
        reads="first(kv_c, slots.n) * kv_c.item + first(k_pe, slots.n) * k_pe.item + slots.size + scale.size",
        writes="slots.n * width * cache.item",
    ),
    # The key [tokens, width] of a sparse attention's index as fp8, with a float32 scale for each block of it.
    "_C_cache_ops::indexer_k_quant_and_cache aiter::indexer_k_quant_and_cache": Row(
        "read k[tokens width], cache, read slots, block",
        other="slots.n * width * DYNAMIC_QUANTIZE",
        reads="first(k, slots.n) * k.item + slots.size",
        writes="slots.n * (width + 4 * (width // block))",
    ),
    # Keys of the index and their scales, from pages of both to rows of each.
    "_C_cache_ops::cp_gather_indexer_k_quant_cache aiter::cp_gather_indexer_k_quant_cache": Row(
        "cache, write keys, write scales, read table, read lengths",
        reads="keys.n * keys.item + scales.n * scales.item + table.size + lengths.size",
        assumption=_GATHERED,
    ),
    # Pages of the cache into consecutive rows; the lengths are data.
    "_C_cache_ops::gather_cache _C_cache_ops::cp_gather_cache _C_cache_ops::gather_and_maybe_dequant_cache": Row(
        "view cache, write out, read table, read lengths",
        other="out.n * (cache.item < out.item)",
        reads="out.n * cache.item + table.size + lengths.size",
        precision="out",
        assumption=_GATHERED,
    ),
}
register(_COPIES, "copy")
