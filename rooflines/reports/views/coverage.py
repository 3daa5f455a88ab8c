"""The section on coverage: the share of the time with a work model, the operators that lack one, and how to add a formula."""

from __future__ import annotations

from msgspec.structs import replace

from rooflines.reports.document import Block, Cell, Column, Paragraph, Row, Section, Show, Table
from rooflines.reports.views.kernels import kernels_table
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import TableRow, table_rows
from rooflines.reports.words.summary import share_of_step
from rooflines.reports.words.text import is_graph, is_kernel
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.formulas.counter import NO_FORMULA
from rooflines.roofline.formulas.evidence import evidence_of
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import percent, seconds

_BRIEF, _PRINTED = 5, 12
_GRAPHS, _NAMED = 3, 3
# A terminal lists the operators from this share of the time on; a full report always does.
_WORTH_A_TABLE = 0.02
# Below this share of the time of graphs, their operators are missed.
_MATCHED = 0.9


def section(analysis: Analysis, under: str) -> Section:
    """The section, below the heading ``under``."""
    coverage, rows = analysis.coverage, _uncounted(analysis)
    share = share_of_step(sum(map(_time_s, rows.values())), analysis) if rows else 0.0
    show: Show = "always" if share is None or share >= _WORTH_A_TABLE else "full"
    sentence = sentences.coverage_sentence(analysis, named=show != "always")
    missing = sentences.missing_operators(analysis) or "The share of time with a count is unknown."
    blocks: list[Block] = [Paragraph(sentence, show="always") if sentence else Paragraph(missing, "absent")]
    if rows:
        blocks += [_table(rows, analysis, show), *_how_to_add(rows, show)]
    blocks += _read_only(analysis)
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
    return dict(sorted(groups.items(), key=lambda group: -_time_s(group[1])))


def _time_s(members: list[TableRow]) -> float:
    return sum(one.row.time_s for one in members)


def _table(groups: dict[tuple[str, str], list[TableRow]], analysis: Analysis, show: Show) -> Table:
    columns = (
        Column("share", "%", "share"), Column("operator", format="text", least=20), Column("time", "s", "scaled"),
        Column("calls", format="count"), Column("shapes", format="shapes", priority=1, help="the first of its shapes"),
        Column("reason", format="text", least=20),
    )  # fmt: skip
    rows = tuple(
        Row(
            (
                share_of_step(_time_s(members), analysis),
                Cell(value=short_kernel(name) if is_kernel(members[0].row) else name, hover=name),
                _time_s(members), sum(one.row.calls for one in members), members[0].row.shapes, reason,
            )
        )
        for (name, reason), members in groups.items()
    )  # fmt: skip
    return Table(
        name="unmodelled",
        caption="Operators without a FLOP and byte count",
        columns=columns,
        rows=rows,
        brief=_BRIEF,
        printed=_PRINTED,
        show=show,
    )


def _read_only(analysis: Analysis) -> list[Block]:
    """The time of operators whose formula follows the source of their library, without a recorded trace or a call as evidence."""
    times: dict[str, float] = {}
    for row in analysis.operators:
        if evidence_of(row.name) == "read":
            times[row.name] = times.get(row.name, 0.0) + row.time_s
    if not times:
        return []
    longest = sorted(times, key=lambda name: -times[name])
    more = f" and {len(longest) - _NAMED} more" if len(longest) > _NAMED else ""
    share = percent(share_of_step(sum(times.values()), analysis))
    return [
        Paragraph(
            f"Work models for {share} of the {analysis.basis.per} follow the source code of a library and were not compared with a"
            f" recorded call: {', '.join(longest[:_NAMED])}{more}."
        )
    ]


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
