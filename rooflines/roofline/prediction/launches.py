"""The gain of a CUDA graph."""

from __future__ import annotations

from rooflines.roofline.advice.case import idle_of
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.units import seconds


def predict(change: Change, step: Step) -> Prediction | None:
    """The time in which the device waits for launches."""
    if not step.on_device:
        return None
    host_s, arriving_s = idle_of(step.analysis, "host_bound"), idle_of(step.analysis, "kernel_wait")
    return Prediction(
        speedup=step.saved(host_s + arriving_s),
        reason=f"the device waits {seconds(host_s + arriving_s)} a step for the host and its launches, which one graph replaces",
    )
