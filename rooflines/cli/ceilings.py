# ruff: noqa: T201 (a command line prints)
"""``rooflines ceilings``: measure the peak rates of this device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from rooflines.cli.app import app
from rooflines.cli.options import Format, Output, option
from rooflines.cli.output import check_writable, destination, progress_bar
from rooflines.errors import Interrupted, UsageError, writing
from rooflines.profiler.options import MEASURE_GROUP, OUTPUT
from rooflines.reports.render.formats import write_file

_CHARTS = (".html", ".png", ".svg")


@app.command()
def ceilings(
    device: Annotated[str, option("Device: auto, cpu, cuda:N or mps.", group=MEASURE_GROUP)] = "auto",
    threads: Annotated[
        int | None,
        option("Number of CPU threads.", group=MEASURE_GROUP, min=1, show_default="torch's choice"),
    ] = None,
    sustained: Annotated[
        float | None,
        option(
            "Also measure sustained rates over this many seconds (CUDA).",
            group=MEASURE_GROUP,
            min=1,
            metavar="SECONDS",
        ),
    ] = None,
    force: Annotated[
        bool, option("Measure even if other processes are using the GPU.", "--force", group=MEASURE_GROUP)
    ] = False,
    remeasure: Annotated[
        bool,
        option("Measure again and keep the best of all measurements.", "--remeasure", group=MEASURE_GROUP),
    ] = False,
    compare: Annotated[
        bool, option("Compare measured, data-sheet and derived ceilings.", "--compare", group=OUTPUT)
    ] = False,
    chart: Annotated[
        Path | None, option("Also write a chart (.html, .png or .svg).", group=OUTPUT, metavar="FILE")
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Measure the peak rates of this device, with spread and number of rounds. Results are cached.

    [bold]rooflines ceilings --compare --chart ceilings.html[/bold]

    [bold]rooflines ceilings --output mine.json; rooflines profile --model resnet50 --ceilings
    mine.json[/bold]
    """
    from rooflines.reports.charts.paper import as_png, as_svg, draw
    from rooflines.reports.page import ceilings as view

    place = destination(format, output)
    if chart is not None:
        if chart.suffix not in _CHARTS:
            raise UsageError(
                f"--chart {str(chart)!r}: unknown file type.", hint=f"Use one of {', '.join(_CHARTS)}."
            )
        check_writable(chart)
    from rooflines.device_specs.compare import compare as put_beside
    from rooflines.device_specs.compare import references
    from rooflines.device_specs.measure import measure, sessions
    from rooflines.profiler.options import find_device

    found = str(find_device(device))
    if threads is not None and found != "cpu":
        raise UsageError(f"--threads applies to CPUs only; the device is {found}.", hint="Add --device cpu.")
    try:
        with progress_bar(not sys.stderr.isatty()) as progress:
            measured = measure(
                found,
                threads=threads,
                full=True,
                sustained_s=sustained,
                force=force,
                remeasure=remeasure,
                progress=None if progress is None else lambda text: progress.stage(text, None),
            )
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; ceilings measured earlier are unchanged.",
            hint="Run rooflines ceilings again to measure.",
        ) from None
    beside = references(measured, found) if compare else None
    rows = put_beside(measured, beside) if beside is not None else ()
    page = view.page(measured, rows, beside)
    if chart is not None:
        with writing(f"write {str(chart)!r}", "Choose another file."):
            if chart.suffix == ".html":
                write_file(page, "html", chart)
            else:
                picture = draw(page.figures()[0].drawing)
                chart.write_bytes(as_svg(picture).encode() if chart.suffix == ".svg" else as_png(picture))
        print(f"written   {chart}", file=sys.stderr)
    own = {
        "json": lambda: view.ceilings_json(measured, sessions(measured), rows if compare else None),
        "csv": lambda: view.comparison_csv(rows) if compare else view.ceilings_csv(measured),
    }
    place.show(lambda: page, "ceilings", own)
