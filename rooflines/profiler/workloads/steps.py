"""The step of a network that is ours to run: a forward pass or a training step, also as a CUDA graph."""

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
# torch asks for warm-up on another stream before a capture, so that libraries have chosen and allocated.
_WARM_UP = 3


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


def check_cuda_graph(options: Options, device: torch.device) -> None:
    """Raise WorkloadError for what cannot be captured."""
    if device.type != "cuda":
        raise WorkloadError(
            f"{arg('cuda_graphs')} requires an NVIDIA GPU; the device is {device}.", hint=f"Remove {arg('cuda_graphs')}."
        )
    if options.precision == "amp-fp16" and options.mode == "training":
        raise WorkloadError(
            f"{arg('cuda_graphs')} cannot capture the gradient scaler of amp-fp16: it decides each step on the host.",
            hint="Use amp-bf16.",
        )
    if options.compile == "reduce-overhead":
        raise WorkloadError(f"{arg('compile', 'reduce-overhead')} uses CUDA graphs itself.", hint=f"Use {arg('compile', 'on')}.")


def captured(step: Step) -> Step:
    """Return a function that replays ``step``, which is captured at the first call; what the graph returns is overwritten by each.

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
