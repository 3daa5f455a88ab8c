"""Options of a workload, and the checks of what a machine can run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from rooflines.arguments import arg
from rooflines.errors import DeviceError, WorkloadError
from rooflines.profiler.records import Mode

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")
_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a workload. None means: as for the model's published weights, or a batch of 1."""

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


def check_options(options: Options) -> None:
    """Raise WorkloadError or DeviceError for what no workload accepts on any machine; needs no torch."""
    if options.batch_size is not None and options.batch_size < 1:
        raise WorkloadError(
            f"{arg('batch_size')} must be at least 1, got {options.batch_size}.", hint=f"For example: {arg('batch_size', 8)}"
        )
    if options.image_size is not None and options.image_size < 1:
        raise WorkloadError(
            f"{arg('image_size')} must be at least 1 pixel, got {options.image_size}.", hint=f"For example: {arg('image_size', 224)}"
        )
    if options.sequence_length < 1:
        raise WorkloadError(
            f"{arg('sequence_length')} must be at least 1, got {options.sequence_length}.",
            hint=f"For example: {arg('sequence_length', 128)}",
        )
    if options.threads is not None and options.threads < 1:
        raise WorkloadError(f"{arg('threads')} must be at least 1, got {options.threads}.", hint=f"For example: {arg('threads', 2)}")
    if not 0 <= options.seed < 2**63:
        raise WorkloadError(
            f"{arg('seed')} must be between 0 and 2**63 - 1, got {options.seed}.", hint=f"For example: {arg('seed', 0)}"
        )
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
            reason = "torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable NVIDIA GPU or driver"
            raise DeviceError(
                f"{arg('device', name)}: {reason}.",
                hint=f"Use {arg('device', 'cpu')}, or run 'rooflines doctor' to see what is missing.",
            )
        count = torch.cuda.device_count()
        if int(index or 0) >= count:
            raise DeviceError(
                f"{arg('device', name)}: this machine has {count} GPU{'s' if count > 1 else ''}.",
                hint=f"Choose from cuda:0 to cuda:{count - 1}.",
            )
        return torch.device("cuda", int(index or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(f"{arg('device', name)}: Metal is not available on this machine.", hint=f"Use {arg('device', 'cpu')}.")
    return torch.device(kind)
