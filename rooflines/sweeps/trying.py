"""Try the advice for a run: each change of its options measured in turn with the run as it was."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import asdict, replace

from rooflines.arguments import arg
from rooflines.errors import Interrupted, UsageError
from rooflines.kernels.micro.page_fault import page_s
from rooflines.pipeline.command import default_command
from rooflines.profiler.directory import default_directory, timestamp
from rooflines.profiler.options import OptionValue
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import ResultError, Run
from rooflines.roofline.judge.judge import Judged
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.roofline.predict.change import Change, PageCosts, Prediction
from rooflines.roofline.predict.options import OPTIONS, Repeatable, predict
from rooflines.roofline.predict.trials import TRIALS_FILE, WORTH, Speedup, Trial, Trials, helped
from rooflines.roofline.replay.replays import Replays, replays_of
from rooflines.sweeps.points import hash_of, point_id
from rooflines.sweeps.records import PointResult, SweepPoint
from rooflines.sweeps.results import estimate, read_results
from rooflines.sweeps.run import load_sweep, run_sweep, write_record

ROUNDS = 4
COMBINATION = "combination"
_CEILINGS = "ceilings.json"
# The kinds whose prediction asks what new memory costs.
_WITH_PAGES = ("allocator", "precision")
# The results of the run as it was and of the changed one, by round.
_Rounds: TypeAlias = Sequence[tuple[PointResult | None, PointResult | None]]
# What runs a round of a script.
_SCRIPT_POINT = "rooflines.sweeps.script_point:run_script_point"


def check_repeatable(run: Run) -> None:
    """Raise UsageError for a run whose options rooflines cannot change."""
    facts = run.facts
    if not facts.settings.options and not _is_script(run):
        what = "a module" if facts.workload.source == "model" else f"a {facts.workload.source}"
        raise UsageError(
            f"the advice for {str(run.directory)!r} cannot be tried: it is a run of {what}, which "
            "rooflines cannot repeat.",
            hint="Runs of a script, a named model or a factory can: rooflines profile train.py",
        )
    if facts.ceilings is None or facts.steps is None:
        raise UsageError(
            f"the advice for {str(run.directory)!r} cannot be tried: the run is not complete.",
            hint="Record it again with a trace.",
        )


def _is_script(run: Run) -> bool:
    """Whether the run is that of a script whose command is known."""
    command = run.facts.settings.command
    return run.facts.workload.source == "script" and command.startswith("rooflines profile ")


def page_costs() -> PageCosts | None:
    """Measure what new memory costs here; None where the system does not let a process choose the kind of
    pages."""
    page = page_s()
    return PageCosts(page, page_s(huge=True)) if page is not None else None


def predicted_changes(run: Run, judged: Judged) -> tuple[Trial, ...]:
    """Return the changes of ``run`` with their predictions, best first; those without a prediction last."""
    analysis, found = judged.analysis, replays_of(judged)
    replays = found if isinstance(found, Replays) else None
    if not run.facts.settings.options and not _is_script(run):
        return ()
    repeatable = Repeatable(analysis, run.facts.settings.options)
    changes = [change for option in OPTIONS for change in option.changes(repeatable)]
    costs = (
        page_costs()
        if any(one.kind in _WITH_PAGES for one in changes) and analysis.page_faults is not None
        else None
    )
    trials = [Trial(change=one, prediction=predict(one, analysis, costs, replays)) for one in changes]
    return tuple(sorted(trials, key=lambda trial: -(trial.predicted or 0.0)))


def worth_trying(found: Sequence[Trial], only: Collection[str] = ()) -> tuple[Trial, ...]:
    """Return the changes to try: those of the kinds in ``only``, without it all but those that are predicted
    not to help."""
    if only:
        return tuple(trial for trial in found if trial.change.kind in only)
    return tuple(trial for trial in found if trial.predicted is None or trial.predicted >= 1 + WORTH)


def try_changes(
    run: Run,
    chosen: Sequence[Trial],
    *,
    rounds: int = ROUNDS,
    output: Path | None = None,
    progress: Progress | None = None,
    function: str = "",
) -> Trials:
    """Measure ``chosen`` in rounds with the run as it was, then the best combination; stored in the run's
    directory.

    ``output`` is the directory of the runs; an unfinished one is continued. ``function`` is what runs a
    point. Raises Interrupted on Ctrl-C after what was measured has been stored.
    """
    check_repeatable(run)
    if not chosen:
        raise UsageError(
            "there is nothing to try: no change is predicted to help.",
            hint=f"Name kinds to try them anyway: {arg('only', 'compile')}",
        )
    progress = progress or Silent()
    directory = output or default_directory(run.facts.workload.name, "advise")
    stored = run.directory / _CEILINGS
    write_record(stored, run.facts.ceilings)
    settings = {**run.facts.settings.options, "ceilings": str(stored.absolute())}
    if _is_script(run):
        settings["command"], function = run.facts.settings.command, function or _SCRIPT_POINT
    interrupted: Interrupted | None = None
    trials: tuple[Trial, ...] = ()
    combination: Trial | None = None

    def measure(changes: Sequence[Trial], folder: Path) -> tuple[Trial, ...]:
        points = _points(changes, settings, function)
        run_sweep("advise", points, repeats=rounds, output=folder, progress=progress)
        return _trials(changes, points, folder)

    try:
        trials = measure(chosen, directory)
        joined = combine(trials)
        if joined is not None:
            (combination,) = measure([joined], directory / COMBINATION)
    except Interrupted as error:
        interrupted = error
        trials = trials or _trials(chosen, _points(chosen, settings, function), directory)
    # What disturbed the runs of the first round, which are analyzed.
    others = [
        one.values.get("others_cores")
        for (_, number), one in read_results(directory, load_sweep(directory)).items()
        if number == 0 and one.values
    ]
    shared = shared_by(others, "runs of the first round")
    made = Trials(
        created=timestamp(),
        command=default_command(),
        directory=str(directory),
        machine=run.facts.environment.device_name,
        rounds=rounds,
        complete=interrupted is None,
        trials=trials,
        combination=combination,
        notes=(shared[1],) if shared is not None else (),
    )
    write_record(run.directory / TRIALS_FILE, made)
    if interrupted is not None:
        raise Interrupted(
            f"interrupted; what was measured is in {str(run.directory / TRIALS_FILE)!r}.",
            hint=f"The same command with {arg('output', str(directory))} continues it.",
        ) from None
    return made


def combine(trials: Sequence[Trial]) -> Trial | None:
    """Return the best change of each kind that helped, as one change; None for fewer than two kinds.

    Its prediction is the product of theirs: they are taken as independent.
    """
    best: dict[str, Trial] = {}
    for trial in sorted(filter(helped, trials), key=lambda trial: -trial.gain):
        best.setdefault(trial.change.kind, trial)
    if len(best) < 2:
        return None
    changes = [trial.change for trial in best.values()]
    change = Change(
        kind="combination",
        label=" + ".join(one.label for one in changes),
        options={name: value for one in changes for name, value in one.options.items()},
        environment={name: value for one in changes for name, value in one.environment.items()},
    )
    speedups = [trial.predicted for trial in best.values() if trial.predicted is not None]
    reason = "the product of the single predictions, as if they were independent"
    product = Prediction(speedup=math.prod(speedups), reason=reason) if len(speedups) == len(best) else None
    return Trial(change=change, prediction=product)


def _points(
    chosen: Sequence[Trial], settings: Mapping[str, OptionValue], function: str
) -> tuple[SweepPoint, ...]:
    """The run as it was, and each change of it."""
    points = []
    for change in (Change(kind="", label="as it was"), *(trial.change for trial in chosen)):
        options = {**settings, **change.options}
        hashed = hash_of([sorted(options.items()), sorted(change.environment.items())])
        points.append(
            SweepPoint(
                id=point_id(change.label, hashed),
                label=change.label,
                function=function,
                options=options,
                environment=change.environment,
            )
        )
    return tuple(points)


def _trials(chosen: Sequence[Trial], points: Sequence[SweepPoint], directory: Path) -> tuple[Trial, ...]:
    """The trials in the results that there are; ``points`` are the run as it was and the changes
    ``chosen``."""
    sweep, (base, *changed) = load_sweep(directory), points
    results = read_results(directory, sweep)
    failed = next(
        (one.reason for (point, _), one in results.items() if point == base.id and one.reason), None
    )
    if failed is not None:
        raise UsageError(f"the run cannot be repeated: {failed}")
    numbers = range(sweep.repeats)
    return tuple(
        measured(
            trial, [(results.get((base.id, number)), results.get((point.id, number))) for number in numbers]
        )
        for point, trial in zip(changed, chosen, strict=True)
    )


def measured(trial: Trial, rounds: _Rounds) -> Trial:
    """Return ``trial`` with what its ``rounds`` measured, each the results of the run as it was and of the
    changed one."""
    rates = [
        (now_rate, then_rate)
        for now, then in rounds
        if (now_rate := _rate(now)) and (then_rate := _rate(then))
    ]
    changed = [then for _, then in rounds if then is not None]
    error = next((one.values for one in changed if "output_error" in one.values), None) or _of_results(rounds)
    return replace(
        trial,
        speedup=Speedup(**asdict(estimate([then / now for now, then in rates]))) if rates else None,
        output_error=ResultError(relative=error["output_error"], same_class=error.get("same_class"))
        if error
        else None,
        reason=next((one.reason for one in changed if one.reason), None),
    )


def _of_results(rounds: _Rounds) -> dict[str, float] | None:
    """By how much the first results of a script differ; None where they were not seen."""
    for now, then in rounds:
        if now is None or then is None:
            continue
        errors = [
            abs(then.values[name] / value - 1)
            for name, value in now.values.items()
            if name.startswith("result_") and name in then.values and value
        ]
        if errors:
            return {"output_error": max(errors)}
    return None


def _rate(result: PointResult | None) -> float | None:
    """Samples a second, steps a second where the number of samples is unknown; None for a round that did not
    run."""
    if result is None or "step_s" not in result.values:
        return None
    return result.values.get("samples_per_s", 1 / result.values["step_s"])
