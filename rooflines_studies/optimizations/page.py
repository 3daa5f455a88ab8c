"""The page of the study of optimizations: the paper's four bar charts, the variants' accuracy, the sweep over
batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rooflines import RooflinesError
from rooflines.ext import (
    ABSENT,
    SERIES_COLORS,
    Beam,
    Beams,
    Block,
    CellValue,
    Column,
    Figure,
    Section,
    SweepRow,
    Table,
    Tuning,
    VariantResult,
    binary_bytes,
    counted,
    curves_section,
    grouped,
    load_training,
    load_tuning,
    or_absent,
    percent,
    seconds,
    section,
    significant,
    table,
)
from rooflines_studies.study import Study, device_of, model_of, read_study
from rooflines_studies.tables import printed, value_text

# More right than this of ten classes is no chance.
_LEARNED = 0.2
_WAITS = 0.1  # waiting for less of an epoch is not worth a sentence
_FOLDER = Path(__file__).parent
# What else differs from the network in fp32.
_AS = {"fp32": "in fp32", "qat": "as int8 after one more epoch with rounding", "compile": "compiled"}


def configuration(row: SweepRow) -> str:
    """``default``, ``bf16``, ``compiled``, ``tuned`` (the best trial of a search): what is special about a
    row."""
    options = row.point.options
    if row.point.part == "tune":
        return "tuned"
    parts = [
        str(options.get(name, ""))
        for name in ("precision", "quantize")
        if options.get(name, "fp32") not in ("fp32", "none")
    ]
    parts += ["compiled"] if options.get("compile", "off") != "off" else []
    return " · ".join(part for part in parts if part) or "default"


def findings(study: Study) -> Iterator[str]:
    """What each optimization gave, beside the default on the same device."""
    remarks = read_study(_FOLDER).remarks
    gains = [
        ("latency", "sample_s", "time per image in inference"),
        ("train", "epoch_s", "time per epoch of training"),
    ]
    for part, name, what in gains:
        yield from _gains(study, part, name, what)
    yield from _dynamic(study, remarks["dynamic"])
    on_cpu = [row for row in study.part("latency") if _on_cpu(row)]
    for model in dict.fromkeys(map(model_of, on_cpu)):
        sizes = {
            configuration(row): row.value("peak_memory_bytes") or 0.0
            for row in on_cpu
            if model_of(row) == model
        }
        plain, static = sizes.get("default", 0.0), sizes.get("static-int8", 0.0)
        if 0 < plain < static:
            yield remarks["static"].format(
                model=model, static=binary_bytes(static), plain=binary_bytes(plain)
            )
    half = [
        (row, row.value("accuracy") or 0.0)
        for row in study.part("train")
        if configuration(row).startswith("amp")
    ]
    real = [(row, accuracy) for row, accuracy in half if accuracy]
    if real and all(accuracy > _LEARNED for _, accuracy in real):
        listed = (f"{model_of(row)} {percent(accuracy, 1)} in {configuration(row)}" for row, accuracy in real)
        yield remarks["half"].format(listed=", ".join(listed))
    for row in study.part("train"):
        if row.reason:
            yield f"{row.point.label}: {row.reason}"
    for model, variants in _variants(study):
        shares = [
            f"{percent(one.accuracy, 1)} {_AS.get(one.name, f'as {one.name}')}"
            for one in variants
            if one.accuracy is not None
        ]
        if shares:
            yield f"{model}, correct on real labels: {', '.join(shares)}."
    for row in study.part("tune"):
        if "verdict" in row.facts:
            yield f"{model_of(row)} on {device_of(row)}, tuned: {row.facts['verdict']}"
    for row in study.part("train"):
        waits = row.value("input_fraction") or 0.0
        if waits >= _WAITS:
            yield (
                f"{row.point.label} on {device_of(row)} waits for the data loader for "
                f"{percent(waits)} of an epoch."
            )
    for part, name, what in gains:
        yield from _undecided(study, part, name, what)


def _dynamic(study: Study, remark: str) -> Iterator[str]:
    """Dynamic int8 converts linear layers after training, which are next to nothing of these networks."""
    ours = [
        row
        for row in reversed(study.part("latency"))
        if model_of(row) == "resnet18" and row.value("sample_s")
    ]
    timed = {configuration(row): row for row in ours}
    base, converted = timed.get("default"), timed.get("dynamic-int8")
    if base is not None and converted is not None:
        judged = _interval(base, "sample_s") and _interval(converted, "sample_s")
        here = f"Here the speed-up per image is {_speedup(base, converted, 'sample_s')}. " if judged else ""
        yield remark.format(here=here)


def _on_cpu(row: SweepRow) -> bool:
    return str(row.point.options.get("device", "cpu")).startswith("cpu")


def _compared(study: Study, part: str, name: str) -> Iterator[tuple[str, str, SweepRow, dict[str, SweepRow]]]:
    """Network, device, its default and the variants that have the value ``name`` as well."""
    found: dict[tuple[str, str], dict[str, SweepRow]] = {}
    for row in study.part(part):
        if row.value(name):
            found.setdefault((model_of(row), device_of(row)), {})[configuration(row)] = row
    for (model, device), ours in found.items():
        base = ours.pop("default", None)
        if base is not None and ours:
            yield model, device, base, ours


def _gains(study: Study, part: str, name: str, what: str) -> Iterator[str]:
    """The variants of each network and device over its default, where there is an interval over rounds."""
    for model, device, base, ours in _compared(study, part, name):
        known = {label: row for label, row in ours.items() if _interval(base, name) and _interval(row, name)}
        if known:
            parts = ", ".join(f"{label} {_speedup(base, row, name)}" for label, row in known.items())
            yield (
                f"{model} on {device}, speed-up of the {what} over the default "
                f"({seconds(base.value(name) or 1.0)}): {parts}."
            )


def _undecided(study: Study, part: str, name: str, what: str) -> Iterator[str]:
    """The networks whose variants have no interval over rounds: processes of one network differ by more than
    its steps do."""
    unknown = [
        f"{model} on {device}"
        for model, device, base, ours in _compared(study, part, name)
        if not all(_interval(row, name) for row in (base, *ours.values()))
    ]
    if unknown:
        yield (
            f"The rounds do not decide by how much the {what} differs between configurations of "
            f"{', '.join(unknown)}. At least three "
            "rounds (--repeats) on an idle machine can."
        )


def _interval(row: SweepRow, name: str) -> tuple[float, float] | None:
    """The interval over several rounds."""
    found = row.estimates[name]
    return None if found.low is None or found.high is None or row.rounds < 2 else (found.low, found.high)


def _speedup(base: SweepRow, row: SweepRow, name: str) -> str:
    """How many times faster ``row`` is, with a remark unless the intervals are apart."""
    a, b = _interval(base, name), _interval(row, name)
    sure = a and b and (a[1] < b[0] or b[1] < a[0])
    return (
        f"{significant((base.value(name) or 1.0) / (row.value(name) or 1.0))} "
        f"×{'' if sure else ' (within the noise)'}"
    )


def sections(study: Study) -> tuple[Section, ...]:
    """The values in the paper's text with what was measured here in the same configuration, its figures, and
    what the tables of the file do not show."""
    values = printed(_FOLDER / "optimizations_text.csv")
    rows = (
        (one["quantity"], f"{value_text(one['value'])} {one['unit']}", _here(study, one), one["where"])
        for one in values
    )
    columns = [
        Column(name, format="text", priority=2 * (name == "where"))
        for name in ("quantity", "paper", "here", "where")
    ]
    note = (
        "The paper's figures are pictures without numbers; these are the values that its text gives. "
        "Here: lowest to highest."
    )
    text = table("text", columns, rows, title="Values of the paper's text", note=note, show="always")
    return (
        section("summary", "", text),
        section("figures", "", *_figures(study)),
        section("variants", "", _variant_table(study)),
        curves_section(study.part("sweep"), {}),
    )


def notes(study: Study) -> dict[str, str]:
    """What the accuracies depend on: batch, learning rate, epochs, seeds and data."""
    settings = {}
    for options in (row.point.options for row in study.part("train")):
        seeds = f"{counted(int(options.get('seeds', 1)), 'seed')} from {options.get('seed', 0)}"
        epochs = counted(int(options["epochs"]), "epoch")
        settings[
            f"batch {options['batch_size']}, learning rate {options['learning_rate']}, {epochs}, {seeds}"
        ] = True
    data = dict.fromkeys(row.facts["data"] for row in study.part("tune") if row.facts.get("data"))
    return {
        "configurations": f"Training: {'; '.join(settings)}." if settings else "",
        "tuned": f"Data: {'; '.join(data)}.",
    }


def _here(study: Study, one: Mapping[str, Any]) -> str:
    """What the row says to stand beside it, on the same kind of device and, where the text names one, in the
    same configuration."""
    part, _, name = (one["beside"] or "").partition(".")
    models = [
        model
        for model, word in (("resnet18", "ResNet-18"), ("mobilenet_v2", "MobileNetV2"))
        if word in one["quantity"]
    ]
    rows = [
        row
        for row in study.part(part)
        if _on_cpu(row) == (one["device"] == "cpu")
        and one["configuration"] in (configuration(row), "all", "not given")
        and (not models or model_of(row) in models)
        and row.value(name)
    ]
    values = {
        model: sorted(row.value(name) or 0.0 for row in ours)
        for model, ours in grouped(rows, model_of).items()
    }
    ranges = {
        model: dict.fromkeys((_shown(name, ours[0]), _shown(name, ours[-1])))
        for model, ours in values.items()
    }
    return ", ".join(f"{model} {' to '.join(ends)}" for model, ends in ranges.items()) or ABSENT


def _figures(study: Study) -> Iterator[Block]:
    timed = [row for row in study.part("latency") if device_of(row)]
    data = {_images(row) for row in study.part("train") if device_of(row)}
    # A search stands beside the trainings where it had the same data, and as many images of it.
    trained = [
        row for row in (*study.part("train"), *study.part("tune")) if device_of(row) and _images(row) in data
    ]
    real = [row for row in trained if row.value("accuracy")] or [
        row for row in study.part("accuracy") if device_of(row)
    ]
    for name, rows, value, x_title, caption in (
        ("epoch-time", trained, "epoch_s", "time per epoch", "Time per epoch of training."),
        ("accuracy", real, "accuracy", "share of the test images that are right", "Accuracy after training."),
        ("peak-memory", trained, "peak_memory_bytes", "peak memory", "Peak memory of training."),
        ("latency", timed, "sample_s", "time per image", "Time per image of inference, batch 1."),
    ):
        beams = tuple(
            Beam(
                color=SERIES_COLORS[study.devices.index(device_of(row)) % len(SERIES_COLORS)],
                label=f"{model_of(row)} {configuration(row)}",
                value=row.value(value) or 0.0,
                text=_shown(value, row.value(value) or 0.0)
                + f", {device_of(row)}" * (len(study.devices) > 1),
            )
            for row in sorted(rows, key=lambda row: (study.devices.index(device_of(row)), model_of(row)))
            if row.value(value)
        )
        if beams:
            labels = "; ".join(dict.fromkeys(row.facts["data"] for row in rows if row.facts.get("data")))
            text = f"{caption}{f' Data: {labels}.' if labels else ''}"
            yield Figure(name=name, caption=text, drawing=Beams(x_title=x_title, beams=beams))


def _images(row: SweepRow) -> tuple[Any, ...]:
    return row.facts.get("data"), row.point.options.get("train_samples")


def _shown(name: str, value: float) -> str:
    if name == "accuracy":
        return percent(value, 1)
    return binary_bytes(value) if name.endswith("_bytes") else seconds(value)


def _variants(study: Study) -> Iterator[tuple[str, tuple[VariantResult, ...]]]:
    """The variants that the trainings tested, by network."""
    for row in (*study.part("accuracy"), *study.part("train")):
        if row.run is None:
            continue
        try:
            training = load_training(Path(row.run))
        except RooflinesError:
            continue
        if training.variants and training.data.real:
            yield model_of(row), training.variants


def _variant_table(study: Study) -> Table | None:
    rows = []
    for model, variants in _variants(study):
        for one in variants:
            error, same = (
                (one.error.relative, one.error.same_class) if one.error is not None else (None, None)
            )
            rows.append(
                (
                    model,
                    one.name,
                    or_absent(one.accuracy, ".1f", 100),
                    or_absent(same, ".1f", 100),
                    or_absent(error, ".1e"),
                    or_absent(one.sample_s, significant, 1e6),
                    one.reason or "; ".join(one.notes),
                )
            )
    columns = (
        Column("network", format="text"),
        Column("variant", format="text"),
        Column("accuracy", "%"),
        Column("same class", "%", priority=1),
        Column("error"),
        Column("time per image", "µs", priority=1),
        Column("remark", format="text", priority=2),
    )
    note = (
        "The trained network in other precisions, on scikit-learn's digits or the images of --data-dir. "
        "Error: |y - y32| / |y32| of the scores."
    )
    return table("variants", columns, rows, note=note, show="always") if rows else None


def _over_default(objective: str, tuning: Tuning) -> CellValue:
    """How the best setting of a search compares with the default one, a ratio or percentage points: ``1.05
    (0.98 to 1.12)``."""
    one = next((one for one in tuning.compared if one.objective == objective), None)
    if one is None:
        return None
    found, factor = (one.ratio, 1.0) if one.ratio is not None else (one.difference, 100.0)
    if found is None:
        return ABSENT
    value, low, high = (
        significant(number * factor) for number in (found.value, found.low or 0.0, found.high or 0.0)
    )
    return f"{value} ({low} to {high})"


def _of_search(look: Callable[[Tuning], CellValue]) -> Callable[[SweepRow], CellValue]:
    """A value of the search that a row stands for; None where it failed."""
    return lambda row: (
        look(load_tuning(Path(row.run))) if row.run is not None and row.reason is None else None
    )


VALUES: dict[str, Callable[[SweepRow], CellValue]] = {
    "configuration": configuration,
    "trials": _of_search(lambda tuning: len(tuning.trials)),
    **{
        f"{name}_over_default": _of_search(partial(_over_default, name))
        for name in ("accuracy", "throughput")
    },
}
