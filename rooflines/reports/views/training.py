"""The page of a training: accuracy and time per epoch, its failures, and the trained network in other precisions."""

from __future__ import annotations

import statistics

from rooflines._version import __version__
from rooflines.profiler.training.records import Epoch, Training, VariantResult
from rooflines.reports.charts.curves import Curves, Series
from rooflines.reports.document import Block, Column, Figure, Page, Paragraph, Row, Section, Table
from rooflines.reports.words.sentences import subject
from rooflines.roofline.step.interference import shared_by
from rooflines.units import binary_bytes, counted, percent, seconds, significant

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
        label="" if training.data.real else training.data.label[0].upper() + training.data.label[1:] + ".",
        sections=tuple(
            section for section in (_failures(training), _epochs(training), _variants(training), _method(training)) if section.blocks
        ),
    )


def sentences(training: Training) -> list[str]:
    """The result, and what the time goes to."""
    epochs = [epoch for one in training.results for epoch in one.epochs]
    failures = [one.failure for one in training.results if one.failure is not None]
    if not epochs and not failures:
        return ["No epoch was completed."]
    texts = [_outcome(training)] if training.accuracy is not None else []
    texts += [f"{one.what[0].upper()}{one.what[1:]}.{f' Likely cause: {one.cause}.' if one.cause else ''}" for one in failures]
    later = [epoch for one in training.results for epoch in one.epochs[1:]] or epochs
    if later:
        waited = sum(epoch.input_s for epoch in later) / sum(epoch.epoch_s for epoch in later)
        rate = statistics.median(epoch.samples_per_s for epoch in later)
        pace = f"An epoch takes {seconds(training.epoch_s or 0.0)} ({significant(rate)} images/s)"
        share = f"; for {percent(waited)} of it the step waits for the data loader" if waited >= _INPUT_SHARE else ""
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
    return f"{text}; chance is {percent(1 / training.data.classes, 1)}." if training.data.real else f"{text} of synthetic images."


def _failures(training: Training) -> Section:
    rows = []
    for one in training.results:
        if (failure := one.failure) is not None:
            where = " of ".join(part for part in (failure.operator.removeprefix("aten::"), failure.module) if part)
            rows.append(Row((one.seed, failure.epoch, failure.step, where, failure.phase)))
    blocks: list[Block] = []
    if rows:
        columns = (
            Column("seed", format="count"), Column("epoch", format="count"), Column("step", format="count"),
            Column("first operator", format="name"), Column("phase", format="text"),
        )  # fmt: skip
        blocks.append(Table(name="failures", columns=columns, rows=tuple(rows), show="always"))
    for one in training.results:
        if one.failure is not None:
            blocks += [Paragraph(text, show="always") for text in (one.failure.evidence, one.failure.suggestion) if text]
    return Section(name="failures", title="Failures", blocks=tuple(blocks))


def _epochs(training: Training) -> Section:
    columns = (
        Column("seed", format="count", priority=1), Column("epoch", format="count"), Column("accuracy", "%", "share"),
        Column("train loss", format="figures"), Column("test loss", format="figures", priority=2), Column("time", "s", "figures"),
        Column("waiting", "%", "share", priority=1), Column("images/s", format="figures"),
        Column("learning rate", format="figures", priority=2), Column("peak memory", "B", "scaled", priority=2),
    )  # fmt: skip
    rows = tuple(Row((one.seed, *_cells(epoch))) for one in training.results for epoch in one.epochs)
    if not rows:
        return Section(name="epochs", title="Epochs")
    blocks: list[Block] = [Table(name="epochs", columns=columns, rows=rows, brief=10, show="always")]
    if any(len(one.epochs) > 1 for one in training.results):
        blocks += [
            _curves(training, "accuracy", "test_accuracy", "correct, % of the test set", fraction=True),
            _curves(training, "loss", "train_loss", "mean loss of an epoch"),
        ]
    return Section(name="epochs", title="Epochs", blocks=tuple(blocks))


def _cells(epoch: Epoch) -> tuple[int | float | None, ...]:
    return (
        epoch.epoch, epoch.test_accuracy, epoch.train_loss, epoch.test_loss, epoch.epoch_s, epoch.input_s / epoch.epoch_s,
        epoch.samples_per_s, epoch.learning_rate, epoch.peak_memory_bytes,
    )  # fmt: skip


def _curves(training: Training, name: str, field: str, y_title: str, *, fraction: bool = False) -> Figure:
    series = tuple(
        Series(
            backend=f"seed {one.seed}", x=tuple(float(epoch.epoch) for epoch in one.epochs),
            y=tuple(float(getattr(epoch, field)) for epoch in one.epochs),
        )
        for one in training.results
        if one.epochs
    )  # fmt: skip
    caption = f"{name.capitalize()} per epoch. Data: {training.data.label}."
    return Figure(name=name, caption=caption, drawing=Curves(x_title="epoch", y_title=y_title, series=series, fraction=fraction))


def _variants(training: Training) -> Section:
    if not training.variants:
        return Section(name="variants", title="Variants")
    return Section(name="variants", title="The trained network in other precisions", blocks=(variants_table(training.variants),))


def variants_table(variants: tuple[VariantResult, ...]) -> Table:
    """Accuracy, time per image and error of the scores of each variant."""
    columns = (
        Column("variant", format="text"), Column("accuracy", "%", "share"), Column("time per image", "s", "scaled"),
        Column("error", help="relative difference of the scores from fp32"),
        Column("same class", "%", "share", priority=1), Column("remark", format="text", priority=2),
    )  # fmt: skip
    rows = tuple(
        Row(
            (
                one.name, one.accuracy, one.sample_s, f"{one.error.relative:.1e}" if one.error else None,
                one.error.same_class if one.error else None, one.reason or "; ".join(one.notes),
            )
        )
        for one in variants
    )  # fmt: skip
    note = (
        "Error: |y - y32| / |y32| of the scores of all test images. Time: fastest of three passes over them, without the data loader."
    )
    return Table(name="variants", columns=columns, rows=rows, note=note, show="always")


def _method(training: Training) -> Section:
    data = training.data
    counts = f"{data.train_samples:,} training and {data.test_samples:,} test images, {data.classes} classes"
    method = (
        f"Data: {data.label}; {counts}. Settings: batch {training.workload.batch_size}, {training.workload.optimizer}, "
        f"{training.workload.precision}. An epoch is the time of its training steps, including the data loader; testing comes after it."
    )
    return Section(
        name="method", title="Method", blocks=(*map(Paragraph, (method, *training.notes)), Paragraph(training.command, "code"))
    )
