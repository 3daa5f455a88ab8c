"""Several ranks of one job: where each one's time went, and what their collectives waited for and reached.

A collective's kernel runs from when its rank enters until the transfer is over. Durations need no common
clock: the rank that enters last has the shortest kernel, which is the transfer, and what the others took
longer they waited for it. This holds where no rank can leave before all have entered; for broadcasts and the
like, the shortest kernel is shown as the transfer and no rank is called late.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from rooflines.device_specs.records import Ceilings
from rooflines.errors import TraceError, UsageError
from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.exchanges import bus_factor
from rooflines.profiler.read.missing_device import lacks_device
from rooflines.profiler.read.reader import read
from rooflines.profiler.read.records import READ_DEFAULTS, Int64s, Rank, ReadOptions
from rooflines.profiler.read.sources import rank_in_name, shown
from rooflines.profiler.records import Environment
from rooflines.profiler.tree.collectives import Collectives, read_collectives
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.roofline.advise.communication import ALL_RANKS, FIND_LATE_RANK
from rooflines.roofline.advise.findings import MOST, WORTH
from rooflines.roofline.advise.plan import in_order
from rooflines.roofline.advise.verdict import differing
from rooflines.roofline.analysis import Finding, Timeline
from rooflines.roofline.analyze import analyze
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.ranks.matching import (
    SYNCHRONIZING,
    MatchedCollectives,
    Waits,
    match_collectives,
    side_by_side,
    waits_at_start,
)
from rooflines.roofline.ranks.records import MatchedRow, RankAnalysis, RankRow, Spread, Straggler
from rooflines.units import counted, percent, seconds

# Times after this are dates, and ranks of one job begin less than an hour apart.
_DATED_NS = 10**18
_ONE_JOB_NS = 3_600 * 10**9
# What ranks are compared in.
COMPARED = (
    "span_s",
    "busy_s",
    "idle_s",
    "compute_s",
    "communication_s",
    "exposed_communication_s",
    "memcpy_s",
)
# What replays give to a saving: its mean over the ranks is that of these.
_REPLAYED: dict[str, Callable[[Finding], float]] = {
    "about_s": lambda one: one.gain_s,
    "alone_s": lambda one: one.alone_s or 0.0,
    "later_s": lambda one: one.later_s or 0.0,
}
_SAVINGS = ("saves_s", *_REPLAYED)


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
    began_ns: int = 0
    bound_breakdown: dict[str, float] | None = None
    idle_breakdown: dict[str, float] | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


# The ceilings that judge a rank by its environment, or why there are none.
Judge: TypeAlias = "Callable[[Environment], tuple[Ceilings | None, str]]"


def unjudged(_: Environment) -> tuple[None, str]:
    """No ceilings, for no reason that must be told."""
    return None, ""


def read_rank(source: str, reading: ReadOptions = READ_DEFAULTS, judge: Judge = unjudged) -> RankPart:
    """Read and analyze the trace of one rank. Raises TraceError that names ``source``."""
    try:
        trace = read(source, reading)
    except TraceError as error:
        if shown(source) in error.message:
            raise
        raise TraceError(f"{shown(source)!r}: {error.message}", hint=error.marked_hint) from None
    if lacks_device(trace):
        why = "ends before its device events" if trace.cut_ns is not None else "has no device events"
        raise TraceError(
            f"the trace {shown(source)!r} {why}: its times cannot be compared with those of other ranks.",
            hint="Remove it from the list, or analyze it alone.",
        )
    run = run_of_trace(source, trace)
    ceilings, why_not = judge(run.facts.environment)
    analysis, attribution = analyze(run, ceilings, trace)[:2]
    # Of what is in no step nothing is said per step.
    since_ns = (
        int(attribution.windows[0, 0]) if attribution is not None and analysis.basis.per == "step" else 0
    )
    if analysis.timeline is None:
        raise TraceError(f"the trace {shown(source)!r} contains no events with a duration.")
    timeline, division = analysis.timeline, analysis.division
    if division is not None and division.of == "host" and division.communication_s:
        # Processors exchange from the host, where no kernel shows it.
        exchanged_s = division.communication_s
        timeline = replace(timeline, communication_s=exchanged_s, exposed_communication_s=exchanged_s)
    return RankPart(
        source=shown(source),
        place=trace.rank,
        device_name=run.facts.environment.device_name,
        timeline=timeline,
        per=analysis.basis.per,
        steps=analysis.basis.steps,
        collectives=read_collectives(trace, since_ns=since_ns),
        began_ns=since_ns
        or min(int(events.start_ns.min()) for events in (trace.host, trace.device) if len(events)),
        bound_breakdown=analysis.bound_breakdown if analysis.ceilings else None,
        idle_breakdown=analysis.idle_breakdown,
        findings=analysis.findings,
        notes=(*trace.notes, *filter(None, (why_not, differing(analysis)))),
    )


def analyze_parts(parts: Sequence[RankPart]) -> RankAnalysis:
    """The ranks each and together. Raises UsageError where two files are of the same rank."""
    numbered = _numbered(parts)
    per: Literal["step", "trace"] = "step" if all(part.per == "step" for part in parts) else "trace"
    world_sizes = _world_sizes(parts)
    world_size = world_sizes[0] if len(world_sizes) == 1 else None
    collectives = {rank: part.collectives for rank, part in numbered.items()}
    matched, left = match_collectives(collectives)
    waits = Waits(tuple(numbered))
    at_start = waits_at_start(matched, collectives, {rank: part.began_ns for rank, part in numbered.items()})
    rows = _collective_rows(matched, at_start, collectives, world_size, waits)
    ranks = tuple(
        _rank_row(place, rank, part, per, waits) for place, (rank, part) in enumerate(numbered.items())
    )
    found = RankAnalysis(
        per=per,
        world_size=world_size,
        device_name=", ".join(sorted({part.device_name for part in parts if part.device_name})),
        ranks=ranks,
        spread={name: _spread(ranks, name) for name in COMPARED},
        bound_breakdown=_mean_of(parts, per, "bound_breakdown"),
        idle_breakdown=_mean_of(parts, per, "idle_breakdown"),
        waiting=waits.mean(),
        straggler=waits.straggler(),
        collectives=rows,
        unmatched=tuple(left),
        notes=_notes(numbered, world_size, rows),
    )
    own = {
        rank: [
            replace(
                one,
                **{
                    name: saved_s * _factor(part, per)
                    for name in _SAVINGS
                    if (saved_s := getattr(one, name)) is not None
                },
            )
            for one in part.findings
        ]
        for rank, part in numbered.items()
    }
    return replace(found, findings=find(found, own))


def _numbered(parts: Sequence[RankPart]) -> dict[int, RankPart]:
    """The ranks in order: what the trace says, else the name of its file, else its place in the list."""
    numbered: dict[int, RankPart] = {}
    unnamed = [part for part in parts if part.place is None and rank_in_name(part.source) is None]
    began = sorted(part.began_ns for part in unnamed) or [0]
    devices = sorted({part.device_name for part in parts} - {""})
    differ = f"they are of {' and '.join(devices)}" if unnamed and len(devices) > 1 else ""
    if began[0] > _DATED_NS and began[-1] - began[0] > _ONE_JOB_NS:
        differ = f"they began {(began[-1] - began[0]) / 3.6e12:,.0f} hours apart"
    if differ:
        raise UsageError(
            f"not all traces name their rank, and {differ}: this is not one job.",
            hint="Analyze each alone, or compare two.",
        )
    for position, part in enumerate(parts):
        named = rank_in_name(part.source)
        rank = part.place.rank if part.place else position if named is None else named
        if rank in numbered:
            raise UsageError(
                f"two traces belong to rank {rank}: {numbered[rank].source!r} and {part.source!r}.",
                hint=(
                    "Give one trace per rank of the same job. Traces without a recorded rank must be "
                    "named rank0, rank1, ..."
                ),
            )
        numbered[rank] = part
    return dict(sorted(numbered.items()))


def _world_sizes(parts: Iterable[RankPart]) -> list[int]:
    """The numbers of ranks of the job that the parts tell."""
    return sorted({part.place.world_size for part in parts if part.place and part.place.world_size})


def _factor(part: RankPart, per: str) -> int:
    """What the times of ``part`` are multiplied by, to be of the whole trace where others have no steps."""
    return part.steps if per == "trace" and part.per == "step" else 1


def _mean_of(parts: Sequence[RankPart], per: str, name: str) -> dict[str, float] | None:
    """The mean over the ranks of the breakdown ``name``; None where a rank has none."""
    every: list[dict[str, float] | None] = [getattr(part, name) for part in parts]
    own = [(part, times) for part, times in zip(parts, every, strict=True) if times is not None]
    means = (
        (key, time_s * _factor(part, per) / len(parts))
        for part, times in own
        for key, time_s in times.items()
    )
    return longest_first(means) if len(own) == len(parts) else None


def _rank_row(place: int, rank: int, part: RankPart, per: str, waits: Waits) -> RankRow:
    timeline = part.timeline
    factor = _factor(part, per)
    communication, exposed = timeline.communication_s, timeline.exposed_communication_s
    return RankRow(
        rank=rank,
        source=re.split(r"[/\\]", part.source)[-1],
        **{name: getattr(timeline, name) * factor for name in COMPARED},
        hidden_fraction=(communication - exposed) / communication if communication > 0 else None,
        steps=part.steps,
        collectives=len(part.collectives),
        matched=int(waits.matched[place]),
        waited_s=float(waits.waited_ns[place]) / 1e9,
        waited_at_start_s=float(waits.at_start_ns[place]) / 1e9,
        times_last=int(waits.times_last[place]),
        caused_wait_s=float(waits.caused_ns[place]) / 1e9,
    )


def _spread(ranks: Sequence[RankRow], name: str) -> Spread:
    values = {row.rank: getattr(row, name) for row in ranks}
    mean = sum(values.values()) / len(values)
    low = min(values, key=values.__getitem__)
    high = max(values, key=values.__getitem__)
    imbalance = values[high] / mean - 1 if mean > 0 else None
    return Spread(
        min=values[low], max=values[high], mean=mean, min_rank=low, max_rank=high, imbalance=imbalance
    )


# --- collectives ------------------------------------------------------------------------------------------


def _collective_rows(
    matched: Sequence[MatchedCollectives],
    at_start: Sequence[Int64s],
    collectives: Mapping[int, Collectives],
    world_size: int | None,
    waits: Waits,
) -> tuple[MatchedRow, ...]:
    """A row a kind, group and size, those that took longest first."""
    rows = []
    for one, at_start_ns in zip(matched, at_start, strict=True):
        lasting, what = (
            side_by_side(collectives, one.ranks, one.calls, name) for name in ("duration_ns", "what")
        )
        exchanged, number = distinct_rows(*what.T)
        sizes: dict[tuple[int | None, str | None, int | None], list[int]] = {}
        for row, codes in enumerate(exchanged.tolist()):
            exchanges = [
                collectives[rank].exchanges[code] for rank, code in zip(one.ranks, codes, strict=True)
            ]
            # Of an uneven exchange the rank that moves most.
            most = max((exchange.bytes for exchange in exchanges if exchange.bytes is not None), default=None)
            sizes.setdefault((most, exchanges[0].dtype, exchanges[0].group_size), []).append(row)
        for (size, dtype, group_size), chosen in sizes.items():
            these = np.isin(number, chosen)
            # Where the group's ranks are not noted, it is all of the job if all of the job took part.
            of = group_size or (world_size if world_size == len(one.ranks) else None)
            rows.append(_collective_row(one, lasting[these], at_start_ns[these], (size, dtype, of), waits))
    return tuple(sorted(rows, key=lambda row: -(row.transfer_s + row.skew_s) * row.count))


def _collective_row(
    one: MatchedCollectives,
    lasting: Int64s,
    at_start_ns: Int64s,
    exchanged: tuple[int | None, str | None, int | None],
    waits: Waits,
) -> MatchedRow:
    """A row of collectives of one kind. ``exchanged`` is what one moves: its bytes, their dtype, and the size
    of the group."""
    size, dtype, group_size = exchanged
    transfer = lasting.min(axis=1)
    skew = lasting.max(axis=1) - transfer
    synchronizing = one.kind in SYNCHRONIZING
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
        waited_s=int((lasting - transfer[:, None]).sum()) / 1e9 if synchronizing else None,
        last_rank=waits.add(one.ranks, lasting, at_start_ns, synchronizing),
        bytes=size,
        dtype=dtype,
        group=one.group,
        group_size=group_size,
        algorithm_byte_per_s=algorithm,
        bus_byte_per_s=algorithm * factor if algorithm is not None and factor is not None else None,
    )


def _notes(ranks: dict[int, RankPart], world_size: int | None, rows: Sequence[MatchedRow]) -> tuple[str, ...]:
    notes = []
    world_sizes = _world_sizes(ranks.values())
    if len(world_sizes) > 1:
        notes.append(
            f"the traces are of jobs of {', '.join(map(str, world_sizes))} ranks: they may belong "
            "to different jobs"
        )
    if world_size and len(ranks) < world_size:
        notes.append(
            f"{len(ranks)} of the job's {world_size} ranks were given: another rank may have "
            "entered a collective last, "
            "and transfers may be shorter than shown"
        )
    if len({part.steps for part in ranks.values()}) > 1:
        notes.append("the traces of the ranks have different numbers of steps")
    if any(row.matched_by == "time" for row in rows):
        notes.append(
            "some collectives were matched by their end times, which assumes that the ranks' clocks agree"
        )
    said = grouped(((note, rank) for rank, part in ranks.items() for note in part.notes), lambda one: one[0])
    for note, of in said.items():
        notes.append(
            note if len(of) == len(ranks) else f"rank {', '.join(str(rank) for _, rank in of)}: {note}"
        )
    return tuple(notes)


# A rank that causes this much of what the worst one does is as bad.
_NEAR = 0.75
# Compute of a rank that exceeds the mean by less is not what makes it late.
EVEN = 0.02


def find(job: RankAnalysis, own: Mapping[int, Sequence[Finding]]) -> tuple[Finding, ...]:
    """The findings of ``job`` with those of its ranks, ``own``: largest mean saving first, together at most
    the mean span."""
    span_s = job.spread["span_s"].mean
    found = []
    left_s = span_s
    for one in in_order((*_late(job), *_of_ranks(job, own))):
        saves_s = min(one.most_s, left_s)
        if one.most_s and saves_s < WORTH * span_s:
            continue
        left_s -= min(saves_s, one.gain_s)
        found.append(replace(one, saves_s=saves_s or None))
    return tuple(found[:MOST])


def in_steps_s(job: RankAnalysis) -> float:
    """What a rank waits in the mean for what the steps make, per step where the job's times are; at most its
    exposed communication."""
    waited_s = _per(job, job.waiting.in_steps_s) if job.waiting is not None else 0.0
    return min(waited_s, job.spread["exposed_communication_s"].mean)


def hosts_apart(job: RankAnalysis) -> bool:
    """Whether the recordings began further apart than the ranks wait later, and a single step followed: a
    host that began late stays late until the others wait for the device."""
    return (
        job.waiting is not None
        and max(row.steps for row in job.ranks) < 2
        and job.waiting.at_start_s > job.waiting.in_steps_s
    )


def _late(job: RankAnalysis) -> Iterator[Finding]:
    """The rank that the others wait for, and in what it differs from them."""
    late = job.straggler
    if late is None or hosts_apart(job):
        return
    per = "a step" if job.per == "step" else "of the trace"
    near = {
        row.rank: row.caused_wait_s / late.waited_s * late.share
        for row in job.ranks
        if row.caused_wait_s >= _NEAR * late.waited_s
    }
    too = "".join(
        f"; rank {rank} causes {percent(share)}" for rank, share in near.items() if rank != late.rank
    )
    which = f"ranks {', '.join(map(str, near))}" if too else f"rank {late.rank}"
    yield Finding(
        title=f"Let {which} keep up with the others",
        saves_s=in_steps_s(job) * late.share,
        evidence=(
            f"it enters {late.times_last} of {late.of} matched collectives last and causes "
            f"{percent(late.share)} of the waiting that "
            f"the steps make, {seconds(in_steps_s(job))} {per} in the mean over the ranks{too}"
        ),
        suggestion=_differs(job, late),
    )


def _differs(job: RankAnalysis, late: Straggler) -> str:
    row = next(row for row in job.ranks if row.rank == late.rank)
    compute = job.spread["compute_s"]
    idle = job.spread["idle_s"]
    if row.compute_s > (1 + EVEN) * compute.mean:
        more = percent(row.compute_s / compute.mean - 1)
        return (
            "give it less data, fewer layers or experts, or find what lowers its clock: its device "
            f"computes {more} more than the mean"
        )
    if row.idle_s > (1 + EVEN) * idle.mean:
        return (
            f"see what its host does while its device is idle, {seconds(row.idle_s)} against "
            f"{seconds(idle.mean)} in the mean"
        )
    return (
        "see what its device and its host do before these collectives: it computes no longer than the others"
    )


def _of_ranks(job: RankAnalysis, own: Mapping[int, Sequence[Finding]]) -> Iterator[Finding]:
    """The findings of single ranks by title, with their mean saving and the evidence of the rank that would
    save most."""
    titles: dict[str, dict[int, Finding]] = {}
    for rank, findings in own.items():
        for one in findings:
            titles.setdefault(one.title, {}).setdefault(rank, one)
    waited_s = _per(job, job.waiting.at_start_s + job.waiting.in_steps_s) if job.waiting is not None else 0.0
    for title, ranks in titles.items():
        if title == FIND_LATE_RANK:
            continue
        most = max(ranks, key=lambda rank: ranks[rank].most_s)
        saves_s = sum(one.most_s for one in ranks.values()) / len(own)
        if ranks[most].suggestion.endswith(ALL_RANKS):  # waiting for a rank is not hidden by computation
            saves_s = min(saves_s, max(0.0, job.spread["exposed_communication_s"].mean - waited_s))
        yield replace(
            ranks[most],
            saves_s=saves_s or None,
            **{
                name: min(saves_s, sum(map(of_rank, ranks.values())) / len(own))
                for name, of_rank in _REPLAYED.items()
                if getattr(ranks[most], name) is not None
            },
            evidence=f"on {counted(len(ranks), 'rank')} of {len(own)}; rank {most}: {ranks[most].evidence}",
            suggestion=ranks[most].suggestion.removesuffix(ALL_RANKS),
        )


def _per(job: RankAnalysis, whole_s: float) -> float:
    """A time of the whole trace, per step where the job's times are."""
    return whole_s / max(row.steps for row in job.ranks) if job.per == "step" else whole_s
