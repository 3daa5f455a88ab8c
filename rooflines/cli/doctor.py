"""``rooflines doctor``: check what can be measured on this machine."""

from __future__ import annotations

from rooflines.cli.app import app
from rooflines.cli.options import Directory, Formats
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, write_page


@app.command()
def doctor(formats: Formats = None, output: Directory = None) -> None:
    """Check what can be measured on this machine and show how to fix what is missing."""
    from rooflines.profiler.doctor import examine
    from rooflines.reports.views.doctor import page

    reports = parse_formats(formats)
    found = page(examine())
    if reports:
        write_page(found, reports, output, "doctor")
    else:
        print_page(found)
