"""The gain of a lower precision."""

from __future__ import annotations

from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.prediction.layout import reorders
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step, new_time_s, parameter_bytes
from rooflines.units import percent, seconds

# Operators that autocast runs in fp32 on CUDA; on a CPU it does so for few, and none that are common.
_KEPT_ON_CUDA = ("layer_norm", "softmax", "loss", "norm.", "cumsum", "prod", "::exp", "::log", "::pow", "::rsqrt")
# Bytes that the cast of a parameter from fp32 reads and writes, per byte of it.
_CAST = 1.5


def predict(change: Change, step: Step) -> Prediction | None:
    """Every operator at its present efficiency under the roofs of the new precision, with half the bytes, and the casts."""
    precision = str(change.options["precision"])
    low = precision.removeprefix("amp-")
    roof = step.ceilings.compute(low, "matrix")
    rows = [row for row in step.rows if row.precision in ("fp32", "tf32") and row.phase != "optimizer" and not _kept(row, step)]
    if roof is None or roof.precision != low or not any(row.matrix_flops for row in rows):
        return None
    if precision == low:
        rows += [row for row in step.rows if row.phase == "optimizer"]
    saved_s = sum(row.time_s - _low_s(row, step, low) for row in rows)
    share = sum(row.time_s for row in rows if row.matrix_flops) / sum(row.time_s for row in step.rows)
    cast_s = _casts_s(step) if precision != low else 0.0
    casts = f", less {seconds(cast_s)} for casting the parameters" if cast_s else ""
    return Prediction(
        speedup=step.saved(saved_s - cast_s),
        reason=f"matrix operators ({percent(share)} of the operators' time) under the {low} "
        f"roof and other operators with half the bytes, each at its present efficiency{casts}",
    )


def _low_s(row: OperatorRow, step: Step, low: str) -> float:
    """The time of ``row`` in the precision ``low``; converting layouts is traffic, which halves."""
    converts_s = sum(reorders(row, step))
    then_s = new_time_s(row, step.ceilings, size=lambda size: size / 2, precision=low)
    return converts_s / 2 + (1 - converts_s / row.time_s) * then_s if row.time_s else 0.0


def _kept(row: OperatorRow, step: Step) -> bool:
    return step.on_device and not row.matrix_flops and any(part in row.name for part in _KEPT_ON_CUDA)


def _casts_s(step: Step) -> float:
    """The time to cast the parameters forward and, in training, their gradients backward."""
    memory, passes = step.ceilings.outermost_memory(), 2 if step.analysis.workload.mode == "training" else 1
    return passes * _CAST * parameter_bytes(step.analysis) / memory.value if memory is not None else 0.0
