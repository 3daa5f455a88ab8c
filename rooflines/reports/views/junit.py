"""A comparison as JUnit XML, which systems of continuous integration show: a test for the step, and one for each operator or module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as xml

from rooflines.reports.views.comparison import By
from rooflines.roofline.comparison.compare import place_of
from rooflines.roofline.comparison.records import Change, Comparison
from rooflines.units import interval, percent, seconds, significant

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
