"""Reports of any source, written side by side into a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rooflines.errors import writing
from rooflines.extras import is_installed
from rooflines.pipeline.options import FORMATS
from rooflines.pipeline.reading import analyze_source
from rooflines.pipeline.sources import open_source
from rooflines.profiler.directory import create_directory, default_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Run
from rooflines.reports.render.formats import check_formats, file_of, usable, write
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.roofline.judge.judge import Judged
from rooflines.roofline.predict.trials import read_trials
from rooflines.serial import write_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rooflines.pipeline.reading import AnalyzeOptions
    from rooflines.pipeline.sources import Source
    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.reports.document import Page
    from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
    from rooflines.roofline.ranks.records import RankAnalysis

ANALYSIS_FILE, RANKS_FILE = "analysis.json", "ranks.json"
PERFETTO = "perfetto"
# What is written unless something else is asked for; of a run ``FORMATS``.
MONITOR_FORMATS = usable(("html", "json", "csv", "tensorboard"))
RANKS_FORMATS = ("html", "json", "csv")
# What was written, by format.
Written: TypeAlias = dict[str, Path]
# How a record writes a format to which it gives more than its page.
Writers: TypeAlias = Mapping[str, Callable[[Path], Path]]


def report(
    source: Source,
    formats: Sequence[str] | None = None,
    *,
    output: Path | str | None = None,
    **options: Unpack[AnalyzeOptions],
) -> Written:
    """Analyze ``source`` and write its reports; returns the files by format. ``formats`` are by default all
    that there are for it.

    The reports are written into the directory ``output``: by default the one of the run or monitored program,
    or a new one under ``runs``. The directory of a monitored program is a source, too. The other parameters
    are those of ``analyze``. Raises UsageError for an unknown format, OutputError for a directory that cannot
    be written.
    """
    from rooflines.roofline.ranks.records import RankAnalysis

    if isinstance(source, Path | str):
        source = open_source([str(source)])
    is_one = isinstance(source, Run | str)
    names, traced = formats, is_one and not options.get("partial")
    if names is None:
        names = FORMATS if is_one else RANKS_FORMATS if isinstance(source, Sequence) else MONITOR_FORMATS
    chosen = check_formats(names, traced=traced)
    directory, progress = None if output is None else Path(output), options.get("progress")
    record, analysis, judged = analyze_source(source, **options)
    if isinstance(analysis, Analysis):
        chosen = check_formats(names, traced=traced and record.trace_path is not None)
        if directory is None and not isinstance(source, Run) and record.facts.workload.source == "trace":
            directory = default_directory(record.facts.workload.name.partition(".")[0], "trace")
        if directory is not None:
            create_directory(directory)
        return report_run(record, chosen, judged=judged, output=directory, progress=progress)
    if isinstance(analysis, RankAnalysis):
        directory = directory or default_directory(f"{len(analysis.ranks)}-ranks", "trace")
        create_directory(directory)
        return report_ranks(analysis, chosen, directory, progress)
    return _report_monitored(record, analysis, chosen, directory, progress)


def write_reports(
    page: Page,
    formats: Iterable[str],
    directory: Path,
    *,
    record: tuple[str, Any] | None = None,
    own: Writers | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write ``page`` in ``formats`` into ``directory``, which is there; returns what was written, by format.

    ``record`` is the name of a file and what goes into it as JSON, under ``analysis`` among what is returned.
    ``own`` replaces the writer of a format by one that is given the file. Raises UsageError for an unknown
    format, OutputError where it cannot be written.
    """
    chosen = check_formats(formats, traced=PERFETTO in (own or {}))
    progress = progress or Silent()
    written = {}
    with writing(f"write the reports in {str(directory)!r}", "Check that the disk is not full."):
        if record is not None:
            written["analysis"] = directory / record[0]
            write_json(written["analysis"], record[1])
        for name in chosen:
            progress.stage(f"writing the {name} report", None)
            written[name] = (
                own[name](directory / file_of(name)) if own and name in own else write(page, name, directory)
            )
    return written


def report_run(
    run: Run,
    formats: Sequence[str] = FORMATS,
    *,
    judged: Judged | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write the reports of ``run`` into its directory or ``output``; returns what was written, by format, and
    the analysis.

    ``judged`` is the analysis of the run where it is there. A run without a trace is not written in the
    format of one.
    """
    from rooflines.reports.page import measured, usage
    from rooflines.reports.page import run as view
    from rooflines.reports.render import perfetto, tensorboard

    chosen = tuple(
        name for name in check_formats(formats, traced=True) if name != PERFETTO or run.trace_path is not None
    )
    if judged is None or (PERFETTO in chosen and judged.attribution is None):
        (progress or Silent()).stage("analyzing", None)
        judged = _analyze(run)
    analysis = judged.analysis
    page, directory = view.page(analysis, read_trials(run.directory)), output or run.directory

    def csv(path: Path) -> Path:
        if run.samples:
            usage.write_samples_csv(run.samples, path.with_name("samples.csv"))
        return measured.write_csv(analysis, path.parent)[0]

    own: Writers = {
        "csv": csv,
        "tensorboard": lambda path: tensorboard.write(page, path, measured.of_run(analysis, run.samples)),
        PERFETTO: lambda path: perfetto.write(path, judged, run.samples),
    }
    written = write_reports(
        page, chosen, directory, record=(ANALYSIS_FILE, analysis), own=own, progress=progress
    )
    if analysis.operators and is_installed("pandas", "pyarrow"):
        with writing(f"write the reports in {str(directory)!r}", "Check that the disk is not full."):
            measured.write_parquet(analysis, directory / "operators.parquet")
    return written


def report_ranks(
    analysis: RankAnalysis, formats: Sequence[str], directory: Path, progress: Progress | None
) -> Written:
    """Write the reports of a job into ``directory``; returns what was written, by format, and the
    analysis."""
    from rooflines.reports.page import ranks as view
    from rooflines.reports.words.text import struct_csv
    from rooflines.roofline.ranks.records import MatchedRow, RankRow

    def csv(path: Path) -> Path:
        path.with_name("collectives.csv").write_text(
            struct_csv(analysis.collectives, MatchedRow), encoding="utf-8"
        )
        path.with_name("ranks.csv").write_text(struct_csv(analysis.ranks, RankRow), encoding="utf-8")
        return path.with_name("ranks.csv")

    return write_reports(
        view.page(analysis),
        formats,
        directory,
        record=(RANKS_FILE, analysis),
        own={"csv": csv},
        progress=progress,
    )


def _report_monitored(
    monitored: Monitored,
    analysis: MonitorAnalysis,
    formats: Sequence[str],
    output: Path | None,
    progress: Progress | None,
) -> Written:
    from rooflines.reports.page import measured, usage
    from rooflines.reports.page import monitor as view
    from rooflines.reports.render import tensorboard

    if output is not None:
        create_directory(output)
    page = view.page(analysis)
    own: Writers = {
        "csv": lambda path: usage.write_samples_csv(monitored.samples, path.with_name("samples.csv")),
        "tensorboard": lambda path: tensorboard.write(
            page, path, measured.of_program(analysis, monitored.samples)
        ),
    }
    record = (ANALYSIS_FILE, analysis)
    return write_reports(
        page, formats, output or monitored.directory, record=record, own=own, progress=progress
    )
