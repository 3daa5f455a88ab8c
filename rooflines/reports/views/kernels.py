"""The kernels of a step by name: time, launch, resources, and their place in the roofline where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import ABSENT, Cell, Column, Row, Section, Table, Value, section, table
from rooflines.reports.views.roofline import warning
from rooflines.reports.words.rows import merged_kernel, share_of_step
from rooflines.reports.words.text import bound_words, is_kernel, operator_name
from rooflines.roofline.analysis import Analysis, Kernel, OperatorRow, Unmodelled
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import seconds, si

_PRINTED = 20
_MOST_HOVERED = 12
_RESOURCES = ("registers", "shared_bytes", "occupancy")
_COPIES = ("Memcpy ", "Memset ")
_UNKNOWN: tuple[Value | Cell, ...] = (None, None, None, "")
_OCCUPANCY = "warps in use over the warps that a multiprocessor holds, estimated by the profiler; the mean over the time of the calls"


class _Launch(NamedTuple):
    """A kernel of one row of the analysis, and the place of that row among the operators (-1: it has no count)."""

    kernel: Kernel
    row: OperatorRow | Unmodelled
    place: int


def kernels_section(analysis: Analysis) -> Section | None:
    """The kernels of a step; None where the trace has none, as on a CPU."""
    found = kernel_table(analysis)
    return section("kernels", "Kernels", found) if found is not None else None


def kernel_table(analysis: Analysis) -> Table | None:
    """All kernels, copies and fills of the step by what they are, longest first; None without any."""
    groups: dict[str, list[_Launch]] = {}
    for at, row in enumerate(analysis.rows):
        for kernel in row.kernels:
            place = at if at < len(analysis.operators) else -1
            groups.setdefault(short_kernel(kernel.name), []).append(_Launch(kernel, row, place))
    if not groups:
        return None
    whole = {name: merged_kernel([launch.kernel for launch in group]) for name, group in groups.items()}
    longest = sorted(groups, key=lambda name: (-whole[name].time_s, name))
    rates = {name: _rates(group) for name, group in groups.items()}
    most_s = whole[longest[0]].time_s or 1.0
    columns: tuple[Column, ...] = (
        Column("share", "%", "share", help="share of the step's time; kernels that overlap count in full"),
        Column("kernel", format="middle", least=26), Column("time", "s", "scaled"), Column("calls", format="count"),
        Column("grid", priority=5), Column("block", priority=5),
        Column("registers", format="count", priority=4, help="registers of a thread"),
        Column("shared", "B", "scaled", key="shared_bytes", priority=4, help="shared memory of a block, static and dynamic"),
        Column("occup.", "%", "efficiency", key="occupancy", priority=3, help=_OCCUPANCY),
        Column("streams", priority=8), Column("operators", format="name", least=16, priority=1, help="what launched it"),
        Column("achieved", "FLOP/s", "scaled", priority=6, group="achieved"), Column("intensity", "FLOP/B", "figures", priority=7),
        Column("eff.", "%", "efficiency", key="efficiency", priority=2, help="efficiency: lower bound / time"),
        Column("bound", format="text", least=13, priority=2),
    )  # fmt: skip
    note = (
        "Achieved, intensity, efficiency and bound are given where a kernel is the only one of its operators and runs once in each of"
        f" their calls, so that their work is its work: {sum(cells is not _UNKNOWN for cells in rates.values())} of {len(groups)} rows."
    )
    recorded = any(launch.kernel.registers is not None for group in groups.values() for launch in group)
    if not recorded:
        columns = tuple(column for column in columns if column.name not in _RESOURCES)
        note += " The trace does not record registers, shared memory and occupancy."
    elif any(kernel.registers is not None and kernel.occupancy is None for kernel in whole.values()):
        note += " Occupancy is absent where the profiler could not compute it, as for blocks with more than 48 KiB of shared memory."
    rows = (_row(name, whole[name], groups[name], rates[name], analysis, most_s, recorded=recorded) for name in longest)
    return table(
        "kernels", columns, rows, "Kernels, copies and fills by name", note=note, order="longest first", sorted_by="time", kind="main",
        printed=_PRINTED,
    )  # fmt: skip


def _row(
    name: str, kernel: Kernel, group: Sequence[_Launch], rates: tuple[Value | Cell, ...], analysis: Analysis, most_s: float, *,
    recorded: bool,
) -> Row:  # fmt: skip
    kernels = [launch.kernel for launch in group]
    times: dict[str, float] = {}
    for launch in group:
        operator = "" if is_kernel(launch.row) else operator_name(launch.row)
        times[operator] = times.get(operator, 0.0) + launch.kernel.time_s
    operators = sorted(filter(None, times), key=lambda operator: -times[operator])
    named = f"{operators[0]} +{len(operators) - 1}" if len(operators) > 1 else "".join(operators)
    longest = max(group, key=lambda launch: launch.kernel.time_s).row
    occupancy = Cell(value=kernel.occupancy, text="<1" if kernel.occupancy is not None and kernel.occupancy < 0.005 else "")
    cells: tuple[Value | Cell, ...] = (
        Cell(value=share_of_step(kernel.time_s, analysis), bar=min(1.0, kernel.time_s / most_s)),
        Cell(value=name, hover=_lines([one.name for one in kernels])),
        Cell(value=kernel.time_s, hover=seconds(kernel.time_s)),
        kernel.calls,
        _extents(kernels, "grid"),
        _extents(kernels, "block"),
        *((_range(kernels, "registers"), _range(kernels, "shared_bytes"), occupancy) if recorded else ()),
        ", ".join(map(str, kernel.streams)) or ABSENT,
        Cell(value=named, hover=_lines(operators)),
        *rates,
    )
    return Row(
        cells,
        color=longest.category if isinstance(longest, OperatorRow) else "other",
        points=tuple(dict.fromkeys(launch.place for launch in group if launch.place >= 0)),
    )


def _rates(group: Sequence[_Launch]) -> tuple[Value | Cell, ...]:
    """Speed, intensity, efficiency and bound of a kernel that does all of its operators' work; empty cells where it does not."""
    rows = []
    for kernel, row, _ in group:
        computing = [one for one in row.kernels if not one.name.startswith(_COPIES)]
        if not isinstance(row, OperatorRow) or computing != [kernel] or kernel.calls != row.calls:
            return _UNKNOWN
        if row.flop_per_s is None and row.byte_per_s is None:
            return _UNKNOWN
        rows.append(row)
    time_s, flops, size = sum(one.kernel.time_s for one in group), sum(row.flops for row in rows), sum(row.bytes for row in rows)
    if time_s <= 0:
        return _UNKNOWN
    bounds = [row.lower_bound_s for row in rows if row.lower_bound_s is not None]
    efficiency = sum(bounds) / time_s if len(bounds) == len(rows) else None
    longest = max(rows, key=lambda row: row.time_s)
    doubt, bound = warning(efficiency, longest.flag), bound_style(longest.bound)
    return (
        flops / time_s or None,
        flops / size or None if size else None,
        Cell(value=efficiency, hover=doubt, warning=doubt),
        Cell(value=bound_words(longest), letter=bound.letter, hover=bound.meaning),
    )


def _extents(kernels: Sequence[Kernel], name: str) -> str | Cell:
    """The grid or block of the launches."""
    found = {extents for kernel in kernels if (extents := getattr(kernel, name)) is not None}
    if not found:
        # A kernel with registers has a grid and a block: they differ between the launches of a row.
        return "varies" if any(kernel.registers is not None for kernel in kernels) else ABSENT
    texts = ["x".join(map(str, extents)).removesuffix("x1").removesuffix("x1") for extents in sorted(found)]
    same = len(found) == 1 and all(getattr(kernel, name) is not None for kernel in kernels)
    return texts[0] if same else Cell(value="varies", hover=_lines(texts))


def _range(kernels: Sequence[Kernel], name: str) -> Cell:
    """The registers or the shared memory of the launches, the least and the most of them where they differ."""
    found = sorted({count for kernel in kernels if (count := getattr(kernel, name)) is not None})
    if not found:
        return Cell(value=None)
    if name == "registers":
        return Cell(value=found[-1], text=f"{found[0]}–{found[-1]}" if len(found) > 1 else "")
    return Cell(value=found[-1], hover=f"{si(found[0], 'B')} to {si(found[-1], 'B')}" if len(found) > 1 else "")


def _lines(texts: Sequence[str]) -> str:
    texts = list(dict.fromkeys(texts))
    more = [f"and {len(texts) - _MOST_HOVERED} more"] if len(texts) > _MOST_HOVERED else []
    return "\n".join([*texts[:_MOST_HOVERED], *more])
