"""The page of a comparison: the sentence, what got slower, faster, is new or gone, and what the difference is made of; and CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as xml

from rooflines.reports.charts.palette import BOUNDS
from rooflines.reports.document import Bar, BarRow, Block, Cell, Column, Facts, Page, Paragraph, Part, Row, Section, Table, or_absent
from rooflines.reports.words.sentences import subject
from rooflines.reports.words.text import Scale, column_scale, csv_text, short_name, shorten_shapes
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.comparison.compare import count_of_calls, place_of, signed_seconds
from rooflines.roofline.comparison.records import CHANGE_COLUMNS, Change, Comparison, Figures, Subject
from rooflines.roofline.step.interference import shared_by
from rooflines.units import interval, percent, seconds, significant

By = Literal["operator", "module"]
# In the order of the page.
_GROUPS = {"slower": "Slower", "faster": "Faster", "new": "New", "gone": "Gone", "unknown": "Noise unknown"}
_MOST_DECIMALS = 4
# Print has as many rows, and a page folds the others.
_MANY = 50


def page(comparisons: Sequence[Comparison], by: By = "operator", top: int = 5) -> Page:
    """The page of ``comparisons`` with the first of their runs, ``top`` rows of a kind in the short form."""
    first = comparisons[0]
    several = len(comparisons) > 1
    return Page(
        kind="comparison",
        name=f"{first.a.source} and {first.b.source}",
        title=f"{first.a.source} compared with {', '.join(one.b.source for one in comparisons)}" if several else "Comparison",
        verdict=first.verdict if not several else " ".join(f"{one.b.source}: {one.verdict}" for one in comparisons),
        status=shared_by([first.a.others_cores, *(one.b.others_cores for one in comparisons)], "runs"),
        sections=tuple(
            section
            for number, comparison in enumerate(comparisons, start=1)
            for section in _sections(comparison, by, top, f"-{number}" if several else "")
        ),
    )


def _sections(comparison: Comparison, by: By, top: int, suffix: str) -> list[Section]:
    sides = tuple((letter, side.source, _subject(side)) for letter, side in (("A", comparison.a), ("B", comparison.b)))
    reports = tuple(_report(side.source) for side in (comparison.a, comparison.b))
    bars = bound_bars(comparison)
    blocks: list[Block] = [Facts(rows=sides, reports=reports, show="always"), *([bars] if bars else [])]
    if comparison.differs:
        differs = "; ".join(f"{fact.name} {fact.before} → {fact.after}" for fact in comparison.differs)
        blocks.append(Paragraph(f"differs: {differs}", show="always"))
    if comparison.unlike:
        unlike = ", ".join(fact.name for fact in comparison.unlike)
        blocks.append(Paragraph(f"Compared as requested, but {unlike} make these times hard to compare.", "alert", "always"))
    sections = [Section(name=f"sides{suffix}", title="What was compared", blocks=tuple(blocks))]
    rows = comparison.modules if by == "module" else [row for row in comparison.rows if row.kind in ("operator", "unmodelled")]
    changed: list[Block] = []
    if rows:
        changed.append(changes_table(rows, by, top))
        same = [row for row in rows if row.direction == "same"]
        exactly = sum(row.difference_s == 0 for row in same)
        for count, what in ((len(same) - exactly, "not differ beyond the noise"), (exactly, "take exactly the same time")):
            if count:
                words = what.replace("not differ", "do not differ" if count > 1 else "does not differ")
                words = words if count > 1 else words.replace("take ", "takes ", 1)
                changed.append(Paragraph(f"{count} {by}{'s' if count > 1 else ''} {words}", "note", "always"))
    elif comparison.rows:
        text = "The traces contain no modules." if by == "module" else "The traces contain no operators."
        changed.append(Paragraph(text, "absent", "always"))
    if changed:
        sections.append(Section(name=f"changes{suffix}", title="Modules" if by == "module" else "Operators", blocks=tuple(changed)))
    if by == "operator" and comparison.rows:
        sections.append(Section(name=f"sum{suffix}", title="Composition of the difference", blocks=(_sum(comparison),)))
    if comparison.notes:
        notes = tuple(Paragraph(f"{note[:1].upper()}{note[1:]}.", "note", "always") for note in comparison.notes)
        sections.append(Section(name=f"notes{suffix}", title="Remarks", blocks=notes))
    return sections


def _subject(side: Subject) -> str:
    """What ran, where and when."""
    words = subject(Analysis(workload=side.workload, environment=side.environment))
    return " · ".join(
        part for part in (words, f"torch {side.environment.torch}" if side.environment.torch else "", side.created[:10]) if part
    )


def _report(source: str) -> str:
    """The page that the reports of ``source`` have, if it is a run or its analysis."""
    return str((Path(source) if Path(source).is_dir() else Path(source).parent) / "report.html")


def bound_bars(comparison: Comparison) -> Bar | None:
    """The time of both sides by bound class on one scale; None if it is not known of both."""
    pace, classes = comparison.pace, [side.bound_breakdown or {} for side in (comparison.a, comparison.b)]
    traced = [sum(times.values()) for times in classes]
    if pace is None or not all(traced):
        return None
    rows, longest_s = [], max(pace.before_s, pace.after_s)
    for letter, times, whole, time_s in zip("AB", classes, traced, (pace.before_s, pace.after_s), strict=True):
        scale = time_s / whole
        parts = tuple(
            Part(
                name=name, share=times[name] * scale / longest_s, text=seconds(times[name] * scale), pattern=name, letter=style.letter,
                meaning=style.meaning,
            )
            for name, style in BOUNDS.items()
            if times.get(name)
        )  # fmt: skip
        rows.append(BarRow(label=letter, text=seconds(time_s), parts=parts))
    divided = "; the traced steps divide it" if pace.of == "timed steps" else ""
    return Bar(name="classes", caption=f"Time by what bounds it, both on one scale{divided}.", rows=tuple(rows))


def changes_table(rows: Sequence[Change], by: By, top: int) -> Table:
    """What changed, by its direction; the short form has ``top`` of each."""
    scale = _scale(rows)
    columns = (
        Column(by, format="path" if by == "module" else "name", least=8),
        Column("class" if by == "module" else "module", format="path", least=8, priority=1),
        Column("A", "s", "scaled"), Column("B", "s", "scaled"), Column("change", "s", "scaled"), Column("ratio", format="figures"),
    )  # fmt: skip
    found = []
    for name, title in _GROUPS.items():
        group = [row for row in rows if row.direction == name]
        if not group:
            continue
        remark = f", with all that runs below {'them' if len(group) > 1 else 'it'}" if by == "module" else ""
        # Modules lie within each other: their sum says nothing.
        total = "" if by == "module" else f", {signed_seconds(sum(row.difference_s for row in group))}"
        found.append(Row((f"{title}: {len(group)} {by}{'s' if len(group) > 1 else ''}{total}{remark}",), heading=True))
        for at, row in enumerate(group):
            detail = _detail(row)
            cells = (_first(row, by), _second(row, by), *_times(row, scale))
            found.append(
                Row(cells, show="always" if at < top else "full", detail=(Paragraph(detail, "note", "always"),) if detail else ())
            )
        if len(group) > top:
            more = f"and {len(group) - top} more (--top {len(group)} shows all)"
            found.append(Row((more,), heading=True, muted=True, show="brief"))
    return Table(name="changes", caption="What changed", columns=columns, rows=tuple(found), printed=_MANY, first=_MANY, show="always")


def _scale(rows: Sequence[Change]) -> Scale:
    """One unit for all times, with as many decimals as three figures of the largest difference take."""
    times = column_scale([side.time_s for row in rows for side in (row.before, row.after) if side is not None], "s")
    largest = max((abs(row.difference_s) for row in rows), default=0.0) / times.factor
    decimals = len(significant(largest).partition(".")[2]) if largest else times.decimals
    return times._replace(decimals=min(max(decimals, times.decimals), _MOST_DECIMALS))


def _times(row: Change, times: Scale) -> tuple[Cell, Cell, Cell, Cell]:
    before, after = (side.time_s if side is not None else None for side in (row.before, row.after))
    size = f"{abs(row.difference_s) / times.factor:.{times.decimals}f}"
    sign = "+" if row.difference_s > 0 else "−" if row.difference_s < 0 else ""
    return (
        Cell(value=before, text=times.text(before)),
        Cell(value=after, text=times.text(after)),
        Cell(value=row.difference_s, text=f"{sign}{size}"),
        Cell(value=row.ratio, text=or_absent(row.ratio, significant)),
    )


def _first(row: Change, by: By) -> str:
    return _side(row).module or "(all)" if by == "module" else short_name(row.name)


def _second(row: Change, by: By) -> str:
    if by == "module":
        return row.name
    side = _side(row)
    return side.module or (f"({side.phase})" if side.phase else "(no count)" if row.kind == "unmodelled" else "")


def _side(row: Change) -> Figures:
    side = row.after or row.before
    assert side is not None
    return side


def _detail(row: Change) -> str:
    """Why, how well before and after, and which shapes."""
    before, after = row.before, row.after
    parts = [row.cause]
    if row.noise is not None and row.direction in ("slower", "faster"):
        parts.append(f"ratio {significant(row.noise.ratio)}, 95 % interval {interval(*row.noise.ci95)}")
    if before is not None and after is not None and before.efficiency is not None and after.efficiency is not None:
        parts.append(f"efficiency {percent(before.efficiency)} → {percent(after.efficiency)}")
    one = _side(row)
    if before is None or after is None:
        parts.append(count_of_calls(one.calls) if one.calls else "")
        parts.append(one.reason or "")
    shapes = [shorten_shapes(side.shapes, 40) for side in (before, after) if side is not None and side.shapes]
    parts.append(" → ".join(dict.fromkeys(shapes)))
    return "; ".join(part for part in parts if part)


def _sum(comparison: Comparison) -> Table:
    """The differences of all rows, which sum to that of the spans."""
    rows = []
    for name, title in {**_GROUPS, "same": "Within the noise"}.items():
        group = [
            row for row in comparison.rows if row.difference_s and row.kind in ("operator", "unmodelled") and row.direction == name
        ]
        if group:
            rows.append((f"{title.lower()} ({len(group)})", sum(row.difference_s for row in group), ""))
    rows += [
        (row.kind, row.difference_s, "work that overlaps with other work" if row.kind == "overlap" else row.cause)
        for row in comparison.rows
        if row.kind in ("idle", "overlap")
    ]
    whole = comparison.span_difference_s or 0.0
    total = ("together", Cell(value=whole, text=signed_seconds(whole)), "the step" if comparison.basis == "step" else "the trace")
    return Table(
        name="sum",
        caption="Differences of all rows; they add up to the total difference",
        columns=(Column("part", format="text"), Column("change", format="given"), Column("why", format="text", quiet=True, priority=1)),
        rows=tuple(Row((name, Cell(value=value, text=signed_seconds(value)), why)) for name, value, why in rows),
        total=total,
        show="always",
    )


def comparison_csv(comparisons: Sequence[Comparison], by: By) -> str:
    """The changes of operators or modules of all comparisons as CSV."""
    changes = ((one, row) for one in comparisons for row in (one.modules if by == "module" else one.rows))
    return csv_text(CHANGE_COLUMNS, (one.cells(row) for one, row in changes))


# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(comparisons: Sequence[Comparison], by: By, above: float) -> str:
    """A suite for each comparison. The step fails if it is slower by more than the share ``above``, and with it what made it slower.

    Steps, operators and modules of unknown noise are skipped.
    """
    root = xml.Element("testsuites", name="rooflines")
    for comparison in comparisons:
        suite = xml.SubElement(root, "testsuite", name=_text(f"{comparison.b.source} compared with {comparison.a.source}"))
        failed = comparison.slower_than(above)
        _step(suite, comparison, above, failed)
        for row in comparison.modules if by == "module" else comparison.rows:
            if row.kind in ("operator", "unmodelled", "module"):
                _row(suite, row, by, failed)
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for name in ("failure", "skipped"):
            suite.set(f"{name}s" if name == "failure" else name, str(sum(case.find(name) is not None for case in cases)))
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _step(suite: xml.Element, comparison: Comparison, above: float, failed: bool) -> None:
    pace = comparison.pace
    case = xml.SubElement(suite, "testcase", classname="rooflines.step", name="step", time=_time(pace.after_s if pace else None))
    if failed:
        xml.SubElement(
            case,
            "failure",
            type="slower",
            message=_text(f"Slower by {percent(comparison.slowdown, 1)}, more than {percent(above, 1)}."),
        ).text = _text(comparison.verdict)
    elif pace is not None and pace.exceeds_noise is None:
        xml.SubElement(case, "skipped", message=_text(comparison.verdict))
    else:
        xml.SubElement(case, "system-out").text = _text(comparison.verdict)


def _row(suite: xml.Element, row: Change, by: By, failed: bool) -> None:
    side = row.after or row.before
    assert side is not None
    facts = ", ".join(filter(None, (side.phase, side.shapes, side.precision)))
    name = (side.module or "(all)") if by == "module" else f"{place_of(row)}{f' ({facts})' if facts else ''}"
    case = xml.SubElement(
        suite, "testcase", classname=f"rooflines.{by}", name=_text(name), time=_time(row.after.time_s if row.after else None)
    )
    if row.direction == "unknown":
        xml.SubElement(case, "skipped", message="The noise is not known.")
    elif row.direction == "slower" and failed:
        xml.SubElement(case, "failure", type="slower", message=_text(_sentence(row)))
    elif row.direction != "same":
        xml.SubElement(case, "system-out").text = _text(_sentence(row))


def _sentence(row: Change) -> str:
    """What happened to the row: ``Slower: 1.20 ms instead of 1.00 ms (ratio 1.20, 95 % interval 1.15 to 1.26; other shapes).``"""
    if row.before is None or row.after is None:
        side = row.after or row.before
        return f"{row.direction.title()}: {seconds(side.time_s)}." if side is not None else ""
    why = [row.cause] if row.cause else []
    if row.noise is not None:
        why.insert(0, f"ratio {significant(row.noise.ratio)}, 95 % interval {interval(*row.noise.ci95)}")
    return f"{row.direction.title()}: {seconds(row.after.time_s)} instead of {seconds(row.before.time_s)} ({'; '.join(why)})."


def _time(time_s: float | None) -> str:
    return f"{time_s or 0.0:.9f}"


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
