"""Optimizers by name, with the state that they have after their first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LEARNING_RATE, MOMENTUM = 0.01, 0.9
# Adam's steps do not depend on the size of the gradients, so its usual rate is a tenth of that of SGD.
ADAM_LEARNING_RATE = 0.001
_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


def make_optimizer(
    name: str, parameters: Sequence[torch.nn.Parameter], *, learning_rate: float | None = None, weight_decay: float | None = None,
    capturable: bool = False,
) -> torch.optim.Optimizer:  # fmt: skip
    """Return the optimizer ``name``: sgd, adam or adamw, with ``,fused`` or ``,foreach`` for that implementation.

    SGD has momentum 0.9. None stands for the usual learning rate (0.01 for SGD, 0.001 for Adam) and torch's weight decay.
    ``capturable`` keeps Adam's step counter on the device, which CUDA graphs require.
    """
    import torch

    kind, _, implementation = name.partition(",")
    options: dict[str, Any] = {"lr": learning_rate or default_rate(name)}
    if weight_decay is not None:
        options["weight_decay"] = weight_decay
    if implementation:
        options[implementation] = True
    if kind == "sgd":
        return torch.optim.SGD(parameters, momentum=MOMENTUM, **options)
    options["capturable"] = capturable
    return (torch.optim.Adam if kind == "adam" else torch.optim.AdamW)(parameters, **options)


def default_rate(name: str) -> float:
    """Return the usual learning rate of the optimizer ``name``."""
    return LEARNING_RATE if name.startswith("sgd") else ADAM_LEARNING_RATE


def fill_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state of ``optimizer`` as its first step does, so that this step gives the same and computes what later ones do.

    Parameters that do not exist yet (lazy modules) are left to their first step.
    """
    import torch
    from torch.nn.parameter import is_lazy

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if is_lazy(parameter):
                continue
            state = optimizer.state[parameter]
            if isinstance(optimizer, torch.optim.SGD):
                # With a momentum of zero the first step gives what it would give without one.
                state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                continue
            on_device = group["capturable"] or group["fused"]
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device if on_device else None)
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def shown_name(name: str) -> str:
    """Return ``name`` as a report writes it: ``AdamW (fused)``."""
    kind, _, implementation = name.partition(",")
    return f"{_CLASSES[kind]} ({implementation})" if implementation else _CLASSES[kind]
