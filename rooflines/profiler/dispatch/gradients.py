"""What one training step does to the parameters: gradients that are zero or underflow, silent layers, the size of the update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from rooflines.profiler.dispatch.recorder import Watcher, record
from rooflines.profiler.dispatch.signatures import tensors_of
from rooflines.profiler.dispatch.wider_call import repeated_in
from rooflines.profiler.trace.calls import BACKWARD, FORWARD

_RECTIFIERS = frozenset({"aten::relu", "aten::relu_", "aten::hardtanh", "aten::hardtanh_", "aten::threshold", "aten::threshold_"})


class Gradients(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one training step. Elements are those of parameters; shares are of the elements that they are about.

    ``trainable`` of ``elements`` require a gradient; ``zero_share`` is the share of these whose gradient is zero or missing. ``norm``
    is the norm of all gradients (None if it is not finite). ``update_ratio`` is the norm of the change of the trainable parameters
    divided by their norm (None if that is zero, or either is not finite).

    ``underflow_share`` is about the elements that the backward pass computes in float16 and that are not zero when the same calls are
    repeated on the same inputs in float32: the share of them that are zero in float16 (None if there are no such elements).
    ``underflow_operator`` in ``underflow_module`` loses most. ``silent`` names the modules of rectifiers (ReLU) whose output is zero
    everywhere.
    """

    elements: int
    trainable: int
    zero_share: float
    norm: float | None = None
    update_ratio: float | None = None
    underflow_share: float | None = None
    underflow_operator: str = ""
    underflow_module: str = ""
    silent: tuple[str, ...] = ()


def gradients_of(step: Callable[[], object], network: torch.nn.Module) -> Gradients:
    """Run one training step of ``network`` and return what becomes of its gradients.

    Gradients are read when the optimizer begins its step, or at the end where it does not (a gradient scaler skips it). Parameters,
    buffers and the optimizer's state are afterwards as before. What the step raises passes through.
    """
    parameters = dict(network.named_parameters())
    trainable = [parameter for parameter in parameters.values() if parameter.requires_grad]
    watcher = _Zeros()
    found: dict[str, Any] = {}

    def read(*_: Any) -> None:
        if not found:
            with _disable_current_modes():
                found.update(_gradient_facts(trainable))

    def watched() -> None:
        with _disable_current_modes():
            before = [parameter.detach().clone() for parameter in trainable]
        step()
        read()
        with _disable_current_modes():
            change = _norm(parameter.detach() - old for parameter, old in zip(trainable, before, strict=True))
            size = _norm(before)
        found["update_ratio"] = change / size if change is not None and size else None

    hook = register_optimizer_step_pre_hook(read)
    try:
        calls = record(watched, None, watcher, restore=True)
    finally:
        hook.remove()
    worst = max(watcher.backward, key=lambda key: watcher.backward[key].flushed, default=None)
    computed = sum(one.elements for one in watcher.backward.values())
    flushed = sum(one.flushed for one in watcher.backward.values())
    return Gradients(
        elements=sum(parameter.numel() for parameter in parameters.values()),
        trainable=sum(parameter.numel() for parameter in trainable),
        underflow_share=flushed / computed if computed else None,
        underflow_operator=worst[0] if worst is not None and flushed else "",
        underflow_module=calls.modules[worst[1]].path if worst is not None and flushed and worst[1] >= 0 else "",
        silent=tuple(calls.modules[module].path for module in watcher.silent if module >= 0),
        **found,
    )


def _gradient_facts(parameters: list[torch.nn.Parameter]) -> dict[str, Any]:
    elements = sum(parameter.numel() for parameter in parameters)
    gradients = [parameter.grad.detach().to_dense() for parameter in parameters if parameter.grad is not None]
    nonzero = sum(int(gradient.count_nonzero()) for gradient in gradients)
    return {"zero_share": 1 - nonzero / elements if elements else 1.0, "norm": _norm(gradients)}


def _norm(tensors: Iterable[torch.Tensor]) -> float | None:
    """The norm of all elements; None if it is not finite."""
    norm = math.hypot(*(float(tensor.float().norm()) for tensor in tensors))
    return norm if math.isfinite(norm) else None


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
        """Count the zeros of the result."""
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
