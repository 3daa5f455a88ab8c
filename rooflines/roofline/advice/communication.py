"""Advice on communication that no computation hides: who is late, and what could run meanwhile."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case, Ran, total
from rooflines.roofline.analysis import OperatorRow
from rooflines.units import binary_bytes, seconds, si

# Every link between devices is faster than this: PCIe, NVLink, and networks of 25 Gbit/s or more.
SLOW_BYTE_PER_S = 2e9
# No collective on a link that works takes longer to begin.
LATENCY_S = 100e-6
_OVERLAP = {
    "alltoall": "run the all-to-all beside layers that do not need it (a stream of its own, pipelined embeddings)",
    "all_to_all": "run the all-to-all beside layers that do not need it (a stream of its own, pipelined embeddings)",
    "allgather": "prefetch the next parameters (FSDP forward_prefetch, BackwardPrefetch.BACKWARD_PRE)",
    "all_gather": "prefetch the next parameters (FSDP forward_prefetch, BackwardPrefetch.BACKWARD_PRE)",
    "reduce_scatter": "prefetch the next parameters (FSDP forward_prefetch, BackwardPrefetch.BACKWARD_PRE)",
    "all_reduce": "start the all-reduce earlier (DistributedDataParallel with static_graph=True, accumulation under no_sync())",
    "allreduce": "start the all-reduce earlier (DistributedDataParallel with static_graph=True, accumulation under no_sync())",
}


def late_rank(case: Case) -> Advice | None:
    """Collectives that take far longer than any link needs for their size: a rank comes late, or the fabric is slow."""
    found = {one: _waited_s(one) for one in case.ran(_communicates) if _is_slow(one)}
    waited_s = sum(found.values())
    if not waited_s:
        return None
    worst = max(found, key=lambda one: found[one])
    row = worst.row
    assert isinstance(row, OperatorRow)
    size, each_s = row.bytes / row.calls / 2, row.time_s / row.calls
    return Advice(
        title="Find the rank that the others wait for",
        saves_s=waited_s,
        evidence=(
            f"{row.name} moves {binary_bytes(size)} in {seconds(each_s)} ({si(size / each_s, 'B/s')}), far below what a link does; "
            f"such collectives take {seconds(sum(one.row.time_s for one in found))} {case.per}, of which their size does not explain "
            f"{seconds(waited_s)} ({case.share(waited_s)}) that run while nothing is computed"
        ),
        suggestion="rooflines analyze on the traces of all ranks names the late rank; if none is late, measure the fabric (nccl-tests)",
        of={one.key: part for one, part in found.items()},
    )


def exposed(case: Case) -> Advice | None:
    """Communication that no computation hides, as far as its size explains it, or its size is not known."""
    found = {one: min(one.left_s, _exposed_s(one)) for one in case.ran(_communicates)}
    exposed_s = sum(found.values())
    if exposed_s <= 0:
        return None
    time_s, most = total(list(found)), max(found, key=lambda one: found[one])
    known = all(isinstance(one.row, OperatorRow) and one.row.bytes for one in found if found[one])
    unknown = "" if known else "; sizes are not recorded, so part of it may be waiting for a late rank"
    rest = "the rest of the " if time_s < sum(one.row.time_s for one in found) else ""
    return Advice(
        title="Hide the communication behind computation",
        saves_s=exposed_s,
        evidence=(
            f"{rest}communication takes {seconds(time_s)} {case.per}, of which {seconds(exposed_s)} ({case.share(exposed_s)}) run "
            f"while nothing is computed, most of it in {most.row.name}{unknown}"
        ),
        suggestion=f"{_overlap(case, most)}; rooflines analyze on the traces of all ranks",
        of={one.key: part for one, part in found.items()},
    )


def _communicates(one: Ran) -> bool:
    return one.communicates


def _exposed_s(one: Ran) -> float:
    """The part that nothing hides; where that is not known, as on a CPU, none."""
    return one.row.exposed_s or 0.0


def _is_slow(one: Ran) -> bool:
    row = one.row
    if not isinstance(row, OperatorRow) or not row.bytes or not row.calls or not row.time_s:
        return False
    return row.time_s / row.calls > LATENCY_S and row.bytes / 2 / row.time_s < SLOW_BYTE_PER_S


def _waited_s(one: Ran) -> float:
    """The exposed time beyond what the slowest link would need."""
    row = one.row
    assert isinstance(row, OperatorRow)
    needed_s = row.calls * LATENCY_S + row.bytes / 2 / SLOW_BYTE_PER_S
    return max(0.0, min(one.left_s, _exposed_s(one)) - needed_s)


def _overlap(case: Case, most: Ran) -> str:
    told = " ".join((most.row.name, *(kernel.name for kernel in most.kernels))).lower()
    if case.analysis.workload.mode != "training":
        return "fewer ranks for each replica, or two batches in turn, one of which computes meanwhile"
    default = "start it earlier, or run layers that do not need it meanwhile"
    return next((advice for word, advice in _OVERLAP.items() if word in told), default)
