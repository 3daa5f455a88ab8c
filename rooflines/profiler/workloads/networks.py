"""Networks by name (torchvision, timm, Hugging Face), with random weights, random inputs and a loss of their
kind, and by factory."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError, described, first_line
from rooflines.profiler.options import PointOptions, find_device
from rooflines.profiler.read.signature import Keywords, Positional
from rooflines.profiler.records import Workload
from rooflines.profiler.workloads.causal_models import causal_network, vocab_size
from rooflines.profiler.workloads.generation import PROTOCOL, is_generator
from rooflines.profiler.workloads.inputs import tensors_in
from rooflines.profiler.workloads.memory_shortage import memory_shortage
from rooflines.profiler.workloads.quantization import quiet_torchao

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class NetworkTask:
    """A network with its inputs and the loss it trains with. What generates has its prompts as input."""

    network: torch.nn.Module
    inputs: Positional
    keywords: Keywords
    #: Maps the network's output to a scalar.
    loss: Callable[[Any], torch.Tensor]
    unit: str
    image_size: int | None = None
    train_inputs: Positional | None = None
    batch_size: int | None = None
    #: Whether its output are the scores of classes, so that it can be trained on labeled images.
    classifies: bool = False
    #: What the network is made of.
    notes: tuple[str, ...] = ()


def find_network(name: str, options: PointOptions, classes: int | None = None) -> NetworkTask:
    """The network called ``name``: torchvision's, ``timm:NAME`` or ``hf:NAME``; WorkloadError names the
    nearest when there is none.

    ``classes`` is the number of classes that an image classifier tells apart, by default that of ``options``.
    """
    classes = classes or options.classes
    prefix, colon, rest = name.partition(":")
    if options.mode == "generate" and prefix != "hf":
        raise WorkloadError(
            f"{name!r} is no language model, which {arg('mode', 'generate')} requires.",
            hint="Use hf:NAME, hf:PATH/config.json or path/to/file.py:factory.",
        )
    if not colon:
        return _torchvision(name, options, classes)
    if prefix == "timm":
        return _timm(rest, options, classes)
    if prefix == "hf":
        with quiet_torchao():
            return _transformers(rest, options)
    raise WorkloadError(
        f"unknown kind of model {name!r}.", hint="Use NAME, timm:NAME, hf:NAME or path/to/file.py:factory."
    )


def sum_of_outputs(output: Any) -> torch.Tensor:
    """A scalar to back-propagate: the output's own ``loss``, or the sum of everything floating-point in
    it."""
    import torch

    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    tensors = [t for t in tensors_in(output) if t.is_floating_point() and t.requires_grad]
    if not tensors:
        raise WorkloadError(
            "the model's output has no floating-point tensor to train on.",
            hint=f"Use {arg('mode', 'inference')}.",
        )
    return torch.stack([t.sum() for t in tensors]).sum()


# --- torchvision ------------------------------------------------------------------------------------------


def _torchvision(name: str, options: PointOptions, classes: int | None) -> NetworkTask:
    import torchvision

    known = torchvision.models.list_models()
    if name not in known:
        if (is_script := name.endswith(".py")) or os.path.exists(name):
            what = "script" if is_script else "directory" if os.path.isdir(name) else "file"
            script = f" Or run it as a script: rooflines profile {name}" if is_script else ""
            hint = (
                f"Give the name of a model, or {name if is_script else 'FILE.py'}:FUNCTION, which "
                f"returns (module, inputs).{script}"
            )
            raise WorkloadError(f"a model was expected, and {name!r} is a {what}.", hint=hint)
        close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=3, cutoff=0.5)
        hint = (
            f"Did you mean {' or '.join(close)}?"
            if close
            else "List all with torchvision.models.list_models()."
        )
        raise WorkloadError(f"unknown model {name!r}: torchvision has no such model.", hint=hint)
    builder = torchvision.models.get_model_builder(name)
    family = builder.__module__.removeprefix("torchvision.models.").partition(".")[0]
    weights = torchvision.models.get_model_weights(name).DEFAULT
    size = options.image_size or _published_size(weights, family)
    batch = options.batch_size or 1
    keywords: dict[str, Any] = {"weights": None} | ({"num_classes": classes} if classes else {})
    if family in ("detection", "segmentation"):
        keywords["weights_backbone"] = None
    if family == "quantization" and options.mode == "inference":
        keywords["quantize"] = (
            True  # the integer network that the published weights are of; it cannot be trained
        )
    if name.startswith("vit_"):
        keywords["image_size"] = size
    if name.startswith("maxvit"):
        keywords["input_size"] = (size, size)
    if name in ("inception_v3", "googlenet", "quantized_inception_v3", "quantized_googlenet"):
        keywords["init_weights"] = False  # their initialization takes a minute and changes no figure
    with _construction(name, options), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", category=UserWarning, module=r"torch\.ao\..*"
        )  # quantization's home has moved
        warnings.filterwarnings(
            "ignore", category=DeprecationWarning, module=r"torch\.ao\..*|torchvision\..*"
        )
        network = torchvision.models.get_model(name, **keywords)
    frames = (16,) if family == "video" else ()
    build: dict[str, Callable[..., NetworkTask]] = {
        "detection": _detection,
        "segmentation": _segmentation,
        "optical_flow": _optical_flow,
    }
    return build.get(family, functools.partial(_classification, frames=frames))(network, batch, size)


def _published_size(weights: Any, family: str) -> int:
    size: Any = None
    with contextlib.suppress(TypeError, AttributeError):
        transforms = weights.transforms()
        size = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    first = size[0] if isinstance(size, (list, tuple)) and size else size
    if isinstance(first, int):
        return first
    return {"detection": 800, "segmentation": 520, "optical_flow": 360}.get(family, 224)


@contextlib.contextmanager
def _construction(name: str, options: PointOptions) -> Iterator[None]:
    """Turns what a network's constructor raises into WorkloadError; it is the image size where one was asked
    for."""
    try:
        yield
    except (
        RuntimeError,
        ValueError,
        AssertionError,
        TypeError,
        KeyError,
        AttributeError,
        ImportError,
    ) as error:
        if (
            memory_shortage(error, Workload(name=name, mode=options.mode), find_device(options.device))
            is not None
        ):
            raise
        if options.image_size is None:
            raise WorkloadError(f"{name} cannot be built: {first_line(error)}.") from error
        raise WorkloadError(
            f"{name} does not accept images of {options.image_size} x {options.image_size}: "
            f"{first_line(error)}.",
            hint=f"Omit {arg('image_size')} to use the size of the published weights.",
        ) from error


def _classification(network: Any, batch: int, size: int, frames: tuple[int, ...] = ()) -> NetworkTask:
    """A network that classifies images, or with ``frames`` clips of that length."""
    import torch

    inputs = torch.randn(batch, 3, *frames, size, size)
    labels = functools.cache(
        torch.zeros(batch, dtype=torch.long).to
    )  # a copy in every step would make the host wait

    def loss(output: Any) -> torch.Tensor:
        first = output[0] if isinstance(output, tuple) else output
        return classification_loss(output, labels(first.device))

    unit = "clips" if frames else "images"
    return NetworkTask(network, (inputs,), {}, loss, unit, size, batch_size=batch, classifies=not frames)


def classification_loss(output: Any, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of ``output``, scores [N, classes], with ``labels`` [N].

    Inception and GoogLeNet return auxiliary scores in training as well, weighted as in their papers.
    """
    import torch
    from torch.nn import functional

    outputs = output if isinstance(output, tuple) else (getattr(output, "logits", output),)
    weights = (1.0, *(0.4 if len(outputs) == 2 else 0.3 for _ in outputs[1:]))
    losses = [
        w * functional.cross_entropy(o, labels)
        for w, o in zip(weights, outputs, strict=True)
        if o is not None
    ]
    return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


def _segmentation(network: Any, batch: int, size: int) -> NetworkTask:
    import torch
    from torch.nn import functional

    target = functools.cache(torch.zeros(batch, size, size, dtype=torch.long).to)

    def loss(output: Any) -> torch.Tensor:
        on_device = target(output["out"].device)
        total = functional.cross_entropy(output["out"], on_device)
        return total + 0.5 * functional.cross_entropy(output["aux"], on_device) if "aux" in output else total

    return NetworkTask(
        network, (torch.randn(batch, 3, size, size),), {}, loss, "images", size, batch_size=batch
    )


def _detection(network: Any, batch: int, size: int) -> NetworkTask:
    import torch

    images = [torch.rand(3, size, size) for _ in range(batch)]
    box = torch.tensor([[0.1, 0.1, 0.6, 0.6], [0.3, 0.2, 0.9, 0.8]]) * size
    masks = torch.zeros(2, size, size, dtype=torch.uint8)
    masks[:, size // 4 : size // 2, size // 4 : size // 2] = 1
    targets = [
        {
            "boxes": box,
            "labels": torch.ones(2, dtype=torch.long),
            "masks": masks,
            "keypoints": torch.ones(2, 17, 3) * (size / 3),
        }
        for _ in range(batch)
    ]
    return NetworkTask(
        network,
        (images,),
        {},
        lambda output: torch.stack(list(output.values())).sum(),
        "images",
        size,
        train_inputs=(images, targets),
        batch_size=batch,
    )


def _optical_flow(network: Any, batch: int, size: int) -> NetworkTask:
    import torch

    size = -(-size // 8) * 8  # RAFT needs a multiple of 8
    pair = (torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size))

    def loss(output: Any) -> torch.Tensor:
        return torch.stack([flow.abs().mean() for flow in output]).sum()

    return NetworkTask(network, pair, {}, loss, "frame pairs", size, batch_size=batch)


# --- other people's collections ---------------------------------------------------------------------------


def _timm(name: str, options: PointOptions, classes: int | None) -> NetworkTask:
    timm = _import("timm", f"timm:{name}")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
        raise WorkloadError(
            f"unknown model 'timm:{name}'.",
            hint=f"Did you mean timm:{' or timm:'.join(close)}?" if close else "",
        )
    sized = {"img_size": options.image_size} if options.image_size else {}
    headed = {"num_classes": classes} if classes else {}
    with _construction(f"timm:{name}", options):
        try:
            network = timm.create_model(name, pretrained=False, **headed, **sized)
        except TypeError:  # a convolutional network takes any size and has no such argument
            network = timm.create_model(name, pretrained=False, **headed)
    size = options.image_size or network.default_cfg.get("input_size", (3, 224, 224))[-1]
    task = _classification(network, options.batch_size or 1, size)
    return dataclasses.replace(task, classifies=network.num_classes > 0)  # without a head it returns features


def _transformers(name: str, options: PointOptions) -> NetworkTask:
    transformers = _import("transformers", f"hf:{name}")
    import torch

    from_types = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    known, path = name in from_types, Path(name)
    misspelt = difflib.get_close_matches(name, list(from_types), n=1, cutoff=0.8)
    if misspelt and not known and "/" not in name and not path.exists():
        raise WorkloadError(f"unknown model 'hf:{name}'.", hint=f"Did you mean hf:{misspelt[0]}?")
    if name.endswith(".json") and not path.is_file():
        raise WorkloadError(
            f"hf:{name}: no such file.", hint="Give a model type (gpt2), or the path of a config.json."
        )
    if not known and path.is_dir() and not (path / "config.json").is_file():
        raise WorkloadError(f"hf:{name}: the folder has no config.json.", hint="Give the folder of a model.")
    try:
        with quiet_torchao():  # the hub's client sets its level when it is imported
            if not known and not path.exists():
                _check_hub(name)
            config = (
                from_types[name]()
                if known
                else transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
            )
    except Exception as error:  # the hub client raises a dozen unrelated types
        if path.exists():
            raise _unknown_architecture(name, transformers) from None
        close = difflib.get_close_matches(name, list(from_types), n=3, cutoff=0.5)
        hint = (
            f"Give a model type ({', '.join(close or ['bert', 'gpt2', 'vit'])}) or a folder with a "
            "config.json."
        )
        if "/" in name and not name.endswith(".json"):
            hint = "Download its config.json where you have access, and give hf:PATH/config.json."
        raise WorkloadError(f"hf:{name}: configuration not found: {first_line(error)}.", hint=hint) from None
    if options.mode == "generate":
        with _construction(f"hf:{name}", options):
            network, notes = causal_network(name, config, options)
        return generating_task(network, vocab_size(config), options, *notes)
    if options.image_size is not None:
        for part in (config, getattr(config, "vision_config", config)):
            if hasattr(part, "image_size"):
                part.image_size = options.image_size
    # The head that this kind of network is known for: an encoder is a masked language model before a causal
    # one.
    heads = ("Seq2SeqLM", "MaskedLM", "CausalLM", "ImageClassification")
    builders = (getattr(transformers, f"AutoModelFor{head}") for head in heads)
    builder = next(
        (builder for builder in builders if type(config) in builder._model_mapping), transformers.AutoModel
    )
    # A configuration may name another precision, and code of its own, which is never run.
    network = builder.from_config(config, dtype=torch.float32, trust_remote_code=False)
    batch = options.batch_size or 1
    main_input = getattr(network, "main_input_name", "input_ids")
    if main_input == "pixel_values":
        sized: Any = config if hasattr(config, "image_size") else getattr(config, "vision_config", config)
        size = options.image_size or int(getattr(sized, "image_size", None) or 224)
        images = torch.randn(batch, getattr(sized, "num_channels", 3), size, size)
        keywords = {"pixel_values": images}
        if options.mode == "training" and hasattr(network, "num_labels"):
            keywords["labels"] = torch.zeros(batch, dtype=torch.long)
        return NetworkTask(network, (), keywords, sum_of_outputs, "images", size, batch_size=batch)
    if main_input != "input_ids":
        raise WorkloadError(
            f"hf:{name} takes {main_input!r}; only token and image inputs can be generated.",
            hint="Write a factory that returns (module, inputs): path/to/file.py:factory.",
        )
    if options.image_size is not None:
        raise WorkloadError(
            f"hf:{name} takes tokens, not images of {options.image_size} pixels.",
            hint=f"Use {arg('sequence_length')}.",
        )
    tokens = torch.randint(0, getattr(config, "vocab_size", 1000), (batch, options.sequence_length))
    keywords = {"input_ids": tokens}
    if config.is_encoder_decoder:
        keywords["decoder_input_ids"] = tokens
    if options.mode == "training" and "labels" in inspect.signature(network.forward).parameters:
        keywords["labels"] = tokens
    stored = getattr(config, "quantization_config", None)
    method = stored.get("quant_method") if isinstance(stored, dict) else stored
    said = (f"quantization_config ({method}) is not applied: weights are not quantized",) if stored else ()
    return NetworkTask(network, (), keywords, sum_of_outputs, "sequences", batch_size=batch, notes=said)


def _check_hub(name: str) -> None:
    """Raise OSError if the hub cannot be reached. A download would retry for half a minute first."""
    from huggingface_hub import model_info, try_to_load_from_cache

    try:
        if not try_to_load_from_cache(name, "config.json"):
            model_info(name, timeout=10)
    except (OSError, ValueError):
        pass  # the hub has answered, or the name is none: the download says more
    except Exception as error:
        raise OSError(f"the hub cannot be reached ({first_line(error)})") from None


def _unknown_architecture(name: str, transformers: Any) -> WorkloadError:
    """Says what of the configuration at the path ``name`` transformers cannot build."""
    try:
        said, _ = transformers.PretrainedConfig.get_config_dict(name)
    except (OSError, ValueError) as error:
        return WorkloadError(f"hf:{name}: no configuration: {first_line(error)}.")
    kind, version = said.get("model_type"), transformers.__version__
    built = ", ".join(said.get("architectures") or [str(kind)])
    why = f"its type {kind!r} is unknown" if kind else "its config.json has no model_type"
    return WorkloadError(
        f"hf:{name}: transformers {version} cannot build {built}: {why}.",
        hint="Set a model_type that it has, or write a factory: path/to/file.py:factory.",
    )


def generating_task(model: Any, vocabulary: int, options: PointOptions, *notes: str) -> NetworkTask:
    """``model``, which generates, with random prompts that follow the seed alone."""
    import torch

    batch = options.batch_size or 1
    prompts = torch.randint(
        vocabulary, (batch, options.prompt_length), generator=torch.Generator().manual_seed(options.seed)
    )
    return NetworkTask(
        model, (prompts,), {}, sum_of_outputs, "sequences", batch_size=batch, classifies=True, notes=notes
    )


def _import(package: str, wanted_for: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise WorkloadError(
            f"{wanted_for!r} requires the package {package!r}.", hint=f"pip install {package}"
        ) from None


# --- factories in files of the user -----------------------------------------------------------------------


def call_factory(path: Path, name: str, options: PointOptions, device: torch.device) -> Any:
    """Call the function ``name`` in the file ``path`` and return its result: ``(module, inputs)`` or a step
    function.

    It is called with those of ``batch_size``, ``image_size``, ``device``, ``mode`` and ``seed`` that its
    signature names, to generate also with ``prompt_length`` and ``new_tokens``; then its result, alone or as
    ``(model, inputs)``, is what generates. Raises WorkloadError when the function does not exist, when it
    raises (with its exception as ``__cause__``), or when it returns neither.
    """
    import torch

    if not path.is_file():
        raise WorkloadError(f"no such file: {str(path)!r}.", hint="Give path/to/file.py:factory.")
    label = f"{path.name}:{name}"
    with _user_code(f"the file {str(path)!r} raised during import", path, label, options, device):
        module = _load_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [
            n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__
        ]
        close = difflib.get_close_matches(name, functions, n=1)
        hint = (
            f"Did you mean {close[0]}?" if close else f"It has {', '.join(functions)}." if functions else ""
        )
        raise WorkloadError(f"{str(path)!r} has no function {name!r}.", hint=hint)
    offered = {
        "batch_size": options.batch_size or 1,
        "image_size": options.image_size,
        "device": device,
        "mode": options.mode,
        "seed": options.seed,
    }
    if options.mode == "generate":
        offered |= {"prompt_length": options.prompt_length, "new_tokens": options.new_tokens}
    with _user_code(f"the factory {label} raised", path, label, options, device):
        parameters = inspect.signature(factory).parameters
        made = factory(
            **{key: value for key, value in offered.items() if key in parameters and value is not None}
        )
    if options.mode == "generate":
        model = made[0] if isinstance(made, tuple) and made else made
        if is_generator(model) or isinstance(model, torch.nn.Module):
            return model
        raise WorkloadError(
            f"the factory {label} returned {type(model).__name__}.", hint=f"Return {PROTOCOL}."
        )
    is_module = isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)
    if is_module or (callable(made) and not isinstance(made, torch.nn.Module)):
        return made
    kinds = (
        f" of {', '.join(type(item).__name__ for item in made)}" if isinstance(made, tuple) and made else ""
    )
    raise WorkloadError(
        f"the factory {label} returned {type(made).__name__}{kinds}.",
        hint="Return (module, inputs), or a function that runs one step.",
    )


@contextlib.contextmanager
def _user_code(
    what: str, path: Path, label: str, options: PointOptions, device: torch.device
) -> Iterator[None]:
    """The folder of ``path`` first on the import path, as for a script that lies there. Turns what the user's
    code raises, also sys.exit(), into ours, with the exception as its cause."""
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        yield
    except (Exception, SystemExit) as error:
        facts = Workload(name=label, mode=options.mode, batch_size=options.batch_size)
        shortage = memory_shortage(error, facts, device)
        raise shortage or WorkloadError(f"{what}: {described(error)}.") from error
    finally:
        sys.path[:] = before


def _load_file(path: Path) -> Any:
    """The file as a module: run once, as an import is, because operators cannot be registered twice; its
    tensors are real ones."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    status = path.stat()
    key = path.resolve(), status.st_mtime_ns, status.st_size
    with _disable_current_modes():
        if key not in _LOADED:
            _LOADED[key] = _run_file(path), torch.get_rng_state()
        module, state = _LOADED[key]
        torch.set_rng_state(state)
    return module


# Files that were run, with the state of torch's random generator after that.
_LOADED: dict[tuple[Path, int, int], tuple[Any, torch.Tensor]] = {}


def _run_file(path: Path) -> Any:
    # The name lets its classes be pickled; one that is taken (json.py, types.py) must not be replaced for
    # everybody else.
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
