"""The page of a device's ceilings: each figure with its spread, its source and its age, next to the data
sheet's; as CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from rooflines.device_specs.compare import References, RoofComparison, without_reference
from rooflines.device_specs.history import HistorySession, age
from rooflines.device_specs.records import (
    CONTRADICTS,
    MARKS,
    THROTTLED,
    Ceiling,
    Ceilings,
    Conditions,
    marked,
    marks_of,
)
from rooflines.reports.charts.ceilings import ABOVE, CeilingMarks
from rooflines.reports.document import (
    ABSENT,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Show,
    Table,
    or_absent,
    said,
    section,
    table,
)
from rooflines.reports.words.ceilings import SOURCE_WORDS, ago, ceiling_name, roof_order
from rooflines.reports.words.sentences import listed
from rooflines.reports.words.text import csv_text, given, joined
from rooflines.roofline.count.by_key import grouped
from rooflines.serial import to_json, to_plain
from rooflines.units import binary_bytes, counted, percent, si

ROUNDS = (
    "A measured value is the best of several rounds, ± the coefficient of variation between "
    "them. Rounds: how many came within 5 % "
    "of the best, of all in which the threads had their cores. All rates are dense."
)
_GROUPS = {"compute": "arithmetic", "memory": "memory", "latency": "latency", "link": "links"}
_ROOF_FIELDS = ("kind", "name", "variant", "precision", "engine", "accumulate", "level", "unit")
_THREADS = re.compile(r", \d+ threads?\b")
_ACCESS = re.compile(r"^(read|write|update|copy|triad) kernel\b")


def page(
    ceilings: Ceilings,
    rows: Sequence[RoofComparison] = (),
    references: References | None = None,
    now: datetime | None = None,
) -> Page:
    """The ceilings, main roofs first, how each was measured; with ``references`` measured, data sheet and
    derived side by side."""
    first, second = _heading(ceilings, now)
    drawing = CeilingMarks(measured=ceilings, compared=tuple(rows))
    figure = Figure(name="ceilings", caption="The ceilings on a logarithmic scale.", drawing=drawing)
    show: Show = "always" if not references else "full"
    measured, hows = ceilings_table(ceilings, show=show)
    how = Facts(
        rows=tuple((f"{number}", text) for number, text in enumerate(hows, 1)), kind="definitions", show=show
    )
    remarks = (
        Paragraph(text.removeprefix("! "), "alert" if text[0] == "!" else "note", show)
        for text in _remarks(roof_order(ceilings.ceilings))
    )
    sections = [
        section("ceilings", "Ceilings", measured, figure if not references else None),
        section("how", "How they were measured", how, *remarks),
    ]
    if references:
        compared = comparison_table(rows) if rows else None
        texts = said(_comparison_sentences(rows, references, ceilings))
        sections.insert(0, section("compared", "Measured and reference values", compared, figure, *texts))
    name = f"Ceilings of {ceilings.device}"
    return Page(kind="ceilings", name=name, title=first, verdict=f"{second}.", sections=tuple(sections))


def _heading(ceilings: Ceilings, now: datetime | None = None) -> list[str]:
    """The device of the ceilings, and when and how they were measured: ``measured 3 days ago (2026-11-18
    10:22 UTC), method 3``."""
    threads = counted(ceilings.threads, "thread") if ceilings.threads else ""
    clock = f"{si(ceilings.clock_hz, 'Hz')} sustained" if ceilings.clock_hz else ""
    which = "every figure" if ceilings.full else "the figures that judge a run"
    held = f"sustained for {ceilings.sustained_s:g} s" if ceilings.sustained_s else ""
    since = age(ceilings, now)
    when = (
        f"measured {ago(since)} ({ceilings.measured_at[:16].replace('T', ' ')} UTC)"
        if since is not None
        else "of unknown age"
    )
    again = (
        f"best of {ceilings.measurements} measurements since {ceilings.since[:10]}"
        if ceilings.measurements > 1
        else ""
    )
    driver = given("driver {}", ceilings.driver)
    packages = [
        f"{name} {ceilings.packages[name]}" for name in ("torch", "numba") if name in ceilings.packages
    ]
    return [
        joined(" · ", ceilings.device, ceilings.kind, threads, clock, which, held),
        joined(", ", when, again, given("method {}", ceilings.method), driver, *packages),
    ]


def ceilings_table(ceilings: Ceilings, show: Show = "always") -> tuple[Table, tuple[str, ...]]:
    """The ceilings by kind, further roofs below the main ones; and how they were measured, to which cells
    refer by number."""
    roofs = roof_order(ceilings.ceilings)
    dated = len({roof.source.date for roof in roofs}) > 1
    has_state = any(roof.conditions for roof in roofs)
    state = (
        Column("clock", "GHz", key="clock_ghz"),
        Column("power", "W"),
        Column("temp.", "°C", key="temperature_c"),
    )
    columns = (
        Column("ceiling", format="middle"),
        Column("for", format="text", least=4),
        Column("value"),
        Column("±", "%", key="spread_percent"),
        Column("rounds"),
        *(state if has_state else ()),
        Column("how", quiet=True),
    )
    rows, hows = [], dict[str, str]()
    for kind, title in _GROUPS.items():
        ours = [roof for roof in roofs if roof.kind == kind]
        for further in (False, True):
            group = [roof for roof in ours if bool(roof.variant) is further]
            if group:
                rows.append(Row((f"further {title}" if further else title,), heading=True))
            for roof in group:
                how = hows.setdefault(_how(roof, ceilings, dated), str(len(hows) + 1))
                marks, held = ", ".join(marks_of(roof)), roof.conditions or Conditions()
                scope = given("up to {}", roof.capacity_bytes, binary_bytes)
                cells = (
                    ceiling_name(roof),
                    f"sums in {roof.accumulate}" if _sums_elsewhere(roof) else scope,
                    si(roof.value, roof.unit),
                    Cell(
                        value=or_absent(roof.spread, ".1f", 100), warning=marks, prefix="! " if marks else ""
                    ),
                    ABSENT if roof.rounds is None else f"{roof.agreeing}/{roof.rounds}",
                    or_absent(held.clock_hz, ".2f", 1e-9),
                    or_absent(held.power_w, ".0f"),
                    or_absent(held.temperature_c, ".0f"),
                )
                rows.append(Row((*(cells if has_state else cells[:5]), how), muted=further))
    return table("ceilings", columns, rows, "Ceilings with their sources", show=show), tuple(hows)


def _sums_elsewhere(roof: Ceiling) -> bool:
    """Whether sums are kept in another type."""
    return bool(roof.accumulate) and roof.accumulate != roof.precision


def comparison_table(rows: Sequence[RoofComparison]) -> Table:
    """Measured, data sheet and derived side by side, with the fraction reached."""
    sources = [source for source in ("spec", "derived") if any(getattr(row, source) for row in rows)]
    columns = (
        Column("ceiling", format="middle"),
        Column("measured"),
        Column("±", "%", key="spread_percent"),
        *(Column(SOURCE_WORDS[source]) for source in sources),
        Column("reached"),
    )
    found = []
    for row in rows:
        roof, reached = row.any, or_absent(row.fraction, percent)
        if "spec" in sources and row.fraction is not None:
            reached += " *" if row.reference_source == "derived" else "  "
        found.append(
            (
                ceiling_name(roof) + (f" → {roof.accumulate}" if _sums_elsewhere(roof) else ""),
                _value(row.measured),
                or_absent(row.measured.spread if row.measured else None, ".1f", 100),
                *(_value(getattr(row, source)) for source in sources),
                reached,
            )
        )
    return table("compared", columns, found, "Measured, data sheet and derived side by side", show="always")


def _comparison_sentences(
    rows: Sequence[RoofComparison], references: References, measured: Ceilings
) -> Iterator[str]:
    """What the table of the comparison needs said: against what, why above 100 %, where figures come from,
    what is missing."""
    if any(row.fraction is not None for row in rows):
        mixed = any(row.reference_source == "derived" and row.fraction is not None for row in rows)
        star = "; * of the derived figure, where the sheet has none" if mixed and references.spec else ""
        against = "the data sheet's figure" if references.spec else "the derived figure"
        yield (
            f"reached: measured over {against}{star}. All rates are dense; → names the type that sums "
            "are kept in."
        )
    above = [ceiling_name(row.any) for row in rows if row.fraction is not None and row.fraction > ABOVE]
    if above:
        yield (
            f"above 100 %: {', '.join(above)}. Sheets state rates at one clock (base or boost), "
            "and the device may run above it; "
            "the measured value is used."
        )
    if references.no_spec:
        yield references.no_spec[:1].upper() + references.no_spec[1:]
    if references.no_derived:
        yield f"Nothing derived: {references.no_derived}"
    yield from _sources("data sheet", [row.spec for row in rows])
    yield from _sources("derived", [row.derived for row in rows])
    alone = [roof.level or ceiling_name(roof) for roof in without_reference(measured, tuple(rows))]
    if alone:
        yield f"measured only, without a reference: {', '.join(dict.fromkeys(reversed(alone)))}."


def ceilings_json(
    ceilings: Ceilings, sessions: Sequence[HistorySession], rows: Sequence[RoofComparison] | None
) -> str:
    """The ceilings as ``--ceilings FILE`` reads them, with every round of all measurements, and the
    comparison where there is one."""
    compared = {} if rows is None else {"compare": comparison_plain(rows)}
    return to_json({**to_plain(ceilings), "sessions": to_plain(sessions), **compared})


def ceilings_csv(ceilings: Ceilings) -> str:
    """One row a ceiling, every field a column; what is not known is empty."""
    fields = [name for name in Ceiling.__struct_fields__ if name not in ("source", "conditions")]
    state = ("clock_hz", "memory_clock_hz", "power_w", "temperature_c")
    rows = (
        [
            *(getattr(roof, name) for name in fields),
            roof.source.kind,
            roof.source.detail,
            roof.source.date,
            *(getattr(roof.conditions, name, None) for name in state),
            " ".join(roof.conditions.throttled if roof.conditions else ()),
        ]
        for roof in ceilings.ceilings
    )
    return csv_text([*fields, "source", "detail", "date", *state, "throttled"], rows)


def comparison_csv(rows: Sequence[RoofComparison]) -> str:
    """One row a compared figure: the three values, the fraction, and where the two references come from."""
    header = [
        *_ROOF_FIELDS,
        "measured",
        "spread",
        "spec",
        "derived",
        "fraction",
        "against",
        "spec_source",
        "derived_source",
    ]
    return csv_text(header, ([plain.get(name) for name in header] for plain in comparison_plain(rows)))


def comparison_plain(rows: Sequence[RoofComparison]) -> list[dict[str, Any]]:
    """The comparison as plain containers for JSON; missing values are absent."""
    found = []
    for row in rows:
        values = {"measured": row.measured, "spec": row.spec, "derived": row.derived}
        plain = {name: getattr(row.any, name) for name in _ROOF_FIELDS}
        plain |= {name: one.value if one else None for name, one in values.items()}
        plain |= {
            f"{name}_source": one.source.detail for name, one in values.items() if one and name != "measured"
        }
        reached = (
            {"fraction": row.fraction, "against": row.reference_source} if row.fraction is not None else {}
        )
        spread = row.measured.spread if row.measured else None
        found.append(to_plain({**plain, "variant": row.any.variant or None, "spread": spread, **reached}))
    return found


def _how(roof: Ceiling, ceilings: Ceilings, dated: bool) -> str:
    """How a figure came about, without what the table says already, so that figures taken alike share one
    line.

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
            reasons = sorted(
                {reason for roof in roofs if roof.conditions for reason in roof.conditions.throttled}
            )
            told = f" ({', '.join(reasons)})" if word == THROTTLED and reasons else ""
            yield f"! {word}: {listed(names)}: {why}{told}."


def _value(one: Ceiling | None) -> str:
    return ABSENT if not one else si(one.value, one.unit)


def _sources(title: str, ceilings: Iterable[Ceiling | None]) -> Iterator[str]:
    """Where the figures of one column come from: those of one origin together."""
    named = dict.fromkeys((one.source.detail, ceiling_name(one)) for one in ceilings if one)
    for detail, pairs in grouped(named, itemgetter(0)).items():
        yield f"{title}: {', '.join(name for _, name in pairs)}: {detail}"
