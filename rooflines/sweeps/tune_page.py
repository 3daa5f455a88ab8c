"""The page of a search: the verdict, the best settings, how sure they are, what matters, and every trial."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, combinations, zip_longest

from rooflines._version import __version__
from rooflines.reports.charts.curves import Beam, Beams, Curves, CurveSeries
from rooflines.reports.charts.palette import SERIES_COLORS
from rooflines.reports.document import (
    Block,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.words.sentences import command_of
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.sweeps.page import choices_of, facts_of_rows
from rooflines.sweeps.records import SweepRow
from rooflines.sweeps.results import OBJECTIVES, Objective
from rooflines.sweeps.tune import DEFAULT_LABEL, Compared, Tuning
from rooflines.units import counted, percent, quantity, sentence, significant


def page(tuning: Tuning) -> Page:
    """Return the page of ``tuning``."""
    results = tuning.results
    machines = ", ".join(facts_of_rows(results, "device_name"))
    verdict, *said = sentences(tuning)
    return Page(
        kind="tune",
        name=tuning.name,
        title=f"{tuning.name} · {counted(len(tuning.trials), 'trial')} · {machines or 'nothing ran'}",
        created=tuning.created,
        rooflines=__version__,
        verdict=verdict,
        said=tuple(said),
        status=("interrupted", "the search was interrupted; the report covers the trials that ended.")
        if tuning.status == "interrupted"
        else shared_by([result.values.get("others_cores") for result in results], "trials"),
        sections=sections_of(
            _best(tuning),
            _pairs(tuning),
            _history(tuning),
            _importance(tuning),
            _fronts(tuning),
            section("trials", "Trials", trials_table(tuning)),
            _method(tuning),
        ),
    )


# --- sentences --------------------------------------------------------------------------------------------


def sentences(tuning: Tuning) -> list[str]:
    """Whether the best setting beats the default one and by how much, its command, and how many trials there
    were."""
    best = tuning.best
    if best is None:
        reason = next((trial.reason for trial in tuning.trials if trial.reason), "no trial has ended")
        return [f"No trial has a result: {reason}"]
    texts = [_verdict(tuning, best)]
    texts += [
        f"{compared.objective.capitalize()}: {change_text(compared)}." for compared in tuning.compared[1:]
    ]
    texts.append(f"Command: {command_of(best.point.kind, best.point.options)}")
    states = [trial.state for trial in tuning.trials]
    ended = [f"{counted(len(states), 'trial')} of {counted(len(tuning.rows), 'setting')}"]
    ended += [f"{states.count(name)} {name}" for name in ("failed", "pruned") if name in states]
    texts.append(f"{', '.join(ended)}.")
    return texts


def _verdict(tuning: Tuning, best: SweepRow) -> str:
    goal = tuning.goals[0]
    value = value_text(goal, best.value(goal.value) or 0.0)
    if best.point.id == tuning.default.id:
        return f"No setting beats the default one: it has the best {goal.name} of all trials ({value})."
    if not tuning.compared or tuning.compared[0].beats is None:
        failures = (row.reason for row in tuning.rows if row.point.id == tuning.default.id and row.reason)
        why = "it was not compared with the default setting"
        if (reason := next(failures, None)) is not None:
            why = f"the default setting failed: {reason}"
        return f"Best {goal.name}: {best.point.label} with {value}; {why.rstrip('.')}."
    first = tuning.compared[0]
    if first.beats:
        return f"{best.point.label} beats the default setting: {goal.name} {change_text(first)}."
    return (
        f"No setting is sure to beat the default one. The best of the trials, {best.point.label}: "
        f"{goal.name} {change_text(first)}."
    )


def change_text(compared: Compared) -> str:
    """``3.21 × that of the default (95 % interval 3.05 to 3.38, 5 pairs)``."""
    pairs = counted(len(compared.pairs), "pair")
    if (found := compared.ratio) is not None:
        text = f"{significant(found.value)} × that of the default"
        ends = [significant(end or 0.0) for end in (found.low, found.high)]
    elif (found := compared.difference) is not None:
        text = f"{found.value * 100:+.1f} percentage points from the default"
        ends = [f"{(end or 0.0) * 100:.1f}" for end in (found.low, found.high)]
    else:
        return f"too few pairs to compare ({len(compared.pairs)})"
    return f"{text} (95 % interval {' to '.join(ends)}, {pairs})"


def value_text(goal: Objective, value: float) -> str:
    """A value of an objective with its unit."""
    if goal.fraction:
        return percent(value, 1)
    return f"{significant(value)} samples/s" if goal.unit == "1/s" else quantity(value, goal.unit)


# --- sections ---------------------------------------------------------------------------------------------


def _columns(goals: Sequence[Objective]) -> list[Column]:
    return [Column(goal.name, goal.unit, goal.format, key=goal.value) for goal in goals]


def _best(tuning: Tuning) -> Section:
    """The best settings, and the command of each."""
    goal, several = tuning.goals[0], len(tuning.goals) > 1
    shown = tuning.front
    if not shown:
        return section("best", "Best settings")
    if not several:
        rows = [row for row in tuning.rows if row.reason is None and row.estimates]
        shown = sorted(rows, key=lambda row: row.value(goal.value) or 0.0, reverse=goal.more)[:5]
    lines = []
    for row in shown:
        values = (row.value(goal.value) for goal in tuning.goals)
        lines.append((row.point.label, *values, row.rounds, command_of(row.point.kind, row.point.options)))
    columns = (
        Column("setting", format="text", least=20),
        *_columns(tuning.goals),
        Column("trials", format="count", priority=2),
        Column("command", format="text", priority=1, least=30),
    )
    note = (
        "No setting beats these in all objectives."
        if several
        else "The five best settings. Values are medians of their trials."
    )
    found = table("best", columns, lines, note=note, show="always", brief=5)
    return section("best", "Pareto front" if several else "Best settings", found)


def _pairs(tuning: Tuning) -> Section:
    """Every pair of the best and the default setting."""
    best = tuning.best
    if not tuning.compared or best is None:
        return section("pairs", "Comparison with the default")
    columns: list[Column] = [Column("pair", format="count")]
    for compared in tuning.compared:
        goal = OBJECTIVES[compared.objective]
        columns += [
            Column(f"{goal.name}, {which}", goal.unit, goal.format, group=goal.name)
            for which in ("tuned", "default")
        ]
    pairs = zip_longest(*(compared.pairs for compared in tuning.compared), fillvalue=(None, None))
    lines = ((number, *chain(*values)) for number, values in enumerate(pairs, 1))
    result = Facts(
        rows=tuple((compared.objective, change_text(compared)) for compared in tuning.compared),
        kind="definitions",
    )
    other = " Each pair has another seed." if tuning.space.kind == "train" else ""
    note = f"Tuned is {best.point.label}. The two ran in turn, every other pair in the opposite order.{other}"
    return section("pairs", "Comparison with the default", result, table("pairs", columns, lines, note=note))


def _history(tuning: Tuning) -> Section:
    """Each objective by trial, and the best so far."""
    blocks: list[Block] = []
    for goal in tuning.goals:
        points = [
            (trial.number + 1, trial.values[goal.value])
            for trial in tuning.trials
            if goal.value in trial.values
        ]
        if len(points) < 2:
            continue
        xs, ys = zip(*points, strict=True)
        best = tuple(accumulate(ys, max if goal.more else min))
        series = (
            CurveSeries(name="each trial", color=SERIES_COLORS[1], x=xs, y=ys),
            CurveSeries(name="best so far", color=SERIES_COLORS[0], x=xs, y=best),
        )
        drawing = Curves(x_title="trial", y_title=goal.title, series=series, fraction=goal.fraction)
        blocks.append(
            Figure(
                name=f"history-{goal.name}", caption=f"{goal.name.capitalize()} by trial.", drawing=drawing
            )
        )
    return section("history", "History", *blocks)


def _importance(tuning: Tuning) -> Section:
    """The share of each option in each objective."""
    blocks: list[Block] = []
    for name, shares in tuning.importance.items():
        beams = tuple(
            Beam(
                label=option.replace("_", " "),
                value=share,
                text=percent(share),
                color=SERIES_COLORS[0],
            )
            for option, share in sorted(shares.items(), key=lambda pair: -pair[1])
        )
        caption = (
            f"Importance of the options for {name}: how much their values differ between the better "
            "half of the trials and all."
        )
        blocks.append(
            Figure(
                name=f"importance-{name}",
                caption=caption,
                drawing=Beams(x_title="share of importance", beams=beams),
            )
        )
    if blocks:
        few = "From few trials it is rough: it ranks options and does not measure their effect."
        blocks.append(Paragraph(f"Computed by Optuna with PED-ANOVA. {few}", "note"))
    return section("importance", "Importance of options", *blocks)


def _fronts(tuning: Tuning) -> Section:
    """Return every two objectives against each other."""
    blocks = []
    placed = [row for row in tuning.rows if row.reason is None]
    colors = {
        row.point.id: SERIES_COLORS[1] if row.point.id == tuning.default.id else SERIES_COLORS[0]
        for row in placed
    }
    for one, other in combinations(tuning.goals, 2):
        y, x = (other, one) if other.fraction else (one, other)
        drawing = choices_of(placed, x, y, colors)
        if len(drawing.choices) > 1:
            caption = (
                f"{y.name.capitalize()} and {x.name} of each setting. No setting beats those on the "
                "line in both."
            )
            blocks.append(Figure(name=f"pareto-{y.name}-{x.name}", caption=caption, drawing=drawing))
    return section("pareto", "Objectives against each other", *blocks)


def trials_table(tuning: Tuning) -> Table:
    """Every trial with its values, or the reason why it has none."""
    columns = (
        Column("trial", format="count"),
        Column("setting", format="text", least=24),
        *_columns(tuning.goals),
        Column("remark", format="text", least=20),
    )
    lines = []
    for trial in tuning.trials:
        remark = (trial.reason or "").partition(". ")[0] or ("" if trial.state == "complete" else trial.state)
        if trial.state == "pruned" and trial.result is not None:
            remark = f"pruned after {counted(int(trial.result.values['epochs']), 'epoch')}"
        cells = (
            trial.number + 1,
            trial.point.label,
            *(trial.values.get(goal.value) for goal in tuning.goals),
            remark,
        )
        lines.append(Row(cells, muted=trial.state != "complete"))
    note = "Numbers are those of the study; a number that is missing belongs to a trial that was interrupted."
    return table("trials", columns, lines, note=note, brief=0)


def _method(tuning: Tuning) -> Section:
    space = tuning.space
    rows = [(dimension.name.replace("_", " "), dimension.text) for dimension in space.dimensions]
    runs = "training" if space.kind == "train" else "profile"
    texts = [
        f"Each trial is a {runs} in its own process. Optuna's TPE sampler chooses the settings; "
        f"the first trial is the {DEFAULT_LABEL} "
        f"({command_of(tuning.default.kind, tuning.default.options)})."
    ]
    if tuning.objectives == ("accuracy",):
        texts.append(
            "A training whose accuracy is below the median of the others after the same epoch is "
            "stopped (pruned)."
        )
    statistic = "differences" if tuning.goals[0].fraction else "logarithms of the ratios"
    texts.append(
        "The trials choose the best setting; the comparison with the default uses other runs, so "
        "that luck in a trial does not count. "
        f"Intervals are Student's t of the {statistic} of the pairs."
    )
    texts += map(sentence, facts_of_rows(tuning.results, "data"))
    command = said(tuning.command, "code", "full")
    return section(
        "method", "Method", Facts(rows=tuple(rows), kind="definitions"), *map(Paragraph, texts), *command
    )
