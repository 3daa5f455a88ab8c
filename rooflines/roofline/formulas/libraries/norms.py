"""Layer and RMS norms of libraries, which share their arithmetic and differ in their order of arguments.

They normalize the last dimension, read an optional weight and bias of its length and keep the means and deviations in float32. Tensors
of the input's shape beside it are residuals, which are added first; the sum is a second result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size, written
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula

KIND: Final = "an RMS norm where there is no bias"


@dataclass(frozen=True, slots=True)
class Norm:
    """The tensors of a norm: its input, residuals and parameters."""

    inputs: TensorArg
    residuals: tuple[TensorArg, ...]
    parameters: tuple[TensorArg, ...]
    rms: bool

    @property
    def statistics(self) -> int:
        """Bytes that are kept for the backward: of each row the reciprocal deviation, and the mean."""
        rows = self.inputs.numel // max(self.inputs.shape[-1], 1)
        return 4 * rows * (1 if self.rms else 2)


def norm_of(tensors: tuple[TensorArg, ...], rms: bool | None) -> Norm:
    """The norm of these tensors, in the order of the call. ``rms`` is None where the call does not say which norm it is: a norm without
    a bias is an RMS norm then."""
    if not tensors or not tensors[0].shape:
        raise NotCounted("shapes not recorded")
    inputs, rest = tensors[0], tensors[1:]
    residuals = tuple(one for one in rest if one.numel == inputs.numel and len(one.shape) > 1)
    parameters = tuple(one for one in rest if one.numel == inputs.shape[-1] and one not in residuals)
    return Norm(inputs, residuals, parameters, len(parameters) < 2 if rms is None else rms)


def norm_forward(norm: Norm, kept: bool = True, assumption: str = "") -> Work:
    """One pass over the input and the residuals."""
    weights = len(norm.parameters)
    cost = costs.RMS_NORM - (not weights) if norm.rms else costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + weights
    return Work(
        other_flops=norm.inputs.numel * (cost + len(norm.residuals)),
        bytes_read=size(norm.inputs, *norm.residuals, *norm.parameters),
        bytes_written=written(norm.inputs, *norm.residuals[:1]) + (norm.statistics if kept else 0),
        precision=precision_of(norm.inputs.dtype),
        assumption=assumption,
    )


def norm_backward(norm: Norm, gradients: tuple[TensorArg, ...], assumption: str = "") -> Work:
    """The gradients of the input and the parameters; that of a residual is the input's."""
    weights = len(norm.parameters)
    if norm.rms:
        cost = costs.RMS_NORM_BACKWARD - (0 if weights else 3)
    else:
        cost = costs.LAYER_NORM_BACKWARD - (1 if weights < 2 else 0) - (0 if weights else 3)
    return Work(
        other_flops=norm.inputs.numel * (cost + len(gradients) - 1),
        bytes_read=size(*gradients, norm.inputs, *norm.parameters[:1]) + norm.statistics,
        bytes_written=written(norm.inputs, *norm.parameters),
        precision=precision_of(norm.inputs.dtype),
        assumption=assumption,
    )


def norm_work(signature: Signature, rms: bool | None) -> Work:
    """The norm of the tensors of a call, or the gradients of a backward node."""
    gradients, call = gradients_and_forward(signature)
    norm, assumption = norm_of(call.tensors, rms), KIND if rms is None else ""
    return norm_backward(norm, gradients, assumption) if gradients else norm_forward(norm, assumption=assumption)


def register_norms(*names: str, rms: bool | None, wraps: bool = False) -> None:
    """Register the formulas of autograd functions that are norms, and of their backward nodes."""
    for name in names:
        formula(name, f"{name}Backward", category="normalization", wraps=wraps)(partial(norm_work, rms=rms))
