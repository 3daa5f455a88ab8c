"""QuACK: products with what follows them, norms, softmaxes and losses, as operators of compiled programs and of its versions of 2025.

In an eager program recent versions call their kernels past the dispatcher: then only their autograd functions are in a trace. Operands
are [m, k] and [k, n], with a batch in front of both, or with a weight for each group of rows. Where rows end, and which rows they are,
are the integer tensors of a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, share, size, written
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

# --- products ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """``schema`` up to the last tensor that is no scale; the arguments in ``results`` are written, ``adds`` says that the first of
    them is read as well. ``cost`` is FLOPs for each element of the last result, ``symmetric`` that it equals its transpose."""

    schema: str
    results: tuple[str, ...] = ("out",)
    adds: bool = False
    cost: int = 0
    symmetric: bool = False


_ACTIVATED: Final = "left right preact out c=None bias=None"
_PRODUCTS: Final[dict[str, _Product]] = {
    "quack::gemm_out": _Product("left right out bias=None"),
    "quack::gemm_add_out": _Product("left right c out bias=None"),
    "quack::gemm_add_inplace": _Product("left right out bias=None", adds=True),
    "quack::gemm_act_out": _Product(_ACTIVATED, ("preact", "out"), cost=costs.GELU),
    "quack::gemm_gated_out": _Product(_ACTIVATED, ("preact", "out"), cost=costs.SILU + 1),
    "quack::gemm_dact_out": _Product("left right before dx out scale=None", ("dx", "out"), cost=costs.GELU + 7),
    "quack::gemm_dgated_out": _Product("left right before dx out scale=None", ("dx", "out"), cost=costs.SILU + 7),
    "quack::gemm_symmetric_out": _Product("left right out c=None", symmetric=True),
}
_ACTIVATION: Final = "an activation as costly as GELU or SwiGLU"


def _product(signature: Signature, one: _Product) -> Work:
    args = Arguments(signature, one.schema)
    left, right = args.tensor("left"), args.tensor("right")
    results = [tensor for name in one.results if (tensor := args.optional(name)) is not None]
    if not results or len(right.shape) < 2:
        raise NotCounted("shapes not recorded")
    integers = [tensor for tensor in signature.tensors if tensor.dtype.startswith("int")]
    inner, columns = right.shape[-2:]
    groups = right.shape[0] if len(right.shape) == 3 and len(left.shape) == 2 else 0
    if integers and len(right.shape) == 2:  # groups along the inner dimension
        flops = product_flops(1, left.shape[0], inner, columns)
    elif one.symmetric:
        flops = prod(left.shape[:-2]) * columns * (columns + 1) * inner
    else:
        flops = product_flops(1, prod(results[-1].shape[:-1]), inner, columns)
    more = [tensor for name in ("c", "bias", "before", "scale") if args.has(name) and (tensor := args.optional(name)) is not None]
    added = results[0] if one.adds else None
    return Work(
        matrix_flops=flops,
        other_flops=results[-1].numel * (one.cost + len(more) + one.adds),
        bytes_read=size(left, added, *more, *integers) + share((right,), groups, left.shape[0]),
        bytes_written=written(*results),
        precision=matrix_precision_of(left.dtype),
        assumption="; ".join(text for text, holds in ((_ACTIVATION, one.cost), (SPREAD, groups > 1)) if holds),
    )


for _name, _one in _PRODUCTS.items():
    formula(_name, category="matmul")(partial(_product, one=_one))

_OPERANDS: Final = "read left[*m k], read right[*b k n]"
# Forms that return their result.
_RETURNED: Final[dict[str, Row]] = {
    "quack::gemm": Row(f"{_OPERANDS}, read bias?", matrix="2 * m * k * n", other="m * n * bool(bias)", writes="m * n * left.item"),
    "quack::gemm_add": Row(
        f"{_OPERANDS}, read c, read bias?", matrix="2 * m * k * n", other="m * n * (1 + bool(bias))", writes="m * n * c.item"
    ),
}
register(_RETURNED, "matmul")

# --- norms, softmaxes, losses, choices ---------------------------------------------------------------------------------------------

_NORMS: Final[dict[str, Row]] = {
    # An RMS norm, or with a mean a layer norm.
    "quack::_rmsnorm_fwd": Row(
        "read x, read weight?, write out, read bias?, write deviation?, write mean?, read residual?, write residual_out?,"
        " eps=0.0, centred=False",
        other="x.n * bool(residual) + x.n * (MEAN_AND_VARIANCE + SCALE_AND_SHIFT + bool(weight) + bool(bias) if centred"
        " else RMS_NORM - (not (weight or bias)))",
    ),
    # Each processor sums its part of the gradient of the weight; what joins these sums is an operator of its own.
    "quack::_rmsnorm_bwd": Row(
        "read x, read weight?, read grad, read deviation, write dx, write of_weight?, write of_bias?, read of_sum?,"
        " write of_residual?, units=None, read mean?",
        other="x.n * (bool(of_sum) - 3 * (not weight))"
        " + x.n * (LAYER_NORM_BACKWARD - (not (weight and of_bias)) if mean else RMS_NORM_BACKWARD)",
    ),
}
register(_NORMS, "normalisation")
_REDUCTIONS: Final[dict[str, Row]] = {
    "quack::_softmax_fwd": Row("read x, write out", costs.SOFTMAX, "x"),
    "quack::_softmax_backward": Row("read grad, read y, write dx", costs.SOFTMAX_BACKWARD, "grad"),
    # The loss of each row, perhaps its log-sum-exp and the gradient of the logits.
    "quack::cross_entropy_fwd_out": Row(
        "read x, read target, target_logit, write loss, write sums?, write dx?, read weight?", other="x.n * (SOFTMAX + 2 * bool(dx))"
    ),
    "quack::cross_entropy_bwd_out": Row(
        "read x, read target, read grad, read sums, write dx, read weight?", costs.SOFTMAX_FROM_LOG_SUM + 2, "x"
    ),
    "quack::_topk_fwd": Row("read x, k, softmax, write values, write indices", costs.BASIC, "x"),
}
register(_REDUCTIONS, "reduction")
