"""The page of a comparison: the sentence, what got slower, faster, is new or gone, and what the difference is
made of; CSV; JUnit XML, which systems of continuous integration show: a test for the step, and one for each
operator or module; and the JSON of trackers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as xml

from rooflines.reports.document import (
    PART,
    Bar,
    BarRow,
    Cell,
    Column,
    Facts,
    Page,
    Row,
    Section,
    Table,
    bound_parts,
    or_absent,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.words.sentences import ratio_text, subject
from rooflines.reports.words.text import (
    csv_text,
    decimals_of,
    fixed,
    given,
    joined,
    short_name,
    shorten_shapes,
)
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.compare.compare import count_of_calls, place_of, signed_seconds
from rooflines.roofline.compare.records import (
    CHANGE_COLUMNS,
    ChangedRow,
    Comparison,
    Figures,
    Noise,
    StepPace,
    Subject,
)
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.units import counted, percent, quantity, scale, seconds, sentence, significant

By = Literal["operator", "module"]
_GENERATED = {
    "ttft_s": "time to first token",
    "itl_median_s": "inter-token latency, median",
    "itl_p90_s": "inter-token latency, 90 % below",
    "itl_p99_s": "inter-token latency, 99 % below",
    "tokens_per_s": "new tokens a second",
}
# In the order of the page.
_GROUPS = {"slower": "Slower", "faster": "Faster", "new": "New", "gone": "Gone", "unknown": "Noise unknown"}
_MOST_DECIMALS = 4
# Print has as many rows, and a page folds the others.
_MANY = 50


def page(comparisons: Sequence[Comparison], by: By = "operator", top: int = 5) -> Page:
    """The page of ``comparisons`` with the first of their runs, ``top`` rows of a kind in the short form."""
    first = comparisons[0]
    several = len(comparisons) > 1
    # A and B of rounds are several runs each.
    sides = "versions" if first.pace and first.pace.rounds else "runs"
    return Page(
        kind="comparison",
        name=f"{first.a.source} and {first.b.source}",
        title=f"{first.a.source} compared with {', '.join(one.b.source for one in comparisons)}"
        if several
        else "Comparison",
        verdict=first.verdict
        if not several
        else " ".join(f"{one.b.source}: {one.verdict}" for one in comparisons),
        said=tuple(
            f"{one.b.source}: {one.clocks}" if several else one.clocks for one in comparisons if one.clocks
        ),
        status=shared_by([first.a.others_cores, *(one.b.others_cores for one in comparisons)], sides),
        sections=tuple(
            section
            for number, comparison in enumerate(comparisons, start=1)
            for section in _sections(comparison, by, top, f"-{number}" if several else "")
        ),
    )


def _sections(comparison: Comparison, by: By, top: int, suffix: str) -> tuple[Section, ...]:
    sides = (("A", comparison.a), ("B", comparison.b))
    sources = (comparison.a.source, comparison.b.source)
    rounds = comparison.pace.rounds if comparison.pace else ()
    facts = Facts(
        rows=tuple((letter, side.source, _subject(side)) for letter, side in sides),
        # A run and its analysis have a page next to them; rounds have several.
        reports=()
        if rounds
        else tuple(
            str((Path(one) if Path(one).is_dir() else Path(one).parent) / "report.html") for one in sources
        ),
        show="always",
    )
    differs = "; ".join(f"{fact.name} {fact.before} → {fact.after}" for fact in comparison.differs)
    unlike = ", ".join(fact.name for fact in comparison.unlike)
    compared = section(
        f"sides{suffix}",
        "What was compared",
        facts,
        _bound_bars(comparison),
        *said(given("differs: {}", differs)),
        *said(given("Compared as requested, but {} make these times hard to compare.", unlike), "alert"),
        *said(comparison.command, "code", "full"),
    )
    rows = (
        comparison.modules
        if by == "module"
        else [row for row in comparison.rows if row.kind in ("operator", "unmodeled")]
    )
    same = [row.difference_s == 0 for row in rows if row.direction == "same"]
    unchanged = [
        f"{counted(count, by)} {words[count > 1]}"
        for count, words in (
            (same.count(False), ("does not differ beyond the noise", "do not differ beyond the noise")),
            (same.count(True), ("takes exactly the same time", "take exactly the same time")),
        )
        if count
    ]
    changes = (
        _changes_table(rows, by, top) if rows else None,
        *said(unchanged, "note"),
        *said(f"The traces contain no {by}s." if comparison.rows and not rows else "", "absent"),
    )
    return sections_of(
        compared,
        section(f"generation{suffix}", "Generation", _generated(comparison)),
        section(f"changes{suffix}", "Modules" if by == "module" else "Operators", *changes),
        section(
            f"sum{suffix}",
            "Composition of the difference",
            *([_sum(comparison)] if by == "operator" and comparison.rows else []),
        ),
        section(f"rounds{suffix}", "Rounds", *([_rounds(rounds)] if rounds else [])),
        section(f"notes{suffix}", "Remarks", *said(map(sentence, comparison.notes), "note")),
    )


def _subject(side: Subject) -> str:
    """What ran, where and when."""
    words = subject(Analysis(workload=side.workload, environment=side.environment))
    return joined(" · ", words, given("torch {}", side.environment.torch), side.created[:10])


def _generated(comparison: Comparison) -> Table | None:
    """Latencies and rates of both sides where both generate text."""
    before, after = comparison.a.generated, comparison.b.generated
    if not before or not after:
        return None
    columns = (Column("figure", format="text"), Column("A"), Column("B"), Column("ratio", format="figures"))
    rows = [
        Row(
            (
                name,
                *(
                    Cell(value=side[key], text=quantity(side[key], "" if key == "tokens_per_s" else "s"))
                    for side in (before, after)
                ),
                after[key] / before[key],
            )
        )
        for key, name in _GENERATED.items()
        if before.get(key) and after.get(key)
    ]
    return table("generation", columns, rows, "Latencies and rates of the generations", show="always")


def _bound_bars(comparison: Comparison) -> Bar | None:
    """The time of both sides by bound class on one scale; None if it is not known of both."""
    pace, classes = comparison.pace, [side.bound_breakdown or {} for side in (comparison.a, comparison.b)]
    traced = [sum(times.values()) for times in classes]
    if not pace or not all(traced):
        return None
    rows, longest_s = [], max(pace.before_s, pace.after_s)
    for letter, times, whole, time_s in zip(
        "AB", classes, traced, (pace.before_s, pace.after_s), strict=True
    ):
        parts = bound_parts(
            {name: part_s * (time_s / whole) for name, part_s in times.items() if part_s}, longest_s
        )
        rows.append(BarRow(label=letter, text=seconds(time_s), parts=parts))
    divided = "; the traced steps divide it" if pace.of == "timed steps" else ""
    return Bar(
        name="classes", caption=f"Time by what bounds it, both on one scale{divided}.", rows=tuple(rows)
    )


def _changes_table(rows: Sequence[ChangedRow], by: By, top: int) -> Table:
    """What changed, by its direction; the short form has ``top`` of each."""
    # The unit of the table is that of the rows that it has.
    factor, decimals = _scale([row for row in rows if row.direction in _GROUPS])
    columns = (
        Column(by, format="path" if by == "module" else "name", least=8),
        Column("class" if by == "module" else "module", format="path", least=8, priority=1),
        Column("A", "s", "scaled"),
        Column("B", "s", "scaled"),
        Column("change", "s", "scaled"),
        Column("ratio", format="figures"),
    )
    shown = []
    for name, title in _GROUPS.items():
        group = [row for row in rows if row.direction == name]
        if not group:
            continue
        # Modules lie within each other: their sum says nothing.
        total = f", {signed_seconds(sum(row.difference_s for row in group))}"
        if by == "module":
            total = f", with all that runs below {'them' if len(group) > 1 else 'it'}"
        shown.append(Row((f"{title}: {counted(len(group), by)}{total}",), heading=True))
        for at, row in enumerate(group):
            detail = said(_detail(row), "note")
            cells: tuple[Cell | str, ...] = (*_names(row, by), *_times(row, factor, decimals))
            shown.append(Row(cells, show="always" if at < top else "full", detail=tuple(detail)))
        if len(group) > top:
            more = f"and {len(group) - top} more (--top {len(group)} shows all)"
            shown.append(Row((more,), heading=True, muted=True, show="brief"))
    return table("changes", columns, shown, "What changed", printed=_MANY, first=_MANY, show="always")


def _scale(rows: Sequence[ChangedRow]) -> tuple[float, int]:
    """The factor of one unit for all times, and as many decimals as three figures of the largest time and
    difference take."""
    largest_s = max((side.time_s for row in rows for side in (row.before, row.after) if side), default=0.0)
    factor, _ = scale(largest_s)
    difference_s = max((abs(row.difference_s) for row in rows), default=0.0)
    return factor, min(
        max(decimals_of(largest_s / factor), decimals_of(difference_s / factor)), _MOST_DECIMALS
    )


def _times(row: ChangedRow, factor: float, decimals: int) -> tuple[Cell, ...]:
    before, after = (side.time_s if side else None for side in (row.before, row.after))
    sign = "+" if row.difference_s > 0 else "−" if row.difference_s < 0 else ""
    return (
        *(
            Cell(value=time_s, text=fixed(None if time_s is None else time_s / factor, decimals))
            for time_s in (before, after)
        ),
        Cell(value=row.difference_s, text=f"{sign}{abs(row.difference_s) / factor:.{decimals}f}"),
        Cell(value=row.ratio, text=or_absent(row.ratio, significant)),
    )


def _names(row: ChangedRow, by: By) -> tuple[str, str]:
    """The operator and its module, or the module and its class."""
    side = _side(row)
    if by == "module":
        return side.module or "(all)", row.name
    outside = f"({side.phase})" if side.phase else "(no count)" if row.kind == "unmodeled" else ""
    return short_name(row.name), side.module or outside


def _side(row: ChangedRow) -> Figures:
    side = row.after or row.before
    assert side
    return side


def _detail(row: ChangedRow) -> str:
    """Why, how well before and after, and which shapes."""
    before, after = row.before, row.after
    parts = [row.cause]
    if row.noise and row.direction in ("slower", "faster"):
        parts.append(ratio_text(row.noise))
    if before and after and before.efficiency is not None and after.efficiency is not None:
        parts.append(f"efficiency {percent(before.efficiency)} → {percent(after.efficiency)}")
    if not before or not after:
        side = _side(row)
        parts += [count_of_calls(side.calls) if side.calls else "", side.reason or ""]
    shapes = [shorten_shapes(side.shapes, 40) for side in (before, after) if side and side.shapes]
    parts.append(" → ".join(dict.fromkeys(shapes)))
    return joined("; ", *parts)


def _sum(comparison: Comparison) -> Table:
    """The differences of all rows, which sum to that of the spans."""
    rows = []
    for name, title in {**_GROUPS, "same": "Within the noise"}.items():
        moved = [
            row.difference_s
            for row in comparison.rows
            if row.kind in ("operator", "unmodeled") and row.direction == name
        ]
        if any(moved):
            rows.append((f"{title.lower()} ({len(moved) - moved.count(0)})", sum(moved), ""))
    rows += [
        (
            row.kind,
            row.difference_s,
            "work that overlaps with other work" if row.kind == "overlap" else row.cause,
        )
        for row in comparison.rows
        if row.kind in ("idle", "overlap")
    ]
    rows.append(
        (
            "together",
            comparison.span_difference_s or 0.0,
            "the step" if comparison.basis == "step" else "the trace",
        )
    )
    *cells, total = (
        (name, Cell(value=moved_s, text=signed_seconds(moved_s)), why) for name, moved_s, why in rows
    )
    return table(
        "sum",
        (PART, Column("change", format="given"), Column("why", format="text", quiet=True, priority=1)),
        cells,
        "Differences of all rows; they add up to the total difference",
        total=total,
        show="always",
    )


def _rounds(rounds: Sequence[tuple[float, float]]) -> Table:
    columns = (
        Column("round", format="count"),
        *(Column(side, "s", "scaled") for side in "AB"),
        Column("ratio", format="figures"),
    )
    rows = (
        (number, before_s, after_s, after_s / before_s)
        for number, (before_s, after_s) in enumerate(rounds, 1)
    )
    return table(
        "rounds",
        columns,
        rows,
        "Times of each round; A and B change places in every second one",
        show="always",
    )


def comparison_csv(comparisons: Sequence[Comparison], by: By) -> str:
    """The changes of operators or modules of all comparisons as CSV."""
    changes = ((one, row) for one in comparisons for row in (one.modules if by == "module" else one.rows))
    return csv_text(CHANGE_COLUMNS, (one.cells(row) for one, row in changes))


# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(comparisons: Sequence[Comparison], by: By, above: float) -> str:
    """A suite for each comparison. The step fails if it is slower by more than the share ``above``, and with
    it what made it slower.

    Steps, operators and modules of unknown noise are skipped.
    """
    root = xml.Element("testsuites", name="rooflines")
    for comparison in comparisons:
        suite = xml.SubElement(
            root, "testsuite", name=f"{comparison.b.source} compared with {comparison.a.source}"
        )
        failed = comparison.slower_than(above)
        _step(suite, comparison, above, failed)
        for row in comparison.modules if by == "module" else comparison.rows:
            if row.kind in ("operator", "unmodeled", "module"):
                _row(suite, row, by, failed)
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for name in ("failure", "skipped"):
            suite.set(
                f"{name}s" if name == "failure" else name,
                str(sum(case.find(name) is not None for case in cases)),
            )
    xml.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + _FORBIDDEN.sub("\ufffd", xml.tostring(root, encoding="unicode"))
        + "\n"
    )


def _step(suite: xml.Element, comparison: Comparison, above: float, failed: bool) -> None:
    pace = comparison.pace
    case = xml.SubElement(
        suite,
        "testcase",
        classname="rooflines.step",
        name="step",
        time=f"{pace.after_s if pace else 0.0:.9f}",
    )
    if failed:
        message = f"Slower by {percent(comparison.slowdown, 1)}, more than {percent(above, 1)}."
        xml.SubElement(case, "failure", type="slower", message=message).text = comparison.verdict
    elif pace and pace.exceeds_noise is None:
        xml.SubElement(case, "skipped", message=comparison.verdict)
    else:
        xml.SubElement(case, "system-out").text = comparison.verdict


def _row(suite: xml.Element, row: ChangedRow, by: By, failed: bool) -> None:
    name = (_side(row).module or "(all)") if by == "module" else _full_name(row)
    time_s = row.after.time_s if row.after else 0.0
    case = xml.SubElement(suite, "testcase", classname=f"rooflines.{by}", name=name, time=f"{time_s:.9f}")
    if row.direction == "unknown":
        xml.SubElement(case, "skipped", message="The noise is not known.")
    elif row.direction == "slower" and failed:
        xml.SubElement(case, "failure", type="slower", message=_sentence(row))
    elif row.direction != "same":
        xml.SubElement(case, "system-out").text = _sentence(row)


def _full_name(row: ChangedRow) -> str:
    """The operator with everything that tells it from others."""
    side = _side(row)
    facts = joined(", ", side.phase, side.shapes, side.precision)
    return f"{place_of(row)}{given(' ({})', facts)}"


def _sentence(row: ChangedRow) -> str:
    """What happened to the row: ``Slower: 1.20 ms instead of 1.00 ms (ratio 1.20, 95 % interval 1.15 to 1.26;
    other shapes).``"""
    if not row.before or not row.after:
        return f"{row.direction.title()}: {seconds(_side(row).time_s)}."
    why = [row.cause] if row.cause else []
    if row.noise:
        why.insert(0, ratio_text(row.noise))
    return (
        f"{row.direction.title()}: {seconds(row.after.time_s)} instead of "
        f"{seconds(row.before.time_s)} ({'; '.join(why)})."
    )


def benchmark(comparison: Comparison, top: int) -> str:
    """The figures of B as github-action-benchmark reads them: the step, its FLOPs, and the ``top`` longest
    operators.

    The range is half the interval of the change from A.
    """
    pace, basis, workload = comparison.pace, comparison.basis, comparison.b.workload.name
    entries: list[dict[str, str | float]] = [
        {
            "name": f"FLOPs per {basis}",
            "unit": "GFLOP",
            "value": comparison.flops[1] / 1e9,
            "extra": "counted operators",
        }
    ]
    if pace:
        entries.insert(0, _entry(basis, pace.before_s, pace.after_s, pace.noise or pace, comparison.verdict))
    rows = [row for row in comparison.rows if row.kind in ("operator", "unmodeled") and row.after]
    for row in sorted(rows, key=lambda row: -_side(row).time_s)[:top]:
        before_s = row.before.time_s if row.before else 0.0
        entries.append(_entry(_full_name(row), before_s, _side(row).time_s, row.noise, row.cause))
    machine = _subject(comparison.b)
    named = [
        {**entry, "name": f"{workload}: {entry['name']}", "extra": f"{entry['extra']}\n{machine}".strip()}
        for entry in entries
    ]
    return json.dumps(named, indent=1, ensure_ascii=False) + "\n"


def _entry(
    name: str, before_s: float, after_s: float, noise: Noise | StepPace | None, words: str
) -> dict[str, str | float]:
    """A time in milliseconds."""
    entry: dict[str, str | float] = {"name": name, "unit": "ms", "value": after_s * 1e3, "extra": words}
    if noise and noise.ci95:
        low, high = noise.ci95
        entry["range"] = f"± {(high - low) / 2 * before_s * 1e3:.6f}"
    return entry
