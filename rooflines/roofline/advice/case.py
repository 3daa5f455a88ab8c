"""The input and result of advice rules. Each second of a step belongs to at most one piece of advice.

Rules run in the order of the registry, special ones first. What a piece of advice is about is taken out of the times that later rules
see: a matrix product that padding makes faster is not counted among slow matrix products again. So no two savings are of the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.trace.communication_kernels import communicates
from rooflines.roofline.advice.setting import Setting
from rooflines.roofline.analysis import Analysis, Kernel, OperatorRow, Unmodelled
from rooflines.units import percent

# ("operator", index of the row), ("unmodelled", its index) or ("idle", cause).
Key = tuple[str, int | str]

_SHAPE = re.compile(r"\d+(?:x\d+)*")


class Advice(NamedTuple):
    """A rule's answer: ``saves_s`` seconds of a step (None where they cannot be stated) out of the times in ``of``."""

    title: str
    saves_s: float | None
    evidence: str
    suggestion: Setting | str
    of: Mapping[Key, float]


class Ran(NamedTuple):
    """A row of the operators, or an operator without a count, and how much of its time no advice is about yet."""

    key: Key
    row: OperatorRow | Unmodelled
    left_s: float

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The device work of the row."""
        return self.row.kernels

    @property
    def category(self) -> str:
        """The category of an operator with a count, empty for others."""
        return self.row.category if isinstance(self.row, OperatorRow) else ""

    @property
    def headroom_s(self) -> float | None:
        """The possible saving by the bound, at most the remaining time; None without a bound."""
        row = self.row
        return min(row.headroom_s, self.left_s) if isinstance(row, OperatorRow) and row.headroom_s is not None else None

    @property
    def communicates(self) -> bool:
        """Whether it exchanges data with other devices."""
        if isinstance(self.row, OperatorRow):
            return self.row.bound == "communication" or self.row.category == "communication"
        exchanging_s = sum(kernel.time_s for kernel in self.kernels if communicates(kernel.name))
        return communicates(self.row.name) or exchanging_s > 0.5 * sum(kernel.time_s for kernel in self.kernels)

    @property
    def transfers(self) -> bool:
        """Whether it copies between host and device."""
        return any(kernel.name.startswith("Memcpy") and "DtoD" not in kernel.name for kernel in self.row.kernels)

    @property
    def tensors(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of its tensors, as far as they were recorded."""
        return tuple(tuple(map(int, part.split("x"))) for part in self.row.shapes.split(", ") if _SHAPE.fullmatch(part))


class Case:
    """An analysis and what of its step no advice is about yet."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.step_s = _step_s(analysis)
        self.ceilings = Ceilings(device="", kind="", ceilings=analysis.ceilings)
        self.per = "a step" if analysis.basis.per == "step" else "in the trace"
        self.of = "the step" if analysis.basis.per == "step" else "the trace"
        self.given: list[Setting | str] = []  # what was suggested already
        self._taken: dict[Key, float] = {}
        self._ran = {key: Ran(key, row, row.time_s) for key, row in _rows(analysis)}

    @property
    def on_device(self) -> bool:
        """Whether the times are of a device other than the host."""
        return self.analysis.idle_breakdown is not None

    @property
    def judged(self) -> bool:
        """Whether shapes are recorded and most of the busy time has a count, so that bounds represent it."""
        coverage = self.analysis.coverage
        if coverage is not None and coverage.shapes_recorded is False:
            return False
        return coverage is None or coverage.modelled_time_fraction is None or coverage.modelled_time_fraction >= 0.5

    def ran(self, chosen: Callable[[Ran], bool] = lambda _: True) -> list[Ran]:
        """The chosen ones of all rows and operators without a count that have time left."""
        return [one for one in self._ran.values() if one.left_s > 0 and chosen(one)]

    def idle_s(self, cause: str) -> float:
        """Idle time of one cause that no advice is about yet."""
        return max(0.0, idle_of(self.analysis, cause) - self._taken.get(("idle", cause), 0.0))

    def take(self, advice: Advice) -> None:
        """Give its times to a piece of advice."""
        self.given.append(advice.suggestion)
        for key, time_s in advice.of.items():
            self._taken[key] = self._taken.get(key, 0.0) + time_s
            if key in self._ran:
                self._ran[key] = self._ran[key]._replace(left_s=max(0.0, self._ran[key].left_s - time_s))

    def share(self, time_s: float) -> str:
        """``59 % of the step``."""
        return f"{percent(time_s / self.step_s) if self.step_s else '?'} of {self.of}"

    def every(self) -> Iterable[Ran]:
        """All rows and operators without a count."""
        return self._ran.values()


def _rows(analysis: Analysis) -> Iterator[tuple[Key, OperatorRow | Unmodelled]]:
    for place, row in enumerate(analysis.operators):
        yield ("operator", place), row
    for place, gap in enumerate(analysis.coverage.unmodelled if analysis.coverage is not None else ()):
        yield ("unmodelled", place), gap


def idle_of(analysis: Analysis, cause: str) -> float:
    """The idle seconds of one cause; on a CPU all time outside of operators is ``host_bound``."""
    if analysis.idle_breakdown is not None:
        return analysis.idle_breakdown.get(f"{cause}_s", 0.0)
    if cause == "data_loading":
        return analysis.division.data_loading_s or 0.0 if analysis.division is not None else 0.0
    if cause != "host_bound" or analysis.timeline is None:
        return 0.0
    return max(0.0, analysis.timeline.idle_s - (analysis.bound_breakdown or {}).get("input", 0.0))


def whole(ran: list[Ran]) -> dict[Key, float]:
    """All that is left of the time of ``ran``."""
    return {one.key: one.left_s for one in ran}


def total(ran: list[Ran]) -> float:
    """Seconds left, together."""
    return sum(one.left_s for one in ran)


def _step_s(analysis: Analysis) -> float:
    if analysis.division is not None:
        return analysis.division.step_s
    if analysis.timeline is not None:
        return analysis.timeline.span_s
    return analysis.steps.median_s if analysis.steps is not None else 0.0
