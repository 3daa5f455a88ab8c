"""The report of the backends study: the paper's table compared with this machine, its four plots, operators on the roofline, input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rooflines.reports.charts.kinds import Beam, Beams, Curves, Series
from rooflines.reports.document import ABSENT, Block, Column, Figure, Page, Row, Section, Table
from rooflines.studies import papers
from rooflines.studies.backends_findings import MNIST_TRAIN, PACES, Pace, epoch_s, pace, rate
from rooflines.studies.data import padded
from rooflines.studies.page import operators_section, process_facts, study_page
from rooflines.studies.records import BackendResult, BackendsStudy, Training
from rooflines.units import binary_bytes, seconds, significant

_IMAGE_BYTES = 28 * 28 * 4
_COLUMNS = (
    "epoch_s", "total_s", "samples_per_s", "final_test_accuracy_percent", "max_test_accuracy_percent", "process_ram_mb",
    "max_gpu_memory_mb",
)  # fmt: skip


def page(study: BackendsStudy) -> Page:
    """Everything that the report shows."""
    first = next((one.speed for one in study.results if one.speed), None)
    setting = f" · batch {first.batch_size} · {len(first.epochs)} epochs" if first else ""
    return study_page(
        study,
        title=f"backends · one CNN{setting}",
        label=_data_label(study),
        sections=[make(study) for make in (_table, _plots, _input, _operators)],
        method=_method(study),
    )


def combined_rows(study: BackendsStudy) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """The combined table in the paper's columns and units, with the paper's values, as CSV."""
    paper = papers.backends()
    header = ("backend", *(name for column in _COLUMNS for name in (column, f"{column}_paper")), "epochs", "data", "accuracy_data")
    rows = []
    results = {one.backend: one for one in study.results}
    for backend in dict.fromkeys((*results, *paper)):
        row: dict[str, Any] = {"backend": backend}
        if backend in results:
            row |= _values(results[backend])
        if backend in paper:
            row |= {f"{name}_paper": value for name, value in _paper_values(paper[backend]).items()}
        rows.append(row)
    return header, rows


def _data_label(study: BackendsStudy) -> str:
    speeds = {one.speed.data.label: one.speed.data.train_samples for one in study.results if one.speed}
    accuracies = {one.accuracy.data.label: one.accuracy.data.train_samples for one in study.results if one.accuracy}
    parts = [f"Speed: {label}, {count:,} for training." for label, count in speeds.items()]
    parts += [f"Accuracy: {label}, {count:,} for training." for label, count in accuracies.items()]
    return " ".join(parts) or "Nothing was measured."


def _values(one: BackendResult) -> dict[str, Any]:
    """A backend's numbers in the paper's columns and units."""
    speed, accuracy = one.speed, one.accuracy
    found: dict[str, Any] = {}
    if speed is not None:
        device = [epoch.device_memory_bytes for epoch in speed.epochs if epoch.device_memory_bytes is not None]
        found = {
            "epoch_s": epoch_s(one),
            "total_s": sum(epoch.epoch_s for epoch in speed.epochs),
            "samples_per_s": rate(one),
            "process_ram_mb": max(epoch.process_memory_bytes for epoch in speed.epochs) / 1e6,
            "max_gpu_memory_mb": max(device) / 1e6 if device else None,
            "epochs": len(speed.epochs),
            "data": speed.data.name,
        }
    if accuracy is not None:
        accuracies = [epoch.test_accuracy * 100 for epoch in accuracy.epochs]
        found |= {
            "final_test_accuracy_percent": accuracies[-1], "max_test_accuracy_percent": max(accuracies),
            "accuracy_data": accuracy.data.name,
        }  # fmt: skip
    return found


def _paper_values(row: papers.PaperBackend) -> dict[str, float | None]:
    return {
        "epoch_s": row.epoch_s, "total_s": row.total_10_epochs_s, "samples_per_s": row.samples_per_s,
        "final_test_accuracy_percent": row.final_accuracy * 100,
        "max_test_accuracy_percent": row.max_accuracy * 100,
        "process_ram_mb": row.process_memory_bytes / 1e6,
        "max_gpu_memory_mb": None if row.device_memory_bytes is None else row.device_memory_bytes / 1e6,
    }  # fmt: skip


def _table(study: BackendsStudy) -> Section:
    paper = papers.backends()
    results = {one.backend: one for one in study.results}
    epochs = max((len(one.speed.epochs) for one in study.results if one.speed), default=0)
    rows = []
    for backend in dict.fromkeys((*results, *paper)):
        if backend in results:
            values = _values(results[backend])
            fewer = f" ({values['epochs']})" if values.get("epochs", epochs) < epochs else ""
            rows.append(Row((backend, *_cells(values, fewer)), colour=backend))
        if backend in paper:
            here = "  paper" if backend in results else f"{backend}, paper"
            rows.append(Row((here, *_cells(_paper_values(paper[backend]))), muted=True))
        loader = results[backend].loader if backend in results else None
        if loader is not None:
            through = {"epoch_s": MNIST_TRAIN / loader.samples_per_s, "samples_per_s": loader.samples_per_s}
            rows.append(Row(("  paper's loader", *_cells(through)), colour=backend))
    table = Table(
        name="backends",
        title="The paper's table, with this machine",
        show="always",
        rows=tuple(rows) if results else (),
        columns=(
            Column("backend", format="text"), Column("epoch", "s"), Column("total", "s"), Column("samples/s"),
            Column("final", "% right"), Column("best", "% right"), Column("process", "MB"), Column("device", "MB"),
        ),
        note=f"This machine: median epoch, and total of {epochs} epochs or of the number in parentheses (paper: 10 epochs). With the "
        f"paper's loader: {MNIST_TRAIN:,} samples at the measured rate. MB is 1e6 bytes; a dash means not measured."
        f"{_device_memory(study)}",
    )  # fmt: skip
    return Section(name="side-by-side", title="Side by side", blocks=(table,) if results else ())


def _device_memory(study: BackendsStudy) -> str:
    """What the column of the device holds that the paper's does not: the training set."""
    trained = next((one.speed for one in study.results if one.speed and one.speed.epochs[0].device_memory_bytes is not None), None)
    if trained is None:
        return ""
    images = len(padded(trained.data.train_samples, trained.batch_size)) * _IMAGE_BYTES
    return (
        f" Device memory includes the whole training set (images: {images / 1e6:,.0f} MB); the paper's PyTorch received it batch by "
        "batch."
    )


def _cells(values: Mapping[str, Any], fewer: str = "") -> tuple[str, ...]:
    """The cells of a row; ``fewer`` stands behind a total of fewer epochs than the others'."""

    def cell(name: str, form: str) -> str:
        value = values.get(name)
        return ABSENT if value is None else format(value, form)

    return (
        *(
            ABSENT if values.get(name) is None else significant(values[name]) + end
            for name, end in (("epoch_s", ""), ("total_s", fewer))
        ),
        cell("samples_per_s", ",.0f"),
        cell("final_test_accuracy_percent", ".2f"),
        cell("max_test_accuracy_percent", ".2f"),
        cell("process_ram_mb", ",.0f"),
        cell("max_gpu_memory_mb", ",.1f"),
    )


def _plots(study: BackendsStudy) -> Section:
    paper = papers.backends()
    speeds = [(one, one.speed) for one in study.results if one.speed is not None]
    accuracies = [(one, one.accuracy) for one in study.results if one.accuracy is not None]
    if not speeds:
        return Section(name="plots", title="Plots")
    label, whole = speeds[0][1].data.label, speeds[0][1].data.train_samples == MNIST_TRAIN

    def over_epochs(one: BackendResult, training: Training, name: str, paper_name: str = "") -> Series:
        return Series(
            backend=one.backend, x=tuple(float(epoch.epoch) for epoch in training.epochs),
            y=tuple(float(getattr(epoch, name)) for epoch in training.epochs),
            paper=float(getattr(paper[one.backend], paper_name)) if paper_name and one.backend in paper else None,
        )  # fmt: skip

    def figure(name: str, caption: str, y_title: str, series: Iterable[Series], fraction: bool = False) -> Figure:
        drawing = Curves(x_title="epoch", y_title=y_title, series=tuple(series), fraction=fraction)
        return Figure(name=name, caption=caption, drawing=drawing)

    blocks: list[Block] = [
        figure(
            "epoch-time", f"Time per epoch. Data: {label}.", "epoch, s",
            (over_epochs(one, training, "epoch_s", "epoch_s" if whole else "") for one, training in speeds),
        ),
        figure(
            "throughput", f"Throughput per epoch; dotted lines are the paper's means. Data: {label}.", "throughput, samples/s",
            (over_epochs(one, training, "samples_per_s", "samples_per_s") for one, training in speeds),
        ),
    ]  # fmt: skip
    if accuracies:
        blocks.append(
            figure(
                "accuracy", f"Accuracy per epoch. Data: {accuracies[0][1].data.label}.", "correct, % of the test set",
                (over_epochs(one, training, "test_accuracy") for one, training in accuracies), fraction=True,
            )
        )  # fmt: skip
    bars = [
        Beam(
            backend=one.backend, label=one.backend, value=rate(one), text=f"{rate(one):,.0f}",
            paper=paper[one.backend].samples_per_s if one.backend in paper else None,
            paper_text=f"paper {paper[one.backend].samples_per_s:,.0f}" if one.backend in paper else "",
        )
        for one, _ in sorted(speeds, key=lambda pair: -rate(pair[0]))
    ]  # fmt: skip
    bars += [
        Beam(
            backend=one.backend, label=f"{one.backend}, loader", value=one.loader.samples_per_s,
            text=f"{one.loader.samples_per_s:,.0f} with the paper's loader",
        )
        for one, _ in speeds
        if one.loader is not None
    ]  # fmt: skip
    bars += [
        Beam(
            backend=name, label=name, value=0.0, text="", paper=row.samples_per_s,
            paper_text=f"paper {row.samples_per_s:,.0f}, not run here",
        )
        for name, row in paper.items()
        if name not in {one.backend for one, _ in speeds}
    ]  # fmt: skip
    drawing = Beams(x_title="samples/s", beams=tuple(bars))
    blocks.append(Figure(name="mean-throughput", caption="Throughput; the paper's values in outline.", drawing=drawing))
    return Section(name="plots", title="The paper's plots", blocks=tuple(blocks))


def _input(study: BackendsStudy) -> Section:
    """Input apart from compute, for the data in place and behind the loader."""

    def row(one: BackendResult, fed: str, samples_per_s: float, waited: float, total: float, samples: float) -> Row:
        share = f"{100 * waited / total:.1f}" if total else ABSENT
        parts = (significant(part / samples * 1e6) if samples else ABSENT for part in (waited, total - waited))
        return Row((one.backend, fed, f"{samples_per_s:,.0f}", share, *parts), colour=one.backend)

    rows = []
    for one in study.results:
        if one.speed is None:
            continue
        total, waited = (sum(getattr(epoch, name) for epoch in one.speed.epochs) for name in ("epoch_s", "input_s"))
        rows.append(row(one, "in place", rate(one), waited, total, rate(one) * total))
        if (through := one.loader) is not None:
            rows.append(row(one, "paper's loader", through.samples_per_s, through.input_s, through.seconds, through.samples))
    blocks: list[Block] = []
    if rows:
        blocks.append(
            Table(
                name="input", title="Waiting for input", rows=tuple(rows), show="always",
                columns=(Column("backend", format="text"), Column("data", format="text"), Column("samples/s"), Column("waiting", "%"),
                         Column("input", "µs/sample"), Column("compute", "µs/sample")),
                note="Input: time that a step waits for its batch. In place: each batch is a slice of data in device memory.",
            )
        )  # fmt: skip
    paces = [(one, found) for one in study.results if (found := pace(one)) is not None]
    if paces:
        names = [name for name in PACES if any(name in found.parts for _, found in paces)]
        blocks.append(
            Table(
                name="pace", title="Time per step by bound",
                columns=(Column("backend", format="text"), Column("step"), *(Column(PACES[name]) for name in names)),
                rows=tuple(
                    Row((one.backend, seconds(found.step_s), *(_share(found, name) for name in names)), colour=one.backend)
                    for one, found in paces
                ),
                note="Operators are timed one by one and grouped by their bound; the rest of the step is the host's.",
            )
        )  # fmt: skip
    return Section(name="time", title="Time per step", blocks=tuple(blocks))


def _operators(study: BackendsStudy) -> Section:
    batch = max((one.operators_batch for one in study.results), default=0)
    return operators_section(
        study.results, study.ceilings, of="a step", title=f"Operators of a step of {batch} samples", by="backend", unit="µs"
    )


def _method(study: BackendsStudy) -> tuple[str, ...]:
    facts = [
        process_facts(one)
        + (f", ready after {seconds(one.speed.setup_s)}" if one.speed else "")
        + (f", {binary_bytes(max(epoch.process_memory_bytes for epoch in one.speed.epochs))} of process memory" if one.speed else "")
        for one in study.results
    ]
    settings = {
        f"{training.data.name}: batch {training.batch_size}, learning rate {training.learning_rate:g}, momentum {training.momentum:g}"
        for one in study.results
        for training in (one.speed, one.accuracy)
        if training is not None
    }
    return (
        "Each backend runs in its own process with the same initial parameters and the same batches in the same order; the last "
        "batch is completed with samples from the start of the set. An epoch is the time of its training steps, each of which ends "
        "when the loss is read; compilation and warm-up come before, testing after.",
        *([f"Settings: {'; '.join(sorted(settings))}."] if settings else []),
        *([f"{'; '.join(facts)}."] if facts else []),
    )


def _share(found: Pace, name: str) -> str:
    whole = sum(found.parts.values())
    return f"{100 * found.parts.get(name, 0.0) / whole:.1f} %" if whole else f"{ABSENT} %"
