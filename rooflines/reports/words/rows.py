"""The rows of an operator table: repeated layers folded into one, operators without a count among the others,
most to gain first.

A row groups the same operator, shapes, precision and phase in modules whose paths differ only in an index
(``layers.3.attention`` and ``layers.7.attention``, ``BertLayer_3`` and ``BertLayer_7``). Its figures are sums
over these rows of the analysis. The sums of reports over all operators are here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import asdict

from rooflines.reports.words.text import bound_words, is_kernel, operator_module
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.judge.call_sites import summed
from rooflines.roofline.judge.shapes import repeated


class TableRow(NamedTuple):
    """One row of a table: sums, the rows of the analysis in it (longest first), and the reason if it has no
    count."""

    row: OperatorRow
    members: tuple[OperatorRow, ...]
    reason: str = ""

    @property
    def bound(self) -> str:
        """The bound class; ``unknown`` without a count."""
        return "unknown" if self.reason else self.row.bound

    @property
    def modules(self) -> int:
        """The number of modules that have the operator."""
        return len({member.module for member in self.members})

    @property
    def gain_s(self) -> float:
        """The maximum saving: the headroom, or the whole time of a row without a bound."""
        return self.row.time_s if self.row.headroom_s is None else self.row.headroom_s

    @property
    def replayed_s(self) -> float | None:
        """What the step gains where the row alone runs at its bound; None where that was not replayed."""
        gains_s = [member.gain_s for member in self.members if member.gain_s is not None]
        return sum(gains_s) if gains_s else None

    @property
    def critical_fraction(self) -> float | None:
        """The part of its time that decides how long the step lasts; None where that was not replayed."""
        known = [member for member in self.members if member.critical_fraction is not None]
        time_s = sum(member.time_s for member in known)
        critical_s = sum(member.time_s * (member.critical_fraction or 0.0) for member in known)
        return critical_s / time_s if time_s else None


def table_rows(analysis: Analysis) -> list[TableRow]:
    """All rows: those whose bound gains most by replay first, then those with the most headroom, where a
    row without a bound counts with its time; longest first without bounds."""
    reasons: dict[str, list[OperatorRow]] = {"": list(analysis.operators)}
    for gap in analysis.unmodeled:
        known = {name: value for name, value in asdict(gap).items() if name != "reason"}
        row = OperatorRow(**known, category="other", flops=0, matrix_flops=0, bytes=0)
        reasons.setdefault(gap.reason, []).append(row)
    folded = ((reason, members) for reason, each in reasons.items() for members in repeated(each, analysis))
    rows = []
    for reason, members in folded:
        members.sort(key=lambda row: (-row.time_s, row.module))
        rows.append(TableRow(summed(members), tuple(members), reason))
    judged = any(row.row.headroom_s is not None for row in rows)
    return sorted(
        rows,
        key=lambda one: (
            -(one.replayed_s or 0.0),
            -one.gain_s if judged else 0.0,
            -one.row.time_s,
            one.row.name,
            one.row.module,
        ),
    )


def table_order(rows: Sequence[TableRow]) -> str:
    """The order of ``rows`` in words."""
    without = [one.row.headroom_s is None for one in rows]
    if all(without):
        return "longest first"
    gain = "most gain first, then " if any(one.replayed_s for one in rows) else ""
    most = "most headroom" if gain else "most headroom first"
    return gain + most + (", rows without a bound by time" if any(without) else "")


def table_time(analysis: Analysis, rows: Sequence[TableRow]) -> float:
    """The seconds in which any of ``rows`` ran: their sum without overlaps."""
    overlap_s = analysis.timeline.overlap_s if analysis.timeline else 0.0
    return max(0.0, sum(one.row.time_s for one in rows) - overlap_s)


def table_title(rows: Sequence[TableRow]) -> str:
    """The heading of the table: in a trace without operators the rows are kernels."""
    return "Kernels" if rows and all(is_kernel(one.row) for one in rows) else "Operators"


def module_text(one: TableRow) -> str:
    """The module path of a row with its number of modules: ``layers.*.attention ×12``."""
    return f"{operator_module(one.row)} ×{one.modules}" if one.modules > 1 else operator_module(one.row)


def bound_text(one: TableRow) -> str:
    """The bound class in words; ``unknown`` where there is no count."""
    return one.bound if one.reason else bound_words(one.row)


def flagged_rows(analysis: Analysis) -> list[TableRow]:
    """The rows with implausible figures, longest first."""
    return sorted((one for one in table_rows(analysis) if flagged(one)), key=lambda one: -one.row.time_s)


def flagged(one: TableRow) -> tuple[OperatorRow, ...]:
    """The members of the row with implausible figures."""
    return tuple(member for member in one.members if member.flag)


def share_of_step(time_s: float, analysis: Analysis) -> float:
    """``time_s`` as a share of the step, 0 where no step time is known."""
    whole = analysis.whole_s
    return max(0.0, time_s / whole) if whole > 0 else 0.0


def known_share(time_s: float, analysis: Analysis) -> float | None:
    """The share of the step for a table; None where no step time is known."""
    return share_of_step(time_s, analysis) if analysis.whole_s > 0 else None


def bound_times(analysis: Analysis) -> dict[str, float]:
    """The step by bound class, longest first, empty classes left out."""
    return {name: value for name, value in (analysis.bound_breakdown or {}).items() if value > 0}


def judged_total(analysis: Analysis) -> tuple[float | None, float | None]:
    """The headroom and the efficiency of all operators with a bound, of which one faster than its bound
    counts with its time; None where the step has no bound."""
    judged = [row for row in analysis.operators if row.lower_bound_s is not None]
    time_s = sum(row.time_s for row in judged)
    if not time_s or (analysis.totals and analysis.totals.lower_bound_s is None):
        return None, None
    lower_s = sum(min(row.lower_bound_s or 0.0, row.time_s) for row in judged)
    return sum(row.headroom_s or 0.0 for row in judged), lower_s / time_s
