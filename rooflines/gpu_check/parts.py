"""The parts of the GPU check in their order, each with its time limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rooflines.errors import UsageError

# Seconds of a whole check, and what is kept of it for the evidence.
TOTAL_S = 600.0
EVIDENCE_S = 40.0


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
    """The parts that ``only`` names, separated by commas, in the order of a check; all without it. Raises UsageError for others."""
    if only is None:
        return PARTS
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [part.name for part in PARTS]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"unknown part {unknown[0]!r} of the GPU check.", hint=f"The parts are {', '.join(known)}.")
    if not names:
        raise UsageError("no part of the GPU check was named.", hint=f"The parts are {', '.join(known)}.")
    return tuple(part for part in PARTS if part.name in names)


def limit_s(parts: Sequence[PartPlan], index: int, elapsed_s: float) -> float:
    """The time limit of part ``index`` after ``elapsed_s`` seconds: all that is left, except the shares of the parts that follow.

    A part may use what earlier parts left over, and all together leave ``EVIDENCE_S`` of ``TOTAL_S``.
    """
    return max(TOTAL_S - EVIDENCE_S - elapsed_s - sum(part.share_s for part in parts[index + 1 :]), 1.0)
