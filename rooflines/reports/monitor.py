"""A monitored program in a terminal: what it took of the processors, memory and GPUs, and what was not measured and why.

The page (``monitor_html``) says the same in the same words.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rooflines.profiler.monitor.monitored import PythonMemory
from rooflines.profiler.samplers.fields import Summary
from rooflines.reports.chart import clip
from rooflines.reports.usage_sentences import energy_text, peak_power, refusal_text
from rooflines.roofline.analysis import DeviceUsage
from rooflines.roofline.usage.device_usage import HOST, figure, is_accelerator, is_host
from rooflines.roofline.usage.monitored import MonitorAnalysis
from rooflines.units import binary_bytes, percent, quantity, seconds, si, significant

if TYPE_CHECKING:
    from rich.console import Console

_SITES = 10
_REASONS = 3
# What each of the host's energy counters counts.
_COUNTED = {
    HOST: ("CPU power", "RAPL, all packages"),
    "dram": ("memory power", "RAPL, all memory"),
    "psys": ("board power", "RAPL, CPUs and memory in it"),
}
# The column of each figure of a declared field, without one the mean's.
_COLUMN_OF: dict[Summary, str] = {"highest": "peak", "difference": "total", "integral": "total"}
# One character for one character, for a console that can show no more than ASCII.
_ASCII = str.maketrans("±µ·…×–—−", "~u-~x---")


class Row(NamedTuple):
    """A line of the table: a name, the mean and the peak over time, what it came to in all, and a remark."""

    name: str
    mean: str = ""
    peak: str = ""
    total: str = ""
    remark: str = ""


class GpuRow(NamedTuple):
    """A GPU, and each figure where it was measured."""

    device: str
    utilization: str
    power: str
    energy: str
    memory: str
    throttled: str


TITLES = Row("", "mean", "peak", "total")
GPU_TITLES = GpuRow("GPU", "utilization", "power", "energy", "memory", "throttled")
GPU_UNITS = GpuRow("", "mean (peak)", "mean (peak)", "", "peak", "of the time")


def print_monitored(analysis: MonitorAnalysis, console: Console) -> None:
    """Print ``analysis`` on ``console``: 80 columns are enough."""
    page = _Page(console)
    page.line(title(analysis), "bold")
    rows = list(host_rows(analysis))
    if rows:
        page.line("")
        _print_rows(page, (TITLES, *rows))
    gpus = list(gpu_rows(analysis))
    if gpus:
        page.line("")
        _print_gpus(page, gpus, own_memory(analysis))
        for name in gpu_names(analysis):
            page.paragraph(name, "dim")
    if analysis.python_memory is not None:
        page.line("")
        _print_python(page, analysis.python_memory)
    remarks = [*gpu_sentences(analysis), *missing(analysis), *analysis.notes]
    if remarks:
        page.line("")
    for remark in remarks:
        page.paragraph(remark, "dim")


# --- what is said ------------------------------------------------------------------------------------------------------------------


def title(analysis: MonitorAnalysis) -> str:
    """What ran, for how long, and how it ended."""
    what = " ".join(analysis.command) if analysis.command else analysis.program
    lasted = "" if analysis.window_s is None else f"{'watched for ' if analysis.attached else ''}{seconds(analysis.window_s)}"
    return " · ".join(part for part in (what, lasted, ended(analysis)) if part)


def headline(analysis: MonitorAnalysis) -> str:
    """What to see first: the load, the memory, the GPUs, in a sentence or two."""
    rows = {row.name: row for row in host_rows(analysis)}
    parts = []
    if "cores busy" in rows:
        cores = rows["cores busy"]
        parts.append(f"kept {cores.mean}{f' {cores.remark}' if cores.remark else ''} cores busy")
    if "resident memory" in rows:
        parts.append(f"held {rows['resident memory'].peak} of memory at most")
    texts = [f"It {' and '.join(parts)}."] if parts else []
    for row in gpu_rows(analysis):
        worked = f"worked {row.utilization.partition(' (')[0]} of the time" if row.utilization else ""
        took = f"took {row.energy}" if row.energy else ""
        if worked or took:
            texts.append(f"{row.device} {' and '.join(filter(None, (worked, took)))}.")
    return " ".join(texts) or "Nothing was sampled."


def ended(analysis: MonitorAnalysis) -> str:
    """How the program ended; empty where that was not seen."""
    if analysis.ending is None:
        return ""
    if analysis.ending.signal is not None:
        return f"ended by {_signal_name(analysis.ending.signal)}"
    return f"exit code {analysis.ending.exit_code}"


def host_rows(analysis: MonitorAnalysis) -> Iterator[Row]:
    """What the program took of the host, and what the host did meanwhile; only what was measured."""
    host = analysis.usage.of(HOST) if analysis.usage is not None else None
    ending, cores = analysis.ending, analysis.environment.cpu_threads
    gauges = host.gauges if host is not None else {}
    counts = host.counts if host is not None else {}

    busy = gauges.get("process_cpu_utilization")
    # The system's own account also holds what began and ended between two readings.
    mean = (ending.user_cpu_s + ending.system_cpu_s) / ending.wall_s if ending and ending.wall_s > 0 else busy.mean if busy else None
    if mean is not None:
        yield Row(
            "cores busy",
            _cores(mean),
            _cores(max(busy.highest, mean)) if busy else "",
            remark=f"of {cores}" if cores else "",
        )
    if ending is not None:
        spent = ending.user_cpu_s + ending.system_cpu_s
        if spent > 0:
            yield Row("CPU time", total=seconds(spent), remark=f"{percent(ending.system_cpu_s / spent)} in the system")
    yield from _memory_rows(analysis, host)
    threads = gauges.get("process_threads")
    if threads is not None:
        yield Row("threads", significant(threads.mean), f"{threads.highest:.0f}")
    for name, field in (("read from disk", "process_read_bytes"), ("written to disk", "process_written_bytes")):
        if field in counts:
            yield Row(name, _rate(counts[field], analysis), total=si(counts[field], "B"))
    if "process_major_faults" in counts and counts["process_major_faults"] > 0:
        yield Row("page faults", total=f"{counts['process_major_faults']:,.0f}", remark="that waited for the disk")
    whole = gauges.get("cpu_utilization")
    if whole is not None:
        yield Row("machine busy", percent(whole.mean), percent(whole.highest), remark="all processes together")
    used, total = gauges.get("memory_used_bytes"), analysis.environment.memory_bytes
    if used is not None:
        yield Row(
            "machine memory", binary_bytes(used.mean), binary_bytes(used.highest), remark=f"of {binary_bytes(total)}" if total else ""
        )
    heat = gauges.get("temperature_c")
    if heat is not None:
        yield Row("CPU temperature", f"{heat.mean:.0f} °C", f"{heat.highest:.0f} °C")
    yield from _power_rows(analysis)
    yield from _declared_rows(analysis)


def _memory_rows(analysis: MonitorAnalysis, host: DeviceUsage | None) -> Iterator[Row]:
    gauges = host.gauges if host is not None else {}
    resident, unique = gauges.get("process_rss_bytes"), gauges.get("process_uss_bytes")
    largest = analysis.ending.largest_rss_bytes if analysis.ending is not None else None
    if resident is not None or largest is not None:
        sampled = resident.highest if resident is not None else 0.0
        # The kernel keeps the peak of every process, between two readings as well.
        missed = largest is not None and largest > sampled
        yield Row(
            "resident memory",
            binary_bytes(resident.mean) if resident is not None else "",
            binary_bytes(max(sampled, largest or 0)),
            remark="its largest process (kernel)" if missed else "RSS of all its processes",
        )
    if unique is not None:
        yield Row("unique memory", binary_bytes(unique.mean), binary_bytes(unique.highest), remark="USS, shared with nobody")


def _power_rows(analysis: MonitorAnalysis) -> Iterator[Row]:
    """Every device's energy but the GPUs', a row each: the board's counter holds the packages, so they are not to be added up."""
    for one in analysis.usage.devices if analysis.usage is not None else ():
        if not is_accelerator(one) and one.energy is not None:
            name, remark = _COUNTED.get(one.device, (f"{one.device} power", "RAPL" if is_host(one.device) else ""))
            peak = peak_power(one)
            watts = "" if peak is None else si(peak, "W")
            yield Row(name, si(one.mean_power_w or 0.0, "W"), watts, energy_text(one.energy), remark)


def _declared_rows(analysis: MonitorAnalysis) -> Iterator[Row]:
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
                yield Row(field.label, **cells, remark="" if one.device == HOST else one.device)


def gpu_rows(analysis: MonitorAnalysis) -> Iterator[GpuRow]:
    """A row a GPU; what was not measured is empty."""
    for one in _gpus(analysis):
        gauges = one.gauges
        utilization, peak = gauges.get("gpu_utilization"), peak_power(one)
        memory = gauges.get("process_memory_bytes" if own_memory(analysis) else "memory_used_bytes")
        power = one.mean_power_w or (gauges["power_w"].mean if "power_w" in gauges else None)
        yield GpuRow(
            device=one.device,
            utilization=f"{percent(utilization.mean)} ({percent(utilization.highest)})" if utilization else "",
            power=f"{power:.0f} ({peak:.0f}) W" if power is not None and peak is not None else "",
            energy=energy_text(one.energy) if one.energy else "",
            memory=binary_bytes(memory.highest) if memory else "",
            throttled="" if one.throttled_fraction is None else percent(one.throttled_fraction),
        )


def own_memory(analysis: MonitorAnalysis) -> bool:
    """Whether the drivers tell what of their GPUs' memory is the program's."""
    gpus = _gpus(analysis)
    return bool(gpus) and all("process_memory_bytes" in one.gauges for one in gpus)


def gpu_names(analysis: MonitorAnalysis) -> Iterator[str]:
    """What the driver calls the GPUs, each name once."""
    for name in dict.fromkeys(analysis.gpus.values()):
        # A slice is called by the number of its GPU and its own: gpu0/mig1.
        devices = [one.device for one in _gpus(analysis) if analysis.gpus.get(one.device.partition("/")[0]) == name]
        if devices:
            yield f"{', '.join(devices)}: {name}"


def gpu_sentences(analysis: MonitorAnalysis) -> Iterator[str]:
    """Why the GPUs were throttled, and why some have no energy."""
    for one in _gpus(analysis):
        if one.throttled:
            reasons = ", ".join(f"{reason.reason} {percent(reason.fraction)}" for reason in one.throttled[:_REASONS])
            yield f"{one.device} was held down: {reasons} of the time."
        if one.no_energy is not None:
            yield f"{one.device}: no energy is given: {refusal_text(one.no_energy)}."
        if one.ended:
            yield f"{one.device}: its samples end before the program does."


def missing(analysis: MonitorAnalysis) -> Iterator[str]:
    """Why there is no figure where one would be expected, as far as the sampler has not said so itself."""
    if analysis.usage is None:
        if not analysis.notes:
            yield "Nothing was sampled: the program ended sooner than a reading could be taken."
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
    yield "These are what Python's own allocators gave out in the program's first process: tensors of torch are not among them."
    took = (
        f"Following them took {binary_bytes(memory.tracemalloc_bytes)} of the resident memory, reading the lines"
        f" {seconds(memory.reading_s)} of a processor."
    )
    if memory.object_s and memory.traced_object_s:
        took += (
            f" With it a small object took {seconds(memory.traced_object_s)} to be made and dropped here,"
            f" {significant(memory.traced_object_s / memory.object_s, 2)} times what it took without."
        )
    yield f"{took} How many the program made is not counted: run it without --python-memory for its time."


def python_sites(memory: PythonMemory, most: int = _SITES) -> tuple[tuple[str, str, str], ...]:
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


# --- how it is printed -------------------------------------------------------------------------------------------------------------


class _Page:
    """Writes lines in the console's width, and in ASCII where it can show no more."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = max(40, min(console.width, 120))

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        # An escape sequence in a name must not reach the terminal.
        text = "".join(character if character.isprintable() else " " for character in text)
        if self._console.options.ascii_only:
            text = text.translate(_ASCII).encode("ascii", "replace").decode()
        self._console.print(Text(clip(text.rstrip(), self.width), style=style), highlight=False, soft_wrap=True)

    def paragraph(self, text: str, style: str = "") -> None:
        for row in textwrap.wrap(text, self.width, subsequent_indent="  "):
            self.line(row, style)


def _print_rows(page: _Page, rows: Sequence[Row]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES) - 1)]
    for number, row in enumerate(rows):
        numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:], strict=True))
        page.line(f"{row.name:{widths[0]}}  {numbers}  {row.remark}", "" if number else "dim")


def _print_gpus(page: _Page, rows: Sequence[GpuRow], own: bool) -> None:
    """A line a GPU without the columns that nobody measured."""
    lines = (GPU_TITLES, GPU_UNITS._replace(memory="its own") if own else GPU_UNITS, *rows)
    columns = [index for index in range(len(GPU_TITLES)) if index == 0 or any(row[index] for row in rows)]
    widths = {index: max(len(line[index]) for line in lines) for index in columns}
    for number, line in enumerate(lines):
        cells = [line[index].ljust(widths[index]) if index == 0 else line[index].rjust(widths[index]) for index in columns]
        page.line("  ".join(cells), "dim" if number < 2 else "")


def _print_python(page: _Page, memory: PythonMemory) -> None:
    sites = python_sites(memory)
    first, *others = python_sentences(memory)
    page.paragraph(first)
    if sites:
        lines = (("held", "blocks", "line"), *sites)
        widths = [max(len(line[column]) for line in lines) for column in range(2)]
        for number, (held, blocks, place) in enumerate(lines):
            page.line(f"  {held:>{widths[0]}}  {blocks:>{widths[1]}}  {place}", "" if number else "dim")
    for sentence in others:
        page.paragraph(sentence, "dim")
