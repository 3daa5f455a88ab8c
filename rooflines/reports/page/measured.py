"""What a record gives besides its page: step times and device samples as curves, the settings, and the
figures by which runs are compared (for TensorBoard); and the tables of an analysis as files that pandas and
spreadsheets read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.document import CurvePoint, Measured
from rooflines.reports.words.text import csv_text
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.usage.device_usage import THROTTLED, MonitorAnalysis, held_down
from rooflines.roofline.predict.options import FACTS

# TensorBoard itself shows a thousand points of a curve; samples.csv has all.
MOST_READINGS = 5_000
_NANOSECONDS = 1e9


def of_run(analysis: Analysis, samples: Sequence[DeviceSample]) -> Measured:
    """What was measured of a run."""
    points = (*_steps(analysis), *_samples(samples, of_run=True), *_step_marks(analysis, samples))
    return Measured(points=points, summary=dict(_summary(analysis)), settings=_settings(analysis))


def of_program(analysis: MonitorAnalysis, samples: Sequence[DeviceSample]) -> Measured:
    """What was measured of a monitored program. Very long series are thinned evenly; nothing is drawn, which
    would load a library."""
    totals: dict[str, float | None] = {"wall_s": analysis.window_s}
    if analysis.ending:
        totals["cpu_s"] = analysis.ending.user_cpu_s + analysis.ending.system_cpu_s
        totals["exit_code"] = analysis.ending.exit_code
    for one in analysis.usage.devices if analysis.usage else ():
        totals |= {f"{one.device}/{name}_highest": gauge.highest for name, gauge in one.gauges.items()}
        totals |= {f"{one.device}/{name}": count for name, count in one.counts.items()}
        totals[f"{one.device}/energy_j"] = one.energy.energy_j if one.energy else None
    summary = {name: float(value) for name, value in totals.items() if value is not None}
    return Measured(points=tuple(_samples(thinned(samples), of_run=False)), summary=summary, pictures=False)


def _steps(analysis: Analysis) -> Iterator[CurvePoint]:
    if not analysis.steps:
        return
    for number, duration_s in enumerate(analysis.steps.durations_s):
        yield CurvePoint("step/time_s", duration_s, number)
        if analysis.workload.batch_size is not None and duration_s > 0:
            yield CurvePoint(
                f"step/{analysis.workload.unit}_per_s", analysis.workload.batch_size / duration_s, number
            )


def _samples(samples: Sequence[DeviceSample], *, of_run: bool) -> Iterator[CurvePoint]:
    """The curves of the fields that changed, and of those that other packages declare.

    TensorBoard sorts by name, and a constant clock would be the first that it shows.
    """
    points = list(_readings(samples, of_run=of_run))
    readings = Counter(point.tag for point in points)
    distinct = Counter(tag for tag, _ in {(point.tag, point.value) for point in points})
    declared = {f"{sample.device}/{field}" for sample in samples for field in sample.more}
    return (
        point
        for point in points
        if distinct[point.tag] > 1 or readings[point.tag] == 1 or point.tag in declared
    )


def _readings(samples: Sequence[DeviceSample], *, of_run: bool) -> Iterator[CurvePoint]:
    """Every field that was measured by device; the horizontal axis counts milliseconds from the first
    sample."""
    start_ns = min((sample.time_ns for sample in samples), default=0)
    for sample in samples:
        values = sample.numbers()
        if of_run and sample.throttle_reasons is not None:
            values[THROTTLED] = float(bool(held_down(sample.throttle_reasons)))
        milliseconds = (sample.time_ns - start_ns) // 1_000_000
        for field, value in values.items():
            yield CurvePoint(f"{sample.device}/{field}", value, milliseconds, sample.time_ns / _NANOSECONDS)


def thinned(samples: Sequence[DeviceSample]) -> list[DeviceSample]:
    """At most MOST_READINGS samples of each source and device, evenly, in the order given."""
    series = Counter((sample.source, sample.device) for sample in samples)
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for sample in samples:
        key = (sample.source, sample.device)
        if seen[key] % -(-series[key] // MOST_READINGS) == 0:
            kept.append(sample)
        seen[key] += 1
    return kept


def _step_marks(analysis: Analysis, samples: Sequence[DeviceSample]) -> Iterator[CurvePoint]:
    """How many timed steps had ended, on the axis of the samples, so that curves can be compared with
    steps."""
    usage, steps = analysis.usage, analysis.steps
    if not usage or usage.window != "timed pass" or not steps or not samples:
        return
    start_ns = min(sample.time_ns for sample in samples)
    for number, ended_s in enumerate(accumulate(steps.durations_s, initial=0.0)):
        time_ns = usage.began_ns + round(ended_s * _NANOSECONDS)
        yield CurvePoint("step/ended", number, (time_ns - start_ns) // 1_000_000, time_ns / _NANOSECONDS)


def _summary(analysis: Analysis) -> Iterator[tuple[str, float]]:
    """The figures of a whole run by which runs are compared; what was not measured is absent."""
    steps, totals, timeline, coverage = analysis.steps, analysis.totals, analysis.timeline, analysis.coverage
    usage = analysis.usage
    values: dict[str, float | None] = {
        "median_step_s": steps.median_s if steps else None,
        "samples_per_s": steps.samples_per_s if steps else None,
        "profiler_dilation": steps.profiler_dilation if steps else None,
        "flops": totals.flops if totals else None,
        "bytes": totals.bytes if totals else None,
        "operator_time_s": totals.time_s if totals else None,
        "lower_bound_s": totals.lower_bound_s if totals else None,
        "efficiency": totals.efficiency if totals else None,
        "energy_j": usage.energy_per_step_j if usage else totals.energy_j if totals else None,
        "peak_memory_bytes": analysis.memory.peak_bytes if analysis.memory else None,
        "energy_per_sample_j": usage.energy_per_sample_j if usage else None,
        "flop_per_j": usage.flop_per_j if usage else None,
        "idle_s": timeline.idle_s if timeline else None,
        "modeled_time_fraction": coverage.modeled_time_fraction if coverage else None,
    }
    for one in usage.devices if usage else ():
        busy = one.gauges.get("gpu_utilization") or one.gauges.get("cpu_utilization")
        values[f"{one.device}/mean_power_w"] = one.mean_power_w
        values[f"{one.device}/busy"] = busy.mean if busy else None
        values[f"{one.device}/throttled_s"] = one.throttled_s
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield name, float(value)


def _settings(analysis: Analysis) -> dict[str, Any]:
    """What was run, for comparing runs by it; what is not known is absent."""
    workload, environment = analysis.workload, analysis.environment
    settings: dict[str, Any] = {
        "model": workload.name,
        "mode": workload.mode,
        "batch_size": workload.batch_size,
        "precision": workload.precision,
        "image_size": workload.image_size,
        # TensorBoard would show a bool as 0.0 or 1.0.
        **{fact.field: fact.value(workload) for fact in FACTS if fact.field != "compile_mode"},
        "device": environment.device_name,
        "threads": environment.threads,
        "torch": environment.torch,
    }
    if workload.compile_mode:
        settings["compiled"] = workload.compile_mode
    return {name: value for name, value in settings.items() if value is not None}


def write_csv(analysis: Analysis, directory: Path) -> list[Path]:
    """Write ``operators.csv``, ``modules.csv`` and ``steps.csv`` into ``directory`` and return their paths.

    A cell of text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in ("operators", "modules", "steps"):
        columns = analysis.columns(name)
        paths.append(directory / f"{name}.csv")
        paths[-1].write_text(
            csv_text([*columns], zip(*columns.values(), strict=True)), encoding="utf-8", newline=""
        )
    return paths


def write_parquet(analysis: Analysis, path: Path) -> Path:
    """Write the operators to ``path`` as Parquet, names as they are, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    analysis.to_dataframe().to_parquet(path, engine="pyarrow", index=False)
    return path
