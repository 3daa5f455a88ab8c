"""Advice for a job of several ranks: that of its ranks, with the mean saving, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from rooflines.roofline.advice.communication import ALL_RANKS, FIND_LATE_RANK
from rooflines.roofline.analysis import Finding
from rooflines.roofline.findings import MOST, WORTH
from rooflines.roofline.ranks.records import RankAnalysis, Straggler
from rooflines.units import counted, percent, seconds

# Compute of a rank that exceeds the mean by less is not what makes it late.
EVEN = 0.02


def find(job: RankAnalysis, own: Mapping[int, tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """The findings of ``job`` with those of its ranks, ``own``: largest mean saving first, together at most the mean span."""
    span_s = job.spread["span_s"].mean
    found, left_s = [], span_s
    for one in sorted((*_late(job), *_of_ranks(job, own)), key=lambda one: -one.saves_s):
        saves_s = min(one.saves_s, left_s)
        if one.saves_s and saves_s < WORTH * span_s:
            continue
        left_s -= saves_s
        found.append(msgspec.structs.replace(one, saves_s=saves_s))
    return tuple(found[:MOST])


def in_steps_s(job: RankAnalysis) -> float:
    """What a rank waits in the mean for what the steps make, per step where the job's times are; at most its exposed communication."""
    waited_s = _per(job, job.waiting.in_steps_s) if job.waiting is not None else 0.0
    return min(waited_s, job.spread["exposed_communication_s"].mean)


def hosts_apart(job: RankAnalysis) -> bool:
    """Whether the recordings began further apart than the ranks wait later, and a single step followed: a host that began late stays
    late until the others wait for the device."""
    return job.waiting is not None and max(row.steps for row in job.ranks) < 2 and job.waiting.at_start_s > job.waiting.in_steps_s


def _late(job: RankAnalysis) -> Iterator[Finding]:
    """The rank that the others wait for, and in what it differs from them."""
    late = job.straggler
    if late is None or hosts_apart(job):
        return
    per = "a step" if job.per == "step" else "of the trace"
    yield Finding(
        title=f"Let rank {late.rank} keep up with the others",
        saves_s=in_steps_s(job) * late.share,
        evidence=(
            f"it enters {late.times_last} of {late.of} matched collectives last and causes {percent(late.share)} of the waiting that "
            f"the steps make, {seconds(in_steps_s(job))} {per} in the mean over the ranks"
        ),
        suggestion=_differs(job, late),
    )


def _differs(job: RankAnalysis, late: Straggler) -> str:
    row = next(row for row in job.ranks if row.rank == late.rank)
    compute, idle = job.spread["compute_s"], job.spread["idle_s"]
    if row.compute_s > (1 + EVEN) * compute.mean:
        more = percent(row.compute_s / compute.mean - 1)
        return (
            f"give it less data, fewer layers or experts, or find what lowers its clock: its device computes {more} more than the mean"
        )
    if row.idle_s > (1 + EVEN) * idle.mean:
        return f"see what its host does while its device is idle, {seconds(row.idle_s)} against {seconds(idle.mean)} in the mean"
    return "see what its device and its host do before these collectives: it computes no longer than the others"


def _of_ranks(job: RankAnalysis, own: Mapping[int, tuple[Finding, ...]]) -> Iterator[Finding]:
    """The findings of single ranks by title, with their mean saving and the evidence of the rank that would save most."""
    titles: dict[str, dict[int, Finding]] = {}
    for rank, findings in own.items():
        for one in findings:
            titles.setdefault(one.title, {}).setdefault(rank, one)
    waited_s = _per(job, job.waiting.at_start_s + job.waiting.in_steps_s) if job.waiting is not None else 0.0
    for title, ranks in titles.items():
        if title == FIND_LATE_RANK:
            continue
        most = max(ranks, key=lambda rank: ranks[rank].saves_s)
        saves_s = sum(one.saves_s for one in ranks.values()) / len(own)
        if ranks[most].suggestion.endswith(ALL_RANKS):  # waiting for a rank is not hidden by computation
            saves_s = min(saves_s, max(0.0, job.spread["exposed_communication_s"].mean - waited_s))
        yield msgspec.structs.replace(
            ranks[most],
            saves_s=saves_s,
            evidence=f"on {counted(len(ranks), 'rank')} of {len(own)}; rank {most}: {ranks[most].evidence}",
            suggestion=ranks[most].suggestion.removesuffix(ALL_RANKS),
        )


def _per(job: RankAnalysis, whole_s: float) -> float:
    """A time of the whole trace, per step where the job's times are."""
    return whole_s / max(row.steps for row in job.ranks) if job.per == "step" else whole_s
