"""The operators and modules of a run or a trace as tables, their kernels, and what has no count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.charts.roofline import warning
from rooflines.reports.document import ABSENT, Block, Cell, Column, Paragraph, Row, Section, Show, Table, Value
from rooflines.reports.words import rows as rows_of
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import TableRow, flagged, module_text, operators_summary, share_of_step, table_rows
from rooflines.reports.words.text import is_graph, is_kernel, marked_name
from rooflines.roofline.analysis import Analysis, Kernel, ModuleRow, OperatorRow
from rooflines.roofline.formulas.counter import NO_FORMULA
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import percent, seconds, si

# Rows in the short form, and in print.
_OPERATORS, _OPERATORS_PRINTED = 10, 25
_FLAGS, _FLAGS_PRINTED = 3, 10


def operators_section(analysis: Analysis) -> Section:
    table = operator_table(analysis)
    if table is None:
        missing = Paragraph(sentences.missing_operators(analysis) or "", "absent", "always")
        return Section(name="operators", title="Operators", blocks=(missing,))
    wrong = rows_of.flagged_rows(analysis)
    blocks: list[Block] = [table]
    blocks += [
        Paragraph(sentences.flag_sentence(one), "alert", "always" if at < _FLAGS else "full")
        for at, one in enumerate(wrong[:_FLAGS_PRINTED])
    ]
    if len(wrong) > _FLAGS:
        blocks.append(Paragraph(f"{len(wrong) - _FLAGS} more are flagged in the full report", "note", "brief"))
    inferred = sentences.inferred_sentence(analysis)
    if inferred:
        blocks.append(Paragraph(inferred, "note", "always"))
    return Section(name="operators", title=rows_of.table_title(table_rows(analysis)), blocks=tuple(blocks))


def operator_table(analysis: Analysis) -> Table | None:
    """All operators in the order of ``table_rows``, with their totals; None without any."""
    everything = table_rows(analysis)
    if not everything:
        return None
    rows = [one.row for one in everything]
    most_time = max(row.time_s for row in rows) or 1.0
    most_headroom = max((row.headroom_s or 0.0 for row in rows), default=0.0) or 1.0
    judged = any(row.headroom_s is not None for row in rows)
    title = rows_of.table_title(everything)
    return Table(
        name="operators",
        caption=title,
        columns=(
            Column("share", "%", "share", help="share of the step's time"),
            Column(title.lower().removesuffix("s"), format="name", key="operator", least=16),
            Column("module", format="path", least=14, priority=1),
            Column("time", "s", "scaled", priority=1),
            Column("headroom", "s", "scaled", help="time − lower bound; a row without a bound is sorted by its time"),
            Column("eff.", "%", "efficiency", "efficiency", help="efficiency: lower bound / time"),
            Column("bound", format="text", least=13, priority=2),
            Column("achieved", "FLOP/s", "scaled", priority=6, group="achieved"),
            Column("attainable", "FLOP/s", "scaled", priority=9, help="the roof above this operator at its intensity"),
            Column("intensity", "FLOP/B", "figures", priority=7),
            Column("work", "FLOP", "scaled", priority=10),
            Column("traffic", "B", "scaled", priority=11),
            Column("calls", format="count", priority=5),
            Column("shapes", format="shapes", least=11, priority=3, quiet=True),
            Column("longest kernel", format="middle", least=28, priority=8, quiet=True, show="brief"),
        ),
        rows=tuple(_operator_row(one, analysis, most_time, most_headroom) for one in everything),
        total=_operator_totals(everything, analysis),
        order=rows_of.table_order(everything),
        sorted_by="headroom" if judged else "share",
        kind="main",
        brief=_OPERATORS,
        printed=_OPERATORS_PRINTED,
        show="always",
    )


def _operator_row(one: TableRow, analysis: Analysis, most_time: float, most_headroom: float) -> Row:
    row, share = one.row, share_of_step(one.row.time_s, analysis)
    headroom = max(0.0, (row.headroom_s or 0.0) / most_headroom)
    inferred = f" · inferred: {row.inferred}" if row.inferred else ""
    inferred += f" · assumed: {row.assumption}" if row.assumption else ""
    return Row(
        (
            Cell(value=share, bar=row.time_s / most_time),
            Cell(value=marked_name(row), hover=f"{row.name} · {row.category}{inferred}", sort=row.name),
            Cell(value=module_text(one), hover=module_text(one), sort=row.module),
            Cell(value=row.time_s, hover=seconds(row.time_s)),
            Cell(value=row.headroom_s, bar=headroom, sort=one.gain_s),
            Cell(value=row.efficiency, hover=warning(row), warning=_doubt(one)),
            Cell(value=rows_of.bound_text(one), letter=bound_style(one.bound).letter, hover=_bound_title(one), sort=one.bound),
            row.flop_per_s,
            row.attainable_flop_per_s,
            row.intensity_flop_per_byte or None,
            Cell(value=row.flops, hover=si(row.flops, "FLOP")),
            Cell(value=row.bytes, hover=si(row.bytes, "B")),
            row.calls,
            Cell(value=row.shapes, hover=row.shapes),
            rows_of.dominant_kernel(row),
        ),
        colour=row.category,
        detail=_detail(one, analysis),
    )


def _doubt(one: TableRow) -> str:
    """The reason why the efficiency of a row, or of some of its members, is not plausible."""
    wrong = flagged(one)
    return warning(one.row) or (wrong[0].flag or "" if wrong else "")


def _operator_totals(everything: list[TableRow], analysis: Analysis) -> tuple[Value, ...]:
    rows = [one.row for one in everything]
    work, size, judged = sum(row.flops for row in rows), sum(row.bytes for row in rows), operators_summary(analysis)
    time_s = rows_of.table_time(analysis, everything)
    return (
        share_of_step(time_s, analysis), "1 row" if len(rows) == 1 else f"all {len(rows)} rows", "", time_s,
        judged.headroom_s if judged.is_judged else None, judged.efficiency, "", "", "", work / size if size and work else None, work,
        size,
        sum(row.calls for row in rows), "", "",
    )  # fmt: skip


def _detail(one: TableRow, analysis: Analysis) -> tuple[Paragraph | Table, ...]:
    wrong = flagged(one)
    remarks = (
        f"No count: {one.reason}." if one.reason else "",
        f"Work inferred from other events in the trace: {one.row.inferred}." if one.row.inferred else "",
        f"Work estimated: {one.row.assumption}." if one.row.assumption else "",
        f"{sentences.flag_sentence(one)}." if wrong else "",
    )
    tables = (_members_table(one, analysis), kernels_table(one.row, analysis))
    return (*(Paragraph(text) for text in remarks if text), *(table for table in tables if table is not None))


def _members_table(one: TableRow, analysis: Analysis) -> Table | None:
    """The modules of a folded row; None for a single module."""
    if one.modules < 2:
        return None
    return Table(
        name="members",
        caption="Modules in this row",
        columns=(
            Column("module", format="path"), Column("share", "%", "share"), Column("time", "s", "scaled"),
            Column("headroom", "s", "scaled"), Column("eff.", "%", "efficiency", "efficiency"), Column("calls", format="count"),
        ),
        rows=tuple(
            Row((row.module, share_of_step(row.time_s, analysis), row.time_s, row.headroom_s,
                 Cell(value=row.efficiency, hover=warning(row), warning=warning(row)), row.calls))
            for row in one.members
        ),
    )  # fmt: skip


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


_MOST_KERNELS, _KERNELS_BRIEF = 20, 8


def kernels_table(row: OperatorRow, analysis: Analysis, title: str = "", show: Show = "full") -> Table | None:
    """The kernels that ``row`` ran on the device by what they are, longest first; None if the trace does not record them."""
    if not row.kernels:
        return None
    groups: dict[str, list[Kernel]] = {}
    for kernel in row.kernels:
        groups.setdefault(short_kernel(kernel.name), []).append(kernel)
    listed = sorted(groups.items(), key=lambda item: -_kernels_s(item[1]))
    rows = [
        Row(
            (
                share_of_step(_kernels_s(group), analysis), Cell(value=name, hover="\n".join(kernel.name for kernel in group)),
                _kernels_s(group), sum(kernel.calls for kernel in group),
                ", ".join(str(stream) for stream in sorted({one for kernel in group for one in kernel.streams})) or ABSENT,
            )
        )
        for name, group in listed[:_MOST_KERNELS]
    ]  # fmt: skip
    more = len(listed) - _MOST_KERNELS
    if more > 0:
        rows.append(Row(("", f"and {more} more in analysis.json", "", "", "")))
    columns = (
        Column("share", "%", "share"), Column("kernel", format="text"), Column("time", "s", "scaled"), Column("calls", format="count"),
        Column("stream", priority=1),
    )  # fmt: skip
    return Table(
        name="kernels",
        title=title,
        caption=title or "Kernels of this row",
        columns=columns,
        rows=tuple(rows),
        brief=_KERNELS_BRIEF,
        show=show,
    )


def _kernels_s(kernels: list[Kernel]) -> float:
    return sum(kernel.time_s for kernel in kernels)


_MODULES_PRINTED = 30


def modules_section(analysis: Analysis) -> Section:
    table = module_table(analysis)
    block: Block = table or Paragraph(sentences.missing_operators(analysis) or "No modules: the trace contains none.", "absent")
    return Section(name="modules", title="Modules", blocks=(block,))


def module_table(analysis: Analysis) -> Table | None:
    """The modules as a tree, each below its parent; None without any."""
    rows = list(_preorder(analysis.modules))
    if not rows:
        return None
    most_headroom = max((row.headroom_s or 0.0 for row, _ in rows), default=0.0) or 1.0
    longest = sorted(range(len(rows)), key=lambda index: -rows[index][0].time_s)[:_MODULES_PRINTED]
    return Table(
        name="modules",
        caption="Modules, each with everything below it",
        columns=(
            Column("share", "%", "share", help="share of the step's time"),
            Column("module", format="text", least=20),
            Column("class", format="text"),
            Column("time", "s", "scaled"),
            Column("headroom", "s", "scaled"),
            Column("eff.", "%", "efficiency", "efficiency", help="efficiency: lower bound / time"),
            Column("work", "FLOP", "scaled", priority=1),
            Column("traffic", "B", "scaled", priority=2),
            Column("calls", format="count", priority=1),
        ),
        rows=tuple(
            Row(
                (
                    Cell(value=(share := share_of_step(row.time_s, analysis)), bar=min(1.0, share)),
                    Cell(value=row.path.rsplit(".", 1)[-1] or "(model)", hover=row.path),
                    row.type,
                    Cell(value=row.time_s, hover=seconds(row.time_s)),
                    Cell(value=row.headroom_s, bar=max(0.0, (row.headroom_s or 0.0) / most_headroom)),
                    row.efficiency,
                    Cell(value=row.flops, hover=si(row.flops, "FLOP")),
                    Cell(value=row.bytes, hover=si(row.bytes, "B")),
                    row.calls,
                ),
                depth=depth,
                printed=index in longest,
            )
            for index, (row, depth) in enumerate(rows)
        ),
        note="A module counts everything below it, so the rows do not add up to the total.",
        kind="tree",
    )


def _preorder(modules: Iterable[ModuleRow]) -> Iterator[tuple[ModuleRow, int]]:
    """Each module after its nearest recorded ancestor, siblings in the order given, with its depth in this tree."""
    by_path = {row.path: row for row in modules}
    children: dict[str | None, list[ModuleRow]] = {}
    for row in by_path.values():
        children.setdefault(_parent(row.path, by_path), []).append(row)
    waiting = [(row, 0) for row in reversed(children.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        yield row, depth
        waiting.extend((child, depth + 1) for child in reversed(children.get(row.path, [])))


def _parent(path: str, known: dict[str, ModuleRow]) -> str | None:
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


_UNCOUNTED_BRIEF, _UNCOUNTED_PRINTED = 5, 12
_GRAPHS = 3
# A terminal lists the operators from this share of the time on; a full report always does.
_WORTH_A_TABLE = 0.02
# Below this share of the time of graphs, their operators are missed.
_MATCHED = 0.9


def coverage_section(analysis: Analysis, under: str) -> Section:
    """The section, below the heading ``under``."""
    coverage, rows = analysis.coverage, _uncounted(analysis)
    share = share_of_step(sum(map(_rows_s, rows.values())), analysis) if rows else 0.0
    show: Show = "always" if share is None or share >= _WORTH_A_TABLE else "full"
    sentence = sentences.coverage_sentence(analysis, named=show != "always")
    missing = sentences.missing_operators(analysis) or "The share of time with a count is unknown."
    blocks: list[Block] = [Paragraph(sentence, show="always") if sentence else Paragraph(missing, "absent")]
    if rows:
        blocks += [_uncounted_table(rows, analysis, show), *_how_to_add(rows, show)]
    if coverage is not None and coverage.orphan_device_events:
        text = f"{coverage.orphan_device_events} device events have no launch in the trace and belong to no operator."
        blocks.append(Paragraph(text))
    if coverage is not None and coverage.graph_launch_time_s:
        known = percent(coverage.graph_matched_time_s / coverage.graph_launch_time_s)
        text = f"Graphs ran for {seconds(coverage.graph_launch_time_s)}; operators are known for {known} of this time."
        lacking = coverage.graph_matched_time_s < _MATCHED * coverage.graph_launch_time_s
        if lacking:
            text += " Add the capture trace with --capture."
        blocks.append(Paragraph(text, show="always" if lacking else "full"))
        blocks += _graphs(rows, analysis) if lacking else []
    return Section(name="coverage", title="Coverage", under=under, blocks=tuple(blocks))


def _uncounted(analysis: Analysis) -> dict[tuple[str, str], list[TableRow]]:
    """The rows without a count by operator and reason, longest first."""
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for one in table_rows(analysis):
        if one.reason:
            groups.setdefault((one.row.name, one.reason), []).append(one)
    return dict(sorted(groups.items(), key=lambda group: -_rows_s(group[1])))


def _rows_s(members: list[TableRow]) -> float:
    return sum(one.row.time_s for one in members)


def _uncounted_table(groups: dict[tuple[str, str], list[TableRow]], analysis: Analysis, show: Show) -> Table:
    columns = (
        Column("share", "%", "share"), Column("operator", format="text", least=20), Column("time", "s", "scaled"),
        Column("calls", format="count"), Column("shapes", format="shapes", priority=1, help="the first of its shapes"),
        Column("reason", format="text", least=20),
    )  # fmt: skip
    rows = tuple(
        Row(
            (
                share_of_step(_rows_s(members), analysis),
                Cell(value=short_kernel(name) if is_kernel(members[0].row) else name, hover=name),
                _rows_s(members), sum(one.row.calls for one in members), members[0].row.shapes, reason,
            )
        )
        for (name, reason), members in groups.items()
    )  # fmt: skip
    return Table(
        name="unmodelled",
        caption="Operators without a FLOP and byte count",
        columns=columns,
        rows=rows,
        brief=_UNCOUNTED_BRIEF,
        printed=_UNCOUNTED_PRINTED,
        show=show,
    )


def _graphs(groups: dict[tuple[str, str], list[TableRow]], analysis: Analysis) -> list[Block]:
    """The kernels of the longest graphs whose operators are not known."""
    graphs = [one.row for members in groups.values() for one in members if is_graph(one.row)][:_GRAPHS]
    tables = (kernels_table(row, analysis, f"Kernels of {row.name}", "always") for row in graphs)
    return [replace(table, name=f"graph_{at}") for at, table in enumerate(tables, 1) if table is not None]


def _how_to_add(groups: dict[tuple[str, str], list[TableRow]], show: Show) -> list[Block]:
    """The two lines that add the formula of the longest operator that has none."""
    name = next((name for name, reason in groups if reason == NO_FORMULA), None)
    if name is None:
        return []
    text = (
        f"To count {name}, save these lines as formulas.py, fill in the numbers (op.tensors has the shapes), and add"
        " --formulas formulas.py:"
    )
    code = (
        "from rooflines import Work, formula\n"
        f'@formula("{name}", category="other")\n'
        "def work(op): return Work(other_flops=..., bytes_read=..., bytes_written=...)"
    )
    return [Paragraph(text, show=show), Paragraph(code, "code", show=show)]
