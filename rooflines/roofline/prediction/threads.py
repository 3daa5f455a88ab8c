"""The gain of another number of threads on a CPU."""

from __future__ import annotations

from rooflines.roofline.analysis import Analysis
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.roofline.usage.device_usage import HOST
from rooflines.units import percent, significant


def predict(change: Change, step: Step) -> Prediction | None:
    """Amdahl's law: the serial share follows from how many cores the process kept busy, and a thread beyond the cores gains nothing."""
    environment, busy = step.analysis.environment, busy_cores(step.analysis)
    now, cores = environment.threads, environment.cpu_cores
    if step.on_device or busy is None or not now or not cores or min(now, cores) < 2:
        return None
    now, then = min(now, cores), min(int(change.options["threads"]), cores)
    busy = min(max(busy, 1.0), float(now))
    serial = (now / busy - 1) / (now - 1)
    before, after = serial + (1 - serial) / now, serial + (1 - serial) / then
    return Prediction(
        speedup=step.speedup(step.compute_s * after / before),
        reason=f"the process kept {significant(busy)} of {now} cores busy, so {percent(1 - serial)} of its work runs in parallel",
    )


def busy_cores(analysis: Analysis) -> float | None:
    """The processors that the process kept busy during the timed steps, on average; None where they were not sampled."""
    host = analysis.usage.of(HOST) if analysis.usage is not None and analysis.usage.window == "timed pass" else None
    gauge = host.gauges.get("process_cpu_utilization") if host is not None else None
    return gauge.mean if gauge is not None else None
