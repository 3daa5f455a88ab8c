"""Liger Kernel: autograd functions around Triton kernels, which have no operator of their own.

Order of arguments: Liger Kernel 0.8.5, ``liger_kernel/ops``: the ``forward`` and ``backward`` of each ``Liger...Function``. What a
function calls besides its kernels (``zeros``, the sum of a loss) belongs to it. The fused linear losses compute all their gradients in
the forward, chunk by chunk; their backward only scales them, and does not where the loss is the last of the network.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.nodes import with_gradient
from rooflines.roofline.formulas.registry import dispatches
from rooflines.roofline.formulas.rows import Row, register

# --- norms -------------------------------------------------------------------------------------------------------------------------

register_norms("LigerRMSNormFunction", "LigerFusedAddRMSNormFunction", rms=True)
register_norms("LigerLayerNormFunction", rms=False)


# A row of the norm is a group; means and deviations in float32 are kept.
_GROUP_NORM: Final = Row(
    "read x[batch *rest], read weight, read bias, channels, groups",
    costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + 2,
    result="x",
    writes="8 * batch * groups",
    per="x",
)
_GROUP_NORM_GRADIENT: Final = Row(
    "read grad, update x[batch *rest], update weight, write bias, channels, groups",
    costs.LAYER_NORM_BACKWARD,
    "x",
    also="8 * batch * groups",
    precision="x",
)
register({"LigerGroupNormFunction": _GROUP_NORM}, "normalisation")
register({"LigerGroupNormFunctionBackward": _GROUP_NORM_GRADIENT}, "normalisation", given=with_gradient)


# --- element by element ------------------------------------------------------------------------------------------------------------

_ROPES: Final = ("LigerRopeFunction", "LigerQwen2VLMRopeFunction", "LigerLlama4RopeFunction")
_ELEMENTS: Final[dict[str, Row]] = {
    # gamma * tanh(alpha * x) + beta
    "LigerDyTFunction": Row("read input, read alpha, read gamma, read beta?", other="input.n * (TANH + 2 + len(beta))", result="input"),
    # t again; x: g * gamma * (1 - t²) * alpha; of alpha, gamma and beta a sum each.
    "LigerDyTFunctionBackward": Row(
        "read grad, update input, update alpha, update gamma, write beta?",
        other="input.n * (TANH + 1 + 5 + 2 + 2 + len(beta))",
        precision="input",
    ),
    # Queries and keys turned in place by tabulated angles: two multiplications and an addition an element.
    " ".join(_ROPES): Row("update queries, update keys, read angles, read more*", costs.ROTARY_EMBEDDING, "queries keys"),
    " ".join(f"{name}Backward" for name in _ROPES): Row(
        "update grads*, queries, keys, read angles, read more*", other="ROTARY_EMBEDDING * grads.n"
    ),
}
register(_ELEMENTS, "element-wise", functions=True)


# --- losses ------------------------------------------------------------------------------------------------------------------------

_EARLY: Final = "gradients computed in the forward"
# FLOPs an element of a divergence and its gradient.
_JSD: Final = 3 * costs.TRANSCENDENTAL + 2 * costs.TRANSCENDENTAL + 12
_DIVERGENCE: Final = "update first, read second, read labels*"
_ROWS: Final[dict[str, Row]] = {
    "LigerSoftmaxFunction": Row("read input", costs.SOFTMAX, result="input"),
    "LigerSoftmaxFunctionBackward": Row("read grad", costs.SOFTMAX_BACKWARD, "grad", result="grad", reads="2 * grad.size"),
    # Of logits [tokens, vocabulary]; their gradient takes their place.
    "LigerCrossEntropyFunction": Row(
        "update logits, read target, read weights*", costs.SOFTMAX + 2, "logits", writes="4", assumption=_EARLY
    ),
    "LigerJSDFunction": Row(_DIVERGENCE, _JSD, "first", writes="4", assumption=_EARLY),
    "LigerTVDLossFunction": Row(_DIVERGENCE, 5, "first", writes="4", assumption=_EARLY),
    # y * (log(y) - x), summed.
    "LigerKLDivLossFunction": Row("read first, read second", costs.TRANSCENDENTAL + 4, "first", writes="4 * first[0]"),
}
register(_ROWS, "reduction", functions=True)
_LINEAR: Final[dict[str, Row]] = {
    # [tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept.
    "LigerFusedLinearCrossEntropyFunction": Row(
        "update input[*tokens k], update weight[vocabulary =k], read target, read rest*",
        matrix="3 * 2 * tokens * k * vocabulary",
        other="tokens * vocabulary * (SOFTMAX + 2)",
        writes="4",
        assumption=_EARLY,
    ),
    # Logits of a student and of a teacher, their divergence, and the gradients of the student's two operands.
    "LigerFusedLinearJSDFunction": Row(
        "update student[*tokens k], update weight[vocabulary *hidden], read teacher[*rows width], read second, read labels*",
        matrix="3 * 2 * tokens * k * vocabulary + 2 * tokens * width * vocabulary",
        other=f"tokens * vocabulary * (2 * SOFTMAX + {_JSD})",
        writes="4",
        assumption=_EARLY,
    ),
}
register(_LINEAR, "matmul", functions=True)

# Whether the gradients are scaled depends on the value of the gradient that is given.
dispatches(
    *(f"Liger{name}FunctionBackward" for name in ("CrossEntropy", "JSD", "TVDLoss", "FusedLinearCrossEntropy", "FusedLinearJSD")),
    category="element-wise",
)
