"""The cases of the profiles part: each workload as a command of ``rooflines profile``, its time limit, and what must hold of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rooflines.gpu_check import case_laws
from rooflines.gpu_check.case_laws import Profiled
from rooflines.gpu_check.records import Check, Device
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.options import Mode, Precision

_WORKLOADS = Path(__file__).with_name("workloads")
# MACs of one image of 224 x 224: torchvision's `_ops`, to the last MAC.
_RESNET_MACS = {"resnet18": 1_814_073_344, "resnet50": 4_089_184_256}
_CLASSIFIER_MACS = {"resnet18": 512 * 1000, "resnet50": 2048 * 1000}
# Seconds that a case may take. Most take ten on a large GPU: five until torch has loaded and the device is ready, then the steps.
_LIMIT_S = 60.0
# Compiling a network takes half a minute on few cores.
_COMPILE_LIMIT_S = 120.0

Law = Callable[[str, Profiled], Check]


class Case(NamedTuple):
    """A workload: its name and the ``arguments`` of ``rooflines profile``, those after ``--`` in ``script_arguments``.

    A script names its device itself, so that ``--device`` is not given (``names_device``). A run must obey every law of
    ``profiles.checks`` for which the case has the figure: the matrix ``flops`` of a step by a closed form, the least ``coverage``, a
    ``module`` that has rows, whether it is ``traced``, ``phases`` can be told apart and all work is in ``one_stream``; and ``laws`` of
    its own. A ``whole`` run is timed for as long as any run, so that its clock and energy are judged, and has a report to read.
    ``environment`` are variables that are set for it. ``left_out`` says why it cannot run.
    """

    name: str
    arguments: tuple[str, ...]
    mode: Mode = "inference"
    flops: int | None = None
    coverage: float | None = None
    module: str = ""
    traced: bool = True
    phases: bool = True
    one_stream: bool = True
    laws: tuple[Law, ...] = ()
    script_arguments: tuple[str, ...] = ()
    names_device: bool = True
    whole: bool = False
    environment: Mapping[str, str] = {}
    limit_s: float = _LIMIT_S
    left_out: str = ""


class _Size(NamedTuple):
    """How large the cases are on a kind of device; options that shorten a rehearsal."""

    model: str
    image: int
    batch: int
    steps: tuple[str, ...]
    script_steps: int


# Enough steps for a median, in less than a second.
_GPU = _Size("resnet50", 224, 32, ("--steps", "30", "--warmup", "5"), 200)
# The data sheet of another device takes no measurement.
_CPU = _Size("resnet18", 32, 2, ("--steps", "2", "--warmup", "1", "--ceilings", "H100 SXM5 80GB"), 6)


def cases(device: Device, gpus: tuple[str, ...]) -> tuple[Case, ...]:
    """The cases for ``device``, the most important first; ``gpus`` are the UUIDs of the GPUs that this process may use."""
    size = _CPU if device.rehearsed else _GPU
    kind = "cpu" if device.rehearsed else "cuda"
    return (
        _resnet("inference", "fp32", size, whole=True),
        _resnet("training", "fp32", size, whole=True),
        _resnet("training", "amp-bf16", size),
        _resnet("training", "amp-fp16", size),
        _tf32(device, size),
        _lstm(kind, size),
        _transformer(kind, size),
        _batch_of_one(size),
        _script(device.environment.device, kind, size),
        _second_gpu(device, kind, size, gpus),
        _graph(device, size),
        _streams(kind, size),
        _renumbered(device, size, gpus),
        _slice(device, size),
        _compiled(size),
    )


def resnet_flops(model: str, mode: Mode, image: int, batch: int) -> int:
    """The matrix FLOPs of a step of a ResNet on images of ``image`` x ``image`` pixels, a multiple of 32.

    Convolutions take MACs in proportion to the area, the classifier does not. A training step also computes two products for each of
    the forward pass, except the gradient of the images.
    """
    area = (image // 32) ** 2
    forward = (_RESNET_MACS[model] - _CLASSIFIER_MACS[model]) * area // 7**2 + _CLASSIFIER_MACS[model]
    first = 64 * 3 * 7 * 7 * (image // 2) ** 2
    return 2 * batch * (forward if mode == "inference" else 3 * forward - first)


def _resnet(mode: Mode, precision: Precision, size: _Size, *, whole: bool = False) -> Case:
    """A convolutional network."""
    ran_in = precision.removeprefix("amp-")
    laws: tuple[Law, ...] = (partial(case_laws.matrix_precision, precision=ran_in),)
    if mode == "training":
        laws += (case_laws.loss_is_finite,)
    if precision == "amp-fp16":
        laws += (case_laws.scaler_at_work,)
    steps = size.steps if size is _CPU or not whole else ()
    return Case(
        f"{size.model} {mode} {precision}",
        (*_network(size.model, size.image, size.batch), "--mode", mode, "--precision", precision, *steps),
        mode,
        flops=resnet_flops(size.model, mode, size.image, size.batch),
        coverage=0.97 if mode == "inference" else 0.95,
        module="layer1.0.conv2",
        laws=laws,
        whole=whole,
    )


def _tf32(device: Device, size: _Size) -> Case:
    precision = "fp32" if device.rehearsed else "tf32"
    return Case(
        f"{size.model} inference with TF32",
        (*_network(size.model, size.image, size.batch), "--precision", precision, *size.steps),
        flops=resnet_flops(size.model, "inference", size.image, size.batch),
        coverage=0.95,
        laws=(case_laws.judged_by_tensor_cores,),
    )


def _compiled(size: _Size) -> Case:
    """The smaller network: compiling takes most of the time of this case."""
    return Case(
        "resnet18 inference compiled",
        (*_network("resnet18", size.image, size.batch), "--compile", "on", *size.steps),
        flops=resnet_flops("resnet18", "inference", size.image, size.batch),
        coverage=0.9,
        laws=(case_laws.compiled_by_inductor,),
        limit_s=_COMPILE_LIMIT_S,
    )


def _lstm(kind: str, size: _Size) -> Case:
    from rooflines.gpu_check.workloads import lstm

    batch = 2 * size.batch
    return Case(
        "LSTM training fp32",
        (_factory("lstm.py", "training"), "--mode", "training", "--batch-size", str(batch), *size.steps),
        "training",
        flops=lstm.flops(batch, kind),
        coverage=0.9,
        laws=(partial(case_laws.matrix_precision, precision="fp32"), case_laws.loss_is_finite),
    )


def _transformer(kind: str, size: _Size) -> Case:
    from rooflines.gpu_check.workloads import transformer

    batch = max(1, size.batch // 4)
    return Case(
        "transformer training amp-bf16",
        (
            _factory("transformer.py", "training"), "--mode", "training", "--precision", "amp-bf16", "--batch-size", str(batch),
            *size.steps,
        ),
        "training",
        flops=transformer.flops(batch, kind),
        coverage=0.9,
        module="blocks.0.attention.1.inputs",
        laws=(partial(case_laws.matrix_precision, precision="bf16"), case_laws.loss_is_finite),
    )  # fmt: skip


def _batch_of_one(size: _Size) -> Case:
    """A single image leaves a large GPU waiting for launches."""
    return Case(
        f"{size.model} inference of one image",
        (*_network(size.model, size.image, 1), *size.steps),
        flops=resnet_flops(size.model, "inference", size.image, 1),
        coverage=0.9,
        laws=(case_laws.idle_time_named,),
    )


def _script(torch_device: str, kind: str, size: _Size) -> Case:
    """A script that chooses its device itself."""
    from rooflines.gpu_check.workloads import train

    return Case(
        f"script on {torch_device}",
        (str(_WORKLOADS / "train.py"), *(size.steps if size is _CPU else ())),
        "training",
        flops=train.flops(kind),
        coverage=0.9,
        laws=(partial(case_laws.ran_on, device=torch_device),),
        script_arguments=("--device", torch_device, "--steps", str(size.script_steps)),
        names_device=False,
    )


def _second_gpu(device: Device, kind: str, size: _Size, gpus: tuple[str, ...]) -> Case:
    """Judged by its data sheet where it has one, because its ceilings were not measured before."""
    case = _script("cuda:1", kind, size)
    if len(gpus) < 2 or device.rehearsed:
        return case._replace(left_out="there is one GPU, or none")
    sheet, _ = sheet_of(device.environment)
    return case._replace(arguments=(*case.arguments, "--ceilings", "spec")) if sheet else case


def _graph(device: Device, size: _Size) -> Case:
    """One image, so that the GPU would wait for launches without the graph."""
    return Case(
        f"{size.model} inference in a CUDA graph",
        (*_network(size.model, size.image, 1), "--cuda-graphs", *size.steps),
        phases=False,  # the trace has no operators for what a graph launches
        laws=(case_laws.one_graph_launch,),
        left_out="a CPU has no CUDA graphs" if device.rehearsed else "",
    )


def _streams(kind: str, size: _Size) -> Case:
    from rooflines.gpu_check.workloads import streams

    return Case(
        "products in two streams",
        (_factory("streams.py", "two_streams"), *size.steps),
        flops=streams.flops(kind),
        coverage=0.9,
        one_stream=False,
        laws=(case_laws.in_several_streams, case_laws.other_stream_noticed),
    )


def _renumbered(device: Device, size: _Size, gpus: tuple[str, ...]) -> Case:
    """The last GPU is made the only one, by its UUID: torch's cuda:0 has another number for NVML where there are several."""
    left_out = "there is no GPU" if device.rehearsed else "" if gpus else "NVML does not tell the UUID of the GPU"
    if _is_slice(device):
        left_out = "the GPU is a MIG slice"
    return Case(
        "resnet18 inference with CUDA_VISIBLE_DEVICES",
        (*_network("resnet18", size.image, 2 * size.batch), "--steps", "300", "--warmup", "5", "--no-trace"),
        traced=False,
        laws=(case_laws.sampled_gpu_works,),
        environment={"CUDA_VISIBLE_DEVICES": gpus[-1]} if gpus else {},
        left_out=left_out,
    )


def _slice(device: Device, size: _Size) -> Case:
    left_out = "there is no GPU" if device.rehearsed else "" if _is_slice(device) else "the GPU is not partitioned (MIG)"
    return Case(
        "resnet18 inference on a MIG slice",
        (*_network("resnet18", size.image, size.batch), *size.steps, "--no-trace"),
        traced=False,
        laws=(case_laws.sampled_slice,),
        left_out=left_out,
    )


def _is_slice(device: Device) -> bool:
    return "MIG" in device.environment.device_name


def _network(model: str, image: int, batch: int) -> tuple[str, ...]:
    return "--model", model, "--image-size", str(image), "--batch-size", str(batch)


def _factory(file: str, function: str) -> str:
    return f"{_WORKLOADS / file}:{function}"
