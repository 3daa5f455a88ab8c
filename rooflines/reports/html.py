"""report.html: the analysis as one page that opens without a network.

This file decides what the page says; ``templates/`` decides how it looks. Everything that came from a trace is escaped three times over
where it has to be: as HTML by Jinja, as JSON inside the page, and as plotly text, which reads tags of its own.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rooflines.reports.chart import (
    MOST_POINTS,
    SOURCE_WORDS,
    Chart,
    Label,
    Point,
    marker_diameter,
    place_labels,
    ring_text_is_left,
    roofline_chart,
    shorten_left,
    warning,
)
from rooflines.reports.palette import BOUNDS, INK, THEMES, bound_style, category_colour
from rooflines.reports.tables import operator_module, operator_name, shorten_name, shorten_shapes, step_time
from rooflines.reports.terminal import (
    coverage_sentence,
    headline,
    missing_ceilings,
    missing_operators,
    per,
    saving,
    source_words,
    status_sentence,
    steps_sentences,
    subject,
)
from rooflines.roofline.analysis import CATEGORIES, Analysis, ModuleRow, OperatorRow
from rooflines.units import binary_bytes, percent, scale, seconds, si, significant

SHOWN_AT_FIRST = 50
_MODULES_OPEN = 40
_FINDINGS_AT_FIRST = 3
_MOST_STEP_MARKS = 400
_MOST_DECIMALS = 3
_DASH = "–"
# A figure space and a punctuation space are as wide as a digit and a point: they keep a column on its decimal point.
_FIGURE_SPACE, _POINT_SPACE = "\u2007", "\u2008"
# The plot sizes that labels are placed for, widest first, in pixels; below the last one only ranks fit.
_LABEL_SIZES = ((880, 430), (580, 370))
_RANK_SIZE = (270, 330)


class Cell(NamedTuple):
    """One cell: what is read, what it sorts by, what the pointer shows, and how long its bar is (0 to 1)."""

    text: str
    sort: float | str = ""
    title: str = ""
    bar: float | None = None
    swatch: str = ""
    bound: str = ""
    warning: str = ""


class Column(NamedTuple):
    """A header: its title, its unit, and whether numbers stand below it."""

    title: str
    unit: str = ""
    numeric: bool = True
    title_long: str = ""


class Numbers(NamedTuple):
    """The texts of a numeric column and the unit that they share."""

    unit: str
    factor: float
    texts: tuple[str, ...]

    def total(self, value: float) -> str:
        """A sum over the column, in the column's unit and on its decimal point."""
        return _padded(_figure(value / self.factor), _decimals(self.texts))


class Table(NamedTuple):
    """A table with its totals; ``totals`` is empty where a sum means nothing."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[str, ...] = ()


class Part(NamedTuple):
    """A piece of a stacked bar."""

    name: str
    text: str
    share: float
    share_text: str
    letter: str = ""
    pattern: str = ""
    meaning: str = ""


class TreeRow(NamedTuple):
    """A module in its tree: how deep, whether it has children and is open, whether its parents are."""

    depth: int
    has_children: bool
    is_open: bool
    is_shown: bool
    cells: tuple[Cell, ...]


class StepMark(NamedTuple):
    """A timed step in the plot of step times, in percent of the plot."""

    left: float
    bottom: float
    title: str


class StepPlot(NamedTuple):
    """The timed steps with their median and its interval; positions in percent of the plot."""

    marks: tuple[StepMark, ...]
    median_bottom: float
    median_text: str
    band_bottom: float
    band_height: float
    low_text: str
    high_text: str
    note: str


def write(analysis: Analysis, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(analysis), encoding="utf-8")
    return path


def render(analysis: Analysis) -> str:
    """The page as text. It renders whatever the analysis holds and says in place what it does not."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    chart = roofline_chart(analysis)
    page: str = environment.get_template("report.html.j2").render(
        analysis=analysis,
        subject=subject(analysis),
        status=status_sentence(analysis),
        headline=headline(analysis),
        per=per(analysis),
        basis=_basis(analysis),
        created=analysis.created.replace("T", " ")[:16],
        where=_where(analysis),
        against=_against(analysis),
        findings=[(finding, saving(finding.saves_s, analysis), _share(finding.saves_s, analysis)) for finding in analysis.findings],
        findings_at_first=_FINDINGS_AT_FIRST,
        missing_operators=missing_operators(analysis),
        missing_ceilings=missing_ceilings(analysis),
        chart=chart,
        chart_json=embedded_json(_chart_data(chart)) if chart else "",
        chart_caption=chart_caption(analysis),
        off_chart=_off_chart(chart),
        roof_groups=_roof_groups(chart),
        operators=operator_table(analysis),
        shown_at_first=SHOWN_AT_FIRST,
        modules=module_tree(analysis),
        module_columns=_module_columns(analysis),
        steps_text=steps_sentences(analysis),
        step_plot=step_plot(analysis),
        device=_device(analysis),
        timeline=_timeline(analysis),
        memory=_memory(analysis),
        coverage=coverage_sentence(analysis),
        unmodelled=_unmodelled_table(analysis),
        ceilings=_ceilings_table(analysis),
        graph_launch=seconds(analysis.coverage.graph_launch_time_s) if analysis.coverage else "",
        energy=si(analysis.totals.energy_j, "J") if analysis.totals and analysis.totals.energy_j is not None else "",
        ink=INK,
        bounds=BOUNDS,
        categories={name: {theme: category_colour(name, theme) for theme in THEMES} for name in CATEGORIES},
        slug=_slug,
        # Library code, not data: it holds no closing script tag (a test looks) and must not be escaped.
        plotly_js=get_plotlyjs() if chart else "",
    )
    return page


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def plotly_text(text: str) -> str:
    """``text`` for a plotly label, where tags and entities would be read as markup."""
    return html.escape(" ".join(text.split()), quote=False)


# --- where a step goes ---------------------------------------------------------------------------------------------------------


def _basis(analysis: Analysis) -> str:
    count = analysis.basis.steps
    steps = f"{count} traced step{'' if count == 1 else 's'}"
    if analysis.basis.per == "step":
        return f"Times, FLOPs and bytes are per step: the mean over {steps}."
    return f"Times, FLOPs and bytes are for the whole trace of {steps}."


def _share(time_s: float, analysis: Analysis) -> float:
    whole = step_time(analysis)
    return max(0.0, time_s / whole) if whole > 0 else 0.0


def _where(analysis: Analysis) -> tuple[Part, ...]:
    """The step by bound class, in the order of the palette, empty classes left out."""
    times = {name: value for name, value in (analysis.bound_breakdown or {}).items() if value > 0}
    whole = sum(times.values())
    order = list(BOUNDS)
    names = sorted(times, key=lambda name: order.index(name) if name in order else len(order))
    parts = []
    for name in names:
        style = bound_style(name)
        share = times[name] / whole
        parts.append(
            Part(
                name=name,
                text=seconds(times[name]),
                share=share,
                share_text=percent(share),
                letter=style.letter,
                pattern=style.name,
                meaning=style.meaning,
            )
        )
    return tuple(parts)


def _against(analysis: Analysis) -> tuple[Part, ...]:
    """Lower bound and headroom of the operators that have a bound, on the scale of the step."""
    judged = [(row.lower_bound_s, row.time_s) for row in analysis.operators if row.lower_bound_s is not None]
    whole = sum((analysis.bound_breakdown or {}).values()) or step_time(analysis)
    if not judged or whole <= 0:
        return ()
    lower = sum(bound for bound, _ in judged)
    headroom = max(0.0, sum(time_s for _, time_s in judged) - lower)
    rest = max(0.0, whole - lower - headroom)
    parts = (
        ("lower bound", lower, "bound", "what the work needs at the roofs of this device"),
        ("headroom", headroom, "headroom", "time above the lower bound"),
        ("not judged", rest, "rest", "idle time and operators without a bound"),
    )
    return tuple(
        Part(name=name, text=seconds(value), share=value / whole, share_text=percent(value / whole), pattern=pattern, meaning=meaning)
        for name, value, pattern, meaning in parts
        if value > 0
    )


# --- chart ---------------------------------------------------------------------------------------------------------------------


def chart_caption(analysis: Analysis) -> str:
    """What to see in the chart: the categories that take the most time and how near to their bound they run."""
    told = []
    total = sum(row.time_s for row in analysis.operators)
    for category in CATEGORIES:
        rows = [row for row in analysis.operators if row.category == category]
        judged = [(row.time_s, row.lower_bound_s) for row in rows if row.lower_bound_s is not None]
        time_s = sum(row.time_s for row in rows)
        judged_time = sum(time for time, _ in judged)
        if judged_time > 0 and total > 0:
            told.append((time_s, time_s / total, sum(bound for _, bound in judged) / judged_time, category))
    told.sort(reverse=True)
    parts = [
        f"{category} takes {percent(share)} of the operator time at {percent(near)} of its bound"
        for _, share, near, category in told[:2]
    ]
    if not parts:
        return "Operators by intensity and speed." if analysis.operators else "The roofs of this device."
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:] + "."


def _off_chart(chart: Chart | None) -> str:
    if chart is None:
        return ""
    texts = []
    if any(_above_the_line(point, chart) for point in chart.points):
        texts.append("Points above the slanted line move bytes that a cache holds and are judged against its roof.")
    if chart.off_chart_count:
        rows = "1 operator" if chart.off_chart_count == 1 else f"{chart.off_chart_count} operators"
        verb = "is" if chart.off_chart_count == 1 else "are"
        texts.append(
            f"{rows} ({seconds(chart.off_chart_time_s)}) {verb} not on the chart: without FLOPs or without bytes there is no intensity."
        )
    if chart.left_out_count:
        crowded = f" or not among the {MOST_POINTS} longest" if len(chart.points) + chart.left_out_count > MOST_POINTS else ""
        texts.append(f"{chart.left_out_count} more, short and far from the rest{crowded}, are in the table only.")
    return " ".join(texts)


def _above_the_line(point: Point, chart: Chart) -> bool:
    lines = [roof.value for roof in chart.roofs if roof.kind == "memory" and roof.primary]
    return not point.warning and any(point.flop_per_s > line * point.intensity for line in lines)


def _roof_groups(chart: Chart | None) -> tuple[tuple[str, str], ...]:
    """The groups of roofs that can be switched on, with what they hold."""
    if chart is None:
        return ()
    groups: dict[str, list[str]] = {}
    for roof in chart.roofs:
        if not roof.primary:
            groups.setdefault(roof.why_secondary, []).append(roof.text)
    return tuple((name, "; ".join(texts)) for name, texts in groups.items())


def _chart_data(chart: Chart) -> dict[str, Any]:
    """The chart for the page's script: every text escaped for plotly, every colour by name so that the theme can change."""
    plain: dict[str, Any] = msgspec.to_builtins(chart)
    for roof in plain["roofs"]:
        roof["hover"] = _hover(roof["name"], (("ceiling", si(roof["value"], roof["unit"])), (roof["source"], roof["detail"])))
        roof["text"] = plotly_text(roof["text"])
        roof["short"] = plotly_text(f"{roof['name']} {si(roof['value'], roof['unit'])}")
    for ridge in plain["ridges"]:
        ridge["hover"] = _hover(f"{ridge['memory']} meets {ridge['compute']}", (("ridge point", ridge["text"].removeprefix("ridge ")),))
    plain["points"] = [
        {
            "x": point.intensity,
            "y": point.flop_per_s,
            "size": round(marker_diameter(point.area), 1),
            "category": point.category,
            "warning": bool(point.warning),
            "hover": _hover(point.name, point.hover),
        }
        for point in chart.points
    ]
    positions = {point.row: index for index, point in enumerate(chart.points)}
    plain["labels"] = [
        {"least_width": width, "labels": _labels(place_labels(chart, width, height), positions)} for width, height in _LABEL_SIZES
    ]
    narrow = place_labels(chart, *_RANK_SIZE, line=16, largest=32.0, ranks_only=True)
    plain["labels"].append({"least_width": 0, "labels": _labels(narrow, positions)})
    if chart.ring:
        plain["ring"]["left"] = ring_text_is_left(chart)
        plain["ring"]["hover"] = _hover(chart.ring.text, chart.ring.hover)
    plain["colours"] = {
        theme: {
            "ink": msgspec.to_builtins(INK[theme]),
            "category": {legend.category: category_colour(legend.category, theme) for legend in chart.legend},
        }
        for theme in THEMES
    }
    del plain["labelled"]
    return plain


def _labels(labels: Iterable[Label], positions: dict[int, int]) -> list[dict[str, Any]]:
    return [{"text": plotly_text(label.text), "x": label.x, "y": label.y, "point": positions[label.row]} for label in labels]


def _hover(title: str, lines: Iterable[tuple[str, str]]) -> str:
    wrapped = [f"<b>{plotly_text(_clip(title, 80))}</b>"]
    for name, text in lines:
        for number, piece in enumerate(_wrap(text, 64)):
            wrapped.append(f"{plotly_text(name)}: {plotly_text(piece)}" if number == 0 else f"   {plotly_text(piece)}")
    return "<br>".join(wrapped)


# --- tables --------------------------------------------------------------------------------------------------------------------


def operator_table(analysis: Analysis) -> Table | None:
    """All operators, longest first, with their totals."""
    rows = sorted(analysis.operators, key=lambda row: row.time_s, reverse=True)
    if not rows:
        return None
    times = _numbers([row.time_s for row in rows], "s")
    flops = _numbers([row.flops for row in rows], "FLOP")
    traffic = _numbers([row.bytes for row in rows], "B")
    rates = _numbers([row.flop_per_s for row in rows] + [row.attainable_flop_per_s for row in rows], "FLOP/s")
    headrooms = _numbers([row.headroom_s for row in rows], "s")
    intensities = Numbers("FLOP/B", 1.0, tuple(_aligned([_known(row.intensity_flop_per_byte) for row in rows])))
    most_time = max(row.time_s for row in rows) or 1.0
    most_headroom = max((row.headroom_s or 0.0 for row in rows), default=0.0) or 1.0
    columns = (
        Column("share", "%", title_long="share of the step's time"),
        Column("operator", numeric=False),
        Column("module", numeric=False),
        Column("time", times.unit),
        Column("headroom", headrooms.unit, title_long="time − lower bound"),
        Column("eff.", "%", title_long="efficiency: lower bound / time"),
        Column("bound", numeric=False),
        Column("achieved", rates.unit),
        Column("attainable", rates.unit, title_long="the roof above this operator at its intensity"),
        Column("intensity", intensities.unit),
        Column("work", flops.unit),
        Column("traffic", traffic.unit),
        Column("calls"),
        Column("shapes", numeric=False),
    )
    body = tuple(
        (
            Cell(f"{_share(row.time_s, analysis) * 100:.1f}", row.time_s, bar=row.time_s / most_time),
            Cell(shorten_name(operator_name(row), 28), row.name, title=f"{row.name} · {row.category}", swatch=_slug(row.category)),
            Cell(shorten_left(operator_module(row), 24), row.module, title=row.module),
            Cell(times.texts[index], row.time_s, title=seconds(row.time_s)),
            Cell(headrooms.texts[index], _sortable(row.headroom_s), bar=max(0.0, (row.headroom_s or 0.0) / most_headroom)),
            Cell(
                _percents(row.efficiency),
                _sortable(row.efficiency),
                title=warning(row),
                warning=warning(row),
            ),
            Cell(row.bound, row.bound, title=_bound_title(row), bound=row.bound),
            Cell(rates.texts[index], _sortable(row.flop_per_s)),
            Cell(rates.texts[len(rows) + index], _sortable(row.attainable_flop_per_s)),
            Cell(intensities.texts[index], _sortable(row.intensity_flop_per_byte)),
            Cell(flops.texts[index], row.flops, title=si(row.flops, "FLOP")),
            Cell(traffic.texts[index], row.bytes, title=si(row.bytes, "B")),
            Cell(_count(row.calls), row.calls),
            Cell(shorten_shapes(row.shapes, 24), row.shapes, title=row.shapes),
        )
        for index, row in enumerate(rows)
    )
    return Table(columns, body, _operator_totals(rows, analysis, times, headrooms, intensities, flops, traffic))


def _operator_totals(
    rows: Sequence[OperatorRow],
    analysis: Analysis,
    times: Numbers,
    headrooms: Numbers,
    intensities: Numbers,
    flops: Numbers,
    traffic: Numbers,
) -> tuple[str, ...]:
    time_s, work, size = sum(row.time_s for row in rows), sum(row.flops for row in rows), sum(row.bytes for row in rows)
    judged = [(row.time_s, row.lower_bound_s) for row in rows if row.lower_bound_s is not None]
    judged_time, lower = sum(time for time, _ in judged), sum(bound for _, bound in judged)
    return (
        f"{_share(time_s, analysis) * 100:.1f}",
        "1 row" if len(rows) == 1 else f"all {len(rows)} rows",
        "",
        times.total(time_s),
        headrooms.total(judged_time - lower) if judged else _DASH,
        _percents(lower / judged_time if judged_time > 0 else None),
        "",
        "",
        "",
        intensities.total(work / size) if size else _DASH,
        flops.total(work),
        traffic.total(size),
        _count(sum(row.calls for row in rows)),
        "",
    )


def _bound_title(row: OperatorRow) -> str:
    level = f"; its bytes are judged against {row.memory_level}" if row.memory_level else ""
    return f"{bound_style(row.bound).meaning}{level}"


def _module_columns(analysis: Analysis) -> tuple[Column, ...]:
    rows = analysis.modules
    return (
        Column("share", "%", title_long="share of the step's time"),
        Column("module", numeric=False),
        Column("class", numeric=False),
        Column("calls"),
        Column("time", _numbers([row.time_s for row in rows], "s").unit),
        Column("work", _numbers([row.flops for row in rows], "FLOP").unit),
        Column("traffic", _numbers([row.bytes for row in rows], "B").unit),
        Column("efficiency", "%", title_long="lower bound / time"),
        Column("headroom", _numbers([row.headroom_s for row in rows], "s").unit),
    )


def module_tree(analysis: Analysis) -> tuple[TreeRow, ...]:
    """The modules as a tree, each below its parent, opened as deep as keeps it readable."""
    rows = _preorder(analysis.modules)
    if not rows:
        return ()
    times, flops, traffic, headrooms = (
        _numbers(values, unit)
        for values, unit in (
            ([row.time_s for row, _ in rows], "s"),
            ([row.flops for row, _ in rows], "FLOP"),
            ([row.bytes for row, _ in rows], "B"),
            ([row.headroom_s for row, _ in rows], "s"),
        )
    )
    depths = [depth for _, depth in rows]
    open_to = max((level for level in range(1, max(depths) + 1) if sum(d <= level for d in depths) <= _MODULES_OPEN), default=1)
    most_headroom = max((row.headroom_s or 0.0 for row, _ in rows), default=0.0) or 1.0
    tree = []
    for index, (row, depth) in enumerate(rows):
        has_children = index + 1 < len(rows) and depths[index + 1] > depth
        share = _share(row.time_s, analysis)
        cells = (
            Cell(f"{share * 100:.1f}", bar=min(1.0, share)),
            Cell(row.path.rsplit(".", 1)[-1] or "(model)", title=row.path),
            Cell(row.type),
            Cell(_count(row.calls)),
            Cell(times.texts[index], title=seconds(row.time_s)),
            Cell(flops.texts[index], title=si(row.flops, "FLOP")),
            Cell(traffic.texts[index], title=si(row.bytes, "B")),
            Cell(_percents(row.efficiency)),
            Cell(headrooms.texts[index], bar=max(0.0, (row.headroom_s or 0.0) / most_headroom)),
        )
        tree.append(TreeRow(depth, has_children, has_children and depth < open_to, depth <= open_to, cells))
    return tuple(tree)


def _preorder(modules: Iterable[ModuleRow]) -> list[tuple[ModuleRow, int]]:
    """Each module after its nearest recorded ancestor, siblings in the order given, with its depth in this tree."""
    by_path = {row.path: row for row in modules}
    children: dict[str | None, list[ModuleRow]] = {}
    for row in by_path.values():
        children.setdefault(_parent(row.path, by_path), []).append(row)
    ordered: list[tuple[ModuleRow, int]] = []
    waiting = [(row, 0) for row in reversed(children.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        ordered.append((row, depth))
        waiting.extend((child, depth + 1) for child in reversed(children.get(row.path, [])))
    return ordered


def _parent(path: str, known: dict[str, ModuleRow]) -> str | None:
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


def _unmodelled_table(analysis: Analysis) -> Table | None:
    items = analysis.coverage.unmodelled if analysis.coverage else ()
    if not items:
        return None
    times = _numbers([item.time_s for item in items], "s")
    columns = (
        Column("share", "%"),
        Column("operator", numeric=False),
        Column("calls"),
        Column("time", times.unit),
        Column("reason", numeric=False),
    )
    rows = tuple(
        (Cell(f"{_share(item.time_s, analysis) * 100:.1f}"), Cell(item.name), Cell(_count(item.calls)), Cell(time), Cell(item.reason))
        for item, time in zip(items, times.texts, strict=True)
    )
    return Table(columns, rows)


def _ceilings_table(analysis: Analysis) -> Table | None:
    if not analysis.ceilings:
        return None
    columns = (
        Column("ceiling", numeric=False),
        Column("kind", numeric=False),
        Column("for", numeric=False),
        Column("value"),
        Column("spread", "± %"),
        Column("source", numeric=False),
        Column("how", numeric=False),
    )
    rows = tuple(
        (
            Cell(ceiling.name),
            Cell(ceiling.kind),
            Cell(_scope(ceiling.precision, ceiling.engine, ceiling.accumulate, ceiling.level, ceiling.access, ceiling.capacity_bytes)),
            Cell(si(ceiling.value, ceiling.unit)),
            Cell(_DASH if ceiling.spread is None else f"{ceiling.spread * 100:.1f}"),
            Cell(SOURCE_WORDS[ceiling.source.kind], title=source_words(ceiling)),
            Cell(" · ".join(text for text in (ceiling.source.detail, ceiling.source.date) if text)),
        )
        for ceiling in analysis.ceilings
    )
    return Table(columns, rows)


def _scope(
    precision: str | None, engine: str | None, accumulate: str | None, level: str | None, access: str | None, capacity: int | None
) -> str:
    texts = (
        precision,
        f"{engine} units" if engine else None,
        f"accumulates in {accumulate}" if accumulate and accumulate != precision else None,
        level,
        access,
        f"up to {binary_bytes(capacity)}" if capacity else None,
    )
    return ", ".join(text for text in texts if text) or _DASH


# --- steps, device, memory -----------------------------------------------------------------------------------------------------


def step_plot(analysis: Analysis) -> StepPlot | None:
    """The timed steps in the order run; None when they were not kept. Very long runs are thinned evenly."""
    steps = analysis.steps
    if steps is None or not steps.durations_s:
        return None
    durations = steps.durations_s
    every = -(-len(durations) // _MOST_STEP_MARKS)
    low, high = min(*durations, steps.ci95_s[0], steps.median_s), max(*durations, steps.ci95_s[1], steps.median_s)
    room = (high - low) * 0.08 or high * 0.01 or 1.0
    bottom, span = low - room, high - low + 2 * room

    def up(value: float) -> float:
        return round(100 * (value - bottom) / span, 2)

    marks = tuple(
        StepMark(round(100 * (index + 0.5) / len(durations), 2), up(value), f"step {index + 1}: {seconds(value)}")
        for index, value in enumerate(durations)
        if index % every == 0
    )
    return StepPlot(
        marks=marks,
        median_bottom=up(steps.median_s),
        median_text=f"median {seconds(steps.median_s)}",
        band_bottom=up(steps.ci95_s[0]),
        band_height=round(up(steps.ci95_s[1]) - up(steps.ci95_s[0]), 2),
        low_text=seconds(low),
        high_text=seconds(high),
        note=f"every {every}th of {len(durations)} steps is drawn" if every > 1 else "",
    )


def _device(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    environment = analysis.environment
    facts: tuple[tuple[str, str | None], ...] = (
        ("device", f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device),
        ("device memory", _size(environment.device_memory_bytes)),
        ("driver", environment.driver),
        ("CUDA", environment.cuda),
        ("cuDNN", environment.cudnn),
        ("CPU", environment.cpu if environment.cpu != environment.device_name else None),
        ("CPU cores", _text(environment.cpu_cores)),
        ("CPU instructions", environment.cpu_isa),
        ("threads used", _text(environment.threads)),
        ("main memory", _size(environment.memory_bytes)),
        ("host", environment.host),
        ("system", environment.os),
        ("Python", environment.python),
        ("PyTorch", environment.torch),
        ("torchvision", environment.torchvision),
        ("rooflines", environment.rooflines),
        ("commit", environment.git_commit),
    )
    return tuple((name, text) for name, text in facts if text)


def _timeline(analysis: Analysis) -> tuple[tuple[str, str, str], ...]:
    """The device's time and what the profiler saw it spent on: name, time, share."""
    timeline = analysis.timeline
    if timeline is None:
        return ()
    facts = [("span", timeline.span_s), ("busy", timeline.busy_s), ("idle", timeline.idle_s), ("compute", timeline.compute_s)]
    optional = (
        ("memory copies", timeline.memcpy_s),
        ("copies not hidden by compute", timeline.exposed_memcpy_s),
        ("communication", timeline.communication_s),
        ("communication not hidden by compute", timeline.exposed_communication_s),
        ("overlap", timeline.overlap_s),
    )
    facts += [(name, value) for name, value in optional if value > 0]
    facts += [
        (f"{name.removesuffix('_s')} (step breakdown)", value) for name, value in (analysis.step_breakdown or {}).items() if value > 0
    ]
    return tuple((name, seconds(value), percent(_share(value, analysis))) for name, value in facts)


def _memory(analysis: Analysis) -> tuple[tuple[str, float | None], ...]:
    """Sentences on memory, each with the share of the device's memory where that is known."""
    memory, environment, totals = analysis.memory, analysis.environment, analysis.totals
    peak = memory.peak_bytes if memory and memory.peak_bytes is not None else totals.peak_memory_bytes if totals else None
    if peak is None:
        return (("Peak memory was not measured.", None),)
    room = environment.memory_bytes if environment.device.startswith("cpu") else environment.device_memory_bytes
    kind = f" ({memory.kind})" if memory and memory.kind else ""
    if not room:
        return ((f"Peak {binary_bytes(peak)}{kind}.", None),)
    return ((f"Peak {binary_bytes(peak)}{kind}, {percent(peak / room)} of {binary_bytes(room)}.", min(1.0, peak / room)),)


# --- numbers -------------------------------------------------------------------------------------------------------------------


def _numbers(values: Sequence[float | None], unit: str) -> Numbers:
    """A column in one unit, chosen for its largest value, three significant figures each, aligned on the decimal point."""
    factor, prefix = scale(max((abs(value) for value in values if value is not None), default=0.0))
    return Numbers(f"{prefix}{unit}", factor, tuple(_aligned([None if value is None else value / factor for value in values])))


def _aligned(values: Sequence[float | None]) -> list[str]:
    texts = [_DASH if value is None else _figure(value) for value in values]
    decimals = _decimals(texts)
    return [_padded(text, decimals) for text in texts]


def _decimals(texts: Iterable[str]) -> int:
    return max((len(text.strip().partition(".")[2]) for text in texts), default=0)


def _padded(text: str, decimals: int) -> str:
    """``text`` with spaces as wide as digits behind it, so that right-aligned numbers meet at the point."""
    _, point, tail = text.partition(".")
    return text + ("" if point or not decimals else _POINT_SPACE) + _FIGURE_SPACE * (decimals - len(tail))


def _figure(value: float) -> str:
    """Three significant figures, but no more decimals than a column can spare."""
    smallest = 10.0**-_MOST_DECIMALS
    if 0 < abs(value) < smallest / 2:
        return f"<{smallest:.{_MOST_DECIMALS}f}"
    text = significant(value)
    return text if len(text.partition(".")[2]) <= _MOST_DECIMALS else f"{value:.{_MOST_DECIMALS}f}"


def _percents(fraction: float | None) -> str:
    """A share for a column whose header holds the sign."""
    return _DASH if fraction is None else percent(fraction).removesuffix(" %")


def _count(value: float) -> str:
    return str(int(value)) if value == int(value) else significant(value)


def _known(value: float | None) -> float | None:
    return None if value is None or value <= 0 else value


def _sortable(value: float | None) -> float | str:
    return "" if value is None else value


def _size(value: int | None) -> str | None:
    return None if value is None else binary_bytes(value)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _slug(category: str) -> str:
    return category if category in CATEGORIES else "other"


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _wrap(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)] or [""]
