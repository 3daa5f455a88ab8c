"""Advice on a device that waits for data or for the host, and on a CPU between its operators."""

from __future__ import annotations

import math

from rooflines.roofline.advice.case import Advice, Case, Key, Setting, idle_of, larger_batch, setting
from rooflines.roofline.advice.small_kernels import (
    COMPILED_GRAPH,
    GRAPH,
    MORE_GRAPHS,
    NOT_GENERATED,
    SERVER_GRAPHS,
    fewer_in_server,
    generates,
    has_graph,
)
from rooflines.roofline.analysis import Analysis, HostWork, Input, Synchronisation
from rooflines.roofline.step.input_pipeline import input_fraction, loader_is_slower
from rooflines.roofline.step.partition import MOST_UNKNOWN
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


# A device that is idle for less of a step is as busy as one can ask.
IDLE = 0.05
GRAPHS_UNRECORDED = "Record what the graphs run"
# An allocation that lasts longer than this initialises the device.
FIRST_CALL_S = 0.1
# Kernels that are shorter than this on average are over before the host has launched the next one.
SHORT_KERNEL_S = 50e-6
# With a working cache, steps take and give back memory a few times at most; without, for every tensor.
UNCACHED = 100
_UNCACHED = "unset PYTORCH_NO_CUDA_MEMORY_CACHING and PYTORCH_NO_HIP_MEMORY_CACHING; no torch.cuda.empty_cache() in the step"
_WITHOUT_STACKS = "record again without with_stack=True, which slows the host"
_SYNCHRONISED = (
    (
        ("item", "is_nonzero", "_local_scalar_dense"),
        "keep the value on the device, and read it only every hundred steps (.item(), print, if)",
    ),
    (
        ("nonzero", "index", "masked_select", "unique", "repeat_interleave"),
        "torch.where or multiplication instead of a boolean mask, whose result has a size that the host must know",
    ),
    (("to", "_to_copy", "copy_", "cpu"), "copies from pinned memory with non_blocking=True, and .cpu() only after the step"),
)


def synchronisation(case: Case) -> Advice | None:
    """Waits for the device after which the device waits for the host."""
    found = [one for one in case.analysis.synchronisations if one.idle_s > 0]
    explained_s = sum(one.idle_s for one in found)
    waiting_s = case.idle_s("synchronisation")
    saves_s = min(max(explained_s, waiting_s), waiting_s + case.idle_s("host_bound"))
    if saves_s <= 0:
        return None
    of: dict[Key, float] = {("idle", "synchronisation"): min(waiting_s, saves_s), ("idle", "host_bound"): max(0.0, saves_s - waiting_s)}
    listed = "; ".join(map(_wait, found[:3]))
    return Advice(
        title="Let the host run ahead of the device",
        saves_s=saves_s,
        evidence=(
            f"the device is idle for {case.share(saves_s)} ({seconds(saves_s)}) because the host waited for it before"
            f"{f': {listed}' if listed else ''}"
        ),
        suggestion=without_stacks(case, _without_waiting(found)),
        of=of,
    )


def without_stacks(case: Case, remedy: Setting | str) -> Setting | str:
    """``remedy``, after a recording without Python stacks where this one has them: they slow code of many small calls most."""
    return f"{_WITHOUT_STACKS}; then {remedy}" if case.analysis.basis.stacks else remedy


def _wait(one: Synchronisation) -> str:
    where = f" in {one.where}" if one.where else ""
    return f"{one.operator or one.call}{where}, {one.calls:,.0f} times"


def _without_waiting(found: list[Synchronisation]) -> str:
    operator = found[0].operator.removeprefix("aten::") if found else ""
    default = "no .item(), .cpu(), print of a tensor or synchronize() inside the step; copies with non_blocking=True"
    return next((advice for names, advice in _SYNCHRONISED if operator in names), default)


def preprocessing(case: Case) -> Advice | None:
    """Work on the host inside the step, outside of a loader, while the device has nothing to do."""
    found = [one for one in case.analysis.host_work if one.kind in ("operator", "python")]
    idle_s = min(case.idle_s("host_bound"), sum(one.idle_s for one in found))
    if not found or idle_s <= 0:
        return None
    listed = ", ".join(map(_work, found[:3]))
    return Advice(
        title="Move work of the host out of the step",
        saves_s=idle_s,
        evidence=f"the device is idle for {case.share(idle_s)} ({seconds(idle_s)}) while the host computes: {listed}",
        suggestion=without_stacks(
            case, "do this work ahead of the step or behind it, in another thread or process, or with the same operators on the device"
        ),
        of={("idle", "host_bound"): idle_s},
    )


def _work(one: HostWork) -> str:
    shapes = f" ({one.shapes})" if one.shapes else ""
    where = f" in {one.where}" if one.where else ""
    return f"{one.name}{shapes}{where} {seconds(one.idle_s)}"


def unrecorded(case: Case) -> Advice | None:
    """Long stretches in which the host runs no operator at all."""
    found = [one for one in case.analysis.host_work if one.kind == "unrecorded"]
    idle_s = min(case.idle_s("host_bound"), sum(one.idle_s for one in found))
    if idle_s < IDLE * case.step_s:
        return None
    return Advice(
        title="Find out what the host does outside of PyTorch",
        saves_s=idle_s,
        evidence=(
            f"the device is idle for {case.share(idle_s)} ({seconds(idle_s)}) in stretches of a millisecond or more in which the host "
            "runs no operator: Python, input and output, or another library"
        ),
        suggestion=f"{_see_lines(case)}; move data preparation, logging and checkpoints out of the step",
        of={("idle", "host_bound"): idle_s},
    )


def beginning(case: Case) -> Advice | None:
    """Long calls of the device's runtime that do not wait and do not recur in every step: libraries and kernels that are loaded."""
    found = [one for one in case.analysis.host_work if one.kind == "runtime" or (one.kind == "allocator" and _initialises(one))]
    found = [one for one in found if "GraphLaunch" not in one.name and not _recurs(case, one.calls)]
    idle_s = min(case.idle_s("host_bound"), sum(one.idle_s for one in found))
    if idle_s <= 0:
        return None
    return Advice(
        title="Warm up before the recorded steps",
        saves_s=idle_s,
        evidence=(
            f"the device is idle for {case.share(idle_s)} ({seconds(idle_s)}) in calls of a millisecond or more that wait for nothing: "
            f"{', '.join(map(_work, found[:3]))}"
        ),
        suggestion="a few steps before the recording: first calls load libraries and kernels and choose algorithms",
        of={("idle", "host_bound"): idle_s},
    )


def allocating(case: Case) -> Advice | None:
    """Memory that the steps take from the driver. A cache that is off gives back as often as it takes, for every tensor; one that is
    short or fragmented gives back little; calls of a single step may fill an empty one."""
    found = [one for one in case.analysis.host_work if one.kind == "allocator" and not _initialises(one)]
    idle_s = min(case.idle_s("host_bound"), sum(one.idle_s for one in found))
    if idle_s <= 0:
        return None
    taken, given = (sum(one.calls for one in found if word in one.name) for word in ("Malloc", "Free"))
    off = min(taken, given) >= UNCACHED and given >= 0.5 * taken
    return Advice(
        title="Let torch's allocator cache the device's memory" if off else "Allocate memory before the steps",
        saves_s=idle_s,
        evidence=(
            f"the device is idle for {case.share(idle_s)} ({seconds(idle_s)}) while {taken:,.0f} calls {case.per} take memory from the "
            f"driver and {given:,.0f} give it back"
        ),
        suggestion=_UNCACHED if off else _less_memory(case, taken, given),
        of={("idle", "host_bound"): idle_s},
    )


def _less_memory(case: Case, taken: float, given: float) -> str:
    remedy = f"PYTORCH_{'HIP' if case.on_amd else 'CUDA'}_ALLOC_CONF=expandable_segments:True (if it is not set)"
    remedy += "; no torch.cuda.empty_cache() in the step" if given else ""
    return remedy if _recurs(case, taken) else f"a few steps before the recording, which fill the cache; if the calls stay: {remedy}"


def _initialises(one: HostWork) -> bool:
    """Whether an allocation takes as long as starting to use the device."""
    return one.idle_s >= FIRST_CALL_S * one.calls


def _recurs(case: Case, calls: float) -> bool:
    """Whether it happens in every one of several steps, as no first call does."""
    return case.analysis.basis.steps > 1 and calls >= 1


def launching(case: Case) -> Advice | None:
    """A device that is idle because launching takes the host longer than the kernels run, or because launches take time to arrive."""
    idle_s, arriving_s = case.idle_s("host_bound"), case.idle_s("kernel_wait")
    if not case.on_device or idle_s + arriving_s < IDLE * case.step_s:
        return None
    kernels = [kernel for one in case.every() if not one.communicates for kernel in one.kernels]
    calls = sum(kernel.calls for kernel in kernels)
    mean_s = sum(kernel.time_s for kernel in kernels) / calls if calls else 0.0
    each = f"; a kernel runs for {seconds(mean_s)} on average" if calls else ""
    compiled_s = min(idle_s, sum(one.idle_s for one in case.analysis.host_work if one.kind == "compiled"))
    where = f", {seconds(compiled_s)} of it in compiled regions" if compiled_s > 0 else ""
    remedy = _launch_less(case) if mean_s < SHORT_KERNEL_S else _longer_kernels(case, compiled_s > 0.5 * idle_s)
    once = "; no step is marked, so this includes what is done only once" if case.analysis.basis.per == "trace" else ""
    other = "another " if idle_s < idle_of(case.analysis, "host_bound") else ""
    return Advice(
        title="Keep the device busy",
        saves_s=idle_s + arriving_s,
        evidence=(
            f"the device is idle for {other}{case.share(idle_s + arriving_s)} ({seconds(idle_s + arriving_s)}): the host has not "
            f"launched its next work for {seconds(idle_s)}{where}, launched work has not begun for {seconds(arriving_s)}{each}{once}"
        ),
        suggestion=without_stacks(case, remedy),
        of={("idle", "host_bound"): idle_s, ("idle", "kernel_wait"): arriving_s},
    )


def _launch_less(case: Case) -> Setting | str:
    """Fewer launches for the same work."""
    analysis = case.analysis
    if analysis.serving is not None:
        return fewer_in_server(analysis)
    larger = larger_batch(analysis)
    if not analysis.environment.device.startswith("cuda"):
        return larger
    if has_graph(analysis):
        return MORE_GRAPHS
    if analysis.compiled:
        return COMPILED_GRAPH if generates(case) else NOT_GENERATED
    if analysis.workload.source == "model":
        return larger
    read = _SYNCHRONISED[0][0] + _SYNCHRONISED[1][0]
    waits = {one.operator for one in analysis.synchronisations if one.operator.removeprefix("aten::") in read}
    first = f"remove the waits ({', '.join(sorted(waits))}), which no graph can hold; then " if waits else ""
    return f"{first}{GRAPH}; or {larger}"


def _longer_kernels(case: Case, in_compiled: bool) -> Setting | str:
    """Where kernels are long, it is not launching that takes the host's time, unless most of it passes in compiled regions."""
    if case.analysis.workload.source == "model":
        return larger_batch(case.analysis)
    if in_compiled and generates(case) and not has_graph(case.analysis):
        return COMPILED_GRAPH
    return f"{_see_lines(case)}: loops, logging, checkpoints between the launches"


def _see_lines(case: Case) -> str:
    """How to find what the host runs: the Python stack, if it is not recorded yet."""
    known = "look at the Python stack in these stretches (Perfetto)"
    return known if case.analysis.basis.stacks else "record with with_stack=True to see the lines"


def in_graphs(case: Case) -> Advice | None:
    """Gaps before work of graphs that had been launched: the trace does not show whether the device runs kernels meanwhile."""
    idle_s = case.idle_s("graph")
    if idle_s < MOST_UNKNOWN * case.step_s:
        return None
    return Advice(
        title=GRAPHS_UNRECORDED,
        saves_s=None,
        evidence=(
            f"for {case.share(idle_s)} ({seconds(idle_s)}) no kernel is recorded although a graph had been launched: it waits, or "
            "kernels of it were not recorded"
        ),
        suggestion="record a step without graphs: it shows which kernels run in these gaps, or what they wait for",
        of={("idle", "graph"): idle_s},
    )


def between_operators(case: Case) -> Advice | None:
    """Python and the framework between the operators of a CPU."""
    idle_s = case.idle_s("host_bound")
    if case.on_device or not case.step_s or idle_s < IDLE * case.step_s:
        return None
    analysis = case.analysis
    return Advice(
        title="Keep the device busy",
        saves_s=idle_s,
        evidence=f"for {case.share(idle_s)} ({seconds(idle_s)}) no operator runs: Python and the framework are at work",
        suggestion=larger_batch(analysis) if analysis.compiled else setting(analysis, "compile", "on"),
        of={("idle", "host_bound"): idle_s},
    )


def oversubscribed(case: Case) -> Advice | None:
    """More threads than the processor has cores for."""
    environment = case.analysis.environment
    threads, cores = environment.threads, environment.cpu_cores
    if not environment.device.startswith("cpu") or not threads or not cores or threads <= cores:
        return None
    available = environment.cpu_threads or cores
    beyond = "hardware threads share the units of a core" if threads <= available else "they take turns"
    return Advice(
        title="Use one thread for each core",
        saves_s=None,
        evidence=f"torch runs {threads} threads on {cores} cores: {beyond}, and every operator waits for the last of them",
        suggestion=f"OMP_NUM_THREADS={cores} or torch.set_num_threads({cores}), fewer where several processes share the machine",
        of={},
    )


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
