"""``rooflines doctor``: check what can be measured on this machine."""

from __future__ import annotations

from typing import Annotated

from rooflines.cli.app import app
from rooflines.cli.options import Output, format_option
from rooflines.cli.output import destination


@app.command()
def doctor(format: Annotated[str | None, format_option("table")] = None, output: Output = None) -> None:
    """Check what can be measured on this machine and show how to fix what is missing."""
    from rooflines.profiler.machine.doctor import examine
    from rooflines.reports.page.doctor import page

    destination(format, output, {}).show(lambda: page(examine()), "doctor", {})
