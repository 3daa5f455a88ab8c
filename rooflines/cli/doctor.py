# ruff: noqa: T201 (a command line prints)
"""``rooflines doctor``: check what can be measured on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import Output, check_directory_name, format_option, option
from rooflines.cli.output import destination, print_page, print_written, show
from rooflines.errors import DeviceError, UsageError
from rooflines.gpu_check import PARTS, check_installed, chosen

_GPU = "GPU check"


@app.command()
def doctor(
    format: Annotated[str | None, format_option("table")] = None,
    output: Output = None,
    gpu: Annotated[bool, option("Run everything that needs an NVIDIA GPU, in at most ten minutes.", "--gpu", group=_GPU)] = False,
    only: Annotated[
        str | None,
        option(f"Parts to run, separated by commas, of {', '.join(part.name for part in PARTS)}.", group=_GPU, show_default="all"),
    ] = None,
    require_gpu: Annotated[bool, option("Fail if there is no GPU to check (requires --gpu).", "--require-gpu", group=_GPU)] = False,
) -> None:
    """Check what can be measured on this machine and show how to fix what is missing.

    With --gpu, run everything that needs an NVIDIA GPU. Writes a record (JSON), a report and a zip for a bug report into --output.

    [bold]rooflines doctor --gpu --only ceilings,profiles[/bold]

    Exit codes of --gpu: 0 nothing failed, also without a GPU; 1 a check failed; 2 no GPU with --require-gpu.
    """
    if gpu:
        if format is not None:
            raise UsageError("--format does not apply to --gpu.", hint="A GPU check writes its record as JSON and its report as HTML.")
        _check_gpu(only, require_gpu, check_directory_name(output))
        return
    if only is not None or require_gpu:
        raise UsageError(f"{'--require-gpu' if require_gpu else '--only'} requires --gpu.")
    from rooflines.profiler.doctor import examine
    from rooflines.reports.views.doctor import page

    reports, chosen = destination(format, output, {})
    show(lambda: page(examine()), "doctor", reports, chosen, output, {})


def _check_gpu(only: str | None, require_gpu: bool, output: Path | None) -> None:
    check_installed()
    from rooflines.gpu_check import check
    from rooflines.gpu_check.page import page

    parts = chosen(only)
    try:
        device = check.find_device()
    except DeviceError as error:
        if require_gpu:
            raise DeviceError(f"GPU check: no GPU to check: {error.message}") from None
        print(f"GPU check: nothing was checked ({error.message.rstrip('.')}).")
        return
    result, files = check.run(parts, device, output or check.default_folder(), progress=lambda line: print(line, flush=True))
    print_page(page(result))
    print_written({"record": files.json, "report": files.html, "for a bug report": files.zip, "evidence": files.evidence})
    if result.failed:
        raise typer.Exit(1)
