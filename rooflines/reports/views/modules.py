"""The modules of a run or a trace as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rooflines.reports.document import Block, Cell, Column, Paragraph, Row, Section, Table
from rooflines.reports.words import sentences
from rooflines.reports.words.summary import share_of_step
from rooflines.roofline.analysis import Analysis, ModuleRow
from rooflines.units import seconds, si

_MODULES_PRINTED = 30


def section(analysis: Analysis) -> Section:
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
