"""Profile deep-learning workloads and place every operator on the device's roofline.

Public names load on first use: importing ``rooflines`` imports neither torch nor numpy. docs/api.md describes
them.

====================  ======================================================================================
``profile``           record a model (a module with its inputs, or a name), analyze it, write the reports;
                      returns the ``Run``
``ProfileOptions``    the keyword arguments of ``profile``, their defaults and what they are
``record``            the same for a loop that the caller owns: ``with record(...) as r: ... r.step()``
``monitor``           run any command and record its CPU, memory, I/O, GPU and power use
``load``              a run directory from disk
``analyze``           a run or trace -> ``Analysis``
``analyze_ranks``     the traces of several ranks of one job -> ``RankAnalysis``
``report``            the reports of a run, a trace, several ranks or a monitored program
``train``             train an image classifier to accuracy; returns the ``Training`` and its directory
``sweep``             profile or train every combination of options -> a table of pandas
``compare``           two runs, traces or analyses -> ``Comparison``: slower, faster, new and gone
                      operators, and the noise
``count``             FLOPs and bytes of a function or module per operator, on fake tensors; returns a
                      ``Count``
``predict``           the least time and the memory of a step on devices where it is not run; returns a
                      ``Forecast``
``calibrate``         the usual operators measured on this machine, for ``predict``; returns two runs
``log``               the figures, page and operators of a run in Weights & Biases, MLflow or TensorBoard
``measure_ceilings``  the peak rates of this device, measured or from the cache; returns ``Ceilings``
``devices``           data sheets of GPUs and CPUs
``formula``           register a formula for a custom operator, which returns ``Work`` or raises
                      ``NotCounted``
``generating``        of a loop that generates text: ``with generating("decode", requests=..., tokens=...,
                      keys=...)``
``declare_work``      of a kernel that is not an operator: ``with declare_work("name", flops=..., bytes=...)``
``RooflinesError``    base class of all errors raised on purpose
====================  ======================================================================================

PYTEST_DONT_REWRITE: the package is there before pytest where ``rooflines profile -m pytest`` runs it, which
pytest would warn of.
"""

from __future__ import annotations

from rooflines._version import __version__ as __version__
from rooflines.lazy import stubbed

__getattr__, __all__, __dir__ = stubbed(__name__, __file__)
