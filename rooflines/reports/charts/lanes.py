"""The timeline of one step: a thin row for each stream, thread and cause of idle time, and below them the
samples of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from rooflines.reports.charts.palette import category_order
from rooflines.reports.charts.paper import SMALL, WIDE, Drawing, Mark, PaperSheet
from rooflines.reports.charts.timeline import TimelineFigure
from rooflines.roofline.analysis import Lane
from rooflines.units import percent, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LANE, _BAR, _TOP, _BOTTOM, _LEFT, _KEY = 12.0, 8.0, 4.0, 28.0, 92.0, 14.0
# Room for shares at the right, and for names of devices below them.
_RIGHT, _NAMES = 34.0, 84.0
_ROW, _GAP = 46.0, 17.0
# Segments that are narrower, in points, are drawn as one, idle time coarser; the narrowest that can be seen.
_LEAST, _LEAST_IDLE, _SEEN = 0.4, 1.0, 0.3


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment is."""

    name: str
    #: Has its color; without one it is gray.
    category: str = ""
    module: str = ""
    launched: str = ""
    #: Its mark in the roofline.
    key: str | None = None


class Lanes(Drawing, frozen=True, kw_only=True):
    """Lanes with their names above each other on one axis of time."""

    widths_in = WIDE

    lanes: tuple[tuple[str, Lane], ...]
    #: What segments are.
    items: tuple[Item, ...]
    duration_s: float
    #: What begins with the axis: a step or a trace.
    whole: str
    #: The keys of work without segments.
    unplaced: tuple[str, ...] = ()
    #: What samples say of the same time.
    usage: TimelineFigure = TimelineFigure()

    @property
    def legend(self) -> list[str]:
        """The categories of the segments."""
        return sorted({item.category for item in self.items} - {""}, key=category_order)

    def figure(self, sheet: PaperSheet) -> Figure:
        """The lanes, and the rows of the samples below them."""
        rows = self.usage.rows
        # A page has the key as switches above the figure.
        top = _TOP if sheet.page or not self.legend else _TOP + _KEY
        lanes = len(self.lanes) * _LANE
        height = top + lanes + len(rows) * (_ROW + _GAP) + _BOTTOM
        figure = sheet.figure(sheet.width, height)
        across = sheet.width - _LEFT - (_NAMES if rows else _RIGHT)
        every = [sheet.axes(figure, (_LEFT, height - top - lanes, across, lanes), sides=("bottom",))]
        self._draw(sheet, every[0], across)
        if not sheet.page:
            self._key(sheet, every[0], across, lanes)
        for number, row in enumerate(rows):
            every.append(
                sheet.axes(figure, (_LEFT, height - top - lanes - (number + 1) * (_ROW + _GAP), across, _ROW))
            )
            self.usage.draw_row(sheet, every[-1], number, row)
        factor, prefix = scale(self.duration_s)
        for axes in every:
            axes.tick_params(
                axis="x",
                color=sheet.ink.line,
                labelcolor=sheet.ink.muted,
                labelbottom=axes is every[-1],
                pad=2,
            )
            axes.xaxis.set_major_formatter(lambda x, _: f"{x / factor:g}")
        # Not the label of the axis, which is gone where a page numbers a part of it.
        sheet.write(
            axes,
            1,
            -22 / (_ROW if rows else lanes),
            f"{prefix}s since the {self.whole} began, as traced",
            size=SMALL,
            color=sheet.ink.muted,
            ha="right",
            transform=axes.transAxes,
        )
        return figure

    def page_marks(self) -> dict[str, Mark]:
        """The segments of a category in a lane can be switched."""
        return {
            f"lane:{number}-{name}": Mark(to=name)
            for number in range(len(self.lanes))
            for name in self.legend
        } | self.usage.page_marks()

    def page_facts(self) -> dict[str, Any]:
        """What the pointer and the zoom need."""
        usage = self.usage.page_facts()
        return usage | {
            "x": {"log": False, "factor": scale(self.duration_s)[0]},
            "lanes": [asdict(lane) | {"label": label} for label, lane in self.lanes],
            "items": [*map(asdict, self.items)],
            "unplaced": self.unplaced,
            "rows": [[], *usage["rows"]],
        }

    def page_switches(self) -> dict[str, Any]:
        """The categories of the segments."""
        return {"categories": self.legend}

    def _draw(self, sheet: PaperSheet, axes: Axes, across: float) -> None:
        from matplotlib.ticker import MaxNLocator

        ink = sheet.ink
        axes.set(xlim=(0, self.duration_s), ylim=(len(self.lanes), 0), yticks=[])
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
        style = {"size": SMALL, "transform": axes.get_yaxis_transform()}
        for number, (label, lane) in enumerate(self.lanes):
            middle = number + 0.5
            axes.axhline(middle, color=ink.grid, linewidth=0.5, zorder=0)
            if number and lane.kind != self.lanes[number - 1][1].kind:
                axes.axhline(number, color=ink.line, linewidth=0.6, zorder=0)
            for category, times in self._stretches(lane, self.duration_s * 1e9 / across).items():
                color = (
                    sheet.color(category)
                    if category
                    else ink.line
                    if lane.kind == "steps"
                    else ink.faint_roof
                )
                gid = f"lane:{number}-{category}"
                axes.plot(
                    times, [middle] * len(times), color=color, linewidth=_BAR, solid_capstyle="butt", gid=gid
                )
            sheet.write(axes, -6 / across, middle, label, ha="right", **style)
            share = percent(lane.busy_ns / 1e9 / self.duration_s) if lane.kind != "steps" else ""
            sheet.write(axes, 1 + 5 / across, middle, share, color=ink.muted, **style)

    def _stretches(self, lane: Lane, point_ns: float) -> dict[str, list[float]]:
        """Begin, end and a gap of each stretch by category; narrow neighbors are one, of the category with
        most of their time."""
        import numpy as np

        from rooflines.roofline.judge.step.activity import Line, merged

        categories = ["", *self.legend]
        of = np.array([categories.index(self.items[item].category) for item in lane.items])
        least_ns = 1 + int(point_ns * (_LEAST_IDLE if lane.kind == "idle" else _LEAST))
        _, begin, lasting, category = merged(
            Line({}, np.array(lane.begins_ns), np.array(lane.durations_ns), of), least_ns
        )
        end = np.maximum(
            begin + lasting, np.minimum(begin + _SEEN * point_ns, np.append(begin[1:], self.duration_s * 1e9))
        )
        is_new = (np.diff(category) != 0) | (begin[1:] - end[:-1] > point_ns / 20)
        begin = begin[np.append(True, is_new)]
        end = end[np.append(is_new, True)]
        category = category[np.append(True, is_new)]
        times = np.stack((begin / 1e9, end / 1e9, np.full(len(end), np.nan)), axis=1)
        return {
            categories[one]: times[category == one].ravel().tolist() for one in sorted({*category.tolist()})
        }

    def _key(self, sheet: PaperSheet, axes: Axes, across: float, up: float) -> None:
        """Which color is which category, in a line above the lanes."""
        entries = [
            *((name, sheet.color(name)) for name in self.legend),
            ("nothing launched, idle", sheet.ink.faint_roof),
        ]
        x, y = 8.0 - _LEFT, 1 + 9 / up
        for text, color in entries:
            axes.plot(
                (x - 6) / across, y, "s", markersize=5, color=color, transform=axes.transAxes, clip_on=False
            )
            sheet.write(axes, x / across, y, text, size=SMALL, transform=axes.transAxes)
            x += sheet.length(text) + 18
