"""What a change of a run's options would gain: a rule for each kind of change, which a row of ``options.py``
names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.options import OptionValue
from rooflines.roofline.analysis import Analysis, Key, OperatorRow
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.judge.bounds import memory_seconds, place_on_roofline
from rooflines.roofline.judge.shapes import tensor_bytes, tensors
from rooflines.roofline.judge.step.interference import busy_cores, paging_s
from rooflines.roofline.predict.rows import FUSABLE, chains, conversion_s, in_loop, transfers
from rooflines.units import counted, percent, seconds, significant


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``profile`` and variables of the environment that differ from those of the run."""

    kind: str
    label: str
    options: dict[str, OptionValue] = {}
    environment: dict[str, str] = {}


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput that is predicted, as a multiple of the run's, and the reason in one sentence."""

    speedup: float
    reason: str


class Gain(NamedTuple):
    """The speedup of a change, its reason, and what goes of the step: seconds of rows by their place, and of
    causes of idle time."""

    speedup: float
    reason: str
    of: Mapping[Key, float] = {}


class PageCosts(NamedTuple):
    """What 4 KiB of new memory cost on this machine: in a page of their own, and as part of a huge page (None
    where there are none)."""

    page_s: float
    in_huge_page_s: float | None = None


# Operators that autocast runs in fp32 on CUDA; on a CPU it does so for few, and none that are common.
_KEPT_ON_CUDA = (
    "layer_norm",
    "softmax",
    "loss",
    "norm.",
    "cumsum",
    "prod",
    "::exp",
    "::log",
    "::pow",
    "::rsqrt",
)
# Bytes that the cast of a parameter from fp32 reads and writes, per byte of it.
_CAST = 1.5
# torch's allocator on a CPU asks for huge pages.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
# The tensors of a parameter's size that one update reads and writes: parameter, gradient and state (the
# momentum; two moments).
_TENSORS = {"sgd": 5, "adam": 7, "adamw": 7}
_REORDERING = "reading and writing each at the rate that the element-wise operators reach"
# Which of its tensors is the weight of an operator, where it is not the second.
_WEIGHT = {"aten::addmm": 2, "aten::convolution_backward": 2, "aten::linear_backward": 2}


class PredictedStep:
    """The median timed step of ``analysis``: ``whole_s`` is its time, ``wait_s`` the part in which it waits
    for data.

    ``traffic_efficiency`` is the share of the rate of memory that the step's element-wise operators,
    normalizations, reductions and copies reach; 1 where it has none. ``busy_cores`` are the processors that
    the process kept busy during the timed steps, on average; None where they were not sampled.
    """

    def __init__(
        self, analysis: Analysis, costs: PageCosts | None = None, whole_s: float | None = None
    ) -> None:
        self.analysis = analysis
        self.on_device = analysis.on_device
        self.ceilings = analysis.roofs
        found = analysis.input
        self.whole_s = analysis.timed_s if whole_s is None else whole_s
        self.wait_s = min(self.whole_s, found.delay_s or 0.0) if found is not None else 0.0
        self.compute_s = self.whole_s - self.wait_s
        self.rows = analysis.operators
        self.calls = sum(row.calls for row in self.rows)
        self.costs = costs
        self.busy_cores = busy_cores(analysis)
        moving = [
            row
            for row in self.rows
            if row.category in FUSABLE and "memory" in (row.bound, row.nearest_roof) and row.lower_bound_s
        ]
        time_s = sum(row.time_s for row in moving)
        self.traffic_efficiency = (
            min(1.0, sum(row.lower_bound_s or 0.0 for row in moving) / time_s) if time_s else 1.0
        )

    @property
    def load_s(self) -> float | None:
        """The time in which the loader alone delivers the samples of a step; None where it was not
        measured."""
        found = self.analysis.input
        if found is None or found.loader_rate is None or found.loader_rate.per_s <= 0:
            return None
        per_step = 1 if found.unit == "batches" else self.analysis.workload.batch_size or 1
        return per_step / found.loader_rate.per_s

    def speedup(self, compute_s: float, *, samples: float = 1.0) -> float:
        """The throughput relative to now if a step computes for ``compute_s`` on ``samples`` times as many
        samples.

        Without workers a step waits as long as before for each sample; with workers it is never shorter than
        the loader takes.
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

    def without(self, of: Mapping[Key, float], reason: str) -> Gain:
        """The gain of a change by which these seconds go."""
        return Gain(self.saved(sum(of.values())), reason, of)

    def faults_s(self, left_s: float = 0.0) -> float:
        """The time of a timed step in which it takes new pages from the system, beyond ``left_s`` for each; 0
        where it is not known.

        The busy threads share it.
        """
        return paging_s(self.analysis, self.costs and self.costs.page_s, left_s) or 0.0

    def host_s(self, calls: float) -> float:
        """The time of a step that the host needs between ``calls`` operators, at its mean time between
        two."""
        return self.analysis.idle_s("host_bound") * min(1.0, calls / self.calls) if self.calls else 0.0


def new_time_s(
    row: OperatorRow, ceilings: Ceilings, size: float, *, flops: float = 1.0, precision: str | None = None
) -> float:
    """The time of ``row`` at its present efficiency with ``flops`` times its FLOPs, ``size`` bytes and
    another precision.

    That is its time multiplied by the ratio of the two lower bounds; its time where no ceiling bounds it.
    """
    bounds_s = []
    calls = row.calls or 1
    for times, moved, kind in ((1.0, row.bytes, row.precision), (flops, size, precision or row.precision)):
        figures = (row.matrix_flops * times, (row.flops - row.matrix_flops) * times, moved)
        matrix, other, read = (round(figure / calls) for figure in figures)
        placed = place_on_roofline(Work(matrix, other, read, precision=kind), ceilings, precision=kind)
        bounds_s.append(placed.lower_bound_s if placed is not None else 0.0)
    now_s, then_s = bounds_s
    return row.time_s * then_s / now_s if now_s and then_s else row.time_s


def weight_bytes(row: OperatorRow) -> float:
    """Return the bytes of the weights of all calls of ``row``; 0 where it has none."""
    sizes = tensors(row)
    place = _WEIGHT.get(row.name, 1)
    return (
        min(row.bytes, tensor_bytes(sizes[place], row.precision) * row.calls)
        if row.matrix_flops and len(sizes) > place
        else 0.0
    )


def parameter_bytes(analysis: Analysis) -> float:
    """Return the bytes of the parameters; where the memory of a step was not followed, of the weights of its
    matrix operators."""
    peak = analysis.memory.at_peak if analysis.memory is not None else None
    if peak is not None and peak.parameters:
        return peak.parameters
    return sum(weight_bytes(row) for row in analysis.operators if row.phase in ("", "forward", "prefill"))


def threads_changed(change: Change, step: PredictedStep) -> Gain | None:
    """Amdahl's law, with the serial share of the step; a thread beyond the cores gains nothing."""
    found = _shared_by_threads(step)
    then_s = computing_s(step, int(change.options["threads"]))
    # Beside other programs, threads wait for each other: how busy they are says nothing of fewer ones.
    if found is None or then_s is None or step.analysis.other_programs is not None:
        return None
    busy, serial, threads = found
    return Gain(
        step.speedup(then_s),
        f"the process kept {significant(busy)} of {threads} cores busy while it computed, so "
        f"{percent(1 - serial)} of "
        "its work runs in parallel",
    )


def computing_s(step: PredictedStep, threads: int) -> float | None:
    """The time that the step computes for with this number of ``threads``; None where its serial share is not
    known."""
    found = _shared_by_threads(step)
    if found is None:
        return None
    _, serial, now = found
    then = min(threads, step.analysis.environment.cpu_cores or threads)
    return step.compute_s * (serial + (1 - serial) / then) / (serial + (1 - serial) / now)


def _shared_by_threads(step: PredictedStep) -> tuple[float, float, int] | None:
    """The processors that the process kept busy while it computed, the share of the computing that one of
    them does alone, which follows from it, and the threads that compute at once; None on a device and where
    it is not known.

    Loading without workers keeps one processor busy, other waits none.
    """
    loading = step.analysis.input
    environment = step.analysis.environment
    threads = min(environment.threads or 0, environment.cpu_cores or 0)
    if step.on_device or step.busy_cores is None or step.compute_s <= 0 or threads < 2:
        return None
    loading_s = step.wait_s if loading is not None and not loading.workers else 0.0
    busy = min(max((step.busy_cores * step.whole_s - loading_s) / step.compute_s, 1.0), threads)
    return busy, (threads / busy - 1) / (threads - 1), threads


def workers(change: Change, step: PredictedStep) -> Gain | None:
    """A step as long as the slowest of three: its own work, the loading shared by the workers, and the
    processor time of both.

    On a CPU its own work is that with the ``threads`` of the change. There is no prediction where threads and
    workers need more processors than there are: threads that wait for one that has none lose more than its
    share.
    """
    found = step.analysis.input
    cores = step.analysis.environment.cpu_threads
    load_s = _load_s(step)
    if found is None or found.workers is None or not cores or step.busy_cores is None or not load_s:
        return None
    then = int(change.options["data_workers"])
    threads = change.options.get("threads", step.analysis.environment.threads)
    own_s = computing_s(step, int(threads)) if threads and not step.on_device else step.compute_s
    if own_s is None:
        return None
    shared_s = load_s / then
    of_workers = (found.workers_busy_fraction or 0.0) * found.workers
    processors_s = step.whole_s * (step.busy_cores + of_workers) / cores
    after_s = max(own_s, shared_s, processors_s)
    if not step.on_device and int(threads or 1) + load_s / after_s > cores:
        return None
    return Gain(
        step.whole_s / after_s,
        f"the longest of the step alone ({seconds(own_s)}), its batch from "
        f"{counted(then, 'worker')} ({seconds(shared_s)}) and "
        f"the processor time of both on {cores} processors ({seconds(processors_s)})",
    )


def best_split(step: PredictedStep) -> tuple[int, int | None]:
    """Return the workers that deliver batches as fast as the step takes them, and the threads that leave them
    processors.

    The threads are None where they need not change: on a device, and where there are enough processors for
    all.
    """
    found = step.analysis.input
    environment = step.analysis.environment
    load_s = _load_s(step) or step.wait_s
    cores = environment.cpu_threads or 1
    now = (found.workers if found is not None else 0) or 0
    needed = max(now + 1, math.ceil(load_s / step.compute_s)) if step.compute_s > 0 else now + 1
    if step.on_device or not environment.threads or environment.threads + needed <= cores or cores < 2:
        return min(cores, needed), None
    splits = [(cores - threads, threads) for threads in range(1, cores)]
    return min(
        splits, key=lambda split: max(computing_s(step, split[1]) or step.compute_s, load_s / split[0])
    )


def _load_s(step: PredictedStep) -> float | None:
    """The time in which one worker loads the samples of a step."""
    found = step.analysis.input
    return None if found is None or step.load_s is None else step.load_s * max(1, found.workers or 0)


def pinned(change: Change, step: PredictedStep) -> Gain | None:
    """Copies to the device at the rate of pinned memory."""
    division = step.analysis.division
    roofs = reversed(step.analysis.ceilings)
    rates = {
        roof.variant: roof.value for roof in roofs if roof.kind == "link" and roof.name.startswith("H2D")
    }
    copies_s = division.host_to_device_s if division is not None else None
    if not copies_s or not {"", "pageable"} <= rates.keys():
        return None
    return Gain(
        step.speedup(step.compute_s - copies_s * (1 - rates["pageable"] / rates[""])),
        f"copies to the device that nothing hides ({seconds(copies_s)}) at the rate of pinned memory",
    )


class Reorders(NamedTuple):
    """The time in which the calls of a convolution convert activations and weights to the layout of the
    library and back."""

    activations_s: float = 0.0
    weights_s: float = 0.0


def channels_last(change: Change, step: PredictedStep) -> Gain | None:
    """The conversions of activations around convolutions: kernels of their own on a GPU, inside the operator
    on a CPU."""
    how = "the kernels that convert them" if step.on_device else _REORDERING
    of: dict[Key, float] = {
        place: conversion_s(row) if step.on_device else reorders(row, step).activations_s
        for place, row in enumerate(step.rows)
    }
    saved_s = sum(of.values())
    if not saved_s:
        return None
    return step.without(
        of,
        f"convolutions need not convert their inputs and results: {seconds(saved_s)} for {how} "
        f"({percent(saved_s / step.whole_s)} of the step)",
    )


def reorders(row: OperatorRow, step: PredictedStep) -> Reorders:
    """Return the conversions in ``row``: on a CPU, oneDNN reads and writes every tensor of a convolution once
    more to convert it.

    It moves them at the rate that the element-wise operators of the run reach. Channels-last activations stay
    as they are; weights are converted in either case. Compiled code is not known to convert.
    """
    analysis = step.analysis
    if (
        row.category != "convolution"
        or not analysis.environment.device.startswith("cpu")
        or analysis.compiled
    ):
        return Reorders()
    weights = weight_bytes(row) * (2 if "backward" in row.name else 1)
    activations = 0.0 if analysis.workload.channels_last else max(0.0, row.bytes - weights)
    sizes = [round(2 * size / row.calls) for size in (activations, weights)]
    found = [
        memory_seconds(size, size, step.ceilings)[0] / step.traffic_efficiency * row.calls if size else 0.0
        for size in sizes
    ]
    part = min(1.0, row.time_s / sum(found)) if sum(found) else 0.0
    return Reorders(found[0] * part, found[1] * part)


def lower_precision(change: Change, step: PredictedStep) -> Gain | None:
    """Operators near their bound keep their efficiency under the roofs of the new precision, with half the
    bytes; and the casts.

    On a CPU, inefficient operators keep their time, because something else limits them, except what
    moves bytes only in them: conversions of layouts and new pages from the system, which halve.
    """
    precision = str(change.options["precision"])
    low = precision.removeprefix("amp-")
    roof = step.ceilings.compute(low, "matrix")
    lowered = {
        place: row
        for place, row in enumerate(step.rows)
        if (row.precision in ("fp32", "tf32") and row.phase != "optimizer" and not _kept(row, step))
        or (row.phase == "optimizer" and precision == low)
    }
    products_s = sum(row.time_s for row in lowered.values() if row.matrix_flops and row.phase != "optimizer")
    if roof is None or roof.precision != low or low == "fp32" or not products_s:
        return None
    share = products_s / sum(row.time_s for row in step.rows)
    # Parameters are cast forward and, in training, their gradients backward.
    memory = step.ceilings.outermost_memory()
    passes = 2 if step.analysis.workload.mode == "training" else 1
    cast_s = (
        passes * _CAST * parameter_bytes(step.analysis) / memory.value
        if memory is not None and precision != low
        else 0.0
    )
    casts = f", less {seconds(cast_s)} for casting the parameters" if cast_s else ""
    # The products wait for the casts of their weights.
    casting = {place: cast_s * row.time_s / products_s for place, row in lowered.items() if row.matrix_flops}
    return step.without(
        {
            place: row.time_s - _low_s(row, step, low) - casting.get(place, 0.0)
            for place, row in lowered.items()
        },
        f"matrix operators ({percent(share)} of the operators' time) under the {low} "
        f"roof and other operators with half the bytes, as far as a roof limits them{casts}",
    )


def _low_s(row: OperatorRow, step: PredictedStep, low: str) -> float:
    """The time of ``row`` in the precision ``low``."""
    if not row.time_s:
        return 0.0
    size = sum(other.bytes for other in step.rows)
    faults_s = step.faults_s() * row.bytes / size if size else 0.0
    moves_s = min(row.time_s, sum(reorders(row, step)) + faults_s)
    follows = step.on_device or row.bound in ("compute", "memory")
    rest_s = new_time_s(row, step.ceilings, row.bytes / 2, precision=low) if follows else row.time_s
    return moves_s / 2 + (1 - moves_s / row.time_s) * rest_s


def _kept(row: OperatorRow, step: PredictedStep) -> bool:
    return step.on_device and not row.matrix_flops and any(part in row.name for part in _KEPT_ON_CUDA)


def allocator(change: Change, step: PredictedStep) -> Gain | None:
    """The page faults of a step at the measured cost of one, divided among the busy threads; huge pages leave
    a part of it."""
    faults = step.analysis.page_faults
    costs = step.costs
    if faults is None or costs is None or change.environment.keys() == {"PYTORCH_CUDA_ALLOC_CONF"}:
        return None
    left_s = 0.0
    kept = ""
    if HUGE_PAGES in change.environment:
        if costs.in_huge_page_s is None:
            return None
        left_s = costs.in_huge_page_s
        kept = f"; in huge pages it is {seconds(costs.in_huge_page_s)}"
    busy = max(1.0, step.busy_cores or 1.0)
    return Gain(
        step.saved(step.faults_s(left_s)),
        (
            f"a step takes {faults.timed:,.0f} pages from the system; one costs "
            f"{seconds(costs.page_s)} here{kept}"
        )
        + (f"; {significant(busy)} busy threads share them" if busy > 1 else ""),
    )


def larger_batch(change: Change, step: PredictedStep) -> Gain | None:
    """Every operator with more FLOPs and activations and the same weights; the optimizer and the host's time
    stay."""
    now = step.analysis.workload.batch_size
    if now is None or not step.rows:
        return None
    times = int(change.options["batch_size"]) / now
    grown_s = sum(_grown_s(row, step, times) - row.time_s for row in step.rows if row.phase != "optimizer")
    grown_s += (times - 1) * sum(one.time_s for one in step.analysis.unmodeled if one.phase != "optimizer")
    after_s = step.compute_s + grown_s
    fixed = max(0.0, 1 - grown_s / ((times - 1) * step.compute_s))
    return Gain(
        step.speedup(after_s, samples=times),
        f"{percent(fixed)} of the step does not depend on the batch size: weights that are read once a step, "
        "calls bound by latency, the "
        f"host{', the optimizer' if step.analysis.workload.mode == 'training' else ''}",
    )


def _grown_s(row: OperatorRow, step: PredictedStep, times: float) -> float:
    if row.lower_bound_s == 0:  # a view or a dispatcher, whose time is that of the call
        return row.time_s
    if row.lower_bound_s is None:
        return row.time_s * times
    weights = weight_bytes(row)
    fixed_s = reorders(row, step).weights_s
    then_s = new_time_s(row, step.ceilings, times * (row.bytes - weights) + weights, flops=times)
    return fixed_s + (then_s - fixed_s * then_s / row.time_s if row.time_s else 0.0)


def compiled(change: Change, step: PredictedStep) -> Gain | None:
    """Chains of fusable operators become one kernel each: the tensors between them are not written and read,
    their calls go."""
    fusable = any(row.category in FUSABLE and row.bytes and tensors(row) for row in step.rows)
    if step.analysis.compiled or not fusable:
        return None
    of = defaultdict[Key, float](float)
    calls = 0.0
    place = {id(row): place for place, row in enumerate(step.rows)}
    for chain in chains(step.rows, training=step.analysis.workload.mode == "training"):
        calls += chain.fused
        for row in chain.rows:
            # What is inefficient on a processor is limited by something else than its traffic.
            if step.on_device or row.bound in ("memory", "latency"):
                of[place[id(row)]] += row.time_s * chain.inside_bytes / chain.bytes
    traffic_s = sum(of.values())
    host_s = step.host_s(calls)
    # On a CPU, inductor runs convolutions in channels-last layout, but not those of a backward, whose graph
    # has no convolution to decide by (torch/_inductor/graph.py, decide_layout_opt): what the forward saves
    # for it then comes back in the layout of eager mode.
    for at, row in enumerate(step.rows if step.analysis.workload.mode != "training" else ()):
        of[at] += reorders(row, step).activations_s
    layout_s = sum(of.values()) - traffic_s
    of["host_bound"] = host_s
    layouts = f", {seconds(layout_s)} of layout conversions around convolutions" if layout_s else ""
    return step.without(
        of,
        f"{calls:,.0f} of {step.calls:,.0f} calls can be fused with the one before: "
        f"{seconds(traffic_s)} of traffic between "
        f"them{layouts} and {seconds(host_s)} of the host's time between calls "
        f"({percent(sum(of.values()) / step.whole_s)})",
    )


def graphed(change: Change, step: PredictedStep) -> Gain | None:
    """The time in which the device waits for launches."""
    if not step.on_device:
        return None
    waits: dict[Key, float] = {cause: step.analysis.idle_s(cause) for cause in ("host_bound", "kernel_wait")}
    waited = seconds(sum(waits.values()))
    return step.without(
        waits, f"the device waits {waited} a step for the host and its launches, which one graph replaces"
    )


def fused_optimizer(change: Change, step: PredictedStep) -> Gain | None:
    """One pass over parameters, gradients and state at the rate of memory instead of a loop over the
    parameters."""
    kind = str(change.options["optimizer"]).partition(",")[0]
    memory = step.ceilings.outermost_memory()
    size = parameter_bytes(step.analysis)
    looped = {place: row for place, row in enumerate(step.rows) if in_loop(row) and _takes_time(row)}
    if memory is None or not size or not looped or kind not in _TENSORS:
        return None
    now_s = sum(row.time_s for row in looped.values())
    fused_s = _TENSORS[kind] * size / memory.value
    calls = sum(row.calls for row in looped.values())
    host_s = step.host_s(calls)
    part = max(0.0, 1 - fused_s / now_s)
    return step.without(
        {**{place: row.time_s * part for place, row in looped.items()}, "host_bound": host_s},
        f"one pass over {_TENSORS[kind]} tensors for each parameter takes {seconds(fused_s)} at "
        "the rate of memory; the "
        f"{calls:,.0f} calls take {seconds(now_s)}, and the host {seconds(host_s)} between them",
    )


def _takes_time(row: OperatorRow) -> bool:
    """Whether a step is shorter without it: a copy, or what no other kernel hides."""
    return row.time_s > 0 and (row.exposed_s is None or row.exposed_s > 0 or transfers(row))
