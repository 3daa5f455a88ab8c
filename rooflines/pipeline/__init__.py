"""The jobs that the command line and the Python API are two ways of asking for.

``recording`` runs a workload, ``training`` trains a network, ``monitoring`` monitors any program,
``predicting`` predicts a step on other devices, ``calibrating`` measures operators for that, ``reading``
analyzes any source, ``reporting`` writes its reports, and ``comparing`` compares analyses, also with stored
baselines. Names load on first use: reading a trace needs nothing that recording imports.
"""

from __future__ import annotations

from rooflines.lazy import stubbed

__getattr__, __all__, __dir__ = stubbed(__name__, __file__)
