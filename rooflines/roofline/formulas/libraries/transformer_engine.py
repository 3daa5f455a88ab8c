"""TransformerEngine: its modules' autograd functions, softmaxes, rotary embedding and cross entropy.

Order of arguments: TransformerEngine d0067d0 (2.20), and 1.0 to 2.9: ``transformer_engine/pytorch/module/{linear,layernorm_linear,
layernorm_mlp,grouped_linear}.py``, ``attention/rope.py``, ``attention/dot_product_attention/softmax.py``, ``cross_entropy.py``. The
functions call ``transformer_engine_torch`` (``tex``), an extension whose calls are no operators; those of version 1 call the products
of ``tex_ts``, which count then. Traces record neither the recipe nor the dtype of quantized copies: products are counted in the dtype
of the tensors, and casts not at all. With sequence parallelism a layer gathers the tokens of all ranks before its product, or adds its
results up and keeps a part of them: the product has as many rows as the longer of input and result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, every, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD, used
from rooflines.roofline.formulas.libraries.apex import softmax_backward, softmax_forward
from rooflines.roofline.formulas.libraries.norms import Norm, norm_backward, norm_forward, norm_of, register_norms
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
        bytes_read=size(inputs, *gradients[:1]) + parameters * used(len(weights), rows) // len(weights),
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


@formula("CrossEntropyFunction", category="reduction")
def _cross_entropy(signature: Signature) -> Work:
    """The gradient takes the place of the logits. The function of QuACK that has this name has no number after the labels, and keeps
    the logarithm of each row's sum for its backward."""
    if len(signature.tensors) < 2:
        raise NotCounted("shapes not recorded")
    logits, target = signature.tensors[:2]
    if not isinstance(signature.arg(2, 0.0), float):
        return Work(0, logits.numel * costs.SOFTMAX, size(logits, target), 8 * target.numel, precision_of(logits.dtype))
    return Work(
        other_flops=logits.numel * (costs.SOFTMAX + 2),
        bytes_read=size(logits, target),
        bytes_written=written(logits) + 4 * target.numel,
        precision=precision_of(logits.dtype),
        assumption="gradients computed in the forward",
    )
