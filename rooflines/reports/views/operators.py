"""The operators of a run or a trace as a table, with what a row stands for and runs."""

from __future__ import annotations

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import Block, Cell, Column, Paragraph, Row, Section, Table, Value
from rooflines.reports.views.kernels import kernels_table
from rooflines.reports.views.roofline import warning
from rooflines.reports.words import rows as rows_of
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import TableRow, flagged, module_text, table_rows
from rooflines.reports.words.summary import operators_summary, share_of_step
from rooflines.reports.words.text import marked_name
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.units import seconds, si

# Rows in the short form, and in print.
_OPERATORS, _OPERATORS_PRINTED = 10, 25
_FLAGS, _FLAGS_PRINTED = 3, 10


def section(analysis: Analysis) -> Section:
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
    index_of = {id(row): index for index, row in enumerate(analysis.operators)}
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
        rows=tuple(_operator_row(one, analysis, most_time, most_headroom, index_of) for one in everything),
        total=_operator_totals(everything, analysis),
        order=rows_of.table_order(everything),
        sorted_by="headroom" if judged else "share",
        kind="main",
        brief=_OPERATORS,
        printed=_OPERATORS_PRINTED,
        show="always",
    )


def _operator_row(one: TableRow, analysis: Analysis, most_time: float, most_headroom: float, index_of: dict[int, int]) -> Row:
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
            Cell(value=row.efficiency, hover=warning(row.efficiency, row.flag), warning=_doubt(one)),
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
        points=tuple(index_of[id(row)] for row in one.members if id(row) in index_of),
    )


def _doubt(one: TableRow) -> str:
    """The reason why the efficiency of a row, or of some of its members, is not plausible."""
    wrong = flagged(one)
    return warning(one.row.efficiency, one.row.flag) or (wrong[0].flag or "" if wrong else "")


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
                 _efficiency(row), row.calls))
            for row in one.members
        ),
    )  # fmt: skip


def _efficiency(row: OperatorRow) -> Cell:
    doubt = warning(row.efficiency, row.flag)
    return Cell(value=row.efficiency, hover=doubt, warning=doubt)


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
