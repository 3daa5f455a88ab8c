"""Several ranks in a terminal and as CSV: who is waited for, where each rank's time goes, what the collectives reach."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rooflines.reports.tables import column_scale, inert, shorten_middle
from rooflines.roofline.ranks.records import MatchedRow, RankAnalysis, RankRow, UnmatchedRow
from rooflines.units import percent, seconds, si

if TYPE_CHECKING:
    from rich.console import Console

_MOST_RANKS = 24
_MOST_COLLECTIVES = 12
_MOST_NOTES = 8
# The columns of a rank's times.
_TIMES = ("span_s", "idle_s", "compute_s", "memcpy_s", "communication_s", "exposed_communication_s")
# Compute that differs by less is not worth a word.
_EVEN = 0.02
_ABSENT = "-"
# One character for one character, for a console that can show no more than ASCII.
_ASCII = str.maketrans("±µ·…×–—", "~u-~x--")


class Table(NamedTuple):
    """A table as text: titles, units and cells; the first ``words`` columns hold words, the others numbers."""

    titles: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


def print_ranks(analysis: RankAnalysis, console: Console) -> None:
    """Print ``analysis`` on ``console``: 80 columns are enough."""
    _say(console, title(analysis), "bold")
    for sentence in sentences(analysis):
        _say(console, sentence, indent=2)
    _say(console, "")
    shown = _most_waited_for(analysis.ranks)
    _print_table(console, rank_table(analysis, shown))
    if len(shown) < len(analysis.ranks):
        _say(
            console, f"the {len(shown)} of {len(analysis.ranks)} ranks that kept the others waiting longest (--format json: all)", "dim"
        )
    _say(console, "")
    if analysis.collectives:
        _print_table(console, collective_table(analysis.collectives[:_MOST_COLLECTIVES]))
        more = len(analysis.collectives) - _MOST_COLLECTIVES
        if more > 0:
            _say(console, f"and {more} more (--format json: all)", "dim")
    for remark in (*unmatched_sentences(analysis.unmatched), *analysis.notes)[:_MOST_NOTES]:
        _say(console, remark, "dim", indent=2)


def title(analysis: RankAnalysis) -> str:
    """What was analysed."""
    count = len(analysis.ranks)
    of = f" of {analysis.world_size}" if analysis.world_size and analysis.world_size != count else ""
    per = "per step" if analysis.per == "step" else "of the whole trace"
    return " · ".join(filter(None, (f"{count}{of} ranks", analysis.device_name, f"times {per}")))


def sentences(analysis: RankAnalysis) -> Iterator[str]:
    """What to see first: who is waited for, how even the ranks are, and how much communication is hidden."""
    late = analysis.straggler
    if late is not None:
        yield (
            f"Rank {late.rank} is waited for: last into {late.times_last} of {late.of} matched collectives; the others together waited"
            f" {seconds(late.waited_s)} for it, {percent(late.share)} of all waiting."
        )
    elif analysis.collectives:
        yield "Nobody is waited for: no matched collective shows who entered last."
    else:
        yield "No collective was matched across ranks."
    compute = analysis.spread["compute_s"]
    if compute.imbalance is not None:
        longest = f"{seconds(compute.max)} on rank {compute.max_rank}, {seconds(compute.mean)} in the mean"
        even = compute.imbalance < _EVEN
        yield f"Compute is {'even' if even else f'uneven by {percent(compute.imbalance)}'}: {longest}."
    communication, exposed = analysis.spread["communication_s"].mean, analysis.spread["exposed_communication_s"].mean
    if communication > 0:
        yield (
            f"Communication takes {seconds(communication)} of {seconds(analysis.spread['span_s'].mean)} in the mean;"
            f" {percent(1 - exposed / communication)} of it is hidden behind compute."
        )


def rank_table(analysis: RankAnalysis, ranks: Sequence[RankRow]) -> Table:
    """Where each rank's time goes. What ranks waited is of the whole trace, whatever the other times are per."""
    times = [column_scale([getattr(row, name) for row in ranks], "s") for name in _TIMES]
    matched = [row for row in ranks if row.matched]
    waits = column_scale([value for row in matched for value in (row.waited_s, row.caused_wait_s)], "s")
    of = f"of {analysis.straggler.of}" if analysis.straggler else ""
    return Table(
        titles=("rank", "span", "idle", "compute", "memcpy", "comm.", "exposed", "hidden", "waited", "caused", "last"),
        units=("", *(scale.unit for scale in times), "%", *([waits.unit] * 2 if matched else ("", "")), of),
        rows=tuple(
            (
                str(row.rank),
                *(scale.text(getattr(row, name)) for name, scale in zip(_TIMES, times, strict=True)),
                _ABSENT if row.hidden_fraction is None else f"{row.hidden_fraction * 100:.0f}",
                *((waits.text(row.waited_s), waits.text(row.caused_wait_s), str(row.times_last)) if row.matched else (_ABSENT,) * 3),
            )
            for row in ranks
        ),
        words=0,
    )


def collective_table(rows: Sequence[MatchedRow]) -> Table:
    """What the collectives of each kind, group and size took and reached."""
    transfer, skew = column_scale([row.transfer_s for row in rows], "s"), column_scale([row.skew_s for row in rows], "s")
    rate = column_scale([value for row in rows for value in (row.algorithm_byte_per_s, row.bus_byte_per_s)], "B/s")
    return Table(
        titles=("collective", "size", "count", "transfer", "skew", "alg.", "bus", "last"),
        units=("", "", "", transfer.unit, skew.unit, rate.unit, rate.unit, "rank"),
        rows=tuple(
            (
                collective_name(row),
                si(row.bytes, "B") if row.bytes is not None else _ABSENT,
                f"{row.count:,}",
                f"{'<' if _is_partial(row) else ''}{transfer.text(row.transfer_s)}",
                skew.text(row.skew_s),
                _ABSENT if row.algorithm_byte_per_s is None else rate.text(row.algorithm_byte_per_s),
                _ABSENT if row.bus_byte_per_s is None else rate.text(row.bus_byte_per_s),
                _ABSENT if row.last_rank is None else str(row.last_rank),
            )
            for row in rows
        ),
    )


def collective_name(row: MatchedRow) -> str:
    """Kind, group and how many ranks are in it: ``allreduce pg 0 of 8``."""
    group = f" pg {row.group}" if row.group is not None else ""
    return f"{row.kind}{group}{f' of {row.group_size}' if row.group_size else ''}"


def unmatched_sentences(unmatched: Sequence[UnmatchedRow]) -> Iterator[str]:
    """What is left out of the collectives, and why."""
    for row in unmatched:
        group = f" of group {row.group}" if row.group is not None else ""
        yield f"not matched: {row.count:,} {row.kind}{group}: {row.reason}"


def ranks_csv(analysis: RankAnalysis) -> str:
    """A row a rank, with the fields of ``RankRow``; text that a spreadsheet would run is made inert."""
    return _csv(analysis.ranks, RankRow)


def collectives_csv(analysis: RankAnalysis) -> str:
    """A row a kind, group and size of matched collectives, with the fields of ``MatchedRow``."""
    return _csv(analysis.collectives, MatchedRow)


def _csv(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    names = kind.__struct_fields__
    writer.writerow(names)
    for row in rows:
        values = (getattr(row, name) for name in names)
        writer.writerow(["" if value is None else inert(value) if isinstance(value, str) else value for value in values])
    return out.getvalue()


def _most_waited_for(ranks: Sequence[RankRow]) -> Sequence[RankRow]:
    """All of few ranks; of many those that kept the others waiting longest, in the order of ranks."""
    if len(ranks) <= _MOST_RANKS:
        return ranks
    chosen = sorted(ranks, key=lambda row: -row.caused_wait_s)[:_MOST_RANKS]
    return sorted(chosen, key=lambda row: row.rank)


def _is_partial(row: MatchedRow) -> bool:
    """Whether the last to enter may be a rank that was not given."""
    return row.group_size is not None and row.ranks < row.group_size


def _print_table(console: Console, table: Table) -> None:
    lines = (table.titles, table.units, *table.rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.titles))]
    # A group may be named at any length: the words give way to the numbers.
    numbers = sum(widths[table.words :]) + 2 * (len(widths) - 1)
    if table.words:
        widths[0] = min(widths[0], max(12, console.width - numbers))
    for number, line in enumerate(lines):
        cells = [
            shorten_middle(cell, width).ljust(width) if column < table.words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        _say(console, "  ".join(cells).rstrip(), "dim" if number < 2 else "")


def _say(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """A line, or a paragraph where it is indented; what a trace has named must not steer the terminal."""
    from rich.text import Text

    text = "".join(character if character.isprintable() else " " for character in text)
    if console.options.ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode()
    if indent:
        margin = " " * indent
        text = textwrap.fill(text, max(20, console.width), initial_indent=margin, subsequent_indent=margin + "  ")
    console.print(Text(text, style=style), highlight=False, soft_wrap=True)
