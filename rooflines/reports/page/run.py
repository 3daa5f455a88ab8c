"""The page of a run or a trace: where the time goes, what to try, every operator and module, and how sure all
of it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from rooflines.device_specs.records import DISTURBED, marks_of
from rooflines.reports.charts.palette import BOUNDS
from rooflines.reports.document import (
    PART,
    SHARE,
    TIME,
    Bar,
    BarRow,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    bound_parts,
    facts_of,
    or_absent,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.page import generation, operators, serving
from rooflines.reports.page.activity import timeline_section
from rooflines.reports.page.advice import findings_section, trials_section
from rooflines.reports.page.kernels import kernel_table
from rooflines.reports.page.lines import line_table
from rooflines.reports.page.memory import memory_section
from rooflines.reports.page.roofline import chart_caption, chart_note, roofline_of
from rooflines.reports.page.steps import steps_section
from rooflines.reports.page.timeline import timeline_figure, usage_timeline
from rooflines.reports.page.usage import missing_usage, usage_remarks, usage_table
from rooflines.reports.words import sentences
from rooflines.reports.words.ceilings import (
    ceiling_name,
    roof_order,
    source_and_age,
    source_words,
)
from rooflines.reports.words.rows import bound_times
from rooflines.reports.words.text import joined, size_text
from rooflines.roofline.advise.case import device_kind
from rooflines.roofline.advise.host import WAITS
from rooflines.roofline.advise.verdict import rates_sentence, share_text, unknown_share
from rooflines.roofline.analysis import PARTS, Analysis
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.judge.step.input_pipeline import input_fraction
from rooflines.roofline.judge.step.interference import is_delayed
from rooflines.roofline.predict.options import FACTS
from rooflines.roofline.predict.trials import Trials
from rooflines.units import counted, percent, seconds, sentence, si, significant

# Smaller classes are named without their range.
_WORTH_A_RANGE = 0.05
_QUALITY = "Measurement quality"
_METHOD = (
    ("FLOP", "one floating-point addition or multiplication; a fused multiply-add is two."),
    ("traffic", "compulsory bytes: every input byte read once, every output byte written once."),
    ("intensity", "FLOPs over bytes."),
    (
        "lower bound",
        "the longest of FLOPs over the compute ceiling, bytes over the memory ceiling, and the latency of a "
        "call. Bytes that fit into a cache count at the rate of that cache.",
    ),
    (
        "efficiency",
        "lower bound over time. Above 100 %, the count or the ceiling is wrong, or the algorithm does less "
        "than the formula.",
    ),
    ("headroom", "time less lower bound."),
)
_NAMES = {
    "data_loading": "data loading",
    "host_to_device": "host to device",
    "other": "other work",
    "idle": "other idle",
}
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
    status, division = sentences.status_sentences(analysis), division_table(analysis)
    sections = sections_of(
        _where(analysis),
        _roofline(analysis),
        findings_section(analysis),
        trials_section(trials) if trials else None,
        serving.serving_section(analysis),
        generation.generation_section(analysis),
        operators.operators_section(analysis),
        section("kernels", "Kernels", kernel_table(analysis)),
        section("lines", "Lines of the program", line_table(analysis)),
        operators.modules_section(analysis),
        timeline_section(analysis, _QUALITY),
        steps_section(
            analysis,
            _QUALITY,
            division,
            *said(input_sentences(analysis), "note" if division else "text"),
        ),
        memory_section(analysis),
        _usage(analysis),
        operators.coverage_section(analysis, _QUALITY),
        _ceilings(analysis),
        _environment(analysis),
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
        last=("where", "findings"),
        footer=f"Schema {analysis.schema}.",
    )


# --- where a step goes, and what to try -------------------------------------------------------------------


def _where(analysis: Analysis) -> Section:
    classes = bound_bar(analysis)
    missing = sentences.missing_operators(analysis) or "The time could not be divided into bound classes."
    if classes:
        missing = sentences.missing_ceilings(analysis) or sentences.missing_bound(analysis) or ""
    return section(
        "where",
        "Time per step" if analysis.basis.per == "step" else "Time in the trace",
        classes,
        *said(missing, "absent"),
        replace(division, show="brief") if (division := division_table(analysis)) else None,
        remark=" · ".join(_utilization(analysis)),
    )


def _utilization(analysis: Analysis) -> Iterator[str]:
    """How long a step takes, how much of it the device is busy, and the part of their peak that its matrix
    units reach."""
    whole_s, timeline = analysis.whole_s, analysis.timeline
    if whole_s <= 0:
        return
    of = "traced" if analysis.basis.per == "trace" else "a step" if analysis.basis.timed else "a traced step"
    yield f"{seconds(whole_s)} {of}"
    if timeline and timeline.span_s > 0 and analysis.on_device:
        yield f"GPU busy {percent(timeline.busy_s / timeline.span_s)}"
    least_s: dict[str, float] = {}
    for row in analysis.operators if analysis.basis.devices == 1 else ():
        roof = analysis.roofs.compute(row.precision or "fp32", "matrix") if row.matrix_flops else None
        if roof is not None:
            name = roof.precision or "fp32"
            least_s[name] = least_s.get(name, 0.0) + row.matrix_flops / roof.value
    if least_s:
        most = max(least_s, key=lambda precision: least_s[precision])
        tensor = device_kind(analysis) == "cuda" and most not in ("fp32", "fp64")
        reached = sum(least_s.values()) / whole_s
        share = percent(reached)
        if unknown_share(analysis) or analysis.other_programs is not None:
            share = f"{significant(100 * reached, 2)}+ %"
        yield f"{'tensor cores' if tensor else 'arithmetic'} at {share} of the {most} peak"


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
        parts = tuple(
            replace(part, meaning=_MEANINGS["host"].get(part.pattern, part.meaning)) for part in parts
        )
    if is_delayed(analysis):
        parts = tuple(
            replace(part, name="inefficient or delayed") if part.pattern == "inefficient" else part
            for part in parts
        )
    others = analysis.other_programs
    if others is not None and others.shares:
        parts = tuple(
            replace(part, text=f"{part.text}, {share_text(part.pattern, part.share, others)}")
            if part.share > _WORTH_A_RANGE
            else part
            for part in parts
        )
    rows = (BarRow(label="", text="", parts=parts),)
    return Bar(name="classes", rows=rows, caption="Time by what bounds it", show="always")


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
    rows = [
        DivisionRow(
            _NAMES.get(part, part), time_s, time_s / division.step_s, _MEANINGS[division.of].get(part, "")
        )
        for part in PARTS
        if (time_s := getattr(division, f"{part}_s")) is not None
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
    return table("division", columns, cells, caption, title=division_title(analysis), kind="parts")


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
    missing = joined(" ", sentences.missing_operators(analysis), sentences.missing_ceilings(analysis))
    if not chart:
        text = missing or "No operator has both FLOPs and bytes, so none has an intensity."
        return section("roofline", "Roofline", Paragraph(text, "absent"))
    caption = f"{chart_caption(analysis)} {missing}".strip()
    figure = Figure(name="roofline", drawing=chart, caption=caption, note=chart_note(analysis, chart))
    return section("roofline", "Roofline", figure, columns=7)


# --- devices, ceilings and how sure all of it is ----------------------------------------------------------


def _usage(analysis: Analysis) -> Section:
    missing, timeline, title = missing_usage(analysis), usage_timeline(analysis), "Device activity"
    if missing:
        return section("usage", title, Paragraph(missing, "absent"), columns=6)
    blocks = (usage_table(analysis), *said(usage_remarks(analysis)), timeline_figure(timeline))
    of = "in the timed steps" if analysis.usage and analysis.usage.window == "timed pass" else ""
    return section("usage", title, *blocks, columns=6, remark=of)


def _ceilings(analysis: Analysis) -> Section:
    roofs, missing = sentences.roofs_of_run(analysis), sentences.missing_ceilings(analysis)
    if missing:
        return section("ceilings", "Ceilings", Paragraph(missing, "absent", "always"))
    remark = f"{len(roofs)} of {len(analysis.ceilings)} apply here"
    return section("ceilings", "Ceilings", folded=[ceilings_table(analysis)], remark=remark)


def ceilings_table(analysis: Analysis) -> Table:
    """Every ceiling with its scope, how sure it is, where it comes from and how old it was; those used in the
    run come first."""
    judging = set(sentences.roofs_of_run(analysis))
    columns = (
        Column("ceiling", format="middle", least=17),
        Column("value"),
        Column("±", "%", key="spread_percent", help="coefficient of variation between the rounds"),
        Column("source", format="middle", least=34, help="with its date, and its age when the run was made"),
    )
    rows = []
    for roof in sorted(roof_order(analysis.ceilings), key=lambda roof: roof not in judging):
        cells = (
            ceiling_name(roof),
            Cell(value=roof.value, text=si(roof.value, roof.unit)),
            Cell(
                value=roof.spread, text=or_absent(roof.spread, ".1f", 100), warning=", ".join(marks_of(roof))
            ),
            Cell(
                value=source_and_age(roof, analysis.created),
                hover=f"{source_words(roof, analysis.created)}: {roof.source.detail}",
            ),
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


def _environment(analysis: Analysis) -> Section:
    workload, environment = analysis.workload, analysis.environment
    batch = None if workload.batch_size is None else counted(workload.batch_size, workload.unit.rstrip("s"))
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
    return section("device", "Environment", folded=[facts_of(facts)])


def _method(analysis: Analysis) -> Section:
    bounds = "; ".join(f"{style.letter} {style.name}: {style.meaning}" for style in BOUNDS.values())
    timed = "The step time comes from steps run with the profiler off; the traced steps only divide it."
    basis = (
        f"{_basis(analysis)} {timed if analysis.basis.timed else 'No step was timed without the profiler.'}"
    )
    command = [Paragraph("The command was not recorded.", "absent")]
    if analysis.command:
        command = [Paragraph("Command", "title"), Paragraph(analysis.command, "code")]
    definitions = Facts(rows=(*_METHOD, ("classes", f"{bounds}.")), kind="definitions")
    replayed = said(sentences.replay_sentence(analysis))
    return section("method", "Method", folded=(Paragraph(basis), definitions, *replayed, *command))
