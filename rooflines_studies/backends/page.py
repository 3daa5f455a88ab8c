"""The page of the backends study: what its numbers say, the paper's table with this machine, its plots,
operators, and input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rooflines.ext import (
    Beam,
    Beams,
    Block,
    Column,
    Curves,
    CurveSeries,
    Facts,
    Figure,
    MeasuredValue,
    Row,
    Section,
    SweepPoint,
    SweepRow,
    binary_bytes,
    percent,
    seconds,
    section,
    table,
)
from rooflines_studies import network_runs
from rooflines_studies.backends.train import (
    BackendOptions,
    BackendResult,
    LoaderOptions,
    NetworkTraining,
    ThroughLoader,
)
from rooflines_studies.data import MNIST_TRAIN, padded
from rooflines_studies.network_page import by_backend, operator_records, operators_section, process_text
from rooflines_studies.records import TimedOperator
from rooflines_studies.study import Missing, Study, StudyOptions, decided, read_study
from rooflines_studies.tables import printed

_FOLDER = Path(__file__).parent
_IMAGE_BYTES = 28 * 28 * 4
_SLOW = (
    "skipped in a quick study because compiling takes longer than running; select it by name to include it"
)
_LOADER = ("samples_per_s", "input_fraction", "alone_samples_per_s")
# What may set the pace of a training, and how it is called.
PACES = {
    "compute": "bound by arithmetic",
    "memory": "bound by memory",
    "latency": "bound by launches",
    "host": "between operators",
    "input": "waiting for input",
    "unknown": "without a roof",
}
_CONVOLUTIONS = ("conv1", "conv2")


def choose(points: Sequence[SweepPoint], options: StudyOptions) -> Iterator[SweepPoint | Missing]:
    """Yield the points to run, and why others cannot: MNIST also gives the accuracy, and the loader is that
    of PyTorch."""
    kinds = {"speed": BackendOptions, "accuracy": BackendOptions, "loader": LoaderOptions}
    for one in network_runs.available(points, network_runs.BACKENDS, kinds, options):
        if isinstance(one, Missing):
            yield one
            continue
        backend = str(one.options["backend"])
        compiled = network_runs.is_compiled(backend)
        if compiled and options.quick and "backend" not in options.settings:
            yield Missing(what=backend, reason=_SLOW)
        elif one.part == "speed" or (
            not compiled
            and (options.data_dir is None if one.part == "accuracy" else backend.startswith("torch"))
        ):
            yield one


def results_of(study: Study) -> tuple[BackendResult, ...]:
    """Return what each backend did; one without its training for speed has nothing to show."""
    results = []
    for one in by_backend(study):
        speed = one.detail("speed", NetworkTraining)
        if speed is not None:
            row = one.part("speed")[0]
            loaders = [
                ThroughLoader(**{name: other.estimates[name].value for name in _LOADER})
                for other in one.part("loader")
            ]
            results.append(
                BackendResult(
                    name=one.name,
                    backend=one.backend,
                    device_name=one.device_name,
                    speed=speed,
                    remark=row.facts["remark"],
                    epoch_s=row.estimates["epoch_s"].value,
                    rate=row.estimates["samples_per_s"],
                    accuracy=speed if speed.data.name == "mnist" else one.detail("accuracy", NetworkTraining),
                    loader=next(iter(loaders), None),
                )
            )
    return tuple(results)


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    return sentences(results_of(study))


def sections(study: Study) -> tuple[Section, ...]:
    """The paper's table and plots with this machine, the time of a step, its operators, and how each backend
    ran."""
    results = results_of(study)
    batch = max((one.speed.batch_size for one in results), default=0)
    operators = operators_section(
        results, of="a step", title=f"Operators of a step of {batch} samples", by="backend", unit="µs"
    )
    return _plots(results), _paces(results), operators, _setup(results)


def tables(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Return the epochs and the operators of each backend."""
    results = results_of(study)
    trained = [(one, one.speed) for one in results]
    trained += [
        (one, one.accuracy) for one in results if one.accuracy is not None and one.accuracy is not one.speed
    ]
    epochs = [
        {"backend": one.name, "data": training.data.name, **msgspec.to_builtins(epoch)}
        for one, training in trained
        for epoch in training.epochs
    ]
    return {"epochs": epochs, "operators": operator_records(results)}


def _each(row: SweepRow, waiting: bool) -> float | None:
    """The seconds of input or of computing for each sample."""
    rate, share = row.value("samples_per_s"), row.value("input_fraction")
    return (share if waiting else 1 - share) / rate if rate and share is not None else None


VALUES = {
    "input_s": lambda row: _each(row, True),
    "compute_s": lambda row: _each(row, False),
    "fed": lambda row: "paper's loader" if row.point.part == "loader" else "in place",
    "epoch": lambda row: (
        MNIST_TRAIN / (row.value("samples_per_s") or 1.0)
        if row.point.part == "loader"
        else row.value("epoch_s")
    ),
}


def notes(study: Study) -> dict[str, str]:
    """Of how many epochs a total is, and what the memory of the device holds that the paper's does not: the
    training set."""
    results = results_of(study)
    counts = ", ".join(dict.fromkeys(str(len(one.speed.epochs)) for one in results))
    note = f"Total: of {counts} epochs (paper: 10)." if counts else ""
    trained = next((one.speed for one in results if one.speed.device_memory_bytes is not None), None)
    if trained is not None:
        images = len(padded(trained.data.train_samples, trained.batch_size)) * _IMAGE_BYTES
        note += (
            f" Device memory includes the whole training set (images: {images / 1e6:,.0f} MB); "
            "the paper's PyTorch received "
            "it batch by batch."
        )
    return {"backends": note}


def _plots(results: Sequence[BackendResult]) -> Section:
    if not results:
        return section("plots", "Plots")
    paper = paper_table()
    trained = [(one, one.speed) for one in results]
    checked = [(one, one.accuracy) for one in results if one.accuracy is not None]
    whole = results[0].speed.data.train_samples == MNIST_TRAIN
    figures = (
        ("epoch-time", "Time per epoch.", "epoch, s", trained, "epoch_s", "epoch_s" if whole else ""),
        (
            "throughput",
            "Throughput per epoch; dotted lines are the paper's means.",
            "throughput, samples/s",
            trained,
            "samples_per_s",
            "samples_per_s",
        ),
        ("accuracy", "Accuracy per epoch.", "correct, % of the test set", checked, "test_accuracy", ""),
    )
    blocks: list[Block] = []
    for name, caption, y_title, trainings, value, theirs in figures:
        series = tuple(
            CurveSeries(
                name=one.name,
                color=one.backend,
                x=tuple(float(epoch.epoch) for epoch in training.epochs),
                y=tuple(float(getattr(epoch, value)) for epoch in training.epochs),
                paper=float(paper[one.backend][theirs]) if theirs and one.backend in paper else None,
            )
            for one, training in trainings
        )
        if series:
            drawing = Curves(x_title="epoch", y_title=y_title, series=series, fraction=name == "accuracy")
            blocks.append(
                Figure(name=name, caption=f"{caption} Data: {trainings[0][1].data.label}.", drawing=drawing)
            )
    printed_rates = {name: row["samples_per_s"] for name, row in paper.items()}
    fastest_first = sorted(results, key=lambda one: -one.rate.value)
    bars = [
        Beam(
            color=one.backend,
            label=one.name,
            value=one.rate.value,
            text=f"{one.rate.value:,.0f}",
            paper=rate,
            paper_text=f"paper {rate:,.0f}" if rate is not None else "",
        )
        for one, rate in ((one, printed_rates.get(one.backend)) for one in fastest_first)
    ]
    bars += [
        Beam(
            color=one.backend,
            label=f"{one.name}, loader",
            value=one.loader.samples_per_s,
            text=f"{one.loader.samples_per_s:,.0f} with the paper's loader",
        )
        for one in results
        if one.loader is not None
    ]
    bars += [
        Beam(
            color=name,
            label=name,
            value=0.0,
            text="",
            paper=rate,
            paper_text=f"paper {rate:,.0f}, not run here",
        )
        for name, rate in printed_rates.items()
        if name not in {one.backend for one in results}
    ]
    beams = Beams(x_title="samples/s", beams=tuple(bars))
    blocks.append(
        Figure(name="mean-throughput", caption="Throughput; the paper's values in outline.", drawing=beams)
    )
    return section("plots", "The paper's plots", *blocks)


def _paces(results: Sequence[BackendResult]) -> Section:
    """Where the time of a step goes by what bounds it."""
    paces = [(one, found) for one in results if (found := pace(one)) is not None]
    names = [name for name in PACES if any(name in found.parts for _, found in paces)]
    columns = (Column("backend", format="text"), Column("step"), *(Column(PACES[name]) for name in names))
    rows = (
        Row(
            (
                one.name,
                seconds(found.step_s),
                *(f"{100 * found.shares.get(name, 0.0):.1f} %" for name in names),
            ),
            color=one.backend,
        )
        for one, found in paces
    )
    note = "Operators are timed one by one and grouped by their bound; the rest of the step is the host's."
    return section(
        "time",
        "Time per step",
        table("pace", columns, rows, title="Time per step by bound", note=note) if paces else None,
    )


def _setup(results: Sequence[BackendResult]) -> Section:
    settings = {
        (
            f"{training.data.name}: batch {training.batch_size}, learning rate "
            f"{training.learning_rate:g}, momentum {training.momentum:g}"
        )
        for one in results
        for training in (one.speed, one.accuracy)
        if training is not None
    }
    same = (
        "All backends have the same initial parameters and the same batches in the same order; "
        "the last batch is completed with "
        "samples from the start of the set. An epoch is the time of its training steps, each of "
        "which ends when the loss is read; "
        "compilation and warm-up come before, testing after."
    )
    rows = [("epochs", same), ("settings", "; ".join(sorted(settings)))]
    for one in results:
        ready, memory = seconds(one.speed.setup_s), binary_bytes(one.speed.process_memory_bytes)
        remark = f"; {one.remark}" if one.remark else ""
        rows.append(
            (one.name, f"{process_text(one)}, ready after {ready}, {memory} of process memory{remark}")
        )
    return section(
        "setup", "How each backend ran", Facts(rows=tuple(rows), kind="definitions") if results else None
    )


# --- what the numbers say, in sentences -------------------------------------------------------------------


class EpochPace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's time goes: seconds by what sets the pace (``PACES``), and how much of it is input."""

    step_s: float
    parts: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part, the largest first."""
        whole = sum(self.parts.values())
        return {name: time / whole for name, time in sorted(self.parts.items(), key=lambda part: -part[1])}


def paper_table() -> dict[str, Mapping[str, Any]]:
    """Return the paper's table of results by backend, in its units; GPU memory is None where it was not
    measured."""
    return {one["backend"]: one for one in printed(_FOLDER / "backends_mnist_cnn.csv")}


def sentences(results: Sequence[BackendResult]) -> Iterator[str]:
    """Yield the sentences. Without a result there are those about the paper."""
    timed = sorted(results, key=lambda one: one.rate.value, reverse=True)
    if timed:
        first, found = timed[0], pace(timed[0])
        said = f"{first.name} trains {first.rate.value:,.0f} samples/s."
        if found is not None:
            limit, share = next(iter(found.shares.items()))
            said += f" {percent(share)} of its step is {_bound(first, limit)}."
        yield said
        yield from decided(_compared(timed), "trains", "many samples/s")
        for one in timed:
            if found := pace(one):
                fastest = f"{seconds(found.step_s)} ({one.speed.batch_size / found.step_s:,.0f} samples/s)"
                listed = ", ".join(
                    f"{percent(share)} {_bound(one, name)}"
                    for name, share in found.shares.items()
                    if share >= 0.01
                )
                yield (
                    f"{one.name}: the fastest step takes {fastest} in {len(one.operators)} operators: "
                    f"{listed}."
                )
        shares = [
            f"{one.name} {percent(whole)}"
            for one in timed
            if (whole := convolution_efficiency(one)) is not None
        ]
        if shares:
            yield f"Efficiency of the convolutions (forward and backward): {', '.join(shares)}."
    remarks = read_study(_FOLDER).remarks
    yield remarks["contradiction"]
    yield from _loaders(timed)
    yield remarks["gradients"]
    yield from _accuracy(results)


def pace(one: BackendResult) -> EpochPace | None:
    """Where the time of a step goes: its input, its operators by bound, and what no operator explains; None
    without operators."""
    if not one.operators:
        return None
    parts: dict[str, float] = {}
    for each in one.operators:
        parts[each.bound] = parts.get(each.bound, 0.0) + each.time_s
    step_s = one.speed.step_s
    parts["host"] = parts.get("host", 0.0) + max(0.0, step_s - sum(parts.values()))
    last = one.speed.epochs[-1]
    steps = round(last.samples_per_s * last.epoch_s / one.speed.batch_size) or 1
    parts["input"] = last.input_s / steps
    return EpochPace(step_s=step_s, parts={name: time for name, time in parts.items() if time > 0})


def convolution_efficiency(one: BackendResult) -> float | None:
    """The share of their roofs that the convolutions reach, forward and backward together, by the FLOPs that
    their kernels execute.

    The operators that are fused into a convolution count with it.
    """
    return _reached(each for each in one.operators if each.layer in _CONVOLUTIONS and each.matrix_flops)


def _reached(operators: Iterable[TimedOperator]) -> float | None:
    """The share of their roofs that those of ``operators`` reach together that have one; None without any."""
    bounded = [(each.lower_bound_s, each.time_s) for each in operators if each.lower_bound_s is not None]
    time_s = sum(time_s for _, time_s in bounded)
    return sum(lower_s for lower_s, _ in bounded) / time_s if time_s > 0 else None


def _loaders(timed: Sequence[BackendResult]) -> Iterator[str]:
    """The same here: a resident backend, and the same one behind the paper's loader."""
    paper = paper_table()
    for one in timed:
        through = one.loader
        if through is None:
            continue
        waited, alone = through.input_fraction, one.rate.value
        predicted = 1 / (1 / alone + 1 / through.alone_samples_per_s)
        had = f" (paper: {paper[one.backend]['samples_per_s']:,.0f})" if one.backend in paper else ""
        yield (
            f"{one.name} trains {alone:,.0f} samples/s on data in memory and {through.samples_per_s:,.0f} "
            f"with a loader like the paper's{had}, waiting for input {percent(waited)} of the time. The "
            f"loader alone delivers {through.alone_samples_per_s:,.0f} samples/s; loading and "
            "computing one after the other would give "
            f"{predicted:,.0f}."
        )


def _bound(one: BackendResult, name: str) -> str:
    """What sets the pace of a part of the step, and how near the operators in it are to their roofs."""
    reached = _reached(each for each in one.operators if each.bound == name)
    return PACES[name] + ("" if reached is None else f" (at {percent(reached)} of that roof)")


def _compared(timed: Sequence[BackendResult]) -> Iterator[tuple[str, MeasuredValue, str, MeasuredValue]]:
    """The fastest backend and the others, each and the paper's."""
    paper = paper_table()
    yield from ((timed[0].name, timed[0].rate, one.name, one.rate) for one in timed[1:])
    for one in timed:
        if one.backend in paper:
            theirs = paper[one.backend]["samples_per_s"]
            yield (
                one.name,
                one.rate,
                f"the paper's ({theirs:,.0f})",
                MeasuredValue(value=theirs, low=theirs, high=theirs),
            )


def _accuracy(results: Sequence[BackendResult]) -> Iterator[str]:
    found = [(one.name, one.accuracy) for one in results if one.accuracy is not None]
    if not found:
        return
    listed = ", ".join(f"{name} {percent(training.epochs[-1].test_accuracy, 1)}" for name, training in found)
    first = found[0][1]
    said = f"Accuracy on {first.data.label} after {len(first.epochs)} epochs: {listed}"
    if len(found) > 1:
        losses = [training.epochs[0].train_loss for _, training in found]
        apart = (max(losses) - min(losses)) / max(*losses, 1e-12)
        said += (
            "; with the same initial parameters and data order, their losses in the first epoch "
            f"differ by {apart:.0e}"
        )
    yield f"{said}."
