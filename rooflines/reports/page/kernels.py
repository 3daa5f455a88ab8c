"""The kernels of a step by name: time, launch, resources, and their place in the roofline where it is
known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import ABSENT, CALLS, TIME, Cell, Cells, Column, Row, Table, table, value_of
from rooflines.reports.page.roofline import roofline_warning
from rooflines.reports.words.rows import known_share
from rooflines.reports.words.text import bound_words, is_kernel, operator_name
from rooflines.roofline.analysis import Analysis, Kernel, OperatorRow, Unmodeled
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.judge.call_sites import merged_kernel
from rooflines.units import seconds

_PRINTED = 20
_MOST_HOVERED = 12
_COPIES = ("Memcpy ", "Memset ")
# The place of a row of the analysis, the row, and a kernel of it.
_Launch: TypeAlias = tuple[int, OperatorRow | Unmodeled, Kernel]
_UNKNOWN: Cells = (None, None, None, "")
_OCCUPANCY = (
    "warps in use over the warps that a multiprocessor holds, estimated by the profiler; the mean "
    "over the time of the calls"
)


def kernel_table(analysis: Analysis) -> Table | None:
    """All kernels, copies and fills of the step by what they are, longest first; None without any, as on a
    CPU."""
    launches: Iterable[_Launch] = (
        (at, row, kernel) for at, row in enumerate(analysis.rows) for kernel in row.kernels
    )
    groups = grouped(launches, lambda launch: short_kernel(launch[2].name))
    if not groups:
        return None
    merged = {name: merged_kernel([kernel for _, _, kernel in group]) for name, group in groups.items()}
    longest = sorted(groups, key=lambda name: (-merged[name].time_s, name))
    recorded = any(kernel.registers is not None for group in groups.values() for _, _, kernel in group)
    resources = (
        Column("registers", format="count", priority=4, help="of a thread; the most where they differ"),
        Column(
            "shared",
            "B",
            "scaled",
            key="shared_bytes",
            priority=4,
            help="of a block; the most where they differ",
        ),
        Column("occup.", "%", "efficiency", key="occupancy", priority=3, help=_OCCUPANCY),
    )
    columns: tuple[Column, ...] = (
        Column("share", "%", "share", help="share of the step's time; kernels that overlap count in full"),
        Column("kernel", format="middle", least=26),
        TIME,
        CALLS,
        Column("grid", priority=5),
        Column("block", priority=5),
        *(resources if recorded else ()),
        Column("streams", priority=8),
        Column("operators", format="name", least=16, priority=1, help="what launched it"),
        Column("achieved", "FLOP/s", "scaled", priority=6, group="achieved"),
        Column("intensity", "FLOP/B", "figures", priority=7),
        Column(
            "eff.", "%", "efficiency", key="efficiency", priority=2, help="efficiency: lower bound / time"
        ),
        Column("class", format="class", key="bound", least=13, priority=2, help="what limits it"),
    )
    rows = [
        _row(name, merged[name], groups[name], analysis, merged[longest[0]].time_s, recorded=recorded)
        for name in longest
    ]
    judged = sum(value_of(row.cells[-1]) != "" for row in rows)
    note = f"{judged} of {len(rows)} kernels are the only one of their operators and have a class."
    if not recorded:
        note += " The trace does not record registers, shared memory and occupancy."
    elif any(kernel.registers is not None and kernel.occupancy is None for kernel in merged.values()):
        note += (
            " Occupancy is absent where the profiler could not compute it, as for blocks with more "
            "than 48 KiB of shared memory."
        )
    return table(
        "kernels",
        columns,
        rows,
        "Kernels, copies and fills by name",
        note=note,
        order="longest first",
        sorted_by="time",
        kind="main",
        printed=_PRINTED,
    )


def _row(
    name: str, whole: Kernel, group: list[_Launch], analysis: Analysis, most_s: float, *, recorded: bool
) -> Row:
    kernels = [kernel for _, _, kernel in group]
    operators = list(
        longest_first((operator_name(row), kernel.time_s) for _, row, kernel in group if not is_kernel(row))
    )
    named = f"{operators[0]} +{len(operators) - 1}" if len(operators) > 1 else "".join(operators)
    occupancy = Cell(value=whole.occupancy, text="<1" if whole.occupancy == 0 else "")
    cells: Cells = (
        Cell(value=known_share(whole.time_s, analysis), bar=whole.time_s / (most_s or 1.0)),
        Cell(value=name, hover=_lines(kernel.name for kernel in kernels)),
        Cell(value=whole.time_s, hover=seconds(whole.time_s)),
        whole.calls,
        _extents(whole.grid, kernels),
        _extents(whole.block, kernels),
        *((_most(kernels, "registers"), _most(kernels, "shared_bytes"), occupancy) if recorded else ()),
        ", ".join(map(str, whole.streams)) or ABSENT,
        Cell(value=named, hover=_lines(operators)),
        *_rates(group, whole.time_s),
    )
    _, longest, _ = max(group, key=lambda launch: launch[2].time_s)
    points = dict.fromkeys(at for at, _, _ in group if at < len(analysis.operators))
    return Row(
        cells, color=longest.category if isinstance(longest, OperatorRow) else "other", points=tuple(points)
    )


def _rates(group: list[_Launch], time_s: float) -> Cells:
    """Speed, intensity, efficiency and bound of a kernel that does all of its operators' work; empty cells
    where it does not."""
    rows = [
        row
        for _, row, kernel in group
        if isinstance(row, OperatorRow)
        and kernel.calls == row.calls
        and (row.flop_per_s, row.byte_per_s) != (None, None)
        if [one for one in row.kernels if not one.name.startswith(_COPIES)] == [kernel]
    ]
    if len(rows) < len(group) or time_s <= 0:
        return _UNKNOWN
    flops, size = sum(row.flops for row in rows), sum(row.bytes for row in rows)
    bounds = [row.lower_bound_s for row in rows if row.lower_bound_s is not None]
    efficiency = sum(bounds) / time_s if len(bounds) == len(rows) else None
    longest = max(rows, key=lambda row: row.time_s)
    doubt, bound = roofline_warning(efficiency, longest.flag), bound_style(longest.bound)
    return (
        flops / time_s or None,
        flops / size or None if size else None,
        Cell(value=efficiency, hover=doubt, warning=doubt),
        Cell(value=bound_words(longest), letter=bound.letter, hover=bound.meaning),
    )


def _extents(same: tuple[int, int, int] | None, kernels: list[Kernel]) -> str:
    """The grid or block of the launches, if it is the ``same`` of all."""
    if same is None:
        # What has registers has a grid and a block: they differ between the launches.
        return "varies" if any(kernel.grid or kernel.registers for kernel in kernels) else ABSENT
    return "x".join(map(str, same)).removesuffix("x1").removesuffix("x1")


def _most(kernels: list[Kernel], name: str) -> Cell:
    """The most of the registers or of the shared memory of the launches."""
    found = {number for kernel in kernels if (number := getattr(kernel, name)) is not None}
    return Cell(
        value=max(found, default=None), hover=f"{min(found):,} to {max(found):,}" if len(found) > 1 else ""
    )


def _lines(texts: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    left_out = len(distinct) - _MOST_HOVERED
    return "\n".join([*distinct[:_MOST_HOVERED], *([f"and {left_out} more"] if left_out > 0 else [])])
