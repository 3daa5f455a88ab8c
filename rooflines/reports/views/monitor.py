"""A monitored program's page: what it took of the processors, memory and GPUs, the timeline, what was not measured and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from rooflines.profiler.monitor.monitored import PythonMemory
from rooflines.profiler.records import Workload
from rooflines.profiler.samplers.fields import Summary
from rooflines.reports.charts.timeline import Line, Timeline
from rooflines.reports.charts.timeline import Row as TimelineRow
from rooflines.reports.document import Block, Column, Facts, Figure, Page, Paragraph, Row, Section, Table
from rooflines.reports.views.timeline import timeline_caption, usage_timeline
from rooflines.reports.views.usage import usage_table
from rooflines.reports.words.usage_sentences import energy_text, peak_power, refusal_text, usage_remarks
from rooflines.roofline.analysis import Analysis, DeviceUsage, Gauge
from rooflines.roofline.step.interference import shared_by
from rooflines.roofline.usage.device_usage import HOST, figure, is_accelerator, is_host
from rooflines.roofline.usage.monitored import MonitorAnalysis
from rooflines.units import binary_bytes, percent, quantity, seconds, si, significant

_SITES, _SITES_IN_BRIEF = 15, 10
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
_CUT_OFF = ("cut off", "The monitor has not ended; the report covers the samples so far.")
_METHOD = (
    ("program", "its process and all its descendants; what begins and ends between two readings is missing from the peaks, but not from"
     " the CPU time."),
    ("resident", "the memory of its processes that is in RAM, added up: what two of them share counts twice. Unique memory is what"
     " would be free if it ended."),
    ("busy cores", "CPU seconds a second. The mean is the system's own account where we started the program."),
    ("energy", "of the whole device, including other processes, from its counter or from its integrated power, with the error that is"
     " stated."),
)  # fmt: skip


class HostRow(NamedTuple):
    """What the program took of one thing: the mean and the peak over time, what it came to in all, and a remark."""

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
        sections=tuple(section for section in (_took(analysis), _gpus_section(analysis), _while_it_ran(analysis), _python(analysis),
                                               _machine(analysis), _method(analysis)) if section.blocks),
        footer=f"Schema {analysis.schema}.",
    )  # fmt: skip


def _others_cores(analysis: MonitorAnalysis) -> float | None:
    """The processors that other programs kept busy while this one ran; None where it was not sampled."""
    host = analysis.usage.of(HOST) if analysis.usage is not None else None
    whole, own = (host.gauges.get(name) if host is not None else None for name in ("cpu_utilization", "process_cpu_utilization"))
    threads = analysis.environment.cpu_threads
    return whole.mean * threads - own.mean if whole is not None and own is not None and threads else None


def _took(analysis: MonitorAnalysis) -> Section:
    columns = (
        Column("", key="name", format="text", least=8), Column("mean"), Column("peak"), Column("total"),
        Column("", key="remark", format="text", quiet=True, least=8),
    )  # fmt: skip
    rows = tuple(Row(tuple(row)) for row in host_rows(analysis))
    table = Table(name="host", caption="The program and the machine over time", columns=columns, rows=rows, show="always")
    remarks = [Paragraph(text, "absent", "always") for text in (*missing(analysis), *analysis.notes)]
    return Section(name="host", title="Resource usage", blocks=(*([table] if rows else []), *remarks))


def _gpus_section(analysis: MonitorAnalysis) -> Section:
    gpus = _without_host(_as_run(analysis))
    table = usage_table(gpus) if _gpus(analysis) else None
    texts = (*gpu_names(analysis), *usage_remarks(gpus)) if table else ()
    notes = (Paragraph(text, "note", "always") for text in texts)
    return Section(name="gpus", title="GPUs", blocks=(*([table] if table else []), *notes))


def _while_it_ran(analysis: MonitorAnalysis) -> Section:
    drawn = timeline(analysis)
    figure: Block = Paragraph("No timeline: it requires at least two readings.", "absent")
    if drawn is not None:
        figure = Figure(name="timeline", drawing=drawn, caption=timeline_caption(drawn))
    return Section(name="usage", title="Timeline", blocks=(figure,))


def _python(analysis: MonitorAnalysis) -> Section:
    memory = analysis.python_memory
    if memory is None:
        return Section(name="python", title="Python's allocations")
    first, *others = python_sentences(memory)
    sites = python_sites(memory, _SITES)
    columns = (Column("held"), Column("blocks"), Column("line", format="middle"))
    table = Table(
        name="python", caption="Python lines that held the most memory", columns=columns, rows=tuple(map(Row, sites)),
        brief=_SITES_IN_BRIEF, show="always",
    )  # fmt: skip
    return Section(
        name="python",
        title="Python's allocations",
        blocks=(
            Paragraph(first, show="always"),
            *([table] if sites else []),
            *(Paragraph(text, "note", "always") for text in others),
        ),
    )


def _machine(analysis: MonitorAnalysis) -> Section:
    return Section(name="machine", title="Machine", blocks=(Facts(rows=_facts(analysis)),))


def _method(analysis: MonitorAnalysis) -> Section:
    counters = tuple((name, f"new values: {text}.") for name, text in _counters(analysis))
    return Section(name="method", title="Method", blocks=(Facts(rows=(*_METHOD, *counters), kind="definitions"),))


# --- what is said ------------------------------------------------------------------------------------------------------------------


def title(analysis: MonitorAnalysis) -> str:
    """What ran, for how long, and how it ended."""
    what = " ".join(analysis.command) if analysis.command else analysis.program
    lasted = "" if analysis.window_s is None else f"{'watched for ' if analysis.attached else ''}{seconds(analysis.window_s)}"
    return " · ".join(part for part in (what, lasted, ended(analysis)) if part)


def headline(analysis: MonitorAnalysis) -> str:
    """Load, memory and GPUs in a sentence or two."""
    rows = {row.name: row for row in host_rows(analysis)}
    parts = []
    if "cores busy" in rows:
        cores = rows["cores busy"]
        parts.append(f"{cores.mean}{f' {cores.remark}' if cores.remark else ''} cores on average")
    if "resident memory" in rows:
        parts.append(f"up to {rows['resident memory'].peak} of memory")
    texts = [f"Used {' and '.join(parts)}."] if parts else []
    for one in _gpus(analysis):
        busy = one.gauges.get("gpu_utilization")
        worked = f"was busy {percent(busy.mean)} of the time" if busy else ""
        took = f"used {energy_text(one.energy)}" if one.energy else ""
        if worked or took:
            texts.append(f"{one.device} {' and '.join(filter(None, (worked, took)))}.")
    return " ".join(texts) or "Nothing was sampled."


def ended(analysis: MonitorAnalysis) -> str:
    """How the program ended; empty if that was not observed."""
    if analysis.ending is None:
        return ""
    if analysis.ending.signal is not None:
        return f"ended by {_signal_name(analysis.ending.signal)}"
    return f"exit code {analysis.ending.exit_code}"


def host_rows(analysis: MonitorAnalysis) -> Iterator[HostRow]:
    """Resources that the program used and the load of the host; only what was measured."""
    host = analysis.usage.of(HOST) if analysis.usage is not None else None
    ending, cores = analysis.ending, analysis.environment.cpu_threads
    gauges = host.gauges if host is not None else {}
    counts = host.counts if host is not None else {}

    busy = gauges.get("process_cpu_utilization")
    # The system's own account also holds what began and ended between two readings.
    mean = (ending.user_cpu_s + ending.system_cpu_s) / ending.wall_s if ending and ending.wall_s > 0 else busy.mean if busy else None
    if mean is not None:
        yield HostRow(
            "cores busy",
            _cores(mean),
            _cores(max(busy.highest, mean)) if busy else "",
            remark=f"of {cores}" if cores else "",
        )
    if ending is not None:
        spent = ending.user_cpu_s + ending.system_cpu_s
        if spent > 0:
            yield HostRow("CPU time", total=seconds(spent), remark=f"{percent(ending.system_cpu_s / spent)} in the system")
    yield from _memory_rows(analysis, gauges)
    threads = gauges.get("process_threads")
    if threads is not None:
        yield HostRow("threads", significant(threads.mean), f"{threads.highest:.0f}")
    for name, field in (("read from disk", "process_read_bytes"), ("written to disk", "process_written_bytes")):
        if field in counts:
            yield HostRow(name, _rate(counts[field], analysis), total=si(counts[field], "B"))
    if "process_major_faults" in counts and counts["process_major_faults"] > 0:
        yield HostRow("page faults", total=f"{counts['process_major_faults']:,.0f}", remark="that waited for the disk")
    whole = gauges.get("cpu_utilization")
    if whole is not None:
        yield HostRow("machine busy", percent(whole.mean), percent(whole.highest), remark="all processes together")
    used, total = gauges.get("memory_used_bytes"), analysis.environment.memory_bytes
    if used is not None:
        yield HostRow(
            "machine memory", binary_bytes(used.mean), binary_bytes(used.highest), remark=f"of {binary_bytes(total)}" if total else ""
        )
    heat = gauges.get("temperature_c")
    if heat is not None:
        yield HostRow("CPU temperature", f"{heat.mean:.0f} °C", f"{heat.highest:.0f} °C")
    yield from _power_rows(analysis)
    yield from _declared_rows(analysis)


def _memory_rows(analysis: MonitorAnalysis, gauges: Mapping[str, Gauge]) -> Iterator[HostRow]:
    resident, unique = gauges.get("process_rss_bytes"), gauges.get("process_uss_bytes")
    largest = analysis.ending.largest_rss_bytes if analysis.ending is not None else None
    if resident is not None or largest is not None:
        sampled = resident.highest if resident is not None else 0.0
        # The kernel keeps the peak of every process, between two readings as well.
        missed = largest is not None and largest > sampled
        yield HostRow(
            "resident memory",
            binary_bytes(resident.mean) if resident is not None else "",
            binary_bytes(max(sampled, largest or 0)),
            remark="its largest process (kernel)" if missed else "RSS of all its processes",
        )
    if unique is not None:
        yield HostRow("unique memory", binary_bytes(unique.mean), binary_bytes(unique.highest), remark="USS, not shared")


def _power_rows(analysis: MonitorAnalysis) -> Iterator[HostRow]:
    """Every device's energy but the GPUs', a row each: the board's counter holds the packages, so they are not to be added up."""
    for one in analysis.usage.devices if analysis.usage is not None else ():
        if not is_accelerator(one) and one.energy is not None:
            name, remark = _COUNTED.get(one.device, (f"{one.device} power", "RAPL" if is_host(one.device) else ""))
            peak = peak_power(one)
            watts = "" if peak is None else si(peak, "W")
            yield HostRow(name, si(one.mean_power_w or 0.0, "W"), watts, energy_text(one.energy), remark)


def _declared_rows(analysis: MonitorAnalysis) -> Iterator[HostRow]:
    """The fields that samplers of other packages declare, a row for each device that has them."""
    usage = analysis.usage
    for one in usage.devices if usage is not None else ():
        for key, field in usage.fields.items() if usage is not None else ():
            cells = {}
            for summary in field.summary if "table" in field.shown else ():
                value = figure(one, key, summary)
                if value is not None:
                    column = _COLUMN_OF.get(summary, "mean")
                    cells[column] = quantity(value, field.unit_of(summary))
            if cells:
                yield HostRow(field.label, **cells, remark="" if one.device == HOST else one.device)


def gpu_names(analysis: MonitorAnalysis) -> Iterator[str]:
    """What the driver calls the GPUs, each name once."""
    for name in dict.fromkeys(analysis.gpus.values()):
        # A slice is called by the number of its GPU and its own: gpu0/mig1.
        devices = [one.device for one in _gpus(analysis) if analysis.gpus.get(one.device.partition("/")[0]) == name]
        if devices:
            yield f"{', '.join(devices)}: {name}"


def missing(analysis: MonitorAnalysis) -> Iterator[str]:
    """The reason for a missing figure, unless the sampler has given one."""
    if analysis.usage is None:
        if not analysis.notes:
            yield "Nothing was sampled: the program ended before the first reading."
        return
    host = analysis.usage.of(HOST)
    if host is not None and host.energy is None:
        if host.no_energy is not None:
            yield f"No CPU energy is given: {refusal_text(host.no_energy)}."
        elif not any("CPU power" in note for note in analysis.notes):
            yield "CPU power is not measured: this system shows no RAPL energy counters."


def python_sentences(memory: PythonMemory) -> Iterator[str]:
    """Python's peak, what the lines account for, and what following them cost."""
    of = f"; the lines below were read when it held {binary_bytes(memory.sites_at_bytes)}" if memory.sites else ""
    yield f"Python {memory.python} allocated at most {binary_bytes(memory.peak_bytes)} at once{of}."
    yield "These are allocations of Python's own allocators in the program's first process, without tensors of torch."
    took = (
        f"Tracing used {binary_bytes(memory.tracemalloc_bytes)} of the resident memory and {seconds(memory.reading_s)} of processor"
        " time to read the lines."
    )
    if memory.object_s and memory.traced_object_s:
        took += (
            f" Creating and releasing a small object took {seconds(memory.traced_object_s)},"
            f" {significant(memory.traced_object_s / memory.object_s, 2)} times as long as without tracing."
        )
    yield f"{took} How many the program made is not counted: run it without --python-memory for its time."


def python_sites(memory: PythonMemory, most: int) -> tuple[tuple[str, str, str], ...]:
    """The lines that held most: bytes, blocks, place."""
    return tuple((binary_bytes(site.bytes), f"{site.blocks:,}", f"{site.file}:{site.line}") for site in memory.sites[:most])


def _gpus(analysis: MonitorAnalysis) -> list[DeviceUsage]:
    return [one for one in analysis.usage.devices if is_accelerator(one)] if analysis.usage is not None else []


def _cores(busy: float) -> str:
    return significant(busy) if busy >= 0.01 or not busy else "<0.01"


def _rate(count: float, analysis: MonitorAnalysis) -> str:
    return f"{si(count / analysis.window_s, 'B/s')}" if analysis.window_s and count else ""


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def timeline(analysis: MonitorAnalysis) -> Timeline | None:
    """The timeline of a run, with a row for the cores that the program itself kept busy on top."""
    found = usage_timeline(_as_run(analysis))
    if found is None or analysis.usage is None:
        return None
    own = [one for one in analysis.usage.series if one.field == "process_cpu_utilization" and len(one.times_s) > 1]
    if not own:
        return found
    lines = tuple(Line(device=one.device, name="the program", x=one.times_s, y=one.values) for one in own)
    top = max(1.0, *(value for line in lines for value in line.y)) * _ROOM
    return msgspec.structs.replace(
        found, rows=(TimelineRow(name="the program keeps busy", unit="cores", top=top, lines=lines), *found.rows)
    )


def _as_run(analysis: MonitorAnalysis) -> Analysis:
    """What the report of a run asks for: nothing is timed or traced, so that only the usage speaks."""
    workload = Workload(name=analysis.program, mode="inference", source="script")
    return Analysis(workload=workload, environment=analysis.environment, usage=analysis.usage, notes=analysis.notes)


def _without_host(as_run: Analysis) -> Analysis:
    """The GPUs only: the table describes the host and its parts."""
    if as_run.usage is None:
        return as_run
    devices = tuple(one for one in as_run.usage.devices if is_accelerator(one))
    return msgspec.structs.replace(as_run, usage=msgspec.structs.replace(as_run.usage, devices=devices))


def _facts(analysis: MonitorAnalysis) -> tuple[tuple[str, str], ...]:
    environment = analysis.environment
    facts = (
        ("CPU", environment.cpu),
        ("CPU cores", None if environment.cpu_cores is None else str(environment.cpu_cores)),
        ("hardware threads", None if environment.cpu_threads is None else str(environment.cpu_threads)),
        ("CPU instructions", environment.cpu_isa),
        ("main memory", None if environment.memory_bytes is None else binary_bytes(environment.memory_bytes)),
        *((device, name) for device, name in analysis.gpus.items()),
        ("host", environment.host),
        ("system", environment.os),
        ("rooflines", environment.rooflines),
        ("read every", f"{significant(analysis.period_s, 2)} s, or as often as a counter changes"),
    )
    return tuple((name, text) for name, text in facts if text)


def _counters(analysis: MonitorAnalysis) -> tuple[tuple[str, str], ...]:
    """How often what can be read of each device changes, as far as it is known."""
    known = [one for one in analysis.counters if one.update_s is not None]
    return tuple(
        (device, "; ".join(f"{one.field} every {seconds(one.update_s or 0.0, 2)}" for one in known if one.device == device))
        for device in dict.fromkeys(one.device for one in known)
    )
