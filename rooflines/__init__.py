"""Profile deep-learning workloads and place every operator on the device's roofline.

Public names load on first use: importing ``rooflines`` imports neither torch nor numpy. docs/api.md describes them.

====================  ==============================================================================================================
``profile``           record a model (a module with its inputs, or a name), analyze it, write the reports; returns the ``Run``
``ProfileOptions``    the keyword arguments of ``profile``, their defaults and what they are
``record``            the same for a loop that the caller owns: ``with record(...) as r: ... r.step()``
``monitor``           run any command and record its CPU, memory, I/O, GPU and power use
``load``              a run directory from disk
``analyze``           a run or trace -> ``Analysis``
``analyze_ranks``     the traces of several ranks of one job -> ``RankAnalysis``
``report``            the reports of a run, a trace, several ranks or a monitored program
``train``             train an image classifier to accuracy; returns the ``Training`` and its directory
``sweep``             profile or train every combination of options -> a table of pandas
``compare``           two runs, traces or analyses -> ``Comparison``: slower, faster, new and gone operators, and the noise
``count``             FLOPs and bytes of a function or module per operator, on fake tensors; returns a ``Count``
``predict``           the least time and the memory of a step on devices where it is not run; returns a ``Forecast``
``log``               the figures, page and operators of a run in Weights & Biases, MLflow or TensorBoard
``measure_ceilings``  the peak rates of this device, measured or from the cache; returns ``Ceilings``
``devices``           data sheets of GPUs and CPUs
``formula``           register a formula for a custom operator, which returns ``Work`` or raises ``NotCounted``
``generating``        of a loop that generates text: ``with generating("decode", requests=..., tokens=..., keys=...)``
``declare_work``      of a kernel that is not an operator: ``with declare_work("name", flops=..., bytes=...)``
``RooflinesError``    base class of all errors raised on purpose
====================  ==============================================================================================================

PYTEST_DONT_REWRITE: the package is there before pytest where ``rooflines profile -m pytest`` runs it, which pytest would warn of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines._version import __version__
from rooflines.lazy import lazy

if TYPE_CHECKING:
    from rooflines.device_specs.measure import measure as measure_ceilings
    from rooflines.device_specs.records import Ceilings
    from rooflines.device_specs.search import search as devices
    from rooflines.errors import RooflinesError
    from rooflines.integrations.trackers import log
    from rooflines.pipeline import ProfileOptions, analyze, analyze_ranks, compare, monitor, predict, profile, record, report, train
    from rooflines.profiler.directory import load
    from rooflines.profiler.generation_phases import generating
    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.profiler.records import Run
    from rooflines.profiler.trace.signature import Signature, TensorArg
    from rooflines.profiler.training.records import Training
    from rooflines.profiler.work_ranges import declare_work
    from rooflines.roofline.analysis import Analysis, Finding
    from rooflines.roofline.comparison.records import Comparison
    from rooflines.roofline.counting.count import Count, count
    from rooflines.roofline.forecast.forecast import Forecast
    from rooflines.roofline.formulas import NotCounted, Work, formula
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.roofline.usage.device_usage import MonitorAnalysis
    from rooflines.sweeps.sweep import sweep

__all__ = [
    "Analysis", "Ceilings", "Comparison", "Count", "Finding", "Forecast", "MonitorAnalysis", "Monitored", "NotCounted",
    "ProfileOptions", "RankAnalysis", "RooflinesError", "Run", "Signature", "TensorArg", "Training", "Work", "__version__", "analyze",
    "analyze_ranks", "compare", "count", "declare_work", "devices", "formula", "generating", "load", "log", "measure_ceilings",
    "monitor", "predict", "profile", "record", "report", "sweep", "train",
]  # fmt: skip

_HOMES = {
    "rooflines.device_specs.measure:measure": ("measure_ceilings",),
    "rooflines.device_specs.records": ("Ceilings",),
    "rooflines.device_specs.search:search": ("devices",),
    "rooflines.errors": ("RooflinesError",),
    "rooflines.integrations.trackers": ("log",),
    "rooflines.pipeline": (
        "ProfileOptions", "analyze", "analyze_ranks", "compare", "monitor", "predict", "profile", "record", "report", "train",
    ),
    "rooflines.profiler.directory": ("load",),
    "rooflines.profiler.generation_phases": ("generating",),
    "rooflines.profiler.monitor.monitored": ("Monitored",),
    "rooflines.profiler.records": ("Run",),
    "rooflines.profiler.trace.signature": ("Signature", "TensorArg"),
    "rooflines.profiler.training.records": ("Training",),
    "rooflines.profiler.work_ranges": ("declare_work",),
    "rooflines.roofline.analysis": ("Analysis", "Finding"),
    "rooflines.roofline.comparison.records": ("Comparison",),
    "rooflines.roofline.counting.count": ("Count", "count"),
    "rooflines.roofline.forecast.forecast": ("Forecast",),
    "rooflines.roofline.formulas": ("NotCounted", "Work", "formula"),
    "rooflines.roofline.ranks.records": ("RankAnalysis",),
    "rooflines.roofline.usage.device_usage": ("MonitorAnalysis",),
    "rooflines.sweeps.sweep": ("sweep",),
}  # fmt: skip
__getattr__ = lazy(__name__, {name: home for home, names in _HOMES.items() for name in names})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
