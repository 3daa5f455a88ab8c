"""Advice on the steps of a server."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case
from rooflines.roofline.advice.host import IDLE
from rooflines.roofline.advice.small_kernels import SERVER_GRAPHS, has_graph
from rooflines.units import percent, seconds


def eager_decode(case: Case) -> Advice | None:
    """Decode steps that the host launches kernel by kernel, more slowly than the device runs them."""
    analysis = case.analysis
    served = analysis.serving
    decode = next((one for one in served.kinds if one.kind == "decode"), None) if served is not None else None
    if decode is None or served is None or has_graph(analysis) or decode.step_s <= 0:
        return None
    of_steps = decode.steps / sum(one.steps for one in served.kinds)
    idle_s = decode.category_breakdown.get("idle", 0.0)
    host_s, arriving_s = case.idle_s("host_bound"), case.idle_s("kernel_wait")
    saves_s = min(idle_s * of_steps, host_s + arriving_s)
    if saves_s < IDLE * case.step_s:
        return None
    reads = decode.reads
    reached = f"; it reaches {percent(reads.efficiency)} of the bound of its weights and KV cache" if reads and reads.efficiency else ""
    of_host = min(host_s, saves_s)
    return Advice(
        title="Replay decode steps as graphs",
        saves_s=saves_s,
        evidence=(
            f"the device is idle for {seconds(idle_s)} of a decode step of {seconds(decode.step_s)}, and no kernel was launched by a "
            f"graph{reached}"
        ),
        suggestion=SERVER_GRAPHS,
        of={("idle", "host_bound"): of_host, ("idle", "kernel_wait"): saves_s - of_host},
    )
