"""The check of everything that needs an NVIDIA GPU: ``make gpu-check`` and ``rooflines doctor --gpu``.

``check`` runs ``PARTS`` in their order, each in its own process with a time limit. A part records what it measures and the results of
its laws (``records``), and ``page`` shows the whole.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import NamedTuple

from rooflines.errors import UsageError

# Seconds of a whole check, and those of them that the evidence may take.
TOTAL_S = 600.0
EVIDENCE_S = 40.0
# The packages that a check needs, by the names of their modules: in a repository that is not installed, some may be missing.
MODULES = (
    "torch", "torchvision", "numpy", "pandas", "pyarrow", "psutil", "numba", "pynvml", "matplotlib", "jinja2", "rich", "msgspec",
    "platformdirs", "filelock",
)  # fmt: skip


class PartPlan(NamedTuple):
    """A part: its name, the ``module:function`` that runs it (with a Recorder), its share of the time and what it measures."""

    name: str
    function: str
    share_s: float
    what: str


PARTS = (
    PartPlan("ceilings", "rooflines.gpu_check.ceilings:run", 115, "every measured ceiling, compared with the data sheet"),
    PartPlan("profiles", "rooflines.gpu_check.profiles:run", 215, "profiles of several workloads, and the laws that they obey"),
    PartPlan("energy", "rooflines.gpu_check.energy:run", 32, "energy by the energy counter and by integrated power"),
    PartPlan("networks", "rooflines.gpu_check.networks:run", 45, "networks of our own CUDA kernels and of CuPy beside torch and NumPy"),
    PartPlan("counters", "rooflines.gpu_check.counters:run", 25, "DRAM bytes and FLOPs by hardware counters, compared with ours"),
    PartPlan("tests", "rooflines.gpu_check.tests:run", 128, "the tests that need a GPU"),
)


def chosen(only: str | None) -> tuple[PartPlan, ...]:
    """Return the parts that ``only`` names, separated by commas, in the order of a check; all without it.

    Raises UsageError for an unknown name.
    """
    known = [part.name for part in PARTS]
    names = known if only is None else [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"unknown part {unknown[0]!r} of the GPU check." if unknown else "no part of the GPU check was named."
        raise UsageError(what, hint=f"The parts are {', '.join(known)}.")
    return tuple(part for part in PARTS if part.name in names)


def limit_s(parts: Sequence[PartPlan], index: int, elapsed_s: float) -> float:
    """Return the time limit of part ``index`` after ``elapsed_s`` seconds: all that is left, except the shares of later parts.

    A part may use what earlier parts left over, and all together leave ``EVIDENCE_S`` of ``TOTAL_S``.
    """
    return max(TOTAL_S - EVIDENCE_S - elapsed_s - sum(part.share_s for part in parts[index + 1 :]), 1.0)


def check_installed() -> None:
    """Raise UsageError naming the packages that this interpreter lacks."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"GPU check: {sys.executable} lacks {', '.join(missing)}: nothing was checked.",
            hint="Install rooflines (make profile), or choose an interpreter that has them (make gpu-check PYTHON=...).",
        )
