"""The gain of a larger batch: what a step costs whatever its size is shared by more samples."""

from __future__ import annotations

from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.prediction.layout import reorders
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step, new_time_s, weight_bytes
from rooflines.units import percent


def predict(change: Change, step: Step) -> Prediction | None:
    """Every operator with more FLOPs and activations and the same weights; the optimizer and the host's time stay."""
    now = step.analysis.workload.batch_size
    if now is None or not step.rows:
        return None
    times = int(change.options["batch_size"]) / now
    grown_s = sum(_grown_s(row, step, times) - row.time_s for row in step.rows if row.phase != "optimizer")
    coverage = step.analysis.coverage
    grown_s += (times - 1) * sum(
        one.time_s for one in (coverage.unmodelled if coverage is not None else ()) if one.phase != "optimizer"
    )
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
