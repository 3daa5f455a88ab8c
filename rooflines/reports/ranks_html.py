"""Several ranks as one page that opens without a network or scripts: a bar a rank, and the tables of the terminal in full.

Group names, device names and notes come out of traces: Jinja escapes every one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rooflines._version import __version__
from rooflines.reports.page import fill
from rooflines.reports.palette import BOUNDS, INK, THEMES
from rooflines.reports.ranks import collective_table, rank_table, sentences, title, unmatched_sentences
from rooflines.roofline.ranks.records import RankAnalysis, RankRow
from rooflines.units import percent, seconds

# What a bar is made of: its name, the pattern that it is drawn with, and what it says.
PARTS = (
    ("compute", "compute", "kernels and fills ran, possibly with copies and communication"),
    ("copies", "transfer", "copies ran and no kernel"),
    ("exposed communication", "communication", "only communication ran: the wait for other ranks and the transfer"),
    ("idle", "host", "nothing ran"),
)


class Piece(NamedTuple):
    """A part of a rank's bar, in percent of the longest bar."""

    name: str
    pattern: str
    width: float
    text: str


class Bar(NamedTuple):
    """A rank's span."""

    rank: int
    pieces: tuple[Piece, ...]
    text: str


def write(analysis: RankAnalysis, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    path.write_text(render(analysis), encoding="utf-8")
    return path


def render(analysis: RankAnalysis) -> str:
    """The page as text."""
    return fill(
        "ranks.html.j2",
        title=title(analysis),
        sentences=list(sentences(analysis)),
        bars=bars(analysis),
        parts=PARTS,
        per="a step" if analysis.per == "step" else "the whole trace",
        ranks=rank_table(analysis, analysis.ranks),
        collectives=collective_table(analysis.collectives) if analysis.collectives else None,
        remarks=[*unmatched_sentences(analysis.unmatched), *analysis.notes],
        ink=INK,
        themes=THEMES,
        fills={name: BOUNDS[name] for _, name, _ in PARTS},
        version=__version__,
    )


def bars(analysis: RankAnalysis) -> tuple[Bar, ...]:
    """A bar a rank, all on the scale of the longest span."""
    longest = max((row.span_s for row in analysis.ranks), default=0.0)
    return tuple(_bar(row, longest) for row in analysis.ranks)


def _bar(row: RankRow, longest: float) -> Bar:
    copies = max(0.0, row.busy_s - row.compute_s - row.exposed_communication_s)
    lasting = (row.compute_s, copies, row.exposed_communication_s, row.idle_s)
    pieces = tuple(
        Piece(name, pattern, 100 * value / longest, f"{name} {seconds(value)}, {percent(value / row.span_s)}")
        for (name, pattern, _), value in zip(PARTS, lasting, strict=True)
        if value > 0
    )
    return Bar(row.rank, pieces, seconds(row.span_s))
