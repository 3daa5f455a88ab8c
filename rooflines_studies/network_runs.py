"""The backends that studies know: how to make each, on which device, why one cannot run here; and the result
of a training."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
import psutil

from rooflines import Ceilings, RooflinesError, Work
from rooflines.ext import (
    RUN_FOLDER,
    DeviceError,
    OthersMeter,
    PointResult,
    SweepPoint,
    UsageError,
    ceilings_of_device,
    device_name,
    place_on_roofline,
    write_json,
)
from rooflines_studies import data
from rooflines_studies.networks.base import Array, Network
from rooflines_studies.records import DETAIL_FILE, DataName, Detail, TimedOperator
from rooflines_studies.study import Missing, StudyOptions

if TYPE_CHECKING:
    from rooflines.ext import WorkerChannel

T = TypeVar("T")
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
# In the order of reports: written by hand first, then PyTorch's.
BACKENDS = (
    "numba-cpu",
    "numba-cuda",
    "torch-cpu",
    "torch-cpu-compile",
    "torch-cuda",
    "torch-cuda-compile",
    "torch-mps",
)
_DEVICES = {"cuda": "cuda:0", "mps": "mps", "cupy": "cuda:0"}
OPERATOR_ROUNDS = 15

D = TypeVar("D", bound=Detail)


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
    points: Iterable[SweepPoint],
    known: tuple[str, ...],
    kinds: Mapping[str, type[Any]],
    options: StudyOptions,
) -> Iterator[SweepPoint | Missing]:
    """Yield the points whose backend can run on this machine, and the reason for each of the others.

    ``kinds`` are the records of the options by part. Raises UsageError for a backend that is not ``known``,
    for invalid options and for several values of one, DataError where ``data_dir`` has no MNIST that can be
    read.
    """
    seen = set()
    if options.data_dir is not None:
        data.load("mnist", options.data_dir)
    for point in points:
        backend = str(point.options["backend"])
        if backend not in known:
            raise UsageError(
                f"unknown backend {backend!r} for this study.", hint=f"Choose from {', '.join(known)}."
            )
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
    return next((_DEVICES[part] for part in backend.split("-") if part in _DEVICES), "cpu")


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
    """The convolutional network on ``backend`` with the initial parameters of ``seed``. Raises DeviceError
    where it cannot run."""
    from rooflines_studies.networks import cnn

    options: dict[str, Any] = {
        "parameters": cnn.initial_parameters(seed),
        "learning_rate": learning_rate,
        "momentum": momentum,
    }
    reason = why_not(backend)
    if reason is not None:
        raise DeviceError(f"{backend} cannot run here: {reason}.")
    if backend == "numba-cpu":
        from rooflines_studies.networks.cnn_numba import NumbaCpu

        return NumbaCpu(**options)
    if backend == "numba-cuda":
        from rooflines_studies.networks.cnn_numba_cuda import NumbaCuda

        return NumbaCuda(**options)
    from rooflines_studies.networks.cnn_torch import TorchCnn

    return TorchCnn(device_of(backend), compile=is_compiled(backend), **options)


def is_compiled(backend: str) -> bool:
    """Whether ``torch.compile`` made one piece of the step, so that it has no separate operators."""
    return backend.endswith("-compile")


def versions_of(backend: str) -> dict[str, str]:
    """The versions of the packages that ``backend`` runs on."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {
        "numba": ("numba", "numpy"),
        "torch": ("torch",),
        "cupy": ("cupy-cuda12x", "cupy-cuda13x"),
        "numpy": ("numpy",),
    }
    names = (*packages[backend.partition("-")[0]], *(("numba-cuda",) if backend == "numba-cuda" else ()))
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _why_no_cuda(backend: str) -> str | None:
    if backend == "cupy":
        from rooflines_studies.networks.perceptron import library

        try:
            library("cupy")
        except DeviceError as error:
            return f"{error.message.removesuffix('.')}"
        return None
    try:
        from numba import cuda

        from rooflines.ext import CUDA_IS_SIMULATED
        from rooflines_studies.networks.cnn_numba_cuda import unusable

        if CUDA_IS_SIMULATED:  # it would train, and its times are none of a GPU
            return unusable()
        if cuda.is_available():
            return None
    except Exception as error:  # of any class, when Numba looks for a driver: it has none
        return f"Numba finds no CUDA ({error})"
    return "no NVIDIA GPU that Numba can use"


# --- the result of a point: its facts, its operators, and the file of its details -------------------------


def make_result(
    task: Mapping[str, Any],
    directory: Path,
    values: Mapping[str, float | None],
    detail: Detail | None = None,
    **facts: str,
) -> PointResult:
    """Return the result of a point with ``values`` and ``facts``, after writing its ``detail``."""
    backend = task["point"]["options"]["backend"]
    device = device_of(backend)
    facts = {"device": device, "device_name": device_name(device), **facts}
    if detail is not None:
        facts["data"] = f"{detail.data.label}, {detail.data.train_samples:,} samples for training"
        (directory / RUN_FOLDER).mkdir(exist_ok=True)
        write_json(directory / RUN_FOLDER / DETAIL_FILE, detail)
    return PointResult(
        point=task["point"]["id"],
        round=task["round"],
        values={name: value for name, value in values.items() if value is not None},
        facts=facts,
        run=RUN_FOLDER if detail is not None else None,
    )


def detail_result(
    task: Mapping[str, Any],
    directory: Path,
    values_of: Callable[[D], Mapping[str, float | None]],
    detail: D,
    remark: str = "",
) -> PointResult:
    """Return the result of a training with the values that ``values_of`` finds in its ``detail``."""
    return make_result(task, directory, values_of(detail), detail, remark=remark)


def process_facts(backend: str) -> dict[str, Any]:
    """Return the fields of a ``Detail`` that are facts of this process."""
    device = device_of(backend)
    return {
        "device": device,
        "threads": _threads(backend) if device == "cpu" else None,
        "versions": versions_of(backend),
    }


def finish(
    job: Any,
    detail: D,
    network: Network,
    x: Array,
    y: Array,
    channel: WorkerChannel,
    result: Callable[..., PointResult],
    *,
    operators: bool,
) -> PointResult:
    """End a training: time the ``operators`` of a step on ``x`` and ``y`` if asked for, bound them, and close
    the network.

    ``result`` makes the result of a detail and a remark; what is known so far is sent before each part that
    takes long.
    """
    remark = ""
    if operators:
        channel.found(result(detail))
        channel.stage("timing its operators")
        others = OthersMeter()
        timed = network.operators(x, y, rounds=OPERATOR_ROUNDS)
        busy = max(detail.others_cores, others.cores())
        fields = (
            "name",
            "layer",
            "phase",
            "calls",
            "flops",
            "matrix_flops",
            "bytes",
            "precision",
            "executed_flops",
        )
        found = tuple(
            TimedOperator(
                time_s=one.seconds,
                rounds=one.rounds,
                **{name: getattr(one.operator, name) for name in fields},
            )
            for one in timed
        )
        detail = msgspec.structs.replace(detail, operators=found, others_cores=busy)
        channel.found(result(detail))
        try:
            ceilings = ceilings_of_device(job.ceilings, detail.device, job.threads, channel)
            detail = msgspec.structs.replace(
                detail, ceilings=ceilings, operators=bounded(detail.operators, ceilings)
            )
        except RooflinesError as error:
            remark = f"no bounds on {detail.device}: {error.message}"
    network.close()
    return result(detail, remark)


def bounded(operators: Iterable[TimedOperator], ceilings: Ceilings) -> tuple[TimedOperator, ...]:
    """``operators`` with the lower bound of each, what sets it, and the share of its time that this is."""
    return tuple(_bounded(one, ceilings) for one in operators)


def _bounded(one: TimedOperator, ceilings: Ceilings) -> TimedOperator:
    calls = max(1, one.calls)
    executed = one.executed
    # What is left out, or done beyond the direct algorithm, is products where there are any. The record keeps
    # traffic as one number; the roofline does not ask which way it goes.
    other = min(executed, one.flops - one.matrix_flops) if one.matrix_flops else executed
    work = Work(
        matrix_flops=(executed - other) // calls,
        other_flops=other // calls,
        bytes_read=one.bytes // calls,
        precision=one.precision,
    )
    found = place_on_roofline(work, ceilings)
    if found is None:
        return one
    return msgspec.structs.replace(
        one,
        lower_bound_s=found.lower_bound_s * calls,
        attainable_flop_per_s=found.attainable_flop_per_s,
        efficiency=found.lower_bound_s * calls / one.time_s,
        bound=found.bound,
        memory_level=found.memory_level,
    )


def check_losses(losses: Sequence[float], before: int) -> None:
    """Raise RooflinesError at the first loss that is not finite, which JSON could not carry; ``before`` is
    how many came before."""
    for number, loss in enumerate(losses, before + 1):
        if not math.isfinite(loss):
            raise RooflinesError(f"the loss is not finite (step {number}).")


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(psutil.Process().memory_info().rss)


def _threads(backend: str) -> int | None:
    """The threads that a backend on the CPU computes with."""
    if backend.startswith("torch"):
        import torch

        return torch.get_num_threads()
    if backend.startswith("numba"):
        import numba

        return int(numba.get_num_threads())
    # NumPy's BLAS is asked by its own variables and has no call that tells.
    return None
