"""TransformerEngine: its modules' autograd functions, softmaxes, rotary embedding and cross entropy, and its operators: products and
conversions of version 1, layouts of attention, routing of tokens.

The functions call ``transformer_engine_torch`` (``tex``), an extension whose calls are no operators; those of version 1 call the
products of ``tex_ts``, which count then. Traces record neither the recipe nor the dtype of quantized copies: products are counted in
the dtype of the tensors, and casts not at all. With sequence parallelism a layer gathers the tokens of all ranks before its product, or
adds its results up and keeps a part of them: the product has as many rows as the longer of input and result. Version 1 keeps fp8
numbers in uint8 and names dtypes by numbers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, every, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.libraries.norms import LAYER_NORM, Norm, norm_backward, norm_forward, norm_of, register_norms
from rooflines.roofline.formulas.libraries.training import softmax_backward, softmax_forward
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts, tensors_only, with_gradient
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import Hints, dispatches, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register

_RECIPE: Final = "counted in the dtype of the tensors, because fp8 recipes are not recorded"
_WHOLE: Final = "the sequence is not split over ranks"


@dataclass(frozen=True, slots=True)
class _Layers:
    """Linear layers that follow each other, and the norm before them if there is one."""

    inputs: TensorArg
    norm: Norm | None
    weights: tuple[TensorArg, ...]
    biases: tuple[TensorArg, ...]
    rows: int  # tokens
    assumption: str = f"{_RECIPE}; {_WHOLE}"

    @property
    def flops(self) -> int:
        """Products of the forward."""
        return sum(product_flops(1, self.rows, one.shape[1], one.shape[0]) for one in self.weights)

    @property
    def gathered(self) -> int:
        """Bytes of the input's rows that the first product reads."""
        return self.rows * self.inputs.shape[-1] * size_of(self.inputs.dtype)

    @property
    def results(self) -> int:
        """Bytes of the last product's rows."""
        return self.rows * self.weights[-1].shape[0] * size_of(self.inputs.dtype)

    def returning(self, result: TensorArg) -> _Layers:
        """With the rows of the result. Two layers gather and scatter, so that neither input nor result has all rows."""
        width = self.weights[-1].shape[0]
        if not width or result.shape[-1:] != (width,):
            raise NotCounted("the result does not fit the weights")
        rows = max(self.rows, result.numel // width)
        return replace(self, rows=rows, assumption=_RECIPE if len(self.weights) == 1 else self.assumption)


def _layers(tensors: tuple[TensorArg, ...], weight_first: bool, normed: bool, count: int) -> _Layers:
    """Find the layers among the tensors of a call. Copies of a weight in another format follow it and have its shape."""
    found = [one for one in tensors if one.numel]
    matrices: list[TensorArg] = []
    if weight_first and len(found) > 1:
        matrices.append(found.pop(0))
        if len(found) > 1 and found[0].shape == matrices[0].shape and found[1].shape[1:] and found[1].shape[-1] == found[0].shape[-1]:
            found.pop(0)
    if not found:
        raise NotCounted("shapes not recorded")
    inputs, width = found[0], found[0].shape[-1]
    parameters: list[TensorArg] = []
    biases: list[TensorArg] = []
    for one in found[1:]:
        if len(one.shape) == 2:
            matrices.append(one)
        elif len(one.shape) == 1:
            (parameters if normed and not matrices and one.numel == width else biases).append(one)
    weights = [one for one, before in zip(matrices, [None, *matrices], strict=False) if before is None or one.shape != before.shape][
        :count
    ]
    if len(weights) == 1 and len(matrices) % count == 0:  # of one shape: each has as many copies
        weights = matrices[:: len(matrices) // count]
    if len(weights) != count or weights[0].shape[1] != width:
        raise NotCounted("shapes of the weights not recorded")
    norm = norm_of((inputs, *parameters), None) if normed else None
    return _Layers(inputs, norm, tuple(weights), tuple(biases), inputs.numel // max(width, 1))


# Function -> is the weight before the input, is there a norm, how many layers.
_MODULES: Final = {"_Linear": (True, False, 1), "_LayerNormLinear": (False, True, 1), "_LayerNormMLP": (False, True, 2)}


def _hidden(found: _Layers) -> tuple[int, int]:
    """Elements between two layers, and the FLOPs of the activation there: gated where it halves them."""
    if len(found.weights) < 2:
        return 0, 0
    made, used = found.weights[0].shape[0], found.weights[1].shape[1]
    return found.rows * used, found.rows * used * (costs.SILU + 1 if made == 2 * used else costs.GELU)


def _forward(signature: Signature, hints: Hints, facts: tuple[bool, bool, int]) -> Work:
    found = _layers(signature.tensors, *facts)
    if hints.outputs:
        found = found.returning(hints.outputs[0])
    norm = norm_forward(found.norm, kept=True) if found.norm is not None else Work()
    return Work(
        matrix_flops=found.flops,
        other_flops=norm.other_flops + _hidden(found)[1] + found.rows * sum(one.numel for one in found.biases),
        bytes_read=found.gathered + size(*found.weights, *found.biases) + (size(*found.norm.parameters) if found.norm else 0),
        bytes_written=found.results,
        precision=matrix_precision_of(found.inputs.dtype),
        assumption=found.assumption,
    )


def _backward(signature: Signature, facts: tuple[bool, bool, int]) -> Work:
    """Gradients of the input and of every parameter: two products for each of the forward's."""
    gradients, forward = parts(signature)
    found = _layers(forward.tensors, *facts).returning(gradients[0])
    norm = norm_backward(found.norm, gradients[:1]) if found.norm is not None else Work()
    parameters = (*found.weights, *found.biases, *(found.norm.parameters if found.norm else ()))
    return Work(
        matrix_flops=2 * found.flops,
        other_flops=norm.other_flops + _hidden(found)[1] + found.rows * sum(one.numel for one in found.biases),
        bytes_read=found.results + found.gathered + size(*found.weights) + _hidden(found)[0] * size_of(found.inputs.dtype),
        bytes_written=written(found.inputs, *parameters),
        precision=matrix_precision_of(found.inputs.dtype),
        assumption=found.assumption,
    )


for _name, _facts in _MODULES.items():
    hinted_formula(_name, category="matmul", wraps=True)(partial(_forward, facts=_facts))
    formula(f"{_name}Backward", category="matmul", wraps=True)(partial(_backward, facts=_facts))


def _groups(tensors: tuple[TensorArg, ...]) -> tuple[TensorArg, list[TensorArg], list[TensorArg]]:
    """The tokens of all groups, and a weight [out, in] and perhaps a bias for each group; or [groups, out, in] and [groups, out]."""
    if not tensors:
        raise NotCounted("shapes not recorded")
    inputs = tensors[0]
    stacked = next((one for one in tensors[1:] if len(one.shape) == 3 and one.shape[-1] == inputs.shape[-1]), None)
    if stacked is not None:
        of_each = (TensorArg(one.shape[1:], one.dtype) for one in tensors[1:] if one.shape in (stacked.shape, stacked.shape[:2]))
        tensors = (inputs, *(one for one in of_each for _ in every(stacked.shape[0])))
    weights = [one for one in tensors[1:] if len(one.shape) == 2 and one.shape[1] == inputs.shape[-1]]
    if not weights or len({one.shape for one in weights}) > 1:
        raise NotCounted("shapes of the weights not recorded")
    return inputs, weights, [one for one in tensors[1:] if one.shape == weights[0].shape[:1] and one.numel]


def _grouped(signature: Signature, backward: bool) -> Work:
    gradients, forward = parts(signature) if backward else ((), signature)
    inputs, weights, biases = _groups(forward.tensors)
    rows, outputs = inputs.numel // max(inputs.shape[-1], 1), weights[0].shape[0]
    parameters = size(*weights) if backward else size(*weights, *biases)
    return Work(
        matrix_flops=(1 + backward) * product_flops(1, rows, inputs.shape[-1], outputs),
        other_flops=rows * outputs * bool(biases),
        bytes_read=size(inputs, *gradients[:1]) + parameters * min(len(weights), rows) // len(weights),
        bytes_written=written(inputs, *weights, *biases) if backward else rows * outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
        assumption=f"{_RECIPE}; {SPREAD}",
    )


formula("_GroupedLinear", category="matmul", wraps=True)(partial(_grouped, backward=False))
formula("_GroupedLinearBackward", category="matmul", wraps=True)(partial(_grouped, backward=True))

# --- norms, softmaxes, rotary embedding, losses ------------------------------------------------------------------------------------

register_norms("_LayerNorm", rms=False)  # TransformerEngine 1
register_norms("_RMSNorm", rms=True)

_SOFTMAXES: Final = ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked")
formula(*(f"te_softmax::{name}_softmax_fwd" for name in _SOFTMAXES), category="reduction")(softmax_forward)
formula(*(f"te_softmax::{name}_softmax_bwd" for name in _SOFTMAXES), category="reduction")(softmax_backward)

# Two multiplications and an addition an element; the sine and cosine of each angle.
_ROTATED: Final = Row("read x, read angles, read starts?, read ends?", 3, "x", "x", other=f"{2 * costs.TRANSCENDENTAL} * angles.n")
_ROTATED_BACK: Final = Row("update grad, inputs, read angles", 3, "grad", other=f"{2 * costs.TRANSCENDENTAL} * angles.n")
register({"FusedRoPEFunc": _ROTATED}, "element-wise", given=tensors_only)
register({"FusedRoPEFuncBackward": _ROTATED_BACK}, "element-wise", given=with_gradient)


@hinted_formula("FusedQKVRoPEFunc", category="element-wise")
def _rotate_packed(signature: Signature, hints: Hints) -> Work:
    """Queries, keys and values that lie together: the first two rotate, all are copied. Their sizes are a list, which traces leave
    out."""
    if len(signature.tensors) < 3:
        raise NotCounted("shapes not recorded")
    packed, *angles = signature.tensors[:3]
    rotated = sum(one.numel for one in hints.outputs[:2]) if hints.outputs else packed.numel
    flops = 3 * rotated + 2 * costs.TRANSCENDENTAL * sum(one.numel for one in angles)
    assumption = "" if hints.outputs else "values rotate as well, because their size is not recorded"
    return Work(0, flops, size(packed, *angles), written(packed), precision_of(packed.dtype), assumption)


@formula("FusedQKVRoPEFuncBackward", category="element-wise")
def _rotate_packed_back(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    angles = forward.tensors[1:3]
    flops = 3 * sum(one.numel for one in gradients[:2]) + 2 * costs.TRANSCENDENTAL * sum(one.numel for one in angles)
    return Work(0, flops, size(*gradients, *angles), written(*gradients), precision_of(gradients[0].dtype))


# Whether the gradient is scaled depends on the value of the one that is given.
dispatches("CrossEntropyFunctionBackward", category="element-wise")

# The gradient takes the place of the logits. The function of QuACK that has this name has no number after the labels, and keeps the
# logarithm of each row's sum for its backward.
_LOSSES: Final = (
    Row(
        "update logits, read target, smoothing=0.0", costs.SOFTMAX + 2, "logits", writes="4 * target.n",
        assumption="gradients computed in the forward", fits="isinstance(value('smoothing'), float)",
    ),
    Row("read logits, read target", costs.SOFTMAX, "logits", writes="8 * target.n"),
)  # fmt: skip
register({"CrossEntropyFunction": _LOSSES}, "reduction")

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
register({"tex_ts::cast_to_fp8_ts tex_ts::cast_to_fp8_noalloc_ts": Row("read self", _NARROW, "self", writes="self.n")}, "element-wise")

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
