"""The page of a run or a trace: where the time goes, what to try, every operator and module, and how sure all of it is."""

from __future__ import annotations

from rooflines.device_specs.records import DISTURBED, MARKS, marks_of
from rooflines.reports.charts.curves import StepTimes
from rooflines.reports.charts.palette import BOUNDS, bound_style
from rooflines.reports.document import (
    ABSENT,
    Bar,
    BarRow,
    Block,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Part,
    Row,
    Section,
    Show,
    Table,
    or_absent,
)
from rooflines.reports.views import coverage, modules, operators, serving
from rooflines.reports.views.advice import findings_section, trials_section
from rooflines.reports.views.division import division_rows, division_title, input_sentences
from rooflines.reports.views.roofline import chart_caption, chart_note, roofline_of
from rooflines.reports.views.timeline import timeline_caption, usage_timeline
from rooflines.reports.views.usage import usage_table
from rooflines.reports.words import sentences
from rooflines.reports.words.summary import bound_times, operators_summary, peak_memory, share_of_step
from rooflines.reports.words.text import size_text
from rooflines.reports.words.usage_sentences import missing_usage, usage_remarks, usage_title
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.trials import Trials
from rooflines.roofline.verdict import steps_differ
from rooflines.units import binary_bytes, counted, percent, seconds, si

# More traced steps than this are a sweep, not a table.
_MOST_STEPS = 50
_QUALITY = "Measurement quality"
_KINDS = {"cpu_s": "CPU operators", "dataloader_s": "data loader", "runtime_s": "runtime calls"}
_METHOD = (
    ("FLOP", "one floating-point addition or multiplication; a fused multiply-add is two."),
    ("traffic", "compulsory bytes: every input byte that the operator must touch read once, every output byte written once."),
    ("intensity", "FLOPs over bytes."),
    ("lower bound", "the longest of FLOPs over the compute ceiling, bytes over the memory ceiling, and the latency of a call. As many"
     " of the call's bytes as fit may come from the caches, nearest first, each at the rate of the level that holds it; the rest"
     " comes from the outermost memory."),
    ("efficiency", "lower bound over time. Above 100 % the count or the ceiling is wrong, or the algorithm does less than the formula:"
     " it is marked and not clipped."),
    ("headroom", "time less lower bound."),
)  # fmt: skip


def page(analysis: Analysis, trials: Trials | None = None) -> Page:
    """Return the page, with the ``trials`` of its advice if there are any. Each missing part of the analysis is named in its place."""
    status = sentences.status_sentences(analysis)
    served = serving.section(analysis)
    return Page(
        kind="run",
        name=f"Roofline of {analysis.workload.name}",
        title=sentences.subject(analysis),
        created=analysis.created,
        rooflines=analysis.environment.rooflines or "",
        verdict=sentences.headline(analysis),
        said=tuple(sentences.confidence(analysis)),
        status=(analysis.status if analysis.status != "complete" else DISTURBED, status) if status else None,
        sections=(
            _where(analysis),
            *([served] if served is not None else []),
            findings_section(analysis),
            *([trials_section(trials)] if trials is not None else []),
            _roofline(analysis),
            operators.section(analysis),
            modules.section(analysis),
            _steps(analysis),
            _usage(analysis),
            _timeline(analysis),
            _device(analysis),
            _ceilings(analysis),
            _memory(analysis),
            coverage.section(analysis, _QUALITY),
            _method(analysis),
        ),
        footer=f"Schema {analysis.schema}.",
    )


# --- where a step goes, and what to try --------------------------------------------------------------------------------------------


def _where(analysis: Analysis) -> Section:
    whole = analysis.whole_s
    of = "traced" if analysis.basis.per == "trace" else "a step" if analysis.basis.timed else "a traced step"
    classes = bound_bar(analysis)
    blocks: list[Block] = [classes] if classes else [Paragraph(sentences.missing_bounds(analysis), "absent", "always")]
    if classes:
        against, missing = against_bar(analysis), sentences.missing_ceilings(analysis) or sentences.missing_bound(analysis)
        if against:
            blocks.append(against)
        elif missing:
            blocks.append(Paragraph(missing, "absent", "always"))
        blocks.append(Paragraph(_basis(analysis), "note"))
    division = division_table(analysis)
    if division:
        blocks.append(division)
    blocks += [Paragraph(text, "note" if division else "text", "always") for text in input_sentences(analysis)]
    return Section(
        name="where",
        title=sentences.breakdown_title(analysis),
        remark=f"{seconds(whole)} {of}" if whole > 0 else "",
        blocks=tuple(blocks),
    )


def _basis(analysis: Analysis) -> str:
    basis, steps = analysis.basis, counted(analysis.basis.steps, "traced step")
    if basis.per != "step":
        return f"Times, FLOPs and bytes are for the whole trace of {steps}."
    text = f"Times, FLOPs and bytes are per step: the mean over {steps}"
    if basis.steady:
        text = (
            f"FLOPs and bytes are per step: the mean over {steps}. Each call counts with the lower quartile of its times in those of "
        )
        text += "them that resemble the timed ones"
    if not basis.timed and not basis.steady:
        return f"{text}."
    if analysis.idle_breakdown is not None:
        return f"{text}; idle time is what the median timed step leaves."
    whole = f"median {'timed' if basis.timed else 'traced'} step"
    return f"{text}; all times together are scaled to the {whole} ({seconds(analysis.whole_s)})."


def bound_bar(analysis: Analysis) -> Bar | None:
    """The step by bound class, in the order of the palette, empty classes left out; None where it is not divided."""
    times, whole = bound_times(analysis), analysis.whole_s
    if not times or whole <= 0:
        return None
    whole = max(whole, sum(times.values()))
    order = list(BOUNDS)
    names = sorted(times, key=lambda name: order.index(name) if name in order else len(order))
    parts = tuple(
        Part(
            name=name, share=times[name] / whole, text=seconds(times[name]), pattern=name, letter=bound_style(name).letter,
            meaning=bound_style(name).meaning,
        )
        for name in names
    )  # fmt: skip
    return Bar(name="classes", caption="Time by what bounds it", rows=(BarRow(label="", text="", parts=parts),), show="always")


def against_bar(analysis: Analysis) -> Bar | None:
    """Lower bound and headroom of the operators that have a bound, on the scale of the step; None where too much of it is unknown."""
    operators = operators_summary(analysis)
    whole = max(analysis.whole_s, sum((analysis.bound_breakdown or {}).values()))
    if not operators.is_judged or whole <= 0:
        return None
    lower, headroom = operators.lower_bound_s, max(0.0, operators.headroom_s)
    rest = max(0.0, whole - lower - headroom)
    unknown = min(rest, bound_times(analysis).get("unknown", 0.0))
    parts = (
        ("lower bound", lower, "bound", "time that the work needs at the roofs of this device"),
        ("headroom", headroom, "headroom", "time above the lower bound"),
        ("unknown", unknown, "unknown", bound_style("unknown").meaning),
        ("not judged", rest - unknown, "rest", "idle time, copies and communication"),
    )
    drawn = tuple(
        Part(name=name, share=value / whole, text=seconds(value), pattern=pattern, meaning=meaning)
        for name, value, pattern, meaning in parts
        if value > 0
    )
    return Bar(
        name="against", title="Against the bound", caption="on the same scale", rows=(BarRow(label="", text="", parts=drawn),),
        show="always",
    )  # fmt: skip


def division_table(analysis: Analysis) -> Table | None:
    """The step by what its time is for; None without a trace."""
    rows = division_rows(analysis)
    if not rows:
        return None
    return Table(
        name="division",
        title=division_title(analysis),
        caption="Parts of the step, each with its time",
        columns=(
            Column("share", "%", "share"),
            Column("part", format="text"),
            Column("time", "s", "scaled"),
            Column("what", format="text", quiet=True, show="full"),
        ),
        rows=tuple(
            Row((Cell(value=row.share, bar=row.share), Cell(value=row.name, hover=row.meaning), row.time_s, row.meaning))
            for row in rows
        ),
        kind="parts",
        show="always",
    )


def _roofline(analysis: Analysis) -> Section:
    chart = roofline_of(analysis)
    missing = " ".join(text for text in (sentences.missing_operators(analysis), sentences.missing_ceilings(analysis)) if text)
    if chart is None:
        text = missing or "No operator has both FLOPs and bytes, so none has an intensity."
        return Section(name="roofline", title="Roofline", blocks=(Paragraph(text, "absent"),))
    caption = f"{chart_caption(analysis)} {missing}".strip()
    figure = Figure(name="roofline", drawing=chart, caption=caption, note=chart_note(analysis, chart))
    return Section(name="roofline", title="Roofline", blocks=(figure,))


# --- devices, ceilings and how sure all of it is -----------------------------------------------------------------------------------


def _usage(analysis: Analysis) -> Section:
    missing = missing_usage(analysis)
    if missing:
        return Section(name="usage", title=usage_title(analysis), blocks=(Paragraph(missing, "absent"),))
    table, timeline = usage_table(analysis), usage_timeline(analysis)
    figure = Figure(name="timeline", drawing=timeline, caption=timeline_caption(timeline)) if timeline else None
    remarks = (Paragraph(text, show="always") for text in usage_remarks(analysis))
    return Section(
        name="usage", title=usage_title(analysis), blocks=(*([table] if table else []), *remarks, *([figure] if figure else []))
    )


def _ceilings(analysis: Analysis) -> Section:
    roofs = sentences.roofs_of_run(analysis)
    missing = sentences.missing_ceilings(analysis)
    if missing:
        return Section(name="ceilings", title="Ceilings", blocks=(Paragraph(missing, "absent", "always"),))
    blocks: list[Block] = [
        ceilings_table(analysis),
        Paragraph(
            "Rates are dense. The spread is the coefficient of variation over the repeats of a measurement; a figure that was not"
            " measured has none.",
            "note",
        ),
    ]
    if not roofs:
        blocks.append(Paragraph("No ceiling of this device applies to an operator of this run.", show="brief"))
    for word, why in MARKS.items():
        names = [sentences.ceiling_name(roof) for roof in roofs if word in marks_of(roof)]
        if names:
            blocks.append(Paragraph(f"{word}: {sentences.listed(names)}: {why}", "alert", "always"))
    more = len(analysis.ceilings) - len(roofs)
    remark = f"used in this run; {more} more in the full report" if more else ""
    return Section(name="ceilings", title="Ceilings", remark=remark, blocks=tuple(blocks))


def ceilings_table(analysis: Analysis) -> Table:
    """Every ceiling with its scope, how sure it is, where it comes from and how old it was; those used in the run come first."""
    judging = set(sentences.roofs_of_run(analysis))
    columns = (
        Column("ceiling", format="middle", least=17), Column("for", format="text", least=22, quiet=True, priority=1), Column("value"),
        Column("±", "%", key="spread_percent", help="coefficient of variation between the rounds"),
        Column("source", format="middle", least=34, help="with its date, and its age when the run was made"),
        Column("how", format="text", least=36, show="full"),
    )  # fmt: skip
    rows = []
    for roof in sorted(sentences.roof_order(analysis.ceilings), key=lambda one: one not in judging):
        marks = ", ".join(marks_of(roof))
        how = " · ".join(text for text in (roof.source.detail, sentences.conditions_words(roof.conditions)) if text)
        cells = (
            sentences.ceiling_name(roof), sentences.ceiling_scope(roof) or ABSENT,
            Cell(value=roof.value, text=si(roof.value, roof.unit)),
            Cell(value=roof.spread, text=or_absent(roof.spread, ".1f", 100), warning=marks),
            Cell(value=sentences.source_and_age(roof, analysis.created), hover=sentences.source_words(roof, analysis.created)), how,
        )  # fmt: skip
        rows.append(Row(cells, show="always" if roof in judging else "full", printed=roof in judging or not (judging or roof.variant)))
    show: Show = "always" if judging else "full"
    first = len(judging) or None
    return Table(name="ceilings", caption="Ceilings with their sources", columns=columns, rows=tuple(rows), first=first, show=show)


def _steps(analysis: Analysis) -> Section:
    blocks: list[Block] = [Paragraph(text, show="always") for text in sentences.steps_sentences(analysis)]
    if analysis.steps is not None and analysis.steps.durations_s:
        figure = Figure(
            name="steps", drawing=StepTimes(steps=analysis.steps), caption="The timed steps in the order run.",
            note="The dark strip is the 95 % interval of the median, the light one the 10th to 90th percentile. The axis does not start"
            " at zero.",
        )  # fmt: skip
        blocks = [figure, *blocks]
    return Section(name="steps", title="Step times", under=_QUALITY, blocks=tuple(blocks))


def _timeline(analysis: Analysis) -> Section:
    """The step of the device and, without shares, the trace as recorded."""
    timeline = analysis.timeline
    if timeline is None:
        missing = Paragraph("No device timeline: nothing was traced.", "absent")
        return Section(name="timeline", title="Device time", under=_QUALITY, blocks=(missing,))
    facts = [("span", timeline.span_s), ("busy", timeline.busy_s), ("idle", timeline.idle_s), ("compute", timeline.compute_s)]
    optional = (
        ("memory copies", timeline.memcpy_s),
        ("copies that no kernel hides", timeline.exposed_memcpy_s),
        ("communication", timeline.communication_s),
        ("communication that nothing hides", timeline.exposed_communication_s),
        ("overlap", timeline.overlap_s),
    )
    facts += [(name, value) for name, value in optional if value > 0]
    recorded, whole = [], analysis.trace_timeline
    if whole is not None:
        recorded = [("trace as recorded", whole.span_s), ("busy in it", whole.busy_s), ("launched before it", whole.earlier_s or 0.0)]
    rows = (
        *((name, seconds(value), percent(share_of_step(value, analysis))) for name, value in facts),
        *((name, seconds(value)) for name, value in recorded if value > 0),
    )
    steps = steps_table(analysis)
    blocks: tuple[Block, ...] = (
        Facts(rows=rows),
        Paragraph("Busy and idle add up to the span; operators, unmodelled and idle time less the overlap do too.", "note"),
        *(Paragraph(text, show="always") for text in sentences.device_sentences(analysis)),
        *([steps] if steps else []),
    )
    return Section(name="timeline", title="Device time", under=_QUALITY, blocks=blocks)


def steps_table(analysis: Analysis) -> Table | None:
    """The traced steps, each with its time by what was running; None where there are fewer than two."""
    steps = analysis.traced_steps[:_MOST_STEPS]
    if len(steps) < 2:
        return None
    kinds = [kind for kind in steps[0].breakdown if any(step.breakdown[kind] for step in steps)]
    columns = (
        Column("step", format="text"),
        Column("time", "s", "scaled"),
        *(Column(_KINDS.get(kind, kind.removesuffix("_s")), "s", "scaled", priority=1) for kind in kinds),
    )
    rows = tuple(Row((step.name, step.duration_s, *(step.breakdown[kind] for kind in kinds))) for step in steps)
    show: Show = "always" if steps_differ(analysis) else "full"
    return Table(name="traced-steps", caption="The traced steps, by what was running", columns=columns, rows=rows, show=show)


def _device(analysis: Analysis) -> Section:
    workload, environment = analysis.workload, analysis.environment
    batch = None if workload.batch_size is None else f"{workload.batch_size} {workload.unit}"
    facts: tuple[tuple[str, object], ...] = (
        ("workload", f"{workload.name}, {workload.mode}, {workload.precision}"),
        ("batch", batch),
        ("image size", workload.image_size),
        ("memory format", "channels last" if workload.channels_last else None),
        ("compiled", f"torch.compile{f', {workload.compile_mode}' if workload.compile_mode else ''}" if workload.compiled else None),
        ("optimizer", workload.optimizer),
        ("quantized", workload.quantized),
        ("activations", "checkpointed" if workload.checkpointing else None),
        ("CUDA graph", "one per step" if workload.cuda_graph else None),
        ("several GPUs", "DataParallel" if workload.parallel == "dp" else None),
        ("data", workload.data),
        ("device", f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device),
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
    rows = tuple((name, str(value)) for name, value in facts if value not in (None, ""))
    notes = (Paragraph(note, "absent", "always") for note in analysis.notes)
    return Section(name="device", title="Device and environment", under=_QUALITY, blocks=(Facts(rows=rows), *notes))


def _memory(analysis: Analysis) -> Section:
    """The peak, with its share of the device's memory where that is known."""
    peak = peak_memory(analysis)
    sentence, share = sentences.memory_sentence(peak), None
    if peak is not None and peak.available_bytes:
        whole = peak.peak_bytes / peak.available_bytes
        sentence = f"{sentence.removesuffix('.')}, {percent(whole)} of {binary_bytes(peak.available_bytes)}."
        share = min(1.0, whole)
    return Section(name="memory", title="Memory", blocks=(Paragraph(sentence, meter=share),))


def _method(analysis: Analysis) -> Section:
    bounds = "; ".join(f"{style.letter} {style.name}: {style.meaning}" for style in BOUNDS.values())
    basis = f"{_basis(analysis)} The step time comes from steps run with the profiler off; the traced steps only divide it."
    command: tuple[Block, ...] = (Paragraph("The command was not recorded.", "absent"),)
    if analysis.command:
        command = (Paragraph("Command", "title"), Paragraph(analysis.command, "code"))
    return Section(
        name="method",
        title="Method",
        blocks=(Paragraph(basis), Facts(rows=(*_METHOD, ("bound", f"{bounds}.")), kind="definitions"), *command),
    )
