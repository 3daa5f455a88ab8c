"""What one training step does to the parameters: gradients that are zero or underflow, silent layers, the change of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from rooflines.profiler.dispatch.recorder import Watcher, record
from rooflines.profiler.dispatch.signatures import repeated_in, tensors_of
from rooflines.profiler.trace.tree import BACKWARD, FORWARD

_RECTIFIERS = frozenset({"aten::relu", "aten::relu_", "aten::hardtanh", "aten::hardtanh_", "aten::threshold", "aten::threshold_"})


class Gradients(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one training step. Elements are those of parameters; shares are of the elements that they are about.

    ``trainable`` of ``elements`` require a gradient; ``zero_share`` is the share of these whose gradient is zero or missing. ``norm``
    is the norm of all gradients (None if it is not finite). ``loss_change`` is the change of the loss by the step to first order: the
    product of the gradients with the change of the parameters (None if it is not finite).

    ``underflow_share`` is about the elements that the backward pass computes in float16 and that are not zero when the same calls are
    repeated on the same inputs in float32: the share of them that are zero in float16 (None if there are no such elements).
    ``underflow_operator`` in ``underflow_module`` loses most. ``silent`` names the modules of rectifiers (ReLU) whose output is zero
    everywhere.
    """

    elements: int
    trainable: int
    zero_share: float
    norm: float | None = None
    loss_change: float | None = None
    underflow_share: float | None = None
    underflow_operator: str = ""
    underflow_module: str = ""
    silent: tuple[str, ...] = ()


def gradients_of(step: Callable[[], object], network: torch.nn.Module) -> Gradients:
    """Run one training step of ``network`` and return what becomes of its gradients.

    Gradients are read when the optimizer begins its step, or at the end where it does not (a gradient scaler skips it). Parameters,
    buffers and the optimizer's state are afterwards as before. What the step raises passes through.
    """
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    watcher = _Zeros()
    gradients: list[torch.Tensor | None] = []
    changes: list[torch.Tensor] = []

    def read(optimizer: torch.optim.Optimizer | None = None, *_: Any) -> None:
        if not gradients:
            # A fused optimizer divides by the scale of a gradient scaler itself.
            scale = getattr(optimizer, "grad_scale", None)
            with _disable_current_modes():
                gradients.extend(_copied(parameter.grad, scale) for parameter in trainable)

    def watched() -> None:
        with _disable_current_modes():
            before = [parameter.detach().clone() for parameter in trainable]
        step()
        read()
        with _disable_current_modes():
            changes.extend(parameter.detach() - old for parameter, old in zip(trainable, before, strict=True))

    with register_optimizer_step_pre_hook(read):
        calls = record(watched, None, watcher, restore=True)
    elements = sum(parameter.numel() for parameter in trainable)
    known = [(gradient, change) for gradient, change in zip(gradients, changes, strict=True) if gradient is not None]
    nonzero = sum(int(gradient.count_nonzero()) for gradient, _ in known)
    worst = max(watcher.backward, key=lambda key: watcher.backward[key].flushed, default=None)
    large = sum(counts.elements for counts in watcher.backward.values())
    flushed = sum(counts.flushed for counts in watcher.backward.values())
    operator, place = worst if flushed and worst is not None else ("", -1)
    return Gradients(
        elements=sum(parameter.numel() for parameter in network.parameters()),
        trainable=elements,
        zero_share=1 - nonzero / elements if elements else 1.0,
        norm=_finite(math.hypot(*(float(gradient.norm()) for gradient, _ in known))),
        loss_change=_finite(sum(float((gradient * change).sum()) for gradient, change in known)),
        underflow_share=flushed / large if large else None,
        underflow_operator=operator,
        underflow_module=calls.modules[place].path if place >= 0 else "",
        silent=tuple(calls.modules[module].path for module in watcher.silent if module >= 0),
    )


def _copied(gradient: torch.Tensor | None, scale: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient, dense and without its scale."""
    if gradient is None:
        return None
    dense = gradient.detach().to_dense().float()
    return dense.clone() if scale is None else dense / scale.to(dense.device)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(slots=True)
class _Flushed:
    """Elements that are not zero in float32, and those of them that are zero in float16."""

    elements: int = 0
    flushed: int = 0


class _Zeros(Watcher):
    """Counts zeros: of rectifiers' outputs in the forward pass, of float16 results in the backward pass."""

    def __init__(self) -> None:
        self.backward: dict[tuple[str, int], _Flushed] = {}
        self.silent: dict[int, None] = {}

    def calling(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep the arguments for a repetition: operators of a backward pass do not change what they are given."""
        return args, kwargs

    def called(self, func: Any, inputs: tuple[Any, ...], result: Any, phase: int, module: int, before: Any) -> None:
        if not isinstance(func, torch._ops.OpOverload) or func.is_view:
            return
        name = func._schema.name
        if phase == FORWARD and name in _RECTIFIERS and isinstance(result, torch.Tensor) and not result.any():
            self.silent[module] = None
        narrow = [tensor for tensor in tensors_of(result) if tensor.dtype == torch.float16 and tensor.layout is torch.strided]
        if phase != BACKWARD or func._schema.is_mutable or not narrow:
            return
        wide = repeated_in(torch.float32, func, *before)
        if wide is None:
            return
        counts = self.backward.setdefault((func._schema.name, module), _Flushed())
        for small, large in zip(tensors_of(result), wide, strict=True):
            if small.dtype == torch.float16:
                counts.elements += int(large.count_nonzero())
                counts.flushed += int(((small == 0) & (large != 0)).sum())
