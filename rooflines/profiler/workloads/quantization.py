"""Networks whose weights, or weights and activations, are 8- or 4-bit integers, through torchao."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from rooflines.arguments import arg
from rooflines.errors import RooflinesError, WorkloadError, first_line
from rooflines.profiler.options import Quantization
from rooflines.profiler.read.signature import Keywords, Positional

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.workloads.quantized_graph import Layers

# Weights that share a scale in int4; the smallest that kernels take, so that it divides most layers.
_GROUP = 32
_EXPORTED = ("static-int8", "qat")


class Quantized(NamedTuple):
    """A network to be called, and how many of its layers are quantized."""

    network: torch.nn.Module
    notes: tuple[str, ...]
    layers: Layers


def check(quantize: Quantization, *, mode: str, precision: str, device: torch.device) -> None:
    """Raise WorkloadError for what ``quantize`` cannot be combined with, or if torchao is missing; needs no
    network."""
    if quantize == "none":
        return
    asked = arg("quantize", quantize)
    training = quantize == "qat"
    if (mode == "training") != training:
        if training:
            raise WorkloadError(f"{asked} applies to training only.", hint=f"Add {arg('mode', 'training')}.")
        raise WorkloadError(
            f"{asked} applies to inference only.", hint=f"Use {arg('quantize', 'qat')} in training."
        )
    if mode == "generate" and quantize in _EXPORTED:
        raise WorkloadError(
            f"{asked} exports a graph for inputs of one shape, and does not generate.",
            hint=f"Use {arg('quantize', 'int8-weight')}.",
        )
    if importlib.util.find_spec("torchao") is None:
        raise WorkloadError(
            f"{asked} requires torchao, which is not installed.", hint="pip install 'rooflines[quantization]'"
        )
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and quantize == "static-int8"):
        where = "x86 CPUs" if quantize == "static-int8" else "CPUs and NVIDIA GPUs"
        raise WorkloadError(
            f"{asked} has kernels for {where}; the device is {device}.", hint=f"Use {arg('device', 'cpu')}."
        )
    import torch

    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if quantize == "static-int8" and not (x86 and "onednn" in torch.backends.quantized.supported_engines):
        raise WorkloadError(
            f"{asked} requires an x86 CPU and torch built with oneDNN.",
            hint=f"Use {arg('quantize', 'dynamic-int8')}.",
        )
    if quantize in _EXPORTED and precision not in ("fp32", "tf32"):
        raise WorkloadError(
            f"{asked} quantizes an fp32 network, got {arg('precision', precision)}.",
            hint=f"Remove {arg('precision')}.",
        )
    if quantize == "int4-weight" and precision != "bf16":
        # Other precisions run on a CPU too, in a loop that is a hundred times slower.
        raise WorkloadError(
            f"{asked} requires activations in bf16, got {precision}.", hint=f"Add {arg('precision', 'bf16')}."
        )


def quantize(
    network: torch.nn.Module,
    inputs: Positional,
    keywords: Keywords,
    kind: Quantization,
    device: torch.device,
    *,
    compiled: bool = False,
    calibration: Iterable[Positional] = (),
) -> Quantized:
    """Return ``network``, which is on ``device`` in its mode and precision, quantized for calls with inputs
    of these shapes.

    ``kind`` is any but ``none``. ``inputs`` and ``keywords`` are those of a call; ``static-int8`` takes the
    ranges of activations from them and from further inputs in ``calibration``. ``compiled`` says that
    ``torch.compile`` follows; it must compile within ``inductor_settings``. Linear layers are replaced in
    place, except by ``static-int8`` and ``qat``, which export a graph. That of ``qat`` shares the parameters
    of ``network`` and is the one to train.

    Raises WorkloadError if nothing in the network can be quantized or it cannot be exported.
    """
    from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

    from rooflines.profiler.calls.fakes import fake_mode_of
    from rooflines.profiler.workloads.quantized_graph import lowered, static_graph, training_graph

    name = type(network).__name__
    with _quiet():
        if fake_mode_of(network) is not None and kind in _EXPORTED:
            # torch's error, after which ``count`` takes real tensors: ranges are data
            raise UnsupportedFakeTensorException(f"{kind} needs the values of weights")
        if kind not in _EXPORTED:
            layers = _quantize_linears(network, kind, device)
            made, notes = network, [_left_out(network, kind, device)]
        else:
            with _explained(name, kind):
                if kind == "qat":
                    made, layers = training_graph(network, inputs, keywords)
                    notes = ["trained with weights and activations rounded to int8; computed in fp32"]
                else:
                    made, layers = static_graph(network, inputs, keywords, calibration)
                    notes = [
                        "exported as one graph for inputs of these shapes; its operators belong to no module"
                    ]
                    if not compiled:
                        made = lowered(made)
                        kernels = sum(str(node.target).startswith("onednn.q") for node in made.graph.nodes)
                        if kernels < layers.quantized:
                            notes.append(
                                f"{layers.quantized - kernels} quantized layers have no int8 "
                                "kernel and compute in fp32"
                            )
    if not layers.quantized:
        raise WorkloadError(
            f"{arg('quantize', kind)} does not apply to {name}: "
            f"{_left_out(network, kind, device) or 'it has no layers to quantize'}.",
            hint=f"Use {arg('quantize', 'static-int8')} in inference."
            if kind not in _EXPORTED
            else f"Remove {arg('quantize')}.",
        )
    return Quantized(
        made, (f"{kind}: {layers.quantized} of {layers.total} layers", *filter(None, notes)), layers
    )


def converted(network: torch.fx.GraphModule) -> torch.nn.Module:
    """Return what ``quantize`` made for ``qat`` as ``static-int8`` runs it, after training; ``network`` stays
    as it is.

    It takes inputs of the same shapes, on the CPU.
    """
    from rooflines.profiler.workloads.quantized_graph import after_training, lowered

    with _quiet(), _explained(type(network).__name__, "qat"):
        return lowered(after_training(network))


@contextlib.contextmanager
def inductor_settings(kind: Quantization) -> Iterator[None]:
    """The settings in which ``torch.compile`` must compile a network of this ``kind``: int8 kernels require
    constant weights."""
    if kind == "none":
        yield
        return
    import torch._inductor.config

    with torch._inductor.config.patch(freezing=kind == "static-int8"), warnings.catch_warnings():
        for text in ("Int.* does not implement _stable_hash_for_caching", "To copy construct from a tensor"):
            warnings.filterwarnings("ignore", text, UserWarning)
        yield


# --- linear layers ----------------------------------------------------------------------------------------


def _quantize_linears(network: torch.nn.Module, kind: Quantization, device: torch.device) -> Layers:
    """Give the linear layers of ``network`` integer weights.

    torch's own ``quantize_dynamic`` has one fused operator where torchao's dynamic layers call several around
    ``torch._int_mm``, and is faster in eager mode. It is deprecated, fails in ``nn.TransformerEncoderLayer``,
    breaks compiled graphs and has no GPU kernels; torchao's layers compute with int8 in all of these.
    """
    from torch import nn
    from torchao.quantization import quantize_

    from rooflines.profiler.workloads.quantized_graph import Layers

    chosen = {name: module for name, module in network.named_modules() if _fits(module, kind, device)}
    quantize_(network, _config(kind, device), filter_fn=lambda _, name: name in chosen)
    for module in chosen.values():
        vars(module).pop("extra_repr", None)  # torchao's own, which would outlive the quantized weight
    # The input projection of attention is a parameter of its module.
    kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
    return Layers(
        len(chosen), sum(isinstance(module, kinds) or _is_transposed(module) for module in network.modules())
    )


def _config(kind: Quantization, device: torch.device) -> Any:
    import torchao.quantization as ao

    if kind == "dynamic-int8":
        return ao.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    if kind == "int8-weight":
        return ao.Int8WeightOnlyConfig(set_inductor_config=False)
    if device.type == "cuda":
        return ao.Int4WeightOnlyConfig(
            group_size=_GROUP, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
        )
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig  # the only one for CPUs

    return PrototypeInt4WeightOnlyConfig(group_size=_GROUP, set_inductor_config=False)


def _fits(module: torch.nn.Module, kind: Quantization, device: torch.device) -> bool:
    """Whether ``module`` is a linear layer of a size that has a kernel."""
    if not _is_linear(module):
        return False
    if kind == "int4-weight":
        return module.in_features % _GROUP == 0 and (device.type == "cuda" or module.out_features % 16 == 0)
    if (
        kind == "dynamic-int8" and device.type == "cuda"
    ):  # cuBLAS; torchao would multiply other sizes on the host
        return module.in_features % 8 == 0 and module.out_features % 8 == 0
    return True


def _is_linear(module: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    """Whether ``module`` is a linear layer that is called; attention takes the weight of its output
    projection instead."""
    from torch import nn

    return isinstance(module, nn.Linear) and not isinstance(
        module, nn.modules.linear.NonDynamicallyQuantizableLinear
    )


def _is_transposed(module: torch.nn.Module) -> bool:
    """Whether ``module`` is the linear layer of GPT-2 in transformers, which keeps its weight transposed."""
    return type(module).__name__ == "Conv1D"


def _left_out(network: torch.nn.Module, kind: Quantization, device: torch.device) -> str:
    """What stays as it is, by its kind of module."""
    from torch import nn

    linear_only = kind not in _EXPORTED
    sizes = (
        f"inputs are no multiple of {_GROUP} or outputs of 16"
        if kind == "int4-weight"
        else "sizes are no multiples of 8"
    )
    tests: dict[str, Callable[[nn.Module], bool]] = {
        "convolutions": lambda module: linear_only and isinstance(module, nn.modules.conv._ConvNd),
        "layers with transposed weights (Conv1D)": lambda module: linear_only and _is_transposed(module),
        "the projections of attention": lambda module: isinstance(module, nn.MultiheadAttention),
        f"linear layers whose {sizes}": lambda module: (
            linear_only and _is_linear(module) and not _fits(module, kind, device)
        ),
    }
    kept = [words for words, left_out in tests.items() if any(map(left_out, network.modules()))]
    return f"{kind} has no kernels for {', '.join(kept)}" if kept else ""


@contextlib.contextmanager
def _explained(name: str, kind: str) -> Iterator[None]:
    """Turn what torch.export or torchao raise into a WorkloadError with their reason."""
    try:
        yield
    except RooflinesError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"{arg('quantize', kind)} cannot export {name}: {first_line(error)}.",
            hint=f"Use {arg('quantize', 'dynamic-int8')}, which needs no graph."
            if kind != "qat"
            else f"Remove {arg('quantize')}.",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torchao and torch.export warn of in their own code."""
    with quiet_torchao(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def quiet_torchao() -> Iterator[None]:
    """Without the warnings that torchao and torch log when torchao is imported, as transformers does, or
    exports a network, and those of a hub that cannot be reached."""
    with contextlib.ExitStack() as stack:
        for name in ("torch.utils._pytree", "torchao", "huggingface_hub"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield
