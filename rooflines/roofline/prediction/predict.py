"""The prediction of a change, by its kind: one rule and one row of ``_RULES`` for each."""

from __future__ import annotations

from rooflines.roofline.advice.case import Case, idle_of
from rooflines.roofline.advice.fusion import chains
from rooflines.roofline.advice.optimizer import in_loop
from rooflines.roofline.advice.small_kernels import FUSABLE
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.prediction import layout, loading, precision, threads
from rooflines.roofline.prediction.layout import reorders
from rooflines.roofline.prediction.records import Change, PageCosts, Prediction
from rooflines.roofline.prediction.step import Step, new_time_s, parameter_bytes, weight_bytes
from rooflines.roofline.tensor_sizes import tensors
from rooflines.units import percent, seconds, significant

# torch's allocator on a CPU asks for huge pages.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
# The tensors of a parameter's size that one update reads and writes: parameter, gradient and state (the momentum; two moments).
_TENSORS = {"sgd": 5, "adam": 7, "adamw": 7}


def _allocator(change: Change, step: Step) -> Prediction | None:
    """The page faults of a step at the measured cost of one, divided among the busy threads; huge pages leave a part of it."""
    faults, costs = step.analysis.page_faults, step.costs
    if faults is None or costs is None or change.environment.keys() == {"PYTORCH_CUDA_ALLOC_CONF"}:
        return None
    left_s, kept = 0.0, ""
    if HUGE_PAGES in change.environment:
        if costs.in_huge_page_s is None:
            return None
        left_s, kept = costs.in_huge_page_s, f"; in huge pages it is {seconds(costs.in_huge_page_s)}"
    busy = max(1.0, step.busy_cores or 1.0)
    return Prediction(
        speedup=step.speedup(max(step.compute_s - step.faults_s(left_s), 0.01 * step.compute_s)),
        reason=f"a step takes {faults.timed:,.0f} pages from the system; one costs {seconds(costs.page_s)} here{kept}"
        + (f"; {significant(busy)} busy threads share them" if busy > 1 else ""),
    )


def _larger_batch(change: Change, step: Step) -> Prediction | None:
    """Every operator with more FLOPs and activations and the same weights; the optimizer and the host's time stay."""
    now = step.analysis.workload.batch_size
    if now is None or not step.rows:
        return None
    times = int(change.options["batch_size"]) / now
    grown_s = sum(_grown_s(row, step, times) - row.time_s for row in step.rows if row.phase != "optimizer")
    grown_s += (times - 1) * sum(one.time_s for one in step.analysis.unmodelled if one.phase != "optimizer")
    after_s = step.compute_s + grown_s
    fixed = max(0.0, 1 - grown_s / ((times - 1) * step.compute_s))
    return Prediction(
        speedup=step.speedup(after_s, samples=times),
        reason=f"{percent(fixed)} of the step does not depend on the batch size: weights that are read once a step, "
        f"calls bound by latency, the host{', the optimizer' if step.analysis.workload.mode == 'training' else ''}",
    )


def _grown_s(row: OperatorRow, step: Step, times: float) -> float:
    if row.lower_bound_s == 0:  # a view or a dispatcher, whose time is that of the call
        return row.time_s
    if row.lower_bound_s is None:
        return row.time_s * times
    weights, fixed_s = weight_bytes(row), reorders(row, step).weights_s
    then_s = new_time_s(row, step.ceilings, flops=times, size=lambda size: times * (size - weights) + weights)
    return fixed_s + (then_s - fixed_s * then_s / row.time_s if row.time_s else 0.0)


def _compiled(change: Change, step: Step) -> Prediction | None:
    """Chains of fusable operators become one kernel each: the tensors between them are not written and read, their calls go."""
    if step.analysis.compiled or not step.rows:
        return None
    if not any(row.category in FUSABLE and row.bytes and tensors(row) for row in step.rows):
        return None
    traffic_s = calls = 0.0
    for chain in chains(step.rows, training=step.analysis.workload.mode == "training"):
        traffic_s += sum(row.time_s for row in chain.rows) * chain.inside_bytes / chain.bytes
        calls += chain.fused
    host_s = step.host_s(calls)
    # On a CPU, inductor runs convolutions in channels-last layout.
    layout_s = sum(reorders(row, step).activations_s for row in step.rows)
    saved_s = traffic_s + host_s + layout_s
    layouts = f", {seconds(layout_s)} of layout conversions around convolutions" if layout_s else ""
    return Prediction(
        speedup=step.saved(saved_s),
        reason=f"{calls:,.0f} of {step.calls:,.0f} calls can be fused with the one before: {seconds(traffic_s)} of traffic between "
        f"them{layouts} and {seconds(host_s)} of the host's time between calls ({percent(saved_s / step.whole_s)})",
    )


def _graphed(change: Change, step: Step) -> Prediction | None:
    """The time in which the device waits for launches."""
    if not step.on_device:
        return None
    host_s, arriving_s = idle_of(step.analysis, "host_bound"), idle_of(step.analysis, "kernel_wait")
    return Prediction(
        speedup=step.saved(host_s + arriving_s),
        reason=f"the device waits {seconds(host_s + arriving_s)} a step for the host and its launches, which one graph replaces",
    )


def _fused_optimizer(change: Change, step: Step) -> Prediction | None:
    """One pass over parameters, gradients and state at the rate of memory instead of a loop over the parameters."""
    kind = str(change.options["optimizer"]).partition(",")[0]
    memory, size = step.ceilings.outermost_memory(), parameter_bytes(step.analysis)
    looped = [one for one in Case(step.analysis).ran(in_loop) if isinstance(one.row, OperatorRow)]
    if memory is None or not size or not looped:
        return None
    now_s = sum(one.row.time_s for one in looped)
    fused_s = _TENSORS[kind] * size / memory.value
    host_s = step.host_s(sum(one.row.calls for one in looped))
    return Prediction(
        speedup=step.saved(max(0.0, now_s - fused_s) + host_s),
        reason=f"one pass over {_TENSORS[kind]} tensors for each parameter takes {seconds(fused_s)} at the rate of memory; the "
        f"{sum(one.row.calls for one in looped):,.0f} calls take {seconds(now_s)}, and the host {seconds(host_s)} between them",
    )


_RULES = {
    "allocator": _allocator,
    "precision": precision.predict,
    "channels-last": layout.predict,
    "compile": _compiled,
    "threads": threads.predict,
    "batch-size": _larger_batch,
    "optimizer": _fused_optimizer,
    "data-workers": loading.workers,
    "pin-memory": loading.pinned,
    "cuda-graphs": _graphed,
}


def predict(change: Change, analysis: Analysis, costs: PageCosts | None = None) -> Prediction | None:
    """Return the gain of ``change`` for the run of ``analysis``; None where nothing in the analysis gives one.

    ``costs`` are those of new memory on this machine; without them a page costs what it did in the run.
    """
    step = Step(analysis, costs)
    if not step.whole_s:
        return None
    rule = _RULES.get(change.kind)
    return rule(change, step) if rule is not None else None
