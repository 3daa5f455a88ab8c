"""The timed step of a run, and how long it takes when its operators, the host or the loader take another time."""

from __future__ import annotations

from collections.abc import Callable

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.advice.case import Case
from rooflines.roofline.advice.small_kernels import FUSABLE
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.bounds.model import place
from rooflines.roofline.formulas import Work
from rooflines.roofline.prediction.records import PageCosts
from rooflines.roofline.step.interference import busy_cores, paging_s
from rooflines.roofline.tensor_sizes import tensor_bytes, tensors

# Which of its tensors is the weight of an operator, where it is not the second.
_WEIGHT = {"aten::addmm": 2, "aten::convolution_backward": 2, "aten::linear_backward": 2}


class Step:
    """The median timed step of ``analysis``: ``whole_s`` is its time, ``wait_s`` the part in which it waits for data.

    ``traffic_efficiency`` is the share of the rate of memory that the step's element-wise operators, normalizations, reductions and
    copies reach; 1 where it has none. ``busy_cores`` are the processors that the process kept busy during the timed steps, on average;
    None where they were not sampled.
    """

    def __init__(self, analysis: Analysis, costs: PageCosts | None = None) -> None:
        case = Case(analysis)
        found = analysis.input
        self.analysis = analysis
        self.whole_s = analysis.steps.median_s if analysis.steps is not None else 0.0
        self.wait_s = min(self.whole_s, found.delay_s or 0.0) if found is not None else 0.0
        self.compute_s = self.whole_s - self.wait_s
        self.ceilings = case.ceilings
        self.idle_s = case.idle_s("host_bound")
        self.on_device = case.on_device
        self.rows = analysis.operators
        self.calls = sum(row.calls for row in self.rows)
        self.costs = costs
        self.busy_cores = busy_cores(analysis)
        moving = [
            row for row in self.rows if row.category in FUSABLE and "memory" in (row.bound, row.nearest_roof) and row.lower_bound_s
        ]
        time_s = sum(row.time_s for row in moving)
        self.traffic_efficiency = min(1.0, sum(row.lower_bound_s or 0.0 for row in moving) / time_s) if time_s else 1.0

    @property
    def load_s(self) -> float | None:
        """The time in which the loader alone delivers the samples of a step; None where it was not measured."""
        found = self.analysis.input
        if found is None or found.loader_rate is None or found.loader_rate.per_s <= 0:
            return None
        per_step = 1 if found.unit == "batches" else self.analysis.workload.batch_size or 1
        return per_step / found.loader_rate.per_s

    def speedup(self, compute_s: float, *, samples: float = 1.0) -> float:
        """The throughput relative to now if a step computes for ``compute_s`` on ``samples`` times as many samples.

        Without workers a step waits as long as before for each sample; with workers it is never shorter than the loader takes.
        """
        found = self.analysis.input
        if found is not None and found.workers:
            whole_s = max(compute_s, samples * (self.load_s or 0.0))
        else:
            whole_s = compute_s + samples * self.wait_s
        return samples * self.whole_s / whole_s

    def saved(self, saved_s: float) -> float:
        """The speedup if a step took ``saved_s`` less."""
        return self.speedup(max(self.compute_s - saved_s, 0.01 * self.compute_s))

    def faults_s(self, left_s: float = 0.0) -> float:
        """The time of a timed step in which it takes new pages from the system, beyond ``left_s`` for each; 0 where it is not known.

        The busy threads share it.
        """
        return paging_s(self.analysis, self.costs and self.costs.page_s, left_s) or 0.0

    def faults_s_of(self, row: OperatorRow) -> float:
        """The part of ``faults_s`` that falls to ``row`` by its bytes."""
        size = sum(one.bytes for one in self.rows)
        return self.faults_s() * row.bytes / size if size else 0.0

    def host_s(self, calls: float) -> float:
        """The time of a step that the host needs between ``calls`` operators, at its mean time between two."""
        return self.idle_s * min(1.0, calls / self.calls) if self.calls else 0.0


def same(value: float) -> float:
    """Return ``value``."""
    return value


def new_time_s(
    row: OperatorRow, ceilings: Ceilings, *, flops: float = 1.0, size: Callable[[float], float] = same, precision: str | None = None
) -> float:
    """The time of ``row`` at its present efficiency with ``flops`` times its FLOPs, ``size`` of its bytes and another precision.

    That is its time multiplied by the ratio of the two lower bounds; its time where no ceiling bounds it.
    """
    now, then = _bound_s(row, ceilings, 1.0, row.bytes, row.precision), None
    if now:
        then = _bound_s(row, ceilings, flops, size(row.bytes), precision or row.precision)
    return row.time_s * then / now if now and then else row.time_s


def _bound_s(row: OperatorRow, ceilings: Ceilings, flops: float, size: float, precision: str | None) -> float | None:
    calls = row.calls or 1
    work = Work(
        matrix_flops=round(row.matrix_flops * flops / calls), other_flops=round((row.flops - row.matrix_flops) * flops / calls),
        bytes_read=round(size / calls), precision=precision,
    )  # fmt: skip
    placed = place(work, ceilings, precision=precision)
    return placed.lower_bound_s if placed is not None else None


def weight_bytes(row: OperatorRow) -> float:
    """Return the bytes of the weights of all calls of ``row``; 0 where it has none."""
    sizes, place = tensors(row), _WEIGHT.get(row.name, 1)
    return min(row.bytes, tensor_bytes(sizes[place], row.precision) * row.calls) if row.matrix_flops and len(sizes) > place else 0.0


def parameter_bytes(analysis: Analysis) -> float:
    """Return the bytes of the parameters; where the memory of a step was not followed, of the weights of its matrix operators."""
    memory = analysis.memory
    if memory is not None and memory.at_peak is not None and memory.at_peak.parameters:
        return memory.at_peak.parameters
    return sum(weight_bytes(row) for row in analysis.operators if row.phase in ("", "forward"))
