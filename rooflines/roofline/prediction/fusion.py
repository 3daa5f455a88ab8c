"""The gain of torch.compile: tensors that pass between fused operators without going through memory, and fewer calls."""

from __future__ import annotations

from collections import defaultdict

from rooflines.roofline.advice.small_kernels import FUSABLE
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.prediction.layout import reorders
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step, tensor_bytes, tensors
from rooflines.units import percent, seconds


def predict(change: Change, step: Step) -> Prediction | None:
    """Chains of fusable operators become one kernel each: the tensors between them are not written and read, their calls go."""
    if step.analysis.compiled or not step.rows:
        return None
    chains: dict[tuple[str, str, tuple[int, ...]], list[OperatorRow]] = defaultdict(list)
    for row in step.rows:
        sizes = tensors(row)
        if row.category in FUSABLE and row.bytes and sizes:
            chains[row.module.rpartition(".")[0], row.phase, sizes[0]].append(row)
    if not chains:
        return None
    traffic_s = calls = 0.0
    # The backward pass needs what the forward pass computed, so that only reading it again is saved.
    passes = 1 if step.analysis.workload.mode == "training" else 2
    for (_, _, shape), rows in chains.items():
        fused = sum(row.calls for row in rows) - _kernels(rows)
        if fused <= 0:
            continue
        time_s, size = sum(row.time_s for row in rows), sum(row.bytes for row in rows)
        saved = min(size, passes * fused * tensor_bytes(shape, rows[0]))
        traffic_s += time_s * saved / size
        calls += fused
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


def _kernels(rows: list[OperatorRow]) -> float:
    """How many chains ``rows`` form: as many as the operator that is called most often, which begins each or is in each."""
    calls: dict[str, float] = defaultdict(float)
    for row in rows:
        calls[row.name] += row.calls
    return max(calls.values())
