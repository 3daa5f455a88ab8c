"""The gain of more loader workers and of pinned memory."""

from __future__ import annotations

from rooflines.device_specs.records import Ceiling
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.roofline.prediction.threads import busy_cores
from rooflines.units import seconds, significant


def workers(change: Change, step: Step) -> Prediction | None:
    """A step as long as the slowest of three: its own work, the loading shared by the workers, and the processor time of both."""
    found, cores, busy, load_s = step.analysis.input, step.analysis.environment.cpu_threads, busy_cores(step.analysis), step.load_s
    if found is None or found.workers is None or not cores or busy is None or load_s is None:
        return None
    then = int(change.options["data_workers"])
    shared_s = load_s * max(1, found.workers) / then
    of_workers = (found.workers_busy_fraction or 0.0) * found.workers
    processors_s = step.whole_s * (busy + of_workers) / cores
    after_s = max(step.compute_s, shared_s, processors_s)
    return Prediction(
        speedup=step.whole_s / after_s,
        reason=f"the longest of the step alone ({seconds(step.compute_s)}), its batch from {then} "
        f"worker{'s' if then > 1 else ''} ({seconds(shared_s)}) and the processor time of both on {cores} processors "
        f"({seconds(processors_s)}; {significant(busy + of_workers)} were busy)",
    )


def pinned(change: Change, step: Step) -> Prediction | None:
    """Copies to the device at the rate of pinned memory."""
    division = step.analysis.division
    link, pageable = _link(step, ""), _link(step, "pageable")
    if division is None or not division.host_to_device_s or link is None or pageable is None:
        return None
    saved_s = division.host_to_device_s * (1 - pageable.value / link.value)
    return Prediction(
        speedup=step.speedup(step.compute_s - saved_s),
        reason=f"copies to the device that nothing hides ({seconds(division.host_to_device_s)}) at the rate of pinned memory",
    )


def _link(step: Step, variant: str) -> Ceiling | None:
    found = (one for one in step.analysis.ceilings if one.kind == "link" and one.name.startswith("H2D") and one.variant == variant)
    return next(found, None)
