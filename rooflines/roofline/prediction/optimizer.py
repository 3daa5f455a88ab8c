"""The gain of a fused optimizer."""

from __future__ import annotations

from rooflines.roofline.advice.case import Case
from rooflines.roofline.advice.optimizer import in_loop
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step, parameter_bytes
from rooflines.units import seconds

# The tensors of a parameter's size that one update reads and writes: parameter, gradient and state (the momentum; two moments).
_TENSORS = {"sgd": 5, "adam": 7, "adamw": 7}


def predict(change: Change, step: Step) -> Prediction | None:
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
