"""Search options for the best values of one or several objectives with Optuna; each trial runs in its own
process.

The best setting and the default one are then run in turn, which shows how sure it is that one beats the
other.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.errors import DataError, Interrupted, OutputError, RooflinesError, UsageError
from rooflines.profiler.directory import create_directory, file_stem, read_facts
from rooflines.profiler.options import OptionValues
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.read.sources import shown
from rooflines.roofline.uncertainty import half_width
from rooflines.serial import read_json
from rooflines.sweeps.points import hash_of, label_of, options_of
from rooflines.sweeps.records import RESULT_FILE, MeasuredValue, PointResult, SweepPoint, SweepRow
from rooflines.sweeps.results import FEWEST, OBJECTIVES, Objective, pareto, row_of
from rooflines.sweeps.run import Task, Titled, run_task, store, write_record
from rooflines.sweeps.space import Space
from rooflines.units import counted

if TYPE_CHECKING:
    from optuna import Study

TUNE_SCHEMA = "rooflines.tune/1"
TUNE_FILE, STUDY_FILE, _LOCK_FILE = "tune.json", "study.db", ".lock"
DEFAULT_LABEL = "default setting"
# A process that has not reported to the storage for twice this time is taken for dead.
HEARTBEAT_S = 10
# Fewer completed trials say too little about the importance of options.
_FEWEST_TRIALS = 10
# The importance of an option is how much its values in this share of the trials, the best ones, differ from
# those in all. In simulated searches of 20 and 40 trials, half of them ranked options right far more often
# than a tenth or a quarter.
_BEST_SHARE = 0.5
# A first epoch says little about the last one, and a median needs a few trainings.
_FIRST_PRUNED_EPOCH, _FIRST_PRUNED_TRIAL = 2, 5

State = Literal["complete", "failed", "pruned", "running"]
# Rounds from 1 on trace no operators.
_UNTRACED = 1


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The tuned and the default setting in one objective."""

    objective: str
    #: (tuned, default).
    pairs: tuple[tuple[float, float], ...]
    #: Tuned over default: the mean of the logarithms with its 95 % interval (Student's t).
    ratio: MeasuredValue | None = None
    #: For shares (accuracy), in place of ``ratio``.
    difference: MeasuredValue | None = None
    #: Whether the interval is on the better side of no change; None for fewer than three pairs.
    beats: bool | None = None


class SearchTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial: its setting, its result, and the reason if it failed."""

    number: int
    point: SweepPoint
    state: State
    result: PointResult | None = None
    reason: str | None = None

    @property
    def values(self) -> dict[str, float]:
        """The values of its result; none of a trial that is not complete."""
        return self.result.values if self.result is not None and self.state == "complete" else {}


class Tuning(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A search: what it was asked, its trials, and the comparison of the best setting with the default
    one."""

    schema: str = TUNE_SCHEMA
    name: str
    created: str = ""
    command: str = ""
    space: Space
    objectives: tuple[str, ...]
    #: The number of trials asked for.
    budget: int = 20
    #: The number of pairs.
    repeats: int = 5
    #: What runs a trial, as in a ``SweepPoint``.
    function: str = ""
    status: Literal["running", "complete", "interrupted"] = "running"
    trials: tuple[SearchTrial, ...] = ()
    #: The share of each option in each objective.
    importance: dict[str, dict[str, float]] = {}
    compared: tuple[Compared, ...] = ()

    @property
    def study(self) -> str:
        """The name of the study in its storage; the same search has the same one on every machine."""
        return f"{file_stem(self.name)}-{hash_of([self.space, self.objectives, self.function])}"

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives."""
        return tuple(OBJECTIVES[name] for name in self.objectives)

    def point(self, setting: OptionValues) -> SweepPoint:
        """Return the point of a setting of the space."""
        options = self.space.options(setting)
        default = self.space.options({})
        label = DEFAULT_LABEL if options == default else label_of(setting, setting) or str(options["model"])
        identity = hash_of([self.space.kind, sorted(options.items())])
        return SweepPoint(
            id=identity, label=label, kind=self.space.kind, function=self.function, options=options
        )

    @cached_property
    def default(self) -> SweepPoint:
        """The point without the options that vary."""
        return self.point({})

    @property
    def results(self) -> list[PointResult]:
        """The results of the trials that have one."""
        return [trial.result for trial in self.trials if trial.result is not None]

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        """A row for each setting: trials of the same one are its rounds."""
        results: dict[str, tuple[SweepPoint, list[PointResult]]] = {}
        for trial in self.trials:
            if trial.state in ("complete", "failed"):
                result = trial.result or PointResult(point=trial.point.id, round=0, reason=trial.reason)
                results.setdefault(trial.point.id, (trial.point, []))[1].append(result)
        return tuple(row_of(point, found) for point, found in results.values())

    @property
    def front(self) -> list[SweepRow]:
        """The settings that no other beats in all objectives, the best in the first objective first."""
        goals = self.goals
        found = pareto(
            [row for row in self.rows if row.reason is None], {goal.value: goal.more for goal in goals}
        )
        return sorted(found, key=lambda row: row.value(goals[0].value) or 0.0, reverse=goals[0].more)

    @property
    def best(self) -> SweepRow | None:
        """The best setting in the first objective; None if no trial has completed."""
        return next(iter(self.front), None)


def run_tuning(
    tuning: Tuning, directory: Path, *, storage: str | None = None, progress: Progress | None = None
) -> Tuning:
    """Search, then run the best and the default setting in turn; returns the record, which is also in
    ``directory``.

    The study is in ``directory``, or in ``storage`` (a URL for SQLAlchemy). A study that is there already is
    continued, and processes that share it make ``budget`` trials together. Raises UsageError, and Interrupted
    on Ctrl-C, after the results so far were written.
    """
    check(tuning)
    progress = progress or Silent()
    tuning = _begun(tuning, directory)
    study = _open(tuning, directory, storage)
    try:
        _search(study, tuning, directory, progress)
        tuning = _with_trials(tuning, study)
        best, default = tuning.best, tuning.default
        if best is not None and best.point.id != default.id:
            with _locked(directory, "repeats"):
                pairs = run_in_turn(best.point, default, tuning.repeats, directory / "repeats", progress)
            tuning = replace(tuning, compared=tuple(compare(goal, pairs) for goal in tuning.goals))
    except KeyboardInterrupt:
        write_record(directory / TUNE_FILE, replace(_with_trials(tuning, study), status="interrupted"))
        raise Interrupted(
            f"interrupted; the trials so far are in {str(directory)!r}.",
            hint="The same command with this output continues the search.",
        ) from None
    tuning = replace(tuning, status="complete")
    write_record(directory / TUNE_FILE, tuning)
    return tuning


def load_tuning(directory: Path) -> Tuning:
    """Return the search in ``directory``; raises RunError where there is none that can be read."""
    what = f"the search in {str(directory)!r}"
    return read_facts(directory / TUNE_FILE, Tuning, TUNE_SCHEMA, what=what, again="tune again")


def check(tuning: Tuning) -> None:
    """Raise UsageError for a search that no machine can make, WorkloadError or DeviceError for its default
    setting."""
    if tuning.budget < 1:
        raise UsageError(
            f"{arg('trials')} must be at least 1, got {tuning.budget}.",
            hint=f"For example: {arg('trials', 20)}",
        )
    if tuning.repeats < FEWEST:
        raise UsageError(
            f"{arg('repeats')} must be at least {FEWEST}, got {tuning.repeats}.",
            hint=(
                f"The interval of the comparison with the default takes {FEWEST} runs of each "
                "setting. Omit it for 5."
            ),
        )
    record = options_of(tuning.space.kind, tuning.default.options)
    record.check()
    if "accuracy" in tuning.objectives and record.data != "digits" and record.data_dir is None:
        raise UsageError(
            f"the accuracy on synthetic images of {record.data} means nothing.",
            hint=f"Use {arg('data', 'digits')}, or give the folder of the data set with {arg('data_dir')}.",
        )


# --- the study and its storage ----------------------------------------------------------------------------


@contextmanager
def _locked(directory: Path, name: str = "") -> Iterator[None]:
    """Keep other processes with the same output out."""
    import filelock

    with filelock.FileLock(directory / f"{_LOCK_FILE}{name}"):
        yield


def _begun(tuning: Tuning, directory: Path) -> Tuning:
    """``tuning``, stored in ``directory``; raises OutputError if that holds another search."""
    try:
        create_directory(directory)
    except OutputError:
        if not any((directory / name).exists() for name in (_LOCK_FILE, TUNE_FILE)):
            raise
    with _locked(directory):
        if (directory / TUNE_FILE).is_file():
            old = load_tuning(directory)
            if old.study != tuning.study:
                raise OutputError(
                    f"{str(directory)!r} holds another search.", hint=f"Choose another {arg('output')}."
                )
            tuning = replace(tuning, created=old.created)
        write_record(directory / TUNE_FILE, tuning)
    return tuning


def _open(tuning: Tuning, directory: Path, url: str | None) -> Study:
    """The study of ``tuning``, new or continued."""
    try:
        import optuna
    except ImportError:
        raise UsageError(
            "tuning requires the package 'optuna'.", hint="pip install 'rooflines[tune]'"
        ) from None
    from sqlalchemy import URL
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    database = directory / STUDY_FILE
    if url is not None and url.startswith("sqlite:///") and ":memory:" not in url:
        database = Path(url.removeprefix("sqlite:///"))
    url = url or str(URL.create("sqlite", database=str(database.absolute())))
    # Seconds that a process waits until another one has written to SQLite.
    engine = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    try:
        with _locked(directory), warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study: Study = optuna.create_study(
                storage=optuna.storages.RDBStorage(url, engine_kwargs=engine, heartbeat_interval=HEARTBEAT_S),
                study_name=tuning.study,
                load_if_exists=True,
                directions=["maximize" if goal.more else "minimize" for goal in tuning.goals],
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=_FIRST_PRUNED_TRIAL, n_warmup_steps=_FIRST_PRUNED_EPOCH
                ),
            )
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError, optuna.exceptions.OptunaError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"cannot open the storage {shown(url)!r}: {reason}.",
            hint="For example: sqlite:////shared/study.db",
        ) from None
    ask = study.ask

    def ask_alone(*arguments: Any, **keywords: Any) -> Any:
        # SQLite locks no rows: two processes that ask at once would get the same waiting trial.
        with _locked(database.parent, "ask"):
            return ask(*arguments, **keywords)

    study.ask = ask_alone
    return study


def _live(study: Study) -> list[Any]:
    """The trials but those whose process died or was interrupted, or that were one too many: one that failed
    has a reason."""
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state.name != "FAIL" or "reason" in trial.user_attrs]


def _with_trials(tuning: Tuning, study: Study) -> Tuning:
    """``tuning`` with the trials that the storage holds, of all processes."""
    states: dict[str, State] = {
        "COMPLETE": "complete",
        "FAIL": "failed",
        "PRUNED": "pruned",
        "RUNNING": "running",
    }
    trials = [
        SearchTrial(
            number=trial.number,
            point=tuning.point(trial.user_attrs["setting"]),
            state=states[trial.state.name],
            result=_result(trial),
            reason=trial.user_attrs.get("reason"),
        )
        for trial in _live(study)
        if trial.state.name in states and "setting" in trial.user_attrs
    ]
    return replace(tuning, trials=tuple(trials), importance=_importance(tuning, study))


def _result(trial: Any) -> PointResult | None:
    """The result that the storage holds of ``trial``."""
    return (
        msgspec.json.decode(trial.user_attrs["result"], type=PointResult)
        if "result" in trial.user_attrs
        else None
    )


def _importance(tuning: Tuning, study: Study) -> dict[str, dict[str, float]]:
    """The share of each option in each objective (PED-ANOVA); empty for too few trials or a single option."""
    complete = [trial for trial in _live(study) if trial.state.name == "COMPLETE"]
    names = [
        dimension.name
        for dimension in tuning.space.dimensions
        if any(dimension.name in trial.params for trial in complete)
    ]
    if len(complete) < _FEWEST_TRIALS or len(names) < 2:
        return {}
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    found = {}
    for index, goal in enumerate(tuning.goals):
        sign = -1 if goal.more else 1  # the evaluator looks for low values

        def target(trial: Any, index: int = index, sign: int = sign) -> float:
            return float(sign * trial.values[index])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST_SHARE)
            shares = get_param_importances(
                study, evaluator=evaluator, params=names, target=target, normalize=False
            )
        total = sum(shares.values())
        if total > 0:
            found[goal.name] = {name: float(share / total) for name, share in shares.items()}
    return found


# --- the search -------------------------------------------------------------------------------------------


class _NoResult(Exception):
    """A trial that failed, with its reason among its attributes, or that another process made unnecessary."""


def _search(study: Study, tuning: Tuning, directory: Path, progress: Progress) -> None:
    """Make trials until there are enough, those of other processes included, and all have ended."""
    import optuna

    # What is tried in any case, the default first: all of a space that has no more settings than there are
    # trials.
    wanted = [tuning.space.default_setting()]
    others = [
        setting
        for setting in tuning.space.settings(tuning.budget) or ()
        if tuning.point(setting).id != tuning.default.id
    ]
    wanted += others if len(others) < tuning.budget else []
    seed = int(tuning.default.options.get("seed", 0))
    while True:
        with _locked(directory):
            there = {trial.user_attrs.get("point") for trial in _live(study)}
            for setting in wanted:
                if (identity := tuning.point(setting).id) not in there:
                    study.enqueue_trial(
                        tuning.space.parameters(setting), user_attrs={"point": identity, "setting": setting}
                    )
        live = _live(study)
        begun = [trial for trial in live if trial.state.name != "WAITING"]
        running = sum(trial.state.name == "RUNNING" for trial in begun)
        budget = len(live) if len(wanted) > 1 else tuning.budget
        if len(begun) < budget:
            # Seeded by the number of trials, so that neither another process nor a later call draws the same
            # settings again.
            study.sampler = optuna.samplers.TPESampler(seed=(seed + 1) * 1_000_003 + len(live))

            def objective(trial: Any, budget: int = budget) -> tuple[float, ...]:
                return _objective(trial, study, tuning, budget, directory, progress)

            study.optimize(objective, n_trials=1, catch=(_NoResult,))
        elif running:
            progress.stage(f"waiting for {counted(running, 'trial')} of other processes", None)
            time.sleep(HEARTBEAT_S / 10)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna.storages.fail_stale_trials(study)
        else:
            return


def _objective(
    trial: Any, study: Study, tuning: Tuning, budget: int, directory: Path, progress: Progress
) -> tuple[float, ...]:
    """Run a trial in its own process; returns the values of the objectives."""
    others = _live(study)
    if sum(other.number < trial.number for other in others) >= budget:
        raise _NoResult
    given = trial.user_attrs.get("setting")
    setting = {
        dimension.name: dimension.suggest(trial)
        for dimension in tuning.space.dimensions
        if given is None or dimension.name in given
    }
    point = tuning.point(setting)
    trial.set_user_attr("setting", setting)
    trial.set_user_attr("point", point.id)
    # an earlier trial of the same setting that a repetition would not change: a failure, or a training
    alike = (
        _result(one)
        for one in others
        if one.user_attrs.get("point") == point.id and one.state.name in ("COMPLETE", "FAIL")
    )
    result = next((one for one in alike if one and (one.reason is not None or point.kind == "train")), None)
    if result is None:
        try:
            options_of(point.kind, point.options).check()
        except RooflinesError as error:  # a combination of options that no machine accepts
            result = PointResult(point=point.id, round=1, reason=str(error))
    if result is None:
        task = Task(point=point, round=1, directory=str(directory / "trials" / f"{trial.number:04}"))
        titled = Titled(
            progress,
            f"trial {sum(other.number <= trial.number for other in others)} of {budget}, {point.label}",
        )
        result = run_task(task, titled, found=_pruning(trial, task, tuning))
        store(task, result)
    trial.set_user_attr("result", msgspec.json.encode(result).decode())
    if result.reason is not None:
        trial.set_user_attr("reason", result.reason)
        raise _NoResult
    values = {goal.name: result.values.get(goal.value) for goal in tuning.goals}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise UsageError(
            f"the objective {missing[0]!r} was not measured on this machine.",
            hint="Choose another objective.",
        )
    return tuple(value for value in values.values() if value is not None)


def _pruning(trial: Any, task: Task, tuning: Tuning) -> Callable[[PointResult], None]:
    """What ends a training whose accuracy is below the median of others after the same epoch. Optuna prunes
    for one objective only."""
    reported = 0

    def found(result: PointResult) -> None:
        nonlocal reported
        accuracy, epochs = result.values.get("accuracy"), int(result.values.get("epochs", 0))
        if tuning.objectives != ("accuracy",) or accuracy is None or epochs <= reported:
            return
        reported = epochs
        trial.report(accuracy, epochs)
        record = options_of(task.point.kind, task.point.options)
        if epochs < record.epochs * record.seeds and trial.should_prune():
            from optuna import TrialPruned

            store(task, result)
            trial.set_user_attr("result", msgspec.json.encode(result).decode())
            raise TrialPruned

    return found


# --- the comparison with the default ----------------------------------------------------------------------


def tasks_in_turn(
    tuned: SweepPoint, default: SweepPoint, repeats: int, directory: Path
) -> Iterator[tuple[Task, Task]]:
    """Return pairs of tasks (tuned, default), every other one to be run in the opposite order; each has its
    own seed for a training."""
    for number in range(1, repeats + 1):
        place = directory / tuned.id / f"pair-{number}"
        yield _task(tuned, number, place / "tuned"), _task(default, number, place / "default")


def _task(point: SweepPoint, number: int, directory: Path) -> Task:
    """The run of ``point`` in pair ``number``."""
    if point.kind == "train":
        point = replace(point, options={**point.options, "seed": int(point.options.get("seed", 0)) + number})
    return Task(point=point, round=_UNTRACED, directory=str(directory))


def run_in_turn(
    tuned: SweepPoint, default: SweepPoint, repeats: int, directory: Path, progress: Progress
) -> list[tuple[PointResult, PointResult]]:
    """Run ``tuned`` and ``default`` in turn (A B B A ...), ``repeats`` times each; results that are stored
    are not measured again."""
    results = []
    for number, (one, other) in enumerate(tasks_in_turn(tuned, default, repeats, directory), 1):
        found = {}
        for task in (one, other) if number % 2 else (other, one):
            path = Path(task.directory) / RESULT_FILE
            if not path.is_file():
                store(
                    task, run_task(task, Titled(progress, f"pair {number} of {repeats}, {task.point.label}"))
                )
            found[task.directory] = read_json(path, PointResult)
        results.append((found[one.directory], found[other.directory]))
    return results


def compare(objective: Objective, results: Sequence[tuple[PointResult, PointResult]]) -> Compared:
    """Return how the tuned setting compares with the default one in ``objective``; pairs of which a run
    failed do not count."""
    pairs = tuple(
        (ours, theirs)
        for tuned, default in results
        if tuned.reason is None
        and default.reason is None
        and (ours := tuned.values.get(objective.value)) is not None
        and (theirs := default.values.get(objective.value)) is not None
    )
    if len(pairs) < FEWEST:
        return Compared(objective=objective.name, pairs=pairs)
    shares = objective.fraction
    changes = [ours - theirs if shares else math.log(ours / theirs) for ours, theirs in pairs]
    mean, half = statistics.fmean(changes), half_width(changes)
    ends = mean, mean - half, mean + half
    value, low, high = ends if shares else map(math.exp, ends)
    change = MeasuredValue(value=value, low=low, high=high)
    return Compared(
        objective=objective.name,
        pairs=pairs,
        ratio=None if shares else change,
        difference=change if shares else None,
        beats=(mean if objective.more else -mean) > half,
    )
