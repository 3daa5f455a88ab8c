"""Advice on kernels that are too small (fusion, graphs, a larger batch), and on chains of operators that
could be one kernel each: only what a chain reads and writes from outside needs memory."""

from __future__ import annotations

import math
import re

from rooflines.roofline.advise.case import (
    MORE_WORK,
    Advice,
    Case,
    Ran,
    Setting,
    calls_of,
    larger_batch,
    setting,
    total,
    whole,
)
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.predict.rows import FUSABLE, chains
from rooflines.units import seconds, si

GRAPH = (
    'a graph where shapes do not change: torch.compile(mode="reduce-overhead") or '
    "torch.cuda.make_graphed_callables"
)
COMPILED_GRAPH = (
    'mode="reduce-overhead" in torch.compile: a graph launches the kernels of a compiled region together'
)
NOT_GENERATED = (
    "torch.compile with a backend that generates kernels (inductor): what is compiled here runs "
    "operator by operator"
)
GENERATION_GRAPHS = (
    'a static KV cache and torch.compile(mode="reduce-overhead"), which replays decode steps as graphs'
)
SERVER_GRAPHS = "the server's graphs (vLLM: without --enforce-eager; SGLang: without --disable-cuda-graph)"
MORE_GRAPHS = (
    "larger graphs (TORCH_LOGS=graph_breaks,cudagraphs names what ends or prevents one), or a larger batch"
)
# Graphs that hold this share of the device's work cannot be larger.
NEARLY_ALL = 0.9
# A device whose kernels fill fewer of its units for this share of the busy time could do more work in the
# same time.
UNDERUSED = 0.30
# What reaches this share of its memory or compute roof does not lack blocks.
SATURATED = 0.5
# What torch.compile calls as it is and does not generate (torch/_inductor/lowering.py, make_fallback).
_KEPT = re.compile(r"(?:topk|sort|kthvalue|median|mode|unique\w*|nonzero|histc|searchsorted|bincount)$")
_PERSISTENT = re.compile(
    r"persistent|cluster|stream_?k|_SK\d|nvjet|sm90|sm1\d0|deep_gemm|matmul_ogs|GemmUniversal|cooperative",
    re.I,
)


def small_operators(case: Case) -> Advice | None:
    """Operators whose work is less than the cost of starting them."""
    found = case.ran(lambda one: one.row.bound == "latency" and one.headroom_s > 0)
    if not found or not case.judged:
        return None
    of = {one.key: one.headroom_s for one in found}
    modules = longest_first((one.row.module, round(one.row.calls)) for one in found if one.row.module)
    most = f", most of them in {next(iter(modules))}" if modules else ""
    return Advice(
        "Fuse the small operators" if _fusable(found) else "Run fewer small operators",
        sum(of.values()),
        f"{calls_of(found):,.0f} calls {case.per} cost more to launch than to execute: "
        f"{seconds(total(found))} ({case.share(total(found))}){most}",
        fewer_launches(case, found),
        of,
    )


def fewer_launches(case: Case, found: list[Ran]) -> Setting | str:
    """Suggest more work per launch: fusion if the operators allow it, else a larger batch."""
    analysis = case.analysis
    if analysis.serving is not None:
        return fewer_in_server(case)
    if analysis.compiled:
        return (
            COMPILED_GRAPH
            if case.on_cuda and generates(case) and not has_graph(analysis)
            else larger_batch(analysis)
        )
    return setting(analysis, "compile", "on") if _fusable(found) else larger_batch(analysis)


def _fusable(found: list[Ran]) -> bool:
    """Whether most of the time is in operators that can be fused with their neighbors."""
    fusable = [
        one
        for one in found
        if one.category in FUSABLE and not of_library(one) and not _KEPT.search(one.row.name)
    ]
    return sum(one.row.time_s for one in fusable) > 0.5 * sum(one.row.time_s for one in found)


def of_library(one: Ran) -> bool:
    """Whether another library than PyTorch has the operator: torch.compile calls it and does not change
    it."""
    namespace, separator, _ = one.row.name.partition("::")
    return namespace == "torch" or bool(
        separator and namespace not in ("aten", "prims", "torchvision", "quantized")
    )


def has_graph(analysis: Analysis, share: float = 0.0) -> bool:
    """Whether graphs launched more than this share of the device's time."""
    busy_s = analysis.timeline.busy_s if analysis.timeline is not None else 0.0
    return analysis.coverage is not None and analysis.coverage.graph_launch_time_s > share * busy_s


def fewer_in_server(case: Case) -> Setting | str:
    """Suggest graphs to a server that runs without: whole ones for decode steps, parts of the network for
    prefills of many sizes."""
    analysis = case.analysis
    if has_graph(analysis) or not case.on_cuda:
        return larger_batch(analysis)
    decodes = analysis.serving is not None and any(one.kind == "decode" for one in analysis.serving.kinds)
    return (
        SERVER_GRAPHS
        if decodes
        else f"{SERVER_GRAPHS}, of parts of the network in a prefill; or {larger_batch(analysis)}"
    )


def larger_grids(case: Case) -> Advice | None:
    """Kernels that occupy only some of the device's units, below half of their roof, not made to run with few
    blocks (persistent, clustered), while no other kernel runs: a larger batch would fill the device."""
    units = case.analysis.environment.device_units
    busy = case.ran(lambda one: not one.communicates)
    if not units or not busy or (larger := larger_batch(case.analysis)) in (*case.given, MORE_WORK):
        return None
    of = {}
    underused_s = 0.0
    for one in filter(_starves, busy):
        grids = [kernel for kernel in one.kernels if kernel.grid and not _PERSISTENT.search(kernel.name)]
        blocks = [
            (kernel.time_s * one.left_s / one.row.time_s, math.prod(kernel.grid or ())) for kernel in grids
        ]
        lost = [(time_s, 1 - number / units) for time_s, number in blocks if number < units]
        if lost:
            of[one.key] = min(one.left_s, sum(time_s * part for time_s, part in lost))
            underused_s += min(one.left_s, sum(time_s for time_s, _ in lost))
    if underused_s < UNDERUSED * total(busy):
        return None
    return Advice(
        "Fill the device",
        sum(of.values()),
        f"kernels with fewer blocks than the device's {units} multiprocessors, far below their "
        f"roofs, take {case.cost(underused_s)}; the saving assumes the same samples in a larger batch",
        larger,
        of,
    )


def generates(case: Case) -> bool:
    """Whether inductor generated a kernel that ran, or had none to generate: what is compiled without runs
    operator by operator."""
    return any(kernel.name.startswith("triton_") for kernel in case.kernels()) or all(
        one.category in ("matmul", "convolution", "attention") for one in case.every()
    )


def _starves(one: Ran) -> bool:
    """Whether an operator is known to stay far below its memory and compute roofs."""
    row = one.row
    near = row.bound in ("memory", "compute") and (row.efficiency or 1.0) >= SATURATED
    return row.lower_bound_s is not None and not near


def fills(case: Case, found: list[Ran]) -> bool:
    """Whether most of the time is in kernels with a block for each multiprocessor or near a roof: a larger
    batch makes them longer."""
    units = case.analysis.environment.device_units or math.inf
    full = [
        one
        for one in found
        if not _starves(one) or (one.kernels and math.prod(one.kernels[0].grid or ()) >= units)
    ]
    return total(full) > 0.5 * total(found)


def chained(case: Case) -> Advice | None:
    """Chains of element-wise operators, norms, reductions and copies of PyTorch, with shapes, in code that is
    not compiled.

    They save at most their time less that of the bytes from outside at the roof of the memory.
    """
    analysis = case.analysis
    memory = case.ceilings.outermost_memory()
    if (
        memory is None
        or not case.judged
        or not case.on_device
        or analysis.compiled
        or analysis.serving is not None
    ):
        return None
    ran = {id(one.row): one for one in case.ran(_is_fusable)}
    rows = (one.row for one in ran.values() if isinstance(one.row, OperatorRow))
    floor = case.ceilings.latency()
    members = list[Ran]()
    saves_s = 0.0
    fused_s = 0.0
    outside = 0.0
    for chain in chains(rows, training=analysis.workload.mode == "training"):
        own = [ran[id(row)] for row in chain.rows]
        time_s = sum(row.time_s for row in chain.rows)
        least_s = max(
            chain.outside_bytes / memory.value, chain.kernels * floor.value if floor is not None else 0.0
        )
        if time_s > least_s:
            saves_s += min(total(own), time_s - least_s)
            fused_s += least_s
            outside += chain.outside_bytes
            members += own
    if not members:
        return None
    worst = max(members, key=lambda one: one.left_s)
    return Advice(
        "Fuse chains of element-wise operators, norms and copies",
        saves_s,
        f"{calls_of(members):,.0f} calls take {case.cost(total(members))}"
        f"; fused, they read and write {si(outside, 'B')} from outside, which takes "
        f"{seconds(fused_s)} at the rate of {memory.name}; the longest is "
        f"{worst.row.name}{worst.where} ({worst.row.shapes})",
        setting(analysis, "compile", "on"),
        whole(members),
    )


def _is_fusable(one: Ran) -> bool:
    return (
        one.category in FUSABLE
        and not of_library(one)
        and not one.transfers
        and "batch_norm" not in one.row.name
    )
