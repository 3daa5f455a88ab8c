"""The timeline of one step: a thin row for each stream, thread and cause of idle time, and below them the samples of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from rooflines.reports.charts.paper import POINTS_PER_INCH, SMALL, Drawing, Mark, Sheet
from rooflines.reports.charts.timeline import Timeline
from rooflines.roofline.analysis import MERGED_PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LANE, _BAR, _TOP, _BOTTOM, _LEFT, _KEY = 12.0, 8.0, 4.0, 28.0, 92.0, 14.0
# Room for shares at the right, and for names of devices below them.
_RIGHT, _NAMES = 34.0, 84.0
_ROW, _GAP = 46.0, 17.0
# Segments that are narrower, in points, are drawn as one, idle time coarser; the narrowest that can be seen.
_LEAST, _LEAST_IDLE, _SEEN = 0.4, 1.0, 0.3
# A page knows times to this part of the step.
_PARTS = 100_000


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment is: its name, its color (empty: idle, or nothing launched), its module, what it launched, and its point in the
    roofline (-1: none)."""

    name: str
    category: str = ""
    module: str = ""
    launched: str = ""
    point: int = -1


class LaneOf(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the figure: segments in order, in seconds from the step's begin, and the ``items`` that they are.

    ``text`` stands at its right end. ``is_work`` says that its segments are time of operators; lanes of one ``group`` belong together.
    """

    label: str
    text: str
    group: str
    is_work: bool
    begins_s: tuple[float, ...]
    durations_s: tuple[float, ...]
    items: tuple[int, ...]


class Lanes(Drawing, frozen=True, kw_only=True):
    """Lanes above each other on one axis of time in ``unit`` of ``factor`` seconds, from the begin of ``whole``: a step or a trace.

    ``merged`` are points without segments of their own, each with the parts of the step in which they ran, as bits. ``usage`` has
    what samples say of the same time, in the same unit.
    """

    widths_in: ClassVar[tuple[float, ...]] = (9.0, 4.2)

    lanes: tuple[LaneOf, ...]
    items: tuple[Item, ...]
    duration_s: float
    whole: str
    factor: float
    unit: str
    legend: tuple[tuple[str], ...]
    merged: tuple[tuple[int, int], ...] = ()
    usage: Timeline | None = None

    def figure(self, sheet: Sheet) -> Figure:
        """The lanes, and the rows of the samples below them."""
        rows = self.usage.rows if self.usage is not None else ()
        # A page has the key as switches above the figure.
        top = _TOP if sheet.page or not self.legend else _TOP + _KEY
        width, lanes = sheet.width_in * POINTS_PER_INCH, len(self.lanes) * _LANE
        height = top + lanes + len(rows) * (_ROW + _GAP) + _BOTTOM
        figure = sheet.figure(width, height)
        across = width - _LEFT - (_NAMES if rows else _RIGHT)
        axes = sheet.axes(figure, (_LEFT, height - top - lanes, across, lanes), sides=("bottom",))
        self._draw(sheet, axes, across)
        if not sheet.page:
            self._key(sheet, axes, across, lanes)
        every = [axes]
        for number, row in enumerate(rows):
            bottom = height - top - lanes - (number + 1) * (_ROW + _GAP)
            every.append(sheet.axes(figure, (_LEFT, bottom, across, _ROW)))
            if self.usage is not None:
                self.usage.draw_row(sheet, every[-1], number, row)
        for one in every:
            one.tick_params(axis="x", color=sheet.ink.line, labelcolor=sheet.ink.muted, labelbottom=one is every[-1], pad=2)
        text = f"{self.unit} since the {self.whole} began, as traced"
        # Not the label of the axis, which is gone where a page numbers a part of it.
        below = -22 / (_ROW if rows else lanes)
        sheet.write(every[-1], 1, below, text, transform=every[-1].transAxes, size=SMALL, color=sheet.ink.muted, ha="right")
        return figure

    def page_marks(self) -> dict[str, Mark]:
        """The segments of a category in a lane can be switched."""
        marks = {f"lane:{number}-{name}": Mark(to=name) for number in range(len(self.lanes)) for (name,) in self.legend}
        return marks | (self.usage.page_marks() if self.usage is not None else {})

    def page_facts(self) -> dict[str, Any]:
        """What the pointer and the zoom need: for each lane the time since the segment before, the duration and the item of each."""
        tick_s = self.duration_s / _PARTS
        lanes = []
        for lane in self.lanes:
            numbers, last = [], 0
            for begin_s, lasting_s, item in zip(lane.begins_s, lane.durations_s, lane.items, strict=True):
                begin, end = round(begin_s / tick_s), round((begin_s + lasting_s) / tick_s)
                numbers += [begin - last, end - begin, item]
                last = end
            lanes.append([lane.label, int(lane.is_work), numbers])
        texts: dict[str, int] = {}
        told = ((one.name, one.category, one.module, one.launched) for one in self.items)
        items = [[*(texts.setdefault(text, len(texts)) for text in one), of.point] for one, of in zip(told, self.items, strict=True)]
        usage = self.usage.page_facts() if self.usage is not None else {"times": [], "rows": []}
        return {
            "x": {"log": False, "factor": 1}, "unit": self.unit, "factor": self.factor, "tick": tick_s / self.factor, "lanes": lanes,
            "items": items, "strings": [*texts], "merged": {"parts": MERGED_PARTS, "of": self.merged}, "times": usage["times"],
            "rows": [[], *usage["rows"]],
        }  # fmt: skip

    def _draw(self, sheet: Sheet, axes: Axes, across: float) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path
        from matplotlib.ticker import MaxNLocator

        ink = sheet.ink
        point_s = self.duration_s / across
        axes.set(xlim=(0, self.duration_s / self.factor), ylim=(len(self.lanes), 0))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
        axes.set_yticks([])
        for number, lane in enumerate(self.lanes):
            middle = number + 0.5
            axes.axhline(middle, color=ink.grid, linewidth=0.5, zorder=0)
            if number and lane.group != self.lanes[number - 1].group:
                axes.axhline(number, color=ink.line, linewidth=0.6, zorder=0)
            for category, stretches in self._stretches(lane, point_s).items():
                path = Path([(x / self.factor, middle) for stretch in stretches for x in stretch], [1, 2] * len(stretches))
                path.should_simplify = False
                color = sheet.color(category) if category else ink.line if lane.group == "steps" else ink.faint_roof
                gid = f"lane:{number}-{category}"
                axes.add_patch(PathPatch(path, fill=False, edgecolor=color, linewidth=_BAR, capstyle="butt", gid=gid))
            for x, text, side in ((-6 / across, lane.label, "right"), (1 + 5 / across, lane.text, "left")):
                style: dict[str, Any] = {"size": SMALL, "ha": side, "color": ink.text if side == "right" else ink.muted}
                sheet.write(axes, x, middle, text, transform=axes.get_yaxis_transform(), **style)

    def _stretches(self, lane: LaneOf, point_s: float) -> dict[str, list[list[float]]]:
        """The begin and end of what is drawn, by category: narrow neighbors are one segment of the category with most of their time."""
        least_s = (_LEAST_IDLE if lane.group == "idle" else _LEAST) * point_s
        drawn: list[tuple[float, float, dict[str, float]]] = []
        for begin_s, lasting_s, item in zip(lane.begins_s, lane.durations_s, lane.items, strict=True):
            category = self.items[item].category
            is_short = lasting_s < least_s
            if is_short and drawn and drawn[-1][1] < least_s and drawn[-1][0] // least_s == begin_s // least_s:
                first_s, before_s, times = drawn.pop()
                times[category] = times.get(category, 0.0) + lasting_s
                drawn.append((first_s, before_s + lasting_s, times))
            else:
                drawn.append((begin_s, lasting_s, {category: lasting_s}))
        found: dict[str, list[list[float]]] = {}
        last = ""
        for number, (begin_s, lasting_s, times) in enumerate(drawn):
            category = max(times, key=lambda name: times[name])
            until_s = drawn[number + 1][0] if number + 1 < len(drawn) else self.duration_s
            end_s = max(begin_s + lasting_s, min(begin_s + _SEEN * point_s, until_s))
            stretches = found.setdefault(category, [])
            if stretches and last == category and begin_s - stretches[-1][1] < point_s / 20:
                stretches[-1][1] = end_s
            else:
                stretches.append([begin_s, end_s])
            last = category
        return found

    def _key(self, sheet: Sheet, axes: Axes, across: float, up: float) -> None:
        """Which color is which category, in a line above the lanes."""
        entries = [*((name, sheet.color(name)) for (name,) in self.legend), ("nothing launched, idle", sheet.ink.faint_roof)]
        x, y = 8.0 - _LEFT, 1 + 9 / up
        for text, color in entries:
            axes.plot((x - 6) / across, y, "s", markersize=5, color=color, transform=axes.transAxes, clip_on=False)
            sheet.write(axes, x / across, y, text, size=SMALL, transform=axes.transAxes)
            x += sheet.length(text, SMALL) + 18
