"""The laws of single cases: what must hold of one workload because of how it runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflines.gpu_check.laws import WALL_TOLERANCE, judged, left_out
from rooflines.gpu_check.records import Check, Device
from rooflines.profiler.records import Run
from rooflines.profiler.trace.records import RUNTIME, Trace
from rooflines.roofline.analysis import Analysis, DeviceUsage
from rooflines.roofline.usage.device_usage import MonitorAnalysis, figure
from rooflines.units import binary_bytes, percent, si

# Of the matrix FLOPs of a network; the rest may be, for example, a loss outside of autocast.
_MOST_MATRIX_FLOPS = 0.99
# The operator by which torch's gradient scaler looks for overflows.
_SCALER = "aten::_amp_foreach_non_finite_check_and_unscale_"
# A device that is idle for less than this is not launch bound; one that is idle for most of the time is.
_LEAST_IDLE = 0.2
_MOSTLY_IDLE = 0.5
_IDLE_TOLERANCE = 0.01
_EVENTS = "cuda events"
_EVENTS_LAW = f"sum of CUDA events = wall time within {percent(WALL_TOLERANCE)}"
# Of a network that fills the GPU, sampled while it runs.
_LEAST_BUSY = 0.5
# NVML's total of a GPU includes memory that the driver keeps, torch's does not.
_MEMORY_TOLERANCE = 0.1


class Profiled(NamedTuple):
    """What ``rooflines profile`` left of a case."""

    device: Device
    run: Run
    analysis: Analysis
    trace: Trace | None


def matrix_precision(label: str, found: Profiled, precision: str) -> Check:
    """Products and convolutions are judged by the roof of the ``precision`` in which they ran."""
    law = f"{percent(_MOST_MATRIX_FLOPS)} of the matrix FLOPs are {precision}"
    total = sum(row.matrix_flops for row in found.analysis.operators)
    if not total:
        return left_out(law, label, "no operator has matrix FLOPs")
    shares: dict[str, float] = {}
    for row in found.analysis.operators:
        if row.matrix_flops:
            name = row.precision or "unknown"
            shares[name] = shares.get(name, 0.0) + row.matrix_flops / total
    parts = ", ".join(f"{name} {percent(share, 1)}" for name, share in sorted(shares.items(), key=lambda one: -one[1]))
    return judged(law, label, shares.get(precision, 0.0) >= _MOST_MATRIX_FLOPS, parts)


def judged_by_tensor_cores(label: str, found: Profiled) -> Check:
    """With TF32, products have the TF32 roof of the matrix units, not the FP32 roof of the vector units."""
    law = "the roof of products is GEMM tf32"
    if found.device.rehearsed:
        return left_out(law, label, "a CPU has no TF32")
    products = [row for row in found.analysis.operators if row.matrix_flops]
    roofs = {f"{row.precision} {row.engine}" for row in products}
    ceiling = any(one.precision == "tf32" and one.engine == "matrix" for one in found.analysis.ceilings)
    if not ceiling:
        return left_out(law, label, "this device has no TF32")
    return judged(law, label, roofs == {"tf32 matrix"}, ", ".join(sorted(roofs)) or "no products")


def loss_is_finite(label: str, found: Profiled) -> Check:
    """The loss of the first and of the last step is a number."""
    finite = found.run.facts.loss_finite
    law = "the loss is finite"
    if finite is None:
        return left_out(law, label, "the run did not record its losses")
    return judged(law, label, finite, "finite" if finite else "not finite")


def scaler_at_work(label: str, found: Profiled) -> Check:
    """A gradient scaler looks for overflows in every step."""
    law = "a gradient scaler is at work"
    if found.device.rehearsed:
        return left_out(law, label, "a CPU trains in fp16 without a gradient scaler")
    names = {row.name for row in found.analysis.rows}
    return judged(law, label, _SCALER in names, f"{_SCALER} is {'' if _SCALER in names else 'not '}in the trace")


def idle_time_named(label: str, found: Profiled) -> Check:
    """The causes of the device's idle time add up to it; where that is most of a step, the host limits the step."""
    law = f"idle time above {percent(_LEAST_IDLE)} has a cause, above {percent(_MOSTLY_IDLE)} the host limits the step"
    timeline, causes = found.analysis.timeline, found.analysis.idle_breakdown
    if found.device.rehearsed or timeline is None or causes is None or not timeline.span_s:
        return left_out(law, label, "idle time is that of a device beside the host")
    idle = timeline.idle_s / timeline.span_s
    if idle < _LEAST_IDLE:
        return left_out(law, label, f"the device is idle for {percent(idle)} only: this host is fast enough")
    named = sum(causes.values()) / timeline.idle_s
    limit = found.analysis.limited_by
    holds = abs(named - 1) <= _IDLE_TOLERANCE and (idle < _MOSTLY_IDLE or limit == "host")
    return judged(
        law, label, holds, f"idle for {percent(idle)}, {percent(named)} of it with a cause; limited by {limit or 'the device'}"
    )


def compiled_by_inductor(label: str, found: Profiled) -> Check:
    """Code of ``torch.compile`` ran, and the time that compiling took is known."""
    seconds = found.run.facts.compile_s
    holds = found.analysis.compiled and seconds is not None
    return judged("compiled code ran", label, holds, "none" if seconds is None else f"compiled in {si(seconds, 's')}")


def one_graph_launch(label: str, found: Profiled) -> Check:
    """A step that was captured is one launch of a CUDA graph."""
    law = "one launch of a CUDA graph per step"
    if found.trace is None:
        return left_out(law, label, "there is no trace")
    launches = _runtime_calls(found.trace, "cudaGraphLaunch")
    steps = found.analysis.basis.steps
    return judged(law, label, launches == steps, f"{launches} in {steps} steps")


def _runtime_calls(trace: Trace, prefix: str) -> int:
    named = np.array([name.startswith(prefix) for name in trace.names], bool)
    return int((named[trace.host.name] & (trace.host.kind == RUNTIME)).sum())


def in_several_streams(label: str, found: Profiled) -> Check:
    """The trace shows the kernels of both streams."""
    law = "kernels run in at least two streams"
    if found.device.rehearsed or found.trace is None:
        return left_out(law, label, "a CPU has no streams")
    streams = np.unique(found.trace.device.stream)
    return judged(law, label, len(streams) >= 2, f"streams {', '.join(map(str, streams.tolist()))}")


def events_see_all_work(label: str, found: Profiled) -> Check:
    """The CUDA events around the timed steps saw all of their work.

    The recording compares the sum of the events with the wall time between two synchronisations, and takes the wall clock where they
    differ: events see the stream that they are recorded in, on the device that is timed.
    """
    steps = found.run.facts.steps
    if found.device.rehearsed or steps is None or not steps.timed_ns:
        return left_out(_EVENTS_LAW, label, "no steps were timed on a GPU")
    return judged(_EVENTS_LAW, label, steps.clock == _EVENTS, f"steps timed by {steps.clock}")


def other_stream_noticed(label: str, found: Profiled) -> Check:
    """Where another stream runs on after a step's last event, the steps are timed by the wall clock."""
    law = "steps with work in another stream are timed by the wall clock"
    steps = found.run.facts.steps
    if found.device.rehearsed or steps is None or not steps.timed_ns:
        return left_out(law, label, "no steps were timed on a GPU")
    return judged(law, label, steps.clock != _EVENTS, f"steps timed by {steps.clock}")


def ran_on(label: str, found: Profiled, device: str) -> Check:
    """The run is of the GPU that the script chose, and its operators took time there."""
    recorded = found.run.facts.environment.device
    busy_s = found.analysis.timeline.busy_s if found.analysis.timeline else 0.0
    return judged(
        f"the run is of {device}", label, recorded == device and busy_s > 0, f"{recorded}, busy for {si(busy_s, 's')} per step"
    )


def sampled_gpu_works(label: str, found: Profiled) -> Check:
    """The sampled GPU is the one that ran the steps; NVML and torch may number it differently."""
    usage = found.analysis.usage.of(found.run.facts.environment.device) if found.analysis.usage else None
    return gpu_busy(label, usage)


def gpu_busy(label: str, usage: DeviceUsage | None) -> Check:
    """The sampled GPU was busy; of a slice (MIG), whose utilization no driver reports, that this process holds memory on it."""
    law = "the GPU that was sampled did the work"
    if usage is None:
        return judged(law, label, False, "the GPU was not sampled")
    if busy := usage.gauges.get("gpu_utilization"):
        return judged(law, label, busy.highest >= _LEAST_BUSY, f"{usage.device} was busy for up to {percent(busy.highest)}")
    if memory := usage.gauges.get("process_memory_bytes"):
        return judged(law, label, memory.highest > 0, f"the process holds up to {binary_bytes(memory.highest)} on {usage.device}")
    return left_out(law, label, "the driver reports neither utilization nor the memory of processes")


def sampled_slice(label: str, found: Profiled) -> Check:
    """The memory that NVML reports is that of the slice, not of the whole GPU."""
    law = "the readings are those of the MIG slice"
    environment = found.run.facts.environment
    usage = found.analysis.usage.of(environment.device) if found.analysis.usage else None
    total = usage.gauges.get("memory_total_bytes") if usage else None
    if total is None or not environment.device_memory_bytes:
        return left_out(law, label, "the size of the memory was not sampled")
    apart = total.end / environment.device_memory_bytes - 1
    return judged(
        law, label, abs(apart) <= _MEMORY_TOLERANCE, f"{binary_bytes(total.end)} of {binary_bytes(environment.device_memory_bytes)}"
    )


def program_monitored(label: str, code: int, analysis: MonitorAnalysis, device: Device) -> tuple[Check, ...]:
    """The program succeeded under ``rooflines monitor``, which returned its exit code ``code`` and sampled the GPU that it used."""
    ending = analysis.ending
    found = f"exit code {code}" + (f", the program's {ending.exit_code}" if ending else ", the program's end was not seen")
    succeeded = ending is not None and code == ending.exit_code == 0
    checks = [judged("rooflines monitor returns the exit code 0 of the program", label, succeeded, found)]
    gpus = [one for one in (analysis.usage.devices if analysis.usage else ()) if one.device != "host"]
    if device.rehearsed:
        checks.append(left_out("the GPU that was sampled did the work", label, "there is no GPU"))
    else:
        busiest = max(gpus, key=lambda one: figure(one, "gpu_utilization", "highest") or 0.0, default=None)
        checks.append(gpu_busy(label, busiest))
    host = analysis.usage.of("host") if analysis.usage else None
    memory = (figure(host, "process_rss_bytes", "highest") if host else None) or 0.0
    checks.append(judged("the program's memory was sampled", label, memory > 0, f"up to {binary_bytes(memory)}"))
    return tuple(checks)
