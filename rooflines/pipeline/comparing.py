"""Compare runs, traces and stored analyses with the first of them, or with the baseline that a repository
keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.errors import UsageError, writing
from rooflines.pipeline.command import default_command
from rooflines.pipeline.reading import check_options, read_analysis
from rooflines.profiler.directory import file_stem
from rooflines.profiler.read.sources import shown
from rooflines.profiler.records import Run, Workload
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.compare.compare import FEWEST_STEPS
from rooflines.roofline.compare.compare import compare as _compare
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.judge.step.interference import WIDE
from rooflines.roofline.predict.options import FACTS
from rooflines.roofline.uncertainty import interval95, resampled_medians
from rooflines.serial import write_json
from rooflines.units import percent, seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rooflines.pipeline.reading import AnalyzeOptions

# An analysis and its name.
Side: TypeAlias = tuple[Analysis, str]


def compare(
    before: Analysis | Run | Path | str,
    after: Analysis | Run | Path | str,
    *,
    anyway: bool = False,
    **options: Unpack[AnalyzeOptions],
) -> Comparison:
    """Compare ``after`` with the baseline ``before``: each an analysis, a run or its directory, a trace, or
    an ``analysis.json``.

    Raises UsageError when the two ran on unlike devices, with other numbers of threads or in other modes,
    naming the facts that differ, unless ``anyway``; facts that a trace does not hold do not differ. The other
    parameters are those of ``analyze``.
    """
    (found,) = compare_all((before, after), anyway=anyway, **options)
    return found


def compare_all(
    sources: Sequence[Analysis | Run | Path | str], *, anyway: bool = False, **options: Unpack[AnalyzeOptions]
) -> list[Comparison]:
    """Compare each of the other ``sources`` with the first, which is read once; the parameters are those of
    ``compare``."""
    check_options(options)
    baseline: Side | None = None
    comparisons = []
    for source in sources:
        if isinstance(source, Analysis):
            side = source, "B" if baseline else "A"
        else:
            side = read_analysis(source, **options), _name(source)
        if baseline is None:
            baseline = side
            continue
        comparisons.append(compared(baseline, side, anyway=anyway))
    return comparisons


def check_baselines(baseline: Path | str) -> None:
    """Raise UsageError where the directory ``baseline`` has no baseline at all, before anything is run."""
    if not any(Path(baseline).glob("*.json")):
        raise UsageError(
            f"no baseline in {str(baseline)!r}.", hint=f"Use {arg('update', True)} to store the first one."
        )


def check(
    source: Run | Path | str, baseline: Path | str, *, anyway: bool = False, **options: Unpack[AnalyzeOptions]
) -> Comparison:
    """Compare ``source`` with the analysis of the same workload in the directory ``baseline``; the parameters
    are those of ``compare``.

    Raises UsageError where the directory has no such analysis, or where its run is unlike this one.
    """
    analysis = read_analysis(source, **options)
    stored = _baseline_file(analysis.workload, Path(baseline))
    if not stored.is_file():
        others = ", ".join(sorted(path.stem for path in Path(baseline).glob("*.json")))
        raise UsageError(
            f"no baseline of {stored.stem!r} in "
            f"{str(baseline)!r}{f', which has {others}' if others else ''}.",
            hint=f"Use {arg('update', True)} to store this run as its baseline.",
        )
    comparison = compared((read_analysis(stored), str(stored)), (analysis, _name(source)), anyway=anyway)
    return replace(comparison, command=default_command())


def update_baseline(
    source: Run | Path | str,
    baseline: Path | str,
    *,
    anyway: bool = False,
    **options: Unpack[AnalyzeOptions],
) -> Path:
    """Store what a comparison needs of ``source`` as the baseline of its workload in the directory
    ``baseline``; returns the file.

    Raises UsageError for a run that is not complete, and, unless ``anyway``, for one whose step time is known
    less well than ``WIDE``: comparisons with it are often not decided.
    """
    analysis = read_analysis(source, **options)
    if analysis.status != "complete":
        raise UsageError(
            f"{_name(source)!r} is not stored as a baseline: its run is {analysis.status}.",
            hint="Give a complete run.",
        )
    if not anyway and (unsure := _unsure(analysis)):
        text = f"{_name(source)!r} is not stored as a baseline: {unsure}; the limit is ±{percent(WIDE)}."
        raise UsageError(
            text,
            hint=f"Where other programs always run, compare with a commit (rooflines check "
            f"{arg('against')}), which profiles both in turn, or store it with {arg('anyway', True)}: "
            f"smaller slowdowns are then not decided. Else repeat the run with more steps ({arg('steps')}) "
            f"or when the machine is idle ({arg('wait_quiet')}).",
        )
    stored = _baseline_file(analysis.workload, Path(baseline))
    needed = replace(
        analysis,
        command="",
        environment=replace(analysis.environment, host=None),
        operators=tuple(replace(row, kernels=()) for row in analysis.operators),
        usage=None,
        findings=(),
        synchronizations=(),
        host_work=(),
        collectives=(),
        notes=(),
    )
    with writing(f"write {str(stored)!r}", "Choose another directory."):
        stored.parent.mkdir(parents=True, exist_ok=True)
        write_json(stored, needed)
    return stored


def _unsure(analysis: Analysis) -> str:
    """Why the median step, timed or else traced, is not known well enough to judge other runs by it; empty if
    it is."""
    steps, traced = analysis.steps, [step.duration_s for step in analysis.traced_steps]
    if steps is not None and steps.ci95_s is not None:
        of, middle, (low, high) = f"{steps.count} timed steps", steps.median_s, steps.ci95_s
    elif len(traced) >= FEWEST_STEPS:
        of, middle, (low, high) = (
            f"{len(traced)} traced steps",
            median(traced),
            interval95(resampled_medians(traced)),
        )
    else:
        return f"the median of fewer than {FEWEST_STEPS} steps has no interval"
    wide = max(high - middle, middle - low) / middle
    return (
        f"the median of {of} is known to ±{percent(wide)} only ({seconds(low)} to {seconds(high)})"
        if wide > WIDE
        else ""
    )


def _baseline_file(workload: Workload, directory: Path) -> Path:
    """The file of a workload under its conditions: ``resnet18-inference-batch8-fp32-compiled.json``."""
    conditions = (
        workload.name,
        workload.mode,
        f"batch{workload.batch_size}" if workload.batch_size else "",
        f"{workload.image_size}px" if workload.image_size else "",
        workload.precision,
        *(
            fact.name.lower().replace(" ", "-") if fact.flag else fact.value(workload)
            for fact in FACTS
            if fact.in_baseline and getattr(workload, fact.field)
        ),
    )
    return directory / f"{file_stem('-'.join(filter(None, conditions)))}.json"


def compared(before: Side, after: Side, *, anyway: bool, judged: bool = True) -> Comparison:
    """The comparison of two analyses with their names, refused where the conditions are unlike."""
    comparison = _compare(before[0], after[0], (before[1], after[1]), judged=judged)
    if comparison.unlike and not anyway:
        facts = ", ".join(f"{fact.name} {fact.before!r} and {fact.after!r}" for fact in comparison.unlike)
        raise UsageError(
            f"{before[1]!r} and {after[1]!r} ran under different conditions: {facts}.",
            hint=f"Use {arg('anyway', True)} to compare them anyway.",
        )
    return comparison


def _name(source: Run | Path | str) -> str:
    return shown(source.directory if isinstance(source, Run) else source)
