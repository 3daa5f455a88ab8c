"""The printed report: the HTML page's content in the same order, set by Typst with the figures as vectors.

The template holds the layout, this module the words. Everything goes to the template as one JSON text and is set as it is, so an
operator's name cannot become markup. Only faces that Typst brings along are used: the document is the same on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from rooflines.device_specs.records import Ceiling
from rooflines.reports.charts.figure import SERIF, as_svg, roofline_figure, steps_figure
from rooflines.reports.charts.palette import INK, bound_style, category_colour, contrast
from rooflines.reports.charts.roofline import warning
from rooflines.reports.charts.usage import timeline_caption, usage_timeline
from rooflines.reports.charts.usage_figure import usage_figure
from rooflines.reports.views.division import division_rows, division_title, input_sentences
from rooflines.reports.views.usage_table import usage_table
from rooflines.reports.words.rows import flagged_rows, module_text, table_order, table_rows, table_time
from rooflines.reports.words.sentences import (
    NUMBER_AND_UNIT,
    breakdown_title,
    categories_sentence,
    ceiling_name,
    conditions_words,
    coverage_sentence,
    device_sentences,
    flag_sentence,
    headline,
    made,
    memory_sentence,
    missing_bounds,
    missing_ceilings,
    missing_findings,
    missing_operators,
    roof_order,
    saving,
    source_and_age,
    status_sentence,
    steps_sentences,
    subject,
)
from rooflines.reports.words.summary import bound_times, category_summaries, operators_summary, peak_memory, step_time
from rooflines.reports.words.text import (
    column_scale,
    efficiency_text,
    operator_name,
    shorten_name,
    shorten_path,
    shorten_shapes,
    size_text,
)
from rooflines.reports.words.usage_sentences import missing_usage, usage_remarks, usage_title
from rooflines.roofline.analysis import Analysis
from rooflines.units import percent, seconds, si, significant

_OPERATORS = 25
_MODULES = 30
_FLAGS = 10
_UNMODELLED = 12
_VERBATIM = {"command", "suggestion", "svg"}
_FACE = "Libertinus Serif"
_INK = INK["light"]


def write(analysis: Analysis, path: Path) -> Path:
    """Write the report to ``path`` and return it. The same analysis gives the same file."""
    import typst

    # A path and not the text: the oldest Typst that we accept takes only paths.
    with resources.as_file(resources.files("rooflines.reports.render") / "templates" / "report.typ") as template:
        document = typst.compile(
            str(template),
            format="pdf",
            sys_inputs={"report": json.dumps(_kept_together(content(analysis)), ensure_ascii=False)},
            ignore_system_fonts=True,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document)
    return path


def content(analysis: Analysis) -> dict[str, Any]:
    """What the template shows, in words and formatted numbers."""
    return {
        "ink": {name: getattr(_INK, name) for name in ("text", "muted", "line", "panel", "warning", "grid")},
        "title": f"Roofline of {analysis.workload.name}",
        "date": _date(analysis),
        "subject": subject(analysis),
        "made": made(analysis),
        "status": status_sentence(analysis),
        "verdict": headline(analysis),
        "bounds": _bounds(analysis),
        "against": _against(analysis),
        "division": _division(analysis),
        "findings": [
            {"title": f.title, "saves": saving(f.saves_s, analysis), "evidence": f.evidence, "suggestion": f.suggestion}
            for f in analysis.findings
        ],
        "no_findings": missing_findings(analysis),
        "roofline": {
            "svg": as_svg(roofline_figure(analysis, width_in=6.85, height_in=4.3, family=SERIF), _FACE),
            "caption": roofline_caption(analysis),
        },
        "operators": _operators(analysis),
        "modules": _modules(analysis),
        "steps": _steps(analysis),
        "usage": _usage(analysis),
        "environment": _environment(analysis),
        "memory": memory_sentence(peak_memory(analysis)),
        "coverage": _coverage(analysis),
        "notes": list(analysis.notes),
        "method": _method(analysis),
        "ceilings": _ceilings(analysis),
        "command": analysis.command,
    }


def _kept_together(value: Any, key: str = "") -> Any:
    """Every sentence with no-break spaces between numbers and units; what is copied from the page or drawn stays as it is."""
    if isinstance(value, dict):
        return {name: _kept_together(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_kept_together(item, key) for item in value]
    return NUMBER_AND_UNIT.sub("\u00a0", value) if isinstance(value, str) and key not in _VERBATIM else value


def roofline_caption(analysis: Analysis) -> str:
    """What to see in the roofline: the three longest categories, their share of the time and how close they come to their bound."""
    categories = category_summaries(analysis)
    if not any(one.time_s > 0 for one in categories):
        return "No operators to draw."
    return (
        f"{categories_sentence(categories[:3], analysis.basis.per)} A point on the roof does what the device can; its area is its time."
    )


def _date(analysis: Analysis) -> list[int] | None:
    """Year, month and day of the run, which is the document's date as well: the day it was set would change the file."""
    try:
        created = datetime.fromisoformat(analysis.created)
    except ValueError:
        return None
    return [created.year, created.month, created.day]


def _part(name: str, letter: str, pattern: str, fill: str, share: float, value: float) -> dict[str, Any]:
    on = max(("#ffffff", _INK.text), key=lambda colour: contrast(colour, fill))
    text = f"{name} {percent(share)} ({seconds(value)})"
    text = f"{letter} · {text}" if letter else text
    return {"share": share, "letter": letter, "pattern": pattern, "fill": fill, "on": on, "text": text}


def _bounds(analysis: Analysis) -> dict[str, Any]:
    whole, shares = step_time(analysis), bound_times(analysis)
    missing = missing_bounds(analysis) if not shares or whole <= 0 else None
    styles = {name: bound_style(name) for name in shares}
    parts = [
        _part(name, styles[name].letter, styles[name].pattern, styles[name].light, value / whole, value)
        for name, value in shares.items()
        if whole > 0
    ]
    return {"title": breakdown_title(analysis), "missing": missing, "parts": parts}


def _against(analysis: Analysis) -> dict[str, Any]:
    whole = step_time(analysis)
    operators = operators_summary(analysis)
    lower, headroom = operators.lower_bound_s, operators.headroom_s
    parts = []
    if lower > 0 and whole > 0:
        parts = [
            _part("lower bound", "", "solid", _INK.accent, lower / whole, lower),
            _part("headroom", "", "solid", _INK.grid, max(0.0, headroom) / whole, headroom),
        ]
    return {"missing": missing_ceilings(analysis) if analysis.operators else None, "parts": parts}


def _division(analysis: Analysis) -> dict[str, Any]:
    rows = division_rows(analysis)
    times = column_scale([row.time_s for row in rows], "s")
    return {
        "title": division_title(analysis),
        "columns": [("part", ""), ("time", times.unit), ("share", "%"), ("", "")],
        "rows": [
            {"share": row.share, "cells": [row.name, times.text(row.time_s), f"{row.share * 100:.1f}", row.meaning]} for row in rows
        ],
        "sentences": input_sentences(analysis),
    }


def _operators(analysis: Analysis) -> dict[str, Any]:
    judged, whole = operators_summary(analysis), step_time(analysis) or math.nan
    everything = table_rows(analysis)
    rows = everything[:_OPERATORS]
    time_s = table_time(analysis, everything)
    times, rates = column_scale([one.row.time_s for one in rows], "s"), column_scale([one.row.flop_per_s for one in rows], "FLOP/s")
    gains = column_scale([one.row.headroom_s for one in rows], "s")
    longest = max((one.row.time_s for one in rows), default=0.0) or 1.0
    most = max((one.row.headroom_s or 0.0 for one in rows), default=0.0) or 1.0
    total_gain = gains.text(judged.headroom_s) if judged.is_judged else "–"
    letters = ", ".join(f"{bound_style(name).letter}\u00a0{name}" for name in sorted({one.bound for one in rows}))
    basis = "per step" if analysis.basis.per == "step" else "for the whole trace"
    return {
        "missing": missing_operators(analysis),
        "caption": f"{len(rows)} of {len(everything)} operators, {table_order(everything)}, times {basis}. Bound: {letters}.",
        "columns": [
            ("time", "%"), ("operator", ""), ("module", ""), ("shapes", ""), ("calls", ""), ("time", times.unit), ("rate", rates.unit),
            ("intensity", "FLOP/byte"), ("eff.", "%"), ("bound", ""), ("headroom", gains.unit),
        ],
        "rows": [
            {
                "share": row.time_s / longest,
                "headroom": (row.headroom_s or 0.0) / most,
                "colour": category_colour(row.category),
                "warned": bool(warning(row)),
                "cells": [
                    f"{row.time_s / whole * 100:.1f}", shorten_name(operator_name(row), 26), shorten_path(module_text(one), 26),
                    shorten_shapes(row.shapes, 18), f"{row.calls:.4g}", times.text(row.time_s), rates.text(row.flop_per_s),
                    "–" if row.intensity_flop_per_byte is None else significant(row.intensity_flop_per_byte),
                    efficiency_text(row.efficiency), bound_style(one.bound).letter, gains.text(row.headroom_s),
                ],
            }
            for one in rows
            for row in (one.row,)
        ],
        "total": [
            f"{time_s / whole * 100:.1f}", f"all {len(everything)}", "", "", "",
            times.text(time_s), "", "", efficiency_text(judged.efficiency), "", total_gain,
        ],
        "flags": [flag_sentence(one) for one in flagged_rows(analysis)[:_FLAGS]],
    }  # fmt: skip


def _modules(analysis: Analysis) -> dict[str, Any]:
    # The longest ones, in the order of the model: a module under its parent.
    kept = sorted(analysis.modules, key=lambda row: -row.time_s)[:_MODULES]
    rows = [row for row in analysis.modules if row in kept]
    times, flops = column_scale([row.time_s for row in rows], "s"), column_scale([float(row.flops) for row in rows], "FLOP")
    gains = column_scale([row.headroom_s for row in rows], "s")
    whole = step_time(analysis) or math.nan
    longest = max((row.time_s for row in rows), default=0.0) or 1.0
    most = max((row.headroom_s or 0.0 for row in rows), default=0.0) or 1.0
    return {
        "missing": None if rows else "No modules: this trace does not say which module an operator belongs to.",
        "caption": f"The {len(rows)} longest of {len(analysis.modules)} modules, each with everything below it.",
        "columns": [
            ("time", "%"), ("module", ""), ("class", ""), ("calls", ""), ("time", times.unit), ("work", flops.unit), ("eff.", "%"),
            ("headroom", gains.unit),
        ],
        "rows": [
            {
                "share": row.time_s / longest,
                "headroom": (row.headroom_s or 0.0) / most,
                "depth": min(row.depth, 6),
                "cells": [
                    f"{row.time_s / whole * 100:.1f}", shorten_path(row.path, 52) or "(the model)", shorten_name(row.type, 26),
                    f"{row.calls:.4g}", times.text(row.time_s), flops.text(float(row.flops)), efficiency_text(row.efficiency),
                    gains.text(row.headroom_s),
                ],
            }
            for row in rows
        ],
    }  # fmt: skip


def _steps(analysis: Analysis) -> dict[str, Any]:
    steps = analysis.steps
    svg, caption = None, ""
    if steps is not None and steps.durations_s:
        svg = as_svg(steps_figure(analysis, width_in=6.85, height_in=1.6, family=SERIF), _FACE)
        slowest = steps.p90_s / steps.median_s - 1 if steps.median_s > 0 else 0.0
        caption = f"The slowest tenth of the steps takes at least {percent(slowest)} longer than the median"
        if steps.ci95_s is not None and steps.median_s > 0:
            caption += f", which is known to ±{percent((steps.ci95_s[1] - steps.ci95_s[0]) / 2 / steps.median_s)}"
        caption += "."
    return {"svg": svg, "caption": caption, "sentences": (*device_sentences(analysis), *steps_sentences(analysis))}


def _usage(analysis: Analysis) -> dict[str, Any]:
    table, timeline = usage_table(analysis), usage_timeline(analysis)
    figure = usage_figure(analysis, width_in=6.85, family=SERIF)
    return {
        "title": usage_title(analysis),
        "missing": missing_usage(analysis) or None,
        "columns": table.columns if table else (),
        "rows": table.rows if table else (),
        "svg": as_svg(figure, _FACE) if figure else None,
        "caption": timeline_caption(timeline) if timeline else "",
        "remarks": usage_remarks(analysis),
    }


def _environment(analysis: Analysis) -> list[tuple[str, str]]:
    workload, environment = analysis.workload, analysis.environment
    batch = None if workload.batch_size is None else f"{workload.batch_size} {workload.unit}"
    rows = [
        ("workload", f"{workload.name}, {workload.mode}, {workload.precision}"),
        ("batch", batch),
        ("image size", workload.image_size),
        ("memory format", "channels last" if workload.channels_last else None),
        ("compiled", "torch.compile" if workload.compiled else None),
        ("optimizer", workload.optimizer),
        ("device", f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device),
        ("device inferred from", environment.device_inferred),
        ("device memory", size_text(environment.device_memory_bytes)),
        ("processor", environment.cpu if environment.cpu != environment.device_name else None),
        ("cores", environment.cpu_cores),
        ("instruction set", environment.cpu_isa),
        ("threads", environment.threads),
        ("memory", size_text(environment.memory_bytes)),
        ("driver", environment.driver),
        ("CUDA, cuDNN", ", ".join(version for version in (environment.cuda, environment.cudnn) if version)),
        ("host", environment.host),
        ("system", environment.os),
        ("Python, PyTorch", ", ".join(version for version in (environment.python, environment.torch) if version)),
        ("torchvision", environment.torchvision),
        ("commit", environment.git_commit),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _coverage(analysis: Analysis) -> dict[str, Any]:
    rows = sorted((one for one in table_rows(analysis) if one.reason), key=lambda one: -one.row.time_s)[:_UNMODELLED]
    times = column_scale([one.row.time_s for one in rows], "s")
    return {
        "sentence": coverage_sentence(analysis) or "Nothing was traced, so there is no operator to count.",
        "columns": [("not modelled", ""), ("calls", ""), ("time", times.unit), ("reason", "")],
        "rows": [
            (shorten_name(operator_name(one.row), 60), f"{one.row.calls:.4g}", times.text(one.row.time_s), one.reason) for one in rows
        ],
    }


def _method(analysis: Analysis) -> Sequence[str]:
    steps = analysis.basis.steps
    basis = (
        f"Times and counts are per step, the mean over {steps} traced step{'s' if steps != 1 else ''}. "
        if analysis.basis.per == "step"
        else "Times and counts are for the whole trace. "
    )
    return (
        basis + "Step times come from a pass with the profiler off; the trace only divides them.",
        "FLOPs are counted from the formula of every operator: one for an addition or a multiplication, two for a fused "
        "multiply-add. Bytes are compulsory traffic: every distinct input byte read once, every output byte written once.",
        "The lower bound of a call is the longest of its FLOPs over the compute ceiling, the least time its bytes take to move, and "
        "the latency of an operator that does nothing. As many of the bytes as fit may come from the caches, nearest first, each at "
        "the rate of the level that holds it; the rest comes from the outermost memory. Efficiency is lower bound over time, "
        "headroom is time less lower bound. An efficiency above one means a wrong count, a wrong ceiling or an algorithm that does "
        "less than the formula; it is marked, not clipped.",
    )


def _ceilings(analysis: Analysis) -> dict[str, Any]:
    """The main roofs; the further ones of a full set, which judge nothing, would fill pages and are in the other reports."""
    further = sum(bool(roof.variant) for roof in analysis.ceilings)
    return {
        "missing": missing_ceilings(analysis),
        "columns": [("ceiling", ""), ("value", ""), ("±", "%"), ("source", ""), ("how", "")],
        "rows": [
            (
                ceiling_name(roof), si(roof.value, roof.unit), "–" if roof.spread is None else f"{roof.spread * 100:.1f}",
                source_and_age(roof, analysis.created),
                "; ".join(text for text in (_accumulates(roof), roof.source.detail, conditions_words(roof.conditions)) if text),
            )
            for roof in roof_order(analysis.ceilings)
            if not roof.variant
        ],
        "note": f"{further} further roofs, which judge no operator, are in report.html and analysis.json." if further else "",
    }  # fmt: skip


def _accumulates(roof: Ceiling) -> str:
    return f"accumulates in {roof.accumulate}" if roof.accumulate and roof.accumulate != roof.precision else ""
