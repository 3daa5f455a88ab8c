"""The gain of channels-last images: convolutions that need not convert their layout."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.roofline.advice.layout import conversion_s
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.bounds.model import memory_seconds
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step, weight_bytes
from rooflines.units import percent, seconds


class Reorders(NamedTuple):
    """The time in which the calls of a convolution convert activations and weights to the layout of the library and back."""

    activations_s: float = 0.0
    weights_s: float = 0.0


def predict(change: Change, step: Step) -> Prediction | None:
    """The conversions of activations around convolutions: kernels of their own on a GPU, inside the operator on a CPU."""
    if step.on_device:
        saved_s, how = sum(conversion_s(row) for row in step.rows), "the kernels that convert them"
    else:
        saved_s, how = (
            sum(reorders(row, step).activations_s for row in step.rows),
            "reading and writing each at the rate that the element-wise operators reach",
        )
    if not saved_s:
        return None
    return Prediction(
        speedup=step.saved(saved_s),
        reason=f"convolutions need not convert their inputs and results: {seconds(saved_s)} for {how} "
        f"({percent(saved_s / step.whole_s)} of the step)",
    )


def reorders(row: OperatorRow, step: Step) -> Reorders:
    """Return the conversions in ``row``: on a CPU, oneDNN reads and writes every tensor of a convolution once more to convert it.

    It moves them at the rate that the element-wise operators of the run reach. Channels-last activations stay as they are; weights are
    converted in either case. Compiled code is not known to convert.
    """
    analysis = step.analysis
    if row.category != "convolution" or not analysis.environment.device.startswith("cpu") or analysis.compiled:
        return Reorders()
    weights = weight_bytes(row) * (2 if "backward" in row.name else 1)
    activations = 0.0 if analysis.workload.channels_last else max(0.0, row.bytes - weights)
    found = [_moved_s(2 * size / row.calls, step) * row.calls for size in (activations, weights)]
    part = min(1.0, row.time_s / sum(found)) if sum(found) else 0.0
    return Reorders(found[0] * part, found[1] * part)


def _moved_s(size: float, step: Step) -> float:
    return memory_seconds(round(size), round(size), step.ceilings)[0] / step.traffic_efficiency if size else 0.0
