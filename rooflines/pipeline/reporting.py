"""The reports of an analysis, written side by side into a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rooflines.errors import writing
from rooflines.pipeline.options import FORMATS
from rooflines.pipeline.reading import Reading, analyze_trace, is_directory
from rooflines.profiler.directory import create_directory, default_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Run
from rooflines.reports.formats import check_formats, file_of, write
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.roofline.trials import read_trials
from rooflines.serial import write_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rooflines.reports.document import Page

ANALYSIS_FILE = "analysis.json"
# How a record writes a format to which it gives more than its page.
Writers: TypeAlias = Mapping[str, Callable[[Path], Path]]


def write_reports(
    page: Page,
    formats: Iterable[str],
    directory: Path,
    *,
    record: tuple[str, Any] | None = None,
    own: Writers | None = None,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Write ``page`` in ``formats`` into ``directory``, which is there; returns what was written, by format.

    ``record`` is the name of a file and what goes into it as JSON, under ``analysis`` among what is returned. ``own`` replaces the
    writer of a format by one that is given the file. Raises UsageError for an unknown format, OutputError where it cannot be written.
    """
    chosen, progress, written = check_formats(formats), progress or Silent(), {}
    with writing(f"write the reports in {str(directory)!r}", "Check that the disk is not full."):
        if record is not None:
            written["analysis"] = directory / record[0]
            write_json(written["analysis"], record[1])
        for name in chosen:
            progress.stage(f"writing the {name} report", None)
            written[name] = own[name](directory / file_of(name)) if own and name in own else write(page, name, directory)
    return written


def report(
    run: Run,
    formats: Sequence[str] = FORMATS,
    *,
    analysis: Analysis | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Write the reports of ``run`` into its directory or ``output``; returns what was written, by format, and the analysis."""
    from rooflines.reports.render import tensorboard
    from rooflines.reports.views import measured, usage
    from rooflines.reports.views import run as view

    chosen = check_formats(formats)
    if analysis is None:
        (progress or Silent()).stage("analyzing", None)
        analysis = _analyze(run)
    found, page, directory = analysis, view.page(analysis, read_trials(run.directory)), output or run.directory

    def csv(path: Path) -> Path:
        if run.samples:
            usage.write_samples_csv(run.samples, path.with_name("samples.csv"))
        return measured.write_csv(found, path.parent)[0]

    own: Writers = {
        "csv": csv,
        "tensorboard": lambda path: tensorboard.write(page, path, measured.of_run(found, run.samples)),
    }
    written = write_reports(page, chosen, directory, record=(ANALYSIS_FILE, found), own=own, progress=progress)
    if found.operators:
        with writing(f"write the reports in {str(directory)!r}", "Check that the disk is not full."):
            measured.write_parquet(found, directory / "operators.parquet")
    return written


def report_on(
    source: Run | Path | str, formats: Sequence[str] = FORMATS, *, output: Path | None = None, **options: Unpack[Reading]
) -> dict[str, Path]:
    """Write the reports of a run, its directory or a trace, into ``output``, without it into the run or a new directory under ``runs``.

    Returns what was written, by format. The other parameters are those of ``analyze``.
    """
    chosen = check_formats(formats)
    run, analysis = analyze_trace(source, **options)
    if output is None and not isinstance(source, Run) and not is_directory(source):
        output = default_directory(run.facts.workload.name.partition(".")[0], "trace")
    if output is not None:
        create_directory(output)
    return report(run, chosen, analysis=analysis, output=output, progress=options.get("progress"))
