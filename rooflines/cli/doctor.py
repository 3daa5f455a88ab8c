"""``rooflines doctor``: check what can be measured on this machine."""

from __future__ import annotations

from rooflines.cli.app import app
from rooflines.cli.output import console


@app.command()
def doctor() -> None:
    """Check what can be measured on this machine and show how to fix what is missing."""
    from rooflines.profiler.doctor import examine
    from rooflines.reports.views.doctor import print_checks

    print_checks(examine(), console())
