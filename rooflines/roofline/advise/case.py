"""The input and result of advice rules. Each second of a step belongs to at most one piece of advice.

Rules run in the order of the registry, special ones first. What a piece of advice is about is taken out of
the times that later rules see: a matrix product that padding makes faster is not counted among slow matrix
products again. So no two savings are of the same time. None is of time in which another kernel runs, which
would keep the step as long.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from rooflines.profiler.options import OptionValue
from rooflines.roofline.analysis import (
    Analysis,
    Example,
    HostWork,
    Kernel,
    Key,
    OperatorRow,
    Row,
    StepDivision,
    Timeline,
)
from rooflines.roofline.judge.shapes import tensors
from rooflines.roofline.predict.change import Change, Gain, PredictedStep
from rooflines.roofline.predict.options import BY_NAME, gain_of
from rooflines.roofline.predict.rows import exchanges_data, transfers
from rooflines.units import percent, seconds

# Hidden time below this share of a step is not worth a sentence.
WORTH_SAYING = 0.01
_AMD = re.compile(r"\bAMD\b|Instinct|\bMI\d{3}|gfx\d")
_AMD_KERNEL = re.compile(r"Cijk_|.*\bck(?:_tile)?::|.*\d+ck(?:\d|_tile)|rccl|miopen", re.IGNORECASE)
MORE_WORK = "more work in each call: larger tensors, or several calls in one"


class Setting(NamedTuple):
    """An option of ``profile`` and the value to give it; ``in_code`` says the same to who has no options: a
    script, loop or step."""

    option: str
    value: bool | int | str
    in_code: str | None = None

    def __str__(self) -> str:
        return self.in_code or f"{self.option}={self.value!r}"


class Advice(NamedTuple):
    """A rule's answer: ``saves_s`` seconds of a step (None where they cannot be stated) out of the times in
    ``of``. It changes the ``work``, of kernels and of the host that launches them, the ``kernels`` alone, or
    what ``launching`` takes the host."""

    title: str
    saves_s: float | None
    evidence: str
    suggestion: Setting | str
    of: Mapping[Key, float]
    changes: Literal["work", "kernels", "launching"] = "work"


class Ran(NamedTuple):
    """A row of the operators, or an operator without a count, and how much of its time no advice is about
    yet."""

    key: Key
    row: Row
    left_s: float

    def saved(self, new_s: float) -> float:
        """How much a step is shorter if all of its calls take ``new_s``, at most the remaining time."""
        return min(self.left_s, max(0.0, self.row.time_s - new_s))

    def whole(self) -> Ran:
        """The same with all of its time left: of computation the time that no other kernel hides. Rules about
        transfers see to it."""
        exposed_s = self.row.exposed_s
        if exposed_s is None or self.communicates or self.transfers:
            return self._replace(left_s=self.row.time_s)
        return self._replace(left_s=min(self.row.time_s, exposed_s))

    @property
    def where(self) -> str:
        """`` in layer1.0 at net.py:11``, as far as it is known."""
        module = f" in {self.row.module}" if self.row.module else ""
        more = f" +{len(self.row.lines) - 1}" if len(self.row.lines) > 1 else ""
        return f"{module} at {self.row.lines[0].place}{more}" if self.row.lines else module

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The device work of the row."""
        return self.row.kernels

    @property
    def category(self) -> str:
        """The category of an operator with a count, empty for others."""
        return self.row.category

    @property
    def headroom_s(self) -> float:
        """The possible saving by the bound, at most the remaining time; 0 without a bound."""
        return min(self.row.headroom_s or 0.0, self.left_s)

    @property
    def communicates(self) -> bool:
        """Whether it exchanges data with other devices."""
        return exchanges_data(self.row)

    @property
    def transfers(self) -> bool:
        """Whether it copies between host and device."""
        return transfers(self.row)

    @property
    def tensors(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of its tensors, as far as they were recorded."""
        return tensors(self.row)

    @property
    def matrix_sizes(self) -> list[int]:
        """The sizes of the matrices among its tensors, smallest first."""
        return sorted({size for tensor in self.tensors if len(tensor) > 1 for size in tensor[-2:]})


class Case:
    """An analysis and what of its step no advice is about yet."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.step_s = analysis.step_s
        self.ceilings = analysis.roofs
        # Without a trace all times are 0.
        self.timeline = analysis.timeline or Timeline(span_s=0.0, busy_s=0.0, idle_s=0.0, compute_s=0.0)
        self.division = analysis.division or StepDivision(of="host", step_s=0.0)
        self.per = "a step" if analysis.basis.per == "step" else "in the trace"
        self.of = "the step" if analysis.basis.per == "step" else "the trace"
        self.given: list[Setting | str] = []  # what was suggested already
        self._taken: dict[Key, float] = defaultdict(float)
        self._ran: dict[Key, Ran] = {
            place: Ran(place, row, 0.0).whole() for place, row in enumerate(analysis.rows)
        }

    @property
    def on_device(self) -> bool:
        """Whether the times are of a device other than the host."""
        return self.analysis.on_device

    @property
    def judged(self) -> bool:
        """Whether shapes are recorded and most of the busy time has a count, so that bounds represent it."""
        coverage = self.analysis.coverage
        if coverage is None:
            return True
        modeled = coverage.modeled_time_fraction
        return coverage.shapes_recorded is not False and (modeled is None or modeled >= 0.5)

    @cached_property
    def kind(self) -> str:
        """The kind of device, on which libraries and settings depend."""
        return device_kind(self.analysis)

    @property
    def on_cuda(self) -> bool:
        """Whether torch calls the device ``cuda``: a GPU with graphs, pinned memory and the settings of
        ``torch.cuda``."""
        return self.kind in ("cuda", "hip")

    def attainable(self, precision: str | None, without: Collection[Key] = ()) -> float:
        """The share of the compute roof of ``precision`` that products attain on this device: the sustained
        rate if measured, else that of the best product or convolution of this trace, those in ``without``
        left out; 1 where nothing tells it."""
        roof = self.ceilings.compute(precision or "fp32", "matrix")
        if roof is None:
            return 1.0
        if roof.source.kind == "measured" and roof.engine == "matrix":
            every = self.analysis.ceilings
            held = (one.value for one in every if one.variant == "sustained" and one.name == roof.name)
            return min(1.0, max(held, default=roof.value) / roof.value)
        reached = (
            row.efficiency or 1.0
            for key, row in self._fastest
            if row.precision == precision and key not in without
        )
        return min(1.0, next(reached, 1.0))

    @cached_property
    def _fastest(self) -> list[tuple[int, OperatorRow]]:
        """The products and convolutions near the compute roof, those that reach most of it first."""
        rows = (
            (place, row)
            for place, row in enumerate(self.analysis.operators)
            if row.category in ("matmul", "convolution") and computes(row)
        )
        return sorted(rows, key=lambda one: -(one[1].efficiency or 0.0))

    def ran(self, chosen: Callable[[Ran], bool] = lambda _: True) -> list[Ran]:
        """The chosen ones of all rows and operators without a count that have time left."""
        return [one for one in self._ran.values() if one.left_s > 0 and chosen(one)]

    def idle_s(self, cause: str) -> float:
        """Idle time of one cause that no advice is about yet."""
        return max(0.0, self.analysis.idle_s(cause) - self._taken[cause])

    def host_work(
        self, *kinds: str, chosen: Callable[[HostWork], bool] = lambda _: True
    ) -> tuple[list[HostWork], float]:
        """The chosen work of the host of these kinds during which the device is idle, and for how long that
        is, as far as no advice is about it yet."""
        found = [work for work in self.analysis.host_work if work.kind in kinds and chosen(work)]
        return found, min(self.idle_s("host_bound"), sum(work.idle_s for work in found))

    def take(self, advice: Advice) -> None:
        """Give its times to a piece of advice."""
        self.given.append(advice.suggestion)
        for key, time_s in advice.of.items():
            self._taken[key] += time_s
            if key in self._ran:
                self._ran[key] = self._ran[key]._replace(left_s=max(0.0, self._ran[key].left_s - time_s))

    def example(self, advice: Advice) -> Example | None:
        """Where the operator with most of the time of ``advice`` runs longest; None of idle time."""
        places = (key for key in advice.of if isinstance(key, int))
        longest = max(places, key=advice.of.__getitem__, default=None)
        return self.analysis.rows[longest].example if longest is not None else None

    def left_out(self, advice: Advice) -> str:
        """The time of its operators that other kernels hide, if that is worth a sentence."""
        hidden_s = sum(
            one.row.time_s - one.whole().left_s for key, one in self._ran.items() if key in advice.of
        )
        return (
            f"; {seconds(hidden_s)} more, while another kernel runs, are left out"
            if hidden_s > WORTH_SAYING * self.step_s
            else ""
        )

    def cost(self, time_s: float) -> str:
        """``3.10 ms a step (59 % of the step)``."""
        return f"{seconds(time_s)} {self.per} ({self.share(time_s)})"

    def idle(self, idle_s: float) -> str:
        """``the device is idle for 59 % of the step (3.10 ms)``."""
        return f"the device is idle for {self.share(idle_s)} ({seconds(idle_s)})"

    def share(self, time_s: float) -> str:
        """``59 % of the step``."""
        return f"{percent(time_s / self.step_s) if self.step_s else '?'} of {self.of}"

    def gain(self, option: str, value: OptionValue) -> Gain | None:
        """What an option is predicted to give; None where nothing tells."""
        change = Change(kind=option, label="", options={option: value})
        return gain_of(change, PredictedStep(self.analysis))

    def every(self) -> Iterable[Ran]:
        """All rows and operators without a count."""
        return self._ran.values()

    def kernels(self) -> Iterator[Kernel]:
        """All kernels."""
        return (kernel for ran in self.every() for kernel in ran.kernels)


Rule: TypeAlias = Callable[[Case], Advice | None]


def device_kind(analysis: Analysis) -> str:
    """torch's name for the kind of device (``cpu``, ``cuda``, ``mps``), and ``hip`` for GPUs of AMD's, which
    torch calls ``cuda``.

    Processors have the names of vendors of GPUs, too: the kind decides before the name or the kernels do.
    """
    kind = analysis.environment.device.partition(":")[0]
    kernels = (kernel.name for row in analysis.rows for kernel in row.kernels)
    amd = kind == "cuda" and (
        _AMD.search(analysis.environment.device_name) or any(map(_AMD_KERNEL.match, kernels))
    )
    return "hip" if amd else kind


def computes(row: Row) -> bool:
    """Whether the compute roof is the one that bounds ``row``, or the one that it is nearest to."""
    return "compute" in (row.bound, row.nearest_roof)


def whole(ran: list[Ran]) -> dict[Key, float]:
    """All that is left of the time of ``ran``."""
    return {one.key: one.left_s for one in ran}


def total(ran: Iterable[Ran]) -> float:
    """Seconds left, together."""
    return sum(one.left_s for one in ran)


def headroom(ran: Iterable[Ran]) -> float:
    """The possible savings by the bounds, together."""
    return sum(one.headroom_s for one in ran)


def calls_of(ran: Iterable[Ran]) -> float:
    """Calls, together."""
    return sum(one.row.calls for one in ran)


def setting(analysis: Analysis, option: str, value: bool | int | str) -> Setting | str:
    """Return the option to set, or for a script, loop or step function the change in its code. Nothing is
    compiled of what is mostly on complex numbers."""
    if option == "compile" and analysis.basis.is_complex:
        return larger_batch(analysis)
    if option == "compile" and analysis.workload.kv_cache not in (None, "static"):
        return "--kv-cache static --compile on: with a static KV cache every decode step has the same shapes"
    return Setting(option, value, None if analysis.workload.source == "model" else BY_NAME[option].in_code)


def larger_batch(analysis: Analysis) -> Setting | str:
    """Suggest twice the batch, of a server more requests, and of a step or module whose batch is not known
    more work in a call."""
    if analysis.serving is not None:
        return "more requests in a step, if their latency allows it"
    batch_size = analysis.workload.batch_size
    if batch_size is None and analysis.workload.source in ("model", "step"):
        return MORE_WORK
    return setting(analysis, "batch_size", 2 * (batch_size or 1))
