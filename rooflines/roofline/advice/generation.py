"""Advice on decode: what it reads of the memory, and what the host keeps it waiting for."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case
from rooflines.roofline.advice.small_kernels import has_graph
from rooflines.units import percent, seconds, si

# From this share of its bound on, decode takes its time for what it reads, and below this share of idle time not for the host.
_READING, _IDLE = 0.5, 0.1
_INT8_BYTES = 1
_ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
SMALLER_WEIGHTS = "weight-only int8 or int4 (torchao), or a larger batch, which reads the weights once for more tokens"
DECODE_GRAPH = 'a static KV cache and torch.compile(mode="reduce-overhead"), which replays decode steps as CUDA graphs'


def read_weights(case: Case) -> Advice | None:
    """Decode steps of a generation on a device that mostly read weights: fewer bytes in each are read in less time."""
    analysis = case.analysis
    decode = analysis.generation.of("decode") if analysis.generation is not None else None
    reads, item = decode.reads if decode is not None else None, _ITEM_BYTES.get(analysis.workload.precision)
    if decode is None or reads is None or reads.lower_bound_s is None or reads.efficiency is None or item is None:
        return None
    share = reads.weight_bytes / (reads.weight_bytes + reads.kv_cache_bytes)
    if not case.on_device or reads.assumption or reads.efficiency < _READING or share < 0.5 or analysis.workload.quantized:
        return None
    calls = decode.steps / analysis.basis.steps
    saves_s = calls * reads.lower_bound_s * share * (1 - _INT8_BYTES / item)
    products = {one.key: one.left_s for one in case.ran(lambda one: one.row.phase == "decode" and one.category == "matmul")}
    evidence = (
        f"a decode step of {seconds(decode.step_s)} reads {si(reads.weight_bytes, 'B')} of weights, {percent(share)} of what it must "
        f"read, and reaches {percent(reads.efficiency)} of the bound of reading; the saving is that of int8"
    )
    return Advice("Decode is bound by reading its weights", saves_s, evidence, SMALLER_WEIGHTS, products)


def waits_for_host(case: Case) -> Advice | None:
    """Decode steps of a generation on a device that the host launches more slowly than the device runs them."""
    analysis = case.analysis
    decode = analysis.generation.of("decode") if analysis.generation is not None else None
    if decode is None or not case.on_device or has_graph(analysis) or not case.step_s:
        return None
    idle_s, host_s = decode.category_breakdown.get("idle", 0.0), case.idle_s("host_bound")
    saves_s = min(idle_s * decode.steps / analysis.basis.steps, host_s + case.idle_s("kernel_wait"))
    if saves_s < _IDLE * case.step_s:
        return None
    evidence = f"the device is idle for {seconds(idle_s)} of a decode step of {seconds(decode.step_s)}, and no graph was launched"
    of = {"host_bound": min(host_s, saves_s), "kernel_wait": max(0.0, saves_s - host_s)}
    return Advice("Replay decode steps as graphs", saves_s, evidence, DECODE_GRAPH, of)
