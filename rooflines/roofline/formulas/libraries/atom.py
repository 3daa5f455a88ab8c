"""Operators of ATOM, a server on AITER, which are in AITER's namespace.

Order of arguments: ROCm/ATOM ffdf3bb (``atom/model_ops/layernorm.py``, ``linear.py``, ``activation.py``, ``base_attention.py``,
``module_dispatch_ops.py``; ``atom/models/deepseek_v2.py``, ``deepseek_v4.py``, ``kimi_k3.py``; ``atom/plugin/``).

Layers only call other operators. The others count if nothing below them is counted: most launch a kernel in Triton.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.libraries.aiter_kernels import LAYER_NORM
from rooflines.roofline.formulas.libraries.aiter_products import to_fp4
from rooflines.roofline.formulas.narrow import narrowed
from rooflines.roofline.formulas.packed_attention import unified
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import LAYER, Hints, dispatches, formula, hinted_formula, words

PASSES: Final[dict[str, Pass]] = {
    "rmsnorm2d_fwd_": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "fused_rmsnorm_pad_": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "layernorm2d_fwd_": Pass("read input, read weight, read bias, eps", LAYER_NORM, result="input"),
    # return the norm of the sum and the sum; padding of rows is not counted
    "rmsnorm2d_fwd_with_add_": Pass("read input, read weight, read residual, eps", costs.RMS_NORM + 1, result="input residual"),
    "layernorm2d_fwd_with_add_": Pass(
        "read input, read weight, read residual, read bias, eps", LAYER_NORM + 1, result="input residual"
    ),
    "fused_add_rmsnorm_pad_": Pass("read input, read weight, eps, read residual", costs.RMS_NORM + 1, result="input residual"),
    "fused_dual_rmsnorm_cat": Pass(  # side by side
        "read first, read first_weight, read second, read second_weight, eps", costs.RMS_NORM, "first second", result="first second"
    ),
}
register({f"aiter::{name}": one for name, one in PASSES.items()}, "normalisation", wraps=True)


@formula("aiter::_fuse_rmsnorm_fp4_quant", "aiter::_fused_rms_fp8_quant", category="normalisation", wraps=True)
def _two_norms(signature: Signature) -> Work:
    """Norms of one or two tensors. The first may be a sum with a residual, and becomes narrow, with a scale for each 32 of fp4, for
    each group or row of fp8; with a flag, it is also returned unchanged. Padding of the scales is not counted."""
    fp4 = signature.name.endswith("fp4_quant")
    end = "shuffle=True padding=True both=False" if fp4 else "dtype=24 group=128 kind=None both=False"
    args = Arguments(signature, f"first first_weight eps second=None second_weight=None second_eps=None residual=None {end}")
    first, second, residual = args.tensor("first"), args.optional("second"), args.optional("residual")
    numbers, wide = first.numel, first.numel * size_of(first.dtype)
    kind = None if fp4 else args.value("kind")
    made, cost = numbers // 2 + numbers // 32, DYNAMIC_QUANTIZE
    if not fp4 and kind in (None, 0):
        made, cost = wide, 0
    elif not fp4:
        made = numbers + 4 * (first.shape[0] if kind == 2 else first.shape[0] * -(-first.shape[-1] // args.integer("group")))
    return Work(
        other_flops=numbers * (costs.RMS_NORM + cost + (residual is not None)) + (second.numel * costs.RMS_NORM if second else 0),
        bytes_read=size(first, args.tensor("first_weight"), second, args.optional("second_weight"), residual),
        bytes_written=made + wide * args.flag("both") + written(second, residual),
        precision=precision_of(first.dtype),
    )


@formula("aiter::_aiter_rms_quant", category="normalisation", wraps=True)
def _narrow_norm(signature: Signature) -> Work:
    """In fp8 with a scale for each row or each 128 numbers, or in fp4 with one for each 32, as AITER's QuantType says."""
    args = Arguments(signature, "input weight eps kind transpose residual=None")
    inputs, residual, kind = args.tensor("input"), args.optional("residual"), args.integer("kind")
    numbers, rows = inputs.numel, inputs.numel // inputs.shape[-1]
    made = {2: numbers + 4 * rows, 3: numbers // 2 + numbers // 32, 4: numbers + 4 * (numbers // 128)}.get(kind)
    if made is None:
        raise NotCounted(f"unknown kind of scales {kind}")
    return Work(
        other_flops=numbers * (costs.RMS_NORM + DYNAMIC_QUANTIZE + (residual is not None)),
        bytes_read=size(inputs, args.tensor("weight"), residual),
        bytes_written=made + written(residual),
        precision=precision_of(inputs.dtype),
    )


@formula("aiter::mxfp4_act_mul_quant_fuse", category="element-wise", wraps=True)
def _gated(signature: Signature) -> Work:
    """SiLU of the gate times the factor in fp4, with a scale for each 32."""
    inputs = Arguments(signature, "input").tensor("input")
    made = inputs.numel // 2
    return narrowed(inputs, scales=made // 32, bits=4, cost=costs.SILU + 1 + DYNAMIC_QUANTIZE, numbers=made)


_SCALED: Final = "left, right, read scale_a, read scale_b"
PRODUCTS: Final[dict[str, str]] = {
    **dict.fromkeys(words("gemm_a8w8_blockscale_preshuffle_impl gemm_a8w8_blockscale_triton_impl"), f"{_SCALED}, out_dtype=15"),
    **dict.fromkeys(words("gemm_a8w8_per_token_impl gemm_a8w8_per_tensor_impl"), f"{_SCALED}, read bias?, out_dtype=15"),
    "gemm_a8w8_blockscale_preshuffle_into_output": f"{_SCALED}, write out",
    "_bmm_fp8_op": "left, right, write out, read scale_a, read scale_b",
}
register_products({f"aiter::{name}": schema for name, schema in PRODUCTS.items()}, wraps=True)


formula("aiter::gemm_a4w4_quant", category="matmul", wraps=True)(partial(to_fp4, schema="left left_scale right dtype scale"))


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
