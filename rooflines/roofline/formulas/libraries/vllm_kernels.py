"""vLLM's compiled operators: norms, activations, rotary embedding, quantization (``_C``) and the KV cache (``_C_cache_ops``).

Order of arguments: vLLM, ``csrc/torch_bindings.cpp`` (commit 00256d5) and ``csrc/libtorch_stable/torch_bindings.cpp`` (commit 0135b6c),
compared with the schemas in the libraries of vLLM 0.11.0, 0.14.0, 0.19.0, 0.25.0 and 0.33.0 and of sgl-kernel 0.3.21.
Strings, such as the dtype of a cache, are not in traces; the cache's tensor has its dtype.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.narrow import narrowed, to_fp4
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work, rotate_in_place
from rooflines.roofline.formulas.table import formula

# A gate and a factor lie side by side in the input: one activation and one product for each element of the result.
GATED: Final[dict[str, int]] = {
    "silu_and_mul": costs.SILU + 1, "mul_and_silu": costs.SILU + 1, "gelu_and_mul": costs.GELU + 1, "gelu_tanh_and_mul": costs.GELU + 1,
    "fatrelu_and_mul": 2, "swigluoai_and_mul": costs.SILU + 6,  # two clamps, 1.702 * x, (up + 1) * glu
    "silu_and_mul_with_clamp": costs.SILU + 4,
}  # fmt: skip
PLAIN: Final[dict[str, int]] = {"relu_squared": 2, "gelu_new": costs.GELU, "gelu_fast": costs.GELU, "gelu_quick": costs.SIGMOID + 2}

NORMS: Final[dict[str, Pass]] = {
    "rms_norm": Pass("write out, read input, read weight, eps", costs.RMS_NORM),
    "rms_norm_weightless": Pass("write out, read input, eps", costs.RMS_NORM - 1),
    "fused_add_rms_norm": Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1),
    "fused_add_rms_norm_weightless": Pass("update input, update residual, eps", costs.RMS_NORM),
    "rms_norm_static_fp8_quant": Pass("write out, read input, read weight, read scale, eps", costs.RMS_NORM + costs.QUANTIZE),
    "fused_add_rms_norm_static_fp8_quant": Pass(
        "write out, read input, update residual, read weight, read scale, eps", costs.RMS_NORM + 1 + costs.QUANTIZE
    ),
    "rms_norm_dynamic_per_token_quant": Pass(
        "write out, read input, read weight, write scale, eps, read scale_ub?, update residual?", costs.RMS_NORM + DYNAMIC_QUANTIZE
    ),
    "rms_norm_per_block_quant": Pass(
        "write out, read input, read weight, write scale, eps, read scale_ub?, update residual?, group_size",
        costs.RMS_NORM + DYNAMIC_QUANTIZE,
    ),
}
# The activation is per element of the result, and so is the search for a block's range.
ACTIVATIONS: Final[dict[str, Pass]] = {
    **{name: Pass("write out, read input", cost, per="out") for name, cost in (GATED | PLAIN).items()},
    "silu_and_mul_quant": Pass("write out, read input, read scale", costs.SILU + 1 + costs.QUANTIZE, per="out"),
    "silu_and_mul_per_block_quant": Pass(
        "write out, read input, write scales, group_size, read scale_ub?", costs.SILU + 1 + DYNAMIC_QUANTIZE, per="out"
    ),
}
QUANTIZATIONS: Final[dict[str, Pass]] = {
    "static_scaled_fp8_quant": Pass("write out, read input, read scale, group_shape", costs.QUANTIZE),
    "dynamic_scaled_fp8_quant": Pass("write out, read input, write scale", DYNAMIC_QUANTIZE),
    "dynamic_per_token_scaled_fp8_quant": Pass("write out, read input, write scale, read scale_ub?", DYNAMIC_QUANTIZE),
    "static_scaled_int8_quant": Pass("write out, read input, read scale, read azp?", costs.QUANTIZE),
    "dynamic_scaled_int8_quant": Pass("write out, read input, write scale, write azp?", DYNAMIC_QUANTIZE),
    "per_token_group_fp8_quant": Pass("read input, write out, write scale", DYNAMIC_QUANTIZE),
    "per_token_group_fp8_quant_packed": Pass("read input, write out, write scale", DYNAMIC_QUANTIZE),
    "per_token_group_quant_int8": Pass("read input, write out, write scale", DYNAMIC_QUANTIZE),
    "mxfp8_experts_quant": Pass("read input, read sizes, read offsets, read scale_offsets, write out, write scale", DYNAMIC_QUANTIZE),
    # two numbers of 4 bits in an element of the result
    "silu_and_mul_nvfp4_quant": Pass(
        "write out, write block_scale, read input, read scale", 2 * (costs.SILU + 1 + DYNAMIC_QUANTIZE), per="out"
    ),
}

register({f"_C::{name}": one for name, one in NORMS.items()}, "normalisation")
register({f"_C::{name}": one for name, one in (ACTIVATIONS | QUANTIZATIONS).items()}, "element-wise")


@formula("_C::scaled_fp4_quant", category="element-wise")
def _to_fp4(signature: Signature) -> Work:
    """Two numbers of 4 bits a byte and a scale of 8 bits for each 16; older versions are given the results first."""
    if isinstance(signature.arg(1), TensorArg) and isinstance(signature.arg(2), TensorArg):
        return to_fp4(signature, "out input block_scale scale")
    return to_fp4(signature, "input scale swizzled out=None block_scale=None")


@formula("_C::scaled_fp4_experts_quant", "sgl_kernel::scaled_fp4_experts_quant", "_C::silu_and_mul_scaled_fp4_experts_quant",
         "sglang::scaled_fp4_experts_quant", category="element-wise")  # fmt: skip
def _experts_to_fp4(signature: Signature) -> Work:
    """The rows of all experts as NVFP4, each with its expert's scale; behind a gate there are half as many numbers. The result's rows
    and scales are padded, which is not counted."""
    args = Arguments(signature, "out block_scale input scale offsets block_scale_offsets")
    inputs, gated = args.tensor("input"), "silu_and_mul" in signature.name
    made = inputs.numel // (2 if gated else 1)
    others = (args.tensor(name) for name in ("scale", "offsets", "block_scale_offsets"))
    return narrowed(inputs, *others, scales=made // 16, bits=4, cost=DYNAMIC_QUANTIZE + (costs.SILU + 1) * gated, numbers=made)


@formula("_C::weak_ref_tensor", "sgl_kernel::weak_ref_tensor", "_C::get_cuda_view_from_cpu_tensor", category="other")
def _reference(_: Signature) -> Work:
    """The same memory."""
    return Work()


# --- positions ---------------------------------------------------------------------------------------------------------------------


formula("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding", "sglang::rotary_embedding_with_key",
        category="element-wise")(rotate_in_place)  # fmt: skip


@formula("_C::fused_qk_norm_rope", category="normalisation")
def _normalised_and_rotated(signature: Signature) -> Work:
    """Queries and keys inside [tokens, heads * head_dim] are normalised and rotated in place; the values stay."""
    args = Arguments(signature, "qkv heads_q heads_k heads_v head_dim eps q_weight k_weight cos_sin_cache is_neox positions")
    qkv, positions, head_dim = args.tensor("qkv"), args.tensor("positions"), args.integer("head_dim")
    heads = args.integer("heads_q") + args.integer("heads_k")
    part = TensorArg((positions.numel, heads * head_dim), qkv.dtype)
    rotated = rotary_work(positions, (part,), args.tensor("cos_sin_cache"), head_dim)
    return Work(
        other_flops=rotated.other_flops + part.numel * costs.RMS_NORM,
        bytes_read=rotated.bytes_read + written(part) - rotated.bytes_written + size(args.tensor("q_weight"), args.tensor("k_weight")),
        bytes_written=written(part),
        precision=precision_of(qkv.dtype),
    )


COPIES: Final[dict[str, Pass]] = {
    "_C_cache_ops::concat_mla_q": Pass("read input, read rotated, write out", 0),
    "sgl_kernel::concat_mla_absorb_q": Pass("read input, read rotated, write out", 0),
    "_C_cache_ops::convert_fp8": Pass("write out, read input", costs.QUANTIZE, precision="input out"),
}
register(COPIES, "copy")

_GATHERED: Final = "every row of the result is gathered"

# --- the KV cache ------------------------------------------------------------------------------------------------------------------


formula("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "aiter::reshape_and_cache",
        "aiter::reshape_and_cache_flash", category="copy")(
    partial(store, schema="key value key_cache value_cache slots dtype k_scale v_scale")
)  # fmt: skip


@formula("_C_cache_ops::concat_and_cache_mla", "aiter::concat_and_cache_mla", "aiter::concat_and_cache_mla_seg", category="copy")
def _concat_and_cache(signature: Signature) -> Work:
    """The compressed keys and values and the rotated part, side by side; a row of the cache may hold scales too."""
    args = Arguments(signature, "kv_c k_pe cache slots dtype scale")
    cache, slots = args.tensor("cache"), args.tensor("slots")
    work = stored(slots.numel, (args.tensor("kv_c"), args.tensor("k_pe")), (cache, cache), slots, args.optional("scale"))
    return replace(work, bytes_written=slots.numel * cache.shape[-1] * size_of(cache.dtype))


@formula("_C_cache_ops::concat_and_cache_mla_rope_fused", category="copy")
def _rotate_concat_and_cache(signature: Signature) -> Work:
    """Queries and keys rotate in place, and the keys go into the cache beside the compressed ones."""
    args = Arguments(signature, "positions q_pe k_pe kv_c table is_neox slots cache dtype scale")
    q, k, kv_c, cache, slots = (args.tensor(name) for name in ("q_pe", "k_pe", "kv_c", "cache", "slots"))
    rotated = rotary_work(args.tensor("positions"), (q, k), args.tensor("table"), q.shape[-1])
    stored_work = stored(slots.numel, (kv_c,), (cache,), slots, args.optional("scale"))
    row = Work(bytes_written=slots.numel * cache.shape[-1] * size_of(cache.dtype) - stored_work.bytes_written)
    return rotated + stored_work + row


@formula("_C_cache_ops::swap_blocks", "aiter::swap_blocks", category="copy")
def _swap_blocks(signature: Signature) -> Work:
    """As many blocks as the map has rows; newer versions are given the bytes of a block."""
    mapping = signature.args[-1]
    source = Arguments(signature, "source").tensor("source")
    if not isinstance(mapping, TensorArg) or not source.shape:
        raise NotCounted("shape of the map not recorded")
    block = signature.arg(2) if isinstance(signature.arg(2), int) else source.numel // source.shape[0] * size_of(source.dtype)
    moved = mapping.numel // 2 * block
    return Work(bytes_read=moved + size(mapping), bytes_written=moved)


@formula("_C_cache_ops::copy_blocks", "aiter::copy_blocks", "_C_cache_ops::copy_blocks_mla", category="copy")
def _copy_blocks(signature: Signature) -> Work:
    """Of every layer's cache [blocks, ...] as many blocks as the map [pairs, 2] has rows."""
    args = Arguments(signature, "caches mapping" if signature.name.endswith("_mla") else "keys values mapping")
    names = ("caches",) if signature.name.endswith("_mla") else ("keys", "values")
    caches = [one for name in names for one in args.tensors(name)]
    mapping = args.tensor("mapping")
    if not caches or not all(one.shape and one.shape[0] for one in caches):
        raise NotCounted("tensors of the list not recorded")
    moved = mapping.numel // 2 * sum(one.numel // one.shape[0] * size_of(one.dtype) for one in caches)
    return Work(bytes_read=moved + size(mapping), bytes_written=moved)


@formula("_C_cache_ops::indexer_k_quant_and_cache", "aiter::indexer_k_quant_and_cache", category="copy")
def _index_key(signature: Signature) -> Work:
    """The key [tokens, head_dim] of a sparse attention's index as fp8, with a float32 scale for each block of it."""
    args = Arguments(signature, "k cache slots block dtype")
    key, slots, block = args.tensor("k"), args.tensor("slots"), args.integer("block")
    tokens, width = slots.numel, key.shape[-1]
    if block <= 0 or key.numel < tokens * width:
        raise NotCounted("more tokens than keys")
    return Work(
        other_flops=tokens * width * DYNAMIC_QUANTIZE,
        bytes_read=tokens * width * size_of(key.dtype) + size(slots),
        bytes_written=tokens * (width + 4 * (width // block)),
        precision=precision_of(key.dtype),
    )


@formula("_C_cache_ops::cp_gather_indexer_k_quant_cache", "aiter::cp_gather_indexer_k_quant_cache", category="copy")
def _gather_index(signature: Signature) -> Work:
    """Keys of the index and their scales, from pages of both to rows of each."""
    args = Arguments(signature, "cache keys scales table lengths")
    keys, scales = args.tensor("keys"), args.tensor("scales")
    return Work(
        bytes_read=written(keys, scales) + size(args.tensor("table"), args.tensor("lengths")),
        bytes_written=written(keys, scales),
        assumption=_GATHERED,
    )


@formula("_C_cache_ops::gather_cache", "_C_cache_ops::cp_gather_cache", "_C_cache_ops::gather_and_maybe_dequant_cache", category="copy")
def _gather(signature: Signature) -> Work:
    """Pages of the cache into consecutive rows; the lengths are data."""
    args = Arguments(signature, "cache out block_table lengths")
    cache, out = args.tensor("cache"), args.tensor("out")
    narrow = size_of(cache.dtype) < size_of(out.dtype)
    return Work(
        other_flops=out.numel * narrow,
        bytes_read=out.numel * size_of(cache.dtype) + size(args.tensor("block_table"), args.tensor("lengths")),
        bytes_written=written(out),
        precision=precision_of(out.dtype) if narrow else None,
        assumption=_GATHERED,
    )
