"""DeepSpeed and Megatron-LM: linear layers of sharded weights, and tokens sent to experts on other ranks.

Order of arguments: DeepSpeed 00f1f6b: deepspeed/runtime/zero/linear.py, an autograd function around torch's products, which count
where the trace has them; NVIDIA/Megatron-LM d98e8a6: megatron/core/tensor_parallel/layers.py,
megatron/core/transformer/moe/fused_a2a.py (around DeepEP, whose own calls are no operators); AMD-AGI/Primus-Turbo a6a16cd (``MoE...``):
primus_turbo/pytorch/ops/moe. Megatron's activations are in ``activations.py``, its softmaxes in ``apex.py``.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size, size_of, written
from rooflines.roofline.formulas.matmul import layer_work, product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula


def _layer(signature: Signature) -> tuple[tuple[TensorArg, ...], int, int]:
    """The input [..., in], the weight [out, in] and perhaps a bias; rows, and the FLOPs of a product."""
    tensors = signature.tensors[:3]
    if len(tensors) < 2 or len(tensors[1].shape) != 2 or tensors[0].shape[-1:] != tensors[1].shape[1:]:
        raise NotCounted("shapes of the weight not recorded")
    outputs, width = tensors[1].shape
    rows = tensors[0].numel // max(width, 1)
    return tensors, rows, product_flops(1, rows, width, outputs)


@formula("LinearFunctionForZeroStage3", category="matmul", wraps=True)
def _linear(signature: Signature) -> Work:
    (inputs, weight, *bias), _, _ = _layer(signature)
    return layer_work(inputs, weight.shape[0], weight, *bias, each=len(bias))


@formula("LinearFunctionForZeroStage3Backward", category="matmul", wraps=True)
def _linear_gradient(signature: Signature) -> Work:
    """A product for the gradient of the input and one for that of the weight."""
    (grad, *_), forward = parts(signature)
    tensors, rows, flops = _layer(forward)
    return Work(
        matrix_flops=2 * flops,
        other_flops=rows * tensors[1].shape[0] * (len(tensors) > 2),
        bytes_read=size(grad, *tensors[:2]),
        bytes_written=written(*tensors),
        precision=matrix_precision_of(grad.dtype),
    )


@formula("LinearWithGradAccumulationAndAsyncCommunicationBackward", category="matmul")
def _accumulated_gradient(signature: Signature) -> Work:
    """Gradients of the input and of the weight [out, in], for as many rows as the result has: with sequence parallelism those of all
    ranks. The fourth argument of the forward says that the weight's is added to one in float32, by a kernel that is no operator. The
    forward is an operator of PyTorch."""
    (grad, *_), forward = parts(signature)
    if len(forward.tensors) < 2 or len(forward.tensors[1].shape) != 2 or grad.shape[-1:] != forward.tensors[1].shape[:1]:
        raise NotCounted("shapes of the weight not recorded")
    inputs, weight, *bias = forward.tensors[:3]
    outputs, width = weight.shape
    rows = grad.numel // max(outputs, 1)
    item, added = size_of(inputs.dtype), forward.arg(3, False) is True
    return Work(
        matrix_flops=2 * product_flops(1, rows, width, outputs),
        other_flops=grad.numel * bool(bias) + weight.numel * added,
        bytes_read=size(grad, weight) + rows * width * item + 4 * weight.numel * added,
        bytes_written=rows * width * item + (4 * weight.numel if added else written(weight)) + written(*bias),
        precision=matrix_precision_of(grad.dtype),
    )


# --- experts on other ranks --------------------------------------------------------------------------------------------------------

_EXCHANGES: Final = ("FusedDispatch", "FusedCombine", "HybridEPDispatch", "HybridEPCombine", "MoEDispatch", "MoECombine")


@hinted_formula(*_EXCHANGES, category="communication")
def _exchange(signature: Signature, hints: Hints) -> Work:
    """Tokens to the ranks of their experts, or results back; how many arrive is data, which the gradient shows."""
    if not hints.outputs:
        raise NotCounted("number of received tokens not recorded")
    return Work(bytes_read=size(*signature.tensors), bytes_written=written(hints.outputs[0]))


@formula(*(f"{name}Backward" for name in _EXCHANGES), category="communication")
def _exchange_back(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    if not forward.tensors:
        raise NotCounted("shapes not recorded")
    return Work(bytes_read=size(*gradients), bytes_written=written(forward.tensors[0]))
