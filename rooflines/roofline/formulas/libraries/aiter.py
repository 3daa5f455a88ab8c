"""AITER without its attention and mixtures of experts, and ATOM, a server on AITER whose operators are in its namespace.

The name of an operator is that of the function in Python. Layers of ATOM only call other operators. Its others count if nothing below
them is counted: most launch a kernel in Triton.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, Dispatches
from rooflines.roofline.formulas.costs import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.libraries.norms import LAYER_NORM
from rooflines.roofline.formulas.packed_attention import unified
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import LAYER, Hints, hinted_formula
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import SCALED, fp4_product
from rooflines.roofline.formulas.tables import table

# --- norms -------------------------------------------------------------------------------------------------------------------------

_ADDED: Final = "write out, read input, read residual, write residual_out"
_SMOOTH: Final = "read x_scale, write y_scale"
_BIASES: Final = "read weight, read bias, eps, read x_bias?"


def _norms(name: str, cost: int, parameters: str) -> dict[str, Row]:
    """The norm and its fusions with an addition and a quantization, which AITER names alike for both kinds of norms."""
    return {f"{name}{end} {name}{end}_ck": row for end, row in {
        "": Row(f"read input, {parameters}", cost, result="input"),
        "_with_add": Row(f"{_ADDED}, {parameters}", cost + 1),
        "_with_smoothquant": Row(f"write out, read input, {_SMOOTH}, {parameters}", cost + 1 + DYNAMIC_QUANTIZE),
        "_with_add_smoothquant": Row(f"{_ADDED}, {_SMOOTH}, {parameters}", cost + 2 + DYNAMIC_QUANTIZE),
        "_with_dynamicquant": Row(f"write out, read input, write y_scale, {parameters}", cost + DYNAMIC_QUANTIZE),
        "_with_add_dynamicquant": Row(f"{_ADDED}, write y_scale, {parameters}", cost + 1 + DYNAMIC_QUANTIZE),
    }.items()}  # fmt: skip


# --- activations, quantization, arithmetic -----------------------------------------------------------------------------------------

_RESULT: Final = "write out, read input"
_ELEMENT_WISE: Final[dict[str, Row]] = {
    "silu_and_mul": Row(_RESULT, costs.SILU + 1, per="out"),
    "swiglu_and_mul": Row(_RESULT, costs.SILU + 6, per="out"),
    "gelu_and_mul gelu_tanh_and_mul": Row(_RESULT, costs.GELU + 1, per="out"),
    "gelu_fast": Row(_RESULT, costs.GELU, per="out"),
    "scaled_silu_and_mul": Row(f"{_RESULT}, read scale", costs.SILU + 1 + costs.QUANTIZE, per="out"),
    "silu_and_mul_quant": Row(f"{_RESULT}, write scale", costs.SILU + 1 + DYNAMIC_QUANTIZE, per="out"),
    # a bias for each half
    "silu_and_mul_bias": Row(f"{_RESULT}, read expert_ids, read bias", costs.SILU + 3, per="out"),
    "gelu_and_mul_bias": Row(f"{_RESULT}, read expert_ids, read bias", costs.GELU + 3, per="out"),
    "swiglu_and_mul_bias": Row(f"{_RESULT}, read expert_ids, read bias", costs.SILU + 8, per="out"),
    "static_per_tensor_quant": Row(f"{_RESULT}, read scale", costs.QUANTIZE),
    "dynamic_per_tensor_quant dynamic_per_group_scaled_quant dynamic_per_group_scaled_quant_fp4": Row(
        f"{_RESULT}, write scale", DYNAMIC_QUANTIZE
    ),
    "dynamic_per_token_scaled_quant": Row(f"{_RESULT}, write scale, read scale_ub?", DYNAMIC_QUANTIZE),
    "quant_mxfp4": Row("read input, write out, write scale", DYNAMIC_QUANTIZE),
    "smoothquant_fwd": Row(f"{_RESULT}, {_SMOOTH}", 1 + DYNAMIC_QUANTIZE),
    "smooth_per_token_scaled_quant": Row(f"{_RESULT}, write scale, read smooth_scale, read map?", 1 + DYNAMIC_QUANTIZE),
    "moe_smoothquant_fwd": Row(f"{_RESULT}, read x_scale, read ids, write y_scale", 1 + DYNAMIC_QUANTIZE, per="out"),
    "moe_smooth_per_token_scaled_quant_v1": Row(
        f"{_RESULT}, write scale, read smooth_scale, read map", 1 + DYNAMIC_QUANTIZE, per="out"
    ),
    "moe_smooth_per_token_scaled_quant_v2": Row(
        f"{_RESULT}, write scale, read smooth_scale, read ids, read expert_ids, read count", 1 + DYNAMIC_QUANTIZE, per="out"
    ),
    "partial_transpose": Row(f"{_RESULT}, read rows"),
    "add sub mul div": Row("read input, read other", 1, result="input"),
    "add_ sub_ mul_ div_ _add_kernel_ _sub_kernel_ _mul_kernel_ _div_kernel_": Row("update input, read other", 1),
    "_add_kernel _sub_kernel _mul_kernel _div_kernel": Row("read input, read other, write out", 1, per="out"),
    "_sigmoid": Row(_RESULT, costs.SIGMOID),
    "_tanh": Row(_RESULT, costs.TANH),
    "sigmoid": Row("read input", costs.SIGMOID, result="input"),
    "tanh": Row("read input", costs.TANH, result="input"),
}

# --- positions ---------------------------------------------------------------------------------------------------------------------

# A token has a row of each table, with one number for two of a head; of a head they may rotate only a part.
_ANGLES: Final = "positions.size + selected(cos, positions.n * cos[-1]) + selected(sin, positions.n * sin[-1])"
_ROTATED: Final = "min(cos[-1] + sin[-1], head)"
_POSITIONS: Final[dict[str, Row]] = {
    # In place; cosines and sines of half a head each in a table of their own.
    "rotary_embedding_fwd batched_rotary_embedding": Row(
        "read positions, view query, view key?, head, read cos, read sin",
        other=f"(query.n + key.n) // head * {_ROTATED} * ROTARY_EMBEDDING",
        reads=f"(query.n * query.item + key.n * key.item) // head * {_ROTATED} + {_ANGLES}",
        writes=f"(query.n * query.item + key.n * key.item) // head * {_ROTATED}",
        precision="query",
    ),
    "_inverse_rope_group_quant_kernel": Row(
        "read input[*heads head], write out, write scale, read positions, read cos, read sin",
        DYNAMIC_QUANTIZE,
        other=f"heads * {_ROTATED} * ROTARY_EMBEDDING",
        reads=f"input.size + {_ANGLES}",
    ),
}
register(_ELEMENT_WISE | _POSITIONS, "element-wise", namespace="aiter::")


def _flag_first(signature: Signature) -> Signature:
    """The first flag of a call, which says that a table has one number for both of a pair, and its tensors."""
    shared = next((arg for arg in signature.args if isinstance(arg, bool)), None)
    return replace(signature, args=(shared, *signature.tensors))


def _rope(tables: str, pairs: int = 1, before: str = "", positions: str = "", dimensions: int = 1) -> Row:
    """``pairs`` results, as many inputs, perhaps where packed sequences start, and frequencies or their cosines and sines; with the
    positions of the tokens, their rows. The last dimension is a head; what does not rotate is copied."""
    results, inputs = (("write out", "read x[*rest head]"), ("write out, write out_y", "read x[*rest head], read y"))[pairs - 1]
    first, *_ = names = tables.split()
    verb = "view" if positions else "read"
    rows = f"min(positions.n, {first}.n // {first}[-1])"
    return Row(
        f"shared, {results}, {inputs}, {before}{', '.join(f'{verb} {name}' for name in names)}{positions}",
        other=f"({'x.n + y.n' if pairs == 2 else 'x.n'}) // head * ROTARY_EMBEDDING"
        f" * min(head, {first}[-1] * (1 + shared) * {dimensions})",
        also=" + ".join(f"{rows} * {name}[-1] * {name}.item" for name in names) if positions else "",
        precision="x",
    )


_PAIR: Final = "cos sin"

# --- norms, positions and the KV cache ---------------------------------------------------------------------------------------------

_PACKED: Final = "read qkv, read q_weight, read k_weight, read table, read positions, tokens"
_HEADS: Final = "heads_q, heads_k, heads_v, head"
_CACHES: Final = "view k_cache, view v_cache, read slots"
_SCALES: Final = "read k_scale?, read v_scale?"
# Queries and keys of the tokens are normalised and rotated,
_NORMALISED: Final = "tokens * (heads_q + heads_k) * head"
_FLOPS: Final = "tokens * (heads_q + heads_k) * (head * RMS_NORM + min(table[-1], head) * ROTARY_EMBEDDING)"
_READ: Final = f"{_NORMALISED} * qkv.item + q_weight.size + k_weight.size + positions.size + selected(table, positions.n * table[-1])"
# keys and values go into caches after a scale.
_CACHED: Final = "slots.n * head * (heads_k * k_cache.item + heads_v * v_cache.item)"
_NARROW: Final = "heads_k * (k_cache.item < qkv.item) + heads_v * (v_cache.item < qkv.item)"
_CACHED_FLOPS: Final = f"{_FLOPS} + QUANTIZE * slots.n * head * ({_NARROW})"
_CACHED_READ: Final = f"{_READ} + tokens * heads_v * head * qkv.item + slots.size + k_scale.size + v_scale.size"
# Queries and keys are written in place too,
_IN_PLACE: Final = Row(
    f"read qkv, {_HEADS}, eps, read q_weight, read k_weight, read table, is_neox, read positions[*tokens], {_CACHES}, dtype, {_SCALES}",
    other=_CACHED_FLOPS, reads=_CACHED_READ, writes=f"{_NORMALISED} * qkv.item + {_CACHED}",
)  # fmt: skip
# or queries into a tensor of their own, keys and values where they are asked for.
_OUT_OF_PLACE: Final = Row(
    f"{_PACKED}, {_HEADS}, is_neox, eps, write q_out, {_CACHES}, {_SCALES}, view k_out?, view v_out?, returns=False",
    other=_CACHED_FLOPS, reads=_CACHED_READ, writes=f"bool(returns) * (k_out.n * k_out.item + v_out.n * v_out.item) + {_CACHED}",
)  # fmt: skip

# The compressed keys and values and the rotated part of each token go into a row of the cache, which may hold scales too.
_LATENT: Final = "first(k, slots.n) * k.item + first(k_pe, slots.n) * k_pe.item + slots.size + k_scale.size"
_LATENT_FLOPS: Final = "QUANTIZE * (first(k, slots.n) * (cache.item < k.item) + first(k_pe, slots.n) * (cache.item < k_pe.item))"
_LATENT_ROWS: Final = "slots.n * cache[-1] * cache.item"
_ROTATION: Final = f"(q_pe.n + k_pe.n) // head * {_ROTATED} * ROTARY_EMBEDDING"


_OUT: Final = "left, right, write out"

# --- activations that become fp4 on the way ----------------------------------------------------------------------------------------

_LAST: Final = "dtype=15, write out?"

_SUM: Final = "input residual"
_ATOM_NORMS: Final[dict[str, Row]] = {
    "rmsnorm2d_fwd_ fused_rmsnorm_pad_": Row("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "layernorm2d_fwd_": Row("read input, read weight, read bias, eps", LAYER_NORM, result="input"),
    # return the norm of the sum and the sum; padding of rows is not counted
    "rmsnorm2d_fwd_with_add_": Row("read input, read weight, read residual, eps", costs.RMS_NORM + 1, result=_SUM),
    "fused_add_rmsnorm_pad_": Row("read input, read weight, eps, read residual", costs.RMS_NORM + 1, result=_SUM),
    "layernorm2d_fwd_with_add_": Row("read input, read weight, read residual, read bias, eps", LAYER_NORM + 1, result=_SUM),
    "fused_dual_rmsnorm_cat": Row(  # side by side
        "read first, read first_weight, read second, read second_weight, eps", costs.RMS_NORM, "first second", result="first second"
    ),
}


def _atom_norms(made: str, cost: int, end: str = "dtype=24, group=128, kind=None") -> Row:
    """Norms of one or two tensors. The first may be a sum with a residual, and becomes ``made`` bytes of narrow numbers and scales; a
    flag says that it is also returned unchanged. Padding of the scales is not counted."""
    return Row(
        f"read first, read first_weight, eps, read second?, read second_weight?, second_eps=None, update residual?, {end}, both=False",
        costs.RMS_NORM, per="first second", result="second", other=f"first.n * ({cost} + bool(residual))",
        writes=f"{made} + bool(both) * first.n * first.item",
    )  # fmt: skip


# fp4 has a scale for each 32 numbers,
_ATOM_NORMS["_fuse_rmsnorm_fp4_quant"] = _atom_norms("first.n // 2 + first.n // 32", DYNAMIC_QUANTIZE, "shuffle=True, padding=True")
register(_ATOM_NORMS, "normalisation", wraps=True, namespace="aiter::")


# --- layers ------------------------------------------------------------------------------------------------------------------------


@hinted_formula("aiter::unified_attention_with_output_base", category="attention")
def _attention(signature: Signature, hints: Hints) -> Work:
    schema = "query q_scale key value positions layer latent"
    if Arguments(signature, schema).flag("latent"):
        raise Dispatches
    return unified(signature, hints, schema)


table(f"""
[normalisation aiter::]
rms_norm _fused_rmsnorm: read input, read weight, eps -> input; cost = RMS_NORM
layer_norm: read input, read weight?, read bias?, eps, read x_bias? -> input; cost = LAYER_NORM
rms_norm_cu rmsnorm: write out, read input, read weight, eps; cost = RMS_NORM
fused_add_rms_norm_cu: update input, update residual, read weight, eps; cost = RMS_NORM + 1
add_rmsnorm: {_ADDED}, read weight, eps; cost = RMS_NORM + 1
rmsnorm_quant: write out, read input, write scale, read weight, eps; cost = RMS_NORM + DYNAMIC_QUANTIZE
add_rmsnorm_quant: {_ADDED}, write scale, read weight, eps; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE
_fused_rmsnorm_add: read input, read weight, eps, read residual -> input residual; cost = RMS_NORM + 1
layernorm2d_with_add_asm: {_ADDED}, {_BIASES}; cost = LAYER_NORM + 1
layernorm2d_with_add_smoothquant_asm: {_ADDED}, {_SMOOTH}, {_BIASES}; cost = LAYER_NORM + 2 + DYNAMIC_QUANTIZE
gated_rmsnorm_fp8_group_quant gated_rmsnorm_fp8_per_token_quant: write out, write scale, read input, read gate, read weight, eps;
    cost = RMS_NORM + SILU + 1 + DYNAMIC_QUANTIZE
_fused_qk_rmsnorm_kernel: read q, read q_weight, q_eps, read k?, read k_weight?, k_eps, write q_out?, write k_out?; cost = RMS_NORM;
    per = q k
# of the queries also of their sum with a residual, and in 8 or 4 bits with scales
_fused_qk_rmsnorm_group_quant_kernel _fused_qk_rmsnorm_per_token_quant_kernel: write q_narrow?, write q_scale?, read q,
    read q_weight, q_eps, write q_out?, write k_out?, write q_sum?, read k?, read k_weight?, k_eps, read residual?; cost = RMS_NORM;
    per = q k; other = q.n * (bool(residual) + bool(q_scale) * DYNAMIC_QUANTIZE)
fused_qk_norm_rope_1way: read q, read k, read q_weight, read k_weight, read table, batch, tokens, heads_q, heads_k, head,
    interleaved, eps, write q_out, write k_out; cost = RMS_NORM + ROTARY_EMBEDDING; per = q k
fused_rope_rms fused_mrope_3d_rms: {_PACKED}, {_HEADS}; other = {_FLOPS}; reads = {_READ}; writes = {_NORMALISED} * qkv.item
# Queries and keys are written in place too,
fused_qk_norm_rope_cache_quant_shuffle: read qkv, {_HEADS}, eps, read q_weight, read k_weight, read table, is_neox,
    read positions[*tokens], {_CACHES}, dtype, {_SCALES}; other = {_CACHED_FLOPS}; reads = {_CACHED_READ};
    writes = {_NORMALISED} * qkv.item + {_CACHED}
# newer: three tensors
_fused_qk_norm_rope_cache_quant_shuffle_hip like fused_qk_norm_rope_cache_quant_shuffle:
    {_IN_PLACE.schema.replace("qkv", "qkv, k, v", 1)}
# or queries into a tensor of their own, keys and values where they are asked for.
fused_qk_norm_rope_cache_pts_quant_shuffle: {_PACKED}, {_HEADS}, is_neox, eps, write q_out, {_CACHES}, {_SCALES}, view k_out?,
    view v_out?, returns=False; other = {_CACHED_FLOPS}; reads = {_CACHED_READ};
    writes = bool(returns) * (k_out.n * k_out.item + v_out.n * v_out.item) + {_CACHED}
fused_qk_norm_mrope_3d_cache_pts_quant_shuffle like fused_qk_norm_rope_cache_pts_quant_shuffle:
    {_OUT_OF_PLACE.schema.replace("eps", "sections, interleaved, eps")}
[normalisation]
aiter::_groupnorm_run aiter::groupnorm_run: read input, groups, read weight, read bias -> input; cost = LAYER_NORM; number = groups
    | out, workspace, read input, groups, read weight, read bias -> input; cost = LAYER_NORM; number = groups
[copy aiter::]
cat_and_cache_mla: read k, read k_pe, view cache, read slots, read k_scale?; other = {_LATENT_FLOPS}; reads = {_LATENT};
    writes = {_LATENT_ROWS}
# Queries [tokens, heads, ..] of both kinds rotate into one tensor.
fused_qk_rope_concat_and_cache_mla fused_qk_rope_concat_and_cache_mla_seg: read q, read q_pe[*heads head], read k, read k_pe,
    view cache, write q_out, read slots, read k_scale?, read q_scale?, read positions, read cos, read sin;
    other = {_ROTATION} + q_out.n * QUANTIZE * (q_out.item < q.item) + {_LATENT_FLOPS};
    reads = q.size + q_pe.size + q_scale.size + {_ANGLES} + {_LATENT}; writes = {_LATENT_ROWS}
# With new tensors for the queries, the rotated keys, the rotated part of the first queries again, and zeros as large as their other
# part.
fused_qk_rope_cat_and_cache_mla: read q, read q_pe[*heads head], read k, read k_pe, view cache, read slots, read positions, read cos,
    read sin, read k_scale?, is_neox, firsts=0, apply=True, write q_out?, pe_out=None, k_pe_out=None, dtype=None -> k_pe;
    other = {_ROTATION} + {_LATENT_FLOPS} + (q_out.n or q.n + q_pe.n) * QUANTIZE * ((q_out.item or item('dtype', q.dtype)) < q.item);
    reads = q.size + q_pe.size + {_ANGLES} + {_LATENT}; writes = (0 if q_out else (q.n + q_pe.n) * item('dtype',
    q.dtype)) + firsts * q[-2] * (head + k[-1]) * q.item + {_LATENT_ROWS}
# Keys and values [tokens, heads, head] with a scale for each token and head.
reshape_and_cache_with_pertoken_quant: read key, read value, view key_cache, view value_cache, view k_scales, v_scales, read slots;
    other = (first(key, slots.n) + first(value, slots.n)) * DYNAMIC_QUANTIZE; reads = first(key, slots.n) * key.item + first(value,
    slots.n) * value.item + slots.size; writes = first(key, slots.n) * key_cache.item + first(value,
    slots.n) * value_cache.item + 2 * slots.n * key[-2] * k_scales.item
[copy]
# The index of a sparse attention: queries rotate and become fp8, their weights are scaled, and the normalised, rotated key of each
# token goes into the cache as fp8, with a float32 scale for each block.
aiter::indexer_qk_rope_quant_and_cache: read q[*heads head], write q_out, read weights, write weights_out, read k[*tokens width],
    cache, read slots, read weight, read bias, read positions, read cos, read sin, eps, block; cost = DYNAMIC_QUANTIZE; per = q;
    other = (q.n + k.n) // head * {_ROTATED} * ROTARY_EMBEDDING + 2 * weights.n + slots.n * width * (LAYER_NORM + DYNAMIC_QUANTIZE);
    reads = q.size + weights.size + slots.size + weight.size + bias.size + first(k, slots.n) * k.item + {_ANGLES};
    writes = slots.n * (width + 4 * (width // block))
[matmul aiter::]
gemm_a16wfp4 gemm_a16wfp4_: {fp4_product(f"read left, read right, read scale, atomic=False, {_LAST}")}
gemm_a16wfp4_preshuffle_: {fp4_product(f"read left, read right, read scale, prequant=True, {_LAST}")}
batched_gemm_a16wfp4 batched_gemm_a16wfp4_: {fp4_product(f"read left, read right, read scale, {_LAST}")}
[normalisation aiter:: wraps]
# fp8 one for each row or group, as AITER's QuantType says.
_fused_rms_fp8_quant: {replace(_atom_norms("first.n * first.item", 0), fits="value('kind') in (None, 0)")}
    | {replace(_atom_norms("first.n + 4 * first[0]", DYNAMIC_QUANTIZE), fits="kind == 2")}
    | {_atom_norms("first.n + 4 * first[0] * up(first[-1], group)", DYNAMIC_QUANTIZE)}
# In fp8 with a scale for each row or each 128 numbers, or in fp4 with one for each 32.
_aiter_rms_quant: read input[*rows width], read weight, eps, kind, transpose, update residual?; cost = RMS_NORM + DYNAMIC_QUANTIZE;
    other = input.n * bool(residual); writes = input.n + 4 * rows; fits = kind == 2
    | ; writes = input.n // 2 + input.n // 32; fits = kind == 3
    | ; writes = input.n + 4 * (input.n // 128); fits = kind == 4
[element-wise wraps]
# SiLU of the gate times the factor in fp4, with a scale for each 32.
aiter::mxfp4_act_mul_quant_fuse: read input; other = input.n // 2 * (SILU + 1 + DYNAMIC_QUANTIZE);
    writes = input.n // 4 + input.n // 64
[matmul wraps]
aiter::gemm_a4w4_quant: {fp4_product("read left, read left_scale?, read right, dtype, read scale")}
[matmul aiter:: scaled]
gemm_a16w16_: left, right, read bias?, out_dtype=15, write out?
gemm_a16w16_atomic_: left, right, out_dtype=15, write out?
gemm_a16w16: left, right, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_c?
_opus_gemm_a16w16_tune_raw batched_gemm_bf16_tune batched_gemm_bf16: {_OUT}, read bias?
_opus_gemm_bf16_dispatch: {_OUT}, groups, read scale_a?, read scale_b?, read bias?
_gemm_a16w16_asm gemm_a16w16_asm: {_OUT}, semaphore, read bias?
gemm_a8w8 gemm_a8w8_CK gemm_a8w8_bpreshuffle gemm_a4w4: {SCALED}, read bias?, out_dtype=15
gemm_a8w8_blockscale gemm_a8w8_blockscale_bpreshuffle batched_gemm_a8w8_mxscale: {SCALED}, out_dtype=15
gemm_afp4wfp4_: {SCALED}, out_dtype=15, write out?
gemm_a8w8_bpreshuffle_ck gemm_a8w8_bpreshuffle_cktile gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile
    gemm_a8w8_blockscale_bpreshuffle_ck gemm_a8w8_blockscale_bpreshuffle_cktile _flatmm_a8w8_blockscale_asm
    flatmm_a8w8_blockscale_asm mi350_a8w8_blockscale_asm gfx950_a8w8_blockscale_asm gemm_a4w4_blockscale gemm_a8w8_tune
    gemm_a8w8_bpreshuffle_tune gemm_a8w8_bpreshuffle_cktile_tune gemm_a8w8_blockscale_tune gemm_a8w8_blockscale_cktile_tune
    gemm_a8w8_blockscale_bpreshuffle_tune gemm_a8w8_blockscale_bpreshuffle_cktile_tune gemm_a4w4_blockscale_tune
    batched_gemm_a8w8_tune _opus_gemm_a8w8_blockscale_bpreshuffle_tune_raw _mxfp4_gemm_asm _mxfp8_mxfp8_gemm_asm
    _mxfp8_mxfp4_gemm_asm: {SCALED}, write out
gemm_a8w8_ck batched_gemm_a8w8: {SCALED}, write out, read bias?
_gemm_a8w8_asm gemm_a8w8_asm _gemm_a4w4_asm gemm_a4w4_asm: {SCALED}, write out, kernel, read bias?
_nvfp4_gemm_asm: {SCALED}, global_a, global_b, write out
_gemm_a8w8_blockscale_bpreshuffle_asm gemm_a8w8_blockscale_bpreshuffle_asm: {_OUT}, read scale_a, read scale_b, read bias?
_opus_bmm_a8w8_mxscale_raw: {_OUT}, read scale_a, read scale_b
hipb_mm: left, right, solution, read bias?, out_dtype=None, read scale_a?, read scale_b?, read scale_out?
rocb_mm: left, right
[matmul aiter:: scaled wraps]
gemm_a8w8_blockscale_preshuffle_impl gemm_a8w8_blockscale_triton_impl: {SCALED}, out_dtype=15
gemm_a8w8_per_token_impl gemm_a8w8_per_tensor_impl: {SCALED}, read bias?, out_dtype=15
gemm_a8w8_blockscale_preshuffle_into_output: {SCALED}, write out
_bmm_fp8_op: left, right, write out, read scale_a, read scale_b
[other aiter:: dispatches]
# Layers, which are found by their names, and choices between operators.
atom_vllm_mha_attention atom_vllm_mla_attention dspark_block_attention indexer_score_topk indexer_with_output
    kda_attention_with_output linear_attention_with_output_base maybe_dual_stream_forward minimax_m3_sparse_attention moe_forward
    sparse_attn_indexer sparse_attn_indexer_plugin_mode sparse_attn_indexer_sglang_plugin_mode v4_attention_with_output
    v4_core_attention: {LAYER}
""")
register(
    {
        **_norms("rmsnorm2d_fwd", costs.RMS_NORM, "read weight, eps"),
        **_norms("layernorm2d_fwd", LAYER_NORM, "read weight, read bias?, eps, read x_bias?"),
    },
    "normalisation",
    namespace="aiter::",
)
register(
    {
        **{f"rope_{way}_impl": _rope("freqs") for way in ("fwd", "bwd")},
        **{f"rope_2c_{way}_impl": _rope("freqs", 2) for way in ("fwd", "bwd")},
        **{f"rope_cached_{way}_impl": _rope(_PAIR) for way in ("fwd", "bwd")},
        **{f"rope_cached_2c_{way}_impl": _rope(_PAIR, 2) for way in ("fwd", "bwd")},
        **{f"rope_thd_{way}_impl": _rope("freqs", before="read starts, ") for way in ("fwd", "bwd")},
        **{f"rope_2d_{way}_impl": _rope("cos sin cos_w sin_w", dimensions=2) for way in ("fwd", "bwd")},
        **{
            f"rope_cached_positions{ending}_{infix}fwd_impl": _rope(_PAIR, pairs, positions=f", read positions{offsets}")
            for ending, offsets in {"": "", "_offsets": ", read offsets?"}.items()
            for pairs, infix in ((1, ""), (2, "2c_"))
        },
    },
    "element-wise",
    namespace="aiter::",
    given=_flag_first,
)
