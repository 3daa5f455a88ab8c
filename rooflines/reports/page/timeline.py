"""The timeline of the devices of a run: which rows, lines and marks it has, from the samples."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import msgspec

from rooflines.profiler.samplers.fields import FIELDS, Field
from rooflines.reports.charts.timeline import Held, Level, TimelineFigure, TimelineLine, TimelineRow
from rooflines.reports.document import Figure
from rooflines.reports.words.text import joined
from rooflines.roofline.analysis import Analysis, Series
from rooflines.roofline.judge.usage.device_usage import HOST, THROTTLED, is_host
from rooflines.units import UNITS, scale

# More steps than this are a band and not single marks.
MOST_MARKS = 120
# Drawn as a level and not as a curve.
_LIMIT = "power_limit_w"
_BUSY = (HOST, "process_cpu_utilization")
# Headroom above the highest curve, as a share of it.
_ROOM = 1.12
# A line at 100 % is seen in full.
_TOP_PERCENT = 104.0


def usage_timeline(analysis: Analysis) -> TimelineFigure | None:
    """The timeline of ``analysis``; None where nothing that can be drawn was sampled twice."""
    usage = analysis.usage
    if not usage:
        return None
    of = {(series.device, series.field): series for series in usage.series if len(series.times_s) > 1}
    # The busy cores of the run's processes are a share of the machine's, or left out if that number is
    # unknown.
    busy, threads = of.pop(_BUSY, None), analysis.environment.cpu_threads
    if busy and threads:
        of[_BUSY] = msgspec.structs.replace(busy, values=tuple(value / threads for value in busy.values))
    devices = tuple(
        dict.fromkeys(
            device for device, _ in sorted(of, key=lambda key: (is_host(key[0]), key[0] != HOST, key[0]))
        )
    )
    groups = _groups(FIELDS | usage.fields)
    rows = tuple(
        row for (name, unit), lines in groups.items() if (row := _row(name, unit, lines, devices, of))
    )
    if not rows:
        return None
    steps = analysis.steps.durations_s if analysis.steps else ()
    times = [time for row in rows for line in row.lines for time in (line.x[0], line.x[-1])]
    return TimelineFigure(
        rows=rows,
        begin=min(times),
        end=max(times),
        window=(0.0, usage.window_s),
        window_text=f"{usage.steps} timed steps" if usage.steps else "",
        time_text=f"seconds since the {'timed pass' if usage.window == 'timed pass' else 'sampling'} began",
        # The timed steps follow each other without a gap.
        marks=tuple(accumulate(steps)) if usage.window == "timed pass" and len(steps) <= MOST_MARKS else (),
        held=tuple(held for device in devices for held in _held(of.get((device, THROTTLED)))),
        devices=tuple(dict.fromkeys(line.device for row in rows for line in row.lines)),
        focus=next((device for device in usage.own if device in devices), devices[0]),
    )


def timeline_figure(timeline: TimelineFigure | None) -> Figure | None:
    """The figure of a timeline, if there is one, whose caption says what its marks mean."""
    if not timeline:
        return None
    texts = []
    if timeline.window_text:
        marked = ", a line at the end of each" if timeline.marks else ""
        texts.append(f"The gray field is the window: {timeline.window_text}{marked}.")
    if timeline.held:
        texts.append("The strip below the clock marks throttling.")
    return Figure(name="timeline", drawing=timeline, caption=" ".join(texts))


def _groups(fields: Mapping[str, Field]) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
    """The rows by name and unit; in each the names of its curves and the fields of each, of which a device
    shows the last it has."""
    rows: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    for key, field in fields.items():
        if "chart" in field.shown and key not in (_LIMIT, "throttle_reasons"):
            name = field.group or field.label
            # Busy cores are drawn as a share of the machine's.
            lines = rows.setdefault(
                (name, "1" if field.unit == "cores" and key in FIELDS else field.unit), {}
            )
            what = "" if field.label == name else field.label
            line = joined(", ", what, "this run" if field.program else "")
            lines[line] = (*lines.get(line, ()), key)
    return rows


def _row(
    name: str,
    unit: str,
    groups: Mapping[str, tuple[str, ...]],
    devices: tuple[str, ...],
    of: dict[tuple[str, str], Series],
) -> TimelineRow | None:
    curves: list[tuple[str, str, Series]] = []
    for device in devices:
        for what, keys in groups.items():
            series = next((of[device, key] for key in reversed(keys) if (device, key) in of), None)
            if series:
                curves.append((device, f"{device}, {what}" if what else device, series))
    if not curves:
        return None
    highest = max(max(series.values) for _, _, series in curves)
    factor, shown_unit = _scale(unit, highest)
    limits = [
        (device, of[device, _LIMIT].values[-1])
        for device in devices
        if name == "power" and (device, _LIMIT) in of
    ]
    # A limit far above all curves would flatten them: it is given in the text.
    shown = [(device, value) for device, value in limits if value <= 2.5 * highest]
    lowest = min(0.0, *(min(series.values) for _, _, series in curves))
    top = (
        _TOP_PERCENT if unit == "1" else max([0.0, highest, *(value for _, value in shown)]) / factor * _ROOM
    )
    return TimelineRow(
        name=name,
        unit=shown_unit,
        bottom=lowest / factor * _ROOM,
        top=top or (0.0 if lowest else 1.0),
        lines=tuple(
            TimelineLine(
                device=device,
                name=label,
                x=series.times_s,
                y=tuple(value / factor for value in series.values),
            )
            for device, label, series in curves
        ),
        levels=tuple(Level(device=device, text="limit", value=value / factor) for device, value in shown),
    )


def _scale(unit: str, highest: float) -> tuple[float, str]:
    """The factor to the unit that a row is drawn in, and that unit."""
    if unit == "1":
        return 0.01, "%"
    if unit == "B":
        return next(
            (
                (float(1 << shift), f"{prefix}B")
                for shift, prefix in ((30, "Gi"), (20, "Mi"))
                if highest >= 1 << shift
            ),
            (1.0, "B"),
        )
    factor, prefix = scale(highest) if unit == "Hz" or (unit in UNITS and highest >= 1e4) else (1.0, "")
    return factor, f"{prefix}{unit}"


def _held(series: Series | None) -> list[Held]:
    """The stretches in which the series is 1, each up to the next reading."""
    stretches: list[Held] = []
    if not series:
        return stretches
    for begin, end, value in zip(
        series.times_s, (*series.times_s[1:], series.times_s[-1]), series.values, strict=True
    ):
        if not value or end <= begin:
            continue
        if stretches and stretches[-1].end == begin:
            begin = stretches.pop().begin
        stretches.append(Held(device=series.device, begin=begin, end=end))
    return stretches
