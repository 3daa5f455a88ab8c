"""The jobs that the command line and the Python API are two ways of asking for.

``recording`` runs a workload, ``training`` trains a network, ``monitoring`` monitors any program, ``predicting`` predicts a step
on other devices, ``reading`` analyzes any source, ``reporting`` writes its reports, and ``comparing`` compares analyses, also with
stored baselines. Names load on first use: reading a trace needs nothing that recording imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines.lazy import lazy

if TYPE_CHECKING:
    from rooflines.pipeline.comparing import check, compare, compare_all, update_baseline
    from rooflines.pipeline.monitoring import attach, monitor
    from rooflines.pipeline.options import FORMATS, ProfileOptions
    from rooflines.pipeline.predicting import predict
    from rooflines.pipeline.reading import analyze, analyze_ranks, analyze_source, analyze_trace, default_command, find_source
    from rooflines.pipeline.recording import profile, profile_script, record
    from rooflines.pipeline.reporting import ANALYSIS_FILE, RANKS_FILE, report, write_reports
    from rooflines.pipeline.training import train

_NAMES = {
    "comparing": ("check", "compare", "compare_all", "update_baseline"),
    "monitoring": ("attach", "monitor"),
    "options": ("FORMATS", "ProfileOptions"),
    "predicting": ("predict",),
    "reading": ("analyze", "analyze_ranks", "analyze_source", "analyze_trace", "default_command", "find_source"),
    "recording": ("profile", "profile_script", "record"),
    "reporting": ("ANALYSIS_FILE", "RANKS_FILE", "report", "write_reports"),
    "training": ("train",),
}
__all__ = [
    "ANALYSIS_FILE", "FORMATS", "RANKS_FILE", "ProfileOptions", "analyze", "analyze_ranks", "analyze_source", "analyze_trace",
    "attach", "check", "compare", "compare_all", "default_command", "find_source", "monitor", "predict", "profile", "profile_script",
    "record", "report", "train", "update_baseline", "write_reports",
]  # fmt: skip

__getattr__ = lazy(__name__, {name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names})
