"""``rooflines doctor``: what works on this machine."""

from __future__ import annotations

from rooflines.cli.app import app
from rooflines.cli.output import console


@app.command()
def doctor() -> None:
    """Say what can be measured on this machine, what is missing, and the command that would fix it."""
    from rooflines.profiler.doctor import examine
    from rooflines.reports.views.doctor import print_checks

    print_checks(examine(), console())
