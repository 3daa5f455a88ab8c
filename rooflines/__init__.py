"""Profile deep-learning workloads and place every operator on the device's roofline.

Public names load on first use: importing ``rooflines`` imports neither torch nor numpy. docs/api.md describes them.

====================  ==============================================================================================================
``profile``           record a model (a module with its inputs, or a name), analyze it, write the reports; returns the ``Run``
``ProfileOptions``    the keyword arguments of ``profile``, their defaults and what they are
``record``            the same for a loop that the caller owns: ``with record(...) as r: ... r.step()``
``monitor``           run any command and record its CPU, memory, I/O, GPU and power use
``load``              a run directory from disk
``analyze``           a run or trace -> ``Analysis``; a list of traces -> the analysis of the ranks
``report``            the reports of a run, a trace, several ranks or a monitored program
``train``             train an image classifier to accuracy; returns the ``Training`` and its directory
``sweep``             profile or train every combination of options -> a table of pandas
``compare``           two runs, traces or analyses -> ``Comparison``: slower, faster, new and gone operators, and the noise
``count``             FLOPs and bytes of a function or module per operator, on fake tensors; returns a ``Count``
``measure_ceilings``  the peak rates of this device, measured or from the cache; returns ``Ceilings``
``devices``           data sheets of GPUs and CPUs
``formula``           register a formula for a custom operator, which returns ``Work`` or raises ``NotCounted``
``work``              declare the work of a kernel that is not an operator: ``with work("name", flops=..., bytes=...)``
``RooflinesError``    base class of all errors raised on purpose
====================  ==============================================================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rooflines._version import __version__

if TYPE_CHECKING:
    from rooflines.device_specs.measure import measure as measure_ceilings
    from rooflines.device_specs.records import Ceilings
    from rooflines.device_specs.search import search as devices
    from rooflines.errors import RooflinesError
    from rooflines.pipeline import ProfileOptions, analyze, compare, monitor, profile, record, report, train
    from rooflines.profiler.records import Run
    from rooflines.profiler.run import load
    from rooflines.profiler.work_ranges import work
    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.comparison.records import Comparison
    from rooflines.roofline.counting.count import Count, count
    from rooflines.roofline.formulas import NotCounted, Work, formula
    from rooflines.sweeps.sweep import sweep

__all__ = [
    "Analysis",
    "Ceilings",
    "Comparison",
    "Count",
    "NotCounted",
    "ProfileOptions",
    "RooflinesError",
    "Run",
    "Work",
    "__version__",
    "analyze",
    "compare",
    "count",
    "devices",
    "formula",
    "load",
    "measure_ceilings",
    "monitor",
    "profile",
    "record",
    "report",
    "sweep",
    "train",
    "work",
]

_HOMES = {
    "Analysis": ("rooflines.roofline.analysis", "Analysis"),
    "Ceilings": ("rooflines.device_specs.records", "Ceilings"),
    "Comparison": ("rooflines.roofline.comparison.records", "Comparison"),
    "Count": ("rooflines.roofline.counting.count", "Count"),
    "NotCounted": ("rooflines.roofline.formulas", "NotCounted"),
    "ProfileOptions": ("rooflines.pipeline.options", "ProfileOptions"),
    "RooflinesError": ("rooflines.errors", "RooflinesError"),
    "Run": ("rooflines.profiler.records", "Run"),
    "Work": ("rooflines.roofline.formulas", "Work"),
    "analyze": ("rooflines.pipeline", "analyze"),
    "compare": ("rooflines.pipeline", "compare"),
    "count": ("rooflines.roofline.counting.count", "count"),
    "devices": ("rooflines.device_specs.search", "search"),
    "formula": ("rooflines.roofline.formulas", "formula"),
    "load": ("rooflines.profiler.run", "load"),
    "measure_ceilings": ("rooflines.device_specs.measure", "measure"),
    "monitor": ("rooflines.pipeline", "monitor"),
    "profile": ("rooflines.pipeline", "profile"),
    "record": ("rooflines.pipeline", "record"),
    "report": ("rooflines.pipeline", "report"),
    "sweep": ("rooflines.sweeps.sweep", "sweep"),
    "train": ("rooflines.pipeline", "train"),
    "work": ("rooflines.profiler.work_ranges", "work"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rooflines' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
