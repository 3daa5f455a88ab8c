"""QuACK: products with what follows them, norms, softmaxes and losses, as operators of compiled programs and of its versions of 2025.

Order of arguments: Dao-AILab/quack c8ec317 (August 2026) and ffcc45c (December 2025): quack/gemm_interface.py, rmsnorm.py, softmax.py,
cross_entropy.py, topk.py. In an eager program recent versions call their kernels past the dispatcher: then only their autograd
functions are in a trace. Operands are [m, k] and [k, n], with a batch in front of both, or with a weight for each group of rows. Where
rows end, and which rows they are, are the integer tensors of a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD, share
from rooflines.roofline.formulas.libraries.norms import Norm, norm_backward, norm_forward
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula

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


@formula("quack::gemm", "quack::gemm_add", category="matmul")
def _returned(signature: Signature) -> Work:
    """Forms that return their result."""
    added = signature.name.endswith("add")
    args = Arguments(signature, "left right c bias=None" if added else "left right bias=None")
    left, right, bias = args.tensor("left"), args.tensor("right"), args.optional("bias")
    more = [tensor for tensor in (args.tensor("c") if added else None, bias) if tensor is not None]
    inner, columns = right.shape[-2:]
    rows = prod(left.shape[:-1])
    dtype = args.tensor("c").dtype if added else left.dtype
    return Work(
        matrix_flops=product_flops(1, rows, inner, columns),
        other_flops=rows * columns * len(more),
        bytes_read=size(left, right, *more),
        bytes_written=rows * columns * size_of(dtype),
        precision=matrix_precision_of(left.dtype),
    )


# --- norms -------------------------------------------------------------------------------------------------------------------------


@formula("quack::_rmsnorm_fwd", category="normalisation")
def _norm(signature: Signature) -> Work:
    """An RMS norm, or with a mean a layer norm."""
    args = Arguments(signature, "x weight out bias deviation mean residual residual_out eps=0.0 centred=False")
    x, residual = args.tensor("x"), args.optional("residual")
    parameters = tuple(one for name in ("weight", "bias") if (one := args.optional(name)) is not None)
    norm = Norm(x, (residual,) if residual else (), parameters, rms=not args.flag("centred"))
    results = (args.tensor("out"), *(args.optional(name) for name in ("deviation", "mean", "residual_out")))
    return Work(0, norm_forward(norm).other_flops, size(x, residual, *parameters), written(*results), precision_of(x.dtype))


@formula("quack::_rmsnorm_bwd", category="normalisation")
def _norm_gradient(signature: Signature) -> Work:
    """Each processor sums its part of the gradient of the weight; what joins these sums is an operator of its own."""
    args = Arguments(signature, "x weight grad deviation dx of_weight of_bias of_sum of_residual units=None mean=None")
    x, weight = args.tensor("x"), args.optional("weight")
    gradients = (args.tensor("grad"), *(one for one in (args.optional("of_sum"),) if one is not None))
    parameters = tuple(one for one in (weight, weight if args.optional("of_bias") else None) if one is not None)
    work = norm_backward(Norm(x, (), parameters, rms=args.optional("mean") is None), gradients)
    results = (args.tensor("dx"), *(args.optional(name) for name in ("of_weight", "of_bias", "of_residual")))
    return Work(0, work.other_flops, work.bytes_read, written(*results), precision_of(x.dtype))


# --- softmaxes, losses, choices ------------------------------------------------------------------------------------------------------

register(
    {
        "quack::_softmax_fwd": Pass("read x, write out", costs.SOFTMAX, "x"),
        "quack::_softmax_backward": Pass("read grad, read y, write dx", costs.SOFTMAX_BACKWARD, "grad"),
        "quack::cross_entropy_bwd_out": Pass("read x, read target, read grad, read sums, write dx, read weight?",
                                             costs.SOFTMAX_FROM_LOG_SUM + 2, "x"),
        "quack::_topk_fwd": Pass("read x, k, softmax, write values, write indices", costs.BASIC, "x"),
    },
    "reduction",
)  # fmt: skip


@formula("quack::cross_entropy_fwd_out", category="reduction")
def _loss(signature: Signature) -> Work:
    """The loss of each row, perhaps its log-sum-exp and the gradient of the logits."""
    args = Arguments(signature, "x target target_logit loss sums dx weight=None")
    x, dx = args.tensor("x"), args.optional("dx")
    return Work(
        other_flops=x.numel * (costs.SOFTMAX + 2 * (dx is not None)),
        bytes_read=size(x, args.tensor("target"), args.optional("weight")),
        bytes_written=written(args.tensor("loss"), args.optional("sums"), dx),
        precision=precision_of(x.dtype),
    )
