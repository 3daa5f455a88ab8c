"""What to run: a name or a factory becomes a step function with random inputs, in inference or training.

A step is a function without arguments. For a name (torchvision, ``timm:``, ``hf:``) the network gets random weights, random inputs of
the size that its published weights expect, and in training a loss of its kind and SGD with momentum.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.errors import DeviceError, RooflinesError, WorkloadError
from rooflines.profiler.collect import memory_shortage
from rooflines.profiler.records import Mode, Workload

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")
LEARNING_RATE, MOMENTUM = 0.01, 0.9
_HALF = re.compile(r"Half|BFloat16|b?float16|[Ll]ow precision")  # how torch names them where an operator lacks them
_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a workload. None means: what the model's published weights use, or 1 for a batch nobody named."""

    mode: Mode = "inference"
    batch_size: int | None = None
    image_size: int | None = None
    sequence_length: int = 128
    precision: str = "fp32"
    device: str = "auto"
    threads: int | None = None
    channels_last: bool = False
    compile: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Prepared:
    """A workload ready to run: its facts, its step, the device it runs on, and the flags that must hold while it runs.

    ``restore`` gives a module that the caller owns back as it was; it does nothing for one that was made here.
    """

    facts: Workload
    step: Callable[[], object]
    device: torch.device
    options: Options
    restore: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def flags(self) -> Iterator[None]:
        """Thread count and TF32 as asked for; on leaving they and the caller's module are put back."""
        with thread_count(self.options.threads):
            restore_tf32 = _allow_tf32(self.options.precision == "tf32")
            try:
                yield
            finally:
                restore_tf32()
                self.restore()


@dataclass(frozen=True)
class _Task:
    """A network with its inputs and the loss it trains with. ``loss`` maps the network's output to a scalar."""

    network: torch.nn.Module
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    loss: Callable[[Any], torch.Tensor]
    unit: str
    image_size: int | None = None
    train_inputs: tuple[Any, ...] | None = None
    batch_size: int | None = None


@contextlib.contextmanager
def thread_count(threads: int | None) -> Iterator[None]:
    """torch's CPU threads set to ``threads`` (None: left alone) and put back."""
    import torch

    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_options(options: Options) -> None:
    """Raise WorkloadError or DeviceError for what no workload accepts on any machine; needs no torch."""
    if options.batch_size is not None and options.batch_size < 1:
        raise WorkloadError(f"the batch size must be at least 1, got {options.batch_size}.", hint="For example --batch-size 8.")
    if options.image_size is not None and options.image_size < 1:
        raise WorkloadError(f"the image size must be at least 1 pixel, got {options.image_size}.", hint="For example --image-size 224.")
    if options.sequence_length < 1:
        raise WorkloadError(
            f"the sequence length must be at least 1, got {options.sequence_length}.", hint="For example --sequence-length 128."
        )
    if options.threads is not None and options.threads < 1:
        raise WorkloadError(f"the thread count must be at least 1, got {options.threads}.", hint="For example --threads 2.")
    if not 0 <= options.seed < 2**63:
        raise WorkloadError(f"the seed must be between 0 and 2**63 - 1, got {options.seed}.", hint="For example --seed 0.")
    if options.mode not in ("inference", "training"):
        raise WorkloadError(f"unknown mode {options.mode!r}.", hint="Choose inference or training.")
    if options.precision not in PRECISIONS:
        raise WorkloadError(f"unknown precision {options.precision!r}.", hint=f"Choose one of {', '.join(PRECISIONS)}.")
    if not _DEVICE_NAME.fullmatch(options.device):
        raise DeviceError(f"unknown device {options.device!r}.", hint="Choose auto, cpu, cuda, cuda:N or mps.")


def find_device(name: str) -> torch.device:
    """The device for ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``; raises DeviceError with the reason when it is not here."""
    import torch

    check_options(Options(device=name))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            reason = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable NVIDIA GPU or driver"
            raise DeviceError(f"--device {name}: {reason}.", hint="Use --device cpu; 'rooflines doctor' says what is missing.")
        count = torch.cuda.device_count()
        if int(index or 0) >= count:
            raise DeviceError(
                f"--device {name}: this machine has {count} GPU{'s' if count > 1 else ''}.",
                hint=f"Choose from cuda:0 to cuda:{count - 1}.",
            )
        return torch.device("cuda", int(index or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("--device mps: Metal is not available on this machine.", hint="Use --device cpu.")
    return torch.device(kind)


def prepare(name: str, options: Options) -> Prepared:
    """The workload called ``name``: a torchvision model, ``timm:NAME``, ``hf:NAME``, or ``path/to/file.py:factory``.

    Raises WorkloadError or DeviceError with what was wrong and what to try; an error inside the user's factory is its ``__cause__``.
    Seeds torch's generators with the seed of ``options``.
    """
    device = _checked_device(options)
    import torch

    torch.manual_seed(options.seed)
    path, colon, factory = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_factory(Path(path), factory, options, device)
    prefix, colon, rest = name.partition(":")
    if not colon:
        task = _torchvision(name, options)
    elif prefix == "timm":
        task = _timm(rest, options)
    elif prefix == "hf":
        task = _transformers(rest, options)
    else:
        raise WorkloadError(f"unknown kind of model {name!r}.", hint="Use NAME, timm:NAME, hf:NAME or path/to/file.py:factory.")
    return _from_task(task, options, device, name)


def from_module(network: torch.nn.Module, inputs: Any, options: Options, *, name: str | None = None) -> Prepared:
    """A workload that calls ``network`` with ``inputs`` (a tensor, a tuple, or a dict of keywords).

    In training the network's own loss is used where its output has one (``.loss``, a dict of losses), otherwise the sum of its
    floating-point outputs. The network is moved, converted and trained in place; ``restore`` of the result undoes that.
    """
    device = _checked_device(options)
    name = name or type(network).__name__
    if inputs is None:
        raise WorkloadError(f"no inputs were given for the module {name}.", hint="Give a tensor, a tuple, or a dict of keywords.")
    positional, keywords = _as_arguments(inputs)
    task = _Task(network, positional, keywords, _sum_of_outputs, "samples", batch_size=_leading_size(inputs))
    kept = _Kept(network, trained=options.mode == "training")
    try:
        prepared = _from_task(task, options, device, name)
    except BaseException:
        kept.restore()
        raise
    return replace(prepared, restore=kept.restore)


def from_step(step: Callable[[], object], options: Options, *, name: str) -> Prepared:
    """A workload that is the user's own step function; mode, batch size and precision only label it.

    Raises WorkloadError for options that would have to change what the function does.
    """
    device = _checked_device(options)
    for option, asked in (("--channels-last", options.channels_last), ("--compile", options.compile)):
        if asked:
            raise WorkloadError(
                f"{option} cannot reach into the step function of {name}.", hint="Do it inside, or return (module, inputs) instead."
            )
    facts = Workload(name=name, mode=options.mode, batch_size=options.batch_size, precision=options.precision)
    return Prepared(facts=facts, step=step, device=device, options=options)


def _checked_device(options: Options) -> torch.device:
    check_options(options)
    device = find_device(options.device)
    if options.precision == "tf32" and device.type != "cuda":
        raise WorkloadError(f"--precision tf32 exists on NVIDIA GPUs only, not on {device}.", hint="Use fp32 or bf16.")
    return device


def _from_task(task: _Task, options: Options, device: torch.device, name: str) -> Prepared:
    import torch

    training = options.mode == "training"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    network = task.network.to(device=device, dtype=dtype).train(training)
    given = task.train_inputs if training and task.train_inputs is not None else task.inputs
    if options.channels_last:
        _store_channels_last(network, (given, task.keywords), name)
    inputs = _to_device(given, device, dtype, options.channels_last)
    keywords = _to_device(task.keywords, device, dtype, options.channels_last)
    called: Any = torch.compile(network) if options.compile else network
    autocast = _autocast(options.precision, device)
    if training:
        step = _training_step(network, called, inputs, keywords, task.loss, autocast, options.precision, device)
    else:
        step = _inference_step(called, inputs, keywords, autocast)
    facts = Workload(
        name=name,
        mode=options.mode,
        batch_size=options.batch_size or task.batch_size,
        precision=options.precision,
        unit=task.unit,
        image_size=task.image_size,
        channels_last=options.channels_last,
        compiled=options.compile,
        optimizer="SGD" if training else None,
    )
    return Prepared(facts=facts, step=_explained(step, facts, device, options.image_size), device=device, options=options)


class _Kept:
    """What a run changes in a module that the caller owns, so that it can be put back.

    Moving and converting replace ``.data`` and buffers: the old ones are kept. Training also writes into them: then their values are
    kept too, in host memory, where they do not add to the peak of a GPU.
    """

    def __init__(self, network: torch.nn.Module, *, trained: bool) -> None:
        from torch.nn.parameter import is_lazy

        self._modules = [(m, m.training, dict(m._parameters), dict(m._buffers)) for m in network.modules()]
        tensors = {id(t): t for t in (*network.parameters(), *network.buffers()) if not is_lazy(t)}
        self._tensors = [(t, t.data, t.data.to("cpu", copy=True) if trained else None, t.grad) for t in tensors.values()]
        for tensor in tensors.values():
            tensor.grad = None  # set aside, or it would be converted with its tensor

    def restore(self) -> None:
        """Put everything back."""
        for module, training, parameters, buffers in self._modules:
            module.training = training
            module._parameters.update(parameters)
            module._buffers.update(buffers)
        for tensor, data, values, gradient in self._tensors:
            if values is not None:
                data.copy_(values)
            tensor.data = data
            tensor.grad = gradient


# --- steps -------------------------------------------------------------------------------------------------------------------------


def _inference_step(called: Any, inputs: Any, keywords: Any, autocast: Callable[[], Any]) -> Callable[[], object]:
    import torch

    def step() -> object:
        with torch.inference_mode(), autocast():
            return called(*inputs, **keywords)

    return step


def _training_step(
    network: torch.nn.Module,
    called: Any,
    inputs: Any,
    keywords: Any,
    loss_of: Callable[[Any], torch.Tensor],
    autocast: Callable[[], Any],
    precision: str,
    device: torch.device,
) -> Callable[[], object]:
    import torch

    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise WorkloadError("the model has no parameters to train.", hint="Use --mode inference.")
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "amp-fp16" and device.type == "cuda")

    def step() -> object:
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = loss_of(called(*inputs, **keywords))
            scaled: Any = scaler.scale(loss)
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

    return step


def _explained(step: Callable[[], object], facts: Workload, device: torch.device, image_size: int | None) -> Callable[[], object]:
    """``step``, with torch's complaints about the input turned into ours on the first call. ``image_size`` is the one asked for."""
    checked = False

    def run() -> object:
        nonlocal checked
        if checked:
            return step()
        try:
            result = step()
        except Exception as error:
            refusal = _refusal(error, facts, device, image_size)
            if refusal is None:
                raise
            raise refusal from error
        checked = True
        return result

    return run


def _refusal(error: Exception, facts: Workload, device: torch.device, image_size: int | None) -> WorkloadError | None:
    """Why the first step failed, where the cause is what was asked for; None where it is not."""
    text = str(error).strip()
    first = text.splitlines()[0].rstrip(".!") if text else type(error).__name__
    if isinstance(error, RooflinesError) or memory_shortage(error, facts, device) is not None:
        return None
    if "Expected more than 1 value per channel" in text:
        return WorkloadError(
            f"{facts.name} cannot train on a batch of {facts.batch_size}: {first}.",
            hint="Use --batch-size 2 or more, or larger images.",
        )
    if facts.precision != "fp32" and _HALF.search(text):
        return WorkloadError(
            f"{facts.name} does not run in {facts.precision} on {device}: {first}.", hint="Use --precision fp32 or amp-bf16."
        )
    # A network that we made, with inputs that we made, from a size that the user chose: no mark of torch's many wordings is needed.
    if image_size is not None:
        return WorkloadError(
            f"{facts.name} does not accept images of {image_size} x {image_size}: {first}.",
            hint="Leave --image-size out for the size of its published weights, or try a larger one.",
        )
    return None


def _store_channels_last(network: torch.nn.Module, inputs: Any, name: str) -> None:
    """Weights of convolutions as NHWC (NDHWC in three dimensions); raises WorkloadError where nothing has that many dimensions."""
    import torch

    changed = any(t.dim() in _CHANNELS_LAST for t in _tensors(inputs))
    for parameter in network.parameters():
        if parameter.dim() in _CHANNELS_LAST:
            changed = True
            parameter.data = parameter.data.contiguous(memory_format=getattr(torch, _CHANNELS_LAST[parameter.dim()]))
    if not changed:
        raise WorkloadError(f"--channels-last changes nothing in {name}: it has no images.", hint="Leave it out.")


_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}


def _autocast(precision: str, device: torch.device) -> Callable[[], Any]:
    import torch

    if not precision.startswith("amp-"):
        return contextlib.nullcontext
    dtype = torch.bfloat16 if precision == "amp-bf16" else torch.float16
    return lambda: torch.autocast(device.type, dtype=dtype)


def _allow_tf32(allowed: bool) -> Callable[[], None]:
    """Switch TF32 on or off for matmuls and convolutions (cuDNN's default is on); returns what puts it back."""
    import torch

    if not torch.cuda.is_available():
        return lambda: None
    matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed

    def restore() -> None:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution

    return restore


def _to_device(value: Any, device: torch.device, dtype: torch.dtype | None, channels_last: bool) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        moved = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        if channels_last and moved.dim() in _CHANNELS_LAST:
            return moved.contiguous(memory_format=getattr(torch, _CHANNELS_LAST[moved.dim()]))
        return moved
    if isinstance(value, Mapping):
        return {key: _to_device(item, device, dtype, channels_last) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_to_device(item, device, dtype, channels_last) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple takes its fields one by one
    return value


def _as_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _leading_size(inputs: Any) -> int | None:
    """The first dimension of the first tensor in ``inputs``: what most people call the batch."""
    import torch

    if isinstance(inputs, torch.Tensor):
        return int(inputs.shape[0]) if inputs.dim() else None
    items = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (tuple, list)) else ()
    for item in items:
        size = _leading_size(item)
        if size is not None:
            return size
    return None


def _sum_of_outputs(output: Any) -> torch.Tensor:
    """A scalar to back-propagate: the output's own ``loss``, or the sum of everything floating-point in it."""
    import torch

    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    tensors = [t for t in _tensors(output) if t.is_floating_point() and t.requires_grad]
    if not tensors:
        raise WorkloadError("the model's output has no floating-point tensor to train on.", hint="Use --mode inference.")
    return torch.stack([t.sum() for t in tensors]).sum()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


# --- torchvision -------------------------------------------------------------------------------------------------------------------


def _torchvision(name: str, options: Options) -> _Task:
    import torchvision

    known = torchvision.models.list_models()
    if name not in known:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(close)}?" if close else "torchvision.models.list_models() names them all."
        raise WorkloadError(f"unknown model {name!r}: torchvision has no such model.", hint=hint)
    builder = torchvision.models.get_model_builder(name)
    family = builder.__module__.removeprefix("torchvision.models.").partition(".")[0]
    weights = torchvision.models.get_model_weights(name).DEFAULT
    size = options.image_size or _published_size(weights, family)
    batch = options.batch_size or 1
    keywords: dict[str, Any] = {"weights": None}
    if family in ("detection", "segmentation"):
        keywords["weights_backbone"] = None
    if name in ("inception_v3", "googlenet", "quantized_inception_v3", "quantized_googlenet"):
        keywords["init_weights"] = False  # their initialisation takes a minute and changes no figure
    with _construction(name, options):
        network = torchvision.models.get_model(name, **keywords, **_size_keyword(name, size))
    build = {"detection": _detection, "segmentation": _segmentation, "video": _video, "optical_flow": _optical_flow}
    return build.get(family, _classification)(network, batch, size)


def _size_keyword(name: str, size: int = 0) -> dict[str, Any]:
    """The constructor's own argument for networks that are built for one image size."""
    if name.startswith("vit_"):
        return {"image_size": size}
    if name.startswith("maxvit"):
        return {"input_size": (size, size)}
    return {}


def _published_size(weights: Any, family: str) -> int:
    """The image size that the published weights are evaluated at."""
    size: Any = None
    with contextlib.suppress(TypeError, AttributeError):
        transforms = weights.transforms()
        size = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    first = size[0] if isinstance(size, (list, tuple)) and size else size
    if isinstance(first, int):
        return first
    return {"detection": 800, "segmentation": 520, "optical_flow": 360}.get(family, 224)


@contextlib.contextmanager
def _construction(name: str, options: Options) -> Iterator[None]:
    """Turns what a network's constructor raises into WorkloadError; it is the image size where one was asked for."""
    try:
        yield
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        if memory_shortage(error, Workload(name=name, mode=options.mode), find_device(options.device)) is not None:
            raise
        first = str(error).strip().partition("\n")[0].rstrip(".!") or type(error).__name__
        if options.image_size is None:
            raise WorkloadError(f"{name} cannot be built: {first}.") from error
        raise WorkloadError(
            f"{name} does not accept images of {options.image_size} x {options.image_size}: {first}.",
            hint="Leave --image-size out for the size of its published weights.",
        ) from error


def _classification(network: Any, batch: int, size: int) -> _Task:
    import torch
    from torch.nn import functional

    labels = torch.zeros(batch, dtype=torch.long)

    def loss(output: Any) -> torch.Tensor:
        # Inception and GoogLeNet return auxiliary logits in training, weighted as their papers do.
        outputs = output if isinstance(output, tuple) else (output,)
        weights = (1.0, *(0.4 if len(outputs) == 2 else 0.3 for _ in outputs[1:]))
        on_device = labels.to(outputs[0].device)
        losses = [w * functional.cross_entropy(o, on_device) for w, o in zip(weights, outputs, strict=True) if o is not None]
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

    return _Task(network, (torch.randn(batch, 3, size, size),), {}, loss, "images", size, batch_size=batch)


def _segmentation(network: Any, batch: int, size: int) -> _Task:
    import torch
    from torch.nn import functional

    target = torch.zeros(batch, size, size, dtype=torch.long)

    def loss(output: Any) -> torch.Tensor:
        on_device = target.to(output["out"].device)
        total = functional.cross_entropy(output["out"], on_device)
        return total + 0.5 * functional.cross_entropy(output["aux"], on_device) if "aux" in output else total

    return _Task(network, (torch.randn(batch, 3, size, size),), {}, loss, "images", size, batch_size=batch)


def _detection(network: Any, batch: int, size: int) -> _Task:
    import torch

    images = [torch.rand(3, size, size) for _ in range(batch)]
    box = torch.tensor([[0.1, 0.1, 0.6, 0.6], [0.3, 0.2, 0.9, 0.8]]) * size
    masks = torch.zeros(2, size, size, dtype=torch.uint8)
    masks[:, size // 4 : size // 2, size // 4 : size // 2] = 1
    targets = [
        {"boxes": box, "labels": torch.ones(2, dtype=torch.long), "masks": masks, "keypoints": torch.ones(2, 17, 3) * (size / 3)}
        for _ in range(batch)
    ]

    def loss(output: Any) -> torch.Tensor:
        return torch.stack(list(output.values())).sum()

    return _Task(network, (images,), {}, loss, "images", size, train_inputs=(images, targets), batch_size=batch)


def _video(network: Any, batch: int, size: int) -> _Task:
    import torch
    from torch.nn import functional

    clip = torch.randn(batch, 3, 16, size, size)

    def loss(output: Any) -> torch.Tensor:
        return functional.cross_entropy(output, torch.zeros(batch, dtype=torch.long, device=output.device))

    return _Task(network, (clip,), {}, loss, "clips", size, batch_size=batch)


def _optical_flow(network: Any, batch: int, size: int) -> _Task:
    import torch

    size = -(-size // 8) * 8  # RAFT needs a multiple of 8
    pair = (torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size))

    def loss(output: Any) -> torch.Tensor:
        return torch.stack([flow.abs().mean() for flow in output]).sum()

    return _Task(network, pair, {}, loss, "frame pairs", size, batch_size=batch)


# --- other people's collections ----------------------------------------------------------------------------------------------------


def _timm(name: str, options: Options) -> _Task:
    timm = _import("timm", f"timm:{name}")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
        raise WorkloadError(f"unknown model 'timm:{name}'.", hint=f"Did you mean timm:{' or timm:'.join(close)}?" if close else "")
    sized = {"img_size": options.image_size} if options.image_size else {}
    with _construction(f"timm:{name}", options):
        try:
            network = timm.create_model(name, pretrained=False, **sized)
        except TypeError:  # a convolutional network takes any size and has no such argument
            network = timm.create_model(name, pretrained=False)
    size = options.image_size or network.default_cfg.get("input_size", (3, 224, 224))[-1]
    return _classification(network, options.batch_size or 1, size)


def _transformers(name: str, options: Options) -> _Task:
    transformers = _import("transformers", f"hf:{name}")
    import torch

    from_types = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    misspelt = difflib.get_close_matches(name, list(from_types), n=1, cutoff=0.8)
    # Asked before the hub, which costs half a minute where it cannot be reached.
    if misspelt and name not in from_types and "/" not in name and not Path(name).exists():
        raise WorkloadError(f"unknown model 'hf:{name}'.", hint=f"Did you mean hf:{misspelt[0]}?")
    try:
        config = from_types[name]() if name in from_types else transformers.AutoConfig.from_pretrained(name)
    except Exception as error:  # the hub client raises a dozen unrelated types
        close = difflib.get_close_matches(name, list(from_types), n=3, cutoff=0.5)
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WorkloadError(
            f"hf:{name}: no configuration of that name here: {first}",
            hint=f"Give a model type ({', '.join(close or ['bert', 'gpt2', 'vit'])}) or a folder with a config.json.",
        ) from error
    if options.image_size is not None:
        for part in (config, getattr(config, "vision_config", None)):
            if part is not None and hasattr(part, "image_size"):
                part.image_size = options.image_size
    network = _transformer_class(transformers, config).from_config(config)
    batch = options.batch_size or 1
    main_input = getattr(network, "main_input_name", "input_ids")
    if main_input == "pixel_values":
        sized: Any = config if hasattr(config, "image_size") else getattr(config, "vision_config", config)
        size = options.image_size or int(getattr(sized, "image_size", None) or 224)
        images = torch.randn(batch, getattr(sized, "num_channels", 3), size, size)
        keywords = {"pixel_values": images}
        if options.mode == "training" and hasattr(network, "num_labels"):
            keywords["labels"] = torch.zeros(batch, dtype=torch.long)
        return _Task(network, (), keywords, _sum_of_outputs, "images", size, batch_size=batch)
    if main_input != "input_ids":
        raise WorkloadError(
            f"hf:{name} takes {main_input!r}; inputs are made for networks of tokens or images only.",
            hint="Write a factory that returns (module, inputs): path/to/file.py:factory.",
        )
    if options.image_size is not None:
        raise WorkloadError(f"hf:{name} takes tokens, not images of {options.image_size} pixels.", hint="Use --sequence-length.")
    tokens = torch.randint(0, getattr(config, "vocab_size", 1000), (batch, options.sequence_length))
    keywords = {"input_ids": tokens}
    if config.is_encoder_decoder:
        keywords["decoder_input_ids"] = tokens
    if options.mode == "training" and "labels" in inspect.signature(network.forward).parameters:
        keywords["labels"] = tokens
    return _Task(network, (), keywords, _sum_of_outputs, "sequences", batch_size=batch)


def _transformer_class(transformers: Any, config: Any) -> Any:
    """The class with the head that this kind of network is known for: an encoder is a masked language model before a causal one."""
    builders = (
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModelForMaskedLM,
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForImageClassification,
    )
    return next((builder for builder in builders if type(config) in builder._model_mapping), transformers.AutoModel)


def _import(package: str, wanted_for: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise WorkloadError(f"{wanted_for!r} needs the package {package!r}.", hint=f"pip install {package}") from None


# --- the user's own ----------------------------------------------------------------------------------------------------------------


def _from_factory(path: Path, name: str, options: Options, device: torch.device) -> Prepared:
    """A function in a user's file that returns ``(module, inputs)`` or a step function.

    It is called with those of ``batch_size``, ``image_size``, ``device``, ``mode`` and ``seed`` that its signature names.
    """
    import torch

    if not path.is_file():
        raise WorkloadError(f"no such file: {str(path)!r}.", hint="Give path/to/file.py:factory.")
    label = f"{path.name}:{name}"
    with _import_path(path.parent), _user_code(f"the file {str(path)!r} raised while it was imported", label, options, device):
        module = _load_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        close = difflib.get_close_matches(name, functions, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"It has {', '.join(functions)}." if functions else ""
        raise WorkloadError(f"{str(path)!r} has no function {name!r}.", hint=hint)
    offered = {"batch_size": options.batch_size or 1, "image_size": options.image_size, "device": device, "mode": options.mode,
               "seed": options.seed}  # fmt: skip
    with _import_path(path.parent), _user_code(f"the factory {label} raised", label, options, device):
        parameters = inspect.signature(factory).parameters
        made = factory(**{key: value for key, value in offered.items() if key in parameters and value is not None})
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return from_module(made[0], made[1], options, name=label)
    if callable(made) and not isinstance(made, torch.nn.Module):
        return from_step(made, options, name=label)
    raise WorkloadError(
        f"the factory {label} returned {_described(made)}.", hint="Return (module, inputs), or a function that runs one step."
    )


@contextlib.contextmanager
def _user_code(what: str, label: str, options: Options, device: torch.device) -> Iterator[None]:
    """Turns what the user's code raises, also sys.exit(), into ours, with the exception as its cause."""
    try:
        yield
    except (Exception, SystemExit) as error:
        facts = Workload(name=label, mode=options.mode, batch_size=options.batch_size)
        shortage = memory_shortage(error, facts, device)
        raise shortage or WorkloadError(f"{what}: {type(error).__name__}: {error}") from error


def _described(value: Any) -> str:
    kinds = f" of {', '.join(type(item).__name__ for item in value)}" if isinstance(value, tuple) and value else ""
    return f"{type(value).__name__}{kinds}"


def _load_file(path: Path) -> Any:
    # The name lets its classes be pickled; one that is taken (json.py, types.py) must not be replaced for everybody else.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}__workload"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """``folder`` first on the import path, as for a script that lies there."""
    before = list(sys.path)
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before
