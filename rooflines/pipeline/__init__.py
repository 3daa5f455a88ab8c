"""The jobs that the command line and the Python API are two ways of asking for, a file a job.

``recording`` runs a workload, ``monitoring`` monitors any program, ``reading`` analyzes a run or trace, ``reporting`` writes its
reports, ``several`` analyzes the ranks of a job, ``any_source`` chooses among these, and ``comparing`` compares analyses, also with
stored baselines. Names load on first use: reading a trace needs nothing that recording imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines.lazy import lazy

if TYPE_CHECKING:
    from rooflines.pipeline.any_source import analyze, find_source, report
    from rooflines.pipeline.comparing import check, compare, compare_all, update_baseline
    from rooflines.pipeline.monitoring import analyze_monitored, attach, monitor, report_monitored
    from rooflines.pipeline.options import FORMATS, ProfileOptions
    from rooflines.pipeline.reading import analyze_trace, default_command, is_directory
    from rooflines.pipeline.recording import profile, profile_script, record
    from rooflines.pipeline.reporting import ANALYSIS_FILE, report_on, write_reports
    from rooflines.pipeline.several import RANKS_FILE, analyze_ranks
    from rooflines.pipeline.training import train

_HOMES = {
    "ANALYSIS_FILE": "reporting",
    "FORMATS": "options",
    "RANKS_FILE": "several",
    "ProfileOptions": "options",
    "analyze": "any_source",
    "analyze_monitored": "monitoring",
    "analyze_ranks": "several",
    "analyze_trace": "reading",
    "attach": "monitoring",
    "check": "comparing",
    "compare": "comparing",
    "compare_all": "comparing",
    "default_command": "reading",
    "find_source": "any_source",
    "is_directory": "reading",
    "monitor": "monitoring",
    "profile": "recording",
    "profile_script": "recording",
    "record": "recording",
    "report": "any_source",
    "report_monitored": "monitoring",
    "report_on": "reporting",
    "train": "training",
    "update_baseline": "comparing",
    "write_reports": "reporting",
}

__all__ = [
    "ANALYSIS_FILE",
    "FORMATS",
    "RANKS_FILE",
    "ProfileOptions",
    "analyze",
    "analyze_monitored",
    "analyze_ranks",
    "analyze_trace",
    "attach",
    "check",
    "compare",
    "compare_all",
    "default_command",
    "find_source",
    "is_directory",
    "monitor",
    "profile",
    "profile_script",
    "record",
    "report",
    "report_monitored",
    "report_on",
    "train",
    "update_baseline",
    "write_reports",
]

__getattr__ = lazy(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
