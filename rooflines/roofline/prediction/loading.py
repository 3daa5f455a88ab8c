"""The gain of more loader workers and of pinned memory."""

from __future__ import annotations

import math

from rooflines.device_specs.records import Ceiling
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.roofline.prediction.threads import computing_s
from rooflines.units import counted, seconds


def workers(change: Change, step: Step) -> Prediction | None:
    """A step as long as the slowest of three: its own work, the loading shared by the workers, and the processor time of both.

    On a CPU its own work is that with the ``threads`` of the change. There is no prediction where threads and workers need more
    processors than there are: threads that wait for one that has none lose more than its share.
    """
    found, cores, load_s = step.analysis.input, step.analysis.environment.cpu_threads, _load_s(step)
    if found is None or found.workers is None or not cores or step.busy_cores is None or not load_s:
        return None
    then, threads = int(change.options["data_workers"]), change.options.get("threads", step.analysis.environment.threads)
    own_s = computing_s(step, int(threads)) if threads and not step.on_device else step.compute_s
    if own_s is None:
        return None
    shared_s = load_s / then
    of_workers = (found.workers_busy_fraction or 0.0) * found.workers
    processors_s = step.whole_s * (step.busy_cores + of_workers) / cores
    after_s = max(own_s, shared_s, processors_s)
    if not step.on_device and int(threads or 1) + load_s / after_s > cores:
        return None
    return Prediction(
        speedup=step.whole_s / after_s,
        reason=f"the longest of the step alone ({seconds(own_s)}), its batch from {counted(then, 'worker')} ({seconds(shared_s)}) and "
        f"the processor time of both on {cores} processors ({seconds(processors_s)})",
    )


def best_split(step: Step) -> tuple[int, int | None]:
    """Return the workers that deliver batches as fast as the step takes them, and the threads that leave them processors.

    The threads are None where they need not change: on a device, and where there are enough processors for all.
    """
    found, environment, load_s = step.analysis.input, step.analysis.environment, _load_s(step) or step.wait_s
    cores, now = environment.cpu_threads or 1, (found.workers if found is not None else 0) or 0
    needed = max(now + 1, math.ceil(load_s / step.compute_s)) if step.compute_s > 0 else now + 1
    if step.on_device or not environment.threads or environment.threads + needed <= cores or cores < 2:
        return min(cores, needed), None
    splits = [(cores - threads, threads) for threads in range(1, cores)]
    return min(splits, key=lambda split: max(computing_s(step, split[1]) or step.compute_s, load_s / split[0]))


def _load_s(step: Step) -> float | None:
    """The time in which one worker loads the samples of a step."""
    found = step.analysis.input
    return None if found is None or step.load_s is None else step.load_s * max(1, found.workers or 0)


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
