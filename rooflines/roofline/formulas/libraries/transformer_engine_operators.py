"""Operators of TransformerEngine: products and conversions of version 1, layouts of attention, routing of tokens.

Order of arguments: NVIDIA/TransformerEngine 1.13, transformer_engine/pytorch/csrc/ts_fp8_op.cpp (operators ``tex_ts``, of 1.0 to 1.14
and of ROCm/TransformerEngine ac80527); d0067d0 (2.20), transformer_engine/pytorch/attention/custom_ops.py,
attention/dot_product_attention/utils.py, router.py. Version 1 keeps fp8 numbers in uint8 and names dtypes by numbers of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size_of
from rooflines.roofline.formulas.libraries.norms import LAYER_NORM
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import tensors_only, with_gradient
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

_DTYPES: Final = {3: "float32", 4: "float16", 5: "bfloat16", 6: "float8_e4m3fn", 7: "float8_e5m2"}


def _dtype(args: Arguments, name: str) -> str:
    """A dtype by its number in this library."""
    try:
        return _DTYPES[args.integer(name)]
    except KeyError:
        raise NotCounted(f"argument '{name}' not recorded") from None


# --- products ----------------------------------------------------------------------------------------------------------------------


# [n, k] and [m, k] in either layout -> [m, n], with a bias and GELU, which are empty where a call has none; with ``grad``, the bias is
# the sum of the second operand and GELU's input is read.
_PRODUCT: Final = Row(
    "read left, left_scale, left_index, left_type, flip_left, read right, right_scale, right_index, right_type, flip_right, write out,"
    " out_scale, out_type, range, view bias?, bias_type, view gelu?, grad, workspace, workspace_size, accumulate, split",
    where="n = out[-1]; k = left.n // n; m = out.n // n; back = bool(grad) if bias.n or gelu.n else 0; adds = bool(accumulate)",
    matrix="2 * m * k * n",
    other="out.n * (adds + (GELU + 6 * back) * bool(gelu.n)) + (right.n if back else out.n) * bool(bias.n)",
    also="out.size * adds + (gelu.size if back else bias.size)",
    writes="bias.n * bias.item if back else gelu.n * gelu.item",
    fits="k * m == right.n",
)
_PRODUCTS: Final = (replace(_PRODUCT, precision="=fp8", fits=f"left.dtype == 'uint8' and {_PRODUCT.fits}"), _PRODUCT)
register({"tex_ts::te_gemm_ts": _PRODUCTS}, "matmul")


_LEFT: Final = "left left_scale left_offset left_type flip_left right right_scale right_offset right_type flip_right"
_GROUPED: Final = {
    "tex_ts::te_grouped_gemm_ts": f"{_LEFT} out out_offset out_scale out_type",
    "tex_ts::te_grouped_gemm_single_output_ts": f"{_LEFT} splits out out_offset out_scale out_type",
}


def _products(signature: Signature, schema: str) -> Work:
    """A list of operands each; traces record their dtypes as numbers. Biases are left out."""
    args = Arguments(signature, schema)
    pairs = list(zip(args.tensors("left"), args.tensors("right"), strict=False))
    if not pairs or len(args.tensors("left")) != len(args.tensors("right")):
        raise NotCounted("tensors of the list not recorded")
    flips = args.flag("flip_left"), args.flag("flip_right")
    left_type, right_type, out_type = (_dtype(args, f"{name}_type") for name in ("left", "right", "out"))
    columns = [left.shape[not flips[0]] for left, _ in pairs]
    rows = [right.shape[flips[1]] for _, right in pairs]
    inner = [left.shape[flips[0]] for left, _ in pairs]
    return Work(
        matrix_flops=sum(product_flops(1, *sizes) for sizes in zip(rows, inner, columns, strict=True)),
        bytes_read=sum(left.numel * size_of(left_type) + right.numel * size_of(right_type) for left, right in pairs),
        bytes_written=sum(m * n for m, n in zip(rows, columns, strict=True)) * size_of(out_type),
        precision=matrix_precision_of(left_type),
    )


for _name, _schema in _GROUPED.items():
    formula(_name, category="matmul")(partial(_products, schema=_schema))

# --- conversions, activations and norms --------------------------------------------------------------------------------------------

_NARROW: Final = costs.QUANTIZE + 2  # and the largest magnitude, for the scales of later steps
_CAST: Final = Row("read self", _NARROW, "self", writes="self.n")
register({"tex_ts::cast_to_fp8_ts tex_ts::cast_to_fp8_noalloc_ts": _CAST}, "element-wise")


# The number of a dtype, its bytes and precision.
_WIDE: Final = {3: (4, "=fp32"), 4: (2, "=fp16"), 5: (2, "=bf16")}
_WIDENED: Final = tuple(
    Row(
        "read self, inverse, index, from_type, dtype",
        1,
        "self",
        writes=f"{item} * self.n",
        precision=precision,
        fits=f"dtype == {code}",
    )
    for code, (item, precision) in _WIDE.items()
)
register({"tex_ts::cast_from_fp8_ts": _WIDENED}, "element-wise")


def _activation(cost: int, gated: bool = False) -> Row:
    """``cost`` FLOPs for each number of the result, of which a gate leaves half; quantized as well where the result is fp8."""
    made = "self.n // 2" if gated else "self.n"
    return Row(
        "read self, scale, range, inverse, index, dtype",
        other=f"{made} * ({cost} + {_NARROW} * (dtype > 5))",
        writes=f"{made} * (4 if dtype == 3 else 2 if dtype < 6 else 1)",
        fits="dtype in (3, 4, 5, 6, 7)",
    )


_ACTIVATIONS: Final[dict[str, Row]] = {
    "tex_ts::gelu_ts": _activation(costs.GELU),
    "tex_ts::relu_ts": _activation(costs.BASIC),
    "tex_ts::qgelu_ts": _activation(costs.SILU + 1),
    "tex_ts::srelu_ts": _activation(2),
    "tex_ts::geglu_ts": _activation(costs.GELU + 1, gated=True),
    "tex_ts::reglu_ts": _activation(2, gated=True),
    "tex_ts::swiglu_ts": _activation(costs.SILU + 1, gated=True),
}
register(_ACTIVATIONS, "element-wise")


_NORMS: Final[dict[str, Row]] = {  # of inference: without statistics
    "tex_ts::layernorm_fwd_inf_ts": Row("read self, read weight, read bias", LAYER_NORM, "self", "self"),
    "tex_ts::layernorm_fwd_fp8_inf_ts": Row("read self, read weight, read bias", LAYER_NORM + _NARROW, "self", writes="self.n"),
    "tex_ts::rmsnorm_fwd_inf_ts": Row("read self, read weight", costs.RMS_NORM, "self", "self"),
    "tex_ts::rmsnorm_fwd_fp8_inf_ts": Row("read self, read weight", costs.RMS_NORM + _NARROW, "self", writes="self.n"),
}
register(_NORMS, "normalisation")

# --- layouts of attention ----------------------------------------------------------------------------------------------------------

_CONVERT: Final = "te_attention::convert_{0} te_kv_cache::convert_{0}"
_LAYOUTS: Final[dict[str, Row]] = {
    # Queries, keys and values that lie together in [s, b, heads, 3 * depth], of which the argument is a view of the queries.
    "te_attention::fa_prepare_fwd": Row("read queries", reads="3 * queries.n * queries.item", writes="3 * queries.n * queries.item"),
    "te_attention::fa_prepare_bwd": Row(
        "read queries, read keys, read values",
        reads="queries.n * queries.item + keys.n * keys.item + values.n * values.item",
        result="queries keys values",
    ),
    # Packed sequences [tokens, ...] from or to [batch, longest, ...]; places beyond the end of a sequence are not moved.
    _CONVERT.format("thd_to_bshd"): Row("read self, read ends", reads="self.n * self.item + ends.size", result="self"),
    _CONVERT.format("bshd_to_thd"): Row(
        "read self[batch longest *rest], read ends, tokens",
        reads="tokens * rest * self.item + ends.size",
        writes="tokens * rest * self.item",
    ),
    # New keys and values into the pages of a cache.
    "te_kv_cache::copy_to_kv_cache": Row(
        "read keys, read values, key_cache, value_cache, read pages?, read new_lengths?, read lengths?", result="keys values"
    ),
}
register(_LAYOUTS, "copy")

# --- routing of tokens -------------------------------------------------------------------------------------------------------------

_SOFTMAX: Final = "scores by a softmax, because the name of the function is not recorded"
_ROUTE: Final = costs.SOFTMAX + 1  # and the choice of the best
_ROUTE_GRADIENT: Final = costs.SOFTMAX_BACKWARD + 1
# Logits [tokens, experts]. Scores like these, a byte that says whether a token goes to an expert, scores in float32 for the backward.
_ROUTINGS: Final[dict[str, Row]] = {
    "FusedTopkScoreFunction": Row(
        "read logits[tokens experts], read bias?", _ROUTE, "logits", "logits", assumption=_SOFTMAX, writes="(1 + 4) * logits.n"
    ),
    "FusedComputeScoresForMoEAuxLoss": Row(
        "read logits[tokens experts], read bias?", _ROUTE, "logits", assumption=_SOFTMAX, writes="(4 + 1 + 4) * logits.n"
    ),
    # The sum over experts of their tokens times the sum of their probabilities.
    "FusedAuxLoss": Row("read scores, read counts", 1, "scores counts counts", writes="8"),
}
_GRADIENTS: Final[dict[str, Row]] = {
    "FusedTopkScoreFunctionBackward": Row(
        "read grad, write logits[tokens experts]", _ROUTE_GRADIENT, "logits", precision="logits", assumption=_SOFTMAX,
        reads="grad.size + (4 + 1) * logits.n",
    ),
    "FusedComputeScoresForMoEAuxLossBackward": Row(
        "read grad, write logits[tokens experts]", _ROUTE_GRADIENT, "logits", precision="logits", assumption=_SOFTMAX,
        reads="grad.size + 4 * logits.n",
    ),
    "FusedAuxLossBackward": Row(
        "grad, write scores, read counts", 1, "scores", precision="scores", reads="counts.size + 8"
    ),
}  # fmt: skip
register(_ROUTINGS, "moe", given=tensors_only)
register(_GRADIENTS, "moe", given=with_gradient)
