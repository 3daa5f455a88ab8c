"""The page of a training: accuracy and time per epoch, its failures, and the trained network in other
precisions."""

from __future__ import annotations

import statistics

from rooflines._version import __version__
from rooflines.profiler.training.records import Training
from rooflines.reports.charts.curves import Curves, CurveSeries
from rooflines.reports.document import Column, Figure, Page, Paragraph, Section, section, sections_of, table
from rooflines.reports.words.sentences import subject
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.units import binary_bytes, counted, percent, seconds, sentence, significant

_INPUT_SHARE = 0.05  # waiting below this share of an epoch is not worth a sentence


def page(training: Training) -> Page:
    """Return the page of ``training``."""
    verdict, *said = sentences(training)
    interrupted = training.status != "complete"
    return Page(
        kind="training",
        name=training.workload.name,
        title=subject(training),
        created=training.created,
        rooflines=__version__,
        verdict=verdict,
        said=tuple(said),
        status=("interrupted", "The training has not ended: the report covers the epochs so far.")
        if interrupted
        else shared_by([epoch.others_cores for one in training.results for epoch in one.epochs], "epochs"),
        label="" if training.data.real else sentence(training.data.label),
        sections=sections_of(_epochs(training), _variants(training), _method(training)),
    )


def sentences(training: Training) -> list[str]:
    """The result, and what the time goes to."""
    epochs = [epoch for one in training.results for epoch in one.epochs]
    failures = [one.failure for one in training.results if one.failure]
    if not epochs and not failures:
        return ["No epoch was completed."]
    texts = [_outcome(training)] if training.accuracy is not None else []
    texts += [sentence(what) for what in dict.fromkeys(one.what for one in failures)]
    later = [epoch for one in training.results for epoch in one.epochs[1:]] or epochs
    if later:
        waited = sum(epoch.input_s for epoch in later) / sum(epoch.epoch_s for epoch in later)
        rate = statistics.median(epoch.samples_per_s for epoch in later)
        pace = f"An epoch takes {seconds(training.epoch_s or 0.0)} ({significant(rate)} images/s)"
        share = (
            f"; for {percent(waited)} of it the step waits for the data loader"
            if waited >= _INPUT_SHARE
            else ""
        )
        texts.append(f"{pace}{share}.")
    first = next((epoch.first_step_s for epoch in epochs if epoch.first_step_s is not None), None)
    if first is not None:
        texts.append(f"The first step took {seconds(first)} and is part of the first epoch only.")
    peak = training.peak_memory_bytes
    if peak is not None:
        texts.append(f"Peak memory: {binary_bytes(peak)}.")
    return texts


def _outcome(training: Training) -> str:
    found = training.accuracies
    assert training.accuracy is not None
    epochs = counted(max(len(one.epochs) for one in training.results), "epoch")
    text = f"{percent(training.accuracy, 1)} of the test images are right after {epochs}"
    if len(found) > 1:
        text += f" (median of {len(found)} seeds, {percent(min(found), 1)} to {percent(max(found), 1)})"
    return (
        f"{text}; chance is {percent(1 / training.data.classes, 1)}."
        if training.data.real
        else f"{text} of synthetic images."
    )


def _epochs(training: Training) -> Section:
    columns = (
        Column("seed", format="count", priority=1),
        Column("epoch", format="count"),
        Column("accuracy", "%", "share"),
        Column("train loss", format="figures"),
        Column("test loss", format="figures", priority=2),
        Column("time", "s", "figures"),
        Column("waiting", "%", "share", priority=1),
        Column("images/s", format="figures"),
        Column("learning rate", format="figures", priority=2),
        Column("peak memory", "B", "scaled", priority=2),
    )
    rows = [
        (
            result.seed,
            epoch.epoch,
            epoch.test_accuracy,
            epoch.train_loss,
            epoch.test_loss,
            epoch.epoch_s,
            epoch.input_s / epoch.epoch_s,
            epoch.samples_per_s,
            epoch.learning_rate,
            epoch.peak_memory_bytes,
        )
        for result in training.results
        for epoch in result.epochs
    ]
    several = any(len(result.epochs) > 1 for result in training.results)
    return section(
        "epochs",
        "Epochs",
        table("epochs", columns, rows, brief=10, show="always") if rows else None,
        _curves(training, "accuracy", "test_accuracy", "correct, % of the test set", fraction=True)
        if several
        else None,
        _curves(training, "loss", "train_loss", "mean loss of an epoch") if several else None,
    )


def _curves(training: Training, name: str, field: str, y_title: str, *, fraction: bool = False) -> Figure:
    series = tuple(
        CurveSeries(
            name=f"seed {one.seed}",
            x=tuple(float(epoch.epoch) for epoch in one.epochs),
            y=tuple(float(getattr(epoch, field)) for epoch in one.epochs),
        )
        for one in training.results
        if one.epochs
    )
    return Figure(
        name=name,
        caption=f"{name.capitalize()} per epoch. Data: {training.data.label}.",
        drawing=Curves(x_title="epoch", y_title=y_title, series=series, fraction=fraction),
    )


def _variants(training: Training) -> Section:
    """Accuracy, time per image and error of the scores of each variant."""
    columns = (
        Column("variant", format="text"),
        Column("accuracy", "%", "share"),
        Column("time per image", "s", "scaled"),
        Column("error", help="relative difference of the scores from fp32"),
        Column("same class", "%", "share", priority=1),
        Column("remark", format="text", priority=2),
    )
    rows = [
        (
            variant.name,
            variant.accuracy,
            variant.sample_s,
            f"{variant.error.relative:.1e}" if variant.error else None,
            variant.error.same_class if variant.error else None,
            variant.reason or "; ".join(variant.notes),
        )
        for variant in training.variants
    ]
    note = (
        "Error: |y - y32| / |y32| of the scores of all test images. Time: fastest of three passes "
        "over them, without the data loader."
    )
    shown = table("variants", columns, rows, note=note, show="always") if rows else None
    return section("variants", "The trained network in other precisions", shown)


def _method(training: Training) -> Section:
    data = training.data
    counts = f"{data.train_samples:,} training and {data.test_samples:,} test images, {data.classes} classes"
    method = (
        f"Data: {data.label}; {counts}. Settings: batch {training.workload.batch_size}, "
        f"{training.workload.optimizer}, "
        f"{training.workload.precision}. An epoch is the time of its training steps, including "
        "the data loader; testing comes after it."
    )
    return section(
        "method", "Method", *map(Paragraph, (method, *training.notes)), Paragraph(training.command, "code")
    )
