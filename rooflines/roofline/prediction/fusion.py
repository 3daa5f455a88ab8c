"""The gain of torch.compile: tensors that pass between fused operators without going through memory, and fewer calls."""

from __future__ import annotations

from rooflines.roofline.advice.fusion import chains
from rooflines.roofline.advice.small_kernels import FUSABLE
from rooflines.roofline.prediction.layout import reorders
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.roofline.tensor_sizes import tensors
from rooflines.units import percent, seconds


def predict(change: Change, step: Step) -> Prediction | None:
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
