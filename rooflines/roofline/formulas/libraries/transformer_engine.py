"""TransformerEngine: its modules' autograd functions, softmaxes, rotary embedding and cross entropy, and its operators: layouts of
attention, routing of tokens.

The functions call ``transformer_engine_torch`` (``tex``), an extension whose calls are no operators. Traces record neither the
recipe nor the dtype of quantized copies: products are counted in the dtype of the tensors, and casts not at all. With sequence
parallelism a layer gathers the tokens of all ranks before its product, or adds its results up and keeps a part of them: the product
has as many rows as the longer of input and result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size, size_of, written
from rooflines.roofline.formulas.libraries.norms import Norm, norm_backward, norm_forward, norm_of, register_norms
from rooflines.roofline.formulas.libraries.training import SOFTMAX, SOFTMAX_GRADIENT
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, hinted_formula
from rooflines.roofline.formulas.tables import table

_RECIPE: Final = "counted in the dtype of the tensors, because fp8 recipes are not recorded"


@dataclass(frozen=True, slots=True)
class _Layers:
    """Linear layers that follow each other, and the norm before them if there is one."""

    inputs: TensorArg
    norm: Norm | None
    weights: tuple[TensorArg, ...]
    biases: tuple[TensorArg, ...]
    rows: int  # tokens
    assumption: str = f"{_RECIPE}; the sequence is not split over ranks"

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


def _module(signature: Signature, hints: Hints, facts: tuple[bool, bool, int]) -> Work:
    """Back two products for each of the forward's: gradients of the input and of every parameter."""
    gradients, forward = gradients_and_forward(signature)
    found, back = _layers(forward.tensors, *facts), bool(gradients)
    if gradients or hints.outputs:
        found = found.returning((*gradients, *(hints.outputs or ()))[0])
    norm = Work()
    if found.norm is not None:
        norm = norm_backward(found.norm, gradients[:1]) if back else norm_forward(found.norm)
    hidden, activation = _hidden(found)
    parameters = found.norm.parameters if found.norm else ()
    read = found.results + hidden * size_of(found.inputs.dtype) if back else size(*found.biases, *parameters)
    return Work(
        matrix_flops=(1 + back) * found.flops,
        other_flops=norm.other_flops + activation + found.rows * sum(one.numel for one in found.biases),
        bytes_read=found.gathered + size(*found.weights) + read,
        bytes_written=written(found.inputs, *found.weights, *found.biases, *parameters) if back else found.results,
        precision=matrix_precision_of(found.inputs.dtype),
        assumption=found.assumption,
    )


for _name, _facts in _MODULES.items():
    hinted_formula(_name, f"{_name}Backward", category="matmul", wraps=True)(partial(_module, facts=_facts))


register_norms("_LayerNorm", rms=False)  # TransformerEngine 1
register_norms("_RMSNorm", rms=True)


_TABLE: Final = f"""
[element-wise tensors_only]
# Two multiplications and an addition an element; the sine and cosine of each angle.
FusedRoPEFunc: read x, read angles, read starts?, read ends? -> x; cost = 3; per = x; other = 2 * TRANSCENDENTAL * angles.n
# Queries, keys and values that lie together: the first two rotate, all are copied. Their sizes are a list, which traces leave out.
FusedQKVRoPEFunc: read packed, read of_queries, read of_keys -> packed;
    rotated = returned_tensor(0).n + returned_tensor(1).n if returned_tensor(0) else packed.n;
    other = 3 * rotated + 2 * TRANSCENDENTAL * (of_queries.n + of_keys.n); given = not returned_tensor(0);
    assumption = values rotate as well, because their size is not recorded
[element-wise with_gradients]
FusedQKVRoPEFuncBackward: update grads+, packed, read of_queries, read of_keys;
    other = 3 * sum(grad.numel for grad in grads.tensors[:2]) + 2 * TRANSCENDENTAL * (of_queries.n + of_keys.n)
[element-wise with_gradient]
FusedRoPEFuncBackward: update grad, inputs, read angles; cost = 3; per = grad; other = 2 * TRANSCENDENTAL * angles.n
[reduction functions]
te_softmax::scaled_softmax_fwd te_softmax::scaled_masked_softmax_fwd te_softmax::scaled_upper_triang_masked_softmax_fwd
    te_softmax::scaled_aligned_causal_masked_softmax_fwd: {SOFTMAX}
te_softmax::scaled_softmax_bwd te_softmax::scaled_masked_softmax_bwd te_softmax::scaled_upper_triang_masked_softmax_bwd
    te_softmax::scaled_aligned_causal_masked_softmax_bwd: {SOFTMAX_GRADIENT}
[reduction]
# The gradient takes the place of the logits. The function of QuACK that has this name has no number after the labels, and keeps the
# logarithm of each row's sum for its backward.
CrossEntropyFunction: update logits, read target, smoothing=0.0; cost = SOFTMAX + 2; per = logits; writes = 4 * target.n;
    fits = isinstance(value('smoothing'), float); assumption = gradients computed in the forward
    | read logits, read target; cost = SOFTMAX; per = logits; writes = 8 * target.n
[copy]
# Queries, keys and values that lie together in [s, b, heads, 3 * depth], of which the argument is a view of the queries.
te_attention::fa_prepare_fwd: read queries; reads = 3 * queries.n * queries.item; writes = 3 * queries.n * queries.item
te_attention::fa_prepare_bwd: read queries, read keys, read values -> queries keys values;
    reads = queries.n * queries.item + keys.n * keys.item + values.n * values.item
# Packed sequences [tokens, ...] from or to [batch, longest, ...]; places beyond the end of a sequence are not moved.
te_attention::convert_thd_to_bshd te_kv_cache::convert_thd_to_bshd: read self, read ends -> self;
    reads = self.n * self.item + ends.size
te_attention::convert_bshd_to_thd te_kv_cache::convert_bshd_to_thd: read self[batch longest *rest], read ends, tokens;
    reads = tokens * rest * self.item + ends.size; writes = tokens * rest * self.item
# New keys and values into the pages of a cache.
te_kv_cache::copy_to_kv_cache: read keys, read values, key_cache, value_cache, read pages?, read new_lengths?,
    read lengths? -> keys values
[moe tensors_only]
# Logits [tokens, experts]. Scores like these, a byte that says whether a token goes to an expert, scores in float32 for the backward.
# The cost is that of a softmax, and of the choice of the best.
FusedTopkScoreFunction: read logits[tokens experts], read bias? -> logits; cost = SOFTMAX + 1; per = logits;
    writes = (1 + 4) * logits.n; assumption = scores by a softmax, because the name of the function is not recorded
FusedComputeScoresForMoEAuxLoss: read logits[tokens experts], read bias?; cost = SOFTMAX + 1; per = logits;
    writes = (4 + 1 + 4) * logits.n; assumption = scores by a softmax, because the name of the function is not recorded
# The sum over experts of their tokens times the sum of their probabilities.
FusedAuxLoss: read scores, read counts; cost = 1; per = scores counts counts; writes = 8
[moe with_gradient]
FusedTopkScoreFunctionBackward: read grad, write logits[tokens experts]; cost = SOFTMAX_BACKWARD + 1; per = logits;
    reads = grad.size + (4 + 1) * logits.n; precision = logits; assumption = scores by a softmax,
    because the name of the function is not recorded
FusedComputeScoresForMoEAuxLossBackward: read grad, write logits[tokens experts]; cost = SOFTMAX_BACKWARD + 1; per = logits;
    reads = grad.size + 4 * logits.n; precision = logits; assumption = scores by a softmax,
    because the name of the function is not recorded
FusedAuxLossBackward: grad, write scores, read counts; cost = 1; per = scores; reads = counts.size + 8; precision = scores
[element-wise dispatches]
# Whether the gradient is scaled depends on the value of the one that is given.
CrossEntropyFunctionBackward:
"""
table(_TABLE)
