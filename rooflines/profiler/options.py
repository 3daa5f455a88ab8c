"""Options of a workload with their types, defaults and help, and the checks of what a machine can run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias, get_args

from rooflines.arguments import arg
from rooflines.errors import DeviceError, WorkloadError
from rooflines.profiler.distributed import local_rank
from rooflines.units import counted

if TYPE_CHECKING:
    import torch
    from torch import device as Device
else:
    Device = str  # annotations of options are evaluated where torch is not loaded

Mode = Literal["inference", "training", "generate"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16"]
Compile = Literal["off", "on", "reduce-overhead", "max-autotune"]
Quantization = Literal["none", "dynamic-int8", "static-int8", "int8-weight", "int4-weight", "qat"]
Optimizer = Literal[
    "sgd",
    "sgd,fused",
    "sgd,foreach",
    "adam",
    "adam,fused",
    "adam,foreach",
    "adamw",
    "adamw,fused",
    "adamw,foreach",
]
Parallel = Literal["none", "dp"]
KVCache = Literal["dynamic", "static", "none"]
# Where the inputs of a step come from: random ones that stay in memory, or a data set through a loader.
Data = Literal["resident", "cifar10", "cifar100", "tiny-imagenet", "mnist", "folder", "digits"]
# The value of an option as it is stored.
OptionValue: TypeAlias = bool | int | float | str
# Options by name, of which those that are their defaults may be absent.
OptionValues: TypeAlias = dict[str, OptionValue]
# Groups of options.
WHAT_GROUP, HOW_GROUP, DATA, MEASURE_GROUP, OUTPUT = "Workload", "Execution", "Data", "Measurement", "Output"
# What a prediction takes several values of: each combination is a step.
PREDICTED_LISTS = ("batch_size", "sequence_length", "prompt_length")
_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


class Option(NamedTuple):
    """Describes a field of an options record: one line of help, its group in the help, and what None
    means."""

    help: str
    group: str
    unset: str = ""


@dataclass(frozen=True, kw_only=True)
class PointOptions:
    """Options of a workload."""

    mode: Annotated[Mode, Option("Inference, training, or generate (a language model).", WHAT_GROUP)] = (
        "inference"
    )
    batch_size: Annotated[int | None, Option("Samples per step.", WHAT_GROUP, "1")] = None
    image_size: Annotated[
        int | None, Option("Image height and width in pixels.", WHAT_GROUP, "size of the published weights")
    ] = None
    classes: Annotated[
        int | None,
        Option(
            "Number of classes that an image classifier tells apart.",
            WHAT_GROUP,
            "that of the published weights",
        ),
    ] = None
    sequence_length: Annotated[int, Option("Tokens per sequence (language models).", WHAT_GROUP)] = 128
    prompt_length: Annotated[int, Option("Tokens in each prompt (generate).", WHAT_GROUP)] = 128
    new_tokens: Annotated[int, Option("Tokens to generate after each prompt (generate).", WHAT_GROUP)] = 32
    kv_cache: Annotated[
        KVCache, Option("KV cache: grown by each token, allocated whole, or none (generate).", WHAT_GROUP)
    ] = "dynamic"
    precision: Annotated[
        Precision, Option("Precision of the network, or of autocast (amp-*).", HOW_GROUP)
    ] = "fp32"
    device: Annotated[Device | str, Option("Device: auto, cpu, cuda, cuda:N or mps.", HOW_GROUP)] = "auto"
    threads: Annotated[int | None, Option("Number of CPU threads.", HOW_GROUP, "torch's choice")] = None
    channels_last: Annotated[bool, Option("Use channels-last memory format (NHWC).", HOW_GROUP)] = False
    compile: Annotated[
        Compile | bool, Option("Run with torch.compile: off, on, reduce-overhead or max-autotune.", HOW_GROUP)
    ] = "off"
    quantize: Annotated[
        Quantization,
        Option(f"Quantize the network with torchao: {', '.join(get_args(Quantization)[1:])}.", HOW_GROUP),
    ] = "none"
    optimizer: Annotated[
        Optimizer, Option("Optimizer for training; ,fused or ,foreach selects its implementation.", HOW_GROUP)
    ] = "sgd"
    checkpointing: Annotated[
        bool, Option("Recompute the activations of repeated blocks in the backward pass.", HOW_GROUP)
    ] = False
    cuda_graphs: Annotated[bool, Option("Capture the step as a CUDA graph and replay it.", HOW_GROUP)] = False
    parallel: Annotated[
        Parallel, Option("Divide each batch among all GPUs: dp is torch's DataParallel.", HOW_GROUP)
    ] = "none"
    seed: Annotated[int, Option("Random seed for weights and inputs.", HOW_GROUP)] = 0
    data: Annotated[Data, Option(f"Inputs: {', '.join(get_args(Data))}.", DATA)] = "resident"
    data_dir: Annotated[
        str | None, Option("Folder that contains the data set.", DATA, "synthetic images of its size")
    ] = None
    data_workers: Annotated[int, Option("Worker processes of the data loader.", DATA)] = 0
    pin_memory: Annotated[bool, Option("Load batches into pinned memory (CUDA).", DATA)] = False

    def __post_init__(self) -> None:
        """Take True and False for ``compile``, as torch's own options do."""
        if isinstance(self.compile, bool):
            object.__setattr__(self, "compile", "on" if self.compile else "off")

    def changed_of(self, *names: str) -> list[str]:
        """Those of the options ``names`` that do not have their default."""
        return [name for name in names if getattr(self, name) != getattr(PointOptions, name)]

    def check(self) -> None:
        """Raise WorkloadError or DeviceError for a value that no machine accepts; needs no torch."""
        for name, example in (
            ("batch_size", 8),
            ("image_size", 224),
            ("classes", 10),
            ("sequence_length", 128),
            ("prompt_length", 128),
            ("new_tokens", 32),
            ("threads", 2),
        ):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise WorkloadError(
                    f"{arg(name)} must be at least 1, got {value}.", hint=f"For example: {arg(name, example)}"
                )
        if self.data_workers < 0:
            raise WorkloadError(f"{arg('data_workers')} must be at least 0, got {self.data_workers}.")
        for name in self.changed_of("data_dir", "data_workers", "pin_memory"):
            if self.data == "resident":
                raise WorkloadError(
                    f"{arg(name)} requires a data set.", hint=f"For example: {arg('data', 'cifar10')}"
                )
        if not 0 <= self.seed < 2**63:
            raise WorkloadError(
                f"{arg('seed')} must be between 0 and 2**63 - 1, got {self.seed}.",
                hint=f"For example: {arg('seed', 0)}",
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in get_args(known):
                raise WorkloadError(
                    f"unknown {_CALLED.get(name, name)} {getattr(self, name)!r}.",
                    hint=_choose(get_args(known)),
                )
        for name in self.changed_of("optimizer", "checkpointing"):
            if self.mode != "training":
                raise WorkloadError(
                    f"{arg(name)} applies to training only.", hint=f"Add {arg('mode', 'training')}."
                )
        for name in self.changed_of("prompt_length", "new_tokens", "kv_cache"):
            if self.mode != "generate":
                raise WorkloadError(f"{arg(name)} requires {arg('mode', 'generate')}.")
        for name in self.changed_of(
            "sequence_length", "image_size", "classes", "channels_last", "cuda_graphs", "parallel", "data"
        ):
            if self.mode == "generate":
                hint = f"Use {arg('prompt_length')}." if name == "sequence_length" else f"Remove {arg(name)}."
                raise WorkloadError(f"{arg(name)} does not apply to {arg('mode', 'generate')}.", hint=hint)
        if self.mode == "generate" and self.compile != "off" and self.kv_cache != "static":
            raise WorkloadError(
                f"{arg('compile')} requires {arg('kv_cache', 'static')}: each token would have "
                "other shapes, and be compiled again."
            )
        if not _DEVICE_NAME.fullmatch(str(self.device)):
            meant = "Did you mean cuda? " if str(self.device) == "gpu" else ""
            raise DeviceError(
                f"unknown device {str(self.device)!r}.",
                hint=f"{meant}Choose auto, cpu, cuda, cuda:N or mps.",
            )


_CHOICES = {
    "mode": Mode,
    "precision": Precision,
    "compile": Compile,
    "quantize": Quantization,
    "optimizer": Optimizer,
    "parallel": Parallel,
    "data": Data,
    "kv_cache": KVCache,
}
_CALLED = {"compile": "mode of torch.compile", "quantize": "quantization", "parallel": "kind of parallelism"}


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of ``text``, which commas separate."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _choose(names: tuple[str, ...]) -> str:
    if len(names) == 2:
        return f"Choose {names[0]} or {names[1]}."
    return f"Choose one of {('; ' if any(',' in name for name in names) else ', ').join(names)}."


def find_device(device: torch.device | str) -> torch.device:
    """The device for ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``; raises DeviceError with the reason
    when it is not here.

    ``cuda`` without a number is the current GPU of a process that has used CUDA, else that of its local rank,
    else the first.
    """
    import torch

    PointOptions(device=device).check()
    name = str(device)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            reason = (
                "torch is built without CUDA"
                if torch.version.cuda is None
                else "torch finds no usable NVIDIA GPU or driver"
            )
            raise DeviceError(
                f"{arg('device', name)}: {reason}.",
                hint=f"Use {arg('device', 'cpu')}, or run 'rooflines doctor' to see what is missing.",
            )
        count = torch.cuda.device_count()
        number = int(index) if index else _own_gpu(count)
        if number >= count:
            raise DeviceError(
                f"{arg('device', name)}: this machine has {counted(count, 'GPU')}.",
                hint=f"Choose from cuda:0 to cuda:{count - 1}.",
            )
        return torch.device("cuda", number)
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(
            f"{arg('device', name)}: Metal is not available on this machine.",
            hint=f"Use {arg('device', 'cpu')}.",
        )
    return torch.device(kind)


def _own_gpu(count: int) -> int:
    """The number of this process's GPU among ``count``."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.current_device()
    rank = local_rank() or 0
    return rank if rank < count else 0  # a launcher may show every rank only its own GPU
