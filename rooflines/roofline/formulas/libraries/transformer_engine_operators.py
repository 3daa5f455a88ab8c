"""Operators of TransformerEngine: products and conversions of version 1, layouts of attention, routing of tokens.

Order of arguments: NVIDIA/TransformerEngine 1.13, transformer_engine/pytorch/csrc/ts_fp8_op.cpp (operators ``tex_ts``, of 1.0 to 1.14
and of ROCm/TransformerEngine ac80527); d0067d0 (2.20), transformer_engine/pytorch/attention/custom_ops.py,
attention/dot_product_attention/utils.py, router.py. Version 1 keeps fp8 numbers in uint8 and names dtypes by numbers of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.narrow import widened
from rooflines.roofline.formulas.nodes import tensors_only, with_gradient
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import formula

_DTYPES: Final = {3: "float32", 4: "float16", 5: "bfloat16", 6: "float8_e4m3fn", 7: "float8_e5m2"}


def _dtype(args: Arguments, name: str) -> str:
    """A dtype by its number in this library."""
    try:
        return _DTYPES[args.integer(name)]
    except KeyError:
        raise NotCounted(f"argument '{name}' not recorded") from None


def _there(args: Arguments, name: str) -> TensorArg | None:
    """A tensor that is empty where the call has none."""
    tensor = args.optional(name)
    return tensor if tensor is not None and tensor.numel else None


# --- products ----------------------------------------------------------------------------------------------------------------------


@formula("tex_ts::te_gemm_ts", category="matmul")
def _product(signature: Signature) -> Work:
    """[n, k] and [m, k] in either layout -> [m, n], with a bias and GELU; with ``grad``, the bias is the sum of the second operand and
    GELU's input is read."""
    args = Arguments(
        signature,
        "left left_scale left_index left_type flip_left right right_scale right_index right_type flip_right"
        " out out_scale out_type range bias bias_type gelu grad workspace workspace_size accumulate split",
    )
    left, right, out = args.tensor("left"), args.tensor("right"), args.tensor("out")
    bias, gelu = _there(args, "bias"), _there(args, "gelu")
    columns = out.shape[-1]
    inner, rows = left.numel // columns, out.numel // columns
    if inner * rows != right.numel:
        raise NotCounted("the result does not fit the operands")
    backward = (bias is not None or gelu is not None) and args.flag("grad")
    accumulates = args.flag("accumulate")
    cost = out.numel * (accumulates + (costs.GELU + 6 * backward if gelu else 0))
    return Work(
        matrix_flops=product_flops(1, rows, inner, columns),
        other_flops=cost + ((right.numel if backward else out.numel) if bias else 0),
        bytes_read=size(left, right, out if accumulates else None, *((gelu,) if backward else (bias,))),
        bytes_written=written(out, *((bias,) if backward else (gelu,))),
        precision="fp8" if left.dtype == "uint8" else matrix_precision_of(left.dtype),
    )


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
_CAST: Final = Pass("read self", _NARROW, "self", writes="self.n")
register({"tex_ts::cast_to_fp8_ts tex_ts::cast_to_fp8_noalloc_ts": _CAST}, "element-wise")


@formula("tex_ts::cast_from_fp8_ts", category="element-wise")
def _widen(signature: Signature) -> Work:
    args = Arguments(signature, "self inverse index from_type dtype")
    return widened(args.tensor("self"), dtype=_dtype(args, "dtype"), cost=1)


# Operator -> FLOPs for an element of the result, and whether a gate halves the last dimension.
_ACTIVATIONS: Final = {
    "gelu": (costs.GELU, False), "relu": (costs.BASIC, False), "qgelu": (costs.SILU + 1, False), "srelu": (2, False),
    "geglu": (costs.GELU + 1, True), "reglu": (2, True), "swiglu": (costs.SILU + 1, True),
}  # fmt: skip


def _activation(signature: Signature, cost: int, gated: bool) -> Work:
    """Quantized as well where the result is fp8."""
    args = Arguments(signature, "self scale range inverse index dtype")
    inputs, dtype = args.tensor("self"), _dtype(args, "dtype")
    results = inputs.numel // (1 + gated)
    cost += _NARROW * dtype.startswith("float8")
    return Work(0, results * cost, size(inputs), results * size_of(dtype), precision_of(inputs.dtype))


for _kind, (_cost, _gated) in _ACTIVATIONS.items():
    formula(f"tex_ts::{_kind}_ts", category="element-wise")(partial(_activation, cost=_cost, gated=_gated))


_LAYER_NORM: Final = costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + 2
_NORMS: Final[dict[str, Pass]] = {  # of inference: without statistics
    "tex_ts::layernorm_fwd_inf_ts": Pass("read self, read weight, read bias", _LAYER_NORM, "self", "self"),
    "tex_ts::layernorm_fwd_fp8_inf_ts": Pass("read self, read weight, read bias", _LAYER_NORM + _NARROW, "self", writes="self.n"),
    "tex_ts::rmsnorm_fwd_inf_ts": Pass("read self, read weight", costs.RMS_NORM, "self", "self"),
    "tex_ts::rmsnorm_fwd_fp8_inf_ts": Pass("read self, read weight", costs.RMS_NORM + _NARROW, "self", writes="self.n"),
}
register(_NORMS, "normalisation")

# --- layouts of attention ----------------------------------------------------------------------------------------------------------

_CONVERT: Final = "te_attention::convert_{0} te_kv_cache::convert_{0}"
_LAYOUTS: Final[dict[str, Pass]] = {
    # Queries, keys and values that lie together in [s, b, heads, 3 * depth], of which the argument is a view of the queries.
    "te_attention::fa_prepare_fwd": Pass("read queries", reads="3 * queries.n * queries.item", writes="3 * queries.n * queries.item"),
    "te_attention::fa_prepare_bwd": Pass(
        "read queries, read keys, read values",
        reads="queries.n * queries.item + keys.n * keys.item + values.n * values.item",
        result="queries keys values",
    ),
    # Packed sequences [tokens, ...] from or to [batch, longest, ...]; places beyond the end of a sequence are not moved.
    _CONVERT.format("thd_to_bshd"): Pass("read self, read ends", reads="self.n * self.item + ends.size", result="self"),
    _CONVERT.format("bshd_to_thd"): Pass(
        "read self[batch longest *rest], read ends, tokens",
        reads="tokens * rest * self.item + ends.size",
        writes="tokens * rest * self.item",
    ),
    # New keys and values into the pages of a cache.
    "te_kv_cache::copy_to_kv_cache": Pass(
        "read keys, read values, key_cache, value_cache, read pages?, read new_lengths?, read lengths?", result="keys values"
    ),
}
register(_LAYOUTS, "copy")

# --- routing of tokens -------------------------------------------------------------------------------------------------------------

_SOFTMAX: Final = "scores by a softmax, because the name of the function is not recorded"
_ROUTE: Final = costs.SOFTMAX + 1  # and the choice of the best
_ROUTE_GRADIENT: Final = costs.SOFTMAX_BACKWARD + 1
# Logits [tokens, experts]. Scores like these, a byte that says whether a token goes to an expert, scores in float32 for the backward.
_ROUTINGS: Final[dict[str, Pass]] = {
    "FusedTopkScoreFunction": Pass(
        "read logits[tokens experts], read bias?", _ROUTE, "logits", "logits", assumption=_SOFTMAX, writes="(1 + 4) * logits.n"
    ),
    "FusedComputeScoresForMoEAuxLoss": Pass(
        "read logits[tokens experts], read bias?", _ROUTE, "logits", assumption=_SOFTMAX, writes="(4 + 1 + 4) * logits.n"
    ),
    # The sum over experts of their tokens times the sum of their probabilities.
    "FusedAuxLoss": Pass("read scores, read counts", 1, "scores counts counts", writes="8"),
}
_GRADIENTS: Final[dict[str, Pass]] = {
    "FusedTopkScoreFunctionBackward": Pass(
        "read grad, write logits[tokens experts]", _ROUTE_GRADIENT, "logits", precision="logits", assumption=_SOFTMAX,
        reads="grad.size + (4 + 1) * logits.n",
    ),
    "FusedComputeScoresForMoEAuxLossBackward": Pass(
        "read grad, write logits[tokens experts]", _ROUTE_GRADIENT, "logits", precision="logits", assumption=_SOFTMAX,
        reads="grad.size + 4 * logits.n",
    ),
    "FusedAuxLossBackward": Pass(
        "grad, write scores, read counts", 1, "scores", precision="scores", reads="counts.size + 8"
    ),
}  # fmt: skip
register(_ROUTINGS, "moe", given=tensors_only)
register(_GRADIENTS, "moe", given=with_gradient)
