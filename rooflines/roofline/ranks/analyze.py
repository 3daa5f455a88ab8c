"""Several ranks of one job: where each one's time went, and what their collectives waited for and reached.

A collective's kernel runs from when its rank enters until the transfer is over. Durations need no common clock: the rank that enters
last has the shortest kernel, which is the transfer, and what the others took longer they waited for it. This holds where no rank can
leave before all have entered; for broadcasts and the like, the shortest kernel is shown as the transfer and no rank is called late.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from rooflines.errors import TraceError, UsageError
from rooflines.profiler.external_trace import run_of_trace
from rooflines.profiler.trace.collectives import Collectives, read_collectives
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.profiler.trace.cut import lacks_device, whole_part
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import Rank
from rooflines.profiler.trace.sources import rank_in_name
from rooflines.profiler.trace.url import shown
from rooflines.roofline.analysis import Timeline
from rooflines.roofline.analyze import analyze
from rooflines.roofline.ranks.collective_matching import SYNCHRONISING, MatchedCollectives, match_collectives
from rooflines.roofline.ranks.records import MatchedRow, RankAnalysis, RankRow, Spread, Straggler, UnmatchedRow

# What ranks are compared in.
COMPARED = ("span_s", "busy_s", "idle_s", "compute_s", "communication_s", "exposed_communication_s", "memcpy_s")


@dataclass(frozen=True, slots=True)
class RankPart:
    """The summary of one rank's trace, small enough to be sent between processes."""

    source: str
    place: Rank | None
    device_name: str
    timeline: Timeline
    per: Literal["step", "trace"]
    steps: int
    collectives: Collectives
    notes: tuple[str, ...] = ()


def read_rank(source: str, memory_limit_bytes: int = MEMORY_LIMIT_BYTES, partial: bool = False) -> RankPart:
    """Read and analyse the trace of one rank, with ``partial`` up to where it is cut off. Raises TraceError that names ``source``."""
    try:
        trace = whole_part(read_trace(source, memory_limit_bytes=memory_limit_bytes, partial=partial))
    except TraceError as error:
        if shown(source) in error.message:
            raise
        raise TraceError(f"{shown(source)!r}: {error.message}", hint=error.marked_hint) from None
    if lacks_device(trace):
        raise TraceError(
            f"the trace {shown(source)!r} ends before its device events: its times cannot be compared with those of other ranks.",
            hint="Remove it from the list, or analyze it alone.",
        )
    run = run_of_trace(source, trace)
    analysis = analyze(run, None, trace)
    if analysis.timeline is None:
        raise TraceError(f"the trace {shown(source)!r} contains no events with a duration.")
    timeline, division = analysis.timeline, analysis.division
    if division is not None and division.of == "host" and division.communication_s:
        # Processors exchange from the host, where no kernel shows it.
        exchanged_s = division.communication_s
        timeline = msgspec.structs.replace(timeline, communication_s=exchanged_s, exposed_communication_s=exchanged_s)
    return RankPart(
        source=shown(source),
        place=trace.rank,
        device_name=run.facts.environment.device_name,
        timeline=timeline,
        per=analysis.basis.per,
        steps=analysis.basis.steps,
        collectives=read_collectives(trace),
        notes=trace.notes,
    )


def analyze_parts(parts: Sequence[RankPart]) -> RankAnalysis:
    """The ranks each and together. Raises UsageError where two files are of the same rank."""
    numbered = _numbered(parts)
    per: Literal["step", "trace"] = "step" if all(part.per == "step" for part in parts) else "trace"
    world_size = _world_size(parts)
    collectives = {rank: part.collectives for rank, part in numbered.items()}
    matched, left = match_collectives(collectives)
    waits = _Waits(numbered)
    rows = _collective_rows(matched, collectives, world_size, waits)
    ranks = tuple(_rank_row(rank, part, per, waits) for rank, part in numbered.items())
    return RankAnalysis(
        per=per,
        world_size=world_size,
        device_name=", ".join(sorted({part.device_name for part in parts if part.device_name})),
        ranks=ranks,
        spread={name: _spread(ranks, name) for name in COMPARED},
        straggler=waits.straggler(),
        collectives=rows,
        unmatched=tuple(UnmatchedRow(kind=one.kind, count=one.count, reason=one.reason, group=one.group) for one in left),
        notes=_notes(numbered, world_size, rows),
    )


def _numbered(parts: Sequence[RankPart]) -> dict[int, RankPart]:
    """The ranks in order: what the trace says, else the name of its file, else its place in the list."""
    numbered: dict[int, RankPart] = {}
    for position, part in enumerate(parts):
        named = rank_in_name(part.source)
        rank = part.place.rank if part.place else position if named is None else named
        if rank in numbered:
            raise UsageError(
                f"two traces belong to rank {rank}: {numbered[rank].source!r} and {part.source!r}.",
                hint="Give one trace per rank of the same job. Traces without a recorded rank must be named rank0, rank1, ...",
            )
        numbered[rank] = part
    return dict(sorted(numbered.items()))


def _world_size(parts: Sequence[RankPart]) -> int | None:
    """The number of ranks of the job, where all that say one say the same."""
    said = {part.place.world_size for part in parts if part.place and part.place.world_size}
    return said.pop() if len(said) == 1 else None


def _rank_row(rank: int, part: RankPart, per: str, waits: _Waits) -> RankRow:
    timeline = part.timeline
    factor = part.steps if per == "trace" and part.per == "step" else 1
    communication, exposed = timeline.communication_s, timeline.exposed_communication_s
    return RankRow(
        rank=rank,
        source=re.split(r"[/\\]", part.source)[-1],
        **{name: getattr(timeline, name) * factor for name in COMPARED},
        hidden_fraction=(communication - exposed) / communication if communication > 0 else None,
        steps=part.steps,
        collectives=len(part.collectives),
        matched=waits.matched[rank],
        waited_s=waits.waited_ns[rank] / 1e9,
        times_last=waits.times_last[rank],
        caused_wait_s=waits.caused_ns[rank] / 1e9,
    )


def _spread(ranks: Sequence[RankRow], name: str) -> Spread:
    values = {row.rank: getattr(row, name) for row in ranks}
    mean = sum(values.values()) / len(values)
    low, high = min(values, key=lambda rank: values[rank]), max(values, key=lambda rank: values[rank])
    return Spread(
        min=values[low],
        max=values[high],
        mean=mean,
        min_rank=low,
        max_rank=high,
        imbalance=values[high] / mean - 1 if mean > 0 else None,
    )


# --- collectives -----------------------------------------------------------------------------------------------------------------


def bus_factor(kind: str, ranks: int) -> float | None:
    """Bus bandwidth / algorithm bandwidth of a collective among ``ranks``; None for a kind that has none.

    These are the factors of NVIDIA's nccl-tests (doc/PERFORMANCE.md there), for sizes as ``Exchange.bytes`` counts them.
    """
    if kind == "allreduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("allgather", "reducescatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if kind in ("broadcast", "reduce", "sendrecv") else None


class _Waits:
    """What each rank waited in matched collectives, and how often and how long it kept the others waiting."""

    def __init__(self, ranks: dict[int, RankPart]) -> None:
        self.matched = dict.fromkeys(ranks, 0)
        self.waited_ns = dict.fromkeys(ranks, 0)
        self.times_last = dict.fromkeys(ranks, 0)
        self.caused_ns = dict.fromkeys(ranks, 0.0)
        self.collectives = 0

    def add(self, ranks: Sequence[int], lasting_ns: np.ndarray, waits: bool) -> int | None:
        """Take in collectives: nanoseconds of each kernel by [collective, rank]. Returns the rank that made the others wait longest."""
        for rank in ranks:
            self.matched[rank] += len(lasting_ns)
        if not waits:
            return None
        self.collectives += len(lasting_ns)
        shortest = lasting_ns.min(axis=1, keepdims=True)
        waited = lasting_ns - shortest
        # Several ranks that entered last share the others' waiting time; if all entered together, none was last.
        last = (waited == 0) & (waited.sum(axis=1, keepdims=True) > 0)
        caused = (last * waited.sum(axis=1, keepdims=True) / np.maximum(1, last.sum(axis=1, keepdims=True))).sum(axis=0)
        for i, rank in enumerate(ranks):
            self.waited_ns[rank] += int(waited[:, i].sum())
            self.times_last[rank] += int(last[:, i].sum())
            self.caused_ns[rank] += float(caused[i])
        return ranks[int(caused.argmax())] if caused.any() else None

    def straggler(self) -> Straggler | None:
        """The rank that the others waited for longest; None if no rank waited."""
        total = sum(self.caused_ns.values())
        if not total:
            return None
        rank = max(self.caused_ns, key=lambda rank: self.caused_ns[rank])
        return Straggler(
            rank=rank,
            times_last=self.times_last[rank],
            of=self.collectives,
            waited_s=self.caused_ns[rank] / 1e9,
            share=self.caused_ns[rank] / total,
        )


def _collective_rows(
    matched: Sequence[MatchedCollectives], collectives: dict[int, Collectives], world_size: int | None, waits: _Waits
) -> tuple[MatchedRow, ...]:
    """A row a kind, group and size, those that took longest first."""
    rows = []
    for one in matched:
        lasting = np.stack([collectives[rank].duration_ns[one.calls[:, i]] for i, rank in enumerate(one.ranks)], axis=1)
        what = np.stack([collectives[rank].what[one.calls[:, i]] for i, rank in enumerate(one.ranks)], axis=1)
        distinct, number = np.unique(what, axis=0, return_inverse=True)
        sizes: dict[tuple[int | None, str | None, int | None], list[int]] = {}
        for row, codes in enumerate(distinct.tolist()):
            exchanges = [collectives[rank].exchanges[code] for rank, code in zip(one.ranks, codes, strict=True)]
            # Of an uneven exchange the rank that moves most.
            most = max((exchange.bytes for exchange in exchanges if exchange.bytes is not None), default=None)
            sizes.setdefault((most, exchanges[0].dtype, exchanges[0].group_size), []).append(row)
        for (size, dtype, group_size), chosen in sizes.items():
            these = lasting[np.isin(number.reshape(-1), chosen)]
            rows.append(_collective_row(one, these, size, dtype, _group_size(one, group_size, world_size), waits))
    return tuple(sorted(rows, key=lambda row: -(row.transfer_s + row.skew_s) * row.count))


def _group_size(one: MatchedCollectives, noted: int | None, world_size: int | None) -> int | None:
    """The ranks in the group: noted, or all of the job where all of the job took part."""
    return noted or (world_size if world_size == len(one.ranks) else None)


def _collective_row(
    one: MatchedCollectives, lasting_ns: np.ndarray, size: int | None, dtype: str | None, group_size: int | None, waits: _Waits
) -> MatchedRow:
    transfer = lasting_ns.min(axis=1)
    skew = lasting_ns.max(axis=1) - transfer
    synchronising = one.kind in SYNCHRONISING
    last = waits.add(one.ranks, lasting_ns, synchronising)
    total_s = int(transfer.sum()) / 1e9
    algorithm = size * len(transfer) / total_s if size and total_s > 0 else None
    factor = bus_factor(one.kind, group_size) if group_size else None
    return MatchedRow(
        kind=one.kind,
        count=len(transfer),
        ranks=len(one.ranks),
        matched_by=one.by,
        transfer_s=total_s / len(transfer),
        skew_s=float(skew.mean()) / 1e9,
        skew_max_s=int(skew.max()) / 1e9,
        waited_s=int((lasting_ns - transfer[:, None]).sum()) / 1e9 if synchronising else None,
        last_rank=last,
        bytes=size,
        dtype=dtype,
        group=one.group,
        group_size=group_size,
        algorithm_byte_per_s=algorithm,
        bus_byte_per_s=algorithm * factor if algorithm is not None and factor is not None else None,
    )


def _notes(ranks: dict[int, RankPart], world_size: int | None, rows: Sequence[MatchedRow]) -> tuple[str, ...]:
    notes = []
    said = {part.place.world_size for part in ranks.values() if part.place and part.place.world_size}
    if len(said) > 1:
        notes.append(f"the traces are of jobs of {', '.join(map(str, sorted(said)))} ranks: they may belong to different jobs")
    if world_size and len(ranks) < world_size:
        notes.append(
            f"{len(ranks)} of the job's {world_size} ranks were given: another rank may have entered a collective last, "
            "and transfers may be shorter than shown"
        )
    if len({part.steps for part in ranks.values()}) > 1:
        notes.append("the traces of the ranks have different numbers of steps")
    if any(row.matched_by == "time" for row in rows):
        notes.append("some collectives were matched by their end times, which assumes that the ranks' clocks agree")
    notes += [f"rank {rank}: {note}" for rank, part in ranks.items() for note in part.notes]
    return tuple(notes)
