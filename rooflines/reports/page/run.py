"""The page of a run or a trace: where the time goes, what to try, every operator and module, and how sure all
of it is."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from rooflines.device_specs.records import DISTURBED, MARKS, marks_of
from rooflines.reports.charts.palette import BOUNDS, bound_style
from rooflines.reports.document import (
    ABSENT,
    PART,
    SHARE,
    TIME,
    Bar,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    bar_of,
    bound_parts,
    facts_of,
    or_absent,
    said,
    section,
    sections_of,
    table,
    timed_parts,
)
from rooflines.reports.page import generation, operators, serving
from rooflines.reports.page.activity import timeline_section
from rooflines.reports.page.advice import findings_section, trials_section
from rooflines.reports.page.kernels import kernel_table
from rooflines.reports.page.lines import lines_section
from rooflines.reports.page.memory import memory_section
from rooflines.reports.page.roofline import chart_caption, chart_note, roofline_of
from rooflines.reports.page.steps import steps_section
from rooflines.reports.page.timeline import timeline_figure, usage_timeline
from rooflines.reports.page.usage import missing_usage, usage_remarks, usage_table, usage_title
from rooflines.reports.words import sentences
from rooflines.reports.words.ceilings import (
    ceiling_name,
    ceiling_scope,
    conditions_words,
    roof_order,
    source_and_age,
    source_words,
)
from rooflines.reports.words.rows import bound_times, operators_summary, share_of_step
from rooflines.reports.words.text import size_text
from rooflines.roofline.advise.host import WAITS
from rooflines.roofline.advise.verdict import rates_sentence
from rooflines.roofline.analysis import PARTS, Analysis
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.judge.step.input_pipeline import input_fraction
from rooflines.roofline.predict.options import FACTS
from rooflines.roofline.predict.trials import Trials
from rooflines.units import counted, percent, seconds, sentence, si

_QUALITY = "Measurement quality"
_METHOD = (
    ("FLOP", "one floating-point addition or multiplication; a fused multiply-add is two."),
    (
        "traffic",
        "compulsory bytes: every input byte that the operator must touch read once, every output "
        "byte written once.",
    ),
    ("intensity", "FLOPs over bytes."),
    (
        "lower bound",
        "the longest of FLOPs over the compute ceiling, bytes over the memory ceiling, and the "
        "latency of a call. As many"
        " of the call's bytes as fit may come from the caches, nearest first, each at the rate "
        "of the level that holds it; the rest"
        " comes from the outermost memory.",
    ),
    (
        "efficiency",
        "lower bound over time. Above 100 % the count or the ceiling is wrong, or the algorithm "
        "does less than the formula:"
        " it is marked and not clipped.",
    ),
    ("headroom", "time less lower bound."),
)
_NAMES = {"data_loading": "data loading", "host_to_device": "host to device", "other": "other work"}
_MEANINGS = {
    "device": {
        "data_loading": "the device had nothing to do while the host was loading data",
        "host_to_device": "copies from the host that no other work hides",
        "forward": "work launched by the forward pass",
        "backward": "work launched by the backward pass",
        "optimizer": "work launched by the optimizer",
        "prefill": "work launched by prefill: the tokens of the prompts",
        "decode": "work launched by decode: one new token of each sequence at a time",
        "communication": "exchange between devices that no other work hides",
        "other": "copies to the host, and device work whose phase or launch the trace does not show",
        "host": BOUNDS["host"].meaning,
        "idle": BOUNDS["idle"].meaning,
    },
    "host": {
        "data_loading": "in the data loader",
        "forward": "operators of the forward pass",
        "backward": "operators of the backward pass",
        "optimizer": "the optimizer, with its own Python",
        "prefill": "operators of prefill: the tokens of the prompts",
        "decode": "operators of decode: one new token of each sequence at a time",
        "communication": "exchange between processes that no operator hides",
        "other": "operators whose phase the trace does not show",
        "host": "outside of operators: Python and the framework",
    },
}


def page(analysis: Analysis, trials: Trials | None = None) -> Page:
    """Return the page, with the ``trials`` of its advice if there are any. Each missing part of the analysis
    is named in its place."""
    status = sentences.status_sentences(analysis)
    sections = sections_of(
        _where(analysis),
        serving.serving_section(analysis),
        generation.generation_section(analysis),
        findings_section(analysis),
        trials_section(trials) if trials else None,
        _parts(analysis),
        _roofline(analysis),
        operators.against_section(analysis),
        operators.operators_section(analysis),
        section("kernels", "Kernels", kernel_table(analysis)),
        lines_section(analysis),
        operators.modules_section(analysis),
        steps_section(analysis, _QUALITY),
        timeline_section(analysis),
        memory_section(analysis),
        _usage(analysis),
        _device_time(analysis),
        _ceilings(analysis),
        _device(analysis),
        operators.coverage_section(analysis, _QUALITY),
        _method(analysis),
    )
    return Page(
        kind="run",
        name=f"Roofline of {analysis.workload.name}",
        title=sentences.subject(analysis),
        created=analysis.created,
        rooflines=analysis.environment.rooflines or "",
        verdict=sentences.headline(analysis),
        said=tuple(sentences.confidence(analysis)),
        status=(analysis.status if analysis.status != "complete" else DISTURBED, status) if status else None,
        sections=sections,
        footer=f"Schema {analysis.schema}.",
    )


# --- where a step goes, and what to try -------------------------------------------------------------------


def _where(analysis: Analysis) -> Section:
    whole = analysis.whole_s
    of = "traced" if analysis.basis.per == "trace" else "a step" if analysis.basis.timed else "a traced step"
    classes = bound_bar(analysis)
    against = against_bar(analysis) if classes else None
    missing = sentences.missing_operators(analysis) or "The time could not be divided into bound classes."
    if classes:
        missing = (
            "" if against else sentences.missing_ceilings(analysis) or sentences.missing_bound(analysis) or ""
        )
    return section(
        "where",
        "Time per step" if analysis.basis.per == "step" else "Time in the trace",
        classes,
        against,
        *said([missing], "absent"),
        Paragraph(_basis(analysis), "note") if classes else None,
        remark=f"{seconds(whole)} {of}" if whole > 0 else "",
    )


def _parts(analysis: Analysis) -> Section:
    division = division_table(analysis)
    untitled = replace(division, title="") if division else None
    return section(
        "parts",
        division_title(analysis),
        untitled,
        *said(input_sentences(analysis), "note" if division else "text"),
    )


def _basis(analysis: Analysis) -> str:
    basis, steps = analysis.basis, counted(analysis.basis.steps, "traced step")
    if basis.per != "step":
        return "Times, FLOPs and bytes are for the whole trace."
    text = f"Times, FLOPs and bytes are per step: the mean over {steps}"
    if basis.steady:
        text = (
            f"FLOPs and bytes are per step: the mean over {steps}. Each call counts with the lower "
            "quartile of its times in those of "
        )
        text += "them that resemble the timed ones"
    if not basis.timed and not basis.steady:
        return f"{text} ({seconds(analysis.whole_s)})."
    if analysis.idle_breakdown is not None:
        return f"{text}; idle time is what the median timed step leaves."
    whole = f"median {'timed' if basis.timed else 'traced'} step"
    return f"{text}; all times together are scaled to the {whole} ({seconds(analysis.whole_s)})."


def bound_bar(analysis: Analysis) -> Bar | None:
    """The step by bound class, in the order of the palette, empty classes left out; None where it is not
    divided."""
    times = bound_times(analysis)
    if not times or analysis.whole_s <= 0:
        return None
    parts = bound_parts(times, max(analysis.whole_s, sum(times.values())))
    if analysis.division and analysis.division.of == "host":
        parts = tuple(replace(part, meaning=_MEANINGS["host"].get(part.name, part.meaning)) for part in parts)
    return bar_of("classes", parts, caption="Time by what bounds it", show="always")


def against_bar(analysis: Analysis) -> Bar | None:
    """Lower bound and headroom of the operators that have a bound, on the scale of the step; None where too
    much of it is unknown."""
    judged = operators_summary(analysis)
    whole = max(analysis.whole_s, sum((analysis.bound_breakdown or {}).values()))
    if not judged.is_judged or whole <= 0:
        return None
    lower, headroom = judged.lower_bound_s, max(0.0, judged.headroom_s)
    rest = max(0.0, whole - lower - headroom)
    unknown = min(rest, bound_times(analysis).get("unknown", 0.0))
    parts = (
        ("lower bound", lower, "bound", "the least time that this device needs for the work"),
        ("headroom", headroom, "headroom", "time above the lower bound"),
        ("unknown", unknown, "unknown", bound_style("unknown").meaning),
        ("not judged", rest - unknown, "rest", "idle time, copies and communication"),
    )
    return bar_of(
        "against",
        timed_parts(parts, whole),
        title="Against the bound",
        caption="on the same scale",
        show="always",
    )


class DivisionRow(NamedTuple):
    """A part of the step: its name, its seconds, its share of them all, and what it is."""

    name: str
    time_s: float
    share: float
    meaning: str


def division_title(analysis: Analysis) -> str:
    """The heading of the table of parts."""
    return "Time per step by part" if analysis.basis.per == "step" else "Time in the trace by part"


def division_rows(analysis: Analysis) -> list[DivisionRow]:
    """The parts that the trace shows, in the order of a step; empty without a trace, and where there is but
    one part."""
    division = analysis.division
    if not division or division.step_s <= 0:
        return []
    times: dict[str, float | None] = {part: getattr(division, f"{part}_s") for part in PARTS}
    rows = [
        DivisionRow(
            _NAMES.get(part, part), time_s, time_s / division.step_s, _MEANINGS[division.of].get(part, "")
        )
        for part, time_s in times.items()
        if time_s is not None
    ]
    return rows if len(rows) > 1 else []


def division_table(analysis: Analysis) -> Table | None:
    """The step by what its time is for; None without a trace."""
    rows = division_rows(analysis)
    if not rows:
        return None
    columns = (
        SHARE,
        PART,
        TIME,
        Column("what", format="text", quiet=True, show="full"),
    )
    cells = (
        (
            Cell(value=row.share, bar=row.share),
            Cell(value=row.name, hover=row.meaning),
            row.time_s,
            row.meaning,
        )
        for row in rows
    )
    caption = "Parts of the step, each with its time"
    return table(
        "division", columns, cells, caption, title=division_title(analysis), kind="parts", show="always"
    )


def input_sentences(analysis: Analysis) -> list[str]:
    """How long a step waits for its data, and what loader and step reach alone."""
    found, division = analysis.input, analysis.division
    if not found:
        return []
    who = found.loader if found.workers is None else f"{found.loader}, {counted(found.workers, 'worker')}"
    texts = [f"The program waits for data for {seconds(found.wait_s)} of a step ({who})."]
    if found.rare_waits:
        rare = found.rare_waits
        texts.append(
            f"In addition, {rare.steps} of {counted(rare.of, 'timed step')} waited {seconds(rare.wait_s)}: "
            f"{percent(rare.fraction)} of the time of all steps, and no part of the median step."
        )
    if found.is_lower_bound:
        texts.append(
            f"{found.ready_batches} batches were ready when the timed pass began: with more steps "
            "the share would be larger."
        )
    if division and division.of == "device" and found.delay_s is not None:
        texts.append(
            f"It delays the device by {seconds(found.delay_s)}; the rest is hidden behind the device's work."
        )
    rates = rates_sentence(analysis)
    if rates and input_fraction(analysis) < WAITS:  # else the advice says them
        texts.append(sentence(rates))
    if found.step_rate:
        measured = found.step_rate.how == "measured"
        how = (
            "measured on a batch in memory" if measured else "derived: the timed steps less what they waited"
        )
        texts.append(f"The step alone was {how}.")
    if found.workers_busy_fraction is not None:
        texts.append(
            f"The workers computed for {percent(min(1.0, found.workers_busy_fraction))} of their time."
        )
    return texts


def _roofline(analysis: Analysis) -> Section:
    chart = roofline_of(analysis)
    missing = " ".join(
        filter(None, (sentences.missing_operators(analysis), sentences.missing_ceilings(analysis)))
    )
    if not chart:
        text = missing or "No operator has both FLOPs and bytes, so none has an intensity."
        return section("roofline", "Roofline", Paragraph(text, "absent"))
    caption = f"{chart_caption(analysis)} {missing}".strip()
    figure = Figure(name="roofline", drawing=chart, caption=caption, note=chart_note(analysis, chart))
    return section("roofline", "Roofline", figure)


# --- devices, ceilings and how sure all of it is ----------------------------------------------------------


def _usage(analysis: Analysis) -> Section:
    missing, timeline = missing_usage(analysis), usage_timeline(analysis)
    if missing:
        return section("usage", usage_title(analysis), Paragraph(missing, "absent"))
    remarks = said(usage_remarks(analysis))
    return section("usage", usage_title(analysis), usage_table(analysis), *remarks, timeline_figure(timeline))


def _ceilings(analysis: Analysis) -> Section:
    roofs, missing = sentences.roofs_of_run(analysis), sentences.missing_ceilings(analysis)
    if missing:
        return section("ceilings", "Ceilings", Paragraph(missing, "absent", "always"))
    marked = {word: [ceiling_name(roof) for roof in roofs if word in marks_of(roof)] for word in MARKS}
    note = (
        "Rates are dense. The spread is the coefficient of variation over the repeats of a "
        "measurement; a figure that was not measured "
        "has none."
    )
    more = len(analysis.ceilings) - len(roofs)
    return section(
        "ceilings",
        "Ceilings",
        ceilings_table(analysis),
        Paragraph(note, "note"),
        None if roofs else Paragraph("No ceiling of this device applies to an operator here.", show="brief"),
        *said(
            (f"{word}: {sentences.listed(names)}: {MARKS[word]}" for word, names in marked.items() if names),
            "alert",
        ),
        remark=f"used here; {more} more in the full report" if more else "",
    )


def ceilings_table(analysis: Analysis) -> Table:
    """Every ceiling with its scope, how sure it is, where it comes from and how old it was; those used in the
    run come first."""
    judging = set(sentences.roofs_of_run(analysis))
    columns = (
        Column("ceiling", format="middle", least=17),
        Column("for", format="text", least=22, quiet=True, priority=1),
        Column("value"),
        Column("±", "%", key="spread_percent", help="coefficient of variation between the rounds"),
        Column("source", format="middle", least=34, help="with its date, and its age when the run was made"),
        Column("how", format="text", least=36, show="full"),
    )
    rows = []
    for roof in sorted(roof_order(analysis.ceilings), key=lambda roof: roof not in judging):
        how = " · ".join(filter(None, (roof.source.detail, conditions_words(roof.conditions))))
        cells = (
            ceiling_name(roof),
            ceiling_scope(roof) or ABSENT,
            Cell(value=roof.value, text=si(roof.value, roof.unit)),
            Cell(
                value=roof.spread, text=or_absent(roof.spread, ".1f", 100), warning=", ".join(marks_of(roof))
            ),
            Cell(value=source_and_age(roof, analysis.created), hover=source_words(roof, analysis.created)),
            how,
        )
        rows.append(
            Row(
                cells,
                show="always" if roof in judging else "full",
                printed=roof in judging or not (judging or roof.variant),
            )
        )
    return table(
        "ceilings",
        columns,
        rows,
        "Ceilings with their sources",
        first=len(judging) or None,
        show="always" if judging else "full",
    )


def _device_time(analysis: Analysis) -> Section:
    """The step of the device and, without shares, the trace as recorded."""
    timeline, whole = analysis.timeline, analysis.trace_timeline
    if not timeline:
        missing = Paragraph("No device timeline: nothing was traced.", "absent")
        return section("device-time", "Device time", missing, under=_QUALITY)
    always = (
        ("span", timeline.span_s),
        ("busy", timeline.busy_s),
        ("idle", timeline.idle_s),
        ("compute", timeline.compute_s),
    )
    optional = (
        ("memory copies", timeline.memcpy_s),
        ("copies that no kernel hides", timeline.exposed_memcpy_s),
        ("communication", timeline.communication_s),
        ("communication that nothing hides", timeline.exposed_communication_s),
        ("overlap", timeline.overlap_s),
    )
    facts = (*always, *(fact for fact in optional if fact[1] > 0))
    recorded: tuple[tuple[str, float], ...] = ()
    if whole:
        recorded = (
            ("trace as recorded", whole.span_s),
            ("busy in it", whole.busy_s),
            ("launched before it", whole.earlier_s or 0.0),
        )
    rows = (
        *((name, seconds(time_s), percent(share_of_step(time_s, analysis))) for name, time_s in facts),
        *((name, seconds(time_s)) for name, time_s in recorded if time_s > 0),
    )
    return section(
        "device-time",
        "Device time",
        Facts(rows=rows),
        Paragraph(
            "Busy and idle add up to the span; operators, unmodeled and idle time less the overlap do too.",
            "note",
        ),
        *said(text for text, _ in sentences.device_sentences(analysis)),
        under=_QUALITY,
    )


def _device(analysis: Analysis) -> Section:
    workload, environment = analysis.workload, analysis.environment
    batch = None if workload.batch_size is None else f"{workload.batch_size} {workload.unit}"
    device = (
        f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device
    )
    told = grouped((fact for fact in FACTS if getattr(workload, fact.field)), lambda fact: fact.label)
    facts: tuple[tuple[str, object], ...] = (
        ("workload", f"{workload.name}, {workload.mode}, {workload.precision}"),
        ("batch", batch),
        ("image size", workload.image_size),
        *(
            (label, ", ".join(fact.word or fact.value(workload) for fact in facts))
            for label, facts in told.items()
        ),
        ("device", device),
        ("device inferred from", environment.device_inferred),
        ("device memory", size_text(environment.device_memory_bytes)),
        ("driver", environment.driver),
        ("CUDA", environment.cuda),
        ("cuDNN", environment.cudnn),
        ("CPU", environment.cpu if environment.cpu != environment.device_name else None),
        ("CPU cores", environment.cpu_cores),
        ("CPU instructions", environment.cpu_isa),
        ("threads used", environment.threads),
        ("main memory", size_text(environment.memory_bytes)),
        ("host", environment.host),
        ("system", environment.os),
        ("Python", environment.python),
        ("PyTorch", environment.torch),
        ("torchvision", environment.torchvision),
        ("rooflines", environment.rooflines),
        ("commit", environment.git_commit),
    )
    return section(
        "device", "Device and environment", facts_of(facts), *said(analysis.notes, "absent"), under=_QUALITY
    )


def _method(analysis: Analysis) -> Section:
    bounds = "; ".join(f"{style.letter} {style.name}: {style.meaning}" for style in BOUNDS.values())
    timed = "The step time comes from steps run with the profiler off; the traced steps only divide it."
    basis = (
        f"{_basis(analysis)} {timed if analysis.basis.timed else 'No step was timed without the profiler.'}"
    )
    command = [Paragraph("The command was not recorded.", "absent")]
    if analysis.command:
        command = [Paragraph("Command", "title"), Paragraph(analysis.command, "code")]
    definitions = Facts(rows=(*_METHOD, ("bound", f"{bounds}.")), kind="definitions")
    replayed = said([sentences.replay_sentence(analysis)])
    return section("method", "Method", Paragraph(basis), definitions, *replayed, *command)
