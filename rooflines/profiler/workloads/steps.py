"""The step of a network: a forward pass or a training step, with its optimizer, checkpointed blocks, or as a
CUDA graph."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rooflines.arguments import arg
from rooflines.errors import WorkloadError
from rooflines.profiler.options import PointOptions

if TYPE_CHECKING:
    import torch

LEARNING_RATE, MOMENTUM = 0.01, 0.9
# Adam's steps do not depend on the size of the gradients, so its usual rate is a tenth of that of SGD.
ADAM_LEARNING_RATE = 0.001
Step: TypeAlias = Callable[[], object]
# torch asks for warm-up on another stream before a capture, so that libraries have chosen and allocated.
_WARM_UP = 3
_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


def make_optimizer(
    name: str,
    parameters: Sequence[torch.nn.Parameter],
    *,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    capturable: bool = False,
) -> torch.optim.Optimizer:
    """Return the optimizer ``name``: sgd, adam or adamw, with ``,fused`` or ``,foreach`` for that
    implementation.

    SGD has momentum 0.9. None stands for the usual learning rate (0.01 for SGD, 0.001 for Adam) and torch's
    weight decay. ``capturable`` keeps Adam's step counter on the device, which CUDA graphs require.
    """
    import torch

    kind, _, implementation = name.partition(",")
    options: dict[str, Any] = {
        "lr": learning_rate or (LEARNING_RATE if kind == "sgd" else ADAM_LEARNING_RATE)
    }
    if weight_decay is not None:
        options["weight_decay"] = weight_decay
    if implementation:
        options[implementation] = True
    options |= {"momentum": MOMENTUM} if kind == "sgd" else {"capturable": capturable}
    made: torch.optim.Optimizer = getattr(torch.optim, _CLASSES[kind])(parameters, **options)
    return made


def fill_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state of ``optimizer`` as its first step does, so that this step gives the same and computes
    what later ones do.

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
            state["step"] = torch.zeros(
                (), dtype=torch.float32, device=parameter.device if on_device else None
            )
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def shown_name(name: str) -> str:
    """Return ``name`` as a report writes it: ``AdamW (fused)``."""
    kind, _, implementation = name.partition(",")
    return f"{_CLASSES[kind]} ({implementation})" if implementation else _CLASSES[kind]


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
    options: PointOptions,
    device: torch.device,
) -> Step:
    """Return a function that makes one step of training and returns its loss. ``called`` is ``network`` as it
    is to be called.

    Raises WorkloadError if it has no parameters to train.
    """
    import torch

    parameters = trainable(network)
    optimizer = make_optimizer(options.optimizer, parameters, capturable=options.cuda_graphs)
    fill_state(optimizer)
    scaler = make_scaler(options.precision, device)

    def loss() -> torch.Tensor:
        batch = batches()
        with autocast():
            return batch.loss(called(*batch.inputs, **batch.keywords))

    def step() -> object:
        with torch.enable_grad():
            return optimize(loss, optimizer, scaler)

    return step


def optimize(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, scaler: Any) -> torch.Tensor:
    """Make one step of training on the loss that ``loss()`` computes, and return it."""
    optimizer.zero_grad(set_to_none=True)
    computed = loss()
    scaler.scale(computed).backward()
    scaler.step(optimizer)
    scaler.update()
    return computed.detach()


def trainable(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of ``network`` that are trained; raises WorkloadError without any."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise WorkloadError("the model has no parameters to train.", hint=f"Use {arg('mode', 'inference')}.")
    return parameters


def make_scaler(precision: str, device: torch.device) -> Any:
    """Return the gradient scaler for ``precision``: at work for amp-fp16 on CUDA, otherwise one that does
    nothing."""
    import torch

    return torch.amp.GradScaler(device.type, enabled=precision == "amp-fp16" and device.type == "cuda")


def make_autocast(options: PointOptions, device: torch.device) -> Callable[[], Any]:
    """Return the context that a forward pass runs in."""
    import torch

    if not options.precision.startswith("amp-"):
        return contextlib.nullcontext
    dtype = torch.bfloat16 if options.precision == "amp-bf16" else torch.float16
    # The weights that a graph's capture casted would otherwise be reused by the next one.
    return lambda: torch.autocast(device.type, dtype=dtype, cache_enabled=not options.cuda_graphs)


def captured(step: Step) -> Step:
    """Return a function that replays ``step``, which is captured at the first call; what the graph returns is
    overwritten by each.

    ``step`` must read and write the same tensors in every call and must not wait for the device.
    """
    graph: torch.cuda.CUDAGraph | None = None
    result: object = None

    def replay() -> object:
        nonlocal graph, result
        import torch

        if graph is None:
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = step()
        graph.replay()
        return result

    return replay


def checkpoint_blocks(network: torch.nn.Module, name: str) -> str:
    """Make the blocks of ``network`` compute their activations again in the backward pass; returns what they
    are.

    Blocks are the outermost modules whose class occurs more than once and has children: ``BasicBlock`` of a
    ResNet, the layers of a transformer. A network with a method of its own for this (Hugging Face's) uses
    that. Raises WorkloadError without blocks.
    """
    from torch.utils.checkpoint import checkpoint

    # Transformers 6 renames the older one.
    enable: Any = getattr(
        network, "activation_checkpointing_enable", getattr(network, "gradient_checkpointing_enable", None)
    )
    if callable(enable) and getattr(network, "supports_gradient_checkpointing", True):
        enable()
        return "checkpointed: the network's own layers"
    blocks = find_blocks(network)
    if not blocks:
        raise WorkloadError(
            f"{arg('checkpointing')} does not apply to {name}: it has no repeated blocks.",
            hint=f"Remove {arg('checkpointing')}.",
        )
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    counts = Counter(type(block).__name__ for block in blocks)
    return f"checkpointed: {', '.join(f'{count} × {kind}' for kind, count in counts.items())}"


def find_blocks(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the outermost modules below ``network`` with children whose class occurs more than once;
    containers are looked into."""
    from torch import nn

    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    counts = Counter(
        type(module)
        for module in network.modules()
        if type(module) not in containers and next(module.children(), None) is not None
    )

    def outermost(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
        for child in module.children():
            if counts[type(child)] > 1:
                yield child
            else:
                yield from outermost(child)

    return list(outermost(network))
