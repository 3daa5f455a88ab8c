"""A device's ceilings in a terminal, as CSV and as JSON: each figure with its spread, its source and its age; measured beside spec."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rooflines.device_specs.cache import age
from rooflines.device_specs.compare import Compared, References, without_reference
from rooflines.device_specs.history import Session
from rooflines.device_specs.marks import CONTRADICTS, MARKS, THROTTLED, marked, marks_of
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.words.sentences import ago, ceiling_name, listed, roof_order
from rooflines.serial import to_json, to_plain
from rooflines.units import binary_bytes, counted, percent, si

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Above this a measured rate beats its reference by more than noise.
ABOVE = 1.02
ROUNDS = (
    "A measured value is the best of several rounds, ± the coefficient of variation between them. Rounds: how many came within 5 % "
    "of the best, of all in which the threads had their cores. All rates are dense."
)
_GROUPS = {"compute": "arithmetic", "memory": "memory", "latency": "latency", "link": "links"}
_THREADS = re.compile(r", \d+ threads?\b")
_ACCESS = re.compile(r"^(read|write|update|copy|triad) kernel\b")
_DASH = "–"


def print_ceilings(ceilings: Ceilings, console: Console, now: datetime | None = None) -> None:
    """The ceilings as a table of 80 columns or more: main roofs first, further roofs below them, how each was measured at the end."""
    from rich.text import Text

    for line in heading(ceilings, now):
        _line(console, line)
    console.print()
    hows: dict[str, int] = {}
    roofs = roof_order(ceilings.ceilings)
    dated = len({roof.source.date for roof in roofs}) > 1
    rows: list[tuple[list[Text], str]] = []
    for kind, title in _GROUPS.items():
        ours = [roof for roof in roofs if roof.kind == kind]
        for further in (False, True):
            group = [roof for roof in ours if bool(roof.variant) is further]
            if group:
                rows.append(([Text(f"further {title}" if further else title, style="bold")], ""))
            for roof in group:
                number = hows.setdefault(_how(roof, ceilings, dated), len(hows) + 1)
                rows.append((_cells(roof, roofs, number), "dim" if further else ""))
    console.print(_table(_columns(roofs), rows, console.width))
    console.print()
    _line(console, "how")
    for how, number in hows.items():
        _line(console, how, hang=f"{number:>4}  ")
    for line in _remarks(roofs):
        _line(console, line)


def print_comparison(
    rows: Sequence[Compared], references: References, measured: Ceilings, console: Console, now: datetime | None = None
) -> None:
    """Measured, data sheet and derived side by side, with the fraction reached, where each comes from, and what has no reference."""
    for line in heading(measured, now):
        _line(console, line)
    console.print()
    if rows:
        sheet, derived = any(row.spec for row in rows), any(row.derived for row in rows)
        shown = [True, True, True, sheet, derived, True]
        titles = ("", "measured", "± %", "data sheet", "derived", "reached")
        columns = [(title, "right" if title else "left") for title in itertools.compress(titles, shown)]
        cells = [(list(itertools.compress(_compared_cells(row, star=sheet), shown)), "") for row in rows]
        console.print(_table(columns, cells, console.width))
        console.print()
    for line in comparison_sentences(rows, references, measured):
        _line(console, line)


def comparison_sentences(rows: Sequence[Compared], references: References, measured: Ceilings) -> Iterator[str]:
    """What the table of the comparison needs said: against what, why above 100 %, where figures come from, what is missing."""
    if any(row.fraction is not None for row in rows):
        mixed = any(row.against == "derived" and row.fraction is not None for row in rows)
        star = "; * of the derived figure, where the sheet has none" if mixed and references.spec else ""
        against = "the data sheet's figure" if references.spec else "the derived figure"
        yield f"reached: measured over {against}{star}. All rates are dense; → names the type that sums are kept in."
    above = [ceiling_name(row.any) for row in rows if row.fraction is not None and row.fraction > ABOVE]
    if above:
        yield (
            f"above 100 %: {', '.join(above)}. Sheets state rates at one clock (base or boost), and the device may run above it; "
            "the roof that counts is the measured one."
        )
    if references.no_spec:
        yield references.no_spec[:1].upper() + references.no_spec[1:]
    if references.no_derived:
        yield f"Nothing derived: {references.no_derived}"
    yield from _sources("data sheet", [row.spec for row in rows])
    yield from _sources("derived", [row.derived for row in rows])
    alone = [roof.level or ceiling_name(roof) for roof in without_reference(measured, tuple(rows))]
    if alone:
        yield f"measured only, with nothing to hold it against: {', '.join(dict.fromkeys(reversed(alone)))}."


def ceilings_json(ceilings: Ceilings, sessions: Sequence[Session] = (), rows: Sequence[Compared] | None = None) -> str:
    """The ceilings as ``--ceilings FILE`` reads them, with every round of all measurements, and the comparison where there is one."""
    compared = {} if rows is None else {"compare": comparison_plain(rows)}
    return to_json({**to_plain(ceilings), "sessions": to_plain(sessions), **compared})


def ceilings_csv(ceilings: Ceilings) -> str:
    """One row a ceiling, every field a column; what is not known is empty."""
    fields = [name for name in Ceiling.__struct_fields__ if name not in ("source", "conditions")]
    header = [*fields, "source", "detail", "date", "clock_hz", "memory_clock_hz", "power_w", "temperature_c", "throttled"]
    rows = []
    for roof in ceilings.ceilings:
        state = roof.conditions
        measured_in = [getattr(state, name, None) for name in ("clock_hz", "memory_clock_hz", "power_w", "temperature_c")]
        rows.append(
            [
                *(getattr(roof, name) for name in fields), roof.source.kind, roof.source.detail, roof.source.date, *measured_in,
                " ".join(state.throttled) if state else "",
            ]
        )  # fmt: skip
    return _csv(header, rows)


def comparison_csv(rows: Sequence[Compared]) -> str:
    """One row a compared figure: the three values, the fraction, and where the two references come from."""
    header = ["kind", "name", "variant", "precision", "engine", "accumulate", "level", "unit", "measured", "spread", "spec", "derived",
              "fraction", "against", "spec_source", "derived_source"]  # fmt: skip
    return _csv(header, ([plain.get(name) for name in header] for plain in comparison_plain(rows)))


def comparison_plain(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """The comparison as plain containers for JSON; what there is not is absent."""
    found = []
    for row in rows:
        one = row.any
        found.append(
            to_plain(
                {
                    "kind": one.kind, "name": one.name, "variant": one.variant or None, "precision": one.precision,
                    "engine": one.engine, "accumulate": one.accumulate, "level": one.level, "unit": one.unit,
                    "measured": row.measured.value if row.measured else None, "spread": row.measured.spread if row.measured else None,
                    "spec": row.spec.value if row.spec else None, "derived": row.derived.value if row.derived else None,
                    "fraction": row.fraction, "against": row.against if row.fraction is not None else None,
                    "spec_source": row.spec.source.detail if row.spec else None,
                    "derived_source": row.derived.source.detail if row.derived else None,
                }
            )
        )  # fmt: skip
    return found


def heading(ceilings: Ceilings, now: datetime | None = None) -> list[str]:
    """Of what the ceilings are; and when and by what they were measured: ``measured 3 days ago (2026-11-18 10:22 UTC), method 3``."""
    threads = counted(ceilings.threads, "thread") if ceilings.threads else ""
    clock = f"{si(ceilings.clock_hz, 'Hz')} sustained" if ceilings.clock_hz else ""
    which = "every figure" if ceilings.full else "the figures that judge a run"
    held = f"sustained for {ceilings.sustained_s:g} s" if ceilings.sustained_s else ""
    since = age(ceilings, now)
    when = f"measured {ago(since)} ({ceilings.measured_at[:16].replace('T', ' ')} UTC)" if since is not None else "of unknown age"
    again = f"best of {ceilings.measurements} measurements since {ceilings.since[:10]}" if ceilings.measurements > 1 else ""
    method = f"method {ceilings.method}" if ceilings.method is not None else ""
    driver = f"driver {ceilings.driver}" if ceilings.driver else ""
    packages = [f"{name} {ceilings.packages[name]}" for name in ("torch", "numba") if name in ceilings.packages]
    return [
        " · ".join(part for part in (ceilings.device, ceilings.kind, threads, clock, which, held) if part),
        ", ".join(part for part in (when, again, method, driver, *packages) if part),
    ]


def _columns(roofs: Sequence[Ceiling]) -> list[tuple[str, str]]:
    columns = [("", "left"), ("for", "left"), ("value", "right"), ("± %", "right"), ("rounds", "right")]
    if _has_state(roofs):
        columns += [("GHz", "right"), ("W", "right"), ("°C", "right")]
    return [*columns, ("how", "right")]


def _has_state(roofs: Iterable[Ceiling]) -> bool:
    return any(roof.conditions is not None for roof in roofs)


def _cells(roof: Ceiling, roofs: Sequence[Ceiling], how: int) -> list[Text]:
    from rich.text import Text

    spread = _DASH if roof.spread is None else f"{roof.spread * 100:.1f}"
    cells = [
        Text(ceiling_name(roof)),
        Text(_scope(roof)),
        Text(si(roof.value, roof.unit)),
        Text(f"! {spread}", style="bold red") if marks_of(roof) else Text(spread),
        Text(_DASH if roof.rounds is None else f"{roof.agreeing}/{roof.rounds}"),
    ]
    if _has_state(roofs):
        state = roof.conditions
        for value, form in (
            (state and state.clock_hz and state.clock_hz / 1e9, ".2f"), (state and state.power_w, ".0f"),
            (state and state.temperature_c, ".0f"),
        ):  # fmt: skip
            cells.append(Text(_DASH if value is None else f"{value:{form}}"))
    return [*cells, Text(str(how), style="dim")]


def _scope(roof: Ceiling) -> str:
    """What the name does not say: the type that sums are kept in, the capacity of a cache."""
    if roof.accumulate and roof.accumulate != roof.precision:
        return f"sums in {roof.accumulate}"
    return f"up to {binary_bytes(roof.capacity_bytes)}" if roof.capacity_bytes else ""


def _how(roof: Ceiling, ceilings: Ceilings, dated: bool) -> str:
    """How a figure came about, without what the table says already, so that figures taken alike share one line.

    ``dated`` adds the day, where not all are of one.
    """
    detail = roof.source.detail
    for word in MARKS:
        detail = re.sub(rf", {word}[^,]*", "", detail)
    if not roof.variant and ceilings.threads:
        detail = _THREADS.sub("", detail)
    detail = _ACCESS.sub("kernels", detail)
    detail = f"{detail}, {roof.source.date}" if dated and roof.source.date else detail
    return detail if roof.source.kind == "measured" else f"{roof.source.kind}: {detail}"


def _remarks(roofs: Sequence[Ceiling]) -> Iterator[str]:
    if any(roof.rounds for roof in roofs):
        yield ROUNDS
    for word, why in MARKS.items():
        if word == CONTRADICTS:  # each with the law that it breaks
            for roof in roofs:
                if word in marks_of(roof):
                    yield f"! {word}: {ceiling_name(roof)} is {marked(roof, word)}: {why}."
            continue
        names = [ceiling_name(roof) for roof in roofs if word in marks_of(roof)]
        if names:
            reasons = sorted({reason for roof in roofs if roof.conditions for reason in roof.conditions.throttled})
            told = f" ({', '.join(reasons)})" if word == THROTTLED and reasons else ""
            yield f"! {word}: {listed(names)}: {why}{told}."


def _compared_cells(row: Compared, *, star: bool) -> list[Text]:
    from rich.text import Text

    one = row.any
    sums = f" → {one.accumulate}" if one.accumulate and one.accumulate != one.precision else ""
    spread = row.measured.spread if row.measured else None
    reached = _DASH if row.fraction is None else percent(row.fraction)
    if star and row.fraction is not None:
        reached += " *" if row.against == "derived" else "  "
    return [
        Text(ceiling_name(one) + sums),
        Text(_value(row.measured), style="bold"),
        Text(_DASH if spread is None else f"{spread * 100:.1f}"),
        Text(_value(row.spec)),
        Text(_value(row.derived)),
        Text(reached, style="bold" if row.fraction is not None else ""),
    ]


def _value(one: Ceiling | None) -> str:
    return _DASH if one is None else si(one.value, one.unit)


def _sources(title: str, ceilings: Iterable[Ceiling | None]) -> Iterator[str]:
    """Where the figures of one column come from: those of one origin together."""
    names: dict[str, list[str]] = {}
    for one in ceilings:
        if one is not None and ceiling_name(one) not in names.setdefault(one.source.detail, []):
            names[one.source.detail].append(ceiling_name(one))
    for detail, held in names.items():
        yield f"{title}: {', '.join(held)}: {detail}"


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[tuple[list[Text], str]], width: int) -> Table:
    """Rows with their style under titled columns; where there is no room for all, the first column gives way and no number does."""
    from rich.table import Table

    widths = [max([len(title), *(len(cells[i]) for cells, _ in rows if len(cells) > i)]) for i, (title, _) in enumerate(columns)]
    widths[0] = min(widths[0], max(12, width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for (title, justify), wide in zip(columns, widths, strict=True):
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", width=wide)  # type: ignore[arg-type]
    for cells, style in rows:
        table.add_row(*cells, style=style)
    return table


def _line(console: Console, text: str, *, hang: str = "") -> None:
    """A paragraph in the console's width, at most 100 columns; the lines after the first start below the first one's text."""
    from rich.text import Text

    width = min(console.width, 100)
    wrapped = Text(text).wrap(console, max(20, width - len(hang)))
    for number, line in enumerate(wrapped):
        line.rstrip()
        console.print(Text(hang if not number else " " * len(hang)) + line, soft_wrap=True, highlight=False)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if value is None else value for value in row])
    return text.getvalue()
