"""The backends that studies know: how to make each, on which device it computes, and why one cannot run here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from rooflines.errors import DeviceError, UsageError
from rooflines.studies import data
from rooflines.studies.records import DataName
from rooflines.studies.study import Missing, StudyOptions
from rooflines.sweeps.records import Point

if TYPE_CHECKING:
    from rooflines.kernels.networks.base import Network

T = TypeVar("T")
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
# In the order of reports: written by hand first, then PyTorch's.
BACKENDS: Final = (
    "numba-cpu", "numba-cuda", "torch-cpu", "torch-cpu-compile", "torch-cuda", "torch-cuda-compile", "torch-mps",
)  # fmt: skip
LIBRARIES: Final = ("numpy", "cupy", "torch-cpu", "torch-cuda", "torch-mps")
_DEVICES: Final = {"cuda": "cuda:0", "mps": "mps", "cupy": "cuda:0"}


class DataOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all that train a network on data."""

    backend: str
    data: DataName
    data_dir: str | None = None
    samples: Positive
    seed: int


def read_options(given: Mapping[str, Any], kind: type[T]) -> T:
    """Return the options of a point as ``kind``; raises UsageError for a value that it does not allow."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"an option of the study is not valid: {error}.") from None


def available(
    points: Iterable[Point], known: tuple[str, ...], kinds: Mapping[str, type[Any]], options: StudyOptions
) -> Iterator[Point | Missing]:
    """Yield the points whose backend can run on this machine, and the reason for each of the others.

    ``kinds`` are the records of the options by part. Raises UsageError for a backend that is not ``known``, for invalid options and for
    several values of one, DataError where ``data_dir`` has no MNIST that can be read.
    """
    seen = set()
    if options.data_dir is not None:
        data.load("mnist", options.data_dir)
    for point in points:
        backend = str(point.options["backend"])
        if backend not in known:
            raise UsageError(f"unknown backend {backend!r} for this study.", hint=f"Choose from {', '.join(known)}.")
        read_options(point.options, kinds[point.part])
        setting = point.part, backend, point.options.get("size")
        if setting in seen:
            raise UsageError(f"the study compares backends in one setting, got another one: {point.label}.")
        seen.add(setting)
        if options.device is None or options.device.partition(":")[0] == device_of(backend).partition(":")[0]:
            reason = why_not(backend)
            yield point if reason is None else Missing(what=backend, reason=reason)


def device_of(backend: str) -> str:
    """The torch name of the device that a backend computes on."""
    for part in backend.split("-"):
        if part in _DEVICES:
            return _DEVICES[part]
    return "cpu"


def why_not(backend: str) -> str | None:
    """Why ``backend`` cannot run on this machine, in words; None where it can."""
    import torch

    device = device_of(backend)
    if device == "mps" and not torch.backends.mps.is_available():
        return "no Apple GPU"
    if device == "cuda:0":
        if backend.startswith("torch") and not torch.cuda.is_available():
            built = torch.version.cuda or torch.version.hip
            return "no NVIDIA GPU" if built else f"torch {torch.__version__} is built without CUDA"
        if backend.startswith(("numba", "cupy")):
            return _why_no_cuda(backend)
    return None


def network(backend: str, learning_rate: float, momentum: float, seed: int) -> Network:
    """The convolutional network on ``backend`` with the initial parameters of ``seed``. Raises DeviceError where it cannot run."""
    from rooflines.kernels.networks import cnn

    options: dict[str, Any] = {
        "parameters": cnn.initial_parameters(seed), "learning_rate": learning_rate, "momentum": momentum,
    }  # fmt: skip
    reason = why_not(backend)
    if reason is not None:
        raise DeviceError(f"{backend} cannot run here: {reason}.")
    if backend == "numba-cpu":
        from rooflines.kernels.networks.cnn_numba import NumbaCpu

        return NumbaCpu(**options)
    if backend == "numba-cuda":
        from rooflines.kernels.networks.cnn_numba_cuda import NumbaCuda

        return NumbaCuda(**options)
    from rooflines.kernels.networks.cnn_torch import TorchCnn

    return TorchCnn(device_of(backend), compile=is_compiled(backend), **options)


def is_compiled(backend: str) -> bool:
    """Whether ``torch.compile`` made one piece of the step, so that it has no separate operators."""
    return backend.endswith("-compile")


def versions_of(backend: str) -> dict[str, str]:
    """The versions of the packages that ``backend`` runs on."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {"numba": ("numba", "numpy"), "torch": ("torch",), "cupy": ("cupy-cuda12x", "cupy-cuda13x"), "numpy": ("numpy",)}
    names = (*packages[backend.partition("-")[0]], *(("numba-cuda",) if backend == "numba-cuda" else ()))
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _why_no_cuda(backend: str) -> str | None:
    if backend == "cupy":
        from rooflines.kernels.networks.perceptron import library

        try:
            library("cupy")
        except DeviceError as error:
            return f"{error.message.removesuffix('.')}"
        return None
    try:
        from numba import cuda

        from rooflines.kernels.micro.cuda_vectors import SIMULATED
        from rooflines.kernels.networks.cnn_numba_cuda import unusable

        if SIMULATED:  # it would train, and its times are none of a GPU
            return unusable()
        if cuda.is_available():
            return None
    except Exception as error:  # whatever Numba raises when it looks for a driver means that there is none for it
        return f"Numba finds no CUDA ({error})"
    return "no NVIDIA GPU that Numba can use"
