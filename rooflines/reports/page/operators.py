"""The operators and modules of a run or a trace as tables, operators against their bounds, their kernels, and
what has no count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from rooflines.reports.charts.icicle import Icicle, Node
from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import (
    ABSENT,
    CALLS,
    SHARE,
    TIME,
    Bar,
    BarRow,
    Cell,
    Cells,
    CellValue,
    Column,
    Figure,
    Paragraph,
    Part,
    Row,
    Section,
    Show,
    Table,
    said,
    section,
    table,
    timed_parts,
)
from rooflines.reports.page.roofline import roofline_warning
from rooflines.reports.words import rows as rows_of
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import (
    TableRow,
    flagged,
    known_share,
    module_text,
    share_of_step,
    table_rows,
)
from rooflines.reports.words.text import (
    efficiency_text,
    given,
    is_graph,
    is_kernel,
    line_words,
    marked_name,
    operator_name,
    shorten_name,
    shorten_path,
    shorten_shapes,
)
from rooflines.roofline.analysis import Analysis, ModuleRow, OperatorRow
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.count.formulas.counter import NO_FORMULA
from rooflines.roofline.count.formulas.families import evidence_of
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.judge.call_sites import merged_kernel
from rooflines.units import percent, seconds, si

# Rows in the short form, and in print.
_OPERATORS, _OPERATORS_PRINTED = 10, 25
_FLAGS = 3
_MOST_KERNELS, _KERNELS_BRIEF = 20, 8
_MODULES_PRINTED = 30
# Modules in the figure, and the least share of the step of each.
_MODULES_DRAWN, _SEEN = 400, 0.001
_UNCOUNTED_BRIEF, _UNCOUNTED_PRINTED = 5, 12
_GRAPHS, _NAMED = 3, 3
# Rows in the figure of times against bounds, names below it, and the lengths of a name and a place.
_MOST_BARS, _MOST_NAMED = 12, 5
_NAME, _PLACE = 28, 24
# A terminal lists the operators without a count from this share of the time on; a full report always does.
_WORTH_A_TABLE = 0.02
# Below this share of the time of graphs, their operators are missed.
_MATCHED = 0.9
# This part of its time is all of it.
_ALL = 0.999
_SHARE = Column("share", "%", "share", help="share of the step's time")
_REPLAYED = (
    Column(
        "gain",
        "s",
        "scaled",
        priority=2,
        help="what the step gains by replay where this row runs at its bound",
    ),
    Column(
        "critical", "%", "share", priority=4, help="the part of its time that decides how long the step lasts"
    ),
)
_EFFICIENCY = Column("eff.", "%", "efficiency", "efficiency", help="efficiency: lower bound / time")


def operators_section(analysis: Analysis) -> Section:
    """The table of operators, what is doubtful in it, and what its marks mean."""
    operators = operator_table(analysis)
    if not operators:
        return section("operators", "Operators", *said(sentences.missing_operators(analysis) or "", "absent"))
    doubtful = [sentences.flag_sentence(row) for row in rows_of.flagged_rows(analysis)]
    more = len(doubtful) - _FLAGS
    return section(
        "operators",
        operators.caption,
        operators,
        *said(doubtful[:_FLAGS], "alert"),
        *said(f"{more} more rows are flagged." if more > 0 else "", "note"),
        *said(sentences.inferred_sentence(analysis), "note"),
        folded=[against_bars(analysis)],
        fold="Time against bound",
    )


def operator_table(analysis: Analysis) -> Table | None:
    """All operators in the order of ``table_rows``, with their totals; None without any."""
    rows = table_rows(analysis)
    if not rows:
        return None
    most_s = max(row.row.time_s for row in rows) or 1.0
    most_headroom_s = max((row.row.headroom_s or 0.0 for row in rows), default=0.0) or 1.0
    index_of = {id(row): index for index, row in enumerate(analysis.operators)}
    title = rows_of.table_title(rows)
    # All of one thread's time decides.
    critical = [row.critical_fraction for row in rows if row.critical_fraction is not None]
    is_replayed = any(fraction < _ALL for fraction in critical)
    phases = (Column("phase", format="text", least=7, priority=1),) if analysis.generation else ()
    columns = (
        _SHARE,
        *phases,
        Column(title.lower().removesuffix("s"), format="name", key="operator", least=14),
        Column("module", format="path", least=16, priority=1),
        *((Column("line", format="middle", least=14, priority=4),) if analysis.lines else ()),
        Column("time", "s", "scaled", priority=1),
        Column(
            "headroom", "s", "scaled", help="time − lower bound; a row without a bound is sorted by its time"
        ),
        *(_REPLAYED if is_replayed else ()),
        _EFFICIENCY,
        Column("class", format="class", key="bound", least=13, priority=2, help="what limits it"),
        Column("achieved", "FLOP/s", "scaled", priority=6, group="achieved"),
        Column("intensity", "FLOP/B", "figures", priority=7),
        Column("work", "FLOP", "scaled", priority=10),
        Column("traffic", "B", "scaled", priority=11),
        Column("calls", format="count", priority=5),
        Column("shapes", format="shapes", least=11, priority=3, quiet=True),
    )
    return table(
        "operators",
        columns,
        (_operator_row(row, analysis, most_s, most_headroom_s, index_of, is_replayed) for row in rows),
        title,
        total=_operator_totals(rows, analysis, is_replayed),
        order=rows_of.table_order(rows),
        sorted_by="gain"
        if is_replayed and any(row.replayed_s for row in rows)
        else "headroom"
        if any(row.row.headroom_s is not None for row in rows)
        else "share",
        kind="main",
        brief=_OPERATORS,
        printed=_OPERATORS_PRINTED,
        show="always",
    )


def _operator_row(
    folded: TableRow,
    analysis: Analysis,
    most_s: float,
    most_headroom_s: float,
    index_of: dict[int, int],
    is_replayed: bool,
) -> Row:
    row, wrong, module = folded.row, flagged(folded), module_text(folded)
    above = roofline_warning(row.efficiency, row.flag)
    return Row(
        (
            Cell(
                value=known_share(row.time_s, analysis),
                bar=row.time_s / most_s if analysis.whole_s > 0 else None,
            ),
            *([row.phase] if analysis.generation else []),
            Cell(value=marked_name(row), hover=f"{row.name} · {row.category}", sort=row.name),
            Cell(value=module, hover=module, sort=row.module),
            *([_lines(row)] if analysis.lines else []),
            Cell(value=row.time_s, hover=seconds(row.time_s)),
            Cell(
                value=row.headroom_s,
                bar=max(0.0, (row.headroom_s or 0.0) / most_headroom_s),
                sort=folded.gain_s,
            ),
            *((folded.replayed_s, folded.critical_fraction) if is_replayed else ()),
            Cell(value=row.efficiency, hover=above, warning=above or (wrong[0].flag or "" if wrong else "")),
            Cell(
                value=rows_of.bound_text(folded),
                letter=bound_style(folded.bound).letter,
                hover=_bound_title(folded),
                sort=folded.bound,
            ),
            row.flop_per_s,
            row.intensity_flop_per_byte or None,
            Cell(
                value=None if folded.reason else row.flops,
                hover="" if folded.reason else si(row.flops, "FLOP"),
            ),
            Cell(
                value=None if folded.reason else row.bytes, hover="" if folded.reason else si(row.bytes, "B")
            ),
            row.calls,
            Cell(value=row.shapes, hover=row.shapes),
        ),
        color=row.category,
        detail=_detail(folded, analysis),
        points=tuple(index_of[id(member)] for member in folded.members if id(member) in index_of),
    )


def _operator_totals(
    everything: list[TableRow], analysis: Analysis, is_replayed: bool
) -> tuple[CellValue, ...]:
    rows = [folded.row for folded in everything]
    work, size = sum(row.flops for row in rows), sum(row.bytes for row in rows)
    headroom_s, efficiency = rows_of.judged_total(analysis)
    time_s = rows_of.table_time(analysis, everything)
    phase = [""] if analysis.generation else []
    counts = not analysis.totals or analysis.totals.flops is not None
    return (
        known_share(time_s, analysis),
        *phase,
        "1 row" if len(rows) == 1 else f"all {len(rows)} rows",
        "",
        *([""] if analysis.lines else []),
        time_s,
        headroom_s,
        *(("", "") if is_replayed else ()),
        efficiency,
        "",
        "",
        work / size if size and work else None,
        work if counts else None,
        size if counts else None,
        sum(row.calls for row in rows),
        "",
    )


def _lines(row: OperatorRow) -> Cell:
    """The line with most of the row's time, and all of them with their shares."""
    told = "\n".join(f"{line.place}: {percent(line.share)}" for line in row.lines)
    return Cell(value=line_words(row) or None, hover=told)


def _detail(folded: TableRow, analysis: Analysis) -> tuple[Paragraph | Table, ...]:
    """What a row stands for: remarks, the modules of a folded one, its kernels."""
    row = folded.row
    remarks = (
        given("No count: {}.", folded.reason),
        given("Work inferred from other events in the trace: {}.", row.inferred),
        given("Work estimated: {}.", row.assumption),
        f"{sentences.flag_sentence(folded)}." if flagged(folded) else "",
    )
    members = None
    if folded.modules > 1:
        columns = (
            Column("module", format="path"),
            SHARE,
            TIME,
            Column("headroom", "s", "scaled"),
            Column("eff.", "%", "efficiency", "efficiency"),
            CALLS,
        )
        cells = (
            (
                member.module,
                known_share(member.time_s, analysis),
                member.time_s,
                member.headroom_s,
                Cell(value=member.efficiency, hover=doubt, warning=doubt),
                member.calls,
            )
            for member in folded.members
            for doubt in [roofline_warning(member.efficiency, member.flag)]
        )
        members = table("members", columns, cells, "Modules in this row")
    return (*said(remarks, show="full"), *(filter(None, (members, kernels_table(row, analysis)))))


def _bound_title(folded: TableRow) -> str:
    row, meaning = folded.row, bound_style(folded.bound).meaning
    if folded.reason:
        return f"{meaning}: {folded.reason}"
    if row.bound == "transfer":
        pageable = any("pageable" in kernel.name.lower() for kernel in row.kernels)
        staged = (
            "; from or to pageable memory, which the host copies through a pinned buffer" if pageable else ""
        )
        return f"{meaning}, judged by the link{staged}"
    # The bar of the classes has their meanings.
    return f"its bytes are judged against {row.memory_level}" if row.memory_level else meaning


def kernels_table(row: OperatorRow, analysis: Analysis, title: str = "", show: Show = "full") -> Table | None:
    """The kernels that ``row`` ran on the device by what they are, longest first; None if the trace does not
    record them."""
    if not row.kernels:
        return None
    groups = grouped(row.kernels, lambda kernel: short_kernel(kernel.name))
    merged = {name: merged_kernel(group) for name, group in groups.items()}
    longest = sorted(groups, key=lambda name: -merged[name].time_s)
    rows: list[Cells] = [
        (
            known_share(one.time_s, analysis),
            Cell(value=name, hover="\n".join(kernel.name for kernel in groups[name])),
            one.time_s,
            one.calls,
            ", ".join(map(str, one.streams)) or ABSENT,
        )
        for name, one in ((name, merged[name]) for name in longest[:_MOST_KERNELS])
    ]
    if len(longest) > _MOST_KERNELS:
        rows.append(("", f"and {len(longest) - _MOST_KERNELS} more in analysis.json", "", "", ""))
    columns = (
        SHARE,
        Column("kernel", format="text"),
        TIME,
        CALLS,
        Column("stream", priority=1),
    )
    return table(
        "kernels", columns, rows, title or "Kernels of this row", title=title, brief=_KERNELS_BRIEF, show=show
    )


# --- time against bound -----------------------------------------------------------------------------------


def against_bars(analysis: Analysis) -> Bar | None:
    """The operators with the most time, each with its lower bound and its headroom; None without bounds, and
    of a single operator, whose figures its row has."""
    rows = sorted(table_rows(analysis), key=lambda row: -row.row.time_s)
    bounded = [row for row in rows if row.row.lower_bound_s is not None and row.row.time_s > 0]
    # Views need no time on any device: their bound of zero says nothing of this one.
    if len(bounded) < 2 or not any(row.row.lower_bound_s for row in bounded):
        return None
    longest_s = bounded[0].row.time_s
    return Bar(
        name="against-rows",
        title="Time against bound",
        caption="Lower bound and headroom of the operators with the most time",
        rows=tuple(
            BarRow(label=_bar_label(row), text=_bar_text(row), parts=_bar_parts(row, longest_s))
            for row in bounded[:_MOST_BARS]
        ),
    )


def _bar_label(row: TableRow) -> str:
    """The name of the operator and its module, without one its shapes."""
    name = shorten_name(operator_name(row.row), _NAME)
    place = (
        shorten_path(module_text(row), _PLACE) if row.row.module else shorten_shapes(row.row.shapes, _PLACE)
    )
    return f"{name}, {place}" if place else name


def _bar_text(row: TableRow) -> str:
    text = f"{seconds(row.row.time_s)}, bound {seconds(row.row.lower_bound_s or 0.0)}"
    if row.row.efficiency is not None:
        text += f", {efficiency_text(row.row.efficiency)} %"
    return text


def _bar_parts(row: TableRow, longest_s: float) -> tuple[Part, ...]:
    """The time of a row: lower bound, headroom, and the rest of it that has no bound or that computation
    hides."""
    time_s = row.row.time_s
    if roofline_warning(row.row.efficiency, row.row.flag):
        meaning = "a wrong count, a wrong ceiling, or less work than the formula assumes"
        return timed_parts([("faster than its bound", time_s, "doubt", meaning)], longest_s)
    lower_s = min(row.row.lower_bound_s or 0.0, time_s)
    headroom_s = min(row.row.headroom_s or 0.0, time_s - lower_s)
    parts = [
        ("lower bound", lower_s, "bound", "the least time that this device needs for the work"),
        ("headroom", headroom_s, "headroom", "time above the lower bound"),
        (
            "not judged",
            time_s - lower_s - headroom_s,
            "unknown",
            f"{bound_style('unknown').meaning}, or hidden by computation",
        ),
    ]
    return timed_parts(parts, longest_s)


# --- modules ----------------------------------------------------------------------------------------------


def modules_section(analysis: Analysis) -> Section:
    """The modules as a tree, or why there are none."""
    missing = sentences.missing_operators(analysis) or "No modules: the trace contains none."
    figure, rows = modules_figure(analysis), module_table(analysis) or Paragraph(missing, "absent")
    # One module has no figure, and its table is as short.
    if not figure:
        return section("modules", "Modules", rows)
    return section("modules", "Modules", figure, folded=[rows], fold="Table of modules")


def modules_figure(analysis: Analysis) -> Figure | None:
    """The modules that take time as an icicle; None with fewer than two."""
    rows = list(_preorder(analysis.modules))
    longest = sorted(rows, key=lambda row: (-row[0].time_s, row[1]))[:_MODULES_DRAWN]
    kept = {row.path for row, _ in longest if row.time_s >= _SEEN * analysis.whole_s}
    nodes: list[Node] = []
    above: list[int] = []  # the places of the modules around the next one
    for row, depth in rows:
        if row.path in kept:
            del above[depth:]
            parent = above[-1] if above else -1
            around = f"{nodes[parent].row.path}." if above else ""
            above.append(len(nodes))
            nodes.append(Node(row.path.removeprefix(around), parent, row))
    if len(nodes) < 2 or analysis.whole_s <= 0:
        return None
    caption = "Modules by time, each as wide as its share of its parent"
    if any(node.opacity is not None for node in nodes):
        caption += ": the stronger the color, the more of its time is headroom"
    return Figure(
        name="modules",
        drawing=Icicle(nodes=tuple(nodes), whole_s=analysis.whole_s),
        caption=f"{caption}.",
        note="Gray: headroom unknown.",
    )


def module_table(analysis: Analysis) -> Table | None:
    """The modules as a tree, each below its parent; None without any."""
    rows = list(_preorder(analysis.modules))
    if not rows:
        return None
    most_headroom_s = max((row.headroom_s or 0.0 for row, _ in rows), default=0.0) or 1.0
    longest = sorted(range(len(rows)), key=lambda index: -rows[index][0].time_s)[:_MODULES_PRINTED]
    columns = (
        _SHARE,
        Column("module", format="text", least=20),
        Column("type", format="text", key="class"),
        TIME,
        Column("headroom", "s", "scaled"),
        _EFFICIENCY,
        Column("work", "FLOP", "scaled", priority=1),
        Column("traffic", "B", "scaled", priority=2),
        Column("calls", format="count", priority=1),
    )
    cells = (
        (
            Cell(value=(share := share_of_step(row.time_s, analysis)), bar=min(1.0, share)),
            Cell(value=row.path.rsplit(".", 1)[-1] or "(model)", hover=row.path),
            row.type,
            Cell(value=row.time_s, hover=seconds(row.time_s)),
            Cell(value=row.headroom_s, bar=max(0.0, (row.headroom_s or 0.0) / most_headroom_s)),
            row.efficiency,
            Cell(value=row.flops, hover=si(row.flops, "FLOP")),
            Cell(value=row.bytes, hover=si(row.bytes, "B")),
            row.calls,
        )
        for row, _ in rows
    )
    return table(
        "modules",
        columns,
        (
            Row(row, depth=depth, printed=at in longest)
            for at, (row, (_, depth)) in enumerate(zip(cells, rows, strict=True))
        ),
        "Modules, each with everything below it",
        kind="tree",
    )


def _preorder(modules: Iterable[ModuleRow]) -> Iterator[tuple[ModuleRow, int]]:
    """Each module after its nearest recorded ancestor, siblings in the order given, with its depth in this
    tree."""
    by_path = {row.path: row for row in modules}
    children: dict[str | None, list[ModuleRow]] = {}
    for row in by_path.values():
        parts = row.path.split(".") if row.path else []
        above = (".".join(parts[:length]) for length in range(len(parts) - 1, -1, -1))
        children.setdefault(next((path for path in above if path in by_path), None), []).append(row)
    waiting = [(row, 0) for row in reversed(children.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        yield row, depth
        waiting.extend((child, depth + 1) for child in reversed(children.get(row.path, [])))


# --- coverage ---------------------------------------------------------------------------------------------


def coverage_section(analysis: Analysis, under: str) -> Section:
    """The share of the time with a work model, the operators that lack one, and how to add a formula, below
    the heading ``under``."""
    coverage, groups = analysis.coverage, _uncounted(analysis)
    show: Show = (
        "always" if share_of_step(sum(map(_rows_s, groups.values())), analysis) >= _WORTH_A_TABLE else "full"
    )
    sentence = sentences.coverage_sentence(analysis, named=show != "always")
    missing = sentences.missing_operators(analysis) or "The share of time with a count is unknown."
    blocks: list[Paragraph | Table] = [
        Paragraph(sentence, show="always") if sentence else Paragraph(missing, "absent")
    ]
    if groups:
        blocks += [_uncounted_table(groups, analysis, show), *_how_to_add(groups, show)]
    blocks += [*_read_only(analysis), *said(analysis.notes, "absent")]
    if coverage and coverage.orphan_device_events:
        text = (
            f"{coverage.orphan_device_events} device events have no launch in the trace and belong to "
            "no operator."
        )
        blocks.append(Paragraph(text))
    if coverage and coverage.graph_launch_time_s:
        known = percent(coverage.graph_matched_time_s / coverage.graph_launch_time_s)
        text = (
            f"Graphs ran for {seconds(coverage.graph_launch_time_s)}; operators are known for {known} "
            "of this time."
        )
        if coverage.graph_matched_time_s < _MATCHED * coverage.graph_launch_time_s:
            blocks.append(Paragraph(f"{text} Add the capture trace with --capture.", show="always"))
            # The kernels of the longest graphs whose operators are not known.
            graphs = [
                folded.row for members in groups.values() for folded in members if is_graph(folded.row)
            ][:_GRAPHS]
            tables = (kernels_table(row, analysis, f"Kernels of {row.name}", "always") for row in graphs)
            blocks += [
                replace(kernels, name=f"graph_{at}") for at, kernels in enumerate(tables, 1) if kernels
            ]
        else:
            blocks.append(Paragraph(text))
    return section("coverage", under, *blocks, under=under, columns=12 if groups else 6)


def _uncounted(analysis: Analysis) -> dict[tuple[str, str], list[TableRow]]:
    """The rows without a count by operator and reason, longest first."""
    without = (folded for folded in table_rows(analysis) if folded.reason)
    groups = grouped(without, lambda folded: (folded.row.name, folded.reason))
    return dict(sorted(groups.items(), key=lambda group: -_rows_s(group[1])))


def _rows_s(members: Iterable[TableRow]) -> float:
    return sum(folded.row.time_s for folded in members)


def _uncounted_table(groups: dict[tuple[str, str], list[TableRow]], analysis: Analysis, show: Show) -> Table:
    columns = (
        SHARE,
        Column("operator", format="text", least=20),
        TIME,
        CALLS,
        Column("shapes", format="shapes", priority=1, help="the first of its shapes"),
        Column("reason", format="text", least=20),
    )
    rows = (
        (
            known_share(_rows_s(members), analysis),
            Cell(value=short_kernel(name) if is_kernel(members[0].row) else name, hover=name),
            _rows_s(members),
            sum(folded.row.calls for folded in members),
            members[0].row.shapes,
            reason,
        )
        for (name, reason), members in groups.items()
    )
    caption = "Operators without a FLOP and byte count"
    return table(
        "unmodeled", columns, rows, caption, brief=_UNCOUNTED_BRIEF, printed=_UNCOUNTED_PRINTED, show=show
    )


def _read_only(analysis: Analysis) -> list[Paragraph]:
    """The time of operators whose formula follows the source of their library, without a recorded trace or a
    call as evidence."""
    times = longest_first(
        (row.name, row.time_s) for row in analysis.operators if evidence_of(row.name) == "read"
    )
    if not times:
        return []
    share = percent(share_of_step(sum(times.values()), analysis))
    return [
        Paragraph(
            f"Work models for {share} of the {analysis.basis.per} follow the source code of a "
            "library and were not compared with a"
            f" recorded call: {sentences.listed(list(times), _NAMED)}."
        )
    ]


def _how_to_add(groups: dict[tuple[str, str], list[TableRow]], show: Show) -> list[Paragraph]:
    """The two lines that add the formula of the longest operator that has none."""
    name = next((name for name, reason in groups if reason == NO_FORMULA), None)
    if name is None:
        return []
    text = (
        f"To count {name}, save these lines as formulas.py, fill in the numbers (op.tensors has "
        "the shapes), and add"
        " --formulas formulas.py:"
    )
    code = (
        "from rooflines import Work, formula\n"
        f'@formula("{name}", category="other")\n'
        "def work(op): return Work(other_flops=..., bytes_read=..., bytes_written=...)"
    )
    return [Paragraph(text, show=show), Paragraph(code, "code", show=show)]
