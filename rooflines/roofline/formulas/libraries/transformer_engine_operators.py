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
from rooflines.roofline.formulas.libraries.norms import norm_forward, norm_of
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.narrow import narrowed, widened
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula

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

_META: Final = "scale range inverse index dtype"
_RANGE: Final = 2  # the largest magnitude, for the scales of later steps


@formula("tex_ts::cast_to_fp8_ts", "tex_ts::cast_to_fp8_noalloc_ts", category="element-wise")
def _narrow(signature: Signature) -> Work:
    return narrowed(Arguments(signature, "self").tensor("self"), scales=0, cost=costs.QUANTIZE + _RANGE)


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
    args = Arguments(signature, f"self {_META}")
    inputs, dtype = args.tensor("self"), _dtype(args, "dtype")
    results = inputs.numel // (1 + gated)
    cost += (costs.QUANTIZE + _RANGE) * dtype.startswith("float8")
    return Work(0, results * cost, size(inputs), results * size_of(dtype), precision_of(inputs.dtype))


for _kind, (_cost, _gated) in _ACTIVATIONS.items():
    formula(f"tex_ts::{_kind}_ts", category="element-wise")(partial(_activation, cost=_cost, gated=_gated))


def _norm(signature: Signature, rms: bool) -> Work:
    """Of inference: without statistics; those with ``fp8`` in their names are quantized as well."""
    args = Arguments(signature, "self weight" if rms else "self weight bias")
    tensors = tuple(args.tensor(name) for name in ("self", "weight", *(() if rms else ("bias",))))
    norm = norm_forward(norm_of(tensors, rms), kept=False)
    if "fp8" not in signature.name:
        return norm
    inputs = tensors[0]
    narrowed = Work(other_flops=inputs.numel * (costs.QUANTIZE + _RANGE), bytes_written=inputs.numel - written(inputs))
    return norm + narrowed


for _kind, _rms in {"layernorm": False, "rmsnorm": True}.items():
    formula(f"tex_ts::{_kind}_fwd_inf_ts", f"tex_ts::{_kind}_fwd_fp8_inf_ts", category="normalisation")(partial(_norm, rms=_rms))

# --- layouts of attention ----------------------------------------------------------------------------------------------------------


@formula("te_attention::fa_prepare_fwd", category="copy")
def _split(signature: Signature) -> Work:
    """Queries, keys and values that lie together in [s, b, heads, 3 * depth], of which the argument is a view of the queries."""
    queries = Arguments(signature, "queries").tensor("queries")
    return Work(bytes_read=3 * written(queries), bytes_written=3 * written(queries))


@formula("te_attention::fa_prepare_bwd", category="copy")
def _join(signature: Signature) -> Work:
    args = Arguments(signature, "queries keys values")
    moved = written(*(args.tensor(name) for name in ("queries", "keys", "values")))
    return Work(bytes_read=moved, bytes_written=moved)


@formula("te_attention::convert_thd_to_bshd", "te_kv_cache::convert_thd_to_bshd", "te_attention::convert_bshd_to_thd",
         "te_kv_cache::convert_bshd_to_thd", category="copy")  # fmt: skip
def _convert(signature: Signature) -> Work:
    """Packed sequences [tokens, ...] from or to [batch, longest, ...]; places beyond the end of a sequence are not moved."""
    packed = "thd_to_bshd" in signature.name
    args = Arguments(signature, "self ends" if packed else "self ends tokens")
    inputs, ends = args.tensor("self"), args.tensor("ends")
    moved = written(inputs)
    if not packed:
        moved = moved // (inputs.shape[0] * inputs.shape[1]) * args.integer("tokens")
    return Work(bytes_read=moved + size(ends), bytes_written=moved)


@formula("te_kv_cache::copy_to_kv_cache", category="copy")
def _cache(signature: Signature) -> Work:
    """New keys and values into the pages of a cache."""
    args = Arguments(signature, "keys values key_cache value_cache pages new_lengths lengths")
    keys, values = args.tensor("keys"), args.tensor("values")
    small = size(*(args.optional(name) for name in ("pages", "new_lengths", "lengths")))
    return Work(bytes_read=size(keys, values) + small, bytes_written=written(keys, values))


# --- routing of tokens -------------------------------------------------------------------------------------------------------------


def _scores(signature: Signature) -> tuple[TensorArg, int]:
    """Logits [tokens, experts], and FLOPs of a softmax over them and the choice of the best."""
    if not signature.tensors or len(signature.tensors[0].shape) < 2:
        raise NotCounted("shapes not recorded")
    logits = signature.tensors[0]
    return logits, logits.numel * (costs.SOFTMAX + 1)


@formula("FusedTopkScoreFunction", "FusedComputeScoresForMoEAuxLoss", category="moe")
def _route(signature: Signature) -> Work:
    """Scores like the logits, a byte that says whether a token goes to an expert, and scores in float32 for the backward."""
    logits, flops = _scores(signature)
    scores = 4 * logits.numel if signature.name.endswith("AuxLoss") else written(logits)
    kept = scores + logits.numel + 4 * logits.numel
    return Work(0, flops, size(*signature.tensors[:2]), kept, precision_of(logits.dtype), _SOFTMAX)


@formula("FusedTopkScoreFunctionBackward", "FusedComputeScoresForMoEAuxLossBackward", category="moe")
def _route_gradient(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    logits, _ = _scores(forward)
    saved = 4 * logits.numel + (0 if "AuxLoss" in signature.name else logits.numel)
    flops = logits.numel * (costs.SOFTMAX_BACKWARD + 1)
    return Work(0, flops, size(gradients[-1]) + saved, written(logits), precision_of(logits.dtype), _SOFTMAX)


_SOFTMAX: Final = "scores by a softmax, because the name of the function is not recorded"


@formula("FusedAuxLoss", category="moe")
def _balance(signature: Signature) -> Work:
    """The sum over experts of their tokens times the sum of their probabilities."""
    if len(signature.tensors) < 2:
        raise NotCounted("shapes not recorded")
    scores, counts = signature.tensors[:2]
    return Work(0, scores.numel + 2 * counts.numel, size(scores, counts), 8, precision_of(scores.dtype))


@formula("FusedAuxLossBackward", category="moe")
def _balance_gradient(signature: Signature) -> Work:
    _, forward = parts(signature)
    scores, counts = forward.tensors[:2]
    return Work(0, scores.numel, size(counts) + 8, written(scores), precision_of(scores.dtype))
