"""DeepSpeed: the linear layer of ZeRO stage 3, an autograd function around torch's products.

Order of arguments: DeepSpeed (commit 00f1f6b): ``deepspeed/runtime/zero/linear.py``. Where the trace has the products below it, these
count.
"""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size, written
from rooflines.roofline.formulas.matmul import layer_work, product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import formula


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
