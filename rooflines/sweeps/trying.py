"""Try the advice for a run: which options may be changed, and each change measured in turn with the run as it
was."""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from ctypes.util import find_library
from datetime import datetime, timezone
from pathlib import Path

from rooflines.arguments import arg
from rooflines.errors import Interrupted, UsageError
from rooflines.kernels.micro.page_fault import page_s
from rooflines.pipeline.command import default_command
from rooflines.profiler.directory import default_directory
from rooflines.profiler.options import OptionValue
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import ResultError, Run
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.step.interference import shared_by
from rooflines.roofline.predict.change import (
    HUGE_PAGES,
    Change,
    PageCosts,
    PredictedStep,
    Prediction,
    best_split,
    predict,
)
from rooflines.roofline.predict.trials import TRIALS_FILE, WORTH, Speedup, Trial, Trials, helped
from rooflines.sweeps.points import hash_of, point_id
from rooflines.sweeps.records import PointResult, SweepPoint
from rooflines.sweeps.results import estimate, read_results
from rooflines.sweeps.run import load_sweep, run_sweep, write_record
from rooflines.units import counted

ROUNDS = 4
COMBINATION = "combination"
_CEILINGS = "ceilings.json"
# Memory that the C library returns to the system only when 8 GB of it are free.
_KEPT = {"MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_MMAP_THRESHOLD_": "8000000000"}
# The kinds whose prediction asks what new memory costs.
_WITH_PAGES = ("allocator", "precision")
_ALLOCATORS = ("jemalloc", "tcmalloc", "tcmalloc_minimal")

Predicted = tuple[Change, Prediction | None]


def check_repeatable(run: Run) -> None:
    """Raise UsageError for a run whose options rooflines cannot change."""
    facts = run.facts
    if not facts.settings.options:
        what = "a module" if facts.workload.source == "model" else f"a {facts.workload.source}"
        raise UsageError(
            f"the advice for {str(run.directory)!r} cannot be tried: it is a run of {what}, which "
            "rooflines cannot repeat.",
            hint="Only runs of a named model or a factory can be repeated: rooflines profile --model NAME",
        )
    if facts.ceilings is None or facts.steps is None:
        raise UsageError(
            f"the advice for {str(run.directory)!r} cannot be tried: the run is not complete.",
            hint="Record it again with a trace.",
        )


def changes_of(run: Run, analysis: Analysis) -> tuple[Change, ...]:
    """Return the changes of the options of ``run`` that its device and workload allow."""
    given, workload, environment = run.facts.settings.options, analysis.workload, analysis.environment
    cuda, training = environment.device.startswith("cuda"), workload.mode == "training"
    found: list[Change] = []
    if workload.precision in ("fp32", "tf32"):
        found += [
            Change(kind="precision", label=name, options={"precision": name}) for name in ("amp-bf16", "bf16")
        ]
    if not workload.channels_last and any(row.category == "convolution" for row in analysis.operators):
        found.append(Change(kind="channels-last", label="channels last", options={"channels_last": True}))
    if not analysis.compiled and not workload.compiled:
        modes = ("on", "reduce-overhead") if cuda else ("on",)
        found += [
            Change(
                kind="compile",
                label="compiled" if mode == "on" else f"compiled ({mode})",
                options={"compile": mode},
            )
            for mode in modes
        ]
    threads, cores = environment.threads, environment.cpu_cores
    if environment.device.startswith("cpu") and threads and cores and cores > 1:
        number = cores if threads != cores else cores // 2
        found.append(
            Change(
                kind="threads",
                label=f"{number} thread{'' if number == 1 else 's'}",
                options={"threads": number},
            )
        )
    if workload.batch_size is not None:
        size = 2 * workload.batch_size
        found.append(Change(kind="batch-size", label=f"batch {size}", options={"batch_size": size}))
    if training and "," not in (name := str(given.get("optimizer", "sgd"))):
        found += [
            Change(kind="optimizer", label=f"{name}, {how}", options={"optimizer": f"{name},{how}"})
            for how in (("fused", "foreach") if cuda else ("fused",))
        ]
    if "data" in given:
        found += _of_loader(given, analysis, cuda)
    if cuda:
        if not workload.cuda_graph:
            found.append(Change(kind="cuda-graphs", label="CUDA graph", options={"cuda_graphs": True}))
        segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        found.append(Change(kind="allocator", label="expandable segments", environment=segments))
    elif environment.device.startswith("cpu"):
        found += allocators()
    return tuple(found)


def _of_loader(given: Mapping[str, OptionValue], analysis: Analysis, cuda: bool) -> list[Change]:
    """As many workers as deliver the batches as fast as the step takes them, and processors left for them;
    and pinned memory."""
    now, (workers, threads) = int(given.get("data_workers", 0)), best_split(PredictedStep(analysis))
    found = []
    if (workers, threads) != (now, analysis.environment.threads) and (threads is not None or workers != now):
        options: dict[str, OptionValue] = {
            "data_workers": workers,
            **({"threads": threads} if threads is not None else {}),
        }
        labels = [
            counted(workers, "loader worker"),
            *([counted(threads, "thread")] if threads is not None else []),
        ]
        found.append(Change(kind="data-workers", label=" · ".join(labels), options=options))
    if cuda and not given.get("pin_memory"):
        found.append(Change(kind="pin-memory", label="pinned memory", options={"pin_memory": True}))
    return found


def allocators() -> list[Change]:
    """Return the settings of the C library's allocator, huge pages, and the other allocators that are
    installed (Linux)."""
    if platform.system() != "Linux":
        return []
    found = []
    if platform.libc_ver()[0] == "glibc":
        found.append(Change(kind="allocator", label="glibc keeps memory", environment=_KEPT))
    switch = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if switch.is_file() and "[madvise]" in switch.read_text():
        found.append(Change(kind="allocator", label="huge pages", environment={HUGE_PAGES: "1"}))
    libraries = {name: path for name in _ALLOCATORS if (path := find_library(name)) is not None}
    return found + [
        Change(kind="allocator", label=name, environment={"LD_PRELOAD": path})
        for name, path in libraries.items()
    ]


def page_costs() -> PageCosts | None:
    """Measure what new memory costs here; None where the system does not let a process choose the kind of
    pages."""
    page = page_s()
    return PageCosts(page, page_s(huge=True)) if page is not None else None


def predicted_changes(run: Run, analysis: Analysis) -> tuple[Predicted, ...]:
    """Return the changes of ``run`` with their predictions, best first; those without a prediction last."""
    changes = changes_of(run, analysis)
    costs = (
        page_costs()
        if any(one.kind in _WITH_PAGES for one in changes) and analysis.page_faults is not None
        else None
    )
    found = [(change, predict(change, analysis, costs)) for change in changes]
    return tuple(sorted(found, key=lambda one: -one[1].speedup if one[1] is not None else 0.0))


def worth_trying(found: Sequence[Predicted], only: Collection[str] = ()) -> tuple[Predicted, ...]:
    """Return the changes to try: those of the kinds in ``only``, without it all but those that are predicted
    not to help."""
    if only:
        return tuple(one for one in found if one[0].kind in only)
    return tuple(one for one in found if one[1] is None or one[1].speedup >= 1 + WORTH)


def try_changes(
    run: Run,
    chosen: Sequence[Predicted],
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
    interrupted: Interrupted | None = None
    trials: tuple[Trial, ...] = ()
    combination: Trial | None = None

    def measure(changes: Sequence[Predicted], folder: Path) -> tuple[Trial, ...]:
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
    first = [
        one
        for (_, number), one in read_results(directory, load_sweep(directory)).items()
        if number == 0 and one.values
    ]
    shared = shared_by([one.values.get("others_cores") for one in first], "runs of the first round")
    made = Trials(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
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


def combine(trials: Sequence[Trial]) -> Predicted | None:
    """Return the best change of each kind that helped, as one change; None for fewer than two kinds.

    Its prediction is the product of theirs: they are taken as independent.
    """
    best: dict[str, Trial] = {}
    for trial in trials:
        if helped(trial) and _gain(trial) > _gain(best.get(trial.change.kind)):
            best[trial.change.kind] = trial
    if len(best) < 2:
        return None
    parts = sorted(best.values(), key=lambda trial: -_gain(trial))
    change = Change(
        kind="combination",
        label=" + ".join(part.change.label for part in parts),
        options={name: value for part in parts for name, value in part.change.options.items()},
        environment={name: value for part in parts for name, value in part.change.environment.items()},
    )
    predictions = [part.prediction for part in parts if part.prediction is not None]
    if len(predictions) < len(parts):
        return change, None
    product = math.prod(one.speedup for one in predictions)
    return change, Prediction(
        speedup=product, reason="the product of the single predictions, as if they were independent"
    )


def _gain(trial: Trial | None) -> float:
    return trial.speedup.value if trial is not None and trial.speedup is not None else 0.0


def _points(
    chosen: Sequence[Predicted], settings: Mapping[str, OptionValue], function: str
) -> tuple[SweepPoint, ...]:
    """The run as it was, and each change of it."""
    return tuple(
        SweepPoint(
            id=point_id(label, hash_of([sorted(options.items()), sorted(variables.items())])),
            label=label,
            function=function,
            options=options,
            environment=variables,
        )
        for label, options, variables in (
            ("as it was", dict(settings), {}),
            *((change.label, {**settings, **change.options}, change.environment) for change, _ in chosen),
        )
    )


def _trials(chosen: Sequence[Predicted], points: Sequence[SweepPoint], directory: Path) -> tuple[Trial, ...]:
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
        trial_of(
            change,
            prediction,
            [(results.get((base.id, number)), results.get((point.id, number))) for number in numbers],
        )
        for point, (change, prediction) in zip(changed, chosen, strict=True)
    )


def trial_of(
    change: Change,
    prediction: Prediction | None,
    rounds: Sequence[tuple[PointResult | None, PointResult | None]],
) -> Trial:
    """Return the trial of ``change`` from its ``rounds``, each the results of the run as it was and of the
    changed one."""
    ratios = [
        then_rate / now_rate
        for now, then in rounds
        if (now_rate := _rate(now)) is not None and (then_rate := _rate(then)) is not None
    ]
    changed = [then for _, then in rounds if then is not None]
    values = next((one.values for one in changed if "output_error" in one.values), None)
    found = estimate(ratios) if ratios else None
    return Trial(
        change=change,
        prediction=prediction,
        speedup=Speedup(value=found.value, low=found.low, high=found.high) if found is not None else None,
        output_error=ResultError(relative=values["output_error"], same_class=values.get("same_class"))
        if values is not None
        else None,
        reason=next((one.reason for one in changed if one.reason), None),
    )


def _rate(result: PointResult | None) -> float | None:
    """Samples a second, steps a second where the number of samples is unknown; None for a round that did not
    run."""
    if result is None or "step_s" not in result.values:
        return None
    return result.values.get("samples_per_s", 1 / result.values["step_s"])
