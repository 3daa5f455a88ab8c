"""Activations and gates of several libraries, as autograd functions around kernels of their own.

Order of arguments: fla-org/flash-linear-attention bc3b101 (fla/modules/activations.py), Dao-AILab/flash-attention 0251105
(flash_attn/ops/activations.py), NVIDIA/Megatron-LM d98e8a6 (megatron/core/fusions/fused_bias_swiglu.py, fused_bias_geglu.py,
fused_bias_gelu.py, fused_weighted_squared_relu.py), Liger Kernel 0.8.5 (liger_kernel/ops), mamba-ssm 2.3.2
(mamba_ssm/ops/triton/k_activations.py). A gate takes the two halves of the last dimension, or two tensors. A bias or the
weights of a routing follow. Where operators below such a function are counted, these count, except below those of Liger and Mamba.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating, size, size_of, written
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

# silu(a) * b; backward: a: s * (1 + a * (1 - s)) * b * g; b: silu(a) * g.
_SWIGLU: Final = (costs.SILU + 1, costs.SILU + 7)
# gelu(a) * b by a tanh of a polynomial of degree 3.
_GEGLU: Final = (costs.TANH + 9, costs.TANH + 20)
# Function -> FLOPs for an element of the result, and of its backward, which computes the activation again.
_GATES: Final[dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("SwiGLUFunction", "BiasSwiGLUFunction", "WeightedSwiGLUFunction"), _SWIGLU),
    **dict.fromkeys(("GeGLUFunction", "BiasGeGLUFunction"), _GEGLU),
    **dict.fromkeys(("WeightedQuickGeGLUFunction", "WeightedBiasQuickGeGLUFunction"), (_SWIGLU[0] + 1, _SWIGLU[1] + 2)),
    **dict.fromkeys(("LigerSiLUMulFunction", "SwiGLU"), _SWIGLU),
    "LigerGELUMulFunction": _GEGLU,
    "SigmoidGLUFunction": (costs.SIGMOID + 1, costs.SIGMOID + 5),
}
_PLAIN: Final[dict[str, tuple[int, int]]] = {
    "GeLUFunction": (costs.TANH + 8, costs.TANH + 16),
    "FastGeLUFunction": (costs.TANH + 8, costs.TANH + 16),
    "SwishFunction": (costs.SILU, costs.SIGMOID + 5),
    "SigmoidFunction": (costs.SIGMOID, costs.SIGMOID + 3),
    "LogSigmoidFunction": (costs.SOFTPLUS + 1, costs.SIGMOID + 2),
    "SquaredReLUFunction": (2, 3),
    "WeightedSquaredReLUFunction": (2, 3),
    "LigerReLUSquaredFunction": (2, 3),
}


def _operands(signature: Signature, gate: bool) -> tuple[tuple[TensorArg, ...], int, int]:
    """The tensors of a call; elements of the result; how many more numbers join each of them: a bias, a weight."""
    tensors = tuple(one for one in signature.tensors if floating(one.dtype))
    if not tensors or not tensors[0].shape:
        raise NotCounted("shapes not recorded")
    inputs = tensors[0]
    pair = gate and len(tensors) > 1 and tensors[1].shape == inputs.shape
    if gate and not pair and signature.name.startswith("Liger"):  # whose gates take two tensors
        raise NotCounted("shapes not recorded")
    if gate and not pair and inputs.shape[-1] % 2:
        raise NotCounted("shapes not understood")
    return tensors, inputs.numel // (2 if gate and not pair else 1), len(tensors) - 1 - pair


def _forward(signature: Signature, cost: int, gate: bool) -> Work:
    tensors, results, more = _operands(signature, gate)
    dtype = tensors[0].dtype
    return Work(0, results * (cost + more), size(*tensors), results * size_of(dtype), precision_of(dtype))


def _backward(signature: Signature, cost: int, gate: bool) -> Work:
    """A gradient for each operand; of a bias or a weight a product and a sum."""
    (grad, *_), forward = parts(signature)
    tensors, results, more = _operands(forward, gate)
    return Work(0, results * (cost + 2 * more), size(grad, *tensors), written(*tensors), precision_of(tensors[0].dtype))


for _costs, _gate in ((_GATES, True), (_PLAIN, False)):
    for _name, (_one, _two) in _costs.items():
        _wraps = not _name.startswith("Liger") and _name != "SwiGLU"
        formula(_name, category="element-wise", wraps=_wraps)(partial(_forward, cost=_one, gate=_gate))
        formula(f"{_name}Backward", category="element-wise", wraps=_wraps)(partial(_backward, cost=_two, gate=_gate))


# --- a gate and the layer behind it ------------------------------------------------------------------------------------------------

# (silu(a) * b) @ weight^T, perhaps with a bias; what is between is not kept.
_LAYERS: Final[dict[str, Row]] = {
    "SwiGLULinearFunction": Row(
        "read gate[*rows k], read up[*=rows =k], read weight[n =k], read bias?",
        matrix="2 * rows * k * n",
        other=f"gate.n * {_SWIGLU[0]} + rows * n * len(bias)",
        writes="rows * n * gate.item",
    ),
    "SwiGLULinearFunctionBackward": Row(
        "read grad, update gate[*rows k], update up[*=rows =k], update weight[n =k], write bias?",
        matrix="2 * 2 * rows * k * n",
        other=f"gate.n * {_SWIGLU[1]} + grad.n * len(bias)",
    ),
}
register(_LAYERS, "matmul", functions=True)
