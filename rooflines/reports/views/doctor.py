"""The answers of ``rooflines doctor`` in a terminal: what is there, then what is not with the command that would fix it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rooflines.profiler.doctor import Check

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"ok": "green", "limited": "yellow", "missing": "red"}


def print_checks(checks: Iterable[Check], console: Console) -> None:
    """Print ``checks`` as a table in the width of ``console``; below it the fixes, each on one line so that it can be copied whole."""
    from rich.table import Table
    from rich.text import Text

    checks = tuple(checks)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        # Text and not str: what a driver calls itself is no markup.
        table.add_row(Text(check.name), Text(check.status, _STYLES[check.status]), Text(check.detail))
    console.print(table)

    fixes: dict[str, list[str]] = {}
    for check in checks:
        if check.fix:
            fixes.setdefault(check.fix, []).append(check.name)
    if fixes:
        console.print()
    for fix, names in fixes.items():
        console.print(Text(f"{', '.join(names)}:", "bold"))
        console.print(Text(f"  {fix}"), soft_wrap=True)
