"""The page of the from-scratch study: what its numbers say, the paper's tables with this machine, curves,
operators and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rooflines.ext import (
    Curves,
    CurveSeries,
    Facts,
    Figure,
    MeasuredValue,
    Section,
    SweepPoint,
    binary_bytes,
    percent,
    seconds,
    section,
    si,
    significant,
)
from rooflines_studies import network_runs
from rooflines_studies.from_scratch.memory import PARTS, MemoryOptions
from rooflines_studies.from_scratch.train import (
    GRADIENTS,
    MATRIX,
    Iterations,
    LibraryResult,
    MemoryParts,
    PerceptronOptions,
    SizeOptions,
    SizePoint,
    grouped,
    parse_size,
    parse_widths,
)
from rooflines_studies.network_page import (
    BackendRows,
    by_backend,
    operator_records,
    operators_section,
    process_text,
)
from rooflines_studies.networks.perceptron import LIBRARIES
from rooflines_studies.study import Missing, Study, StudyOptions, decided, read_study
from rooflines_studies.tables import by_name

_FOLDER = Path(__file__).parent
_PAPER_ITERATIONS = 500
# What the memory of can be told by component.
_BY_COMPONENT = ("numpy", "cupy", "torch-cpu")
# The paper's network, which its numbers are of.
_PAPER_WIDTHS, _PAPER_SAMPLES = (784, 10, 10), 59_000
_ADDS_UP = 0.05
# Losses of libraries that compute the same differ by the order in which they add float32 numbers up, 6e-8 a
# sum, and training carries that on: 2e-5 was seen after 500 iterations. A learning rate that is a hundredth
# off has them 1e-2 apart.
_SAME = 1e-3


def choose(points: Sequence[SweepPoint], options: StudyOptions) -> Iterator[SweepPoint | Missing]:
    """Yield the points to run, and why others cannot: MNIST also gives the accuracy; PyTorch's memory on a
    GPU is not told apart."""
    kinds = {
        "speed": PerceptronOptions,
        "accuracy": PerceptronOptions,
        "memory": MemoryOptions,
        "sizes": SizeOptions,
    }
    for one in network_runs.available(points, LIBRARIES, kinds, options):
        if isinstance(one, SweepPoint):
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
    return tuple(map(_result, by_backend(study)))


def _result(one: BackendRows) -> LibraryResult:
    speed, row = one.detail("speed", Iterations), next(iter(one.part("speed")), None)
    memory, sizes = None, []
    for found in one.part("memory"):
        memory = MemoryParts(
            **{name: found.estimates[f"{name}_bytes"].value for name in (*PARTS, "total")},
            how=found.facts["how"],
        )
    for found in one.part("sizes"):
        widths, samples = parse_size(str(found.point.options["size"]))
        flops = found.estimates["flops"].value
        sizes.append(
            SizePoint(widths=widths, samples=samples, iteration=found.estimates["iteration_s"], flops=flops)
        )
    return LibraryResult(
        name=one.name,
        backend=one.backend,
        device_name=one.device_name,
        speed=speed,
        sizes=tuple(sizes),
        memory=memory,
        iteration=row.estimates.get("iteration_s") if row is not None else None,
        remark=row.facts["remark"] if row is not None else "",
        accuracy=speed
        if speed is not None and speed.data.name == "mnist"
        else one.detail("accuracy", Iterations),
    )


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    return sentences(results_of(study))


def sections(study: Study) -> tuple[Section, ...]:
    """The paper's tables with this machine, convergence, operators, other sizes, and how each library ran."""
    results = results_of(study)
    operators = operators_section(results, of="an iteration", title="Operators", by="library", unit="ms")
    return _convergence(results), operators, _by_width(results), _setup(results)


def tables(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Return the iterations and the operators of each library."""
    results = results_of(study)
    iterations = []
    for one in results:
        for trained in (one.speed, None if one.accuracy is one.speed else one.accuracy):
            if trained is not None:
                checked = dict(zip(trained.checked_at, trained.accuracies, strict=True))
                iterations += [
                    {
                        "backend": one.name,
                        "data": trained.data.name,
                        "iteration": number,
                        "train_loss": loss,
                        "test_accuracy": checked.get(number),
                    }
                    for number, loss in enumerate(trained.losses, 1)
                ]
    return {"iterations": iterations, "operators": operator_records(results)}


def notes(study: Study) -> dict[str, str]:
    """How the memory of each library was measured."""
    results = results_of(study)
    how = "; ".join(f"{one.name}: {one.memory.how}" for one in results if one.memory)
    without = ", ".join(one.name for one in results if one.backend not in _BY_COMPONENT)
    said = [f"Measured ({how})."] if how else []
    said += [f"Not told apart by component: {without}."] if without else []
    return {"memory": " ".join(said)}


# The seconds of as many iterations as the paper's.
VALUES = {
    "whole_s": lambda row: (
        row.value("total_s") if row.point.options["iterations"] == _PAPER_ITERATIONS else None
    )
}


def _convergence(results: Sequence[LibraryResult]) -> Section:
    found = [(one, trained) for one in results if (trained := one.accuracy or one.speed) is not None]
    if not found:
        return section("convergence", "Convergence")
    label = learned_on(found[0][1])
    losses = tuple(_series(one, list(enumerate(trained.losses, 1))) for one, trained in found)
    accuracies = tuple(
        _series(one, list(zip(trained.checked_at, trained.accuracies, strict=True))) for one, trained in found
    )
    of_losses = Curves(x_title="iteration", y_title="mean cross-entropy", series=losses)
    of_accuracies = Curves(
        x_title="iteration", y_title="correct, % of held-out samples", series=accuracies, fraction=True
    )
    return section(
        "convergence",
        "Convergence",
        Figure(
            name="loss",
            caption=f"Loss before each iteration; equal curves overlap. Data: {label}.",
            drawing=of_losses,
        ),
        Figure(
            name="accuracy",
            caption=f"Accuracy on the held-out samples. Data: {label}.",
            drawing=of_accuracies,
        ),
    )


def _by_width(results: Sequence[LibraryResult]) -> Section:
    """The speed by width of the only hidden layer, for the number of samples that has most widths."""
    series = []
    for one in results:
        shallow = [size for size in one.sizes if len(size.widths) == 3]
        counts = [size.samples for size in shallow]
        most = max(set(counts), key=counts.count, default=0)
        points = sorted(
            (size.widths[1], size.flops / size.iteration.value) for size in shallow if size.samples == most
        )
        if len(points) > 1:
            series.append(_series(one, points))
    drawing = Curves(
        x_title="width of the hidden layer", y_title="speed, FLOP/s", series=tuple(series), log_x=True
    )
    figure = Figure(name="sizes-by-width", caption="Speed by width of the hidden layer.", drawing=drawing)
    return section("other-sizes", "Other sizes", figure if series else None)


def _setup(results: Sequence[LibraryResult]) -> Section:
    same = (
        "All libraries have the same initial parameters and the same samples. An iteration lasts "
        "from the images in the memory of the "
        "device to the loss on the host; its time is the median. Operators are timed alone, the "
        "fastest of 15 rounds."
    )
    rows = [("iterations", same)]
    for one in results:
        if one.speed is not None:
            network = f"{'-'.join(map(str, one.speed.widths))}, {one.speed.data.train_samples:,} samples"
            memory = f"{binary_bytes(one.speed.process_memory_bytes)} of process memory"
            rows.append(
                (
                    one.name,
                    f"{process_text(one)}; {network}; {memory}{f'; {one.remark}' if one.remark else ''}",
                )
            )
    return section(
        "setup", "How each library ran", Facts(rows=tuple(rows), kind="definitions") if results else None
    )


def _series(one: LibraryResult, points: Sequence[tuple[float, float]]) -> CurveSeries:
    return CurveSeries(
        name=one.name,
        color=one.backend,
        x=tuple(float(x) for x, _ in points),
        y=tuple(y for _, y in points),
    )


# --- what the numbers say, in sentences -------------------------------------------------------------------


def libraries() -> dict[str, dict[str, float]]:
    """Return the tables of the paper: by ``numpy`` and ``cupy``, by quantity, in seconds and bytes."""
    return by_name(_FOLDER / "from_scratch_mlp.csv")


def sentences(results: Sequence[LibraryResult]) -> Iterator[str]:
    """Yield the sentences. Without a result there are those about the paper."""
    timed = [one for one in results if one.speed is not None]
    if timed:
        fastest = min(timed, key=lambda one: _iteration(one).value)
        yield _verdict(fastest)
        yield from decided((*_compared(timed, fastest), *_sizes(results)), "takes", "long")
        yield from _where(timed)
    yield from _memory(results)
    remarks = read_study(_FOLDER).remarks
    yield from (remarks["memory"], remarks["link"])
    for one in timed:
        if one.backend == "numpy" and one.operators and _is_papers(one):
            yield remarks["gradients"].format(here=seconds(grouped(one.operators)[GRADIENTS]))
    yield from _curves(results)


def _is_papers(one: LibraryResult) -> bool:
    """Whether the network and the samples are the paper's."""
    return one.speed is not None and (one.speed.widths, one.speed.data.train_samples) == (
        _PAPER_WIDTHS,
        _PAPER_SAMPLES,
    )


def _iteration(one: LibraryResult) -> MeasuredValue:
    assert one.iteration is not None
    return one.iteration


def _compared(
    timed: Sequence[LibraryResult], fastest: LibraryResult
) -> Iterator[tuple[str, MeasuredValue, str, MeasuredValue]]:
    """The libraries and the fastest, NumPy and the paper's."""
    paper = MeasuredValue(
        **dict.fromkeys(("value", "low", "high"), libraries()["numpy"]["time_per_iteration"])
    )
    for one in timed:
        if one is not fastest:
            yield one.name, _iteration(one), fastest.name, _iteration(fastest)
        if one.backend == "numpy" and _is_papers(one):
            yield one.name, _iteration(one), f"the paper's ({seconds(paper.value)} an iteration)", paper


def _verdict(fastest: LibraryResult) -> str:
    """What sets the pace of the fastest: the operator with the most time, and how near it is to its roof."""
    assert fastest.speed is not None
    samples, operators = fastest.speed.data.train_samples, fastest.operators
    said = f"{fastest.name} takes {seconds(_iteration(fastest).value)} per iteration of {samples:,} samples."
    if operators:
        share = grouped(operators)[MATRIX] / sum(each.time_s for each in operators)
        longest = max(operators, key=lambda each: each.time_s)
        rate, intensity = (
            si(longest.bytes / longest.time_s, "B/s"),
            significant(longest.executed / longest.bytes),
        )
        said += (
            f" Matrix products take {percent(share)} of the time of its operators; the longest "
            f"one, the {longest.layer} {longest.name},"
            f" moves {rate} at {intensity} FLOP/byte"
        )
        said += (
            "."
            if longest.efficiency is None
            else f", {percent(longest.efficiency)} of its {longest.bound} roof."
        )
    return said


def _where(timed: Sequence[LibraryResult]) -> Iterator[str]:
    """Where an iteration goes by the paper's headings."""
    for one in timed:
        if one.operators:
            times = grouped(one.operators)
            total = sum(times.values())
            largest = sorted(
                ((name, time / total) for name, time in times.items() if time / total >= 0.01),
                key=lambda pair: -pair[1],
            )
            parts = ", ".join(f"{name} {percent(share)}" for name, share in largest)
            launch = sum(each.bound == "latency" for each in one.operators)
            small = (
                f"{launch} of its {len(one.operators)} operators are so small that launching them "
                "dominates their time"
            )
            few = f"; {small}" if launch else ""
            yield f"{one.name}, time of the operators of an iteration: {parts}{few}."


def _memory(results: Sequence[LibraryResult]) -> Iterator[str]:
    for one in results:
        memory = one.memory
        if (
            memory is None or memory.total <= 0
        ):  # other programs returned memory meanwhile, so the growth is unknown
            continue
        apart = memory.parts / memory.total - 1
        fits = "add up to" if abs(apart) <= _ADDS_UP else "do not add up to"
        yield (
            f"Memory of {one.name}, measured component by component: input "
            f"{si(memory.input, 'B')}, the library and its buffers "
            f"{si(memory.overhead, 'B')}, activations {si(memory.activations, 'B')}, gradients "
            f"{si(memory.gradients, 'B')}, parameters "
            f"{si(memory.parameters, 'B')}; the components {fits} the total growth of "
            f"{si(memory.total, 'B')} "
            f"({percent(abs(apart), 1)} difference)."
        )


def _sizes(results: Sequence[LibraryResult]) -> Iterator[tuple[str, MeasuredValue, str, MeasuredValue]]:
    """The widest and the narrowest hidden layer of two networks of one depth and sample count."""
    for one in results:
        pairs = [
            (small, large)
            for small in one.sizes
            for large in one.sizes
            if small.samples == large.samples
            and len(small.widths) == len(large.widths) == 3
            and small.widths[1] < large.widths[1]
        ]
        if pairs:
            small, large = max(pairs, key=lambda pair: pair[1].widths[1] / pair[0].widths[1])
            wide = f"{one.name}'s hidden layer of {large.widths[1]} units ({small.samples:,} samples)"
            yield wide, large.iteration, f"one of {small.widths[1]}", small.iteration


def learned_on(trained: Iterations) -> str:
    """The data of a training, and the network: on a stand-in for MNIST it need not be the paper's."""
    return f"{trained.data.label} by {'-'.join(map(str, trained.widths))}"


def _curves(results: Sequence[LibraryResult]) -> Iterator[str]:
    """Whether all libraries learn alike: the largest difference between their losses."""
    found = [(one.name, one.accuracy) for one in results if one.accuracy is not None]
    # Only curves of the same data are compared: one whose training for accuracy failed is left out.
    found = found or [(one.name, one.speed) for one in results if one.speed is not None]
    if not found:
        return
    accuracies = ", ".join(f"{name} {percent(trained.accuracies[-1], 1)}" for name, trained in found)
    said = (
        f"After {len(found[0][1].losses)} iterations on {learned_on(found[0][1])}: {accuracies} of "
        "the held-out samples are correct"
    )
    first = found[0][1].losses
    if len(found) > 1:
        apart = max(
            abs(a - b) / max(a, 1e-12)
            for _, other in found[1:]
            for a, b in zip(first, other.losses, strict=False)
        )
        same = (
            "so all compute the same function"
            if apart <= _SAME
            else "so they do not compute the same function"
        )
        said += f"; the loss curves differ by at most {apart:.1e}, {same}"
    yield f"{said}."
