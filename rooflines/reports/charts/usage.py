"""The timeline of the devices: which rows, lines and marks it has. The page and the figures draw the same one."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from rooflines.roofline.analysis import Analysis, Series, Usage
from rooflines.roofline.usage import HOST, is_host
from rooflines.units import scale

# More steps than this are a band and not single marks.
MOST_MARKS = 120


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of one device, in the unit of its row."""

    device: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal line that the curves of a row should be held against, such as a limit of power."""

    device: str
    text: str
    value: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over time; ``top`` is where its axis ends."""

    name: str
    unit: str
    top: float
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which something held the clocks of a device down."""

    device: str
    begin: float
    end: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All rows share the time, in seconds from the window's begin.

    ``marks`` are the ends of steps, ``focus`` is the device that is drawn strongly.
    """

    rows: tuple[Row, ...]
    begin: float
    end: float
    window: tuple[float, float]
    window_text: str
    time_text: str
    marks: tuple[float, ...]
    held: tuple[Held, ...]
    devices: tuple[str, ...]
    focus: str


# Name, unit, factor to the unit, and the fields drawn in it: of several that a device has, the first of each group.
_ROWS: tuple[tuple[str, str, tuple[tuple[tuple[str, ...], str], ...]], ...] = (
    ("power", "W", ((("power_instant_w", "power_w"), ""),)),
    ("busy", "%", ((("gpu_utilization", "cpu_utilization"), ""), (("process_cpu_utilization",), "this run"))),
    ("memory in use", "B", ((("memory_used_bytes",), ""), (("process_rss_bytes", "process_memory_bytes"), "this run"))),
    ("temperature", "°C", ((("temperature_c",), ""),)),
    ("clock", "Hz", ((("sm_clock_hz", "cpu_frequency_hz"), ""),)),
)
# Headroom above the highest curve, as a share of it.
_ROOM = 1.12
# A line at 100 % is seen in full.
_TOP_PERCENT = 104.0


def usage_timeline(analysis: Analysis) -> Timeline | None:
    """The timeline of ``analysis``; None where nothing that can be drawn was sampled twice."""
    usage = analysis.usage
    if usage is None:
        return None
    of = {(series.device, series.field): series for series in usage.series if len(series.times_s) > 1}
    of = _as_share(of, analysis.environment.cpu_threads)
    devices = tuple(dict.fromkeys(device for device, _ in sorted(of, key=lambda key: (is_host(key[0]), key[0] != HOST, key[0]))))
    rows = tuple(row for name, unit, groups in _ROWS if (row := _row(name, unit, groups, devices, of)) is not None)
    if not rows:
        return None
    times = [time for row in rows for line in row.lines for time in (line.x[0], line.x[-1])]
    return Timeline(
        rows=rows,
        begin=min(times),
        end=max(times),
        window=(0.0, usage.window_s),
        window_text=f"{usage.steps} timed steps" if usage.steps else "",
        time_text=f"seconds since the {'timed pass' if usage.window == 'timed pass' else 'sampling'} began",
        marks=_marks(analysis, usage),
        held=tuple(held for device in devices for held in _held(of.get((device, "throttled")))),
        devices=tuple(dict.fromkeys(line.device for row in rows for line in row.lines)),
        focus=next((device for device in usage.own if device in devices), devices[0]),
    )


def timeline_caption(timeline: Timeline) -> str:
    """What the marks in the timeline mean."""
    texts = []
    if timeline.window_text:
        marked = ", a line at the end of each" if timeline.marks else ""
        texts.append(f"The grey field is the window: {timeline.window_text}{marked}.")
    if timeline.held:
        texts.append("The strip below the clock marks where something held it down.")
    return " ".join(texts)


def _row(
    name: str,
    unit: str,
    groups: tuple[tuple[tuple[str, ...], str], ...],
    devices: tuple[str, ...],
    of: dict[tuple[str, str], Series],
) -> Row | None:
    found: list[tuple[str, str, Series]] = []
    for device in devices:
        for fields, what in groups:
            series = next((of[device, field] for field in fields if (device, field) in of), None)
            if series is not None:
                found.append((device, f"{device}, {what}" if what else device, series))
    if not found:
        return None
    highest = max(max(series.values) for _, _, series in found)
    factor, prefix = _scale(unit, highest)
    limits = [(device, of[device, "power_limit_w"].values[-1]) for device in devices if unit == "W" and (device, "power_limit_w") in of]
    # A limit far above all curves would press them flat: it is told in the text.
    shown = [(device, value) for device, value in limits if value <= 2.5 * highest]
    top = _TOP_PERCENT if unit == "%" else max([highest, *(value for _, value in shown)]) / factor * _ROOM or 1.0
    return Row(
        name=name,
        unit=f"{prefix}{unit}",
        top=top,
        lines=tuple(
            Line(device=device, name=label, x=series.times_s, y=tuple(value / factor for value in series.values))
            for device, label, series in found
        ),
        levels=tuple(Level(device=device, text="limit", value=value / factor) for device, value in shown),
    )


def _as_share(of: dict[tuple[str, str], Series], threads: int | None) -> dict[tuple[str, str], Series]:
    """With the busy cores of the run's processes as a share of the machine's, or without them where nobody knows how many it has."""
    key = (HOST, "process_cpu_utilization")
    found = of.pop(key, None)
    if found is None or not threads:
        return of
    return of | {key: msgspec.structs.replace(found, values=tuple(value / threads for value in found.values))}


def _scale(unit: str, highest: float) -> tuple[float, str]:
    if unit == "%":
        return 0.01, ""
    if unit == "B":
        return next(((float(1 << shift), prefix) for shift, prefix in ((30, "Gi"), (20, "Mi")) if highest >= 1 << shift), (1.0, ""))
    return scale(highest) if unit == "Hz" or highest >= 1e4 else (1.0, "")


def _marks(analysis: Analysis, usage: Usage) -> tuple[float, ...]:
    """The ends of the timed steps, which follow each other without a gap."""
    if usage.window != "timed pass" or analysis.steps is None or len(analysis.steps.durations_s) > MOST_MARKS:
        return ()
    return tuple(accumulate(analysis.steps.durations_s))


def _held(series: Series | None) -> list[Held]:
    """The stretches in which the series is 1, each up to the next reading."""
    found: list[Held] = []
    if series is None:
        return found
    for begin, end, value in zip(series.times_s, (*series.times_s[1:], series.times_s[-1]), series.values, strict=True):
        if not value or end <= begin:
            continue
        if found and found[-1].end == begin:
            begin = found.pop().begin
        found.append(Held(device=series.device, begin=begin, end=end))
    return found
