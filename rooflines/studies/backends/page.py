"""The page of the backends study: the paper's table compared with this machine, its four plots, operators on the roofline, input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from rooflines.reports.charts.curves import Beam, Beams, Curves, Series
from rooflines.reports.document import ABSENT, Block, Column, Facts, Figure, Row, Section, Table
from rooflines.studies import networks
from rooflines.studies.backends.findings import MNIST_TRAIN, PACES, Pace, pace, paper_table, sentences
from rooflines.studies.backends.records import BackendResult, ThroughLoader, Training
from rooflines.studies.backends.train import LoaderOptions, TrainOptions
from rooflines.studies.data import padded
from rooflines.studies.network_page import by_backend, operator_records, operators_section, process_text
from rooflines.studies.study import Missing, Study, StudyOptions
from rooflines.sweeps.records import Point
from rooflines.sweeps.records import Row as Line
from rooflines.units import binary_bytes, seconds

_IMAGE_BYTES = 28 * 28 * 4
_SLOW = "skipped in a quick study because compiling takes longer than running; select it by name to include it"
_LOADER = ("samples_per_s", "input_fraction", "alone_samples_per_s")


def choose(points: Sequence[Point], options: StudyOptions) -> Iterator[Point | Missing]:
    """Yield the points to run, and why others cannot: MNIST also gives the accuracy, and the loader is that of PyTorch."""
    kinds = {"speed": TrainOptions, "accuracy": TrainOptions, "loader": LoaderOptions}
    for one in networks.available(points, networks.BACKENDS, kinds, options):
        if isinstance(one, Missing):
            yield one
            continue
        backend = str(one.options["backend"])
        compiled = networks.is_compiled(backend)
        if compiled and options.quick and "backend" not in options.settings:
            yield Missing(what=backend, reason=_SLOW)
        elif one.part == "speed" or (not compiled and (
            options.data_dir is None if one.part == "accuracy" else backend.startswith("torch")
        )):  # fmt: skip
            yield one


def results_of(study: Study) -> tuple[BackendResult, ...]:
    """Return what each backend did; one without its training for speed has nothing to show."""
    results = []
    for one in by_backend(study):
        speed = one.detail("speed", Training)
        if speed is not None:
            row = one.part("speed")[0]
            loaders = [ThroughLoader(**{name: other.estimates[name].value for name in _LOADER}) for other in one.part("loader")]
            results.append(
                BackendResult(
                    name=one.name, backend=one.backend, device_name=one.device_name, speed=speed, remark=row.facts["remark"],
                    epoch_s=row.estimates["epoch_s"].value, rate=row.estimates["samples_per_s"],
                    accuracy=speed if speed.data.name == "mnist" else one.detail("accuracy", Training),
                    loader=next(iter(loaders), None),
                )
            )  # fmt: skip
    return tuple(results)


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    return sentences(results_of(study))


def sections(study: Study) -> tuple[Section, ...]:
    """The paper's table and plots with this machine, the time of a step, its operators, and how each backend ran."""
    return sections_of(results_of(study))


def sections_of(results: Sequence[BackendResult]) -> tuple[Section, ...]:
    """The sections for ``results``."""
    return tuple(make(results) for make in (_plots, _paces, _operators, _setup))


def tables(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Return the epochs and the operators of each backend."""
    results = results_of(study)
    trained = [(one, one.speed) for one in results]
    trained += [(one, one.accuracy) for one in results if one.accuracy is not None and one.accuracy is not one.speed]
    epochs = [
        {"backend": one.name, "data": training.data.name, **msgspec.to_builtins(epoch)}
        for one, training in trained
        for epoch in training.epochs
    ]
    return {"epochs": epochs, "operators": operator_records(results)}


def _each(row: Line, waiting: bool) -> float | None:
    """The seconds of input or of computing for each sample."""
    rate, share = row.value("samples_per_s"), row.value("input_fraction")
    return (share if waiting else 1 - share) / rate if rate and share is not None else None


VALUES = {
    "input_s": lambda row: _each(row, True),
    "compute_s": lambda row: _each(row, False),
    "fed": lambda row: "paper's loader" if row.point.part == "loader" else "in place",
    "epoch": lambda row: MNIST_TRAIN / (row.value("samples_per_s") or 1.0) if row.point.part == "loader" else row.value("epoch_s"),
}


def notes(study: Study) -> dict[str, str]:
    """Of how many epochs a total is, and what the memory of the device holds that the paper's does not: the training set."""
    results = results_of(study)
    counts = ", ".join(dict.fromkeys(str(len(one.speed.epochs)) for one in results))
    note = f"Total: of {counts} epochs (paper: 10)." if counts else ""
    trained = next((one.speed for one in results if one.speed.device_memory_bytes is not None), None)
    if trained is not None:
        images = len(padded(trained.data.train_samples, trained.batch_size)) * _IMAGE_BYTES
        note += (
            f" Device memory includes the whole training set (images: {images / 1e6:,.0f} MB); the paper's PyTorch received "
            "it batch by batch."
        )
    return {"backends": note}


def _plots(results: Sequence[BackendResult]) -> Section:
    paper = paper_table()
    accuracies = [(one, one.accuracy) for one in results if one.accuracy is not None]
    if not results:
        return Section(name="plots", title="Plots")
    data = results[0].speed.data
    whole = data.train_samples == MNIST_TRAIN

    def over_epochs(one: BackendResult, training: Training, name: str, paper_name: str = "") -> Series:
        return Series(
            backend=one.name, colour=one.backend, x=tuple(float(epoch.epoch) for epoch in training.epochs),
            y=tuple(float(getattr(epoch, name)) for epoch in training.epochs),
            paper=float(paper[one.backend][paper_name]) if paper_name and one.backend in paper else None,
        )  # fmt: skip

    def figure(name: str, caption: str, y_title: str, series: Iterable[Series], fraction: bool = False) -> Figure:
        drawing = Curves(x_title="epoch", y_title=y_title, series=tuple(series), fraction=fraction)
        return Figure(name=name, caption=caption, drawing=drawing)

    blocks: list[Block] = [
        figure(
            "epoch-time", f"Time per epoch. Data: {data.label}.", "epoch, s",
            (over_epochs(one, one.speed, "epoch_s", "epoch_s" if whole else "") for one in results),
        ),
        figure(
            "throughput", f"Throughput per epoch; dotted lines are the paper's means. Data: {data.label}.", "throughput, samples/s",
            (over_epochs(one, one.speed, "samples_per_s", "samples_per_s") for one in results),
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
            backend=one.backend, label=one.name, value=one.rate.value, text=f"{one.rate.value:,.0f}",
            paper=paper[one.backend]["samples_per_s"] if one.backend in paper else None,
            paper_text=f"paper {paper[one.backend]['samples_per_s']:,.0f}" if one.backend in paper else "",
        )
        for one in sorted(results, key=lambda one: -one.rate.value)
    ]  # fmt: skip
    bars += [
        Beam(
            backend=one.backend, label=f"{one.name}, loader", value=one.loader.samples_per_s,
            text=f"{one.loader.samples_per_s:,.0f} with the paper's loader",
        )
        for one in results
        if one.loader is not None
    ]  # fmt: skip
    bars += [
        Beam(
            backend=name, label=name, value=0.0, text="", paper=row["samples_per_s"],
            paper_text=f"paper {row['samples_per_s']:,.0f}, not run here",
        )
        for name, row in paper.items()
        if name not in {one.backend for one in results}
    ]  # fmt: skip
    drawing = Beams(x_title="samples/s", beams=tuple(bars))
    blocks.append(Figure(name="mean-throughput", caption="Throughput; the paper's values in outline.", drawing=drawing))
    return Section(name="plots", title="The paper's plots", blocks=tuple(blocks))


def _paces(results: Sequence[BackendResult]) -> Section:
    """Where the time of a step goes by what bounds it."""
    blocks: list[Block] = []
    paces = [(one, found) for one in results if (found := pace(one)) is not None]
    if paces:
        names = [name for name in PACES if any(name in found.parts for _, found in paces)]
        blocks.append(
            Table(
                name="pace", title="Time per step by bound",
                columns=(Column("backend", format="text"), Column("step"), *(Column(PACES[name]) for name in names)),
                rows=tuple(
                    Row((one.name, seconds(found.step_s), *(_share(found, name) for name in names)), colour=one.backend)
                    for one, found in paces
                ),
                note="Operators are timed one by one and grouped by their bound; the rest of the step is the host's.",
            )
        )  # fmt: skip
    return Section(name="time", title="Time per step", blocks=tuple(blocks))


def _operators(results: Sequence[BackendResult]) -> Section:
    batch = max((one.speed.batch_size for one in results), default=0)
    return operators_section(results, of="a step", title=f"Operators of a step of {batch} samples", by="backend", unit="µs")


def _setup(results: Sequence[BackendResult]) -> Section:
    settings = {
        f"{training.data.name}: batch {training.batch_size}, learning rate {training.learning_rate:g}, momentum {training.momentum:g}"
        for one in results
        for training in (one.speed, one.accuracy)
        if training is not None
    }
    same = (
        "All backends have the same initial parameters and the same batches in the same order; the last batch is completed with "
        "samples from the start of the set. An epoch is the time of its training steps, each of which ends when the loss is read; "
        "compilation and warm-up come before, testing after."
    )
    rows = [("epochs", same), ("settings", "; ".join(sorted(settings)))]
    rows += [
        (
            one.name,
            f"{process_text(one)}, ready after {seconds(one.speed.setup_s)}, {binary_bytes(one.speed.process_memory_bytes)} of process "
            f"memory{f'; {one.remark}' if one.remark else ''}",
        )
        for one in results
    ]  # fmt: skip
    blocks = (Facts(rows=tuple(rows), kind="definitions"),) if results else ()
    return Section(name="setup", title="How each backend ran", blocks=blocks)


def _share(found: Pace, name: str) -> str:
    whole = sum(found.parts.values())
    return f"{100 * found.parts.get(name, 0.0) / whole:.1f} %" if whole else f"{ABSENT} %"
