"""A monitored program's page: what it took of the processors, memory and GPUs, the timeline, what was not
measured and why."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from rooflines.profiler.records import Workload
from rooflines.profiler.samplers.fields import Summary
from rooflines.reports.charts.timeline import TimelineFigure, TimelineLine, TimelineRow
from rooflines.reports.document import (
    Column,
    Facts,
    Page,
    Paragraph,
    Section,
    facts_of,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.page.timeline import timeline_figure, usage_timeline
from rooflines.reports.page.usage import energy_text, peak_power, refusal_text, usage_remarks, usage_table
from rooflines.reports.words.text import given, joined, size_text
from rooflines.roofline.analysis import Analysis, DeviceUsage
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.roofline.judge.usage.device_usage import HOST, MonitorAnalysis, figure, is_accelerator, is_host
from rooflines.units import binary_bytes, percent, quantity, seconds, si, significant

# What each of the host's energy counters counts.
_COUNTED = {
    HOST: ("CPU power", "RAPL, all packages"),
    "dram": ("memory power", "RAPL, all memory"),
    "psys": ("board power", "RAPL, CPUs and memory in it"),
}
# The column of each figure of a declared field, without one the mean's.
_COLUMN_OF: dict[Summary, str] = {"highest": "peak", "difference": "total", "integral": "total"}
# What the timeline leaves room for above its highest curve.
_ROOM = 1.12
_NO_TIMELINE = "No timeline: it requires at least two readings."
_CUT_OFF = ("cut off", "The monitor has not ended; the report covers the samples so far.")
_METHOD = (
    (
        "program",
        "its process and all its descendants; what begins and ends between two readings is "
        "missing from the peaks, but not from"
        " the CPU time.",
    ),
    (
        "resident",
        "the memory of its processes that is in RAM, added up: what two of them share counts "
        "twice. Unique memory is what"
        " would be free if it ended.",
    ),
    (
        "busy cores",
        "CPU seconds a second. The mean is the system's own account where we started the program.",
    ),
    (
        "energy",
        "of the whole device, including other processes, from its counter or from its integrated "
        "power, with the error that is"
        " stated.",
    ),
)


class HostRow(NamedTuple):
    """What the program took of one thing: the mean and the peak over time, what it came to in all, and a
    remark."""

    name: str
    mean: str = ""
    peak: str = ""
    total: str = ""
    remark: str = ""


def page(analysis: MonitorAnalysis) -> Page:
    """Return the page. Each missing part of the analysis is named in its place."""
    return Page(
        kind="monitor",
        name=analysis.program,
        title=title(analysis),
        created=analysis.created,
        rooflines=analysis.environment.rooflines or "",
        verdict=headline(analysis),
        status=_CUT_OFF if analysis.status == "running" else shared_by([_others_cores(analysis)], "programs"),
        sections=sections_of(
            _took(analysis),
            _gpus_section(analysis),
            section(
                "usage", "Timeline", timeline_figure(timeline(analysis)) or Paragraph(_NO_TIMELINE, "absent")
            ),
            section("machine", "Machine", _facts(analysis)),
            _method(analysis),
        ),
        footer=f"Schema {analysis.schema}.",
    )


def _others_cores(analysis: MonitorAnalysis) -> float | None:
    """The processors that other programs kept busy while this one ran; None where it was not sampled."""
    host = analysis.usage.of(HOST) if analysis.usage else None
    whole, own = (
        host.gauges.get(name) if host else None for name in ("cpu_utilization", "process_cpu_utilization")
    )
    threads = analysis.environment.cpu_threads
    return whole.mean * threads - own.mean if whole and own and threads else None


def _took(analysis: MonitorAnalysis) -> Section:
    columns = (
        Column("", key="name", format="text", least=8),
        Column("mean"),
        Column("peak"),
        Column("total"),
        Column("", key="remark", format="text", quiet=True, least=8),
    )
    rows = [tuple(row) for row in host_rows(analysis)]
    shown = (
        table("host", columns, rows, "The program and the machine over time", show="always") if rows else None
    )
    return section("host", "Resource usage", shown, *said((*missing(analysis), *analysis.notes), "absent"))


def _gpus_section(analysis: MonitorAnalysis) -> Section:
    as_run, gpus = _as_run(analysis), _gpus(analysis)
    if not as_run.usage or not gpus:
        return section("gpus", "GPUs")
    # The other table describes the host and its parts.
    as_run = msgspec.structs.replace(as_run, usage=msgspec.structs.replace(as_run.usage, devices=tuple(gpus)))
    return section(
        "gpus", "GPUs", usage_table(as_run), *said((*_gpu_names(analysis), *usage_remarks(as_run)), "note")
    )


def _method(analysis: MonitorAnalysis) -> Section:
    # How often what can be read of each device changes, as far as it is known.
    known = [counter for counter in analysis.counters if counter.update_s is not None]
    changes: dict[str, list[str]] = {}
    for counter in known:
        changes.setdefault(counter.device, []).append(
            f"{counter.field} every {seconds(counter.update_s or 0.0, 2)}"
        )
    counters = ((device, f"new values: {'; '.join(texts)}.") for device, texts in changes.items())
    return section("method", "Method", Facts(rows=(*_METHOD, *counters), kind="definitions"))


# --- what is said -----------------------------------------------------------------------------------------


def title(analysis: MonitorAnalysis) -> str:
    """What ran, for how long, and how it ended."""
    what = " ".join(analysis.command) if analysis.command else analysis.program
    lasted = (
        ""
        if analysis.window_s is None
        else f"{'watched for ' if analysis.attached else ''}{seconds(analysis.window_s)}"
    )
    return joined(" · ", what, lasted, ended(analysis))


def headline(analysis: MonitorAnalysis) -> str:
    """Load, memory and GPUs in a sentence or two."""
    rows = {row.name: row for row in host_rows(analysis)}
    parts = []
    if "cores busy" in rows:
        cores = rows["cores busy"]
        parts.append(f"{cores.mean}{given(' {}', cores.remark)} cores on average")
    if "resident memory" in rows:
        parts.append(f"up to {rows['resident memory'].peak} of memory")
    texts = [f"Used {' and '.join(parts)}."] if parts else []
    for one in _gpus(analysis):
        busy = one.gauges.get("gpu_utilization")
        worked = f"was busy {percent(busy.mean)} of the time" if busy else ""
        took = given("used {}", one.energy, energy_text)
        if worked or took:
            texts.append(f"{one.device} {joined(' and ', worked, took)}.")
    return " ".join(texts) or "Nothing was sampled."


def ended(analysis: MonitorAnalysis) -> str:
    """How the program ended; empty if that was not observed."""
    if not analysis.ending:
        return ""
    number = analysis.ending.signal
    if number is None:
        return f"exit code {analysis.ending.exit_code}"
    return f"ended by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"


def host_rows(analysis: MonitorAnalysis) -> Iterator[HostRow]:
    """Resources that the program used and the load of the host; only what was measured."""
    usage, ending, environment = analysis.usage, analysis.ending, analysis.environment
    host = usage.of(HOST) if usage else None
    gauges, counts = (host.gauges, host.counts) if host else ({}, {})

    def of_gauge(name: str, key: str, form: Callable[[float], str], remark: str = "") -> Iterator[HostRow]:
        if gauge := gauges.get(key):
            yield HostRow(name, form(gauge.mean), form(gauge.highest), remark=remark)

    busy, resident = gauges.get("process_cpu_utilization"), gauges.get("process_rss_bytes")
    # The system's own account also holds what began and ended between two readings.
    mean = (
        (ending.user_cpu_s + ending.system_cpu_s) / ending.wall_s
        if ending and ending.wall_s > 0
        else busy.mean
        if busy
        else None
    )
    if mean is not None:
        peak = _cores(max(busy.highest, mean)) if busy else ""
        yield HostRow("cores busy", _cores(mean), peak, remark=given("of {}", environment.cpu_threads))
    if ending and (spent_s := ending.user_cpu_s + ending.system_cpu_s) > 0:
        yield HostRow(
            "CPU time",
            total=seconds(spent_s),
            remark=f"{percent(ending.system_cpu_s / spent_s)} in the system",
        )
    largest = ending.largest_rss_bytes if ending else None
    if resident or largest is not None:
        mean_bytes, sampled = (binary_bytes(resident.mean), resident.highest) if resident else ("", 0.0)
        # The kernel keeps the peak of every process, between two readings as well.
        remark = "its largest process (kernel)" if (largest or 0) > sampled else "RSS of all its processes"
        yield HostRow("resident memory", mean_bytes, binary_bytes(max(sampled, largest or 0)), remark=remark)
    yield from of_gauge("unique memory", "process_uss_bytes", binary_bytes, "USS, not shared")
    if threads := gauges.get("process_threads"):
        yield HostRow("threads", significant(threads.mean), f"{threads.highest:.0f}")
    for name, field in (
        ("read from disk", "process_read_bytes"),
        ("written to disk", "process_written_bytes"),
    ):
        if (count := counts.get(field)) is not None:
            rate = si(count / analysis.window_s, "B/s") if analysis.window_s and count else ""
            yield HostRow(name, rate, total=si(count, "B"))
    if counts.get("process_major_faults", 0) > 0:
        yield HostRow(
            "page faults", total=f"{counts['process_major_faults']:,.0f}", remark="that waited for the disk"
        )
    memory = given("of {}", environment.memory_bytes, binary_bytes)
    yield from of_gauge("machine busy", "cpu_utilization", percent, "all processes together")
    yield from of_gauge("machine memory", "memory_used_bytes", binary_bytes, memory)
    yield from of_gauge("CPU temperature", "temperature_c", "{:.0f} °C".format)
    # Every device's energy but the GPUs', a row each: the board's counter holds the packages, so they are not
    # to be added up.
    for one in usage.devices if usage else ():
        if not is_accelerator(one) and one.energy:
            name, remark = _COUNTED.get(
                one.device, (f"{one.device} power", "RAPL" if is_host(one.device) else "")
            )
            watts = peak_power(one)
            peak = "" if watts is None else si(watts, "W")
            yield HostRow(name, si(one.mean_power_w or 0.0, "W"), peak, energy_text(one.energy), remark)
    # The fields that samplers of other packages declare, a row for each device that has them.
    for one, (key, declared) in itertools.product(usage.devices, usage.fields.items()) if usage else ():
        read = {
            summary: figure(one, key, summary) for summary in declared.summary if "table" in declared.shown
        }
        cells = {
            _COLUMN_OF.get(by, "mean"): quantity(value, declared.unit_of(by))
            for by, value in read.items()
            if value is not None
        }
        if cells:
            yield HostRow(declared.label, **cells, remark="" if one.device == HOST else one.device)


def _gpu_names(analysis: MonitorAnalysis) -> Iterator[str]:
    """What the driver calls the GPUs, each name once."""
    for name in dict.fromkeys(analysis.gpus.values()):
        # A slice is called by the number of its GPU and its own: gpu0/mig1.
        devices = [
            one.device for one in _gpus(analysis) if analysis.gpus.get(one.device.partition("/")[0]) == name
        ]
        if devices:
            yield f"{', '.join(devices)}: {name}"


def missing(analysis: MonitorAnalysis) -> Iterator[str]:
    """The reason for a missing figure, unless the sampler has given one."""
    if not analysis.usage:
        if not analysis.notes:
            yield "Nothing was sampled: the program ended before the first reading."
        return
    host = analysis.usage.of(HOST)
    if host and not host.energy:
        if host.no_energy:
            yield f"No CPU energy is given: {refusal_text(host.no_energy)}."
        elif not any("CPU power" in note for note in analysis.notes):
            yield "CPU power is not measured: this system shows no RAPL energy counters."


def _gpus(analysis: MonitorAnalysis) -> list[DeviceUsage]:
    return [one for one in analysis.usage.devices if is_accelerator(one)] if analysis.usage else []


def _cores(busy: float) -> str:
    return significant(busy) if busy >= 0.01 or not busy else "<0.01"


def timeline(analysis: MonitorAnalysis) -> TimelineFigure | None:
    """The timeline of a run, with a row for the cores that the program itself kept busy on top."""
    found = usage_timeline(_as_run(analysis))
    if not found or not analysis.usage:
        return None
    own = [
        one
        for one in analysis.usage.series
        if one.field == "process_cpu_utilization" and len(one.times_s) > 1
    ]
    if not own:
        return found
    lines = tuple(
        TimelineLine(device=one.device, name="the program", x=one.times_s, y=one.values) for one in own
    )
    top = max(1.0, *(value for line in lines for value in line.y)) * _ROOM
    return msgspec.structs.replace(
        found,
        rows=(TimelineRow(name="the program keeps busy", unit="cores", top=top, lines=lines), *found.rows),
    )


def _as_run(analysis: MonitorAnalysis) -> Analysis:
    """What the report of a run asks for: nothing is timed or traced, so that only the usage speaks."""
    workload = Workload(name=analysis.program, mode="inference", source="script")
    return Analysis(
        workload=workload, environment=analysis.environment, usage=analysis.usage, notes=analysis.notes
    )


def _facts(analysis: MonitorAnalysis) -> Facts:
    environment = analysis.environment
    return facts_of(
        (
            ("CPU", environment.cpu),
            ("CPU cores", environment.cpu_cores),
            ("hardware threads", environment.cpu_threads),
            ("CPU instructions", environment.cpu_isa),
            ("main memory", size_text(environment.memory_bytes)),
            *analysis.gpus.items(),
            ("host", environment.host),
            ("system", environment.os),
            ("rooflines", environment.rooflines),
            ("read every", f"{significant(analysis.period_s, 2)} s, or as often as a counter changes"),
        )
    )
