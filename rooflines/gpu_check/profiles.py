"""The profiles part: ``rooflines profile`` on several workloads and ``rooflines monitor``, and the laws that each result must obey.

Each workload is a case: a command of ``rooflines profile``, its time limit, and what must hold of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rooflines.device_specs.nvml import start_nvml
from rooflines.errors import DeviceError
from rooflines.gpu_check import laws
from rooflines.gpu_check.laws import Law, Profiled, program_monitored
from rooflines.gpu_check.records import NO_GPU, Device, Recorder, judged, rooflines_command, run_logged
from rooflines.pipeline.ceilings import sheet_of
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.profiler.directory import file_stem, load
from rooflines.profiler.options import Mode
from rooflines.profiler.trace.reader import read
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.usage.device_usage import MonitorAnalysis
from rooflines.serial import read_json, to_plain

WORKLOADS = Path(__file__).with_name("workloads.py")
SCRIPT = Path(__file__).with_name("train.py")
# MACs of one image of 224 x 224: torchvision's `_ops`, to the last MAC.
_RESNET_MACS = {"resnet18": 1_814_073_344, "resnet50": 4_089_184_256}
_CLASSIFIER_MACS = {"resnet18": 512 * 1000, "resnet50": 2048 * 1000}
# The ceilings are those of the part before; where that part did not run, the first case measures them.
_MEASURING_S = 120.0
_KEPT = (
    "verdict", "workload", "basis", "totals", "timeline", "step_breakdown", "bound_breakdown", "coverage", "findings", "memory",
    "notes",
)  # fmt: skip
_ROWS = 15
MONITOR = "monitor of a training script"
# Long enough for tens of readings of a busy GPU; a rehearsal needs one reading.
_SECONDS, _REHEARSED_SECONDS = 4.0, 0.3
_MONITOR_LIMIT_S = 60.0


def run(recorder: Recorder) -> None:
    """Run every case, each recorded as soon as it is done."""
    import torch

    found: dict[str, Any] = {}
    for case in cases(recorder.device, visible_gpus(torch.cuda.device_count())):
        if case.left_out:
            recorder.leave_out(case.name, case.left_out)
        elif limit_s := recorder.seconds_for(case.name, case.limit_s + (0.0 if found else _MEASURING_S)):
            found[case.name] = run_case(recorder, case, limit_s)
            recorder.figure("runs", found)
    if limit_s := recorder.seconds_for(MONITOR, _MONITOR_LIMIT_S):
        run_monitor(recorder, limit_s)


def run_case(recorder: Recorder, case: Case, limit_s: float) -> dict[str, Any]:
    """Run one case for at most ``limit_s`` seconds and check its laws; return what the record keeps of its analysis."""
    stem = file_stem(case.name)
    directory = recorder.folder / stem
    done = run_logged(
        command(case, recorder.torch_device, directory), recorder.folder / f"{stem}.txt", limit_s, variables=case.environment
    )
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "") if done.code else ""
    recorder.check(judged("rooflines profile succeeds", case.name, (done.code == 0, f"{done.how}: {last}" if last else done.how)))
    if done.code != 0:
        return {"error": done.stderr[-4000:] if done.code else done.how}
    run, analysis = load(directory), read_json(directory / ANALYSIS_FILE, Analysis)
    profiled = Profiled(recorder.device, run, analysis, read(run.trace_path) if run.trace_path else None)
    recorder.check(*(law.check(case.name, profiled) for law in case.laws))
    plain = to_plain(analysis)
    kept = {key: plain[key] for key in _KEPT if key in plain}
    steps = {key: value for key, value in plain.get("steps", {}).items() if key != "durations_s"}
    return {**kept, "steps": steps, "operators": plain["operators"][:_ROWS]}  # all of it is in the raw evidence


def command(case: Case, torch_device: str, directory: Path) -> list[str]:
    """Return the command of ``case``, which writes its run to ``directory``."""
    device = ("--device", torch_device) if case.names_device else ()
    formats = "html,json" if case.whole else "json"
    after = ("--", *case.script_arguments) if case.script_arguments else ()
    return rooflines_command("profile", *case.arguments, *device, "--output", str(directory), "--formats", formats, "--quiet", *after)


def visible_gpus(count: int) -> tuple[str, ...]:
    """Return what names each GPU that this process may use in CUDA_VISIBLE_DEVICES: as it is set, else their UUIDs; empty without NVML.

    Torch sees ``count`` GPUs: one slice of a machine with MIG, however many boards there are, and none behind a name that is invalid.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name.strip() for name in chosen.split(",") if name.strip())[:count]
    try:
        nvml = start_nvml()
    except DeviceError:
        return ()
    try:
        found = range(min(count, nvml.nvmlDeviceGetCount()))
        return tuple(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in found)
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def run_monitor(recorder: Recorder, limit_s: float) -> None:
    """Run ``rooflines monitor`` on a script that uses the GPU: its exit code comes back, and the GPU that worked was sampled."""
    directory = recorder.folder / "monitor"
    seconds = _REHEARSED_SECONDS if recorder.device.rehearsed else _SECONDS
    program = (sys.executable, str(SCRIPT), "--device", recorder.torch_device, "--seconds", str(seconds))
    asked = rooflines_command("monitor", "--output", str(directory), "--formats", "json", "--quiet", "--", *program)
    done = run_logged(asked, recorder.folder / "monitor.txt", limit_s)
    file = directory / ANALYSIS_FILE
    if done.code is None or not file.exists():
        how = done.how if done.code is None else f"{done.how}: {done.stderr[-400:]}"
        recorder.check(judged("rooflines monitor succeeds", MONITOR, (False, how)))
        return
    analysis = read_json(file, MonitorAnalysis)
    recorder.check(*program_monitored(MONITOR, done.code, analysis, recorder.device))
    recorder.figure("monitor", to_plain(analysis))


# --- the cases ----------------------------------------------------------------------------------------------------------------------


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
