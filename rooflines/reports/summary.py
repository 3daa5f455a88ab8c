"""A summary for people and programs: the verdict, then statements in the order of their weight, each with the
figures it rests on.

A figure is named by its JSON pointer (RFC 6901) in the record, for example ``/totals/headroom_s`` in
``analysis.json``, so that each statement can be checked. A summary has the same statements whenever it is
made from the same record.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from rooflines.errors import UsageError
from rooflines.reports.document import Page
from rooflines.reports.views.generation import generation_sentences
from rooflines.reports.words import sentences
from rooflines.reports.words.ceilings import ceiling_name, source_words
from rooflines.reports.words.rows import (
    TableRow,
    bound_text,
    bound_times,
    module_text,
    share_of_step,
    table_rows,
)
from rooflines.reports.words.text import count_text, operator_name, shorten_shapes
from rooflines.roofline.analysis import Analysis, Finding, OperatorRow, Unmodelled
from rooflines.roofline.compare.compare import place_of, signed_seconds
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
from rooflines.roofline.ranks.records import RankAnalysis
from rooflines.serial import part, to_plain
from rooflines.units import binary_bytes, counted, interval, percent, seconds, sentence, si, significant

SCHEMA: Final = "rooflines.summary/1"
# A row that could save less of the step is not worth reading.
WORTH: Final = 0.01
# The fewest rows that the answer about operators has.
_FEWEST_ROWS: Final = 10
# Characters of the shapes of a row.
_SHAPES: Final = 60
_DIRECTIONS: Final = {"same": "within the noise", "unknown": "noise unknown"}
# Characters of English text and of names for a token, on average, in the vocabularies of today's language
# models.
_CHARACTERS_OF_TOKEN: Final = 4


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence ``about`` one thing, with the figures that it rests on by their JSON pointers, and the
    command that prints them."""

    about: str
    text: str
    figures: dict[str, Any] = {}
    verify: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says in few words. ``of`` is the kind of record, ``question`` what was asked, empty for
    the overview.

    ``left_out`` is the number of statements that the budget had no room for; the first statements are the
    most important ones.
    """

    schema: str = SCHEMA
    of: str
    source: str
    question: str = ""
    title: str
    verdict: str
    statements: tuple[Statement, ...] = ()
    left_out: int = 0


class Said(NamedTuple):
    """A statement before it knows its command: its figures are pointers into the record."""

    about: str
    text: str
    pointers: tuple[str, ...] = ()


# --- of an analysis ---------------------------------------------------------------------------------------


def _overview(analysis: Analysis) -> Iterator[Said]:
    status = sentences.status_sentences(analysis)
    if status:
        yield Said(
            "confidence",
            status,
            ("/other_programs",) if analysis.other_programs is not None else ("/status",),
        )
    for number, finding in enumerate(analysis.findings):
        # Without a figure, a saving is not quantified.
        if not finding.saves_s or share_of_step(finding.most_s, analysis) >= WORTH:
            saving = sentences.saving(finding, analysis.whole_s, sentences.per(analysis))
            yield _change(number, finding, saving, sentences.suggested(finding, analysis.command))
    if not analysis.findings:
        yield Said("change", sentences.missing_findings(analysis))
    yield from _step(analysis)
    for caveat in analysis.caveats:
        yield Said("confidence", f"{caveat[:1].upper()}{caveat[1:]}.", ("/caveats",))
    yield from _operators(analysis)
    coverage = sentences.coverage_sentence(analysis)
    if coverage:
        yield Said("coverage", coverage, ("/coverage/modelled_time_fraction",))
    yield from _ceilings(analysis)


def _change(number: int, finding: Finding, saving: str, suggestion: str) -> Said:
    text = f"{finding.title}: {saving}. Evidence: {finding.evidence}. Try: {suggestion}".rstrip(".")
    saved = "later_s" if finding.later_s and not finding.saves_s else "saves_s"
    figures = (f"/findings/{number}/{saved}", f"/findings/{number}/example/ts_us")
    return Said(
        "change",
        f"{text}{sentences.example(finding.example, 'the longest of these operators runs')}.",
        figures,
    )


def _step(analysis: Analysis) -> Iterator[Said]:
    if analysis.steps is not None:
        yield Said("step", sentences.steps_sentences(analysis)[0], ("/steps/median_s", "/steps/ci95_s"))
    times = bound_times(analysis)
    if times:
        whole = "A step" if analysis.basis.per == "step" else "The trace"
        shares = ", ".join(
            f"{name} {percent(share_of_step(time_s, analysis))}" for name, time_s in times.items()
        )
        yield Said(
            "step",
            f"{whole} is {seconds(analysis.whole_s)}: {shares}.",
            tuple(f"/bound_breakdown/{name}" for name in times),
        )
    for text in generation_sentences(analysis):
        yield Said("generation", text, ("/generation",))
    yield from _idle_time(analysis, "step")
    if analysis.steps is None and len(analysis.traced_steps) > 1:
        times_s = [step.duration_s for step in analysis.traced_steps]
        lasted = f"{len(times_s)} traced steps lasted {seconds(min(times_s))} to {seconds(max(times_s))}"
        text = f"{lasted}, profiler included; no interval of the step time is known."
        yield Said("step", text, (f"/traced_steps/0-{len(times_s) - 1}/duration_s",))


def _operators(analysis: Analysis, fewest: int = 0) -> Iterator[Said]:
    """Rows by what they could save, those of at least ``WORTH`` of the step or the ``fewest`` first; repeated
    layers are one row."""
    missing = (
        sentences.missing_operators(analysis)
        or sentences.missing_ceilings(analysis)
        or sentences.missing_bound(analysis)
    )
    if missing:
        yield Said("operator", missing)
    rows = table_rows(analysis)
    worth = [
        one
        for number, one in enumerate(rows)
        if number < fewest or share_of_step(one.gain_s, analysis) >= WORTH
    ]
    if rows and not any(share_of_step(one.gain_s, analysis) >= WORTH for one in rows):
        yield Said("operator", f"No single row could save {percent(WORTH)} of the {analysis.basis.per}.")
    places = _places(analysis)
    for one in worth:
        yield Said("operator", _row(one, analysis), _pointers(one, places))


def _pointers(one: TableRow, places: dict[tuple[object, ...], str]) -> tuple[str, ...]:
    """The figures of a row, or of all rows that are folded into it: their times add up to its time."""
    kind, _, first = places[_key(one.members[0])].rpartition("/")
    if len(one.members) == 1:
        fields = ("time_s",) if one.reason else ("time_s", "flops", "bytes", "lower_bound_s", "headroom_s")
        return tuple(f"{kind}/{first}/{field}" for field in (*fields, "example/ts_us"))
    folded = _selection(int(places[_key(member)].rpartition("/")[2]) for member in one.members)
    judged = all(member.headroom_s is not None for member in one.members)
    return f"{kind}/{folded}/{'time_s,headroom_s' if judged else 'time_s'}", f"{kind}/{first}/example/ts_us"


def _selection(numbers: Iterable[int]) -> str:
    """``numbers`` as a pointer selects them: ``3,5-7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _key(row: OperatorRow | Unmodelled) -> tuple[object, ...]:
    """What tells the rows of an analysis apart."""
    return row.name, row.module, row.phase, row.shapes, row.caller, row.calls, row.time_s


def _places(analysis: Analysis) -> dict[tuple[object, ...], str]:
    """The pointer of each row, counted or not."""
    places = {_key(row): f"/operators/{number}" for number, row in enumerate(analysis.operators)}
    return places | {
        _key(gap): f"/coverage/unmodelled/{number}" for number, gap in enumerate(analysis.unmodelled)
    }


def _row(one: TableRow, analysis: Analysis) -> str:
    row = one.row
    where = f" in {module_text(one)}" if module_text(one) else ""
    phase = f", {row.phase}" if row.phase else ""
    size = si(row.bytes, "B") if row.category == "communication" and row.bytes else ""
    shapes = f" ({shorten_shapes(row.shapes, _SHAPES) or size})" if row.shapes or size else ""
    text = f"{operator_name(row)}{where}{shapes}{phase}: {seconds(row.time_s)} {sentences.per(analysis)}"
    text += f" ({percent(share_of_step(row.time_s, analysis))}), {_times(row.calls)}"
    if row.headroom_s is not None:
        reached = f" at {percent(row.efficiency)} of the bound" if row.efficiency is not None else ""
        text += f"; {bound_text(one)}{reached}, {seconds(row.headroom_s)} above it"
    marks = {
        "not counted: ": one.reason,
        "inferred: ": row.inferred,
        "assumed: ": row.assumption,
        "": row.flag,
    }
    text += "".join(f"; {label}{mark}" for label, mark in marks.items() if mark)
    return f"{text}{sentences.example(one.members[0].example)}."


def _ceilings(analysis: Analysis) -> Iterator[Said]:
    for roof in sentences.roofs_of_run(analysis):
        number = analysis.ceilings.index(roof)
        text = (
            f"Ceiling {ceiling_name(roof)}: {si(roof.value, roof.unit)}, "
            f"{source_words(roof, analysis.created)}."
        )
        yield Said("ceilings", text, (f"/ceilings/{number}/value", f"/ceilings/{number}/source/kind"))


def _memory(analysis: Analysis) -> Iterator[Said]:
    memory = analysis.memory
    if memory is None or memory.peak_bytes is None:
        yield Said(
            "memory",
            "Peak memory was not measured: rooflines profile measures it, rooflines count "
            "--memory counts it.",
        )
        return
    yield Said(
        "memory",
        f"Peak {binary_bytes(memory.peak_bytes)}{f' ({memory.kind})' if memory.kind else ''}.",
        ("/memory/peak_bytes",),
    )
    if memory.at_peak is not None:
        parts = {name: value for name, value in msgspec.structs.asdict(memory.at_peak).items() if value}
        text = ", ".join(f"{name} {binary_bytes(value)}" for name, value in parts.items())
        where = " of ".join(part for part in (memory.operator, memory.module) if part)
        place = f"Reached in {where}: " if where else "At the peak: "
        yield Said("memory", f"{place}{text}.", tuple(f"/memory/at_peak/{name}" for name in parts))


def _communication(analysis: Analysis) -> Iterator[Said]:
    timeline = analysis.timeline
    if timeline is None or not timeline.communication_s:
        yield Said("communication", "No communication between devices was recorded.")
        return
    exposed, per = timeline.exposed_communication_s, sentences.per(analysis)
    text = (
        f"Communication takes {seconds(timeline.communication_s)} {per}; no computation hides "
        f"{seconds(exposed)} of it"
    )
    share = f"{text} ({percent(share_of_step(exposed, analysis))} of the {analysis.basis.per})."
    yield Said("communication", share, ("/timeline/communication_s", "/timeline/exposed_communication_s"))
    for number, row in enumerate(analysis.collectives):
        size = f" of {si(row.bytes, 'B')}" if row.bytes else ""
        text = (
            f"{row.kind}{size}: {_times(row.calls)}, {seconds(row.time_s)}, {seconds(row.exposed_s)} "
            "of it exposed."
        )
        yield Said(
            "communication", text, (f"/collectives/{number}/time_s", f"/collectives/{number}/exposed_s")
        )


def _idle_time(analysis: Analysis, about: str) -> Iterator[Said]:
    for text in sentences.idle_sentences(analysis):
        yield Said(about, text, tuple(f"/idle_breakdown/{name}" for name in analysis.idle_breakdown or {}))


def _idle(analysis: Analysis) -> Iterator[Said]:
    if not analysis.idle_breakdown:
        yield Said("idle", "Idle time of a device was not recorded.")
        return
    yield from _idle_time(analysis, "idle")
    if not sum(analysis.idle_breakdown.values()):
        yield Said("idle", "The device is never idle in the trace.", ("/idle_breakdown",))
    for text in sentences.device_sentences(analysis)[len(sentences.idle_sentences(analysis)) :]:
        about = (
            "launches"
            if text.startswith("Launched")
            else "traced_steps"
            if text.startswith("Under")
            else "timeline"
        )
        yield Said(
            "idle",
            text,
            (f"/{about}",) if about != "launches" else ("/launches/delay_median_s", "/launches/queue_mean"),
        )


def _host(analysis: Analysis) -> Iterator[Said]:
    for number, call in enumerate(analysis.synchronisations):
        inside = f" in {call.operator}" if call.operator else ""
        where = f" ({call.where})" if call.where else ""
        text = f"{call.call}{inside}{where}: {_times(call.calls)}, waits {seconds(call.wait_s)}"
        text += f"; the device is then idle {seconds(call.idle_s) if call.idle_s else 'at no time'}."
        yield Said("host", text, (f"/synchronisations/{number}/wait_s", f"/synchronisations/{number}/idle_s"))
    for number, work in enumerate(analysis.host_work):
        where = f" ({work.where})" if work.where else ""
        text = f"{work.name or 'No operator'} ({work.kind}){where}: {_times(work.calls)}"
        text += f"; the device is idle {seconds(work.idle_s)} meanwhile."
        yield Said("host", text, (f"/host_work/{number}/idle_s",))
    if not analysis.synchronisations and not analysis.host_work:
        yield Said("host", "No work of the host was recorded during which a device was idle.")


def _kernel(analysis: Analysis, name: str) -> Iterator[Said]:
    """The operators and kernels whose name contains ``name``, longest first."""
    places, wanted = _places(analysis), name.lower()
    rows = [TableRow(row, (row,), one.reason) for one in table_rows(analysis) for row in one.members]
    for one in sorted(rows, key=lambda one: -one.row.time_s):
        place = places[_key(one.row)]
        kernels = [
            (kernel, f"{place}/kernels/{number}/time_s") for number, kernel in enumerate(one.row.kernels)
        ]
        named = [(kernel, at) for kernel, at in kernels if wanted in kernel.name.lower()]
        if wanted in one.row.name.lower() or named:
            yield Said("kernel", _row(one, analysis), _pointers(one, places))
            for kernel, at in named or kernels:
                shape = f", grid {kernel.grid}, block {kernel.block}" if kernel.grid and kernel.block else ""
                text = (
                    f"{kernel.name}: {seconds(kernel.time_s)} {sentences.per(analysis)}, "
                    f"{_times(kernel.calls)}{shape}."
                )
                yield Said("kernel", text, (at,))


def _times(calls: float) -> str:
    """How often something ran."""
    return f"{count_text(calls)} call{'' if calls == 1 else 's'}"


def _module(analysis: Analysis, path: str) -> Iterator[Said]:
    """The modules at and below ``path``."""
    for number, row in enumerate(analysis.modules):
        if row.path == path or row.path.startswith(f"{path}.") or not path:
            reached = f", at {percent(row.efficiency)} of the bound" if row.efficiency is not None else ""
            above = f", {seconds(row.headroom_s)} above it" if row.headroom_s is not None else ""
            text = (
                f"{row.path or '(whole)'} ({row.type}): {seconds(row.time_s)} "
                f"{sentences.per(analysis)}{reached}{above}."
            )
            yield Said("module", text, (f"/modules/{number}/time_s", f"/modules/{number}/headroom_s"))


_QUESTIONS: Final[dict[str, Callable[[Analysis], Iterable[Said]]]] = {
    "": _overview,
    "operators": partial(_operators, fewest=_FEWEST_ROWS),
    "memory": _memory,
    "communication": _communication,
    "idle": _idle,
    "host": _host,
}
_NAMED: Final[dict[str, Callable[[Analysis, str], Iterable[Said]]]] = {"kernel": _kernel, "module": _module}
QUESTIONS: Final = (*filter(None, _QUESTIONS), "kernel NAME", "module PATH")


def _answer(analysis: Analysis, question: str) -> Iterable[Said]:
    kind, _, name = question.strip().partition(" ")
    if kind in _NAMED and name.strip():
        said = list(_NAMED[kind](analysis, name.strip()))
        if not said:
            raise UsageError(
                f"no {kind} is called {name.strip()!r}.",
                hint="A part of its name is enough; rooflines summary names some.",
            )
        return said
    if kind not in _QUESTIONS or name:
        raise UsageError(f"unknown question {question!r}.", hint=f"Ask one of {', '.join(QUESTIONS)}.")
    return _QUESTIONS[kind](analysis)


# --- of other records -------------------------------------------------------------------------------------


def _of_ranks(analysis: RankAnalysis) -> Iterator[Said]:
    from rooflines.reports.views.ranks import sentences as of_ranks

    _, *more = of_ranks(analysis)
    yield from (Said("ranks", text, (pointer,)) for text, pointer in more)
    for number, finding in enumerate(analysis.findings):
        yield _change(number, finding, sentences.saving(finding, 0.0, "in the mean"), finding.suggestion)
    span, count = analysis.spread["span_s"], len(analysis.ranks)
    text = (
        f"{'A step' if analysis.per == 'step' else 'The trace'} takes {seconds(span.mean)} in the "
        f"mean over {count} ranks"
    )
    text += f", {seconds(span.min)} on rank {span.min_rank} to {seconds(span.max)} on rank {span.max_rank}"
    steps = counted(min(row.steps for row in analysis.ranks), "traced step")
    yield Said(
        "step", f"{text}; {steps} of each rank, profiler included; no interval is known.", ("/spread/span_s",)
    )
    yield from _divided(analysis.bound_breakdown, "In the mean over the ranks", "/bound_breakdown")
    for number, row in enumerate(analysis.collectives):
        if row.waited_s is not None and row.waited_s >= WORTH * span.mean * count:
            size = f" of {si(row.bytes, 'B')}" if row.bytes else ""
            text = (
                f"{row.kind}{size}: {_times(row.count)} on {row.ranks} ranks; together they wait "
                f"{seconds(row.waited_s)} in it"
            )
            yield Said(
                "collectives",
                f"{text}, and the transfer takes {seconds(row.transfer_s)}.",
                (f"/collectives/{number}",),
            )
    for number, left in enumerate(analysis.unmatched):
        yield Said(
            "coverage", f"Not matched: {left.count:,} {left.kind}: {left.reason}.", (f"/unmatched/{number}",)
        )
    if analysis.bound_breakdown is not None:
        yield Said(
            "ceilings",
            f"Bounds are those of the data sheet of {analysis.device_name}, not measured.",
            ("/device_name",),
        )


def _of_comparison(compared: Comparison) -> Iterator[Said]:
    pace = compared.pace
    if pace is not None:
        ends = f", 95 % interval {interval(*pace.ci95)}" if pace.ci95 is not None else "; no interval"
        text = (
            f"{seconds(pace.after_s)} instead of {seconds(pace.before_s)}: ratio "
            f"{significant(pace.ratio)}{ends}"
        )
        yield Said(
            "step",
            f"{text} ({pace.of}, {pace.before_count} before and {pace.after_count} after).",
            ("/pace",),
        )
    for side, subject in (("a", compared.a), ("b", compared.b)):
        yield from _divided(
            subject.bound_breakdown, f"{side.upper()}, {subject.source}", f"/{side}/bound_breakdown"
        )
    for number, row in enumerate(compared.rows):
        if abs(row.difference_s) >= WORTH * (compared.span_before_s or 0.0):
            text = (
                f"{place_of(row)}: {signed_seconds(row.difference_s)}, "
                f"{_DIRECTIONS.get(row.direction, row.direction)}"
            )
            if row.noise is not None:
                text += f", ratio {significant(row.noise.ratio)}, 95 % interval {interval(*row.noise.ci95)}"
            yield Said("change", f"{text}{f' ({row.cause})' if row.cause else ''}.", (f"/rows/{number}",))
    for number, fact in enumerate(compared.differs):
        unlike = ": the times are hard to compare" if fact.unlike else ""
        yield Said(
            "confidence",
            f"Differs: {fact.name}, {fact.before} → {fact.after}{unlike}.",
            (f"/differs/{number}",),
        )


def _of_monitored(analysis: MonitorAnalysis) -> Iterator[Said]:
    from rooflines.reports.views.monitor import host_rows, missing

    for row in host_rows(analysis):
        figures = {"mean": row.mean, "peak": row.peak, "total": row.total}
        text = ", ".join(f"{name} {figure}" for name, figure in figures.items() if figure)
        pointer = "/ending" if row.name == "CPU time" else "/usage/devices"
        yield Said("usage", f"{row.name}: {text}{f' ({row.remark})' if row.remark else ''}.", (pointer,))
    yield from (Said("coverage", text) for text in missing(analysis))


def _divided(times: dict[str, float] | None, what: str, pointer: str) -> Iterator[Said]:
    """How a time is divided by what bounds it, if that is known."""
    whole = sum((times or {}).values())
    if times and whole > 0:
        longest = sorted(times.items(), key=lambda one: -one[1])
        shares = ", ".join(f"{name} {percent(time_s / whole)}" for name, time_s in longest if time_s)
        yield Said("step", f"{what}: {shares}.", (pointer,))


# --- of any record ----------------------------------------------------------------------------------------


def summarize(
    record: Any, page: Page, source: str, command: str, question: str = "", said: Iterable[Said] = ()
) -> Summary:
    """The summary of ``record``: of an analysis the answer to ``question``, of any other what is ``said`` or
    known of its kind.

    ``source`` is what was read and ``command`` what prints the record as JSON, as a user types them.
    """
    if isinstance(record, Analysis):
        said = _answer(record, question)
    elif question:
        raise UsageError(
            f"a question needs one run or trace, and {source} is not.", hint="Give one of its runs or traces."
        )
    else:
        of_kind: dict[type, Callable[[Any], Iterable[Said]]]
        of_kind = {RankAnalysis: _of_ranks, Comparison: _of_comparison, MonitorAnalysis: _of_monitored}
        status = [Said("confidence", page.status[1])] if page.status is not None else []
        noted = enumerate(getattr(record, "notes", ()))
        notes = [
            Said("confidence", sentence(note.rstrip(".")), (f"/notes/{number}",)) for number, note in noted
        ]
        said = [*status, *(of_kind[type(record)](record) if type(record) in of_kind else said), *notes]
    plain = to_plain(record)
    statements = (
        Statement(
            about=one.about,
            text=one.text,
            figures=_figures(plain, one.pointers),
            verify=f"{command} --at {shlex.quote(_above(one.pointers))}" if one.pointers else command,
        )
        for one in said
    )
    return Summary(
        of=page.kind,
        source=source,
        question=question,
        title=page.title,
        verdict=page.verdict,
        statements=tuple(statements),
    )


def _figures(plain: Any, pointers: Iterable[str]) -> dict[str, Any]:
    """The parts of a record that are there, by their pointers."""
    found = {}
    for pointer in pointers:
        with contextlib.suppress(KeyError):
            found[pointer] = part(plain, pointer)
    return found


def _above(pointers: tuple[str, ...]) -> str:
    """The pointer of the smallest part of the record that holds all of ``pointers``; of a folded row, its
    times."""
    if len(pointers) == 1 or re.search(r"/\d+[-,]", pointers[0]):
        return pointers[0]
    parts = [pointer.split("/") for pointer in pointers]
    common = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
    return "/".join(common)


# --- in the size that was asked for -----------------------------------------------------------------------


def within(
    summary: Summary, budget: int, *, lines: bool = False, render: Callable[[Summary], str] | None = None
) -> Summary:
    """The summary with as many of its first statements as have room in ``budget`` tokens, or ``lines``, of
    the text of ``render``.

    That is by default ``markdown``. A token is taken as four characters. The verdict always stays.
    """

    def size(kept: int) -> int:
        text = (render or markdown)(_with(summary, kept))
        return text.count("\n") if lines else math.ceil(len(text) / _CHARACTERS_OF_TOKEN)

    whole = len(summary.statements)
    # Without its last line, which counts what is left out, the whole may have room where one statement less
    # has not.
    return (
        summary
        if size(whole) <= budget
        else _with(summary, max(0, bisect_right(range(whole), budget, key=size) - 1))
    )


def _with(summary: Summary, kept: int) -> Summary:
    return msgspec.structs.replace(
        summary, statements=summary.statements[:kept], left_out=len(summary.statements) - kept
    )


def markdown(summary: Summary) -> str:
    """The summary as Markdown: a heading, the verdict, and a list of statements, each with the pointer of
    what it rests on."""
    # The name of a file or the command of a program can have line breaks.
    lines = [f"# {' '.join(summary.title.split())}", "", summary.verdict]
    about = None
    for statement in summary.statements:
        if statement.about != about:
            about = statement.about
            lines += ["", f"## {about.capitalize()}", ""]
        place = statement.verify.partition(" --at ")[2]
        lines.append(f"- {statement.text}{f' [{place}]' if place else ''}")
    command = next(
        (one.verify.partition(" --at ")[0] for one in summary.statements if " --at " in one.verify), ""
    )
    if command:
        lines += ["", f"To check a statement, with the pointer in its brackets: `{command} --at POINTER`"]
    if summary.left_out:
        lines += [
            "",
            f"{summary.left_out} of {summary.left_out + len(summary.statements)} statements are "
            "left out (--budget).",
        ]
    return "\n".join(lines) + "\n"
