"""The page of a sweep: its points as a table, curves, rooflines with the path of each series, and Pareto
fronts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from msgspec.structs import replace

from rooflines._version import __version__
from rooflines.device_specs.records import Ceilings
from rooflines.errors import RooflinesError
from rooflines.profiler.directory import load
from rooflines.reports.charts.curves import Choice, Choices, Curves, CurveSeries
from rooflines.reports.charts.palette import SERIES_COLORS
from rooflines.reports.charts.roofline import roofline_drawing as roofline_chart
from rooflines.reports.charts.roofline_figure import RooflineChart, RooflinePoint
from rooflines.reports.document import (
    Block,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    section,
    sections_of,
)
from rooflines.reports.page.roofline import rate_lines, roofline_warning
from rooflines.reports.page.statements import Said
from rooflines.reports.words.text import joined
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.sweeps.records import PointResult, SweepAnalysis, SweepRow
from rooflines.sweeps.results import KNEE, OBJECTIVES, Curve, Objective, by_axis, fit, knee, pareto
from rooflines.units import interval, percent, quantity, seconds, sentence, significant

# A value of a row as a column: its name, its header, unit and format.
_COLUMNS = (
    ("samples_per_s", "throughput", "1/s", "figures"),
    ("sample_s", "time per sample", "s", "scaled"),
    ("epoch_s", "epoch", "s", "figures"),
    ("accuracy", "accuracy", "%", "share"),
    ("peak_memory_bytes", "peak memory", "B", "scaled"),
    ("energy_per_sample_j", "energy per sample", "J", "scaled"),
    ("input_fraction", "waiting for data", "%", "share"),
    ("output_error", "error", "", "given"),
    ("compile_s", "compiling", "s", "figures"),
    ("efficiency", "of its bound", "%", "efficiency"),
)
_CURVES = (
    OBJECTIVES["throughput"],
    Objective(
        name="latency", value="sample_s", more=False, title="time per sample, s", unit="s", format="scaled"
    ),
    OBJECTIVES["memory"],
    OBJECTIVES["energy"],
    OBJECTIVES["accuracy"],
)
# What throughput is weighed against.
_AGAINST = (OBJECTIVES["memory"], OBJECTIVES["energy"], OBJECTIVES["accuracy"])
_LABELS = {
    "batch_size": "batch size",
    "threads": "threads",
    "data_workers": "loader workers",
    "image_size": "image size, pixels",
}
# The values of a metric that a paper printed, by series: (x, y).
Paper = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def page(analysis: SweepAnalysis) -> Page:
    """Return the page of a sweep."""
    sweep, rows = analysis.sweep, analysis.rows
    machines = ", ".join(facts_of_rows(rows, "device_name"))
    verdict, *said = sweep_sentences(rows)
    missing = [row for row in rows if row.unfinished]
    rounds = (
        f"{sweep.repeats} rounds, every other one in the opposite order" if sweep.repeats > 1 else "one round"
    )
    method = [
        f"Each point runs in its own process: {rounds}. A value is the median of the rounds, its "
        "95 % interval is Student's t of their "
        "logarithms; with one round it is the interval of the median step. Operators are traced "
        "in the first round.",
        *dict.fromkeys(map(sentence, facts_of_rows(rows, "data"))),
    ]
    return Page(
        kind="sweep",
        name=sweep.name,
        title=f"{sweep.name} · {len(rows)} points · {machines or 'nothing ran'}",
        created=sweep.created,
        rooflines=__version__,
        verdict=verdict,
        said=tuple(said),
        status=("interrupted", f"{len(missing)} points have not ended: the report covers the others.")
        if missing
        else shared_by([row.value("others_cores") for row in rows], "points"),
        sections=sections_of(
            section("points", "Points", points_table(rows)),
            curves_section(rows, {}),
            paths_section(rows),
            choices_section(rows),
            section("method", "Method", *map(Paragraph, method[:4]), Paragraph(sweep.command, "code")),
        ),
    )


def facts_of_rows(rows: Iterable[SweepRow | PointResult], name: str) -> list[str]:
    """The values of the fact ``name``, each once, without empty ones."""
    return list(dict.fromkeys(row.facts[name] for row in rows if row.facts.get(name)))


def sweep_sentences(rows: Sequence[SweepRow]) -> list[str]:
    """The fastest point, where each curve levels off, what fits and what failed."""
    ran = [row for row in rows if row.value("samples_per_s") is not None]
    if not ran:
        failed = next((row.reason for row in rows if row.reason), "nothing was run")
        return [f"No point has a result: {failed}"]
    texts = [fastest_sentence(ran)]
    axis, found = by_axis(rows)
    if axis == "batch_size":
        texts += [
            f"{curve.name}: batch {bend.value:g} reaches {percent(bend.samples_per_s / bend.best)} of "
            f"the highest throughput ({significant(bend.best)} samples/s)."
            for curve in found
            if (bend := knee(curve, axis)) is not None
        ]
        texts += [
            f"{curve.name}: batch {most.largest} fits, batch {most.too_large} does not."
            for curve in found
            if (most := fit(curve)) is not None and most.too_large is not None
        ]
    if failures := sum(row.reason is not None and not row.unfinished for row in rows):
        texts.append(f"{failures} of {len(rows)} points failed; the table gives the reasons.")
    return texts


def said(rows: Sequence[SweepRow]) -> Iterator[Said]:
    """What a summary says of a sweep: its sentences, then the points, those of highest throughput first."""
    yield from (Said("verdict", text) for text in sweep_sentences(rows)[1:])
    for number, row in sorted(enumerate(rows), key=lambda one: -(one[1].value("samples_per_s") or 0.0)):
        values = [
            f"{label} {quantity(estimate.value * (100 if form in ('share', 'efficiency') else 1), unit)}"
            f"{interval_text(row, name) if name == 'samples_per_s' else ''}"
            for name, label, unit, form in _COLUMNS
            if (estimate := row.estimates.get(name)) is not None
        ]
        limited_by = row.facts.get("limited_by")
        told = joined("; ", *values, limited_by and f"limited by {limited_by}", row.reason)
        yield Said("point", f"{row.point.label}: {told.rstrip('.')}.", (f"/rows/{number}",))


def fastest_sentence(ran: Sequence[SweepRow]) -> str:
    """The point with the highest throughput, beside the first one."""
    best = max(ran, key=lambda row: row.value("samples_per_s") or 0.0)
    rate = best.estimates["samples_per_s"]
    text = (
        f"Highest throughput: {best.point.label} with {significant(rate.value)} "
        f"samples/s{interval_text(best, 'samples_per_s')}"
    )
    first = ran[0]
    base = first.estimates["samples_per_s"]
    if first is best or not base.value:
        return f"{text}."
    if rate.low is None or base.high is None:
        sure = ", noise unknown"
    else:
        sure = "" if rate.low > base.high else ", within the noise"
    return f"{text}, {significant(rate.value / base.value)} × that of {first.point.label}{sure}."


def interval_text(row: SweepRow, name: str) -> str:
    """The interval of a value in parentheses; empty without one."""
    ends = interval(row.estimates[name].low, row.estimates[name].high)
    return f" ({ends})" if ends else ""


def points_table(rows: Sequence[SweepRow]) -> Table:
    """Every point: its values, those of failed ones absent, with the reason."""
    shown = [column for column in _COLUMNS if any(row.value(column[0]) is not None for row in rows)]
    columns = [Column("point", format="text", least=24)]
    for name, label, unit, form in shown:
        priority = _COLUMNS.index((name, label, unit, form)) // 2
        columns.append(Column(label, unit, form, key=name, priority=priority))  # type: ignore[arg-type]
    failed = any(row.reason for row in rows)
    meaning = (
        "Remark: why a point failed, or what limits most of the step."
        if failed
        else "Remark: what limits most of the step."
    )
    columns.append(Column("remark", format="text", priority=0 if failed else 4, least=20, note=meaning))
    best = max((row.value("samples_per_s") or 0.0 for row in rows), default=0.0)
    lines = []
    for row in rows:
        cells: list[Cell | str | float | None] = [row.point.label]
        for name, _, _, form in shown:
            if (value := row.value(name)) is None:
                cells.append(Cell())
                continue
            hover = interval_text(row, name).strip(" ()")
            cells.append(
                Cell(
                    value=value,
                    text=f"{value:.1e}" if form == "given" else "",
                    hover=f"95 % interval: {hover}" if hover else "",
                    bar=value / best if name == "samples_per_s" and best else None,
                )
            )
        cells.append(row.reason.partition(". ")[0] if row.reason else row.facts.get("limited_by", ""))
        lines.append(Row(tuple(cells), muted=row.reason is not None))
    note = "Medians over the rounds; results.csv has their intervals."
    return Table(name="points", columns=tuple(columns), rows=tuple(lines), note=note, brief=20, show="always")


def curves_section(rows: Sequence[SweepRow], paper: Paper) -> Section:
    """A figure for each value along the option that varies."""
    axis, found = by_axis(rows)
    if axis is None:
        return section("curves", "Curves")
    blocks: list[Block] = []
    for shown in _CURVES:
        theirs = paper.get(shown.value, {})
        series = [
            replace(drawn, paper_points=tuple(theirs[drawn.name])) if drawn.name in theirs else drawn
            for curve, color in colored(found)
            if (drawn := _series(curve, axis, shown.value, color))
        ]
        if any(len(drawn.x) > 1 for drawn in series):
            drawing = Curves(
                x_title=_LABELS.get(axis, axis.replace("_", " ")),
                y_title=shown.title,
                series=tuple(series),
                fraction=shown.fraction,
                log_x=True,
            )
            caption = (
                f"{shown.title.partition(',')[0].capitalize()} by {_LABELS.get(axis, axis)}, with 95 "
                "% intervals."
            )
            blocks.append(Figure(name=shown.name, caption=caption, drawing=drawing))
    facts = []
    for curve in found if axis == "batch_size" else ():
        if (bend := knee(curve, axis)) is not None:
            most = fit(curve)
            text = f"{percent(KNEE)} of the highest throughput from batch {bend.value:g} on"
            if most is not None:
                more = "" if most.too_large else " or more"
                text += f"; largest batch that fits: {most.largest}{more}"
            facts.append((curve.name, text))
    if facts:
        blocks.append(Facts(rows=tuple(facts), kind="definitions"))
    return section("curves", f"By {_LABELS.get(axis, axis)}", *blocks)


def colored(found: Sequence[Curve]) -> Iterator[tuple[Curve, str]]:
    """Return each curve with its color, in turn."""
    return zip(found, cycle(SERIES_COLORS), strict=False)


def _series(curve: Curve, axis: str, name: str, color: str) -> CurveSeries | None:
    ends = [
        (
            float(row.point.options[axis]),
            one.value,
            one.value if one.low is None else one.low,
            one.value if one.high is None else one.high,
        )
        for row in curve.rows
        if (one := row.estimates.get(name))
    ]
    if not ends:
        return None
    x, y, low, high = zip(*ends, strict=True)
    return CurveSeries(name=curve.name, color=color, x=x, y=y, low=low, high=high)


def paths_section(rows: Sequence[SweepRow]) -> Section:
    """A roofline for each device, with the path of each series along the option that varies."""
    axis, found = by_axis(rows)
    blocks: list[Block] = []
    for device in facts_of_rows(rows, "device_name"):
        ours = [
            Curve(curve.name, tuple(row for row in curve.rows if row.facts.get("device_name") == device))
            for curve in found
        ]
        drawn = sweep_roofline(ours, device, axis)
        if drawn is not None:
            along = f", along the {_LABELS.get(axis, axis)}" if axis is not None else ""
            caption = f"Each point is a whole step{along}; the roofs are those of {device}."
            blocks.append(Figure(name=f"roofline-{len(blocks) + 1}", caption=caption, drawing=drawn))
    return section("roofline", "Roofline", *blocks)


def sweep_roofline(found: Sequence[Curve], device: str, axis: str | None) -> RooflineChart | None:
    """Whole steps on the roofs of ``device``; None where nothing was counted or no ceilings are known."""
    points = [
        _point(
            number, row, color, f"{curve.name} {row.point.options[axis]}" if axis is not None else curve.name
        )
        for number, (curve, color, row) in enumerate(
            (curve, color, row) for curve, color in colored(found) for row in curve.rows
        )
        if row.value("flop_per_s") and row.value("intensity_flop_per_byte")
    ]
    ceilings = ceilings_of_rows(row for curve in found for row in curve.rows)
    if not points or ceilings is None:
        return None
    return roofline_chart(points, ceilings.ceilings, paths=axis is not None)


def ceilings_of_rows(rows: Iterable[SweepRow]) -> Ceilings | None:
    """Return the ceilings stored with the first run that has any."""
    for row in rows:
        try:
            ceilings = load(Path(row.run)).facts.ceilings if row.run is not None else None
        except RooflinesError:
            continue
        if ceilings is not None:
            return ceilings
    return None


def _point(number: int, row: SweepRow, color: str, label: str) -> RooflinePoint:
    """A whole step on the roofline."""
    value = {name: estimate.value for name, estimate in row.estimates.items()}
    time_s, bound_s, efficiency = value["step_s"], value.get("lower_bound_s"), value.get("efficiency")
    headroom_s = 0.0 if bound_s is None else max(0.0, time_s - bound_s)
    lines = list(rate_lines(value["flops"], value["bytes"], time_s, value["flop_per_s"]))
    lines += [] if efficiency is None else [("efficiency", percent(efficiency))]
    lines += [("headroom", seconds(headroom_s))] if headroom_s else []
    return RooflinePoint(
        key=number,
        name=label,
        label=label,
        category=color,
        intensity=value["intensity_flop_per_byte"],
        flop_per_s=value["flop_per_s"],
        time_s=time_s,
        precision=str(row.point.options.get("precision", "fp32")),
        engine="matrix",
        gain_s=headroom_s,
        warning=roofline_warning(efficiency),
        lines=tuple(lines),
    )


def choices_section(rows: Sequence[SweepRow]) -> Section:
    """Throughput against memory, energy and accuracy, with the points that no other beats."""
    _, found = by_axis(rows)
    color_of = {row.point.id: color for curve, color in colored(found) for row in curve.rows}
    blocks: list[Block] = []
    for against in _AGAINST:
        drawing = choices_of(rows, against, OBJECTIVES["throughput"], color_of)
        if len(drawing.choices) > 2:
            caption = (
                f"Throughput and {against.title.partition(',')[0]}. No point beats those on the line in both."
            )
            blocks.append(Figure(name=f"pareto-{against.name}", caption=caption, drawing=drawing))
    return section("pareto", "Pareto front", *blocks)


def choices_of(rows: Sequence[SweepRow], x: Objective, y: Objective, colors: Mapping[str, str]) -> Choices:
    """Return the chart of the ``rows`` that have both values, with those that no other beats; ``colors`` are
    by point."""
    front = {row.point.id for row in pareto(rows, {x.value: x.more, y.value: y.more})}
    choices = tuple(
        Choice(label=row.point.label, x=across, y=up, color=colors[row.point.id], front=row.point.id in front)
        for row in rows
        if (across := row.value(x.value)) is not None and (up := row.value(y.value)) is not None
    )
    xs = [choice.x for choice in choices] or [0.0]
    spread = max(xs) / max(min(xs), 1e-30)
    return Choices(
        x_title=x.title,
        y_title=y.title,
        choices=choices,
        log_x=not x.fraction and spread > 5,
        fraction=y.fraction,
    )
