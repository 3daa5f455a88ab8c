"""Libraries for training: Apex, DeepSpeed and Megatron-LM, QuACK, and xformers apart from attention.

``multi_tensor_apply`` (FusedAdam, FusedLAMB) is no operator: a trace has its kernels without shapes. A function of ``normalized_shape``
is taken to normalize the last dimension where it has no parameters. In an eager program recent versions of QuACK call their kernels
past the dispatcher: then only their autograd functions are in a trace. Its operands are [m, k] and [k, n], with a batch in front of
both, or with a weight for each group of rows. Of xformers' matrices of which two in four elements are kept a pair of bits says where
each of these was, and one bit an element is a mask.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments
from rooflines.roofline.formulas.experts import SPREAD
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
    formula(f"{_name}_affine_fwd", f"{_name}_fwd", category="normalization")(partial(norm_work, rms=_rms))
    formula(f"{_name}_affine_bwd", f"{_name}_bwd", category="normalization")(partial(_saved_gradient, rms=_rms))


# softmax(scale * x) with a mask, or below the diagonal; the whole is written. Of the gradient of the result, and the result, which is
# kept and has the same shape.
SOFTMAX: Final = "read scores, read mask? -> scores; other = scores.n * (SOFTMAX + 1 + len(mask))"
SOFTMAX_GRADIENT: Final = "read grad -> grad; cost = SOFTMAX_BACKWARD + 1; per = grad; reads = 2 * grad.size"


def integers_first(signature: Signature) -> Signature:
    """The call with its tensors of integers, which say where the rows of groups end and which rows they are, as a list before it."""
    integers = tuple(tensor for tensor in signature.tensors if tensor.dtype.startswith("int"))
    return replace(signature, args=(integers, *signature.args))


_ACTIVATION: Final = "an activation as costly as GELU or SwiGLU"
_OPERANDS: Final = "read left[*m k], read right[*b k n]"
_ROWS: Final = "read index[rows], read source[=rows =m =k], read scale[=k]?"


_TABLE: Final = f"""
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
    other = rows * (between * (outputs - last) + biases); precision = x; writes = ; biased = ;
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
[matmul integers_first]
# Of groups along the inner dimension the rows are those of the left operand.
quack::gemm_out: read integers*, read left, view right, write out, read bias?;
    groups = right[0] if right.rank == 3 and left.rank == 2 else 0;
    rows = left[0] if integers and right.rank == 2 else out.n // max(out[-1], 1); matrix = 2 * rows * right[-2] * right[-1];
    other = out.n * bool(bias); also = share(groups, left[0], right); precision = left; assumption = {SPREAD}; given = groups > 1
quack::gemm_add_out like quack::gemm_out: read integers*, read left, view right, read c?, write out, read bias?;
    other = out.n * (bool(c) + bool(bias))
quack::gemm_add_inplace like quack::gemm_out: read integers*, read left, view right, update out, read bias?;
    other = out.n * (1 + bool(bias))
quack::gemm_symmetric_out like quack::gemm_out: read integers*, read left, view right, write out, read c?; other = out.n * bool(c);
    matrix = 2 * rows * right[-2] * right[-1] if integers and right.rank == 2 else prod(left[:-2]) * right[-1] * (right[-1] + 1) *
    right[-2]
quack::gemm_act_out like quack::gemm_out: read integers*, read left, view right, write preact?, write out, read c?, read bias?;
    each = GELU; other = out.n * (each + bool(c) + bool(bias)); assumption = {_ACTIVATION}; {SPREAD}; given = ; fits = groups > 1
    | ; assumption = {_ACTIVATION}; fits =
quack::gemm_gated_out like quack::gemm_act_out: ; each = SILU + 1
    | ; assumption = {_ACTIVATION}; fits =
quack::gemm_dact_out like quack::gemm_act_out: read integers*, read left, view right, read before?, write dx?, write out,
    read scale?; each = GELU + 7; other = out.n * (each + bool(before) + bool(scale))
    | ; assumption = {_ACTIVATION}; fits =
quack::gemm_dgated_out like quack::gemm_dact_out: ; each = SILU + 7
    | ; assumption = {_ACTIVATION}; fits =
[matmul]
quack::gemm: {_OPERANDS}, read bias?; matrix = 2 * m * k * n; other = m * n * bool(bias); writes = m * n * left.item
quack::gemm_add: {_OPERANDS}, read c, read bias?; matrix = 2 * m * k * n; other = m * n * (1 + bool(bias)); writes = m * n * c.item
xformers::dual_gemm_silu_identity_mul: read input[rows k], read gate[n =k], read gate_bias?, read up, read up_bias?;
    matrix = 2 * 2 * rows * k * n; other = rows * n * (SILU + 1 + len(gate_bias) + len(up_bias)); writes = 3 * rows * n * input.item
xformers::gemm_fused_operand_sum: read left[m k], read right[=k n]; cost = 1; per = left; matrix = 2 * m * k * n;
    writes = m * (n + 1) * left.item
# [m, k / 2] packed, with [k, n]: the products with the kept elements.
xformers::_sparse24_gemm: read packed[m half], read dense[k n], read meta; matrix = 2 * m * half * n;
    writes = m * n * max(packed.item, 2); fits = 2 * half == k
xformers::_sparse24_fp8_sm90_cutlass_gemm like xformers::_sparse24_gemm: read packed[m half], read meta, read dense[k n],
    read row_scale?, read column_scale?; other = m * n * bool(row_scale or column_scale)
[normalization]
# An RMS norm, or with a mean a layer norm.
quack::_rmsnorm_fwd: read x, read weight?, write out, read bias?, write deviation?, write mean?, read residual?, write residual_out?,
    eps=0.0, centered=False; other = x.n * bool(residual) + x.n * (MEAN_AND_VARIANCE + SCALE_AND_SHIFT + bool(weight) + bool(bias) if
    centered else RMS_NORM - (not (weight or bias)))
# Each processor sums its part of the gradient of the weight; what joins these sums is an operator of its own.
quack::_rmsnorm_bwd: read x, read weight?, read grad, read deviation, write dx, write of_weight?, write of_bias?, read of_sum?,
    write of_residual?, units=None, read mean?; other = x.n * (bool(of_sum) - 3 * (not weight)) + x.n * (LAYER_NORM_BACKWARD - (not
    (weight and of_bias)) if mean else RMS_NORM_BACKWARD)
[reduction]
quack::_softmax_fwd: read x, write out; cost = SOFTMAX; per = x
quack::_softmax_backward: read grad, read y, write dx; cost = SOFTMAX_BACKWARD; per = grad
# The loss of each row, perhaps its log-sum-exp and the gradient of the logits.
quack::cross_entropy_fwd_out: read x, read target, target_logit, write loss, write sums?, write dx?, read weight?;
    other = x.n * (SOFTMAX + 2 * bool(dx))
quack::cross_entropy_bwd_out: read x, read target, read grad, read sums, write dx, read weight?; cost = SOFTMAX_FROM_LOG_SUM + 2;
    per = x
quack::_topk_fwd: read x, k, softmax, write values, write indices; cost = BASIC; per = x
[element-wise]
xformers::silu_bw_fused: read gate, read up, read grad -> gate gate gate; cost = SILU + 7; per = gate
# Zeros in place of the other elements.
xformers::sparse24_apply_dense_output xformers::sparseNM_dense: read input, read mask? -> input; cost = 1
[copy]
# Half of the elements and their places, of the matrix and of its transpose; the mask is made and returned, or is an argument.
xformers::sparse24_sparsify_both_ways: read input -> input; cost = 1; writes = 2 * input.n // 8 + input.n // 8
xformers::sparse24_apply: read input, read mask -> input; writes = 2 * input.n // 8
xformers::_sparse24_sm90_cutlass_compress: read input; writes = input.n * input.item // 2 + input.n // 8
[copy functions]
# Rows [rows, m, k], times a scale [k] and a number, added to those of a tensor.
_ScaledIndexAdd: read target[targets m k], {_ROWS}; other = source.n * (2 + len(scale));
    reads = source.n * target.item + index.size + source.size + scale.size; writes = source.n * target.item; precision = source
_ScaledIndexAddBackward: read grad, read target[targets m k], {_ROWS} -> source; other = source.n * (1 + 3 * len(scale));
    reads = selected(grad, source.n) + index.size + scale.size + source.size * len(scale); writes = source.n * scale.item;
    precision = source
"""
table(_TABLE, integers_first=integers_first)
