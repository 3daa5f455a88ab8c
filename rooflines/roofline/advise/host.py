"""Advice on a device that waits for data or for the host, and on a CPU between its operators."""

from __future__ import annotations

import math

from rooflines.profiler.tree.idle import LONGEST_ARRIVAL_NS
from rooflines.roofline.advise.case import WORTH_SAYING, Advice, Case, Setting, larger_batch, setting
from rooflines.roofline.advise.small_kernels import (
    COMPILED_GRAPH,
    GENERATION_GRAPHS,
    GRAPH,
    MORE_GRAPHS,
    NEARLY_ALL,
    NOT_GENERATED,
    SERVER_GRAPHS,
    fewer_in_server,
    generates,
    has_graph,
)
from rooflines.roofline.advise.verdict import rates_sentence
from rooflines.roofline.analysis import Analysis, HostWork, Input
from rooflines.roofline.judge.step.input_pipeline import input_fraction, loader_is_slower
from rooflines.roofline.judge.step.partition import MOST_UNKNOWN
from rooflines.units import percent, seconds

# A step that waits for less of its time is fed well enough.
WAITS = 0.05
# Workers that compute for more of their time are busy; those that compute for less wait for something
# themselves.
BUSY = 0.8
WAITING = 0.5


_TITLE = "Load the data ahead of the step"
_WORKERS = "DataLoader(num_workers=..., pin_memory=True, persistent_workers=True)"
# What is suggested for a trace of which only the loader's ranges are known: whether it has workers, but not
# how busy they are.
_OF_TRACES = {
    None: f"check that the loader has workers: {_WORKERS}",
    False: f"{_WORKERS}: this loader has no workers and loads within the step",
    True: (
        "DataLoader with a larger num_workers and prefetch_factor; or decode and resize the data "
        "once, ahead of the training"
    ),
}
# A device that is idle for less of a step is as busy as one can ask.
IDLE = 0.05
GRAPHS_UNRECORDED = "Record what the graphs run"
# Kernels that are shorter than this on average are over before the host has launched the next one.
SHORT_KERNEL_S = 50e-6
# With a working cache, steps take and give back memory a few times at most; without, for every tensor.
UNCACHED = 100
_UNCACHED = (
    "unset PYTORCH_NO_CUDA_MEMORY_CACHING and PYTORCH_NO_HIP_MEMORY_CACHING; no "
    "torch.cuda.empty_cache() in the step"
)
_WITHOUT_STACKS = "record again without with_stack=True, which slows the host"
_SYNCHRONIZED = (
    (
        ("item", "is_nonzero", "_local_scalar_dense"),
        "keep the value on the device, and read it only every hundred steps (.item(), print, if)",
    ),
    (
        ("nonzero", "index", "masked_select", "unique", "repeat_interleave"),
        "torch.where or multiplication instead of a boolean mask, whose result has a size that "
        "the host must know",
    ),
    (
        ("to", "_to_copy", "copy_", "cpu"),
        "copies from pinned memory with non_blocking=True, and .cpu() only after the step",
    ),
)


# --- data -------------------------------------------------------------------------------------------------


def load_faster(case: Case) -> Advice | None:
    """A step that its input delays: the waiting is what could be saved."""
    analysis = case.analysis
    share = input_fraction(case.analysis)
    found = analysis.input
    division = case.division
    if share < WAITS:
        return None
    if found is None or found.delay_s is None:
        loading_s = division.data_loading_s
        if not loading_s:
            return None
        meanwhile = "the device is idle" if division.of == "device" else "no operator runs"
        evidence = (
            f"for {case.share(loading_s)} ({seconds(loading_s)}) {meanwhile} while the host is in the "
            "data loader"
        )
        remedy = _OF_TRACES[analysis.basis.loader_workers].replace(
            "" if case.on_cuda else "pin_memory=True, ", ""
        )
        return Advice(_TITLE, loading_s, evidence, remedy, {"data_loading": loading_s})
    slower = loader_is_slower(analysis)
    rates = rates_sentence(analysis)
    workers = ""
    # Copies to a device that begin in memory which can be paged out hold the host up.
    pageable = found.pin_memory is False and division.host_to_device_s
    if found.workers and found.workers_busy_fraction is not None:
        who = "its worker" if found.workers == 1 else f"its {found.workers} workers"
        workers = f"; {who} computed for {percent(min(1.0, found.workers_busy_fraction))} of the time"
    return Advice(
        "Load the data faster than the step consumes it" if slower else _TITLE,
        found.delay_s,
        f"a step waits {seconds(found.delay_s)} for its data ({percent(share)} of its "
        f"time){f'; {rates}' if rates else ''}{workers}",
        _remedy(analysis, found, slower)
        + ("; pin_memory=True and .to(device, non_blocking=True)" if pageable else ""),
        {"data_loading": found.delay_s},
    )


def _remedy(analysis: Analysis, found: Input, slower: bool | None) -> str:
    if found.workers is None:
        return (
            "load ahead of the step, in workers of a torch DataLoader or in a thread; or keep the "
            "decoded data in memory"
        )
    if found.workers == 0:
        return _ahead(analysis, _needed(found, 1))
    if slower is False and (left := _left(analysis, found.workers)) is not None:
        return (
            "the loader alone keeps up, but its workers and the step compete for the processors: "
            f"torch.set_num_threads({left})"
        )
    if slower is False:
        return (
            "the loader alone keeps up: workers and step compete for the processors, or every "
            "epoch begins with empty queues: "
            "DataLoader(persistent_workers=True, prefetch_factor=4)"
        )
    return _more(analysis, found)


def _more(analysis: Analysis, found: Input) -> str:
    """What helps workers that are too slow: it depends on whether they compute or wait themselves."""
    workers = found.workers or 1
    busy = found.workers_busy_fraction
    threads = analysis.environment.cpu_threads
    if busy is not None and busy < WAITING:
        return (
            f"DataLoader(num_workers={_needed(found, workers)}, prefetch_factor=4): the workers "
            "wait for storage or the network and "
            "leave their processors free; or keep the data in memory or on a local disk"
        )
    if busy is not None and busy >= BUSY and threads is not None and workers >= threads:
        return (
            "decode and resize the data once, ahead of the training, or on the device: the workers "
            "keep every processor busy"
        )
    most = _needed(found, workers)
    most = min(most, threads) if threads else most
    return f"DataLoader(num_workers={most}), or decode and resize the data once, ahead of the training"


def _ahead(analysis: Analysis, workers: int) -> str:
    threads = analysis.environment.cpu_threads
    workers = min(workers, threads) if threads else workers
    left = _left(analysis, workers)
    fewer = ""
    if left is not None and threads is not None:
        workers = min(workers, threads - 1)
        fewer = (
            f"; torch.set_num_threads({left}), because threads that share a processor with a worker delay "
            "all others"
        )
    return (
        f"DataLoader(num_workers={workers}, persistent_workers=True): the next batches load while "
        f"the step runs{fewer}; "
        "or keep the decoded data in memory"
    )


def _left(analysis: Analysis, workers: int) -> int | None:
    """How many threads leave a processor for each worker of a step on a CPU; None where there are enough for
    all."""
    processors = analysis.environment.cpu_threads
    threads = analysis.environment.threads
    if not analysis.environment.device.startswith("cpu") or not processors or not threads or processors < 2:
        return None
    left = max(1, processors - workers)
    return left if threads + workers > processors and left < threads else None


def _needed(found: Input, workers: int) -> int:
    """As many workers as bring the loader's rate to the step's, where both are known; at least one more than
    ``workers``."""
    if found.loader_rate is None or found.step_rate is None:
        return 2 * workers
    return max(workers + 1, math.ceil(workers * found.step_rate.per_s / found.loader_rate.per_s))


# --- a device that waits for the host ---------------------------------------------------------------------


def synchronization(case: Case) -> Advice | None:
    """Waits for the device after which the device waits for the host."""
    found = [wait for wait in case.analysis.synchronizations if wait.idle_s > 0]
    waiting_s = case.idle_s("synchronization")
    saves_s = min(max(sum(wait.idle_s for wait in found), waiting_s), waiting_s + case.idle_s("host_bound"))
    if saves_s <= 0:
        return None
    listed = "; ".join(
        f"{wait.operator or wait.call}{f' in {wait.where}' if wait.where else ''}, {_times(wait.calls)}"
        for wait in found[:3]
    )
    operator = found[0].operator.removeprefix("aten::") if found else ""
    copies = "; copies with non_blocking=True" if case.timeline.memcpy_s else ""
    default = f"no .item(), .cpu(), print of a tensor or synchronize() inside the step{copies}"
    remedy = next((advice for names, advice in _SYNCHRONIZED if operator in names), default)
    return Advice(
        "Let the host run ahead of the device",
        saves_s,
        f"{case.idle(saves_s)} because the host waited for it before{f': {listed}' if listed else ''}",
        without_stacks(case, remedy),
        {"synchronization": min(waiting_s, saves_s), "host_bound": max(0.0, saves_s - waiting_s)},
    )


def without_stacks(case: Case, remedy: Setting | str) -> Setting | str:
    """``remedy``, after a recording without Python stacks where this one has them: they slow code of many
    small calls most."""
    return f"{_WITHOUT_STACKS}; then {remedy}" if case.analysis.basis.stacks else remedy


def _times(number: float) -> str:
    return "once" if 0.95 < number < 1.5 else f"{number:,.0f} times" if number > 1 else f"{number:.2g} times"


def _named(found: list[HostWork]) -> str:
    return ", ".join(
        (
            f"{work.name}{f' ({work.shapes})' if work.shapes else ''}"
            f"{f' in {work.where}' if work.where else ''} {seconds(work.idle_s)}"
        )
        for work in found[:3]
    )


def preprocessing(case: Case) -> Advice | None:
    """Work on the host inside the step, outside of a loader, while the device has nothing to do."""
    found, idle_s = case.host_work("operator", "python")
    if idle_s <= 0:
        return None
    remedy = (
        "do this work ahead of the step or behind it, in another thread or process, or with the same "
        "operators on the device"
    )
    evidence = f"{case.idle(idle_s)} while the host computes: {_named(found)}"
    processes = math.ceil(idle_s / (case.step_s - idle_s)) if idle_s < case.step_s else 1
    if processes > 1:
        remedy += f" (one process would take {seconds(idle_s)} for each step, so at least {processes})"
    return Advice(
        "Move work of the host out of the step",
        idle_s,
        evidence,
        without_stacks(case, remedy),
        {"host_bound": idle_s},
    )


def unrecorded(case: Case) -> Advice | None:
    """Long stretches in which the host runs no operator at all."""
    _, idle_s = case.host_work("unrecorded")
    kernels = bool(case.analysis.rows) and not any(
        row.phase for row in case.analysis.rows
    )  # without operators in the trace
    if idle_s < IDLE * case.step_s or kernels:
        return None
    return Advice(
        "Find out what the host does outside of PyTorch",
        idle_s,
        f"{case.idle(idle_s)} in stretches of a millisecond or more in which no launched work "
        "waits and the host runs no operator: "
        "Python, input and output, or another library",
        f"{_see_lines(case)}; move data preparation, logging and checkpoints out of the step",
        {"host_bound": idle_s},
    )


def beginning(case: Case) -> Advice | None:
    """Long first calls of the device's runtime that do not wait: libraries and kernels that are loaded."""

    def once(work: HostWork) -> bool:
        return "GraphLaunch" not in work.name and not _recurs(case, work.calls)

    found, idle_s = case.host_work("runtime", chosen=once)
    if idle_s <= 0:
        return None
    return Advice(
        "Warm up before the recorded steps",
        idle_s,
        f"{case.idle(idle_s)} in first calls that wait for nothing: {_named(found)}",
        "a few steps before the recording: first calls load libraries and kernels, compile, and "
        "choose algorithms",
        {"host_bound": idle_s},
    )


def allocating(case: Case) -> Advice | None:
    """Memory that the steps take from the driver. A cache that is off gives back as often as it takes, for
    every tensor; one that is short or fragmented gives back little; calls of a single step may fill an empty
    one."""
    found, idle_s = case.host_work("allocator")
    if idle_s <= 0 or not case.on_cuda:
        return None
    taken, given = (sum(work.calls for work in found if word in work.name) for word in ("Malloc", "Free"))
    off = min(taken, given) >= UNCACHED and given >= 0.5 * taken
    remedy = (
        f"PYTORCH_{'HIP' if case.kind == 'hip' else 'CUDA'}_ALLOC_CONF=expandable_segments:True (if "
        "it is not set)"
    )
    remedy += "; no torch.cuda.empty_cache() in the step" if given else ""
    if not _recurs(case, taken):
        remedy = f"a few steps before the recording, which fill the cache; if the calls stay: {remedy}"
    return Advice(
        "Let torch's allocator cache the device's memory" if off else "Allocate memory before the steps",
        idle_s,
        f"{case.idle(idle_s)} while {taken:,.0f} calls {case.per} take memory from the driver and "
        f"{given:,.0f} give it back",
        _UNCACHED if off else remedy,
        {"host_bound": idle_s},
    )


def _recurs(case: Case, calls: float) -> bool:
    """Whether it happens in every one of several steps, as no first call does."""
    return case.analysis.basis.steps > 1 and calls >= 1


def launching(case: Case) -> Advice | None:
    """A device that is idle because launching takes the host longer than the kernels run, or because launches
    take time to arrive."""
    idle_s = case.idle_s("host_bound")
    arriving_s = case.idle_s("kernel_wait")
    idle_s -= min(idle_s, _once_s(case))
    saves_s = idle_s + arriving_s
    if not case.on_device or saves_s < IDLE * case.step_s:
        return None
    kernels = [
        kernel
        for ran in case.every()
        if not ran.communicates
        for kernel in ran.kernels
        if not kernel.name.startswith("Mem")
    ]
    calls = sum(kernel.calls for kernel in kernels)
    mean_s = sum(kernel.time_s for kernel in kernels) / calls if calls else 0.0
    each = f"; a kernel runs for {seconds(mean_s)} on average" if calls else ""
    compiled_s = min(idle_s, case.host_work("compiled")[1])
    where = f", {seconds(compiled_s)} of it in compiled regions" if compiled_s > 0 else ""
    if mean_s < SHORT_KERNEL_S:
        remedy = _launch_less(case)
    elif case.analysis.workload.source == "model":
        remedy = larger_batch(case.analysis)
    elif case.on_cuda and compiled_s > 0.5 * idle_s and generates(case) and not has_graph(case.analysis):
        remedy = COMPILED_GRAPH
    else:  # kernels are long: it is not launching that takes the host's time
        remedy = f"{_see_lines(case)}: loops, logging, checkpoints between the launches"
    once = (
        "; no step is marked, so this includes what is done only once"
        if case.analysis.basis.per == "trace"
        else ""
    )
    if once and kernels and all(kernel.calls <= 1 for kernel in kernels):
        remedy = "record several steps, after a few that are not recorded"
        once = "; no kernel is launched twice, so nothing shows what recurs"
    all_s = sum((case.analysis.idle_breakdown or {}).values())
    part = f", and for {seconds(saves_s)} of it this is why" if saves_s < (1 - WORTH_SAYING) * all_s else ""
    return Advice(
        "Keep the device busy",
        saves_s,
        f"{case.idle(max(all_s, saves_s))}{part}: the host has not launched its next work for "
        f"{seconds(idle_s)}{where}, launched work has not begun for {seconds(arriving_s)}{each}{once}",
        without_stacks(case, remedy),
        {"host_bound": idle_s, "kernel_wait": arriving_s},
        changes="launching",
    )


def _once_s(case: Case) -> float:
    """The host's time of a step that is in one gap, which a change of the step does not shorten, less what
    other advice is about."""
    gap = case.analysis.gap
    if gap is None:
        return 0.0
    taken_s = case.analysis.idle_s("host_bound") - case.idle_s("host_bound")
    return max(0.0, gap.host_s / (case.analysis.basis.steps or 1) - taken_s)


def _launch_less(case: Case) -> Setting | str:
    """Fewer launches for the same work."""
    analysis = case.analysis
    if analysis.serving is not None:
        return fewer_in_server(case)
    larger = larger_batch(analysis)
    if not case.on_cuda:
        return larger
    if has_graph(analysis):
        return (
            larger
            if has_graph(analysis, NEARLY_ALL)
            else MORE_GRAPHS
            if analysis.compiled
            else f"larger graphs, or {larger}"
        )
    if analysis.compiled:
        return COMPILED_GRAPH if generates(case) else NOT_GENERATED
    if analysis.workload.source == "model":
        return larger
    read = _SYNCHRONIZED[0][0] + _SYNCHRONIZED[1][0]
    operators = (wait.operator for wait in analysis.synchronizations)
    waits = {operator for operator in operators if operator.removeprefix("aten::") in read}
    first = f"remove the waits ({', '.join(sorted(waits))}), which no graph can hold; then " if waits else ""
    return f"{first}{GRAPH}; or {larger}"


def _see_lines(case: Case) -> str:
    """How to find what the host runs: the Python stack, if it is not recorded yet."""
    known = "look at the Python stack in these stretches (Perfetto)"
    return known if case.analysis.basis.stacks else "record with with_stack=True to see the lines"


def late_start(case: Case) -> Advice | None:
    """Gaps before work that was launched long before: earlier or fewer launches do not shorten them."""
    idle_s = case.idle_s("outside")
    queue = case.analysis.launches
    if (
        queue is None
        or queue.delay_median_s < LONGEST_ARRIVAL_NS / 1e9
        or idle_s < MOST_UNKNOWN * case.step_s
    ):
        return None
    return Advice(
        "Find out what launched work waits for",
        None,
        f"{case.idle(idle_s)} although its next work had been launched, and launches take "
        "microseconds to arrive; half of all launched "
        f"work waits {seconds(queue.delay_median_s)} or more; the trace does not hold what it waits for",
        "see whether other programs use the device, whether it draws a display or is shared in "
        "time slices, and whether the work had "
        "been launched before the recording began",
        {"outside": idle_s},
    )


def in_graphs(case: Case) -> Advice | None:
    """Gaps before work of graphs that had been launched: the trace does not show whether the device runs
    kernels meanwhile."""
    idle_s = case.idle_s("graph")
    if idle_s < MOST_UNKNOWN * case.step_s:
        return None
    return Advice(
        GRAPHS_UNRECORDED,
        None,
        f"for {case.share(idle_s)} ({seconds(idle_s)}) no kernel is recorded although a graph had "
        "been launched: it waits, or "
        "kernels of it were not recorded",
        "record a step without graphs: it shows which kernels run in these gaps, or what they wait for",
        {"graph": idle_s},
    )


def between_operators(case: Case) -> Advice | None:
    """Python and the framework between the operators of a CPU."""
    analysis = case.analysis
    idle_s = case.idle_s("host_bound") - _once_s(case)
    if case.on_device or not case.step_s or idle_s < IDLE * case.step_s:
        return None
    if (
        analysis.compiled and analysis.workload.source == "trace"
    ):  # what inductor generates for a processor has no events
        return None
    besides = " besides one gap that occurs once" if _once_s(case) else ""
    evidence = (
        f"for {case.share(idle_s)} ({seconds(idle_s)}) no operator runs{besides}: Python and the "
        "framework are at work"
    )
    # Where few calls can be fused, compiling leaves the host its time.
    gain = case.gain("compile", "on")
    leaves = gain is not None and gain.of.get("host_bound", 0.0) < IDLE * case.step_s
    suggestion = larger_batch(analysis) if leaves or analysis.compiled else setting(analysis, "compile", "on")
    return Advice(
        "Run less Python between the operators", idle_s, evidence, suggestion, {"host_bound": idle_s}
    )


def oversubscribed(case: Case) -> Advice | None:
    """More threads than the processor has cores for."""
    environment = case.analysis.environment
    threads = environment.threads
    cores = environment.cpu_cores
    if not environment.device.startswith("cpu") or not threads or not cores or threads <= cores:
        return None
    shared = threads <= (environment.cpu_threads or cores)
    beyond = "hardware threads share the units of a core" if shared else "they take turns"
    return Advice(
        "Use one thread for each core",
        None,
        f"torch runs {threads} threads on {cores} cores: {beyond}, and every operator waits for "
        "the last of them",
        f"OMP_NUM_THREADS={cores} or torch.set_num_threads({cores}), fewer where several "
        "processes share the machine",
        {},
    )


def eager_decode(case: Case) -> Advice | None:
    """Decode steps of a server or a generation that the host launches kernel by kernel, more slowly than the
    device runs them."""
    served = case.analysis.serving
    generated = case.analysis.generation
    kinds = served.kinds if served is not None else generated.phases if generated is not None else ()
    decode = next((kind for kind in kinds if kind.kind == "decode"), None)
    if decode is None or not case.on_cuda or has_graph(case.analysis) or decode.step_s <= 0:
        return None
    idle_s = decode.category_breakdown.get("idle", 0.0)
    host_s = case.idle_s("host_bound")
    steps = sum(kind.steps for kind in kinds) if served is not None else case.analysis.basis.steps
    saves_s = min(idle_s * decode.steps / steps, host_s + case.idle_s("kernel_wait"))
    if saves_s < IDLE * case.step_s:
        return None
    reads = decode.reads
    of_host_s = min(host_s, saves_s)
    reached = (
        f"; it reaches {percent(reads.efficiency)} of the bound of its weights and KV cache"
        if reads and reads.efficiency
        else ""
    )
    return Advice(
        "Replay decode steps as graphs",
        saves_s,
        f"the device is idle for {seconds(idle_s)} of a decode step of {seconds(decode.step_s)}, "
        "and no kernel was launched by a graph"
        f"{reached}",
        SERVER_GRAPHS if served is not None else GENERATION_GRAPHS,
        {"host_bound": of_host_s, "kernel_wait": saves_s - of_host_s},
        changes="launching",
    )
