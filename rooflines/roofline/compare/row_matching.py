"""Match rows of the same operator in two analyses: first by all facts, then by fewer, so that a changed batch
or name still matches.

Every step gives the same pairs with the sides exchanged, and takes time in proportion to the number of rows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from rooflines.roofline.analysis import Analysis, ModuleRow, OperatorRow
from rooflines.roofline.compare.records import Figures, Kind, Match
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.judge.operator_rows import with_ancestors

_RowKey = Callable[["SideRow"], Hashable]
# Facts that a row of several has where they agree; the first three are words, empty where they do not.
_AGREE = ("module", "phase", "shapes", "precision", "bound", "reason")
_FIRST_DIMENSION = re.compile(r"(?:^|(?<=, ))[0-9]+(?=x)")
_NUMBERS = re.compile(r"([0-9]+)")


class SideRow(NamedTuple):
    """A row of one side, with its time in each traced step where that is known."""

    kind: Kind
    name: str
    figures: Figures
    step_times_s: tuple[float, ...] | None = None


class Pair(NamedTuple):
    """A row of A and the row of B that belongs to it; None where there is none."""

    match: Match
    before: SideRow | None
    after: SideRow | None


def match_operators(before: Analysis, after: Analysis, *, by_module: bool = True) -> list[Pair]:
    """All operators of both sides, in pairs or alone, those without a count included; modules are ignored
    unless ``by_module``."""
    matching = _Matching()
    ours, theirs = matching.pair_off(
        _OPERATOR_KEYS, *(_operators(side.operators, by_module) for side in (before, after))
    )
    gaps, their_gaps = matching.pair_off(_GAP_KEYS, *map(_unmodeled, (before, after)))
    # Rows with a count on one side only: one trace holds the shapes, or one version of rooflines has the
    # formula.
    ours, their_gaps = matching.pair_off_names(ours, their_gaps, swapped=False)
    theirs, gaps = matching.pair_off_names(theirs, gaps, swapped=True)
    gone = [Pair("none", row, None) for row in (*ours, *gaps)]
    return [*matching.pairs, *gone, *(Pair("none", None, row) for row in (*theirs, *their_gaps))]


def match_modules(before: Analysis, after: Analysis, operators: Iterable[Pair]) -> list[Pair]:
    """The modules of both sides; one with another path belongs to the one that most of its operators were
    matched with."""
    ours = _modules(before)
    theirs = _modules(after)
    pairs = [
        Pair("same", ours.pop(path), theirs.pop(path)) for path in [path for path in ours if path in theirs]
    ]
    votes: Counter[tuple[str, str]] = Counter()
    for pair in operators:
        if pair.before is not None and pair.after is not None:
            votes.update(_renamed(pair.before.figures.module, pair.after.figures.module))
    for (old, new), _ in sorted(votes.items(), key=lambda item: (-item[1], sorted(item[0]))):
        if old in ours and new in theirs:
            pairs.append(Pair("module", ours.pop(old), theirs.pop(new)))
    pairs += [Pair("none", row, None) for row in ours.values()]
    pairs += [Pair("none", None, row) for row in theirs.values()]
    return pairs


def _renamed(old: str, new: str) -> Iterator[tuple[str, str]]:
    """What one operator says of its module and the modules around it, as long as these end alike.

    ``encoder.layer.0.query`` that became ``blocks.0.query`` also says that ``encoder.layer.0`` became
    ``blocks.0`` and ``encoder.layer`` ``blocks``.
    """
    parts = old.split(".")
    others = new.split(".")
    while parts and others and parts != others:
        yield ".".join(parts), ".".join(others)
        if parts.pop() != others.pop():
            break


def _operators(rows: Iterable[OperatorRow], by_module: bool) -> Iterator[SideRow]:
    for row in rows:
        efficiency = _efficiency(row.lower_bound_s, row.time_s)
        yield SideRow(
            "operator",
            row.name,
            _figures(row, module=row.module if by_module else "", efficiency=efficiency),
            row.step_times_s,
        )


def _figures(row: OperatorRow | ModuleRow, **others: Any) -> Figures:
    """The figures of ``row``, but for ``others``."""
    return replace(msgspec.convert(row, Figures, from_attributes=True), **others)


def _unmodeled(analysis: Analysis) -> Iterator[SideRow]:
    for row in analysis.unmodeled:
        yield SideRow(
            "unmodeled",
            row.name,
            Figures(calls=row.calls, time_s=row.time_s, reason=row.reason),
            row.step_times_s,
        )


def _modules(analysis: Analysis) -> dict[str, SideRow]:
    """The modules by their path; the time of a step is that of all operators below."""
    below: dict[str, list[tuple[float, ...] | None]] = defaultdict(list)
    for row in analysis.rows:
        for path in with_ancestors(row.module) if row.module else ():
            below[path].append(row.step_times_s)
    found = {}
    for module in analysis.modules:
        figures = _figures(module, module=module.path)
        found[module.path] = SideRow("module", module.type, figures, _summed(below[module.path]))
    return found


def fold(rows: Sequence[SideRow]) -> SideRow:
    """Rows of one name as one: sums of their figures, and of their facts those in which they agree."""
    if len(rows) == 1:
        return rows[0]
    sides = [row.figures for row in rows]
    counted = [side for side in sides if side.flops is not None]
    bounded = [side for side in sides if side.lower_bound_s is not None]
    lower_s = sum(side.lower_bound_s or 0.0 for side in bounded) if bounded else None
    values: dict[str, set[Any]] = {name: {getattr(side, name) for side in sides} for name in _AGREE}
    agreed: dict[str, Any] = {
        name: found.pop() if len(found) == 1 else "" if name in _AGREE[:3] else None
        for name, found in values.items()
    }
    figures = Figures(
        **agreed,
        calls=sum(side.calls or 0 for side in sides),
        time_s=sum(side.time_s for side in sides),
        flops=sum(side.flops or 0 for side in counted) if counted else None,
        bytes=sum(side.bytes or 0 for side in counted) if counted else None,
        lower_bound_s=lower_s,
        efficiency=_efficiency(lower_s, sum(side.time_s for side in bounded)),
    )
    return SideRow(rows[0].kind, rows[0].name, figures, _summed([row.step_times_s for row in rows]))


def _summed(series: Sequence[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    """The sum of all in each step; None where the steps of any are not known."""
    known = [one for one in series if one is not None]
    return tuple(map(sum, zip(*known, strict=True))) if known and len(known) == len(series) else None


def _efficiency(lower_s: float | None, time_s: float) -> float | None:
    return lower_s / time_s if lower_s and time_s > 0 else None


# What a pair has in common, the most first.
_OPERATOR_KEYS: tuple[tuple[Match, _RowKey], ...] = (
    (
        "same",
        attrgetter("figures.module", "figures.phase", "name", "figures.shapes", "figures.precision"),
    ),
    ("precision", attrgetter("figures.module", "figures.phase", "name", "figures.shapes")),
    (
        "batch",
        lambda row: (
            row.figures.module,
            row.figures.phase,
            row.name,
            _FIRST_DIMENSION.sub("", row.figures.shapes),
        ),
    ),
    ("shapes", attrgetter("figures.module", "figures.phase", "name")),
    ("module", attrgetter("figures.phase", "name", "figures.shapes")),
    ("module", attrgetter("name", "figures.shapes")),
)
_GAP_KEYS: tuple[tuple[Match, _RowKey], ...] = (
    ("same", attrgetter("name", "figures.reason")),
    ("name", attrgetter("name")),
)


class _Matching:
    """The pairs of rows that were found so far."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def pair_off(
        self, keys: Sequence[tuple[Match, _RowKey]], *sides: Iterable[SideRow]
    ) -> tuple[list[SideRow], list[SideRow]]:
        """Pair the rows that agree in the first of ``keys``, then in the next; returns those left over. Of
        several, the largest work goes together.

        Rows that a reader could not tell apart (they differ in strides or in arguments) are folded into one.
        """
        before, after = ([fold(group) for group in grouped(side, keys[0][1]).values()] for side in sides)
        for match, key in keys:
            ours = grouped(before, key)
            theirs = grouped(after, key)
            for value in [value for value in ours if value in theirs]:
                old = ours[value]
                new = theirs[value]
                most = min(len(old), len(new))
                if max(len(old), len(new)) > 1:
                    old = sorted(old, key=_order)
                    new = sorted(new, key=_order)
                self.pairs += [Pair(match, *both) for both in zip(old[:most], new[:most], strict=True)]
                ours[value], theirs[value] = old[most:], new[most:]
            before, after = (list(chain.from_iterable(groups.values())) for groups in (ours, theirs))
        return before, after

    def pair_off_names(
        self, counted: list[SideRow], gaps: list[SideRow], *, swapped: bool
    ) -> tuple[list[SideRow], list[SideRow]]:
        """The same for rows with a count and rows without one, all of a name together."""
        with_count = grouped(counted, lambda row: row.name)
        without = grouped(gaps, lambda row: row.name)
        for name in [name for name in with_count if name in without]:
            one = fold(with_count.pop(name))
            other = fold(without.pop(name))
            self.pairs.append(Pair("name", other, one) if swapped else Pair("name", one, other))
        return list(chain.from_iterable(with_count.values())), list(chain.from_iterable(without.values()))


def _order(row: SideRow) -> tuple[object, ...]:
    """The most work first; of equal work the layers in their order, 2 before 10."""
    figures = row.figures
    # A number of any length: no conversion, which Python refuses for thousands of digits.
    layers = [
        (len(part), part) if index % 2 else (0, part)
        for index, part in enumerate(_NUMBERS.split(figures.module))
    ]
    return (
        -(figures.flops or 0),
        -(figures.bytes or 0),
        layers,
        figures.phase,
        figures.shapes,
        figures.precision or "",
        figures.reason or "",
        -(figures.calls or 0),
        -figures.time_s,
    )
