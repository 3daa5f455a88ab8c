"""The page of the study of a training's profile: operators, steps, utilization, one and two GPUs, inference
and accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rooflines import Analysis
from rooflines.ext import (
    ANALYSIS_FILE,
    Section,
    SweepRow,
    counted,
    division_table,
    longest_first,
    operator_table,
    percent,
    read_json,
    seconds,
    section,
    significant,
    steps_table,
    timeline_figure,
    usage_table,
    usage_timeline,
)
from rooflines_studies.study import Study, decided, device_of, read_study
from rooflines_studies.tables import printed

_FOLDER = Path(__file__).parent
TRAIN_IMAGES, EPOCHS = 8_000, 20
# Waiting for data for this share of a step is what sets its pace.
_WAITS = 0.3


def paper() -> dict[str, Mapping[str, Any]]:
    """Return the values of the paper as printed: by quantity, then by column, with the unit and the place."""
    return {row["quantity"]: row for row in printed(_FOLDER / "training_profile_densenet121.csv")}


def analysis_of(row: SweepRow) -> Analysis | None:
    """Return the analysis of the run of a row; None where it has none."""
    path = Path(row.run or "") / ANALYSIS_FILE
    return read_json(path, Analysis) if row.run is not None and path.is_file() else None


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    for row, analysis in _traced(study)[-1:]:
        yield _verdict(row, analysis)
        first, step = row.value("first_step_s"), row.value("step_s")
        if first is not None and step:
            yield (
                f"The first step takes {seconds(first)}, {significant(first / step)} × a later "
                f"one ({seconds(step)}): libraries load "
                "and memory is allocated. It is in no operator's time here. The paper's list, "
                "which the copies of data and model "
                "lead, probably includes it."
            )
        yield from _copies(analysis)
        waits = row.value("input_fraction")
        if waits is not None:
            what = "the input pipeline sets the pace" if waits >= _WAITS else "the input pipeline keeps up"
            yield f"A step waits for its data for {percent(waits)} of its time: {what}."
    yield from _several_gpus(study)
    for row in study.part("inference"):
        if sample_s := row.value("sample_s"):
            first_s, theirs = row.value("first_step_s") or 0.0, paper()["inference of one image"]
            text = f"Inference on {device_of(row)}: {seconds(sample_s)} per image at batch 1"
            if max(sample_s, first_s) < float(theirs["gpu_batch_64"].partition(" ")[0]):
                text += (
                    f", first step {seconds(max(sample_s, first_s))}. The paper's "
                    f"{theirs['cpu']:g} s on a CPU and "
                    f"{theirs['gpu_batch_64']} s on a GPU are longer than that, so they must "
                    "contain something else, such as start-up"
                )
            yield f"{text}."
    for row in study.part("accuracy"):
        if row.reason:
            yield (
                f"Learning rate {row.point.options.get('learning_rate')} on "
                f"{row.facts.get('device', 'this machine')}: {row.reason}"
            )


def _traced(study: Study) -> list[tuple[SweepRow, Analysis]]:
    """The training runs with their analyses, the largest batch of the first device last."""
    found = [
        (row, one)
        for row in study.part("training")
        if (one := analysis_of(row)) is not None and one.operators
    ]
    first = device_of(found[0][0]) if found else ""
    return sorted(
        found, key=lambda pair: (device_of(pair[0]) == first, int(pair[0].point.options["batch_size"]))
    )


def _verdict(row: SweepRow, analysis: Analysis) -> str:
    rate = row.value("samples_per_s") or 0.0
    hours = _hours(row) or 0.0
    shares = analysis.category_breakdown or {}
    whole = sum(shares.values())
    most = max(shares, key=lambda name: shares[name]) if shares else ""
    share = f"; {most} takes {percent(shares[most] / whole)} of the busy time" if most and whole else ""
    return (
        f"Training DenseNet-121 at batch {row.point.options['batch_size']} on {device_of(row)}: "
        f"{significant(rate)} images/s, "
        f"{hours:.1f} h for {EPOCHS} epochs of {TRAIN_IMAGES:,} images (projected){share}."
    )


def _copies(analysis: Analysis) -> Iterator[str]:
    """Where copies and conversions stand without the start-up."""
    names = ("aten::to", "aten::_to_copy", "aten::copy_")
    times = longest_first((row.name, row.time_s) for row in analysis.operators)
    total = sum(times.values())
    if total:
        copies, (top, most) = sum(times.get(name, 0.0) for name in names), next(iter(times.items()))
        yield (
            f"Copies and conversions (aten::to, copy_) take {percent(copies / total, 1)} of the "
            "operators' time; the operator with the "
            f"most is {top} with {percent(most / total, 1)}."
        )


def _several_gpus(study: Study) -> Iterator[str]:
    alone = {
        row.point.options["batch_size"]: row.estimates.get("samples_per_s") for row in study.part("training")
    }
    for row in study.part("two GPUs"):
        batch, two = row.point.options["batch_size"], row.estimates.get("samples_per_s")
        one = alone.get(batch)
        if one and two:
            yield from decided(
                [(f"DataParallel at batch {batch}", two, "one GPU", one)], "trains", "many images/s"
            )
            yield (
                "DataParallel copies the parameters to every GPU and gathers outputs and "
                "gradients on the first one in each step, so "
                "that one works and holds more than the others."
            )
    if not any(row.value("samples_per_s") for row in study.part("two GPUs")):
        yield read_study(_FOLDER).remarks["clash"]


def sections(study: Study) -> tuple[Section, ...]:
    """The operators, steps and utilization of one run in detail."""
    parts: list[Section] = []
    for row, analysis in _traced(study)[-1:]:
        of = f"batch {row.point.options['batch_size']} on {device_of(row)}"
        used = usage_table(analysis), timeline_figure(usage_timeline(analysis))
        parts += [
            section("steps", f"Time per step, {of}", division_table(analysis), steps_table(analysis)),
            section("operators", f"Operators, {of}", operator_table(analysis)),
            section("usage", f"Utilization during the timed steps, {of}", *used),
        ]
    return tuple(parts)


def notes(study: Study) -> dict[str, str]:
    """What an accuracy depends on."""
    options = next((row.point.options for row in study.part("accuracy")), None)
    if options is None:
        return {}
    epochs = counted(int(options["epochs"]), "epoch")
    return {"accuracy": f"Batch {options['batch_size']}, {epochs}, Adam, seed {options.get('seed', 0)}."}


def _hours(row: SweepRow) -> float | None:
    """The hours of the paper's training at the rate of a row."""
    rate = row.value("samples_per_s")
    return TRAIN_IMAGES * EPOCHS / rate / 3600 if rate and row.point.part != "inference" else None


VALUES = {"hours": _hours, "remark": lambda row: row.reason or row.facts.get("data", "")}
