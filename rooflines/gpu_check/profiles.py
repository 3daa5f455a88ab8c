"""The profiles part: ``rooflines profile`` on several workloads, and the laws that each analysis must obey."""

from __future__ import annotations

from typing import Any, NamedTuple

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import rooflines_command, run_logged
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.records import Check
from rooflines.pipeline import ANALYSIS_FILE
from rooflines.profiler.directory import file_stem
from rooflines.profiler.records import Run, StepTimes
from rooflines.profiler.run import load
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import KERNEL, Trace
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json, to_plain

MODEL = "resnet50"
BATCH = 32
# MACs of one image: torchvision's `_ops` for resnet50, and of its first convolution (64 x 3 x 7 x 7 x 112 x 112).
FORWARD_MACS = 4_089_184_256
FIRST_CONVOLUTION_MACS = 64 * 3 * 7 * 7 * 112 * 112
# A training step also computes two products for each of the forward pass, except the gradient of the images.
TRAINING_MACS = 3 * FORWARD_MACS - FIRST_CONVOLUTION_MACS

_KEPT = (
    "verdict", "workload", "basis", "ceilings", "totals", "timeline", "step_breakdown", "bound_breakdown", "coverage", "findings",
    "memory", "notes",
)  # fmt: skip
_ROWS = 25


class Case(NamedTuple):
    """A workload: its name and the options of ``rooflines profile``.

    Its laws need the matrix ``flops`` of a step by a closed form, the least ``coverage`` and a ``module`` that has rows; a law
    without its figure is left out.
    """

    name: str
    arguments: tuple[str, ...]
    mode: str
    flops: int | None = None
    coverage: float | None = None
    module: str = ""


def _resnet(mode: str, precision: str) -> Case:
    inference = mode == "inference"
    return Case(
        f"{MODEL} {mode} {precision}",
        ("--model", MODEL, "--mode", mode, "--precision", precision, "--batch-size", str(BATCH)),
        mode,
        2 * BATCH * (FORWARD_MACS if inference else TRAINING_MACS),
        0.97 if inference else 0.95,
        "layer1.0.conv2",
    )


CASES = tuple(_resnet(mode, precision) for mode in ("inference", "training") for precision in ("fp32", "amp-bf16"))
# A network that a CPU profiles in seconds, judged by the data sheet of another device, which takes no measurement.
_REHEARSED = (
    Case(
        "squeezenet1_1 rehearsal",
        ("--model", "squeezenet1_1", "--image-size", "64", "--steps", "2", "--warmup", "1", "--ceilings", "H100 SXM5 80GB"),
        "inference",
    ),
)


def run(recorder: Recorder) -> None:
    """Run every case, each recorded as soon as it is done."""
    found: dict[str, Any] = {}
    for case in _REHEARSED if recorder.device.rehearsed else CASES:
        found[case.name] = _run_case(recorder, case)
        recorder.figure("runs", found)


def _run_case(recorder: Recorder, case: Case) -> dict[str, Any]:
    """One run through the command line, with the laws that it must obey."""
    stem = file_stem(case.name)
    directory = recorder.folder / stem
    arguments = ("--device", recorder.torch_device, *case.arguments, "--output", str(directory), "--formats", "html,json", "--quiet")
    done = run_logged(rooflines_command("profile", *arguments), recorder.folder / f"{stem}.txt")
    recorder.check(laws.command_succeeded(case.name, done.returncode, done.stderr))
    if done.returncode != 0:
        return {"error": done.stderr[-4000:]}
    run, analysis = load(directory), read_json(directory / ANALYSIS_FILE, Analysis)
    shortest_s = shortest_kernel_s(read_trace(run.trace_path)) if run.trace_path else None
    recorder.check(*checks(case, run, analysis, shortest_s, recorder.device.max_clock_hz))
    return summary(analysis)


def checks(case: Case, run: Run, analysis: Analysis, shortest_s: float | None, max_clock_hz: float | None) -> tuple[Check, ...]:
    """The laws that a ``run`` of ``case`` must obey; ``shortest_s`` is the duration of its shortest kernel."""
    return (
        laws.times_add_up(case.name, analysis),
        laws.busy_within_step(case.name, analysis),
        laws.events_add_up(case.name, *events_and_wall_ns(run.facts.steps)),
        laws.flops_equal(case.name, analysis, case.flops),
        laws.covered(case.name, analysis, case.coverage),
        laws.nothing_beats_its_bound(case.name, analysis),
        laws.no_kernel_below_launch(case.name, analysis, shortest_s),
        laws.modules_named(case.name, analysis, case.module),
        laws.phases_told_apart(case.name, analysis, case.mode),
        laws.run_at_maximum_clock(case.name, analysis, max_clock_hz),
        laws.run_energies_agree(case.name, analysis),
    )


def events_and_wall_ns(steps: StepTimes | None) -> tuple[int | None, int | None]:
    """The sum of the CUDA events of the timed steps, and the wall time of the same steps; None for what was not recorded."""
    if steps is None or steps.clock != "cuda events" or steps.timed_stretch is None:
        return None, None
    stretch = steps.timed_stretch
    return (sum(steps.timed_ns) if stretch.steps == len(steps.timed_ns) else None), stretch.ended_ns - stretch.began_ns


def shortest_kernel_s(trace: Trace) -> float | None:
    """The duration of the shortest kernel in ``trace``; None without kernels."""
    device = trace.device
    kernels = device.kind == KERNEL
    return float((device.end_ns - device.start_ns)[kernels].min()) / 1e9 if kernels.any() else None


def summary(analysis: Analysis) -> dict[str, Any]:
    """The parts of ``analysis`` that the record of a check keeps; all of it is in the raw evidence."""
    plain = to_plain(analysis)
    kept = {key: plain[key] for key in _KEPT if key in plain}
    steps = {key: value for key, value in plain.get("steps", {}).items() if key != "durations_s"}
    return {**kept, "steps": steps, "operators": plain["operators"][:_ROWS]}
