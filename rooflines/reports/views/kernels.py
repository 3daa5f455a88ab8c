"""The kernels of one row of the operators as a table."""

from __future__ import annotations

from rooflines.reports.document import ABSENT, Cell, Column, Row, Show, Table
from rooflines.reports.words.summary import share_of_step
from rooflines.roofline.analysis import Analysis, Kernel, OperatorRow
from rooflines.roofline.kernel_names import short_kernel

_MOST, _BRIEF = 20, 8


def kernels_table(row: OperatorRow, analysis: Analysis, title: str = "", show: Show = "full") -> Table | None:
    """The kernels that ``row`` ran on the device by what they are, longest first; None if the trace does not record them."""
    if not row.kernels:
        return None
    groups: dict[str, list[Kernel]] = {}
    for kernel in row.kernels:
        groups.setdefault(short_kernel(kernel.name), []).append(kernel)
    listed = sorted(groups.items(), key=lambda item: -_time_s(item[1]))
    rows = [
        Row(
            (
                share_of_step(_time_s(group), analysis), Cell(value=name, hover="\n".join(kernel.name for kernel in group)),
                _time_s(group), sum(kernel.calls for kernel in group),
                ", ".join(str(stream) for stream in sorted({one for kernel in group for one in kernel.streams})) or ABSENT,
            )
        )
        for name, group in listed[:_MOST]
    ]  # fmt: skip
    more = len(listed) - _MOST
    if more > 0:
        rows.append(Row(("", f"and {more} more in analysis.json", "", "", "")))
    columns = (
        Column("share", "%", "share"), Column("kernel", format="text"), Column("time", "s", "scaled"), Column("calls", format="count"),
        Column("stream", priority=1),
    )  # fmt: skip
    return Table(
        name="kernels", title=title, caption=title or "Kernels of this row", columns=columns, rows=tuple(rows), brief=_BRIEF, show=show
    )


def _time_s(kernels: list[Kernel]) -> float:
    return sum(kernel.time_s for kernel in kernels)
