"""A monitored program as one page that opens without a network, in the look of a run's report and with its timeline.

Program names, GPU names and paths are not ours: Jinja escapes them, and what goes into the page's data is escaped as JSON.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rooflines._version import __version__
from rooflines.profiler.records import Workload
from rooflines.reports.html import embedded_json
from rooflines.reports.monitor import (
    TITLES,
    headline,
    host_rows,
    missing,
    python_sentences,
    python_sites,
    title,
)
from rooflines.reports.page import fill
from rooflines.reports.palette import BOUNDS, INK, THEMES
from rooflines.reports.usage_chart import Line, Timeline, timeline_caption, usage_timeline
from rooflines.reports.usage_chart import Row as TimelineRow
from rooflines.reports.usage_html import timeline_data
from rooflines.reports.usage_sentences import usage_sentences
from rooflines.reports.usage_table import UsageTable, usage_table
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.usage.device_usage import is_accelerator
from rooflines.roofline.usage.monitored import MonitorAnalysis
from rooflines.units import binary_bytes, seconds, significant

# What the timeline leaves room for above its highest curve.
_ROOM = 1.12


def write(analysis: MonitorAnalysis, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    path.write_text(render(analysis), encoding="utf-8")
    return path


def render(analysis: MonitorAnalysis) -> str:
    """The page as text. It renders whatever the analysis holds and says in place what it does not."""
    as_run, drawn = _as_run(analysis), timeline(analysis)
    return fill(
        "monitor.html.j2",
        analysis=analysis,
        title=title(analysis),
        headline=headline(analysis),
        created=analysis.created.replace("T", " ")[:16],
        columns=TITLES,
        rows=tuple(host_rows(analysis)),
        devices=_devices(as_run),
        sentences=usage_sentences(_without_host(as_run)),
        remarks=[*missing(analysis), *analysis.notes],
        timeline=drawn,
        timeline_json=embedded_json(timeline_data(drawn)) if drawn else "",
        timeline_caption=timeline_caption(drawn) if drawn else "",
        python=tuple(python_sentences(analysis.python_memory)) if analysis.python_memory else (),
        sites=python_sites(analysis.python_memory, most=15) if analysis.python_memory else (),
        facts=_facts(analysis),
        counters=_counters(analysis),
        ink=INK,
        bounds=BOUNDS,
        categories={},
        themes=THEMES,
        version=__version__,
        # Library code, not data: it holds no closing script tag and must not be escaped.
        plotly_js=_plotly() if drawn else "",
    )


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
    """The GPUs alone: the host and its parts are told in full by the table."""
    if as_run.usage is None:
        return as_run
    devices = tuple(one for one in as_run.usage.devices if is_accelerator(one))
    return msgspec.structs.replace(as_run, usage=msgspec.structs.replace(as_run.usage, devices=devices))


def _devices(as_run: Analysis) -> UsageTable | None:
    """The GPUs and the host side by side; without a GPU the host is told in full above."""
    gpus = as_run.usage is not None and any(is_accelerator(one) for one in as_run.usage.devices)
    return usage_table(as_run) if gpus else None


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


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return source
