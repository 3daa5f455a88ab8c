"""A count in a terminal: the totals, what they are made of by operator or by module, and what has no formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.reports.tables import shorten_name, shorten_path
from rooflines.roofline.counting.count import Count, ModuleCount, OperatorCount
from rooflines.units import percent, si, significant

if TYPE_CHECKING:
    from rich.console import Console

    from rooflines.profiler.records import StepMemory, Workload
    from rooflines.roofline.counting.other_counters import OtherCount

By = Literal["operator", "module"]
_MOST_UNKNOWN = 8
_MOST_NAMES = 3


def print_count(count: Count, workload: Workload, by: By, rows: int, console: Console) -> None:
    """The count as text: totals, at most ``rows`` rows by operator or module, what is unknown."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(_title(workload), style="bold"))
    console.print(Text(_totals(count)))
    console.print()
    shown = list(_by_operator(count) if by == "operator" else _by_module(count))
    cells = [_cells(line, count) for line in shown[:rows]]
    widths = [max(len(name), *(len(row[index]) for row in cells)) if cells else len(name) for index, name in enumerate(_COLUMNS)]
    named = max([len(by), *(len(label) for label, *_ in shown[:rows])])
    table = Table(box=None, pad_edge=False, header_style="dim")
    room = max(12, min(named, console.width - sum(widths) - 2 * len(widths)))
    table.add_column(by, overflow="ellipsis", no_wrap=True, width=room)
    for name, width in zip(_COLUMNS, widths, strict=True):
        table.add_column(name, justify="right", no_wrap=True, width=width)
    for (label, *_), row in zip(shown, cells, strict=False):
        table.add_row(Text(shorten_name(label, room) if by == "operator" else label), *row)
    console.print(table)
    if len(shown) > rows:
        console.print(Text(f"and {len(shown) - rows} more (--rows {len(shown)} shows all)", style="dim"))
    for sentence in _doubts(count):
        console.print(Text(sentence))


def print_memory(memory: StepMemory, console: Console) -> None:
    """The peak of a step's memory, where it is reached, and what it consists of."""
    from rich.table import Table
    from rich.text import Text

    console.print()
    console.print(Text(f"{si(memory.peak_bytes, 'B')} of memory at the peak, {_place(memory)}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    for name, size in msgspec.structs.asdict(memory.at_peak).items():
        table.add_row(name, *((si(size, "B"), percent(size / memory.peak_bytes, 1)) if size else ("-", "-")))
    console.print(table)
    if memory.unknown:
        names = ", ".join(memory.unknown)
        console.print(Text(f"Not in these figures: memory whose size only the library behind an operator knows ({names})."))


def _place(memory: StepMemory) -> str:
    """Where the peak is reached."""
    if not memory.operator:
        return "held before the step"
    module = f" of {memory.module}" if memory.module else ""
    return f"first reached by {memory.operator}{module} ({memory.phase})"


def print_against(count: Count, others: Sequence[OtherCount], console: Console) -> None:
    """The other counters' totals beside ours, and for each of them what makes the difference, the largest first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("counter", no_wrap=True)
    for name in ("total", "unit", "of our FLOPs", "of our matrix FLOPs"):
        table.add_column(name, justify="right" if name != "unit" else "left", no_wrap=True)
    cut: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    table.add_row("rooflines", _amount(count.flops), "FLOP", "", "")
    table.add_row("  matrix products", _amount(count.matrix_flops), "FLOP", _ratio(count.matrix_flops, count.flops), "")
    for other in others:
        if other.total is not None:
            shares = _ratio(other.total, count.flops), _ratio(other.total, count.matrix_flops)
            table.add_row(other.counter, _amount(other.total), other.unit, *shares)
    console.print()
    console.print(table)
    for other in others:
        console.print()
        if other.absent:
            console.print(Text(f"{other.counter}: no count, {other.absent}"))
            continue
        console.print(Text(f"{other.counter}: {'what makes the difference' if other.differences else 'the same'}"))
        for one in other.differences:
            names = ", ".join(name.removeprefix("aten::") for name in one.operators[:_MOST_NAMES])
            more = f" and {len(one.operators) - _MOST_NAMES} more" if len(one.operators) > _MOST_NAMES else ""
            console.print(Text(f"  {_amount(one.ours):>6} here, {_amount(one.theirs):>6} there: {one.reason}"), **cut)
            console.print(Text(f"{' ' * 8}{names}{more}", style="dim"), **cut)


def _ratio(part: int, whole: int) -> str:
    return significant(part / whole) if whole else "-"


def _title(workload: Workload) -> str:
    facts = [workload.mode, f"batch {workload.batch_size}", workload.precision]
    if workload.image_size:
        facts.append(f"{workload.image_size} x {workload.image_size}")
    return f"{workload.name}: one step of {', '.join(facts)}"


def _totals(count: Count) -> str:
    return (
        f"{si(count.flops, 'FLOP')}, of which {si(count.matrix_flops, 'FLOP')} in matrix products"
        f" ({si(count.matrix_flops // 2, 'MAC')}); {si(count.bytes, 'B')} of compulsory traffic"
        f" ({si(count.bytes_read, 'B')} read, {si(count.bytes_written, 'B')} written)"
    )


_Line = tuple[str, int, int, int, int]
_COLUMNS = ("calls", "FLOPs", "matrix", "share", "bytes", "FLOP/byte")


def _cells(line: _Line, count: Count) -> list[str]:
    _, calls, flops, matrix, size = line
    share = percent(flops / count.flops, 1) if flops else "-"
    intensity = significant(flops / size) if flops and size else "-"
    return [str(calls), _amount(flops), _amount(matrix), share, _amount(size), intensity]


def _by_operator(count: Count) -> Iterator[_Line]:
    """Name, calls, FLOPs, matrix FLOPs and bytes of each operator, all shapes together, the most FLOPs first."""
    sums: dict[str, list[int]] = {}
    for row in count.operator_rows:
        if row.kind == "counted":
            figures = (row.calls, row.flops or 0, row.matrix_flops or 0, row.bytes or 0)
            sums[row.name] = [a + b for a, b in zip(sums.get(row.name, (0, 0, 0, 0)), figures, strict=True)]
    for name, (calls, flops, matrix, size) in sorted(sums.items(), key=lambda item: (-item[1][1], -item[1][3])):
        yield name.removeprefix("aten::"), calls, flops, matrix, size


def _by_module(count: Count) -> Iterator[_Line]:
    """The modules in the order of their first call, each with what runs below it, indented by depth."""
    for row in count.module_rows:
        last = row.path.rpartition(".")[2] if row.path else ""
        label = "  " * row.depth + (f"{last} ({row.type})" if last else row.type)
        yield shorten_path(label, 60) if len(label) > 60 else label, row.calls, row.flops, row.matrix_flops, row.bytes


def _amount(value: int) -> str:
    return si(value, "").replace(" ", "") if value else "-"


def _doubts(count: Count) -> Iterator[str]:
    """What the totals leave out, and what the count rests on."""
    unknown = [row for row in count.operator_rows if row.kind == "unknown"]
    if unknown:
        yield f"{percent(count.coverage, 1)} of the operator calls have a formula; not in the totals:"
        names: dict[tuple[str, str], int] = {}
        for row in unknown:
            key = (row.name, row.reason or "")
            names[key] = names.get(key, 0) + row.calls
        listed = list(names.items())
        for (name, reason), calls in listed[:_MOST_UNKNOWN]:
            yield f"  {name} ({calls} calls): {reason}"
        if len(listed) > _MOST_UNKNOWN:
            yield f"  and {len(listed) - _MOST_UNKNOWN} more (--format json lists all)"
    else:
        yield "Every operator call has a formula."
    if count.note:
        yield count.note[:1].upper() + count.note[1:] + "."


def count_csv(count: Count, by: By) -> str:
    """The rows as CSV text, with the fields of ``OperatorCount`` or ``ModuleCount`` as its header."""
    rows: Iterable[OperatorCount | ModuleCount] = count.operator_rows if by == "operator" else count.module_rows
    kind = OperatorCount if by == "operator" else ModuleCount
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [info.name for info in msgspec.structs.fields(kind)]
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if getattr(row, name) is None else getattr(row, name) for name in names])
    return out.getvalue()
