"""Turn a name or a factory into a step function with random inputs, for inference or training.

A step is a function without arguments. For a name (torchvision, ``timm:``, ``hf:``) the network gets random
weights, random inputs of the size that its published weights expect, and in training a loss of its kind and
SGD with momentum.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.arguments import arg, escaped
from rooflines.errors import RooflinesError, WorkloadError, first_line
from rooflines.kernels.tf32 import tf32
from rooflines.kernels.threads import torch_threads
from rooflines.profiler.options import PointOptions, find_device
from rooflines.profiler.read.signature import Keywords, Positional
from rooflines.profiler.records import Workload
from rooflines.profiler.workloads import quantization
from rooflines.profiler.workloads.causal_models import CausalModel, check_context, generates, vocab_size
from rooflines.profiler.workloads.datasets import DataSet, check_batch, find_dataset, make_loader
from rooflines.profiler.workloads.encoder_decoder import EncoderDecoder
from rooflines.profiler.workloads.generation import (
    PROTOCOL,
    Generator,
    TokenClock,
    generation_step,
    is_generator,
)
from rooflines.profiler.workloads.image_text import ImageTextModel
from rooflines.profiler.workloads.inputs import as_arguments, batch_size_of, tensors_in, with_tensors
from rooflines.profiler.workloads.memory_shortage import memory_shortage
from rooflines.profiler.workloads.networks import (
    NetworkTask,
    call_factory,
    classification_loss,
    find_network,
    generating_task,
    sum_of_outputs,
)
from rooflines.profiler.workloads.steps import (
    Batch,
    Step,
    captured,
    checkpoint_blocks,
    inference_step,
    make_autocast,
    shown_name,
    training_step,
)

if TYPE_CHECKING:
    import torch

_HALF = re.compile(
    r"Half|BFloat16|b?float16|[Ll]ow precision"
)  # how torch names them where an operator lacks them


@dataclass(frozen=True)
class Prepared:
    """A workload ready to run: its facts, its step, the device it runs on, and the flags that must hold while
    it runs."""

    facts: Workload
    step: Step
    device: torch.device
    options: PointOptions
    #: Gives a module that the caller owns back as it was; does nothing for one that was made here.
    restore: Callable[[], None] = lambda: None
    #: What was changed in the network.
    notes: tuple[str, ...] = ()
    #: Whether a step returns scores of classes.
    classifies: bool = False
    #: What generates, in a generation.
    generator: Generator | None = None
    #: The clock of its tokens.
    tokens: TokenClock | None = None

    @contextlib.contextmanager
    def flags(self) -> Iterator[None]:
        """Thread count and TF32 as asked for; on leaving they and the caller's module are put back. A step
        function keeps its TF32."""
        ours = self.device.type == "cuda" and self.facts.source != "step"
        with contextlib.ExitStack() as stack:
            stack.callback(self.restore)
            stack.enter_context(torch_threads(self.options.threads))
            stack.enter_context(quantization.inductor_settings(self.options.quantize))
            if ours:
                stack.enter_context(tf32(self.options.precision == "tf32"))
            yield


def prepare(name: str, options: PointOptions) -> Prepared:
    """The workload called ``name``: a torchvision model, ``timm:NAME``, ``hf:NAME``, or
    ``path/to/file.py:factory``.

    Raises WorkloadError or DeviceError with what was wrong and what to try; an error inside the user's
    factory is its ``__cause__``. Seeds torch's generators with the seed of ``options``.
    """
    device = _checked_device(options)
    images = dataset_of(options)
    made, label = _made(name, options, device, images)
    if isinstance(made, NetworkTask):
        return _from_task(made, options, device, name, images)
    if options.mode == "generate":
        return from_generator(made, options, name=label)
    if isinstance(made, tuple):
        return from_module(made[0], made[1], options, name=label)
    return from_step(made, options, name=label)


def _made(
    name: str, options: PointOptions, device: torch.device, images: DataSet | None = None
) -> tuple[Any, str]:
    """The task called ``name``, or what its factory returns, and its label; random weights and inputs follow
    the seed."""
    import torch

    torch.manual_seed(options.seed)
    path, colon, factory = name.rpartition(":")
    if colon and path.endswith(".py"):
        return call_factory(Path(path), factory, options, device), f"{Path(path).name}:{factory}"
    if images is None:
        return find_network(name, options), name
    return find_network(name, replace(options, image_size=images.size), images.classes), name


def dataset_of(options: PointOptions) -> DataSet | None:
    """The data set that ``options`` name; None for inputs that stay in memory."""
    if options.data == "resident":
        return None
    return find_dataset(options.data, options.data_dir, image_size=options.image_size, seed=options.seed)


def module_and_inputs(name: str, options: PointOptions) -> tuple[torch.nn.Module, Positional, Keywords]:
    """The network called ``name`` with the positional and keyword inputs that ``prepare`` would give it, on
    the host.

    Raises WorkloadError for a factory that makes a step function, which has no module to show.
    """
    made, label = _made(name, options, _checked_device(options))
    if isinstance(made, NetworkTask):
        return made.network, made.inputs, made.keywords
    if not isinstance(made, tuple):
        raise WorkloadError(
            f"{label} returns a step function, not a module.", hint="Return (module, inputs)."
        )
    return made[0], *as_arguments(made[1])


def from_module(
    network: torch.nn.Module, inputs: Any, options: PointOptions, *, name: str | None = None
) -> Prepared:
    """A workload that calls ``network`` with ``inputs`` (``as_arguments``).

    In training the network's own loss is used where its output has one (``.loss``, a dict of losses),
    otherwise the sum of its floating-point outputs. The network is moved, converted and trained in place;
    ``restore`` of the result undoes that.
    """
    name = name or type(network).__name__
    if options.mode == "generate" and inputs is None:
        return from_generator(network, options, name=name)
    device = _checked_device(options)
    if options.mode == "generate":
        raise WorkloadError(
            f"inputs do not apply to {arg('mode', 'generate')}: it makes prompts of "
            f"{arg('prompt_length')} tokens."
        )
    if inputs is None:
        raise WorkloadError(
            f"the module {name} requires inputs.",
            hint="Give a tensor, a tuple, or a dict of keyword arguments.",
        )
    positional, keywords = as_arguments(inputs)
    task = NetworkTask(
        network,
        positional,
        keywords,
        sum_of_outputs,
        "samples",
        batch_size=batch_size_of(inputs),
        classifies=True,
    )
    prepared = _given_back(task, options, device, name, dataset_of(options))
    return replace(prepared, classifies=options.data != "resident")


def from_generator(model: Any, options: PointOptions, *, name: str) -> Prepared:
    """A workload that generates with ``model``: a language model of transformers, or what follows
    ``Generator``.

    A module is moved and converted in place as by ``from_module``. An object that is none is used as it is:
    raises WorkloadError for options that would have to change it.
    """
    import torch

    device = _checked_device(options)
    follows = is_generator(model)
    if not follows and not generates(model):
        raise WorkloadError(f"{name} ({type(model).__name__}) does not generate.", hint=f"Give {PROTOCOL}.")
    if not follows:
        check_context(name, model.config, options)
    is_module = isinstance(model, torch.nn.Module)
    fixed = (*(("kv_cache", "compile") if follows else ()), *(() if is_module else ("quantize", "precision")))
    for option in options.changed_of(*fixed):
        raise WorkloadError(
            f"{arg(option)} does not apply to {name}, which generates by itself.",
            hint="Apply it inside of it.",
        )
    task = generating_task(model, int(model.vocab_size) if follows else vocab_size(model.config), options)
    return _given_back(task, options, device, name) if is_module else _from_task(task, options, device, name)


def _given_back(
    task: NetworkTask, options: PointOptions, device: torch.device, name: str, images: DataSet | None = None
) -> Prepared:
    """The workload of a module that the caller owns; ``restore`` puts it back as it was."""
    restore = _kept(task.network, trained=options.mode == "training")
    try:
        return replace(_from_task(task, options, device, name, images), restore=restore)
    except BaseException:
        restore()
        raise


def from_step(step: Step, options: PointOptions, *, name: str) -> Prepared:
    """A workload that is the user's own step function; mode, batch size and precision only label it.

    Raises WorkloadError for options that would have to change what the function does.
    """
    device = _checked_device(options)
    if options.mode == "generate":
        raise WorkloadError(f"the step function {name} does not generate.", hint=f"Give {PROTOCOL}.")
    for option in options.changed_of(
        "channels_last",
        "compile",
        "quantize",
        "optimizer",
        "checkpointing",
        "cuda_graphs",
        "parallel",
        "data",
    ):
        raise WorkloadError(
            f"{arg(option)} does not apply to the step function of {name}.",
            hint="Apply it inside the step function, or return (module, inputs).",
        )
    facts = Workload(
        name=escaped(name),
        mode=options.mode,
        batch_size=options.batch_size,
        precision=options.precision,
        source="step",
    )
    return Prepared(facts=facts, step=step, device=device, options=options)


def _checked_device(options: PointOptions) -> torch.device:
    options.check()
    device = find_device(options.device)
    quantization.check(options.quantize, mode=options.mode, precision=options.precision, device=device)
    import torch

    cuda = device.type == "cuda"
    gpus = torch.cuda.device_count() if cuda else 0
    graphs, parallel, pinned = (arg(name) for name in ("cuda_graphs", "parallel", "pin_memory"))
    refusals = (
        (
            options.precision == "tf32" and not cuda,
            f"{arg('precision', 'tf32')} is available on NVIDIA GPUs only; the device is {device}.",
            "Use fp32 or bf16.",
        ),
        (
            options.quantize == "qat" and options.checkpointing,
            f"{arg('checkpointing')} cannot be combined with {arg('quantize', 'qat')}: the "
            "network becomes one graph without blocks.",
            f"Remove {arg('checkpointing')}.",
        ),
        (
            options.cuda_graphs and not cuda,
            f"{graphs} requires an NVIDIA GPU; the device is {device}.",
            f"Remove {graphs}.",
        ),
        (
            options.cuda_graphs and options.precision == "amp-fp16" and options.mode == "training",
            f"{graphs} cannot capture the gradient scaler of amp-fp16: it decides each step on the host.",
            "Use amp-bf16.",
        ),
        (
            options.cuda_graphs and options.compile == "reduce-overhead",
            f"{arg('compile', 'reduce-overhead')} uses CUDA graphs itself.",
            f"Use {arg('compile', 'on')}.",
        ),
        (
            options.parallel == "dp" and gpus < 2,
            f"{arg('parallel', 'dp')} requires two or more GPUs; this machine has {gpus}.",
            f"Remove {parallel}.",
        ),
        (
            options.pin_memory and not cuda,
            f"{pinned} requires an NVIDIA GPU; the device is {device}.",
            f"Remove {pinned}.",
        ),
    )
    for refused, message, hint in refusals:
        if refused:
            raise WorkloadError(message, hint=hint)
    return device


def _from_task(
    task: NetworkTask, options: PointOptions, device: torch.device, name: str, images: DataSet | None = None
) -> Prepared:
    import torch

    training, generates = options.mode == "training", options.mode == "generate"
    given = task.train_inputs if training and task.train_inputs is not None else task.inputs
    model: Any = task.network
    if isinstance(model, torch.nn.Module):
        placed = place(task.network, (given, task.keywords), options, device, name)
    else:  # it generates by itself
        placed = Placed(
            model,
            model,
            device,
            functools.partial(_to_device, device=device, dtype=None, channels_last=False),
        )
    batch_size = options.batch_size or task.batch_size
    if images is None:
        resident = Batch(placed.move(given), placed.move(task.keywords), task.loss)
        batches: Callable[[], Batch] = lambda: resident  # noqa: E731
    else:
        batches = _fed(task, images, options, batch_size or 1, placed, name)
    autocast = make_autocast(options, device)
    generator: Generator | None = None
    clock: TokenClock | None = None
    step: Step
    if generates:  # the last token is not computed, so a cache has all others
        made: Any = placed.network
        slots = options.prompt_length + options.new_tokens - 1
        prompts = placed.move(given)[0]
        own = made, placed.called, options.kv_cache, slots
        if is_generator(made):
            generator = made
        elif made.config.is_encoder_decoder:
            generator = EncoderDecoder(*own, prompts)
        elif hasattr(made, "get_image_features"):
            generator = ImageTextModel(*own, prompts)
        else:
            generator = CausalModel(*own)
        clock = TokenClock(device)
        step = generation_step(
            generator, prompts, options.new_tokens, autocast, clock, options.kv_cache == "none"
        )
    elif training:
        step = training_step(placed.network, placed.called, batches, autocast, options, device)
    else:
        step = inference_step(placed.called, batches, autocast)
    if options.cuda_graphs:
        step = captured(step)
    facts = Workload(
        name=escaped(name),
        mode=options.mode,
        batch_size=batch_size,
        precision=options.precision,
        unit="images" if images is not None else task.unit,
        image_size=images.size if images is not None else getattr(generator, "image_size", task.image_size),
        channels_last=options.channels_last,
        compiled=options.compile != "off",
        quantized=options.quantize if options.quantize != "none" else None,
        compile_mode=str(options.compile) if options.compile not in ("off", "on") else None,
        optimizer=shown_name(options.optimizer) if training else None,
        checkpointing=options.checkpointing or None,
        cuda_graph=options.cuda_graphs or None,
        parallel=options.parallel if options.parallel != "none" else None,
        data=images.label if images is not None else None,
        prompt_length=options.prompt_length if generates else None,
        new_tokens=options.new_tokens if generates else None,
        kv_cache=options.kv_cache if isinstance(generator, CausalModel) else None,
        source="model" if isinstance(model, torch.nn.Module) else "step",
    )
    return Prepared(
        facts=facts,
        step=_explained(step, facts, device, options.image_size),
        device=device,
        options=options,
        notes=(*task.notes, *placed.notes, *getattr(generator, "notes", ())),
        classifies=task.classifies and not training,
        generator=generator,
        tokens=clock,
    )


def _fed(
    task: NetworkTask, images: DataSet, options: PointOptions, batch_size: int, placed: Placed, name: str
) -> Callable[[], Batch]:
    """Batches of ``images`` without end, as the network takes them; every epoch has another order, which
    follows the seed."""
    if not task.classifies:
        raise WorkloadError(
            f"{arg('data', options.data)} does not apply to {name}: it is not an image classifier."
        )
    if options.cuda_graphs:
        raise WorkloadError(
            f"{arg('cuda_graphs')} cannot be combined with {arg('data', options.data)}: a graph "
            "reads the same inputs in every step."
        )
    check_batch(images.train, batch_size)
    loader = make_loader(
        images.train,
        batch_size,
        workers=options.data_workers,
        pin_memory=options.pin_memory,
        seed=options.seed,
        training=True,
    )
    endless = itertools.chain.from_iterable(itertools.repeat(loader))

    def batch() -> Batch:
        pixels, labels = next(endless)
        labels = labels.to(placed.device, non_blocking=True)
        return Batch((placed.move(pixels),), {}, functools.partial(classification_loss, labels=labels))

    return batch


class Placed(NamedTuple):
    """A network as a step uses it. ``called`` is what a step calls, ``move`` takes inputs to its device,
    precision and layout."""

    network: torch.nn.Module
    called: Any
    device: torch.device
    move: Callable[[Any], Any]
    notes: tuple[str, ...] = ()


def place(
    network: torch.nn.Module, inputs: Any, options: PointOptions, device: torch.device, name: str
) -> Placed:
    """Return ``network``, called with ``inputs`` (positional, keywords), as ``options`` ask: converted,
    quantized, compiled."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    network = _converted(network, device, dtype)
    with contextlib.suppress(NotImplementedError):  # an exported graph has no modes
        network.train(options.mode == "training")
    notes = []
    if options.channels_last:
        _store_channels_last(network, inputs, name)
    if options.checkpointing:
        notes.append(checkpoint_blocks(network, name))
    move = functools.partial(_to_device, device=device, dtype=dtype, channels_last=options.channels_last)
    if options.quantize != "none":
        positional, keywords = (move(part) for part in inputs)
        quantized = quantization.quantize(
            network, positional, keywords, options.quantize, device, compiled=options.compile != "off"
        )
        network = quantized.network
        notes += quantized.notes
    called: Any = network
    if options.compile != "off":
        # Code that was compiled before would be used again, or make torch compile for varying sizes; the run
        # records the compilation.
        torch.compiler.reset()
        called = torch.compile(
            network, dynamic=False, mode=None if options.compile == "on" else str(options.compile)
        )
    if options.parallel == "dp":
        called = torch.nn.DataParallel(called)
    return Placed(network, called, device, move, tuple(notes))


def _converted(network: torch.nn.Module, device: torch.device, dtype: torch.dtype | None) -> torch.nn.Module:
    """``network.to(device, dtype)``, which torch refuses for fake parameters: they are replaced here, tied
    ones by the same tensor."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not any(isinstance(parameter, FakeTensor) for parameter in network.parameters()):
        return network.to(device=device, dtype=dtype)
    made: dict[int, Any] = {}
    for module in network.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in made:
                value = parameter.detach().to(device, dtype if parameter.is_floating_point() else None)
                made[id(parameter)] = torch.nn.Parameter(value, parameter.requires_grad)
            module._parameters[name] = None if parameter is None else made[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device, dtype if buffer.is_floating_point() else None)
    return network


def _kept(network: torch.nn.Module, *, trained: bool) -> Callable[[], None]:
    """Set aside what a run changes in a module that the caller owns; returns a function that puts it back.

    Moving and converting replace ``.data`` and buffers: the old ones are kept. Training also writes into
    them: then their values are kept too, in host memory, where they do not add to the peak of a GPU.
    """
    from torch.nn.parameter import is_lazy

    # A frozen TorchScript module does not say whether it trains, and what holds the tensors of a scripted one
    # is no dict.
    modules = [
        (m, getattr(m, "training", False), dict(m._parameters.items()), dict(m._buffers.items()))
        for m in network.modules()
    ]
    unique = {id(t): t for t in (*network.parameters(), *network.buffers()) if not is_lazy(t)}
    tensors = [(t, t.data, t.data.to("cpu", copy=True) if trained else None, t.grad) for t in unique.values()]
    for tensor in unique.values():
        tensor.grad = None  # set aside, or it would be converted with its tensor

    def restore() -> None:
        for module, training, parameters, buffers in modules:
            module.training = training
            for name, parameter in parameters.items():
                module._parameters[name] = parameter
            for name, buffer in buffers.items():
                module._buffers[name] = buffer
        for tensor, data, values, gradient in tensors:
            if values is not None:
                data.copy_(values)
            tensor.data = data
            tensor.grad = gradient

    return restore


def _explained(step: Step, facts: Workload, device: torch.device, image_size: int | None) -> Step:
    """``step``, with torch's complaints about the input turned into ours on the first call. ``image_size`` is
    the one asked for."""
    checked = False

    def run() -> object:
        nonlocal checked
        try:
            result = step()
        except Exception as error:
            refusal = None if checked else _refusal(error, facts, device, image_size)
            if refusal is None:
                raise
            raise refusal from error
        checked = True
        return result

    return run


def _refusal(
    error: Exception, facts: Workload, device: torch.device, image_size: int | None
) -> WorkloadError | None:
    """Why the first step failed, where the cause is what was asked for; None where it is not."""
    text, first = str(error), first_line(error)
    if isinstance(error, RooflinesError) or memory_shortage(error, facts, device) is not None:
        return None
    if "Expected more than 1 value per channel" in text:
        return WorkloadError(
            f"{facts.name} cannot train on a batch of {facts.batch_size}: {first}.",
            hint=f"Use {arg('batch_size', 2)} or more, or larger images.",
        )
    if facts.precision != "fp32" and _HALF.search(text):
        return WorkloadError(
            f"{facts.name} does not run in {facts.precision} on {device}: {first}.",
            hint=f"Use {arg('precision', 'fp32')} or amp-bf16.",
        )
    # A network that we made, with inputs that we made, from a size that the user chose: no mark of torch's
    # many wordings is needed.
    if image_size is not None:
        return WorkloadError(
            f"{facts.name} does not accept images of {image_size} x {image_size}: {first}.",
            hint=f"Omit {arg('image_size')} to use the size of the published weights, or try a larger one.",
        )
    return None


def _store_channels_last(network: torch.nn.Module, inputs: Any, name: str) -> None:
    """Weights of convolutions as NHWC (NDHWC in three dimensions); raises WorkloadError where nothing has
    that many dimensions."""
    import torch

    changed = any(t.dim() in _CHANNELS_LAST for t in tensors_in(inputs))
    for parameter in network.parameters():
        if parameter.dim() in _CHANNELS_LAST:
            changed = True
            parameter.data = parameter.data.contiguous(
                memory_format=getattr(torch, _CHANNELS_LAST[parameter.dim()])
            )
    if not changed:
        raise WorkloadError(
            f"{arg('channels_last')} does not apply to {name}: it has no image inputs.",
            hint=f"Remove {arg('channels_last')}.",
        )


_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}


def _to_device(value: Any, device: torch.device, dtype: torch.dtype | None, channels_last: bool) -> Any:
    import torch

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        to = dtype if tensor.is_floating_point() else None
        made = tensor.to(
            device=device, dtype=to, non_blocking=tensor.is_pinned() if device.type == "cuda" else False
        )
        if channels_last and made.dim() in _CHANNELS_LAST:
            return made.contiguous(memory_format=getattr(torch, _CHANNELS_LAST[made.dim()]))
        return made

    return with_tensors(moved, value)
