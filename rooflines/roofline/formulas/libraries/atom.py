"""Operators of ATOM, a server on AITER, which are in AITER's namespace.

Order of arguments: ROCm/ATOM ffdf3bb (``atom/model_ops/layernorm.py``, ``linear.py``, ``activation.py``, ``base_attention.py``,
``module_dispatch_ops.py``; ``atom/models/deepseek_v2.py``, ``deepseek_v4.py``, ``kimi_k3.py``; ``atom/plugin/``).

Layers only call other operators. The others count if nothing below them is counted: most launch a kernel in Triton.
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
from rooflines.roofline.formulas.registry import LAYER, Hints, dispatches, hinted_formula, words
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import fp4_product, register_products

_SUM: Final = "input residual"
_NORMS: Final[dict[str, Row]] = {
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


def _norms(made: str, cost: int, end: str = "dtype=24, group=128, kind=None") -> Row:
    """Norms of one or two tensors. The first may be a sum with a residual, and becomes ``made`` bytes of narrow numbers and scales; a
    flag says that it is also returned unchanged. Padding of the scales is not counted."""
    return Row(
        f"read first, read first_weight, eps, read second?, read second_weight?, second_eps=None, update residual?, {end}, both=False",
        costs.RMS_NORM, per="first second", result="second", other=f"first.n * ({cost} + bool(residual))",
        writes=f"{made} + bool(both) * first.n * first.item",
    )  # fmt: skip


# fp4 has a scale for each 32 numbers,
_NORMS["_fuse_rmsnorm_fp4_quant"] = _norms("first.n // 2 + first.n // 32", DYNAMIC_QUANTIZE, "shuffle=True, padding=True")
register(_NORMS, "normalisation", wraps=True, namespace="aiter::")
# fp8 one for each row or group, as AITER's QuantType says.
_WIDE: Final = replace(_norms("first.n * first.item", 0), fits="value('kind') in (None, 0)")
_ROWS: Final = replace(_norms("first.n + 4 * first[0]", DYNAMIC_QUANTIZE), fits="kind == 2")
_GROUPS: Final = _norms("first.n + 4 * first[0] * up(first[-1], group)", DYNAMIC_QUANTIZE)
# In fp8 with a scale for each row or each 128 numbers, or in fp4 with one for each 32.
_KINDS: Final = {2: "input.n + 4 * rows", 3: "input.n // 2 + input.n // 32", 4: "input.n + 4 * (input.n // 128)"}
_NARROW: Final = tuple(
    Row(
        "read input[*rows width], read weight, eps, kind, transpose, update residual?", costs.RMS_NORM + DYNAMIC_QUANTIZE,
        other="input.n * bool(residual)", writes=made, fits=f"kind == {kind}",
    )
    for kind, made in _KINDS.items()
)  # fmt: skip
register(
    {"_fused_rms_fp8_quant": (_WIDE, _ROWS, _GROUPS), "_aiter_rms_quant": _NARROW}, "normalisation", wraps=True, namespace="aiter::"
)


# SiLU of the gate times the factor in fp4, with a scale for each 32.
_GATED: Final = Row("read input", other="input.n // 2 * (SILU + 1 + DYNAMIC_QUANTIZE)", writes="input.n // 4 + input.n // 64")
register({"aiter::mxfp4_act_mul_quant_fuse": _GATED}, "element-wise", wraps=True)

_SCALED: Final = "left, right, read scale_a, read scale_b"
_PRODUCTS: Final[dict[str, str]] = {
    "gemm_a8w8_blockscale_preshuffle_impl gemm_a8w8_blockscale_triton_impl": f"{_SCALED}, out_dtype=15",
    "gemm_a8w8_per_token_impl gemm_a8w8_per_tensor_impl": f"{_SCALED}, read bias?, out_dtype=15",
    "gemm_a8w8_blockscale_preshuffle_into_output": f"{_SCALED}, write out",
    "_bmm_fp8_op": "left, right, write out, read scale_a, read scale_b",
}
register_products({f"aiter::{name}": schema for names, schema in _PRODUCTS.items() for name in names.split()}, wraps=True)
_IN_FP4: Final = fp4_product("read left, read left_scale?, read right, dtype, read scale")
register({"aiter::gemm_a4w4_quant": _IN_FP4}, "matmul", wraps=True)

# --- layers ------------------------------------------------------------------------------------------------------------------------


@hinted_formula("aiter::unified_attention_with_output_base", category="attention")
def _attention(signature: Signature, hints: Hints) -> Work:
    schema = "query q_scale key value positions layer latent"
    if Arguments(signature, schema).flag("latent"):
        raise Dispatches
    return unified(signature, hints, schema)


# Layers, which are found by their names, and choices between operators.
_LAYERS: Final = words(
    "atom_vllm_mha_attention atom_vllm_mla_attention dspark_block_attention indexer_score_topk indexer_with_output"
    " kda_attention_with_output linear_attention_with_output_base maybe_dual_stream_forward minimax_m3_sparse_attention moe_forward"
    " sparse_attn_indexer sparse_attn_indexer_plugin_mode sparse_attn_indexer_sglang_plugin_mode v4_attention_with_output"
    " v4_core_attention"
)
dispatches(*(f"aiter::{name}" for name in _LAYERS), category="other", reason=LAYER)
