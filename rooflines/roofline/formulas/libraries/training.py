"""Apex, DeepSpeed and Megatron-LM: fused norms, dense layers, softmaxes and losses, linear layers of sharded weights, and tokens sent
to experts on other ranks, as autograd functions and operators.

``multi_tensor_apply`` (FusedAdam, FusedLAMB) is no operator: a trace has its kernels without shapes. A function of ``normalized_shape``
is taken to normalise the last dimension where it has no parameters. Megatron-LM's activations are in ``triton_functions.py``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments
from rooflines.roofline.formulas.libraries.norms import norm_backward, norm_of, norm_work, register_norms
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.tables import table

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


# softmax(scale * x) with a mask, or below the diagonal; the whole is written. Of the gradient of the result, and the result, which is
# kept and has the same shape.
SOFTMAX: Final = "read scores, read mask? -> scores; other = scores.n * (SOFTMAX + 1 + len(mask))"
SOFTMAX_GRADIENT: Final = "read grad -> grad; cost = SOFTMAX_BACKWARD + 1; per = grad; reads = 2 * grad.size"


table(f"""
[matmul functions]
# Layers one after the other, weights [out, in] and biases, with an activation between; what is between is kept for the backward.
FusedDenseFunc MlpFunction: read x[*rows k], read rest*; between = 1; biased = any(len(each.shape) == 1 for each in rest.tensors);
    weights = sum(each.numel for each in rest.tensors if len(each.shape) == 2);
    outputs = sum(each.shape[0] for each in rest.tensors if len(each.shape) == 2);
    last = [each.shape[0] for each in rest.tensors if len(each.shape) == 2][-1]; matrix = 2 * rows * weights;
    other = rows * (outputs * biased + between * (outputs - last)); writes = rows * outputs * x.item;
    fits = [each.shape[1] for each in rest.tensors if len(each.shape) == 2][0] == k
FusedDenseFuncBackward MlpFunctionBackward like FusedDenseFunc: read grad, update x[*rows k], update rest*;
    biases = sum(each.numel for each in rest.tensors if len(each.shape) == 1); matrix = 4 * rows * weights;
    other = rows * (between * (outputs - last) + biases); precision = x; writes = ;
    reads = grad.size + x.size + weights * rest.item + rows * (outputs - last) * x.item
FusedDenseGeluDenseFunc like FusedDenseFunc: ; between = GELU
FusedDenseGeluDenseFuncBackward like FusedDenseFuncBackward: ; between = GELU + 6
[reduction functions wraps]
ScaledSoftmax ScaledMaskedSoftmax ScaledUpperTriangMaskedSoftmax ScaledAlignedCausalMaskedSoftmax GenericScaledMaskedSoftmax:
    {SOFTMAX}
ScaledSoftmaxBackward ScaledMaskedSoftmaxBackward ScaledUpperTriangMaskedSoftmaxBackward ScaledAlignedCausalMaskedSoftmaxBackward
    GenericScaledMaskedSoftmaxBackward: {SOFTMAX_GRADIENT}
[reduction functions]
# Those of flash-linear-attention, flash-attn and Unsloth have the same arguments. Losses, and the logarithm of each row's sum for the
# backward, in float32.
SoftmaxCrossEntropyLoss CrossEntropyLossFunction CrossEntropyLoss Fast_CrossEntropyLoss: read logits, read labels; cost = SOFTMAX;
    per = logits; writes = 8 * labels.n
SoftmaxCrossEntropyLossBackward CrossEntropyLossFunctionBackward CrossEntropyLossBackward Fast_CrossEntropyLossBackward: read grad,
    update logits, read labels; cost = SOFTMAX_FROM_LOG_SUM + 2; per = logits; precision = logits;
    reads = grad.size + logits.size + labels.size + 4 * labels.n
[communication functions]
# Tokens to the ranks of their experts, or results back; how many arrive is data, which the gradient shows.
FusedDispatch FusedCombine HybridEPDispatch HybridEPCombine MoEDispatch MoECombine: read x, read rest*;
    writes = returned_tensor(0, 'number of received tokens not recorded').n * returned_tensor(0).item
[communication with_gradients]
FusedDispatchBackward FusedCombineBackward HybridEPDispatchBackward HybridEPCombineBackward MoEDispatchBackward MoECombineBackward:
    read gradients*, write x
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
