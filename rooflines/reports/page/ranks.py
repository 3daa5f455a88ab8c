"""The page of several ranks: late ranks, time by rank, bandwidth of collectives; and the same as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rooflines._version import __version__
from rooflines.reports.document import (
    Bar,
    BarRow,
    Cell,
    Column,
    Page,
    Paragraph,
    Part,
    Row,
    Table,
    said,
    section,
    table,
)
from rooflines.reports.page.advice import recommended
from rooflines.reports.words.text import given, joined
from rooflines.roofline.advise.findings import WORTH
from rooflines.roofline.advise.verdict import bound_of_classes
from rooflines.roofline.ranks.analyze import EVEN, hosts_apart, in_steps_s
from rooflines.roofline.ranks.records import MatchedRow, RankAnalysis, RankRow
from rooflines.units import percent, seconds, si

_MOST_RANKS = 24
_MOST_COLLECTIVES = 12
_MOST_NOTES = 8
# What a bar is made of: its name, the pattern that it is drawn with, and what it says.
PARTS = (
    ("compute", "compute", "kernels and fills ran, possibly with copies and communication"),
    ("copies", "transfer", "copies ran and no kernel"),
    (
        "exposed communication",
        "communication",
        "only communication ran: the wait for other ranks and the transfer",
    ),
    ("idle", "host", "nothing ran"),
)
_RANK_COLUMNS = (
    Column("rank", format="count"),
    Column("span", "s", "scaled", help="from the first to the last device event"),
    Column("idle", "s", "scaled"),
    Column("compute", "s", "scaled"),
    Column("memcpy", "s", "scaled", priority=1, group="memcpy"),
    Column("comm.", "s", "scaled", "communication"),
    Column("exposed", "s", "scaled", "exposed_communication"),
    Column("hidden", "%", "efficiency"),
    Column("waited", "s", "scaled", group="waits"),
    Column("at start", "s", "scaled", priority=1, group="waits"),
    Column("caused", "s", "scaled", group="waits"),
)
_COLLECTIVE_COLUMNS = (
    Column("collective", format="middle"),
    Column("size"),
    Column("count"),
    Column("transfer", "s", "scaled", group="transfer"),
    Column("skew", "s", "scaled"),
    Column("alg.", "B/s", "scaled", "algorithm_bandwidth"),
    Column("bus", "B/s", "scaled", "bus_bandwidth"),
    Column("last", "rank", "count", "last_rank"),
)
_RANKS_NOTE = (
    "Hidden: the share of the communication during which kernels ran as well. Waited: what this "
    "rank's collectives took longer than "
    "the shortest of each; at start: of this, because the recordings began apart. Caused: what "
    "the others waited, of the rest, when "
    "this rank was the last to enter. All three over the whole trace."
)
_COLLECTIVES_NOTE = (
    "Transfer: the shortest kernel of a collective over its ranks, which is that of the rank "
    "that entered last. Skew: the longest "
    "less the shortest. Bandwidths are size / transfer, and that times nccl-tests' factor for the bus."
)
_NO_FINDING = "No single change is expected to save a noticeable part of the time."


def page(analysis: RankAnalysis) -> Page:
    """The page of ``analysis``."""
    verdict, *more = (text for text, _ in sentences(analysis))
    remarks = (
        *(
            f"not matched: {row.count:,} {row.kind}{given(' of group {}', row.group)}: {row.reason}"
            for row in analysis.unmatched
        ),
        *analysis.notes,
    )
    shown, matched = len(_most_waited_for(analysis.ranks)), bool(analysis.collectives)
    per = "a step" if analysis.per == "step" else "of the trace"
    fewer = (
        f"the {shown} of {len(analysis.ranks)} ranks that kept the others waiting longest (--format "
        "json: all)"
    )
    return Page(
        kind="ranks",
        name=title(analysis),
        title=title(analysis),
        rooflines=__version__,
        verdict=verdict,
        said=tuple(more),
        sections=(
            section("bars", "Time by rank", bars(analysis)),
            section(
                "findings",
                "Recommendations",
                recommended(analysis.findings, _NO_FINDING, analysis.spread["span_s"].mean, per),
            ),
            section(
                "ranks",
                "Ranks",
                _rank_table(analysis),
                Paragraph(fewer, "note", "brief") if shown < len(analysis.ranks) else None,
                Paragraph(_RANKS_NOTE, "note"),
            ),
            section(
                "collectives",
                "Collectives",
                _collective_table(analysis.collectives)
                if matched
                else Paragraph("None was matched across ranks.", "absent"),
                Paragraph(_COLLECTIVES_NOTE, "note") if matched else None,
                *said(remarks[:_MOST_NOTES], "note"),
                *said(remarks[_MOST_NOTES:], "note", "full"),
            ),
        ),
        footer=f"Schema {analysis.schema}.",
    )


def title(analysis: RankAnalysis) -> str:
    """What was analyzed."""
    count = len(analysis.ranks)
    of = f" of {analysis.world_size}" if analysis.world_size and analysis.world_size != count else ""
    per = "per step" if analysis.per == "step" else "over the whole trace"
    return joined(" · ", f"{count}{of} ranks", analysis.device_name, f"times {per}")


def sentences(analysis: RankAnalysis) -> Iterator[tuple[str, str]]:
    """What takes the time in the mean over the ranks, what they wait for, who is late, and the balance of
    compute.

    Each sentence comes with the JSON pointer of the figures that it rests on.
    """
    yield _division(analysis), "/bound_breakdown" if analysis.bound_breakdown is not None else "/spread"
    waiting = analysis.waiting
    if not waiting:
        yield "No collective in which ranks wait for each other was matched across ranks.", "/unmatched"
    else:
        text = (
            f"Collectives in which ranks wait for each other take {seconds(waiting.total_s)} of a "
            "rank's trace in the mean:"
            f" {seconds(waiting.transfer_s)} transfer, {seconds(waiting.at_start_s)} waiting in "
            "the first ones because the recordings"
            f" of the ranks began apart, and {seconds(waiting.in_steps_s)} waiting later."
        )
        yield text, "/waiting"
        late = _late(analysis)
        yield late, "/straggler" if late.startswith("Rank") else "/waiting"
    compute = analysis.spread["compute_s"]
    if compute.imbalance is not None:
        longest = f"{seconds(compute.max)} on rank {compute.max_rank}, {seconds(compute.mean)} in the mean"
        even = compute.imbalance < EVEN
        yield (
            f"Compute is {'even' if even else f'uneven by {percent(compute.imbalance)}'}: {longest}.",
            "/spread/compute_s",
        )
    communication = analysis.spread["communication_s"].mean
    exposed = analysis.spread["exposed_communication_s"].mean
    if communication > 0:
        text = (
            f"Communication takes {seconds(communication)} of "
            f"{seconds(analysis.spread['span_s'].mean)} in the mean"
        )
        hidden = f"{percent(1 - exposed / communication)} of it is hidden behind compute"
        yield f"{text}; {hidden}.", "/spread/communication_s,exposed_communication_s,span_s"


def _division(analysis: RankAnalysis) -> str:
    """The classes of the time in the mean over the ranks, or its parts where no ceilings judge it."""
    mean = f"in the mean over {len(analysis.ranks)} ranks"
    whole = "the step" if analysis.per == "step" else "the trace"
    if analysis.bound_breakdown is not None:
        return bound_of_classes(analysis.bound_breakdown, analysis.idle_breakdown, f"{whole} {mean}")
    parts = {
        name: analysis.spread[name].mean
        for name in ("span_s", "compute_s", "exposed_communication_s", "idle_s")
    }
    span_s = parts.pop("span_s")
    computes, communicates, idles = (percent(time_s / span_s if span_s else 0.0) for time_s in parts.values())
    computing = f"{mean.capitalize()} the device computes for {computes} of {whole}"
    return f"{computing}, only communicates for {communicates} and is idle for {idles}."


def _late(analysis: RankAnalysis) -> str:
    """The rank that the others wait for in the steps, or why none is named."""
    late, waited_s, span_s = analysis.straggler, in_steps_s(analysis), analysis.spread["span_s"].mean
    if waited_s < WORTH * span_s:
        share = percent(waited_s / span_s if span_s else 0.0)
        return f"No rank is late: after the first collectives the ranks wait for {share} of their time."
    if hosts_apart(analysis):
        return (
            "Which rank is late cannot be told: the recordings began further apart than the "
            "ranks wait later, and a host that began"
            " late stays late until the others wait for their devices. Record several steps."
        )
    if not late:
        return "No single rank is late: the others wait now for one and now for another."
    return (
        f"Rank {late.rank} is late: last into {late.times_last} of {late.of} matched collectives; "
        "the others together waited"
        f" {seconds(late.waited_s)} for it, {percent(late.share)} of all later waiting."
    )


def bars(analysis: RankAnalysis) -> Bar:
    """A bar a rank, all on the scale of the longest span."""
    longest_s = max((row.span_s for row in analysis.ranks), default=0.0)
    per = "a step" if analysis.per == "step" else "the whole trace"
    rows = []
    for row in analysis.ranks:
        copies_s = max(0.0, row.busy_s - row.compute_s - row.exposed_communication_s)
        times = zip(PARTS, (row.compute_s, copies_s, row.exposed_communication_s, row.idle_s), strict=True)
        parts = tuple(
            Part(
                name=name,
                pattern=pattern,
                share=time_s / longest_s,
                text=f"{seconds(time_s)}, {percent(time_s / row.span_s)}",
                meaning=meaning,
            )
            for (name, pattern, meaning), time_s in times
            if time_s > 0
        )
        rows.append(BarRow(label=f"rank {row.rank}", text=seconds(row.span_s), parts=parts))
    caption = f"The span of {per}, from the first to the last device event, all ranks on one scale."
    return Bar(name="spans", caption=caption, rows=tuple(rows))


def _rank_table(analysis: RankAnalysis) -> Table:
    """The time of each rank by part. Waiting times are over the whole trace, even if other times are per
    step."""
    last = Column("last", f"of {analysis.straggler.of}" if analysis.straggler else "", "count", "times_last")
    kept = {row.rank for row in _most_waited_for(analysis.ranks)}
    rows = (
        Row(
            (
                row.rank,
                row.span_s,
                row.idle_s,
                row.compute_s,
                row.memcpy_s,
                row.communication_s,
                row.exposed_communication_s,
                row.hidden_fraction,
                *(
                    (row.waited_s, row.waited_at_start_s, row.caused_wait_s, row.times_last)
                    if row.matched
                    else (None,) * 4
                ),
            ),
            show="always" if row.rank in kept else "full",
        )
        for row in analysis.ranks
    )
    return table("ranks", (*_RANK_COLUMNS, last), rows, "Time of each rank", show="always")


def _most_waited_for(ranks: Sequence[RankRow]) -> Sequence[RankRow]:
    """All of few ranks; of many those that kept the others waiting longest."""
    return (
        ranks
        if len(ranks) <= _MOST_RANKS
        else sorted(ranks, key=lambda row: -row.caused_wait_s)[:_MOST_RANKS]
    )


def _collective_table(rows: Sequence[MatchedRow]) -> Table:
    """What the collectives of each kind, group (``allreduce pg 0 of 8``) and size took and reached."""
    cells = (
        (
            f"{row.kind}{given(' pg {}', row.group)}{given(' of {}', row.group_size)}",
            si(row.bytes, "B") if row.bytes is not None else None,
            f"{row.count:,}",
            # The last to enter may be a rank that was not given.
            Cell(
                value=row.transfer_s,
                prefix="<" if row.group_size is not None and row.ranks < row.group_size else "",
            ),
            row.skew_s,
            row.algorithm_byte_per_s,
            row.bus_byte_per_s,
            row.last_rank,
        )
        for row in rows
    )
    caption = "Time and bandwidth of the collectives"
    return table("collectives", _COLLECTIVE_COLUMNS, cells, caption, brief=_MOST_COLLECTIVES, show="always")
