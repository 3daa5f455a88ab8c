"""One round of a point: profile or train as its options ask, and the values of the result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rooflines.errors import RooflinesError
from rooflines.pipeline import ANALYSIS_FILE
from rooflines.profiler.training.records import Training
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json
from rooflines.sweeps.records import PointResult, SweepPoint
from rooflines.sweeps.worker import WorkerChannel

RUN_FOLDER = "run"
_Values: TypeAlias = dict[str, float | None]


def run_point(options: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run one round of a point in ``directory``: ``options`` are the ``point`` and the number of its
    ``round``.

    The first round traces the operators, later ones time the steps only. A training sends its result so far
    after every epoch. An error of rooflines is the reason of the result. A precision that the processor
    emulates is not measured.
    """
    point, number = msgspec.convert(options["point"], SweepPoint), int(options["round"])
    given: dict[str, Any] = {name: value for name, value in point.options.items() if name != "model"}
    model = str(point.options["model"])
    try:
        if number == 0 and (reason := _emulation(given)) is not None:
            return PointResult(point=point.id, round=number, reason=f"skipped: {reason}.")
        if point.kind == "train":
            from rooflines.pipeline.training import train
            from rooflines.profiler.training.options import TrainOptions

            def each(training: Training) -> None:
                channel.found(_of_training(training, point, number))

            training, _ = train(
                model, TrainOptions(**given), output=directory / RUN_FOLDER, progress=channel, each=each
            )
            return _of_training(training, point, number)
        from rooflines.pipeline.recording import profile

        profile(
            model, **given, output=directory / RUN_FOLDER, trace=number == 0, formats=(), progress=channel
        )
    except RooflinesError as error:
        return PointResult(point=point.id, round=number, reason=str(error))
    return of_run(read_json(directory / RUN_FOLDER / ANALYSIS_FILE, Analysis), point, number)


def _emulation(given: dict[str, Any]) -> str | None:
    """Why a point would measure how slow an emulated precision is; None for others."""
    from rooflines.device_specs.measure_torch import emulation
    from rooflines.profiler.options import find_device

    precision = str(given.get("precision", "fp32"))
    return emulation(find_device(given.get("device", "auto")), precision) if "16" in precision else None


def of_run(analysis: Analysis, point: SweepPoint, number: int) -> PointResult:
    """The values of a run."""
    steps, totals, usage = analysis.steps, analysis.totals, analysis.usage
    batch = analysis.workload.batch_size
    environment = analysis.environment
    bounds = analysis.bound_breakdown or {}
    values: _Values = {}
    if steps is not None:
        values |= {
            "step_s": steps.median_s,
            "samples_per_s": steps.samples_per_s,
            "sample_s": steps.median_s / batch if batch else None,
            "first_step_s": steps.first_s,
            "compile_s": steps.compile_s,
        }
        if steps.ci95_s is not None:
            values |= {"step_low_s": steps.ci95_s[0], "step_high_s": steps.ci95_s[1]}
    values["peak_memory_bytes"] = analysis.memory.peak_bytes if analysis.memory is not None else None
    if totals is not None and totals.flops is not None and steps is not None:
        values |= {
            "flops": totals.flops,
            "matrix_flops": totals.matrix_flops,
            "bytes": totals.bytes,
            "intensity_flop_per_byte": totals.flops / totals.bytes if totals.bytes else None,
            "flop_per_s": totals.flops / steps.median_s,
            "lower_bound_s": totals.lower_bound_s,
            "efficiency": totals.efficiency,
        }
    if usage is not None:
        values |= {
            "energy_per_step_j": usage.energy_per_step_j,
            "energy_per_sample_j": usage.energy_per_sample_j,
        }
        for one in usage.devices:
            where = "host" if one.device == "host" else "device"
            for gauge in (
                "gpu_utilization",
                "cpu_utilization",
                "temperature_c",
                "process_threads",
                "process_count",
            ):
                if gauge in one.gauges:
                    values[f"{where}_{gauge}"] = one.gauges[gauge].mean
            values[f"{where}_power_w"] = one.mean_power_w
    if analysis.input is not None:
        values["input_fraction"] = analysis.input.wait_fraction
    if analysis.output_error is not None:
        values |= {
            "output_error": analysis.output_error.relative,
            "same_class": analysis.output_error.same_class,
        }
    values["others_cores"] = analysis.other_programs.busy if analysis.other_programs is not None else None
    return PointResult(
        point=point.id,
        round=number,
        values=_known(values),
        facts={
            "device": environment.device,
            "device_name": environment.device_name,
            "verdict": analysis.verdict,
            "limited_by": analysis.limited_by or max(bounds, key=lambda name: bounds[name], default=""),
            "data": analysis.workload.data or "",
        },
        run=RUN_FOLDER,
        notes=analysis.notes if number == 0 else (),
    )


def _of_training(training: Training, point: SweepPoint, number: int) -> PointResult:
    epochs = [epoch for one in training.results for epoch in one.epochs]
    later = [epoch for one in training.results for epoch in one.epochs[1:]] or epochs
    total = sum(epoch.epoch_s for epoch in later)
    # Labels of synthetic images mean nothing.
    values: _Values = {
        "epochs": len(epochs),
        "accuracy": training.accuracy if training.data.real else None,
        "epoch_s": training.epoch_s,
        "peak_memory_bytes": training.peak_memory_bytes,
        "others_cores": training.others_cores,
    }
    if later:
        values |= {
            "train_loss": epochs[-1].train_loss,
            "input_fraction": sum(epoch.input_s for epoch in later) / total,
            "samples_per_s": sum(epoch.samples_per_s * epoch.epoch_s for epoch in later) / total,
            "training_s": sum(epoch.epoch_s for epoch in epochs) / max(1, len(training.results)),
            "first_step_s": next(
                (epoch.first_step_s for epoch in epochs if epoch.first_step_s is not None), None
            ),
            "test_samples_per_s": training.data.test_samples / min(epoch.test_s for epoch in epochs),
        }
    failure = next((one.failure for one in training.results if one.failure is not None), None)
    environment = training.environment
    facts = {
        "device": environment.device,
        "device_name": environment.device_name,
        "data": training.data.label,
    }
    reason = f"{failure.what}." if failure is not None else None
    return PointResult(
        point=point.id, round=number, values=_known(values), facts=facts, run=RUN_FOLDER, reason=reason
    )


def _known(values: _Values) -> dict[str, float]:
    return {
        name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)
    }
