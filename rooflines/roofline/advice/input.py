"""Advice for a step that waits for its data: what that costs, the evidence, and what fits the loader that was seen."""

from __future__ import annotations

import math

from rooflines.roofline.advice.case import Advice, Case
from rooflines.roofline.analysis import Analysis, Input
from rooflines.roofline.step.input_pipeline import input_fraction, loader_is_slower
from rooflines.roofline.verdict import rates_sentence
from rooflines.units import percent, seconds

# A step that waits for less of its time is fed well enough.
WAITS = 0.05
# Workers that compute for more of their time are busy; those that compute for less wait for something themselves.
BUSY, WAITING = 0.8, 0.5


def load_faster(case: Case) -> Advice | None:
    """A step that its input delays: the waiting is what could be saved."""
    analysis = case.analysis
    found, division = analysis.input, analysis.division
    share = input_fraction(analysis)
    if share < WAITS:
        return None
    loading_s = division.data_loading_s or 0.0 if division is not None else 0.0
    if found is None or found.delay_s is None:
        if division is None or not loading_s:
            return None
        meanwhile = "the device is idle" if division.of == "device" else "no operator runs"
        return Advice(
            title=_TITLE,
            saves_s=loading_s,
            evidence=f"for {case.share(loading_s)} ({seconds(loading_s)}) {meanwhile} while the host is in the data loader",
            suggestion=_OF_TRACES[analysis.basis.loader_workers],
            of={("idle", "data_loading"): loading_s},
        )
    slower = loader_is_slower(analysis)
    rates = rates_sentence(analysis)
    workers = ""
    if found.workers and found.workers_busy_fraction is not None:
        who = "its worker" if found.workers == 1 else f"its {found.workers} workers"
        workers = f"; {who} computed for {percent(min(1.0, found.workers_busy_fraction))} of the time"
    return Advice(
        title="Load the data faster than the step consumes it" if slower else _TITLE,
        saves_s=found.delay_s,
        evidence=f"a step waits {seconds(found.delay_s)} for its data ({percent(share)} of its time)"
        f"{f'; {rates}' if rates else ''}{workers}",
        suggestion=_remedy(analysis, found, slower),
        of={("idle", "data_loading"): found.delay_s},
    )


_TITLE = "Load the data ahead of the step"
_WORKERS = "DataLoader(num_workers=..., pin_memory=True, persistent_workers=True)"
# What is suggested for a trace of which only the loader's ranges are known: whether it has workers, but not how busy they are.
_OF_TRACES = {
    None: f"check that the loader has workers: {_WORKERS}",
    False: f"{_WORKERS}: this loader has no workers and loads within the step",
    True: "DataLoader with a larger num_workers and prefetch_factor; or decode and resize the data once, ahead of the training",
}


def _remedy(analysis: Analysis, found: Input, slower: bool | None) -> str:
    if found.workers is None:
        advice = "load ahead of the step, in workers of a torch DataLoader or in a thread; or keep the decoded data in memory"
    elif found.workers == 0:
        advice = _ahead(analysis, _needed(found, 1))
    elif slower is False and (left := _left(analysis, found.workers)) is not None:
        advice = f"the loader alone keeps up, but its workers and the step compete for the processors: torch.set_num_threads({left})"
    elif slower is False:
        advice = (
            "the loader alone keeps up: workers and step compete for the processors, or every epoch begins with empty queues: "
            "DataLoader(persistent_workers=True, prefetch_factor=4)"
        )
    else:
        advice = _more(analysis, found)
    return advice + _pinned(analysis, found)


def _more(analysis: Analysis, found: Input) -> str:
    """What helps workers that are too slow: it depends on whether they compute or wait themselves."""
    workers, busy, threads = found.workers or 1, found.workers_busy_fraction, _threads(analysis)
    if busy is not None and busy < WAITING:
        return (
            f"DataLoader(num_workers={_needed(found, workers)}, prefetch_factor=4): the workers wait for storage or the network and "
            "leave their processors free; or keep the data in memory or on a local disk"
        )
    if busy is not None and busy >= BUSY and threads is not None and workers >= threads:
        return "decode and resize the data once, ahead of the training, or on the device: the workers keep every processor busy"
    most = _needed(found, workers)
    most = min(most, threads) if threads else most
    return f"DataLoader(num_workers={most}), or decode and resize the data once, ahead of the training"


def _ahead(analysis: Analysis, workers: int) -> str:
    threads = _threads(analysis)
    workers = min(workers, threads) if threads else workers
    left, fewer = _left(analysis, workers), ""
    if left is not None and threads is not None:
        workers = min(workers, threads - 1)
        fewer = f"; torch.set_num_threads({left}) leaves the workers processors; threads that share one with a worker delay all others"
    return (
        f"DataLoader(num_workers={workers}, persistent_workers=True): the next batches load while the step runs{fewer}; "
        "or keep the decoded data in memory"
    )


def _left(analysis: Analysis, workers: int) -> int | None:
    """How many threads leave a processor for each worker of a step on a CPU; None where there are enough for all."""
    processors, threads = _threads(analysis), analysis.environment.threads
    if not analysis.environment.device.startswith("cpu") or not processors or not threads or processors < 2:
        return None
    left = max(1, processors - workers)
    return left if threads + workers > processors and left < threads else None


def _needed(found: Input, workers: int) -> int:
    """As many workers as bring the loader's rate to the step's, where both are known; at least one more than ``workers``."""
    if found.loader_rate is None or found.step_rate is None:
        return 2 * workers
    return max(workers + 1, math.ceil(workers * found.step_rate.per_s / found.loader_rate.per_s))


def _threads(analysis: Analysis) -> int | None:
    return analysis.environment.cpu_threads


def _pinned(analysis: Analysis, found: Input) -> str:
    """Copies to a device that begin in memory which can be paged out hold the host up."""
    copies = analysis.division.host_to_device_s if analysis.division is not None else None
    if found.pin_memory is not False or not copies:
        return ""
    return "; pin_memory=True and .to(device, non_blocking=True)"
