"""The tables of the page: cells with what they sort by, columns in one unit whose numbers meet at the decimal point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rooflines.device_specs.marks import marks_of
from rooflines.reports.charts.palette import bound_style
from rooflines.reports.charts.roofline import warning
from rooflines.reports.views.division import division_rows
from rooflines.reports.words.rows import TableRow, bound_text, flagged, module_text, table_order, table_rows, table_time, table_title
from rooflines.reports.words.sentences import (
    ceiling_name,
    ceiling_scope,
    conditions_words,
    flag_sentence,
    roof_order,
    source_and_age,
    source_words,
)
from rooflines.reports.words.summary import operators_summary, share_of_step
from rooflines.reports.words.text import count_text, is_kernel, marked_name, shorten_name, shorten_path, shorten_shapes
from rooflines.roofline.analysis import CATEGORIES, Analysis, Kernel, ModuleRow, OperatorRow
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import percent, scale, seconds, si, significant

_MODULES_OPEN = 40
_MOST_KERNELS = 20
_MOST_DECIMALS = 3
_DASH = "–"
# A figure space and a punctuation space are as wide as a digit and a point: they keep a column on its decimal point.
_FIGURE_SPACE, _POINT_SPACE = "\u2007", "\u2008"


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


class Detail(NamedTuple):
    """What opens below a row of the operator table: remarks, the modules it stands for, and the kernels that it ran."""

    remarks: tuple[str, ...]
    modules: Table | None
    kernels: Table | None


class OperatorTable(NamedTuple):
    """The operator table with what opens below its rows (None: nothing), its order in words and the column that it is sorted by."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[str, ...]
    details: tuple[Detail | None, ...]
    order: str
    sorted_by: int
    title: str


class TreeRow(NamedTuple):
    """A module in its tree: how deep, whether it has children and is open, whether its parents are."""

    depth: int
    has_children: bool
    is_open: bool
    is_shown: bool
    cells: tuple[Cell, ...]


# --- operators --------------------------------------------------------------------------------------------------------------------


def operator_table(analysis: Analysis) -> OperatorTable | None:
    """All operators in the order of ``table_rows``, with their totals."""
    everything = table_rows(analysis)
    if not everything:
        return None
    rows = [one.row for one in everything]
    times = _numbers([row.time_s for row in rows], "s")
    flops = _numbers([row.flops for row in rows], "FLOP")
    traffic = _numbers([row.bytes for row in rows], "B")
    rates = _numbers([row.flop_per_s for row in rows] + [row.attainable_flop_per_s for row in rows], "FLOP/s")
    headrooms = _numbers([row.headroom_s for row in rows], "s")
    intensities = Numbers("FLOP/B", 1.0, tuple(_aligned([_known(row.intensity_flop_per_byte) for row in rows])))
    most_time = max(row.time_s for row in rows) or 1.0
    most_headroom = max((row.headroom_s or 0.0 for row in rows), default=0.0) or 1.0
    judged = any(row.headroom_s is not None for row in rows)
    columns = (
        Column("share", "%", title_long="share of the step's time"),
        Column(table_title(everything).lower().removesuffix("s"), numeric=False),
        Column("module", numeric=False),
        Column("time", times.unit),
        Column("headroom", headrooms.unit, title_long="time − lower bound; a row without a bound is sorted by its time"),
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
            Cell(f"{share_of_step(row.time_s, analysis) * 100:.1f}", row.time_s, bar=row.time_s / most_time),
            Cell(shorten_name(marked_name(row), 28), row.name, title=_operator_title(row), swatch=category_slug(row.category)),
            Cell(shorten_path(module_text(one), 26), row.module, title=module_text(one)),
            Cell(times.texts[index], row.time_s, title=seconds(row.time_s)),
            Cell(headrooms.texts[index], one.gain_s if judged else "", bar=max(0.0, (row.headroom_s or 0.0) / most_headroom)),
            Cell(
                _percents(row.efficiency),
                _sortable(row.efficiency),
                title=warning(row),
                warning=warning(row),
            ),
            Cell(bound_text(one), one.bound, title=_bound_title(one), bound=one.bound),
            Cell(rates.texts[index], _sortable(row.flop_per_s)),
            Cell(rates.texts[len(rows) + index], _sortable(row.attainable_flop_per_s)),
            Cell(intensities.texts[index], _sortable(row.intensity_flop_per_byte)),
            Cell(flops.texts[index], row.flops, title=si(row.flops, "FLOP")),
            Cell(traffic.texts[index], row.bytes, title=si(row.bytes, "B")),
            Cell(count_text(row.calls), row.calls),
            Cell(shorten_shapes(row.shapes, 24), row.shapes, title=row.shapes),
        )
        for index, one in enumerate(everything)
        for row in (one.row,)
    )
    return OperatorTable(
        columns,
        body,
        _operator_totals(rows, table_time(analysis, everything), analysis, times, headrooms, intensities, flops, traffic),
        tuple(_detail(one, analysis) for one in everything),
        table_order(everything),
        sorted_by=4 if judged else 0,
        title=table_title(everything),
    )


def _detail(one: TableRow, analysis: Analysis) -> Detail | None:
    wrong = flagged(one)
    remarks = (
        f"No count: {one.reason}." if one.reason else "",
        f"Work inferred from other calls in the trace: {one.row.inferred}." if one.row.inferred else "",
        f"{flag_sentence(one)}." if wrong else "",
    )
    found = Detail(tuple(text for text in remarks if text), _members_table(one, analysis), _kernels_table(one.row))
    return found if any(found) else None


def _members_table(one: TableRow, analysis: Analysis) -> Table | None:
    """The modules that a folded row stands for; None where it is one."""
    if one.modules < 2:
        return None
    times = _numbers([row.time_s for row in one.members], "s")
    headrooms = _numbers([row.headroom_s for row in one.members], "s")
    columns = (
        Column("module", numeric=False),
        Column("share", "%"),
        Column("time", times.unit),
        Column("headroom", headrooms.unit),
        Column("eff.", "%"),
        Column("calls"),
    )
    rows = tuple(
        (
            Cell(row.module),
            Cell(f"{share_of_step(row.time_s, analysis) * 100:.1f}"),
            Cell(times.texts[index]),
            Cell(headrooms.texts[index]),
            Cell(_percents(row.efficiency), title=warning(row), warning=warning(row)),
            Cell(count_text(row.calls)),
        )
        for index, row in enumerate(one.members)
    )
    return Table(columns, rows)


def _kernels_table(row: OperatorRow) -> Table | None:
    """What a row ran on the device, longest first, by what the kernels are; None where the trace does not say."""
    if not row.kernels:
        return None
    groups: dict[str, list[Kernel]] = {}
    for kernel in row.kernels:
        groups.setdefault(short_kernel(kernel.name), []).append(kernel)
    shown = sorted(groups.items(), key=lambda item: -sum(kernel.time_s for kernel in item[1]))
    times = _numbers([sum(kernel.time_s for kernel in group) for _, group in shown], "s")
    columns = (Column("kernel", numeric=False), Column("time", times.unit), Column("calls"), Column("stream"))
    rows = tuple(
        (
            Cell(name, title="\n".join(kernel.name for kernel in group)),
            Cell(time),
            Cell(count_text(sum(kernel.calls for kernel in group))),
            Cell(", ".join(str(stream) for stream in sorted({one for kernel in group for one in kernel.streams})) or _DASH),
        )
        for (name, group), time in zip(shown[:_MOST_KERNELS], times.texts, strict=False)
    )
    more = len(shown) - _MOST_KERNELS
    left_out = (Cell(f"and {more} more in analysis.json"), Cell(""), Cell(""), Cell(""))
    return Table(columns, (*rows, left_out) if more > 0 else rows)


def _operator_totals(
    rows: Sequence[OperatorRow],
    time_s: float,
    analysis: Analysis,
    times: Numbers,
    headrooms: Numbers,
    intensities: Numbers,
    flops: Numbers,
    traffic: Numbers,
) -> tuple[str, ...]:
    work, size = sum(row.flops for row in rows), sum(row.bytes for row in rows)
    everything = operators_summary(analysis)
    return (
        f"{share_of_step(time_s, analysis) * 100:.1f}",
        "1 row" if len(rows) == 1 else f"all {len(rows)} rows",
        "",
        times.total(time_s),
        headrooms.total(everything.headroom_s) if everything.is_judged else _DASH,
        _percents(everything.efficiency),
        "",
        "",
        "",
        intensities.total(work / size) if size else _DASH,
        flops.total(work),
        traffic.total(size),
        count_text(sum(row.calls for row in rows)),
        "",
    )


def _operator_title(row: OperatorRow) -> str:
    return f"{row.name} · {row.category}{f' · inferred: {row.inferred}' if row.inferred else ''}"


def _bound_title(one: TableRow) -> str:
    row, meaning = one.row, bound_style(one.bound).meaning
    if one.reason:
        return f"{meaning}: {one.reason}"
    if row.bound == "transfer":
        pageable = any("pageable" in kernel.name.lower() for kernel in row.kernels)
        staged = "; from or to pageable memory, which the host copies through a pinned buffer" if pageable else ""
        return f"{meaning}, judged by the link{staged}"
    nearest = f"; the nearest is the {row.nearest_roof} roof" if row.nearest_roof else ""
    level = f"; its bytes are judged against {row.memory_level}" if row.memory_level else ""
    return f"{meaning}{nearest}{level}"


# --- modules ----------------------------------------------------------------------------------------------------------------------


def module_columns(analysis: Analysis) -> tuple[Column, ...]:
    """The header of ``module_tree``."""
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
        share = share_of_step(row.time_s, analysis)
        cells = (
            Cell(f"{share * 100:.1f}", bar=min(1.0, share)),
            Cell(row.path.rsplit(".", 1)[-1] or "(model)", title=row.path),
            Cell(row.type),
            Cell(count_text(row.calls)),
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


# --- what has no count, and the ceilings ------------------------------------------------------------------------------------------


def unmodelled_table(analysis: Analysis) -> Table | None:
    """The operators without a count, longest first."""
    items = sorted((one for one in table_rows(analysis) if one.reason), key=lambda one: -one.row.time_s)
    if not items:
        return None
    times = _numbers([one.row.time_s for one in items], "s")
    columns = (
        Column("share", "%"),
        Column("operator", numeric=False),
        Column("module", numeric=False),
        Column("calls"),
        Column("time", times.unit),
        Column("reason", numeric=False),
    )
    rows = tuple(
        (
            Cell(f"{share_of_step(one.row.time_s, analysis) * 100:.1f}"),
            Cell(short_kernel(one.row.name) if is_kernel(one.row) else one.row.name, title=one.row.name),
            Cell(shorten_path(module_text(one), 40), title=module_text(one)),
            Cell(count_text(one.row.calls)),
            Cell(time),
            Cell(one.reason),
        )
        for one, time in zip(items, times.texts, strict=True)
    )
    return Table(columns, rows)


# More traced steps than this are a sweep, not a table.
_MOST_STEPS = 50
_KINDS = {"cpu_s": "CPU operators", "dataloader_s": "data loader", "runtime_s": "runtime calls"}


def steps_table(analysis: Analysis) -> Table | None:
    """The traced steps, each with its time by what was running; None where there are fewer than two."""
    steps = analysis.traced_steps[:_MOST_STEPS]
    if len(steps) < 2:
        return None
    kinds = [kind for kind in steps[0].breakdown if any(step.breakdown[kind] for step in steps)]
    times = _numbers([value for step in steps for value in (step.duration_s, *(step.breakdown[kind] for kind in kinds))], "s")
    width = 1 + len(kinds)
    columns = (
        Column("step", numeric=False),
        Column("time", times.unit),
        *(Column(_KINDS.get(kind, kind.removesuffix("_s")), times.unit) for kind in kinds),
    )
    rows = tuple((Cell(step.name), *(Cell(text) for text in times.texts[i * width : (i + 1) * width])) for i, step in enumerate(steps))
    return Table(columns, rows)


def division_table(analysis: Analysis) -> Table | None:
    """The step by what its time is for; None without a trace."""
    rows = division_rows(analysis)
    if not rows:
        return None
    times = _numbers([row.time_s for row in rows], "s")
    columns = (Column("share", "%"), Column("part", numeric=False), Column("time", times.unit), Column("what", numeric=False))
    body = tuple(
        (Cell(f"{row.share * 100:.1f}", bar=row.share), Cell(row.name, title=row.meaning), Cell(time), Cell(row.meaning))
        for row, time in zip(rows, times.texts, strict=True)
    )
    return Table(columns, body)


def ceilings_table(analysis: Analysis) -> Table | None:
    """Every ceiling with its scope, how sure it is, where it comes from and how old it was; further roofs below the main ones."""
    if not analysis.ceilings:
        return None
    columns = (
        Column("ceiling", numeric=False),
        Column("kind", numeric=False),
        Column("for", numeric=False),
        Column("value"),
        Column("spread", "± %", title_long="coefficient of variation between the rounds"),
        Column("source", numeric=False, title_long="with its date, and its age when the run was made"),
        Column("how", numeric=False),
    )
    rows = tuple(
        (
            Cell(ceiling_name(ceiling)),
            Cell(ceiling.kind),
            Cell(ceiling_scope(ceiling) or _DASH),
            Cell(si(ceiling.value, ceiling.unit)),
            Cell(_DASH if ceiling.spread is None else f"{ceiling.spread * 100:.1f}", warning=", ".join(marks_of(ceiling))),
            Cell(source_and_age(ceiling, analysis.created), title=source_words(ceiling, analysis.created)),
            Cell(" · ".join(text for text in (ceiling.source.detail, conditions_words(ceiling.conditions)) if text)),
        )
        for ceiling in roof_order(analysis.ceilings)
    )
    return Table(columns, rows)


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


def _known(value: float | None) -> float | None:
    return None if value is None or value <= 0 else value


def _sortable(value: float | None) -> float | str:
    return "" if value is None else value


def category_slug(category: str) -> str:
    """The category as the style sheet knows it."""
    return category if category in CATEGORIES else "other"
