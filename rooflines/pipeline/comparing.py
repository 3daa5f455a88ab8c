"""Compare runs, traces and stored analyses with the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.pipeline.reading import read_analysis
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Run
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.profiler.trace.url import shown
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.comparison.compare import compare as _compare
from rooflines.roofline.comparison.records import Comparison


def compare(
    before: Analysis | Run | Path | str,
    after: Analysis | Run | Path | str,
    *,
    ceilings: Ceilings | str | None = None,
    anyway: bool = False,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> Comparison:
    """Compare ``after`` with the baseline ``before``: each an analysis, a run or its directory, a trace, or an ``analysis.json``.

    Raises UsageError when the two ran on unlike devices, with other numbers of threads or in other modes, naming the facts that differ,
    unless ``anyway``; facts that a trace does not hold do not differ. The other parameters are those of ``analyze``.
    """
    return compare_all(
        (before, after), ceilings=ceilings, anyway=anyway, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress
    )[0]  # fmt: skip


def compare_all(
    sources: Sequence[Analysis | Run | Path | str],
    *,
    ceilings: Ceilings | str | None = None,
    anyway: bool = False,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> list[Comparison]:
    """Compare each of the other ``sources`` with the first, which is read once; the parameters are those of ``compare``."""
    baseline: tuple[Analysis, str] | None = None
    comparisons = []
    for source in sources:
        if isinstance(source, Analysis):
            side = source, "B" if baseline else "A"
        else:
            found = read_analysis(source, ceilings=ceilings, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress)
            side = found, shown(source.directory if isinstance(source, Run) else source)
        if baseline is None:
            baseline = side
            continue
        comparison = _compare(baseline[0], side[0], (baseline[1], side[1]))
        if comparison.unlike and not anyway:
            facts = ", ".join(f"{fact.name} {fact.before!r} and {fact.after!r}" for fact in comparison.unlike)
            raise UsageError(
                f"{baseline[1]!r} and {side[1]!r} ran under different conditions: {facts}.",
                hint=f"Use {arg('anyway', True)} to compare them anyway.",
            )
        comparisons.append(comparison)
    return comparisons
