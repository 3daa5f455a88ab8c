"""The time of the lines of the program: each row with the lines that it comes from, and each line with what
ran for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.records import OPERATOR, RUNTIME, Int64s
from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.lines import ProgramLines, marked_lines, stack_lines
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import step_number
from rooflines.roofline.analysis import LineRow, OperatorRow, Unmodeled
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.count.counts import same_in_group, unset
from rooflines.roofline.judge.call_sites import line_shares
from rooflines.roofline.own.host import places_in_step
from rooflines.roofline.own.own import Attribution

_AnyRow = TypeVar("_AnyRow", OperatorRow, Unmodeled)


def lines_of(attribution: Attribution) -> ProgramLines:
    """The lines of the events of a trace: those of the run's step with marks, else those of its stacks; of
    the kernels of compiled code the lines that they were compiled from."""
    calls, known = attribution.calls, attribution.counts.known
    if known.marked is None:
        lines = stack_lines(calls)
    else:
        marked = marked_lines(known.marked, known.lines)
        lines = replace(marked, of_event=_carried_over(known.marked, marked.of_event, calls))
    groups, of_event, after = list(lines.groups), lines.of_event.copy(), calls.after.tolist()
    numbers: dict[tuple[ProgramLine, ...], int] = {}
    for event, group in attribution.counts.code_lines.items():
        of_event[event : after[event]] = number = numbers.setdefault(group, len(groups))
        groups += [group] if number == len(groups) else []
    return replace(lines, groups=tuple(groups), of_event=of_event)


def _carried_over(marked: Calls, line: Int64s, calls: Calls) -> Int64s:
    """The ``line`` of each event of the step ``marked``, for the events of the same program in ``calls``.

    The k-th call of an operator in one module and phase of a step comes from the line of the k-th such call
    in the marked step. Where a step makes another number of them, they have a line only if all have the same.
    """
    codes: dict[tuple[object, ...], int] = {}
    (sites, key, _, place), (own, own_key, step, own_place) = _sites(marked, codes), _sites(calls, codes)
    order = np.lexsort((place, key))
    known = np.append(line[sites[order]], -1)
    first, end = (np.searchsorted(key[order], np.arange(len(codes)), side=side) for side in ("left", "right"))
    _, of_step = distinct_rows(own_key, step)
    as_often = np.bincount(of_step)[of_step] == (end - first)[own_key]
    alike = same_in_group(line[sites], key, len(codes))
    in_turn = known[np.where(as_often, first[own_key] + own_place, -1)]
    found = unset(len(calls.trace.host))
    found[own] = np.where(as_often, in_turn, alike[own_key])
    around = calls.operator
    return np.where((found < 0) & (around >= 0), found[around], found)


def _sites(calls: Calls, codes: dict[tuple[object, ...], int]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """The operators in steps and the runtime calls outside of operators; of each the number of its name,
    module and phase in ``codes``, that of its step, and its place among those in the step."""
    host, paths = calls.trace.host, [module.path for module in calls.modules]
    step = step_number(host.start_ns, calls.steps) if len(calls.steps) else np.zeros(len(host), np.int64)
    events = np.flatnonzero(
        ((host.kind == OPERATOR) | ((host.kind == RUNTIME) & (calls.operator < 0))) & (step >= 0)
    )
    rows, which = distinct_rows(host.name[events], calls.module[events], calls.phase[events])
    numbers = [
        codes.setdefault((calls.trace.names[name], paths[module] if module >= 0 else None, phase), len(codes))
        for name, module, phase in rows.tolist()
    ]
    key = np.array(numbers, np.int64)[which] if len(which) else which
    return events, key, step[events], places_in_step(key, step[events], host.start_ns[events])


def with_lines(
    attribution: Attribution,
    lines: ProgramLines,
    places: Int64s,
    operators: Sequence[OperatorRow],
    gaps: Sequence[Unmodeled],
    *,
    bounded: bool,
) -> tuple[tuple[OperatorRow, ...], tuple[Unmodeled, ...], tuple[LineRow, ...]]:
    """The rows with their lines, and the lines with the time of their rows, longest first.

    ``places`` are those of the rows and gaps of ``attribution`` among ``operators`` and ``gaps``. Only a
    step that is ``bounded`` has headroom.
    """
    pieces = attribution.pieces
    on_device = bool(len(attribution.trace.device))
    event = attribution.calls.launch[pieces.event] if on_device else pieces.event
    line = np.where(event >= 0, lines.of_event[event], -1) if len(lines.of_event) else event * 0 - 1
    if not (line >= 0).any():
        return tuple(operators), tuple(gaps), ()
    time_ns = (pieces.end_ns - pieces.start_ns) * (1.0 if pieces.weight is None else pieces.weight)
    row = places[attribution.place]
    pairs, which = distinct_rows(row, line)
    totals = np.bincount(which, time_ns, len(pairs))
    whole_ns = np.bincount(row, time_ns, len(operators) + len(gaps))
    shares: dict[int, dict[ProgramLine, float]] = defaultdict(dict)
    for (at, number), total in zip(pairs.tolist(), totals.tolist(), strict=True):
        group = lines.groups[number] if number >= 0 and whole_ns[at] > 0 else ()
        for place in group:  # a fused kernel is divided equally
            shares[at][place] = shares[at].get(place, 0.0) + total / float(whole_ns[at]) / len(group)

    def told(row: _AnyRow, at: int) -> _AnyRow:
        of_row = ((lines.names[place], share) for place, share in shares[at].items())
        return msgspec.structs.replace(row, lines=line_shares(of_row))

    rows: list[OperatorRow | Unmodeled] = [*operators, *gaps]
    return (
        tuple(told(row, at) for at, row in enumerate(operators)),
        tuple(told(row, len(operators) + at) for at, row in enumerate(gaps)),
        _line_rows(rows, shares, lines, bounded=bounded),
    )


def _line_rows(
    rows: Sequence[OperatorRow | Unmodeled],
    shares: dict[int, dict[ProgramLine, float]],
    lines: ProgramLines,
    *,
    bounded: bool,
) -> tuple[LineRow, ...]:
    """The lines with their shares of the ``rows``."""
    of_line: dict[ProgramLine, list[tuple[OperatorRow | Unmodeled, float]]] = defaultdict(list)
    for at, of_row in shares.items():
        for place, share in of_row.items():
            of_line[place].append((rows[at], share))
    found = []
    for place, parts in of_line.items():
        judged = [(row, share) for row, share in parts if row.lower_bound_s is not None]
        bounds = longest_first((row.bound, row.time_s * share) for row, share in parts)
        found.append(
            LineRow(
                place=lines.names[place],
                path=place.path,
                line=place.line,
                function=place.function,
                is_function=lines.are_functions,
                text=place.text,
                time_s=sum(row.time_s * share for row, share in parts),
                flops=sum(row.flops * share for row, share in parts),
                bytes=sum(row.bytes * share for row, share in parts),
                headroom_s=sum((row.headroom_s or 0.0) * share for row, share in judged)
                if bounded and judged
                else None,
                bound=next(iter(bounds)),
                operators=tuple(longest_first((row.name, row.time_s * share) for row, share in parts)),
            )
        )
    return tuple(sorted(found, key=lambda row: (-row.time_s, row.place)))
