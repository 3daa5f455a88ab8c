"""The profiles part: ``rooflines profile`` on several workloads and ``rooflines monitor``, and the laws that each result must obey.

Each workload is a case: a command of ``rooflines profile``, its time limit, and what must hold of it. A case runs when the first of its
laws is judged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rooflines import analyze
from rooflines.pipeline.ceilings import sheet_of
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.profiler.directory import file_stem, load
from rooflines.profiler.options import Mode
from rooflines.profiler.read.reader import read
from rooflines.profiler.records import Environment
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
from rooflines.serial import read_json, to_plain
from tests.gpu import laws, train, workloads
from tests.gpu.laws import Law, Profiled
from tests.gpu.parts import Device, Findings, Judge, Recorder, Verdict, failure, named, python, run_logged, settle

WORKLOADS = Path(__file__).with_name("workloads.py")
SCRIPT = Path(__file__).with_name("train.py")
# MACs of one image of 224 x 224: torchvision's `_ops`, to the last MAC.
_RESNET_MACS = {"resnet18": 1_814_073_344, "resnet50": 4_089_184_256}
_CLASSIFIER_MACS = {"resnet18": 512 * 1000, "resnet50": 2048 * 1000}
# Ceilings are those of the part before; where that part did not run, the first case measures them.
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
# A command is not begun with less time than torch takes to load, and ends before its part does.
_LEAST_S, _MARGIN_S = 15.0, 3.0
_SUCCEEDS = "rooflines profile succeeds"


class Runs:
    """The runs of the cases, each made when it is first asked for, or read from the folder of a record that is judged again."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._figures: dict[str, Any] = recorder.findings.figures.get("runs", {})
        self._profiled: dict[str, Profiled | None] = {}
        self.cases = cases(recorder.device)

    def figure(self, name: str) -> dict[str, Any] | str:
        """Return what the record keeps of a case, ``error`` if it failed; or the reason why the case was left out."""
        case = self.cases[name]
        if name in self._figures:
            return self._figures[name]
        if self._recorder.rejudges:
            return "the record has no such run"
        if case.left_out:
            return case.left_out
        limit_s = seconds_for(self._recorder, case.limit_s + (0.0 if self._figures else _MEASURING_S))
        if limit_s is None:
            return "no time was left"
        self._figures[name] = run_case(self._recorder, case, limit_s)
        self._recorder.figure("runs", self._figures)
        return self._figures[name]

    def profiled(self, name: str) -> Profiled | str:
        """Return the run of a case, or the reason why there is none."""
        figure = self.figure(name)
        if isinstance(figure, str):
            return figure
        if "error" in figure:
            return "rooflines profile did not succeed"
        if name not in self._profiled:
            self._profiled[name] = load_profiled(self._recorder, name)
        return self._profiled[name] or "the run was not kept"


@pytest.fixture(scope="module")
def runs(recorder: Recorder) -> Runs:
    return Runs(recorder)


def seconds_for(recorder: Recorder, most_s: float) -> float | None:
    """Return the seconds that a command may take, ``most_s`` at most; None where too few are left."""
    limit_s = min(most_s, recorder.left_s - _MARGIN_S)
    return limit_s if limit_s >= _LEAST_S else None


def run_case(recorder: Recorder, case: Case, limit_s: float) -> dict[str, Any]:
    """Run one case for at most ``limit_s`` seconds; return what the record keeps of its analysis, or its ``error``."""
    stem = file_stem(case.name)
    directory = recorder.folder / stem
    done = run_logged(
        command(case, recorder.torch_device, directory), recorder.folder / f"{stem}.txt", limit_s, variables=case.environment
    )
    if done.code != 0:
        return {"error": failure(done)}
    plain = to_plain(read_json(directory / ANALYSIS_FILE, Analysis))
    kept = {key: plain[key] for key in _KEPT if key in plain}
    steps = {key: value for key, value in plain.get("steps", {}).items() if key != "durations_s"}
    return {**kept, "steps": steps, "operators": plain["operators"][:_ROWS]}  # all of it is in the raw evidence


def load_profiled(recorder: Recorder, name: str) -> Profiled | None:
    """Return the run of the case ``name`` in the folder of ``recorder``; None where it was not kept.

    The analysis is made again where only the raw files were kept.
    """
    directory = recorder.folder / file_stem(name)
    if not directory.is_dir():
        return None
    run, stored = load(directory), directory / ANALYSIS_FILE
    analysis = read_json(stored, Analysis) if stored.is_file() else analyze(directory)
    return Profiled(recorder.device, run, analysis, read(run.trace_path) if run.trace_path else None)


def command(case: Case, torch_device: str, directory: Path) -> list[str]:
    """Return the command of ``case``, which writes its run to ``directory``."""
    device = ("--device", torch_device) if case.names_device else ()
    output = ("--output", str(directory), "--formats", "html,json" if case.whole else "json", "--quiet")
    after = ("--", *case.script_arguments) if case.script_arguments else ()
    return python("rooflines", "profile", *case.arguments, *device, *output, *after)


def run_monitor(recorder: Recorder, limit_s: float) -> None:
    """Run ``rooflines monitor`` on a script that uses the GPU, and record its analysis and exit code."""
    directory = recorder.folder / "monitor"
    seconds = _REHEARSED_SECONDS if recorder.device.rehearsed else _SECONDS
    program = (sys.executable, str(SCRIPT), "--device", recorder.torch_device, "--seconds", str(seconds))
    asked = python("rooflines", "monitor", "--output", str(directory), "--formats", "json", "--quiet", "--", *program)
    done = run_logged(asked, recorder.folder / "monitor.txt", limit_s)
    recorder.figure("monitor_exit_code", done.code)
    if done.code is None or not (file := directory / ANALYSIS_FILE).exists():
        recorder.error = f"rooflines monitor: {failure(done)}"
    else:
        recorder.figure("monitor", read_json(file, MonitorAnalysis))


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


def cases(device: Device) -> dict[str, Case]:
    """Return the cases for ``device`` by name, the most important first. Their names and laws are the same on every GPU.

    A rehearsal on a CPU is small, and its ceilings are the data sheet of another device, which takes no measurement.
    """
    rehearsed, torch_device, gpus = device.rehearsed, device.environment.device, device.gpus
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
    finite, of_gpu = laws.loss_is_finite, "there is no GPU" if rehearsed else ""
    no_uuid = "the GPU is a MIG slice" if is_slice else of_gpu or ("" if gpus else "NVML does not tell the UUID of the GPU")
    every = (
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
    return {case.name: case for case in every}


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


# --- the tests ----------------------------------------------------------------------------------------------------------------------

_ANY_GPU = Device(environment=Environment(rooflines="", device="cuda:0", device_name="an NVIDIA GPU"))
_LAWS = [
    pytest.param(name, text, id=f"{name}: {text}")
    for name, case in cases(_ANY_GPU).items()
    for text in (_SUCCEEDS, *(law.text for law in case.laws))
]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "law"), _LAWS)
def test_profile(runs: Runs, name: str, law: str, record_property: Callable[[str, object], None]) -> None:
    verdict: Verdict
    if law == _SUCCEEDS:
        figure = runs.figure(name)
        verdict = figure if isinstance(figure, str) else ("error" not in figure, figure.get("error", "exit code 0"))
    else:
        profiled = runs.profiled(name)
        (judged,) = [known for known in runs.cases[name].laws if known.text == law]
        verdict = profiled if isinstance(profiled, str) else judged.verdict(profiled)
    settle(verdict, record_property)


@pytest.fixture(scope="module")
def monitored(recorder: Recorder) -> None:
    """Records what ``rooflines monitor`` saw of a training script."""
    if recorder.rejudges:
        return
    if (limit_s := seconds_for(recorder, _MONITOR_LIMIT_S)) is None:
        recorder.leave_out(MONITOR, "no time was left")
    else:
        run_monitor(recorder, limit_s)


def of_monitor(verdict: Callable[..., Verdict], found: Findings, device: Device) -> Verdict:
    return verdict(found.figure("monitor", MonitorAnalysis), found.figures.get("monitor_exit_code"))


MONITOR_LAWS: dict[str, Judge] = {
    "rooflines monitor returns the exit code 0 of the program": partial(of_monitor, laws.monitor_returns_exit_code),
    laws.WORK_LAW: partial(of_monitor, laws.monitored_gpu_worked),
    "the program's memory was sampled": partial(of_monitor, laws.program_memory_sampled),
}


@pytest.mark.gpu
@pytest.mark.usefixtures("monitored")
@pytest.mark.parametrize("law", named(MONITOR, MONITOR_LAWS))
def test_monitor(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)
