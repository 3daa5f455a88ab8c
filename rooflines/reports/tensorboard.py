"""The analysis as TensorBoard event files, so that ``tensorboard --logdir`` on a folder of runs shows and compares them."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.figure import roofline_figure, steps_figure
from rooflines.reports.rows import module_text, table_rows
from rooflines.reports.sentences import (
    ceiling_name,
    ceiling_scope,
    conditions_words,
    coverage_sentence,
    headline,
    missing_ceilings,
    missing_operators,
    roof_order,
    saving,
    source_and_age,
    status_sentence,
    steps_sentences,
    subject,
)
from rooflines.reports.summary import step_time
from rooflines.reports.tables import operator_name
from rooflines.reports.usage_figure import usage_figure
from rooflines.reports.usage_sentences import usage_sentences
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.usage.device_usage import THROTTLED, held_down
from rooflines.units import percent, seconds, si

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

# Ours end in this, so that writing again replaces them and leaves the training's own event files alone.
SUFFIX = ".rooflines"
_OPERATORS = 25
_NANOSECONDS_PER_SECOND = 1e9


def write(analysis: Analysis, directory: Path, samples: Sequence[DeviceSample] = ()) -> Path:
    """Write the analysis and the device samples into ``directory`` as one event file, and return its path.

    An event file that an earlier call left there is replaced, so that no curve is drawn twice.
    """
    from torch.utils.tensorboard import SummaryWriter

    directory.mkdir(parents=True, exist_ok=True)
    for earlier in _event_files(directory):
        earlier.unlink()
    with SummaryWriter(str(directory), filename_suffix=SUFFIX) as writer:
        _steps(analysis, writer)
        _samples(samples, writer)
        _step_marks(analysis, samples, writer)
        metrics = dict(_metrics(analysis))
        for name, value in metrics.items():
            writer.add_scalar(name, value)
        _image(writer, "roofline", roofline_figure(analysis, width_in=10, height_in=6))
        _image(writer, "step times", steps_figure(analysis, width_in=10, height_in=2.4))
        devices = usage_figure(analysis, width_in=10)
        if devices is not None:
            _image(writer, "devices", devices)
        writer.add_text("report", _report(analysis))
        writer.add_text("operators", _operators(analysis))
        writer.add_text("ceilings", _ceilings(analysis))
        _hyperparameters(analysis, metrics, writer)
    return _event_files(directory)[-1]


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"events.out.tfevents.*{SUFFIX}"))


def _steps(analysis: Analysis, writer: SummaryWriter) -> None:
    if analysis.steps is None:
        return
    for number, duration_s in enumerate(analysis.steps.durations_s):
        writer.add_scalar("step/time_s", duration_s, number)
        if analysis.workload.batch_size is not None and duration_s > 0:
            writer.add_scalar(f"step/{analysis.workload.unit}_per_s", analysis.workload.batch_size / duration_s, number)


def _samples(samples: Sequence[DeviceSample], writer: SummaryWriter) -> None:
    """Every field that was measured as a curve of its device; the horizontal axis counts milliseconds from the first sample."""
    start_ns = min((sample.time_ns for sample in samples), default=0)
    for sample in samples:
        values = sample.numbers()
        if sample.throttle_reasons is not None:
            values[THROTTLED] = float(bool(held_down(sample.throttle_reasons)))
        milliseconds = (sample.time_ns - start_ns) // 1_000_000
        for field, value in values.items():
            writer.add_scalar(f"{sample.device}/{field}", value, milliseconds, walltime=sample.time_ns / _NANOSECONDS_PER_SECOND)


def _step_marks(analysis: Analysis, samples: Sequence[DeviceSample], writer: SummaryWriter) -> None:
    """How many timed steps had ended, on the axis of the samples, so that curves can be laid beside steps."""
    usage, steps = analysis.usage, analysis.steps
    if usage is None or usage.window != "timed pass" or steps is None or not samples:
        return
    start_ns = min(sample.time_ns for sample in samples)
    for number, ended_s in enumerate(accumulate(steps.durations_s, initial=0.0)):
        time_ns = usage.began_ns + round(ended_s * _NANOSECONDS_PER_SECOND)
        milliseconds = (time_ns - start_ns) // 1_000_000
        writer.add_scalar("step/ended", number, milliseconds, walltime=time_ns / _NANOSECONDS_PER_SECOND)


def _metrics(analysis: Analysis) -> Iterator[tuple[str, float]]:
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
        "modelled_time_fraction": coverage.modelled_time_fraction if coverage else None,
    }
    for one in usage.devices if usage else ():
        busy = one.gauges.get("gpu_utilization") or one.gauges.get("cpu_utilization")
        values[f"{one.device}/mean_power_w"] = one.mean_power_w
        values[f"{one.device}/busy"] = busy.mean if busy else None
        values[f"{one.device}/throttled_s"] = one.throttled_s
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"summary/{name}", float(value)


def _hyperparameters(analysis: Analysis, metrics: dict[str, float], writer: SummaryWriter) -> None:
    """What was run as hyperparameters. They go into this event file: ``add_hparams`` would start a run of its own beside it."""
    from torch.utils.tensorboard.summary import hparams

    workload, environment = analysis.workload, analysis.environment
    settings: dict[str, Any] = {
        "model": workload.name,
        "mode": workload.mode,
        "batch_size": workload.batch_size,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "image_size": workload.image_size,
        "channels_last": _yes(workload.channels_last),
        "compiled": _yes(workload.compiled),
        "device": environment.device_name,
        "threads": environment.threads,
        "torch": environment.torch,
    }
    known = {name: value for name, value in settings.items() if value is not None}
    for summary in hparams(known, metrics):  # type: ignore[no-untyped-call]
        writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]


def _image(writer: SummaryWriter, tag: str, figure: Figure) -> None:
    import numpy as np
    from matplotlib.image import imread

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    buffer.seek(0)
    pixels = (imread(buffer, format="png")[..., :3] * 255).astype(np.uint8)
    writer.add_image(tag, pixels, dataformats="HWC")


def _report(analysis: Analysis) -> str:
    paragraphs = [f"**{_inert(headline(analysis))}**", _inert(subject(analysis))]
    status, coverage = status_sentence(analysis), coverage_sentence(analysis)
    said = (status, *steps_sentences(analysis), *usage_sentences(analysis), coverage, *analysis.notes)
    paragraphs += [_inert(text) for text in said if text]
    for finding in analysis.findings:
        title = f"**{_inert(finding.title)}**: {_inert(saving(finding.saves_s, analysis))}"
        paragraphs.append(f"- {title}. {_inert(finding.evidence)}. Try {_inert(finding.suggestion)}")
    return "\n\n".join(paragraphs)


def _operators(analysis: Analysis) -> str:
    missing = missing_operators(analysis)
    if missing:
        return _inert(missing)
    whole = step_time(analysis) or math.nan
    lines = [
        "| time % | operator | module | shapes | calls | time | efficiency | bound | headroom |",
        "|--:|:--|:--|:--|--:|--:|--:|:--|--:|",
    ]
    for one in table_rows(analysis)[:_OPERATORS]:
        row = one.row
        cells = [
            f"{row.time_s / whole * 100:.1f}", operator_name(row), module_text(one), row.shapes, f"{row.calls:.4g}",
            seconds(row.time_s), "–" if row.efficiency is None else percent(row.efficiency), one.bound,
            "–" if row.headroom_s is None else f"{'-' if row.headroom_s < 0 else ''}{seconds(abs(row.headroom_s))}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(_inert(cell) for cell in cells)} |")
    return "\n".join(lines)


def _ceilings(analysis: Analysis) -> str:
    missing = missing_ceilings(analysis)
    if missing:
        return _inert(missing)
    lines = ["| ceiling | for | value | ± % | source | how |", "|:--|:--|--:|--:|:--|:--|"]
    for roof in roof_order(analysis.ceilings):
        how = "; ".join(text for text in (roof.source.detail, conditions_words(roof.conditions)) if text)
        cells = [
            ceiling_name(roof), ceiling_scope(roof), si(roof.value, roof.unit),
            "–" if roof.spread is None else f"{roof.spread * 100:.1f}", source_and_age(roof, analysis.created), how,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(_inert(cell) for cell in cells)} |")
    return "\n".join(lines)


def _inert(text: str) -> str:
    """``text`` with whatever TensorBoard's Markdown would read as markup written as itself."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+|!" else character for character in escaped)


def _yes(value: bool) -> str:
    # TensorBoard would show a bool as 0.0 or 1.0.
    return "yes" if value else "no"
