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
    """Operators near their bound keep their efficiency under the roofs of the new precision, with half the bytes; and the casts.

    On a CPU, operators far from every roof keep their time, because something else limits them, except what moves bytes only in them:
    conversions of layouts and new pages from the system, which halve.
    """
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
        f"roof and other operators with half the bytes, as far as a roof limits them{casts}",
    )


def _low_s(row: OperatorRow, step: Step, low: str) -> float:
    """The time of ``row`` in the precision ``low``."""
    if not row.time_s:
        return 0.0
    moves_s = min(row.time_s, sum(reorders(row, step)) + step.faults_s_of(row))
    follows = step.on_device or row.bound in ("compute", "memory")
    rest_s = new_time_s(row, step.ceilings, size=lambda size: size / 2, precision=low) if follows else row.time_s
    return moves_s / 2 + (1 - moves_s / row.time_s) * rest_s


def _kept(row: OperatorRow, step: Step) -> bool:
    return step.on_device and not row.matrix_flops and any(part in row.name for part in _KEPT_ON_CUDA)


def _casts_s(step: Step) -> float:
    """The time to cast the parameters forward and, in training, their gradients backward."""
    memory, passes = step.ceilings.outermost_memory(), 2 if step.analysis.workload.mode == "training" else 1
    return passes * _CAST * parameter_bytes(step.analysis) / memory.value if memory is not None else 0.0
