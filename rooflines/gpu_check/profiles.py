"""The profiles part: ``rooflines profile`` on several workloads, and the laws that each analysis must obey."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import rooflines_command, run_logged
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.records import Check
from rooflines.profiler.directory import file_stem

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
# A network that a CPU profiles in seconds. MACs: torchvision has no figure for images of 64 x 64.
_REHEARSED = (
    Case("squeezenet1_1 rehearsal", ("--model", "squeezenet1_1", "--image-size", "64", "--steps", "2", "--warmup", "1"), "inference"),
)


def run(recorder: Recorder) -> None:
    """Run every case, each recorded as soon as it is done."""
    found: dict[str, Any] = {}
    for case in _REHEARSED if recorder.rehearsal else CASES:
        found[case.name] = _run_case(recorder, case)
        recorder.figure("runs", found)


def _run_case(recorder: Recorder, case: Case) -> dict[str, Any]:
    """One run through the command line, with the laws that its analysis must obey."""
    stem = file_stem(case.name)
    directory = recorder.folder / stem
    done = run_logged(
        rooflines_command(
            "profile", "--device", recorder.device, *case.arguments, "--output", str(directory), "--formats", "html,json", "--quiet"
        ),
        recorder.folder / f"{stem}.txt",
    )
    recorder.check(laws.command_succeeded(case.name, done.returncode, done.stderr))
    if done.returncode != 0:
        return {"error": done.stderr[-4000:]}
    analysis = json.loads((directory / "analysis.json").read_text())
    recorder.check(*checks(case, analysis))
    summary = {key: analysis[key] for key in _KEPT if key in analysis}
    summary["steps"] = {key: value for key, value in analysis["steps"].items() if key != "durations_s"}
    return {**summary, "operators": analysis["operators"][:_ROWS]}


def checks(case: Case, analysis: dict[str, Any]) -> tuple[Check, ...]:
    """The laws that the ``analysis`` of ``case`` must obey."""
    return (
        laws.times_add_up(case.name, analysis),
        laws.flops_equal(case.name, analysis, case.flops),
        laws.covered(case.name, analysis, case.coverage),
        laws.nothing_beats_its_bound(case.name, analysis),
        laws.modules_named(case.name, analysis, case.module),
        laws.phases_told_apart(case.name, analysis, case.mode),
    )
