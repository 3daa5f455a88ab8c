"""The jobs that the command line and the Python API are two ways of asking for, a file a job.

``recording`` runs a workload, ``monitoring`` monitors any program, ``reading`` analyzes a run or trace, ``reporting`` writes its
reports, ``several`` analyzes the ranks of a job, ``any_source`` chooses among these, and ``comparing`` compares analyses. Names load on
first use: reading a trace needs nothing that recording imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooflines.pipeline.any_source import analyze, find_source, report
    from rooflines.pipeline.ceilings import given_ceilings, known_ceilings, sheet_of
    from rooflines.pipeline.comparing import compare, compare_all
    from rooflines.pipeline.monitoring import (
        MONITOR_FORMATS,
        analyze_monitored,
        attach,
        is_monitored,
        monitor,
        report_monitored,
    )
    from rooflines.pipeline.options import FORMATS, ProfileOptions
    from rooflines.pipeline.reading import analyze_trace, default_command, is_directory, read_analysis
    from rooflines.pipeline.recording import add_ceilings, profile, profile_script, record
    from rooflines.pipeline.reporting import ANALYSIS_FILE, report_on, write_reports
    from rooflines.pipeline.several import RANKS_FILE, RANKS_FORMATS, analyze_ranks, report_ranks

_HOMES = {
    "ANALYSIS_FILE": "reporting",
    "FORMATS": "options",
    "MONITOR_FORMATS": "monitoring",
    "RANKS_FILE": "several",
    "RANKS_FORMATS": "several",
    "ProfileOptions": "options",
    "add_ceilings": "recording",
    "analyze": "any_source",
    "analyze_monitored": "monitoring",
    "analyze_ranks": "several",
    "analyze_trace": "reading",
    "attach": "monitoring",
    "compare": "comparing",
    "compare_all": "comparing",
    "default_command": "reading",
    "find_source": "any_source",
    "given_ceilings": "ceilings",
    "is_directory": "reading",
    "is_monitored": "monitoring",
    "known_ceilings": "ceilings",
    "monitor": "monitoring",
    "profile": "recording",
    "profile_script": "recording",
    "read_analysis": "reading",
    "record": "recording",
    "report": "any_source",
    "report_monitored": "monitoring",
    "report_on": "reporting",
    "report_ranks": "several",
    "write_reports": "reporting",
    "sheet_of": "ceilings",
}

__all__ = [
    "ANALYSIS_FILE",
    "FORMATS",
    "MONITOR_FORMATS",
    "RANKS_FILE",
    "RANKS_FORMATS",
    "ProfileOptions",
    "add_ceilings",
    "analyze",
    "analyze_monitored",
    "analyze_ranks",
    "analyze_trace",
    "attach",
    "compare",
    "compare_all",
    "default_command",
    "find_source",
    "given_ceilings",
    "is_directory",
    "is_monitored",
    "known_ceilings",
    "monitor",
    "profile",
    "profile_script",
    "read_analysis",
    "record",
    "report",
    "report_monitored",
    "report_on",
    "report_ranks",
    "sheet_of",
    "write_reports",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rooflines.pipeline' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rooflines.pipeline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
