"""Liger Kernel: autograd functions around Triton kernels, which have no operator of their own.

Order of arguments: Liger Kernel 0.8.5, ``liger_kernel/ops``: the ``forward`` and ``backward`` of each ``Liger...Function``. What a
function calls besides its kernels (``zeros``, the sum of a loss) belongs to it. The fused linear losses compute all their gradients in
the forward, chunk by chunk; their backward only scales them, and does not where the loss is the last of the network.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size, written
from rooflines.roofline.formulas.libraries.norms import Norm, norm_backward, norm_forward, register
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import dispatches, formula

_GRADIENTS: Final = "gradients computed in the forward"


def _tensors(signature: Signature, count: int) -> tuple[TensorArg, ...]:
    """The tensors of the call, at least ``count``."""
    if len(signature.tensors) < count:
        raise NotCounted("shapes not recorded")
    return signature.tensors


# --- norms -------------------------------------------------------------------------------------------------------------------------


register("LigerRMSNormFunction", "LigerFusedAddRMSNormFunction", rms=True)
register("LigerLayerNormFunction", rms=False)


def _grouped(signature: Signature) -> Norm:
    """X [batch, channels, ...], weight and bias [channels], channels, groups: a row of the norm is a group."""
    inputs, weight, bias = _tensors(signature, 3)[:3]
    groups = signature.arg(4, None)
    if not isinstance(groups, int) or isinstance(groups, bool):
        raise NotCounted("number of groups not recorded")
    rows = inputs.shape[0] * groups
    return Norm(TensorArg((rows, inputs.numel // max(rows, 1)), inputs.dtype), (), (weight, bias), rms=False)


@formula("LigerGroupNormFunction", category="normalisation")
def _group_norm(signature: Signature) -> Work:
    return norm_forward(_grouped(signature))


@formula("LigerGroupNormFunctionBackward", category="normalisation")
def _group_norm_gradient(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    return norm_backward(_grouped(forward), gradients)


# --- element by element ------------------------------------------------------------------------------------------------------------


@formula("LigerDyTFunction", category="element-wise")
def _dynamic_tanh(signature: Signature) -> Work:
    """gamma * tanh(alpha * x) + beta."""
    inputs, *parameters = _tensors(signature, 3)
    cost = costs.TANH + 2 + (len(parameters) > 2)
    return Work(0, inputs.numel * cost, size(inputs, *parameters), written(inputs), precision_of(inputs.dtype))


@formula("LigerDyTFunctionBackward", category="element-wise")
def _dynamic_tanh_gradient(signature: Signature) -> Work:
    """t again; x: g * gamma * (1 - t²) * alpha; of alpha, gamma and beta a sum each."""
    (grad, *_), forward = parts(signature)
    inputs, *parameters = _tensors(forward, 3)
    cost = costs.TANH + 1 + 5 + 2 + 2 + (len(parameters) > 2)
    return Work(0, inputs.numel * cost, size(grad, inputs, *parameters[:2]), written(inputs, *parameters), precision_of(inputs.dtype))


_ROPES: Final = ("LigerRopeFunction", "LigerQwen2VLMRopeFunction", "LigerLlama4RopeFunction")


@formula(*_ROPES, category="element-wise")
def _rotate(signature: Signature) -> Work:
    """Queries and keys turned in place by tabulated angles: two multiplications and an addition an element."""
    queries, keys, *angles = _tensors(signature, 3)
    return Work(0, 3 * (queries.numel + keys.numel), size(queries, keys, *angles), written(queries, keys), precision_of(queries.dtype))


@formula(*(f"{name}Backward" for name in _ROPES), category="element-wise")
def _rotate_back(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    angles = _tensors(forward, 3)[2:]
    elements = sum(one.numel for one in gradients)
    return Work(0, 3 * elements, size(*gradients, *angles), written(*gradients), precision_of(gradients[0].dtype))


@formula("LigerSoftmaxFunction", category="reduction")
def _softmax(signature: Signature) -> Work:
    (inputs, *_) = _tensors(signature, 1)
    return Work(0, costs.SOFTMAX * inputs.numel, size(inputs), written(inputs), precision_of(inputs.dtype))


@formula("LigerSoftmaxFunctionBackward", category="reduction")
def _softmax_gradient(signature: Signature) -> Work:
    (grad, *_), _ = parts(signature)
    return Work(0, costs.SOFTMAX_BACKWARD * grad.numel, 2 * size(grad), written(grad), precision_of(grad.dtype))


# --- losses ------------------------------------------------------------------------------------------------------------------------


@formula("LigerCrossEntropyFunction", category="reduction")
def _cross_entropy(signature: Signature) -> Work:
    """Of logits [tokens, vocabulary]; their gradient takes their place."""
    logits, target, *weights = _tensors(signature, 2)
    return Work(
        other_flops=logits.numel * (costs.SOFTMAX + 2),
        bytes_read=size(logits, target, *weights),
        bytes_written=written(logits) + 4,
        precision=precision_of(logits.dtype),
        assumption=_GRADIENTS,
    )


# Function -> FLOPs an element: the divergence and its gradient, both in the forward.
_DIVERGENCES: Final = {
    "LigerJSDFunction": 3 * costs.TRANSCENDENTAL + 2 * costs.TRANSCENDENTAL + 12,
    "LigerTVDLossFunction": 5,
}


def _divergence(signature: Signature, cost: int) -> Work:
    first, second, *labels = _tensors(signature, 2)
    return Work(
        other_flops=first.numel * cost,
        bytes_read=size(first, second, *labels),
        bytes_written=written(first) + 4,
        precision=precision_of(first.dtype),
        assumption=_GRADIENTS,
    )


for _name, _cost in _DIVERGENCES.items():
    formula(_name, category="reduction")(partial(_divergence, cost=_cost))


@formula("LigerKLDivLossFunction", category="reduction")
def _kl(signature: Signature) -> Work:
    """y * (log(y) - x), summed."""
    first, second = _tensors(signature, 2)[:2]
    return Work(0, first.numel * (costs.TRANSCENDENTAL + 4), size(first, second), 4 * first.shape[0], precision_of(first.dtype))


@formula("LigerFusedLinearCrossEntropyFunction", category="matmul")
def _linear_cross_entropy(signature: Signature) -> Work:
    """[tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept."""
    inputs, weight, target, *rest = _tensors(signature, 3)
    tokens, (vocabulary, hidden) = inputs.numel // max(inputs.shape[-1], 1), weight.shape
    return Work(
        matrix_flops=3 * product_flops(1, tokens, hidden, vocabulary),
        other_flops=tokens * vocabulary * (costs.SOFTMAX + 2),
        bytes_read=size(inputs, weight, target, *rest),
        bytes_written=written(inputs, weight) + 4,
        precision=matrix_precision_of(inputs.dtype),
        assumption=_GRADIENTS,
    )


@formula("LigerFusedLinearJSDFunction", category="matmul")
def _linear_divergence(signature: Signature) -> Work:
    """Logits of a student and of a teacher, their divergence, and the gradients of the student's two operands."""
    student, weight, teacher, second, *labels = _tensors(signature, 4)
    tokens, vocabulary = student.numel // max(student.shape[-1], 1), weight.shape[0]
    flops = 3 * product_flops(1, tokens, student.shape[-1], vocabulary) + product_flops(1, tokens, teacher.shape[-1], vocabulary)
    return Work(
        matrix_flops=flops,
        other_flops=tokens * vocabulary * (2 * costs.SOFTMAX + _DIVERGENCES["LigerJSDFunction"]),
        bytes_read=size(student, weight, teacher, second, *labels),
        bytes_written=written(student, weight) + 4,
        precision=matrix_precision_of(student.dtype),
        assumption=_GRADIENTS,
    )


# Whether the gradients are scaled depends on the value of the gradient that is given.
dispatches(
    *(f"Liger{name}FunctionBackward" for name in ("CrossEntropy", "JSD", "TVDLoss", "FusedLinearCrossEntropy", "FusedLinearJSD")),
    category="element-wise",
)
