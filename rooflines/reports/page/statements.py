"""What is said of a record, each statement with the figures that it rests on: one list for ``print``,
notebooks, summaries and agents.

A figure is named by its JSON pointer (RFC 6901) in the record, for example ``/totals/headroom_s`` in
``analysis.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import asdict

from rooflines.errors import UsageError
from rooflines.profiler.records import Run
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
from rooflines.reports.words.text import count_text, given, joined, line_words, operator_name, shorten_shapes
from rooflines.roofline.advise.verdict import share_text
from rooflines.roofline.analysis import Analysis, Finding, OperatorRow, OtherPrograms, Unmodeled
from rooflines.roofline.compare.compare import place_of, signed_seconds
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.dry_run.count import Count
from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
from rooflines.roofline.predict.forecast import Forecast
from rooflines.roofline.ranks.records import RankAnalysis
from rooflines.units import binary_bytes, counted, interval, percent, seconds, si, significant

if TYPE_CHECKING:
    from typing import TypeAlias

Shown: TypeAlias = "Analysis | Comparison | Count | Forecast | Run | RankAnalysis"

# A row that could save less of the step is not worth reading.
WORTH: Final = 0.01
# The fewest rows that the answer about operators has.
_FEWEST_ROWS: Final = 10
# The findings that print and a notebook show.
_FINDINGS: Final = 3
# Characters of the shapes of a row.
_SHAPES: Final = 60
_DIRECTIONS: Final = {"same": "within the noise", "unknown": "noise unknown"}


class Said(NamedTuple):
    """A statement ``about`` one thing, with the JSON pointers of the figures that it rests on."""

    about: str
    text: str
    pointers: tuple[str, ...] = ()


def lines(record: Shown) -> list[str]:
    """The title, the verdict, and of an analysis the first findings: what ``print`` shows."""
    if isinstance(record, Run):
        return [sentences.subject(record.facts), f"{record.facts.status} run in {record.directory}"]
    if isinstance(record, Count):
        from rooflines.reports.page.count import totals

        return [
            f"{len(record.operators)} distinct operator calls on {record.tensors} tensors",
            totals(record),
        ]
    if isinstance(record, Comparison):
        return [f"{record.b.source} compared with {record.a.source}", record.verdict]
    if isinstance(record, Forecast):
        from rooflines.reports.page import predict

        return [predict.title(record), *predict.sentences(record)]
    if isinstance(record, RankAnalysis):
        from rooflines.reports.page import ranks

        return [ranks.title(record), next(ranks.sentences(record))[0]]
    return [sentences.subject(record), sentences.headline(record), *sentences.confidence(record)] + [
        f"{number}. {one.title}: {sentences.saving(one, record.whole_s, sentences.per(record))}"
        for number, one in enumerate(record.findings[:_FINDINGS], 1)
    ]


# --- of an analysis ---------------------------------------------------------------------------------------


def _overview(analysis: Analysis) -> Iterator[Said]:
    if status := sentences.status_sentences(analysis):
        yield Said("confidence", status, ("/other_programs" if analysis.other_programs else "/status",))
    for number, finding in enumerate(analysis.findings):
        # Without a figure, a saving is not quantified.
        if not finding.saves_s or finding.later_s or share_of_step(finding.gain_s, analysis) >= WORTH:
            saving = sentences.saving(finding, analysis.whole_s, sentences.per(analysis))
            yield _change(number, finding, saving, sentences.suggested(finding, analysis.command))
    if not analysis.findings:
        yield Said("change", sentences.missing_findings(analysis))
    yield from _step(analysis)
    for caveat in analysis.caveats:
        yield Said("confidence", f"{caveat[:1].upper()}{caveat[1:]}.", ("/caveats",))
    yield from _operators(analysis)
    if coverage := sentences.coverage_sentence(analysis):
        yield Said("coverage", coverage, ("/coverage/modeled_time_fraction",))
    for roof in sentences.roofs_of_run(analysis):
        at = f"/ceilings/{analysis.ceilings.index(roof)}"
        text = (
            f"Ceiling {ceiling_name(roof)}: {si(roof.value, roof.unit)}, "
            f"{source_words(roof, analysis.created)}."
        )
        yield Said("ceilings", text, (f"{at}/value", f"{at}/source/kind"))


def _change(number: int, finding: Finding, saving: str, suggestion: str) -> Said:
    saved = "later_s" if finding.later_s else "saves_s" if finding.about_s is None else "about_s"
    text = f"{finding.title}: {saving}. Try: {suggestion}".rstrip(".")
    return Said("change", f"{text}.", (f"/findings/{number}/{saved}", f"/findings/{number}/evidence"))


def _step(analysis: Analysis) -> Iterator[Said]:
    from rooflines.reports.page.generation import generation_sentences

    if analysis.steps:
        yield Said("step", sentences.steps_sentences(analysis)[0], ("/steps/median_s", "/steps/ci95_s"))
    whole = "A step" if analysis.basis.per == "step" else "The trace"
    what = f"{whole} is {seconds(analysis.whole_s)}"
    yield from _divided(bound_times(analysis), what, "/bound_breakdown", analysis.other_programs)
    for text in generation_sentences(analysis):
        yield Said("generation", text, ("/generation",))
    for text, pointers in sentences.idle_sentences(analysis):
        yield Said("step", text, pointers)
    if not analysis.steps and len(analysis.traced_steps) > 1:
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
    rows, places = table_rows(analysis), _places(analysis)
    worth = [share_of_step(one.gain_s, analysis) >= WORTH for one in rows]
    if rows and not any(worth):
        yield Said("operator", f"No single row could save {percent(WORTH)} of the {analysis.basis.per}.")
    for number, one in enumerate(rows):
        if number < fewest or worth[number]:
            yield Said("operator", _row(one, analysis), _pointers(one, places))


def _pointers(one: TableRow, places: dict[tuple[object, ...], str]) -> tuple[str, ...]:
    """The figures of a row, or of all rows that are folded into it: their times add up to its time."""
    place = places[_key(one.members[0])]
    if len(one.members) == 1:
        fields = ("time_s",) if one.reason else ("time_s", "flops", "bytes", "lower_bound_s", "headroom_s")
        return tuple(f"{place}/{field}" for field in (*fields, "example/ts_us"))
    kind = place.rpartition("/")[0]
    folded = _selection(int(places[_key(member)].rpartition("/")[2]) for member in one.members)
    judged = all(member.headroom_s is not None for member in one.members)
    return f"{kind}/{folded}/{'time_s,headroom_s' if judged else 'time_s'}", f"{place}/example/ts_us"


def _selection(numbers: Iterable[int]) -> str:
    """``numbers`` as a pointer selects them: ``3,5-7``."""
    runs = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    ends = ([number for _, number in run] for _, run in runs)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ends)


def _key(row: OperatorRow | Unmodeled) -> tuple[object, ...]:
    """What tells the rows of an analysis apart."""
    return row.name, row.module, row.phase, row.shapes, row.caller, row.calls, row.time_s


def _places(analysis: Analysis) -> dict[tuple[object, ...], str]:
    """The pointer of each row, counted or not."""
    return {_key(row): f"/operators/{number}" for number, row in enumerate(analysis.operators)} | {
        _key(gap): f"/coverage/unmodeled/{number}" for number, gap in enumerate(analysis.unmodeled)
    }


def _row(one: TableRow, analysis: Analysis) -> str:
    row = one.row
    size = si(row.bytes, "B") if row.category == "communication" and row.bytes else ""
    shapes = given(" ({})", shorten_shapes(row.shapes, _SHAPES) or size)
    text = f"{operator_name(row)}{given(' in {}', module_text(one))}{given(' at {}', line_words(row))}"
    text += f"{shapes}{given(', {}', row.phase)}"
    text += (
        f": {seconds(row.time_s)} {sentences.per(analysis)} ("
        f"{percent(share_of_step(row.time_s, analysis))}), {_times(row.calls)}"
    )
    if row.headroom_s is not None:
        reached = given(" at {} efficiency", row.efficiency, percent)
        text += f"; {bound_text(one)}{reached}, {seconds(row.headroom_s)} above it"
    marks = (
        ("not counted: ", one.reason),
        ("inferred: ", row.inferred),
        ("assumed: ", row.assumption),
        ("", row.flag),
    )
    text += "".join(f"; {label}{mark}" for label, mark in marks if mark)
    return f"{text}."


def _memory(analysis: Analysis) -> Iterator[Said]:
    memory = analysis.memory
    if not memory or memory.peak_bytes is None:
        yield Said(
            "memory",
            "Peak memory was not measured: rooflines profile measures it, rooflines count "
            "--memory counts it.",
        )
        return
    yield Said(
        "memory",
        f"Peak {binary_bytes(memory.peak_bytes)}{given(' ({})', memory.kind)}.",
        ("/memory/peak_bytes",),
    )
    if memory.at_peak:
        parts = {name: value for name, value in asdict(memory.at_peak).items() if value}
        text = ", ".join(f"{name} {binary_bytes(value)}" for name, value in parts.items())
        place = given("Reached in {}", joined(" of ", memory.operator, memory.module)) or "At the peak"
        yield Said("memory", f"{place}: {text}.", tuple(f"/memory/at_peak/{name}" for name in parts))


def _communication(analysis: Analysis) -> Iterator[Said]:
    timeline = analysis.timeline
    if not timeline or not timeline.communication_s:
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
        text = (
            f"{_collective(row)}: {_times(row.calls)}, {seconds(row.time_s)}, "
            f"{seconds(row.exposed_s)} of it exposed."
        )
        yield Said(
            "communication", text, (f"/collectives/{number}/time_s", f"/collectives/{number}/exposed_s")
        )


def _collective(row: Any) -> str:
    """The kind and size of a collective of one trace or of several ranks."""
    return f"{row.kind} of {si(row.bytes, 'B')}" if row.bytes else str(row.kind)


def _idle(analysis: Analysis) -> Iterator[Said]:
    if not analysis.idle_breakdown:
        yield Said("idle", "Idle time of a device was not recorded.")
        return
    if not sum(analysis.idle_breakdown.values()):
        yield Said("idle", "The device is never idle in the trace.", ("/idle_breakdown",))
    for text, pointers in sentences.device_sentences(analysis):
        yield Said("idle", text, pointers)


def _host(analysis: Analysis) -> Iterator[Said]:
    for number, call in enumerate(analysis.synchronizations):
        text = (
            f"{call.call}{given(' in {}', call.operator)}{given(' ({})', call.where)}: {_times(call.calls)}"
        )
        text += (
            f", waits {seconds(call.wait_s)}; the device is then idle "
            f"{seconds(call.idle_s) if call.idle_s else 'at no time'}."
        )
        yield Said("host", text, (f"/synchronizations/{number}/wait_s", f"/synchronizations/{number}/idle_s"))
    for number, work in enumerate(analysis.host_work):
        text = f"{work.name or 'No operator'} ({work.kind}){given(' ({})', work.where)}: {_times(work.calls)}"
        yield Said(
            "host",
            f"{text}; the device is idle {seconds(work.idle_s)} meanwhile.",
            (f"/host_work/{number}/idle_s",),
        )
    if not analysis.synchronizations and not analysis.host_work:
        yield Said("host", "No waits and no long work of the host were recorded.")


def _kernel(analysis: Analysis, name: str) -> Iterator[Said]:
    """The operators and kernels whose name contains ``name``, longest first."""
    places, wanted = _places(analysis), name.lower()
    rows = [TableRow(row, (row,), one.reason) for one in table_rows(analysis) for row in one.members]
    for one in sorted(rows, key=lambda one: -one.row.time_s):
        kernels = [
            (kernel, f"{places[_key(one.row)]}/kernels/{number}/time_s")
            for number, kernel in enumerate(one.row.kernels)
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
            reached = given(", at {} efficiency", row.efficiency, percent)
            above = given(", {} above it", row.headroom_s, seconds)
            text = (
                f"{row.path or '(whole)'} ({row.type}): {seconds(row.time_s)} "
                f"{sentences.per(analysis)}{reached}{above}."
            )
            yield Said("module", text, (f"/modules/{number}/time_s", f"/modules/{number}/headroom_s"))


def _lines(analysis: Analysis) -> Iterator[Said]:
    """The lines of the program, longest first."""
    for number, row in enumerate(analysis.lines):
        above = given(", {} above the bound", row.headroom_s, seconds)
        share = percent(share_of_step(row.time_s, analysis))
        text = (
            f"{row.place}{given(' ({})', row.text or row.function)}: {seconds(row.time_s)} "
            f"{sentences.per(analysis)} ({share}), {row.bound}{above}"
        )
        text += f"; {', '.join(row.operators[:_FINDINGS])}."
        yield Said("line", text, (f"/lines/{number}/time_s", f"/lines/{number}/headroom_s"))
    if not analysis.lines:
        yield Said("line", "No lines of the program were recorded.")


_QUESTIONS: Final[dict[str, Callable[[Analysis], Iterable[Said]]]] = {
    "": _overview,
    "operators": partial(_operators, fewest=_FEWEST_ROWS),
    "memory": _memory,
    "communication": _communication,
    "lines": _lines,
    "idle": _idle,
    "host": _host,
}
_NAMED: Final[dict[str, Callable[[Analysis, str], Iterable[Said]]]] = {"kernel": _kernel, "module": _module}
QUESTIONS: Final = (*filter(None, _QUESTIONS), "kernel NAME", "module PATH")


def answer(analysis: Analysis, question: str) -> Iterable[Said]:
    """The statements that answer ``question``; all that matters if it is empty. Raises UsageError for one
    that it cannot answer."""
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


def statements(record: object) -> Iterable[Said]:
    """What is said of ranks, a comparison or a monitored program; nothing of other records."""
    if isinstance(record, RankAnalysis):
        return _of_ranks(record)
    if isinstance(record, Comparison):
        return _of_comparison(record)
    return _of_monitored(record) if isinstance(record, MonitorAnalysis) else ()


def _of_ranks(analysis: RankAnalysis) -> Iterator[Said]:
    from rooflines.reports.page.ranks import sentences as of_ranks

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
            text = (
                f"{_collective(row)}: {_times(row.count)} on {row.ranks} ranks; together they wait "
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
    if pace := compared.pace:
        ends = f", 95 % interval {interval(*pace.ci95)}" if pace.ci95 else "; no interval"
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
            if row.noise:
                text += f", {sentences.ratio_text(row.noise)}"
            yield Said("change", f"{text}{given(' ({})', row.cause)}.", (f"/rows/{number}",))
    for number, fact in enumerate(compared.differs):
        unlike = ": the times are hard to compare" if fact.unlike else ""
        yield Said(
            "confidence",
            f"Differs: {fact.name}, {fact.before} → {fact.after}{unlike}.",
            (f"/differs/{number}",),
        )


def _of_monitored(analysis: MonitorAnalysis) -> Iterator[Said]:
    from rooflines.reports.page.monitor import host_rows, missing

    for row in host_rows(analysis):
        figures = (("mean", row.mean), ("peak", row.peak), ("total", row.total))
        text = ", ".join(f"{name} {figure}" for name, figure in figures if figure)
        pointer = "/ending" if row.name == "CPU time" else "/usage/devices"
        yield Said("usage", f"{row.name}: {text}{given(' ({})', row.remark)}.", (pointer,))
    yield from (Said("coverage", text) for text in missing(analysis))


def _divided(
    times: dict[str, float] | None, what: str, pointer: str, others: OtherPrograms | None = None
) -> Iterator[Said]:
    """How a time is divided by what bounds it, if that is known; beside ``others`` in ranges."""
    whole = sum((times or {}).values())
    if times and whole > 0:
        longest = sorted(times.items(), key=lambda one: -one[1])
        shares = ", ".join(
            f"{name} {share_text(name, time_s / whole, others)}" for name, time_s in longest if time_s
        )
        ranged = others is not None and others.shares
        yield Said("step", f"{what}: {shares}.", ("/other_programs/shares" if ranged else pointer,))
