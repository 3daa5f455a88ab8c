"""Advice on communication that no computation hides: who is late, and what could run meanwhile."""

from __future__ import annotations

import re

from rooflines.roofline.advise.case import Advice, Case, Ran, total
from rooflines.roofline.analysis import CollectiveRow
from rooflines.units import binary_bytes, seconds, si

# Below this rate, which every link between devices exceeds (PCIe, NVLink, networks of 25 Gbit/s or more),
# something else takes time.
SLOW_BYTE_PER_S = 2e9
# A saving is an upper bound: what a collective would take is put at the rate of PCIe 5.0 x16 or a network of
# 400 Gbit/s.
LINK_BYTE_PER_S = 50e9
# More all-reduces in a step than a model of any size has buckets of DistributedDataParallel (25 MB each).
MANY_CALLS = 100
# The longest of several calls of one size by the shortest, from which on more than the link explains it.
UNEVEN = 4
# No collective on a link that works takes longer to begin.
LATENCY_S = 100e-6
# What a job of which all ranks are given needs no more, because its ranks are compared.
FIND_LATE_RANK = "Find out what the collectives wait for"
ALL_RANKS = "; analyze the traces of all ranks (rooflines analyze FOLDER)"
_NAMES = {
    "allreduce": "an all-reduce",
    "allgather": "an all-gather",
    "reducescatter": "a reduce-scatter",
    "alltoall": "an all-to-all",
    "broadcast": "a broadcast",
    "sendrecv": "a send and receive",
    "reduce": "a reduce",
    "gather": "a gather",
    "scatter": "a scatter",
}
# What helps where the trace shows this wrapper, by kinds of collectives; without it the general advice holds.
_WRAPPED = (
    (
        ("allgather", "reducescatter"),
        re.compile("FSDP|FullyShardedDataParallel", re.IGNORECASE),
        "prefetch the next parameters (FSDP forward_prefetch, BackwardPrefetch.BACKWARD_PRE)",
    ),
    (
        ("allreduce",),
        re.compile("DistributedDataParallel|Reducer"),
        "start the all-reduce earlier (DistributedDataParallel with static_graph=True, "
        "accumulation under no_sync())",
    ),
)


def late_rank(case: Case) -> Advice | None:
    """Collectives that take far longer than any link needs for their size, or than others of the same size: a
    rank comes late, or the fabric is slow."""
    slow = [
        row for row in case.analysis.collectives if row.bytes and (_is_slow(row) or _uneven(row) is not None)
    ]
    rows = _exposed(case)
    exposed_s = sum(rows.values())
    waited_s = min(exposed_s, sum(_waited_s(one) for one in slow))
    if waited_s <= 0:
        return None
    worst = max(slow, key=_waited_s)
    assert worst.bytes is not None
    each_s = worst.time_s / worst.calls
    what = f"{_NAMES.get(worst.kind, worst.kind)} of {binary_bytes(worst.bytes)} takes"
    how_long = f"{what} {seconds(each_s)} ({si(worst.bytes / each_s, 'B/s')}), far below what a link does"
    if (shortest_s := _uneven(worst)) is not None and worst.longest_s is not None:
        how_long = (
            f"{what} {seconds(shortest_s)} to {seconds(worst.longest_s)}, although the size is the same"
        )
    return Advice(
        FIND_LATE_RANK,
        waited_s,
        f"{how_long}; {seconds(waited_s)} ({case.share(waited_s)}) of such collectives, which "
        "their size does not explain, run while "
        "nothing is computed",
        "rooflines analyze on the traces of all ranks names the late rank; if none is late, "
        "measure the fabric (nccl-tests)",
        {one.key: waited_s * part / exposed_s for one, part in rows.items()},
        changes="kernels",
    )


def exposed(case: Case) -> Advice | None:
    """Communication that no computation hides, as far as its size explains it, or its size is not known."""
    found = _exposed(case)
    exposed_s = sum(found.values())
    if exposed_s <= 0:
        return None
    timeline = case.timeline
    time_s = total(found)
    saves_s = exposed_s
    ready = ""
    if timeline.ready_communication_s is not None:
        # Beside the communication of gradients only the backward pass computes; what computes beside it
        # already hides nothing more.
        compute_s = timeline.compute_s
        division = case.division
        gradients_s = sum(part for one, part in found.items() if one.row.phase == "backward")
        if division.of == "device" and division.backward_s is not None and gradients_s >= 0.5 * exposed_s:
            compute_s = min(compute_s, division.backward_s)
        left_s = compute_s - (timeline.communication_s - timeline.exposed_communication_s)
        saves_s = min(exposed_s, timeline.ready_communication_s, max(0.0, left_s))
        ready = (
            f"; {seconds(saves_s)} of computation that has been launched could run meanwhile"
            if saves_s < exposed_s
            else ""
        )
    if timeline.communication_s:
        time_s = min(time_s, timeline.communication_s)
    most = max(found, key=lambda one: found[one])
    known = all(one.row.bytes for one in found if found[one])
    calls = _reduced(case)
    many = f", in {calls:,.0f} all-reduces" if calls > MANY_CALLS else ""
    unknown = "" if known else "; sizes are not recorded, so part of it may be waiting for a late rank"
    rest = "the rest of the " if time_s < sum(one.row.time_s for one in found) else ""
    return Advice(
        "Hide the communication behind computation",
        saves_s,
        f"{rest}communication takes {seconds(time_s)} {case.per}, of which {seconds(exposed_s)} "
        f"({case.share(exposed_s)}) run "
        f"while nothing is computed, most of it in {most.row.name}{many}{unknown}{ready}",
        _overlap(case, most) + ALL_RANKS,
        {one.key: part for one, part in found.items()},
        changes="kernels",
    )


def _reduced(case: Case) -> float:
    """All-reduces a step."""
    return sum(one.calls for one in case.analysis.collectives if one.kind == "allreduce")


def _exposed(case: Case) -> dict[Ran, float]:
    """The part that nothing hides and no advice is about yet, shared by collectives at the same time; none
    where it is not known."""
    rows = case.ran(lambda one: one.communicates)
    every_s = sum(one.row.exposed_s or 0.0 for one in case.every() if one.communicates)
    union_s = case.timeline.exposed_communication_s
    part = min(1.0, union_s / every_s) if union_s and every_s else 1.0
    return {one: max(0.0, (one.row.exposed_s or 0.0) * part - (one.row.time_s - one.left_s)) for one in rows}


def _is_slow(one: CollectiveRow) -> bool:
    return one.time_s / one.calls > LATENCY_S and (one.bytes or 0) * one.calls / one.time_s < SLOW_BYTE_PER_S


def _uneven(one: CollectiveRow) -> float | None:
    """The shortest of calls of one size that differ by more than sharing a link with others does; None of
    others."""
    shortest_s = one.shortest_s
    if shortest_s is None or one.longest_s is None or one.longest_s <= UNEVEN * max(shortest_s, LATENCY_S):
        return None
    return shortest_s


def _waited_s(one: CollectiveRow) -> float:
    """The exposed time beyond the shortest of uneven calls, or what a link would need, which carries each
    byte twice in a ring's all-reduce."""
    least_s = _uneven(one)
    if least_s is None:
        least_s = LATENCY_S + 2 * (one.bytes or 0) / LINK_BYTE_PER_S
    return max(0.0, one.exposed_s - one.calls * least_s)


def _overlap(case: Case, most: Ran) -> str:
    told = " ".join((most.row.name, *(kernel.name for kernel in most.kernels))).lower().replace("_", "")
    if case.analysis.workload.mode != "training":
        return "fewer ranks for each replica, or two batches in turn, one of which computes meanwhile"
    if _reduced(case) > MANY_CALLS:
        if _has(case, _WRAPPED[1][1]):
            return "larger buckets (DistributedDataParallel(bucket_cap_mb=...)), or one call for many tensors"
        return (
            "DistributedDataParallel, which reduces the gradients in a few buckets during the "
            "backward, or one call for many tensors"
        )
    for words, wrapper, advice in _WRAPPED:
        if any(word in told for word in words) and _has(case, wrapper):
            return advice
    if "alltoall" in told:
        return (
            "overlap the all-to-all with layers that do not need it (a separate stream, pipelined embeddings)"
        )
    return "start it earlier, or run layers that do not need it meanwhile"


def _has(case: Case, wrapper: re.Pattern[str]) -> bool:
    """Whether modules or operators of the trace name the wrapper of the model."""
    names = (
        *(f"{one.row.name} {one.row.module}" for one in case.every()),
        *(module.type for module in case.analysis.modules),
    )
    return any(map(wrapper.search, names))
