"""Recommendations of a run, the gain predicted for each change of its options, and what was measured when
they were tried."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rooflines.reports.document import (
    Cell,
    Column,
    Findings,
    Page,
    Paragraph,
    Recommendation,
    Row,
    Section,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.words import sentences
from rooflines.reports.words.sentences import suggested
from rooflines.roofline.analysis import Analysis, Finding
from rooflines.roofline.predict.options import OPTIONS
from rooflines.roofline.predict.trials import Speedup, Trial, Trials, helped, outcome
from rooflines.units import counted, interval, percent, significant

# Where one thing to do ends and the next begins, outside of parentheses.
_STEPS = re.compile(r"; (?:then )?(?![^(]*\))")
_PREDICTED = Column("predicted", "×", "figures", help="throughput as a multiple of the run's")


def page(analysis: Analysis, predicted: Sequence[Trial] = (), trials: Trials | None = None) -> Page:
    """Return the page of ``rooflines advise``: the recommendations, and what was predicted or tried."""
    tried = (
        trials_section(trials) if trials is not None else predictions_section(predicted, analysis.findings)
    )
    return Page(
        kind="advice",
        name=f"Advice for {analysis.workload.name}",
        title=sentences.subject(analysis),
        created=trials.created if trials is not None else analysis.created,
        rooflines=analysis.environment.rooflines or "",
        verdict=sentences.headline(analysis),
        sections=sections_of(findings_section(analysis), tried),
    )


def findings_section(analysis: Analysis) -> Section:
    """The recommendations, each with what it could save at most."""
    none = sentences.missing_findings(analysis)
    found = recommended(analysis.findings, none, analysis.whole_s, sentences.per(analysis), analysis.command)
    missing = sentences.missing_ceilings(analysis) if analysis.operators else None
    return section(
        "findings",
        "Recommendations",
        found,
        *said([sentences.certainty_sentence(analysis)], "note"),
        *said([sentences.chain_sentence(analysis)], "note"),
        *said([missing or ""], "absent"),
        folded=said([sentences.settled_sentence(analysis)]),
        fold="What needs no work",
        columns=5,
    )


def recommended(
    findings: Sequence[Finding], none: str, whole_s: float, per: str, command: str = ""
) -> Findings | Paragraph:
    """``findings`` with what each saves of the ``whole_s`` seconds ``per`` (``a step``), or the sentence that
    there is ``none``."""
    items = tuple(
        Recommendation(
            title=finding.title,
            saves=sentences.saving(finding, whole_s, per),
            share=max(0.0, finding.gain_s / whole_s) if whole_s > 0 else 0.0,
            is_limit=finding.alone_s is None,
            evidence=finding.evidence,
            steps=_steps(suggested(finding, command)),
        )
        for finding in findings
    )
    return Findings(items=items) if items else Paragraph(none, "absent", "always")


def _steps(suggestion: str) -> tuple[str, ...]:
    """The steps of a suggestion, in order; a command is one step, even with semicolons in its arguments."""
    parts = [suggestion] if suggestion.startswith("rooflines ") else _STEPS.split(suggestion)
    return tuple(re.sub(r"^or (else )?", "instead: ", part) for part in parts if part)


def predictions_section(predicted: Sequence[Trial], findings: Sequence[Finding]) -> Section:
    """The changes of the run's options that can be tried, each with its prediction and the reason: those that
    ``findings`` suggest first, in their order."""
    numbered = [(_suggesting(trial, findings), trial) for trial in predicted]
    rows = [
        (
            ", ".join(map(str, numbers)),
            trial.change.label,
            trial.change.kind,
            trial.predicted,
            trial.prediction.reason if trial.prediction else "no prediction",
        )
        for numbers, trial in sorted(numbered, key=lambda one: one[0] or [len(findings) + 1])
    ]
    columns = (
        Column("advice", format="text", help="the recommendations that suggest it"),
        Column("change", format="text", least=18),
        Column("kind", format="text", priority=2),
        _PREDICTED,
        Column("reason", format="text", least=32, quiet=True),
    )
    note = (
        "Predicted throughput as a multiple of this run's; a recommendation that suggests an "
        "option counts only what its own operators "
        "save by it. rooflines advise RUN --try measures it."
    )
    caption = "Changes of the options and their predicted gain"
    shown = table("predictions", columns, rows, caption, note=note, show="always") if rows else None
    return section("predictions", "Changes that can be tried", shown)


def _suggesting(trial: Trial, findings: Sequence[Finding]) -> list[int]:
    """The numbers of the findings that suggest a change."""
    in_code = {option.kind: option.in_code for option in OPTIONS if option.in_code}.get(trial.change.kind)
    return [
        number
        for number, finding in enumerate(findings, 1)
        if (finding.option, finding.value) in trial.change.options.items() or finding.suggestion == in_code
    ]


def trials_section(trials: Trials) -> Section:
    """What was tried: predicted beside measured throughput, the error of the outputs, and the best
    combination."""
    columns = (
        Column("change", format="text", least=18),
        _PREDICTED,
        Column("measured", "×", "figures", help="median of the rounds"),
        Column("95 % interval", format="given"),
        Column("result", format="text", least=13),
        Column("error", help="difference of the outputs from fp32", key="output_error"),
        Column("reason", format="text", least=40, quiet=True, show="full"),
    )
    note = (
        "Throughput as a multiple of the run as it was. Result: as predicted is a measured gain "
        "between half and twice the predicted "
        "one, in logarithms; unclear is an interval that contains both no gain and the predicted "
        "one, or fewer than three rounds."
    )
    caption = "Changes of the options: predicted and measured throughput"
    return section(
        "trials",
        "Advice tried",
        None
        if trials.complete
        else Paragraph("Interrupted: not every round was measured.", "alert", "always"),
        Paragraph(_best(trials), show="always"),
        table("trials", columns, map(_row, trials.every), caption, note=note, show="always"),
        *said(trials.notes, "alert"),
        remark=counted(trials.rounds, "round")
        + (", every other one in the opposite order" if trials.rounds > 1 else ""),
    )


def _row(trial: Trial) -> Row:
    found, error = trial.speedup, trial.output_error
    same = (
        f", same class {percent(error.same_class)}"
        if error is not None and error.same_class is not None
        else ""
    )
    reason = trial.reason or (trial.prediction.reason if trial.prediction is not None else "")
    return Row(
        (
            trial.change.label,
            trial.predicted,
            trial.gain or None,
            _interval(found),
            Cell(value=outcome(trial), hover=reason),
            Cell(value=error.relative, text=f"{error.relative:.1e}{same}") if error is not None else None,
            reason,
        ),
        muted=not helped(trial),
        detail=(Paragraph(trial.reason, "note", "always"),) if trial.reason is not None else (),
    )


def _interval(found: Speedup | None) -> str | None:
    return interval(found.low, found.high) or None if found is not None else None


def _best(trials: Trials) -> str:
    """The best combination, or the best single change where it was not beaten."""
    best = max(filter(helped, trials.every), key=lambda trial: trial.gain, default=None)
    if best is None and not trials.complete:
        return "No gain is known yet: that needs the interval of three rounds or more."
    if best is None:
        return "No change is known to help: no interval of a measured gain lies above 1."
    return (
        f"Best: {best.change.label}, {significant(best.gain)} × ({_interval(best.speedup)}) the "
        "throughput of the run."
    )
