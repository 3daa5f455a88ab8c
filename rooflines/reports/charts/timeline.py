"""The timeline of the devices: one row for each quantity, all on one axis of time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.reports.charts.paper import (
    POINTS_PER_INCH,
    SMALL,
    WIDE,
    Drawing,
    Mark,
    PaperSheet,
    pushed_apart,
)
from rooflines.reports.words.text import joined
from rooflines.units import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW, _GAP, _TOP, _BOTTOM, _LEFT, _RIGHT = 46.0, 17.0, 16.0, 28.0, 34.0, 84.0
# Names beside one row; with more lines only those of the device in focus are named.
_MOST_NAMES = 5


class TimelineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of one device, in the unit of its row."""

    device: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal line to compare the curves of a row with, such as a power limit."""

    device: str
    text: str
    value: float


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over time; its axis goes from ``bottom`` to ``top``."""

    name: str
    unit: str
    bottom: float = 0.0
    top: float
    lines: tuple[TimelineLine, ...]
    levels: tuple[Level, ...] = ()


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which something held the clocks of a device down."""

    device: str
    begin: float
    end: float


class TimelineFigure(Drawing, frozen=True, kw_only=True):
    """All rows share the time, in seconds from the window's begin."""

    widths_in = WIDE
    is_data = True

    rows: tuple[TimelineRow, ...] = ()
    begin: float = 0.0
    end: float = 0.0
    window: tuple[float, float] = (0.0, 0.0)
    window_text: str = ""
    time_text: str = ""
    #: The ends of steps.
    marks: tuple[float, ...] = ()
    held: tuple[Held, ...] = ()
    devices: tuple[str, ...] = ()
    #: The device that is drawn strongly.
    focus: str = ""

    def figure(self, sheet: PaperSheet) -> Figure:
        """The rows below each other; what belongs to a device that is not in focus is drawn for pages only,
        which can change it."""
        width = sheet.width
        height = _TOP + len(self.rows) * _ROW + (len(self.rows) - 1) * _GAP + _BOTTOM
        figure = sheet.figure(width, height)
        for number, row in enumerate(self.rows):
            bottom = height - _TOP - (number + 1) * _ROW - number * _GAP
            axes = sheet.axes(figure, (_LEFT, bottom, width - _LEFT - _RIGHT, _ROW))
            self.draw_row(sheet, axes, number, row)
            last = number == len(self.rows) - 1
            axes.tick_params(axis="x", labelbottom=last, length=3.0 if last else 0.0)
            if last:
                axes.set_xlabel(
                    self.time_text,
                    size=SMALL,
                    color=sheet.ink.muted,
                    family=sheet.family,
                    loc="right",
                    labelpad=2,
                )
        return figure

    def page_marks(self) -> dict[str, Mark]:
        """Every mark of a device can be brought to the front; what only the device in focus has is off for
        the others."""
        found: dict[str, Mark] = {}
        for number, row in enumerate(self.rows):
            for at, line in enumerate(row.lines):
                found |= {f"{kind}:{number}-{at}": Mark(to=line.device) for kind in ("line", "at-line")}
                found[f"at-own:{number}-{at}"] = Mark(to=line.device, off=line.device != self.focus)
            for at, level in enumerate(row.levels):
                off = level.device != self.focus
                found |= {
                    f"{kind}:{number}-{at}": Mark(to=level.device, off=off)
                    for kind in ("own-level", "at-own-level")
                }
        for at, held in enumerate(self.held):
            found[f"own-held:{at}"] = Mark(to=held.device, off=held.device != self.focus)
        return found

    def page_facts(self) -> dict[str, Any]:
        """The device in focus, and the readings that the pointer shows: for each row its lines with name,
        unit, times and values."""
        times: dict[tuple[float, ...], int] = {}
        rows = [
            [
                [
                    line.name,
                    row.unit,
                    times.setdefault(line.x, len(times)),
                    [float(f"{value:.3g}") for value in line.y],
                ]
                for line in row.lines
            ]
            for row in self.rows
        ]
        return {
            "x": {"log": False, "factor": 1},
            "focus": self.focus,
            "times": [[round(time_s, 3) for time_s in one] for one in times],
            "rows": rows,
        }

    def page_switches(self) -> dict[str, Any]:
        """Several devices, of which one is in focus."""
        return {"devices": self.devices if len(self.devices) > 1 else [], "focus": self.focus}

    def draw_row(self, sheet: PaperSheet, axes: Axes, number: int, row: TimelineRow) -> None:
        """Draw row ``number`` into its axes."""
        from matplotlib.ticker import FixedLocator, MaxNLocator

        ink = sheet.ink
        axes.set(xlim=(self.begin, self.end), ylim=(row.bottom, row.top))
        if self.window_text:
            axes.axvspan(*self.window, color=ink.band, linewidth=0, zorder=0, gid=f"window:{number}")
        if self.window_text and self.marks:
            ends = [x for mark in self.marks for x in (mark, mark, math.nan)]
            heights = [row.bottom, row.top, math.nan] * len(self.marks)
            axes.plot(ends, heights, color=ink.line, linewidth=0.35, zorder=0.5, gid=f"ends:{number}")
        seen: set[str] = set()
        lines = sorted(enumerate(row.lines), key=lambda pair: pair[1].device == self.focus)
        for at, line in lines:
            strong = line.device == self.focus
            style = ":" if line.device in seen else "-"
            seen.add(line.device)
            color, width = (ink.accent, 1.2) if strong else (ink.muted, 0.7)
            axes.plot(line.x, line.y, style, color=color, linewidth=width, gid=f"line:{number}-{at}")
        for at, level in enumerate(row.levels):
            if level.device == self.focus or sheet.page:
                axes.axhline(
                    level.value, color=ink.text, linewidth=0.6, dashes=(5, 3), gid=f"own-level:{number}-{at}"
                )
                sheet.write(
                    axes,
                    0,
                    level.value,
                    f" {level.text} {significant(level.value)} {row.unit}",
                    size=SMALL,
                    color=ink.muted,
                    transform=axes.get_yaxis_transform(),
                    va="bottom",
                    gid=f"at-own-level:{number}-{at}",
                )
        if row.name == "clock":
            for at, held in enumerate(self.held):
                if held.device == self.focus or sheet.page:
                    axes.axvspan(
                        held.begin, held.end, 0, 0.07, color=ink.warning, linewidth=0, gid=f"own-held:{at}"
                    )
        width = axes.get_position().width * sheet.width_in * POINTS_PER_INCH
        heading = joined(", ", row.name, row.unit)
        sheet.write(axes, -_LEFT / width, 1 + 4 / _ROW, heading, transform=axes.transAxes, va="bottom")
        few = len(row.lines) <= _MOST_NAMES
        kind = "at-line" if few else "at-own"
        for device in self.devices if sheet.page and not few else (self.focus,):
            named = [(at, line) for at, line in lines if few or line.device == device]
            self._names(sheet, axes, row, named, f"{kind}:{number}")
        axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]) if row.unit == "%" else MaxNLocator(nbins=3))
        axes.grid(axis="y", color=ink.grid, linewidth=0.4)
        axes.tick_params(color=ink.line, labelcolor=ink.muted, pad=2)
        axes.tick_params(axis="y", length=0)

    def _names(
        self,
        sheet: PaperSheet,
        axes: Axes,
        row: TimelineRow,
        lines: Iterable[tuple[int, TimelineLine]],
        gid: str,
    ) -> None:
        """The lines' names at their right ends, pushed apart from the lowest upwards and back into the
        row."""
        lines = sorted(lines, key=lambda pair: pair[1].y[-1])
        shares = [(line.y[-1] - row.bottom) / (row.top - row.bottom) for _, line in lines]
        width = axes.get_position().width * sheet.width_in * POINTS_PER_INCH
        for (at, line), place in zip(
            lines, pushed_apart([share * _ROW for share in shares], SMALL + 1.2, _ROW), strict=True
        ):
            strong = line.device == self.focus or gid.startswith("at-own")
            sheet.write(
                axes,
                1 + 4 / width,
                place / _ROW,
                line.name,
                transform=axes.transAxes,
                size=SMALL,
                color=sheet.ink.accent if strong else sheet.ink.muted,
                gid=f"{gid}-{at}",
            )
