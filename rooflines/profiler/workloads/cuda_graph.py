"""A step recorded once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError
from rooflines.profiler.options import Options

if TYPE_CHECKING:
    import torch

# torch asks for warm-up on another stream before a capture, so that libraries have chosen and allocated.
_WARM_UP = 3


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


def captured(step: Callable[[], object]) -> Callable[[], object]:
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
