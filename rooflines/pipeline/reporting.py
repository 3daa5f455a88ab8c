"""The reports of an analysis, written side by side into a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from rooflines.errors import OutputError, UsageError
from rooflines.pipeline.reading import analyze, analyze_trace, is_directory
from rooflines.profiler.directory import create_directory, default_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Run
from rooflines.profiler.run import load
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.serial import write_json

FORMATS = ("html", "pdf", "json", "csv", "tensorboard")


ANALYSIS_FILE = "analysis.json"


def report(
    run: Run, formats: Sequence[str] = FORMATS, *, analysis: Analysis | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Write the reports of ``run`` into its directory; returns what was written, by format. ``analysis.json`` is always among them."""
    formats = check_formats(formats)
    progress = progress or Silent()
    directory = run.directory
    if analysis is None:
        progress.stage("analyzing", None)
        analysis = _analyze(run)
    written: dict[str, Path] = {}
    try:
        write_json(directory / ANALYSIS_FILE, analysis)
        written["json"] = directory / ANALYSIS_FILE
        if analysis.operators:
            from rooflines.reports.tables import write_parquet

            write_parquet(analysis, directory / "operators.parquet")
        for name in formats:
            if name != "json":
                progress.stage(f"writing the {name} report", None)
                written[name] = _WRITERS[name](analysis, run)
    except OSError as error:
        raise OutputError(
            f"cannot write the reports in {str(directory)!r}: {error.strerror or error}", hint="Check that the disk is not full."
        ) from None
    return written


def report_on(
    source: Path | str,
    formats: Sequence[str] = FORMATS,
    *,
    output: Path | None = None,
    ceilings: str | None = None,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Write the reports of a run directory or of a trace, into ``output``, without it into the run or a new directory under ``runs``.

    Returns what was written, by format. The other parameters are those of ``analyze``.
    """
    formats = check_formats(formats)
    if is_directory(source):
        run = load(source)
        analysis = analyze(run, ceilings=ceilings, partial=partial)
        if output is None:
            return report(run, formats, analysis=analysis, progress=progress)
    else:
        run, analysis = analyze_trace(
            source, ceilings=ceilings, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress
        )
        output = output or default_directory(run.facts.workload.name.partition(".")[0], "trace")
    create_directory(output)
    return report(msgspec.structs.replace(run, directory=output), formats, analysis=analysis, progress=progress)


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats as a tuple; raises UsageError for an unknown one."""
    chosen = tuple(dict.fromkeys(formats))
    unknown = [name for name in chosen if name not in FORMATS]
    if unknown:
        raise UsageError(f"unknown report format {unknown[0]!r}.", hint=f"Choose from {', '.join(FORMATS)}.")
    return chosen


def _write_html(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import html

    return html.write(analysis, run.directory / "report.html")


def _write_pdf(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import pdf

    return pdf.write(analysis, run.directory / "report.pdf")


def _write_csv(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports.tables import write_csv
    from rooflines.reports.usage_table import write_samples_csv

    write_csv(analysis, run.directory)
    if run.samples:
        write_samples_csv(run.samples, run.directory / "samples.csv")
    return run.directory / "operators.csv"


def _write_tensorboard(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import tensorboard

    return tensorboard.write(analysis, run.directory, run.samples)


_WRITERS: dict[str, Callable[[Analysis, Run], Path]] = {
    "html": _write_html,
    "pdf": _write_pdf,
    "csv": _write_csv,
    "tensorboard": _write_tensorboard,
}
