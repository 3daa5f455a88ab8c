"""Apex, DeepSpeed and Megatron-LM: fused norms, dense layers, softmaxes and losses, linear layers of sharded weights, and tokens sent
to experts on other ranks, as autograd functions and operators.

``multi_tensor_apply`` (FusedAdam, FusedLAMB) is no operator: a trace has its kernels without shapes. A function of ``normalized_shape``
is taken to normalise the last dimension where it has no parameters. Megatron-LM's activations are in ``triton_functions.py``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, written
from rooflines.roofline.formulas.libraries.norms import norm_backward, norm_of, norm_work, register_norms
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts, with_gradients
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, function_work, register
from rooflines.roofline.formulas.tables import table

# --- norms -------------------------------------------------------------------------------------------------------------------------

register_norms("FusedLayerNormAffineFunction", "FusedLayerNormAffineMixedDtypesFunction", "FusedLayerNormFunction", "FastLayerNormFN",
               rms=False, wraps=True)  # fmt: skip
register_norms("FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction", "FusedRMSNormFunction", rms=True, wraps=True)


def _saved_gradient(signature: Signature, rms: bool) -> Work:
    args = Arguments(signature, f"grad {'' if rms else 'mean '}invvar self normalized_shape weight=None bias=None")
    parameters = [one for name in ("weight", "bias") if (one := args.optional(name)) is not None]
    return norm_backward(norm_of((args.tensor("self"), *parameters), rms), (args.tensor("grad"),))


for _kind, _rms in {"layer": False, "rms": True}.items():
    _name = f"apex::fused_{_kind}_norm"
    formula(f"{_name}_affine_fwd", f"{_name}_fwd", category="normalisation")(partial(norm_work, rms=_rms))
    formula(f"{_name}_affine_bwd", f"{_name}_bwd", category="normalisation")(partial(_saved_gradient, rms=_rms))


# --- dense layers ------------------------------------------------------------------------------------------------------------------


def _layers(signature: Signature) -> tuple[TensorArg, list[TensorArg], list[TensorArg]]:
    """The input, the weights [out, in] and the biases of layers that follow each other."""
    if len(signature.tensors) < 2:
        raise NotCounted("shapes not recorded")
    inputs, *rest = signature.tensors
    weights = [one for one in rest if len(one.shape) == 2]
    if not weights or weights[0].shape[1] != inputs.shape[-1]:
        raise NotCounted("shapes of the weights not recorded")
    return inputs, weights, [one for one in rest if len(one.shape) == 1]


def _stack(signature: Signature, activation: int) -> Work:
    """Layers one after the other, with an activation between; what is between two of them is kept for the backward."""
    inputs, weights, biases = _layers(signature)
    rows = inputs.numel // inputs.shape[-1]
    outputs = [weight.shape[0] for weight in weights]
    return Work(
        matrix_flops=sum(product_flops(1, rows, weight.shape[1], weight.shape[0]) for weight in weights),
        other_flops=rows * (sum(outputs) * bool(biases) + activation * sum(outputs[:-1])),
        bytes_read=size(inputs, *weights, *biases),
        bytes_written=rows * sum(outputs) * inputs.itemsize,
        precision=matrix_precision_of(inputs.dtype),
    )


def _stack_gradient(signature: Signature, activation: int) -> Work:
    (grad, *_), forward = parts(signature)
    inputs, weights, biases = _layers(forward)
    rows = inputs.numel // inputs.shape[-1]
    inner = rows * sum(weight.shape[0] for weight in weights[:-1])
    return Work(
        matrix_flops=2 * sum(product_flops(1, rows, weight.shape[1], weight.shape[0]) for weight in weights),
        other_flops=inner * activation + rows * sum(bias.numel for bias in biases),
        bytes_read=size(grad, inputs, *weights) + inner * inputs.itemsize,
        bytes_written=written(inputs, *weights, *biases),
        precision=matrix_precision_of(inputs.dtype),
    )


formula("FusedDenseFunc", "MlpFunction", category="matmul")(partial(_stack, activation=1))
formula("FusedDenseGeluDenseFunc", category="matmul")(partial(_stack, activation=costs.GELU))
formula("FusedDenseFuncBackward", "MlpFunctionBackward", category="matmul")(partial(_stack_gradient, activation=1))
formula("FusedDenseGeluDenseFuncBackward", category="matmul")(partial(_stack_gradient, activation=costs.GELU + 6))

# --- softmaxes and losses ----------------------------------------------------------------------------------------------------------

_SOFTMAXES: Final = ("ScaledSoftmax", "ScaledMaskedSoftmax", "ScaledUpperTriangMaskedSoftmax", "ScaledAlignedCausalMaskedSoftmax",
                     "GenericScaledMaskedSoftmax")  # fmt: skip
# softmax(scale * x) with a mask, or below the diagonal; the whole is written.
_SOFTMAX: Final = Row("read scores, read mask?", other="scores.n * (SOFTMAX + 1 + len(mask))", result="scores")
# Of the gradient of the result, and the result, which is kept and has the same shape.
_SOFTMAX_GRADIENT: Final = Row("read grad", costs.SOFTMAX_BACKWARD + 1, "grad", result="grad", reads="2 * grad.size")
softmax_forward: Final = partial(function_work, row=_SOFTMAX)
softmax_backward: Final = partial(function_work, row=_SOFTMAX_GRADIENT)
formula(*_SOFTMAXES, category="reduction", wraps=True)(softmax_forward)
formula(*(f"{name}Backward" for name in _SOFTMAXES), category="reduction", wraps=True)(softmax_backward)

# Those of flash-linear-attention, flash-attn and Unsloth have the same arguments.
_LOSSES: Final = ("SoftmaxCrossEntropyLoss", "CrossEntropyLossFunction", "CrossEntropyLoss", "Fast_CrossEntropyLoss")


# --- experts on other ranks --------------------------------------------------------------------------------------------------------

_EXCHANGES: Final = ("FusedDispatch", "FusedCombine", "HybridEPDispatch", "HybridEPCombine", "MoEDispatch", "MoECombine")


@hinted_formula(*_EXCHANGES, category="communication")
def _exchange(signature: Signature, hints: Hints) -> Work:
    """Tokens to the ranks of their experts, or results back; how many arrive is data, which the gradient shows."""
    if not hints.outputs:
        raise NotCounted("number of received tokens not recorded")
    return Work(bytes_read=size(*signature.tensors), bytes_written=written(hints.outputs[0]))


register({f"{name}Backward": Row("read gradients*, write x") for name in _EXCHANGES}, "communication", given=with_gradients)


table(f"""
[reduction functions]
# Losses, and the logarithm of each row's sum for the backward, in float32.
{" ".join(_LOSSES)}: read logits, read labels; cost = SOFTMAX; per = logits; writes = 8 * labels.n
{" ".join(f"{name}Backward" for name in _LOSSES)}: read grad, update logits, read labels; cost = SOFTMAX_FROM_LOG_SUM + 2;
    per = logits; reads = grad.size + logits.size + labels.size + 4 * labels.n; precision = logits
[matmul wraps tensors_only]
LinearFunctionForZeroStage3: read x[*rows k], read weight[n k], read bias?; matrix = 2 * rows * k * n; other = rows * n * bool(bias);
    writes = rows * n * x.item
[matmul wraps with_gradient]
# A product for the gradient of the input and one for that of the weight.
LinearFunctionForZeroStage3Backward: read grad, update x[*rows k], update weight[n k], write bias?; matrix = 4 * rows * k * n;
    other = rows * n * bool(bias)
[matmul with_gradient]
# The same for as many rows as the result has: with sequence parallelism those of all ranks. The fourth argument of the forward says
# that the weight's is added to one in float32, by a kernel that is no operator. The forward is an operator of PyTorch.
LinearWithGradAccumulationAndAsyncCommunicationBackward: read grad[*rows n], read x, read weight[outputs k], read bias?, added=False;
    matrix = 4 * rows * k * n; other = grad.n * bool(bias) + weight.n * (recorded('added') and added);
    reads = grad.size + weight.size + rows * k * x.item + 4 * weight.n * (recorded('added') and added);
    writes = rows * k * x.item + weight.n * (4 if recorded('added') and added else weight.item) + bias.n * bias.item
""")
