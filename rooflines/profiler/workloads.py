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
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.errors import DeviceError, WorkloadError
from rooflines.profiler.records import Mode, Workload

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")
LEARNING_RATE, MOMENTUM = 0.01, 0.9


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
    """A workload ready to run: its facts, its step, the device it runs on, and the flags that must hold while it runs."""

    facts: Workload
    step: Callable[[], object]
    device: torch.device
    options: Options

    @contextlib.contextmanager
    def flags(self) -> Iterator[None]:
        """Thread count and TF32 as asked for, restored afterwards."""
        import torch

        threads = torch.get_num_threads()
        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        restore = _allow_tf32(self.options.precision == "tf32")
        try:
            yield
        finally:
            restore()
            torch.set_num_threads(threads)


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


def check_options(options: Options) -> None:
    """Raise WorkloadError for what no workload accepts; needs no torch."""
    if options.batch_size is not None and options.batch_size < 1:
        raise WorkloadError(f"the batch size must be at least 1, got {options.batch_size}.", hint="For example --batch-size 8.")
    if options.image_size is not None and options.image_size < 1:
        raise WorkloadError(f"the image size must be at least 1 pixel, got {options.image_size}.", hint="For example --image-size 224.")
    if options.sequence_length < 1:
        raise WorkloadError(f"the sequence length must be at least 1, got {options.sequence_length}.")
    if options.threads is not None and options.threads < 1:
        raise WorkloadError(f"the thread count must be at least 1, got {options.threads}.")
    if options.mode not in ("inference", "training"):
        raise WorkloadError(f"unknown mode {options.mode!r}.", hint="Choose inference or training.")
    if options.precision not in PRECISIONS:
        raise WorkloadError(f"unknown precision {options.precision!r}.", hint=f"Choose one of {', '.join(PRECISIONS)}.")


def find_device(name: str) -> torch.device:
    """The device for ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``; raises DeviceError with the reason when it is not here."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and (kind != "cuda" or not index.isdigit())):
        raise DeviceError(f"unknown device {name!r}.", hint="Choose auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda":
        if not torch.cuda.is_available():
            reason = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable NVIDIA GPU or driver"
            raise DeviceError(f"--device {name}: {reason}.", hint="Use --device cpu; 'rooflines doctor' says what is missing.")
        count = torch.cuda.device_count()
        if int(index or 0) >= count:
            raise DeviceError(f"--device {name}: this machine has {count} GPU{'s' if count > 1 else ''} (cuda:0 to cuda:{count - 1}).")
        return torch.device("cuda", int(index or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("--device mps: Metal is not available on this machine.", hint="Use --device cpu.")
    return torch.device(kind)


def prepare(name: str, options: Options) -> Prepared:
    """The workload called ``name``: a torchvision model, ``timm:NAME``, ``hf:NAME``, or ``path/to/file.py:factory``.

    Raises WorkloadError or DeviceError with what was wrong and what to try; an error inside the user's factory is its ``__cause__``.
    """
    check_options(options)
    device = find_device(options.device)
    if options.precision == "tf32" and device.type != "cuda":
        raise WorkloadError(f"--precision tf32 exists on NVIDIA GPUs only, not on {device}.", hint="Use fp32 or bf16.")
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
    return from_module(task.network, task.inputs, options, name=name, task=task)


def from_module(
    network: torch.nn.Module,
    inputs: Any,
    options: Options,
    *,
    name: str | None = None,
    task: _Task | None = None,
) -> Prepared:
    """A workload that calls ``network`` with ``inputs`` (a tensor, a tuple, or a dict of keywords).

    In training the network's own loss is used where its output has one (``.loss``, a dict of losses), otherwise the sum of its
    floating-point outputs.
    """
    import torch

    check_options(options)
    device = find_device(options.device)
    if task is None:
        positional, keywords = _as_arguments(inputs)
        task = _Task(network, positional, keywords, _sum_of_outputs, "samples", batch_size=_leading_size(inputs))
    training = options.mode == "training"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    memory_format = torch.channels_last if options.channels_last else torch.preserve_format
    network = task.network.to(device=device, dtype=dtype).train(training)
    if options.channels_last:
        network = network.to(memory_format=memory_format)  # type: ignore[call-overload]
    moved = _to_device(
        task.train_inputs if training and task.train_inputs is not None else task.inputs, device, dtype, options.channels_last
    )
    keywords = _to_device(task.keywords, device, dtype, options.channels_last)
    called: Any = torch.compile(network) if options.compile else network
    autocast = _autocast(options.precision, device)
    if training:
        step = _training_step(network, called, moved, keywords, task.loss, autocast, options.precision, device)
    else:
        step = _inference_step(called, moved, keywords, autocast)
    facts = Workload(
        name=name or type(network).__name__,
        mode=options.mode,
        batch_size=options.batch_size or task.batch_size,
        precision=options.precision,
        unit=task.unit,
        image_size=task.image_size,
        channels_last=options.channels_last,
        compiled=options.compile,
        optimizer="SGD" if training else None,
    )
    return Prepared(facts=facts, step=_explained(step, facts), device=device, options=options)


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
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_of(called(*inputs, **keywords))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def _explained(step: Callable[[], object], facts: Workload) -> Callable[[], object]:
    """``step``, with torch's complaints about the input's size turned into ours on the first call."""
    checked = False

    def run() -> object:
        nonlocal checked
        if checked:
            return step()
        try:
            result = step()
        except (RuntimeError, ValueError, AssertionError) as error:
            refusal = _refusal(error, facts)
            if refusal is None:
                raise
            raise refusal from error
        checked = True
        return result

    return run


_TOO_SMALL = (
    "can't be greater than actual input size", "Output size is too small", "output size: ", "Wrong image height", "Wrong image width",
    "is too small", "should be greater than", "must be divisible", "Input height", "Input image height", "negative dimension",
    "smaller than kernel", "should not be smaller", "non-zero size", "resolution should be larger",
)  # fmt: skip


def _refusal(error: Exception, facts: Workload) -> WorkloadError | None:
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "Expected more than 1 value per channel" in text:
        return WorkloadError(
            f"{facts.name} cannot train on a batch of {facts.batch_size}: {first}", hint="Use --batch-size 2 or more, or larger images."
        )
    if facts.image_size is not None and any(mark in text for mark in _TOO_SMALL):
        return WorkloadError(
            f"{facts.name} does not accept images of {facts.image_size} x {facts.image_size}: {first}",
            hint="Try the default size (leave --image-size out).",
        )
    return None


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
        return moved.contiguous(memory_format=torch.channels_last) if channels_last and moved.dim() == 4 else moved
    if isinstance(value, dict):
        return {key: _to_device(item, device, dtype, channels_last) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_device(item, device, dtype, channels_last) for item in value)
    return value


def _as_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _leading_size(inputs: Any) -> int | None:
    """The first dimension of the first tensor in ``inputs``: what most people call the batch."""
    import torch

    if isinstance(inputs, torch.Tensor):
        return int(inputs.shape[0]) if inputs.dim() else None
    items = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, (tuple, list)) else ()
    for item in items:
        size = _leading_size(item)
        if size is not None:
            return size
    return None


def _sum_of_outputs(output: Any) -> torch.Tensor:
    """A scalar to back-propagate: the output's own ``loss``, or the sum of everything floating-point in it."""
    import torch

    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
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
    elif isinstance(value, dict):
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
    least = weights.meta.get("min_size")
    if least and size < max(least) and "image_size" not in _size_keyword(name):
        raise WorkloadError(
            f"{name} does not accept images of {size} x {size}: the least is {least[0]} x {least[1]}.",
            hint=f"Use --image-size {_published_size(weights, family)}.",
        )
    batch = options.batch_size or 1
    keywords: dict[str, Any] = {"weights": None}
    if family in ("detection", "segmentation"):
        keywords["weights_backbone"] = None
    if name in ("inception_v3", "googlenet", "quantized_inception_v3", "quantized_googlenet"):
        keywords["init_weights"] = False  # their initialisation takes a minute and changes no figure
    with _construction(name):
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
def _construction(name: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise WorkloadError(f"{name} cannot be built: {error}", hint="Check --image-size.") from error


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
    try:
        network = timm.create_model(name, pretrained=False, **sized)
    except TypeError:  # a convolutional network takes any size and has no such argument
        network = timm.create_model(name, pretrained=False)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise WorkloadError(f"timm:{name} cannot be built: {error}", hint="Check --image-size.") from error
    size = options.image_size or network.default_cfg.get("input_size", (3, 224, 224))[-1]
    return _classification(network, options.batch_size or 1, size)


def _transformers(name: str, options: Options) -> _Task:
    transformers = _import("transformers", f"hf:{name}")
    import torch

    from_types = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    try:
        config = from_types[name]() if name in from_types else transformers.AutoConfig.from_pretrained(name)
    except Exception as error:  # the hub client raises a dozen unrelated types
        close = difflib.get_close_matches(name, list(from_types), n=3, cutoff=0.5)
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WorkloadError(
            f"hf:{name}: no configuration of that name here: {first}",
            hint=f"Give a model type ({', '.join(close or ['bert', 'gpt2', 'vit'])}) or a folder with a config.json.",
        ) from error
    auto = transformers
    builders = (auto.AutoModelForCausalLM, auto.AutoModelForMaskedLM, auto.AutoModelForSeq2SeqLM, auto.AutoModelForImageClassification)
    kinds = [builder for builder in builders if type(config) in builder._model_mapping]
    network = (kinds[0] if kinds else auto.AutoModel).from_config(config)
    batch = options.batch_size or 1
    if getattr(network, "main_input_name", "input_ids") == "pixel_values":
        size = options.image_size or getattr(config, "image_size", 224)
        images = torch.randn(batch, getattr(config, "num_channels", 3), size, size)
        return _Task(network, (), {"pixel_values": images}, _sum_of_outputs, "images", size, batch_size=batch)
    vocabulary = getattr(config, "vocab_size", 1000)
    tokens = torch.randint(0, vocabulary, (batch, options.sequence_length))
    keywords: dict[str, Any] = {"input_ids": tokens}
    if kinds and options.mode == "training":
        keywords["labels"] = tokens
    return _Task(network, (), keywords, _sum_of_outputs, "sequences", batch_size=batch)


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
    try:
        module = _load_file(path)
    except Exception as error:
        raise WorkloadError(f"{str(path)!r} raised while it was imported: {type(error).__name__}: {error}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        close = difflib.get_close_matches(name, [n for n, v in vars(module).items() if callable(v)], n=1)
        raise WorkloadError(f"{str(path)!r} has no function {name!r}.", hint=f"Did you mean {close[0]}?" if close else "")
    offered = {"batch_size": options.batch_size or 1, "image_size": options.image_size, "device": device, "mode": options.mode,
               "seed": options.seed}  # fmt: skip
    wanted = {key: value for key, value in offered.items() if key in inspect.signature(factory).parameters and value is not None}
    try:
        made = factory(**wanted)
    except Exception as error:
        raise WorkloadError(f"the factory {label} raised {type(error).__name__}: {error}") from error
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return from_module(made[0], made[1], options, name=label)
    if callable(made) and not isinstance(made, torch.nn.Module):
        facts = Workload(name=label, mode=options.mode, batch_size=options.batch_size, precision=options.precision)
        return Prepared(facts=facts, step=made, device=device, options=options)
    raise WorkloadError(
        f"the factory {label} returned {type(made).__name__}.", hint="Return (module, inputs), or a function that runs one step."
    )


def _load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
