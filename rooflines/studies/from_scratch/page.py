"""The page of the from-scratch study: the paper's tables compared with this machine, curves, operators and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rooflines.reports.charts.curves import Curves, Series
from rooflines.reports.document import Facts, Figure, Section
from rooflines.studies import networks
from rooflines.studies.from_scratch.findings import learned_on, sentences
from rooflines.studies.from_scratch.memory import PARTS, MemoryOptions
from rooflines.studies.from_scratch.records import Iterations, LibraryResult, MemoryParts, SizePoint
from rooflines.studies.from_scratch.train import PerceptronOptions, SizeOptions, parse_size, parse_widths
from rooflines.studies.network_page import BackendRows, by_backend, operator_records, operators_section, process_text
from rooflines.studies.study import Missing, Study, StudyOptions
from rooflines.sweeps.records import Point
from rooflines.sweeps.records import Row as Line
from rooflines.units import binary_bytes

_PAPER_ITERATIONS = 500
# What the memory of can be told by component.
_BY_COMPONENT = ("numpy", "cupy", "torch-cpu")


def choose(points: Sequence[Point], options: StudyOptions) -> Iterator[Point | Missing]:
    """Yield the points to run, and why others cannot: MNIST also gives the accuracy; PyTorch's memory on a GPU is not told apart."""
    kinds = {"speed": PerceptronOptions, "accuracy": PerceptronOptions, "memory": MemoryOptions, "sizes": SizeOptions}
    for one in networks.available(points, networks.LIBRARIES, kinds, options):
        if isinstance(one, Point):
            if one.part == "sizes":
                parse_size(str(one.options["size"]))
            else:
                parse_widths(str(one.options["widths"]))
            if one.part == "accuracy" and options.data_dir is not None:
                continue
            if one.part == "memory" and one.options["backend"] not in _BY_COMPONENT:
                continue
        yield one


def results_of(study: Study) -> tuple[LibraryResult, ...]:
    """Return what each library did."""
    return tuple(_result(one) for one in by_backend(study))


def _result(one: BackendRows) -> LibraryResult:
    speed, row = one.detail("speed", Iterations), next(iter(one.part("speed")), None)
    memory, sizes = None, []
    for found in one.part("memory"):
        memory = MemoryParts(**{name: found.estimates[f"{name}_bytes"].value for name in (*PARTS, "total")}, how=found.facts["how"])
    for found in one.part("sizes"):
        widths, samples = parse_size(str(found.point.options["size"]))
        values = {name: found.estimates[name].value for name in ("flops", "bytes")}
        sizes.append(SizePoint(widths=widths, samples=samples, iteration=found.estimates["iteration_s"], **values))
    return LibraryResult(
        name=one.name, backend=one.backend, device_name=one.device_name, speed=speed, sizes=tuple(sizes), memory=memory,
        iteration=row.estimates.get("iteration_s") if row is not None else None, remark=row.facts["remark"] if row is not None else "",
        accuracy=speed if speed is not None and speed.data.name == "mnist" else one.detail("accuracy", Iterations),
    )  # fmt: skip


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    return sentences(results_of(study))


def sections(study: Study) -> tuple[Section, ...]:
    """The paper's tables with this machine, convergence, operators, other sizes, and how each library ran."""
    return sections_of(results_of(study))


def sections_of(results: Sequence[LibraryResult]) -> tuple[Section, ...]:
    """The sections for ``results``."""
    return tuple(make(results) for make in (_convergence, _operators, _sizes, _setup))


def tables(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Return the iterations and the operators of each library."""
    results = results_of(study)
    iterations = []
    for one in results:
        for trained in (one.speed, None if one.accuracy is one.speed else one.accuracy):
            if trained is not None:
                checked = dict(zip(trained.checked_at, trained.accuracies, strict=True))
                iterations += [
                    {"backend": one.name, "data": trained.data.name, "iteration": number, "train_loss": loss,
                     "test_accuracy": checked.get(number)}
                    for number, loss in enumerate(trained.losses, 1)
                ]  # fmt: skip
    return {"iterations": iterations, "operators": operator_records(results)}


def notes(study: Study) -> dict[str, str]:
    """How the memory of each library was measured."""
    results = results_of(study)
    how = "; ".join(f"{one.name}: {one.memory.how}" for one in results if one.memory)
    without = ", ".join(one.name for one in results if one.backend not in _BY_COMPONENT)
    said = [f"Measured ({how})."] if how else []
    said += [f"Not told apart by component: {without}."] if without else []
    return {"memory": " ".join(said)}


def _whole(row: Line) -> float | None:
    """The seconds of as many iterations as the paper's."""
    return row.value("total_s") if row.point.options["iterations"] == _PAPER_ITERATIONS else None


VALUES = {"whole_s": _whole}


def _convergence(results: Sequence[LibraryResult]) -> Section:
    found = [(one, trained) for one in results if (trained := one.accuracy or one.speed) is not None]
    if not found:
        return Section(name="convergence", title="Convergence")
    label = learned_on(found[0][1])
    losses = tuple(_series(one, [(i, loss) for i, loss in enumerate(trained.losses, 1)]) for one, trained in found)
    accuracies = tuple(_series(one, tuple(zip(trained.checked_at, trained.accuracies, strict=True))) for one, trained in found)
    blocks = (
        Figure(
            name="loss", caption=f"Loss before each iteration; equal curves overlap. Data: {label}.",
            drawing=Curves(x_title="iteration", y_title="mean cross-entropy", series=losses),
        ),
        Figure(
            name="accuracy", caption=f"Accuracy on the held-out samples. Data: {label}.",
            drawing=Curves(x_title="iteration", y_title="correct, % of held-out samples", series=accuracies, fraction=True),
        ),
    )  # fmt: skip
    return Section(name="convergence", title="Convergence", blocks=blocks)


def _operators(results: Sequence[LibraryResult]) -> Section:
    return operators_section(results, of="an iteration", title="Operators", by="library", unit="ms")


def _sizes(results: Sequence[LibraryResult]) -> Section:
    """The speed by width of the only hidden layer, for the number of samples that has most widths."""
    series = []
    for one in results:
        shallow = [size for size in one.sizes if len(size.widths) == 3]
        counts = [size.samples for size in shallow]
        most = max(set(counts), key=counts.count, default=0)
        points = sorted((size.widths[1], size.flops / size.iteration.value) for size in shallow if size.samples == most)
        series += [_series(one, points)] if len(points) > 1 else []
    drawing = Curves(x_title="width of the hidden layer", y_title="speed, FLOP/s", series=tuple(series), log_x=True)
    figure = Figure(name="sizes-by-width", caption="Speed by width of the hidden layer.", drawing=drawing)
    return Section(name="other-sizes", title="Other sizes", blocks=(figure,) if series else ())


def _setup(results: Sequence[LibraryResult]) -> Section:
    same = (
        "All libraries have the same initial parameters and the same samples. An iteration lasts from the images in the memory of the "
        "device to the loss on the host; its time is the median. Operators are timed alone, the fastest of 15 rounds."
    )
    rows = [("iterations", same)]
    for one in results:
        if one.speed is not None:
            network = f"{'-'.join(map(str, one.speed.widths))}, {one.speed.data.train_samples:,} samples"
            memory = f"{binary_bytes(one.speed.process_memory_bytes)} of process memory"
            rows.append((one.name, f"{process_text(one)}; {network}; {memory}{f'; {one.remark}' if one.remark else ''}"))
    blocks = (Facts(rows=tuple(rows), kind="definitions"),) if results else ()
    return Section(name="setup", title="How each library ran", blocks=blocks)


def _series(one: LibraryResult, points: Sequence[tuple[float, float]]) -> Series:
    return Series(backend=one.name, colour=one.backend, x=tuple(float(x) for x, _ in points), y=tuple(y for _, y in points))
