"""The step of a network that is ours to run: a forward pass, or a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rooflines.arguments import arg
from rooflines.errors import WorkloadError
from rooflines.profiler.options import Options
from rooflines.profiler.workloads.optimizers import fill_state, make_optimizer

if TYPE_CHECKING:
    import torch

Step: TypeAlias = Callable[[], object]


class Batch(NamedTuple):
    """What one step is given: the arguments of the network, and the loss of its output."""

    inputs: Any
    keywords: Any
    loss: Callable[[Any], torch.Tensor]


def inference_step(called: Any, batches: Callable[[], Batch], autocast: Callable[[], Any]) -> Step:
    """Return a function that runs a forward pass of ``called`` and returns its output."""
    import torch

    def step() -> object:
        batch = batches()
        with torch.inference_mode(), autocast():
            return called(*batch.inputs, **batch.keywords)

    return step


def training_step(
    network: torch.nn.Module,
    called: Any,
    batches: Callable[[], Batch],
    autocast: Callable[[], Any],
    options: Options,
    device: torch.device,
) -> Step:
    """Return a function that makes one step of training and returns its loss. ``called`` is ``network`` as it is to be called.

    Raises WorkloadError if it has no parameters to train.
    """
    import torch

    parameters = trainable(network)
    optimizer = make_optimizer(options.optimizer, parameters, capturable=options.cuda_graphs)
    fill_state(optimizer)
    scaler = make_scaler(options.precision, device)

    def step() -> object:
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            batch = batches()
            with autocast():
                loss = batch.loss(called(*batch.inputs, **batch.keywords))
            scaled: Any = scaler.scale(loss)
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

    return step


def trainable(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of ``network`` that are trained; raises WorkloadError without any."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise WorkloadError("the model has no parameters to train.", hint=f"Use {arg('mode', 'inference')}.")
    return parameters


def make_scaler(precision: str, device: torch.device) -> Any:
    """Return the gradient scaler for ``precision``: at work for amp-fp16 on CUDA, otherwise one that does nothing."""
    import torch

    return torch.amp.GradScaler(device.type, enabled=precision == "amp-fp16" and device.type == "cuda")


def make_autocast(options: Options, device: torch.device) -> Callable[[], Any]:
    """Return the context that a forward pass runs in."""
    import contextlib

    import torch

    if not options.precision.startswith("amp-"):
        return contextlib.nullcontext
    dtype = torch.bfloat16 if options.precision == "amp-bf16" else torch.float16
    # The weights that a graph's capture casted would otherwise be reused by the next one.
    return lambda: torch.autocast(device.type, dtype=dtype, cache_enabled=not options.cuda_graphs)
