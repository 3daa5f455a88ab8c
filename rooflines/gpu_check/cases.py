"""The cases of the profiles part: each workload as a command of ``rooflines profile``, its time limit, and what must hold of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rooflines.gpu_check import laws
from rooflines.gpu_check.laws import Law
from rooflines.gpu_check.records import NO_GPU, Device
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.options import Mode

WORKLOADS = Path(__file__).with_name("workloads.py")
SCRIPT = Path(__file__).with_name("train.py")
# MACs of one image of 224 x 224: torchvision's `_ops`, to the last MAC.
_RESNET_MACS = {"resnet18": 1_814_073_344, "resnet50": 4_089_184_256}
_CLASSIFIER_MACS = {"resnet18": 512 * 1000, "resnet50": 2048 * 1000}


class Case(NamedTuple):
    """A workload: its name and the ``arguments`` of ``rooflines profile``, those after ``--`` in ``script_arguments``.

    A script names its device itself, so that ``--device`` is not given (``names_device``). A ``whole`` run is timed for as long as any
    run, so that its clock and energy are judged, and has a report to read. ``environment`` are variables that are set for it.
    ``left_out`` says why it cannot run. Most cases take ten seconds on a large GPU: five until torch has loaded and the device is
    ready, then the steps.
    """

    name: str
    arguments: tuple[str, ...]
    laws: tuple[Law, ...]
    script_arguments: tuple[str, ...] = ()
    names_device: bool = True
    whole: bool = False
    environment: Mapping[str, str] = {}
    limit_s: float = 60.0
    left_out: str = ""


def cases(device: Device, gpus: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the cases for ``device``, the most important first; ``gpus`` are the UUIDs of the GPUs that this process may use.

    A rehearsal on a CPU is small, and its ceilings are the data sheet of another device, which takes no measurement.
    """
    from rooflines.gpu_check import train, workloads

    rehearsed, torch_device = device.rehearsed, device.environment.device
    kind = "cpu" if rehearsed else "cuda"
    model, image, batch, script_steps = ("resnet18", 32, 2, 6) if rehearsed else ("resnet50", 224, 32, 200)
    # Enough steps for a median, in less than a second.
    steps = ("--steps", "2", "--warmup", "1", "--ceilings", "H100 SXM5 80GB") if rehearsed else ("--steps", "30", "--warmup", "5")

    def network(name: str, images: int, *more: str) -> tuple[str, ...]:
        return ("--model", name, "--image-size", str(image), "--batch-size", str(images), *more)

    def resnet(mode: Mode, precision: str, *own: Law, whole: bool = False) -> Case:
        options = ("--mode", mode, "--precision", precision, *(() if whole and not rehearsed else steps))
        checks = traced(resnet_flops(model, mode, image, batch), 0.97 if mode == "inference" else 0.95, mode, module="layer1.0.conv2")
        ran_in = laws.matrix_precision(precision.removeprefix("amp-"))
        of_whole = (laws.run_at_maximum_clock, laws.run_energies_agree) if whole else ()
        return Case(f"{model} {mode} {precision}", network(model, batch, *options), (*of_whole, *checks, ran_in, *own), whole=whole)

    def factory(function: str, *more: str) -> tuple[str, ...]:
        return (f"{WORKLOADS}:{function}", *more, *steps)

    def script(its_device: str, arguments: tuple[str, ...], left_out: str = "") -> Case:
        checks = (*traced(train.flops(kind), 0.9, "training"), laws.ran_on(its_device))
        given = ("--device", its_device, "--steps", str(script_steps))
        return Case(f"script on {its_device}", (str(SCRIPT), *arguments), checks, given, names_device=False, left_out=left_out)

    lstm_batch, transformer_batch = 2 * batch, max(1, batch // 4)
    is_slice, one_gpu = "MIG" in device.environment.device_name, len(gpus) < 2 or rehearsed
    finite, of_gpu = laws.loss_is_finite, NO_GPU if rehearsed else ""
    no_uuid = "the GPU is a MIG slice" if is_slice else of_gpu or ("" if gpus else "NVML does not tell the UUID of the GPU")
    return (
        resnet("inference", "fp32", whole=True),
        resnet("training", "fp32", finite, whole=True),
        resnet("training", "amp-bf16", finite),
        resnet("training", "amp-fp16", finite, laws.scaler_at_work),
        Case(
            f"{model} inference with TF32", network(model, batch, "--precision", "fp32" if rehearsed else "tf32", *steps),
            (*traced(resnet_flops(model, "inference", image, batch), 0.95), laws.judged_by_tensor_cores),
        ),
        Case(
            "LSTM training fp32", factory("lstm", "--mode", "training", "--batch-size", str(lstm_batch)),
            (*traced(workloads.lstm_flops(lstm_batch, kind), 0.9, "training"), laws.matrix_precision("fp32"), finite),
        ),
        Case(
            "transformer training amp-bf16",
            factory("transformer", "--mode", "training", "--precision", "amp-bf16", "--batch-size", str(transformer_batch)),
            (
                *traced(workloads.transformer_flops(transformer_batch, kind), 0.9, "training", module="blocks.0.attention.1.inputs"),
                laws.matrix_precision("bf16"), finite,
            ),
        ),
        # A single image leaves a large GPU waiting for launches.
        Case(
            f"{model} inference of one image", network(model, 1, *steps),
            (*traced(resnet_flops(model, "inference", image, 1), 0.9), laws.idle_time_named),
        ),
        script(torch_device, steps if rehearsed else ()),
        # Judged by its data sheet where it has one, because the ceilings of the second GPU were not measured before.
        script(
            "cuda:1", ("--ceilings", "spec") if not one_gpu and sheet_of(device.environment)[0] else steps if rehearsed else (),
            "there is one GPU, or none" if one_gpu else "",
        ),
        # The trace has no operators for what a graph launches.
        Case(
            f"{model} inference in a CUDA graph", network(model, 1, "--cuda-graphs", *steps),
            (*laws.OF_TRACES, laws.events_see_all_work, laws.one_graph_launch), left_out=of_gpu and "a CPU has no CUDA graphs",
        ),
        Case(
            "products in two streams", factory("two_streams"),
            (*traced(workloads.streams_flops(kind), 0.9, events=False), laws.in_several_streams, laws.other_stream_noticed),
        ),
        # The last GPU is made the only one, by its UUID: torch's cuda:0 has another number for NVML where there are several.
        Case(
            "resnet18 inference with CUDA_VISIBLE_DEVICES",
            network("resnet18", 2 * batch, "--steps", "300", "--warmup", "5", "--no-trace"),
            (laws.events_see_all_work, laws.sampled_gpu_works), left_out=no_uuid,
            environment={"CUDA_VISIBLE_DEVICES": gpus[-1]} if gpus else {},
        ),
        Case(
            "resnet18 inference on a MIG slice", network("resnet18", batch, *steps, "--no-trace"),
            (laws.events_see_all_work, laws.sampled_slice),
            left_out=of_gpu or ("" if is_slice else "the GPU is not partitioned (MIG)"),
        ),
        # The smaller network: compiling takes most of the time of this case, half a minute on few cores.
        Case(
            "resnet18 inference compiled", network("resnet18", batch, "--compile", "on", *steps),
            (*traced(resnet_flops("resnet18", "inference", image, batch), 0.9), laws.compiled_by_inductor), limit_s=120.0,
        ),
    )  # fmt: skip


def traced(flops: int, coverage: float, mode: Mode = "inference", *, module: str = "", events: bool = True) -> tuple[Law, ...]:
    """Return the laws of a traced run whose step has ``flops`` matrix FLOPs by a closed form.

    ``coverage`` is the least, ``module`` one that has rows; ``events`` see all work where it is in one stream.
    """
    of_module = (laws.modules_named(module),) if module else ()
    of_events = (laws.events_see_all_work,) if events else ()
    counted = (laws.flops_equal(flops), laws.covered(coverage))
    return (*laws.OF_TRACES, *of_events, *counted, *of_module, laws.phases_separated(mode))


def resnet_flops(model: str, mode: Mode, image: int, batch: int) -> int:
    """Return the matrix FLOPs of a step of a ResNet on images of ``image`` x ``image`` pixels, a multiple of 32.

    Convolutions take MACs in proportion to the area, the classifier does not. A training step also computes two products for each of
    the forward pass, except the gradient of the images.
    """
    area = (image // 32) ** 2
    forward = (_RESNET_MACS[model] - _CLASSIFIER_MACS[model]) * area // 7**2 + _CLASSIFIER_MACS[model]
    first = 64 * 3 * 7 * 7 * (image // 2) ** 2
    return 2 * batch * (forward if mode == "inference" else 3 * forward - first)
