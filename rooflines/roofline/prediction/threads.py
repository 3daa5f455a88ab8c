"""The gain of another number of threads on a CPU."""

from __future__ import annotations

from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.units import percent, significant


def predict(change: Change, step: Step) -> Prediction | None:
    """Amdahl's law, with the serial share of the step; a thread beyond the cores gains nothing."""
    busy, serial, then_s = busy_computing(step), _serial_share(step), computing_s(step, int(change.options["threads"]))
    if busy is None or serial is None or then_s is None:
        return None
    return Prediction(
        speedup=step.speedup(then_s),
        reason=f"the process kept {significant(busy)} of {_threads(step)} cores busy while it computed, so {percent(1 - serial)} of "
        "its work runs in parallel",
    )


def computing_s(step: Step, threads: int) -> float | None:
    """The time that the step computes for with this number of ``threads``; None where its serial share is not known."""
    serial, now = _serial_share(step), _threads(step)
    if serial is None or now is None:
        return None
    then = min(threads, step.analysis.environment.cpu_cores or threads)
    return step.compute_s * (serial + (1 - serial) / then) / (serial + (1 - serial) / now)


def busy_computing(step: Step) -> float | None:
    """The processors that the process kept busy while it computed: loading without workers keeps one busy, other waits none."""
    found, now = step.analysis.input, _threads(step)
    if step.busy_cores is None or step.compute_s <= 0 or now is None:
        return None
    loading_s = step.wait_s if found is not None and not found.workers else 0.0
    return min(max((step.busy_cores * step.whole_s - loading_s) / step.compute_s, 1.0), float(now))


def _serial_share(step: Step) -> float | None:
    """The share of the computing that one processor does alone, which follows from how many are busy; None on a device."""
    busy, now = busy_computing(step), _threads(step)
    if step.on_device or busy is None or now is None or now < 2:
        return None
    return (now / busy - 1) / (now - 1)


def _threads(step: Step) -> int | None:
    """The threads that compute at once."""
    now, cores = step.analysis.environment.threads, step.analysis.environment.cpu_cores
    return min(now, cores) if now and cores else None
