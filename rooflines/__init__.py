"""Profile deep-learning workloads and place every operator on the device's roofline.

Everything public is here and loads on first use: importing ``rooflines`` imports neither torch nor numpy.

====================  ==============================================================================================================
``profile``           record a model (a module with its inputs, or a name), analyse it, write the reports; returns the ``Run``
``record``            the same for a loop that the caller owns: ``with record(...) as r: ... r.step()``
``load``              a run directory from disk
``count``             FLOPs and bytes of a function or module, operator by operator, on fake tensors; returns a ``Count``
``analyze``           a run (or its directory) -> ``Analysis``, derived anew from the raw files
``compare``           two runs, traces or analyses -> ``Comparison``: what got slower, what is new, what is gone, and the noise
``measure_ceilings``  what this device can do, measured or from the cache
``formula``           register what a custom operator computes and moves: ``@formula("mylib::my_op", category="other")``
``work``              declare it for a kernel that is no operator: ``with work("name", flops=..., bytes=...)``
``RooflinesError``    the base of everything raised on purpose
====================  ==============================================================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rooflines._version import __version__

if TYPE_CHECKING:
    from rooflines.device_specs.measure import measure as measure_ceilings
    from rooflines.errors import RooflinesError
    from rooflines.pipeline import analyze, compare, profile, record
    from rooflines.profiler.records import Run
    from rooflines.profiler.run import load
    from rooflines.profiler.work_ranges import work
    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.comparison.records import Comparison
    from rooflines.roofline.counting.count import Count, count
    from rooflines.roofline.formulas import formula

__all__ = [
    "Analysis",
    "Comparison",
    "Count",
    "RooflinesError",
    "Run",
    "__version__",
    "analyze",
    "compare",
    "count",
    "formula",
    "load",
    "measure_ceilings",
    "profile",
    "record",
    "work",
]

_HOMES = {
    "Analysis": ("rooflines.roofline.analysis", "Analysis"),
    "Comparison": ("rooflines.roofline.comparison.records", "Comparison"),
    "Count": ("rooflines.roofline.counting.count", "Count"),
    "RooflinesError": ("rooflines.errors", "RooflinesError"),
    "Run": ("rooflines.profiler.records", "Run"),
    "analyze": ("rooflines.pipeline", "analyze"),
    "compare": ("rooflines.pipeline", "compare"),
    "count": ("rooflines.roofline.counting.count", "count"),
    "formula": ("rooflines.roofline.formulas", "formula"),
    "load": ("rooflines.profiler.run", "load"),
    "measure_ceilings": ("rooflines.device_specs.measure", "measure"),
    "profile": ("rooflines.pipeline", "profile"),
    "record": ("rooflines.pipeline", "record"),
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
