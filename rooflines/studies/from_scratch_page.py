"""The report of the from-scratch study: the paper's tables compared with this machine, curves, operators and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rooflines.reports.charts.kinds import Curves, Series
from rooflines.reports.document import ABSENT, Block, Column, Figure, Page, Row, Section, Table
from rooflines.studies import papers
from rooflines.studies.from_scratch_findings import BIAS, GRADIENTS, MATRIX, RELU, SOFTMAX, UPDATE, grouped, learned_on
from rooflines.studies.page import operators_section, process_facts, study_page
from rooflines.studies.records import FromScratchStudy, LibraryResult
from rooflines.units import binary_bytes, seconds, si, significant

_MOST_POINTS = 200


def page(study: FromScratchStudy) -> Page:
    """Everything that the report shows."""
    network = "-".join(map(str, study.widths))
    return study_page(
        study,
        title=f"from-scratch · perceptron {network} · {study.samples:,} samples · {study.iterations} iterations",
        label=_data_label(study),
        sections=(_papers_tables(study), _convergence(study), _operators(study), _sizes(study)),
        method=_method(study),
    )


def _data_label(study: FromScratchStudy) -> str:
    speeds = {one.speed.data.label: one.speed.data.train_samples for one in study.results if one.speed}
    accuracies = {learned_on(one.accuracy): one.accuracy.data.train_samples for one in study.results if one.accuracy}
    parts = [f"Times: {label}, {count:,} samples." for label, count in speeds.items()]
    parts += [f"Convergence: {label}, {count:,} samples." for label, count in accuracies.items()]
    return " ".join(parts) or "Nothing was measured."


def _papers_tables(study: FromScratchStudy) -> Section:
    columns = [Column("", format="text")]
    paper = papers.from_scratch()
    order: list[tuple[str, bool]] = []
    for one in study.results:
        order.append((one.backend, False))
        columns.append(Column(one.backend, "here"))
        if one.backend in paper:
            order.append((one.backend, True))
            columns.append(Column(one.backend, "paper"))
    for name in paper:
        if (name, False) not in order:
            order.append((name, True))
            columns.append(Column(name, "paper"))
    results = {one.backend: one for one in study.results}

    def row(label: str, quantity: str, value: Callable[[LibraryResult], float | None], form: Callable[[float], str]) -> Row:
        cells = [label]
        for name, of_paper in order:
            found = paper[name].get(quantity) if of_paper else value(results[name])
            cells.append(ABSENT if found is None else form(found))
        return Row(tuple(cells))

    def phase(name: str) -> Callable[[LibraryResult], float | None]:
        return lambda one: sum(each.time_s for each in one.operators if each.phase == name) or None

    def heading(name: str) -> Callable[[LibraryResult], float | None]:
        return lambda one: grouped(one.operators)[name] if one.operators else None

    def part(name: str) -> Callable[[LibraryResult], float | None]:
        return lambda one: getattr(one.memory, name) if one.memory else None

    def milliseconds(value: float) -> str:
        return f"{significant(value * 1e3)} ms"

    total = "total" if study.iterations == 500 else f"total (here {study.iterations})"
    times = (
        row(
            f"{total}, 500 iterations" if study.iterations == 500 else total,
            "total_training_time_500_iterations",
            lambda one: one.speed.total_s if one.speed else None,
            seconds,
        ),
        row("an iteration", "time_per_iteration", lambda one: one.speed.iteration_s if one.speed else None, milliseconds),
        row("forward pass", "forward_pass", phase("forward"), milliseconds),
        row("backward pass", "backward_pass", phase("backward"), milliseconds),
        row("update", "", phase("optimizer"), milliseconds),
    )
    operations = (
        row(MATRIX, "matrix_multiplication", heading(MATRIX), milliseconds),
        row(RELU, "relu", heading(RELU), milliseconds),
        row(SOFTMAX, "softmax", heading(SOFTMAX), milliseconds),
        row(GRADIENTS, "gradient_computation", heading(GRADIENTS), milliseconds),
        row(BIAS, "", heading(BIAS), milliseconds),
        row(UPDATE, "", heading(UPDATE), milliseconds),
    )
    memory = tuple(
        row(label, quantity, part(name), lambda value: si(value, "B"))
        for label, name, quantity in (
            ("parameters", "parameters", "memory_parameters"),
            ("input", "input", "memory_input_data"),
            ("activations", "activations", "memory_activations"),
            ("gradients", "gradients", "memory_gradients"),
            ("library and buffers", "overhead", "memory_framework_overhead"),
            ("total growth", "total", "memory_total"),
        )
    )
    how = "; ".join(f"{one.backend}: {one.memory.how}" for one in study.results if one.memory)
    without = [f"{one.backend}: {one.memory_missing}." for one in study.results if one.memory_missing]
    blocks: list[Block] = []
    if study.results:
        columns_given = tuple(columns)
        blocks = [
            Table(
                name="times", title="Times", columns=columns_given, rows=times, show="always",
                note="Iteration: median. Passes: sum of operators, each timed alone, fastest of 15 rounds.",
            ),
            Table(
                name="operations", title="By operation", columns=columns_given, rows=operations, show="always",
                note="Matrix products of the backward pass count as matrix multiplication; the paper does not list bias and update.",
            ),
            Table(
                name="memory", title="Memory by component", columns=columns_given, rows=memory, show="always",
                note=" ".join(filter(None, (f"Measured ({how})." if how else "", *without, "MB is 1e6 bytes."))),
            ),
        ]  # fmt: skip
    return Section(name="papers-tables", title="The paper's tables", blocks=tuple(blocks))


def _convergence(study: FromScratchStudy) -> Section:
    found = [(one.backend, trained) for one in study.results if (trained := one.accuracy or one.speed) is not None]
    if not found:
        return Section(name="convergence", title="Convergence")
    label = learned_on(found[0][1])
    losses = tuple(
        Series(backend=name, x=tuple(x for x, _ in points), y=tuple(y for _, y in points))
        for name, trained in found
        if (points := _thinned([(float(i + 1), loss) for i, loss in enumerate(trained.losses)]))
    )
    accuracies = tuple(
        Series(backend=name, x=tuple(map(float, trained.checked_at)), y=trained.accuracies)
        for name, trained in found
        if trained.accuracies
    )
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


def _operators(study: FromScratchStudy) -> Section:
    return operators_section(study.results, study.ceilings, of="an iteration", title="Operators", by="library", unit="ms")


def _sizes(study: FromScratchStudy) -> Section:
    rows = tuple(
        Row(
            (one.backend, "-".join(map(str, size.widths)), f"{size.samples:,}", f"{size.iteration_s * 1e3:.3g}",
             si(size.flops / size.iteration_s, "FLOP/s"), si(size.bytes / size.iteration_s, "B/s")),
            colour=one.backend,
        )
        for one in study.results
        for size in one.sizes
    )  # fmt: skip
    blocks: list[Block] = []
    series = []
    for one in study.results:
        counts = [size.samples for size in one.sizes if len(size.widths) == 3]
        most = max(set(counts), key=counts.count, default=0)
        points = sorted(
            (size.widths[1], size.flops / size.iteration_s) for size in one.sizes if len(size.widths) == 3 and size.samples == most
        )
        if len(points) > 1:
            series.append(Series(backend=one.backend, x=tuple(float(x) for x, _ in points), y=tuple(y for _, y in points)))
    if series:
        drawing = Curves(x_title="width of the hidden layer", y_title="speed, FLOP/s", series=tuple(series), log_x=True)
        blocks.append(Figure(name="sizes", caption="Speed by width of the hidden layer.", drawing=drawing))
    if rows:
        blocks.append(
            Table(
                name="sizes", title="Other widths and sample counts", rows=rows, show="always",
                columns=(Column("library", format="text"), Column("network", format="text"), Column("samples"),
                         Column("iteration", "ms"), Column("speed"), Column("traffic")),
                note="Random samples; the time does not depend on their values.",
            )
        )  # fmt: skip
    return Section(name="other-sizes", title="Other sizes", blocks=tuple(blocks))


def _method(study: FromScratchStudy) -> tuple[str, ...]:
    facts = [
        process_facts(one) + (f", {binary_bytes(one.process_memory_bytes)} of process memory" if one.process_memory_bytes else "")
        for one in study.results
    ]
    return (
        "Each library runs in its own process with the same initial parameters and the same samples. An iteration lasts from the "
        "images in the memory of the device to the loss on the host; its time is the median. Operators are timed alone, the fastest "
        "of 15 rounds.",
        *([f"{'; '.join(facts)}."] if facts else []),
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most ``_MOST_POINTS`` of the points, evenly, with the last."""
    every = -(-len(points) // _MOST_POINTS)
    kept = list(points[::every]) if every else []
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]
