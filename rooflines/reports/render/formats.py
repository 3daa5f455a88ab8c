"""The formats that any page can be written in. The command line's help, ``--formats`` and the errors read
this registry.

A format is a module with ``write(page, path)``, which returns the path written: in ``render/`` with a line
here, or in another package with an entry point in the group ``rooflines.formats`` and the name of its file as
``FILE``.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.errors import UsageError
from rooflines.extras import EXTRA_OF, is_installed
from rooflines.installed import entries, load

if TYPE_CHECKING:
    from rooflines.reports.document import Page


class Format(NamedTuple):
    """A format: its name, the file that it is written to (the first of several), its module in ``render/``,
    what it is for, and the packages that it needs besides those of rooflines. One ``of_trace`` is made of the
    trace of one run and not of a page."""

    name: str
    file: str
    module: str
    what: str
    needs: tuple[str, ...] = ()
    of_trace: bool = False


FORMATS = {
    one.name: one
    for one in (
        Format("html", "report.html", "html", "one interactive page that needs no network"),
        Format("pdf", "report.pdf", "pdf", "for print", ("typst", "matplotlib")),
        Format(
            "markdown", "report.md", "markdown", "for a pull request or a wiki, with its figures as files"
        ),
        Format("text", "report.txt", "terminal", "as printed in a terminal"),
        Format("json", "report.json", "json", "the page as data"),
        Format("csv", "report.csv", "csv", "one file per table"),
        Format(
            "tensorboard", "report.tfevents", "tensorboard", "an event file", ("tensorboard", "matplotlib")
        ),
        Format(
            "perfetto",
            "trace.perfetto.json.gz",
            "perfetto",
            "the trace with rates and operators, for ui.perfetto.dev",
            (),
            True,
        ),
    )
}


def usable(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the formats whose packages are installed."""
    return tuple(name for name in names if is_installed(*FORMATS[name].needs))


OF_PAGES = tuple(name for name, one in FORMATS.items() if not one.of_trace)


def check_formats(names: Iterable[str], *, traced: bool | None = False) -> tuple[str, ...]:
    """The names (or a single one) as a tuple, each once, or for ``all`` every format; only if ``traced`` with
    those of a trace.

    Where that is not yet known (None), ``all`` stays. Raises UsageError for an unknown one, and for one of a
    trace where there is none.
    """
    names = (names,) if isinstance(names, str) else names
    chosen, offered = tuple(dict.fromkeys(names)), OF_PAGES if traced is False else tuple(FORMATS)
    if chosen == ("all",):
        return chosen if traced is None else (*usable(offered), *entries("formats"))
    for name in chosen:
        if name not in offered and name not in (installed := entries("formats")):
            what = (
                f"{name!r} needs the complete trace of one run"
                if name in FORMATS
                else f"unknown report format {name!r}"
            )
            raise UsageError(f"{what}.", hint=f"Choose from {', '.join((*offered, *installed))}, or all.")
    return chosen


def file_of(name: str) -> str:
    """The name of the file that a format writes, the first of several."""
    return FORMATS[name].file if name in FORMATS else str(_module(name).FILE)


def write(page: Page, name: str, directory: Path) -> Path:
    """Write ``page`` in the format called ``name`` into ``directory`` and return the file, or the first of
    several."""
    return write_file(page, name, directory / file_of(name))


def write_file(page: Page, name: str, path: Path) -> Path:
    """Write ``page`` in the format called ``name`` to ``path`` and return the file, or the first of
    several."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written: Path = _module(name).write(drawable(page), path)
    return written


def drawable(page: Page) -> Page:
    """The page, with a line in place of each figure for an installation that cannot draw."""
    if is_installed("matplotlib"):
        return page
    from msgspec.structs import replace

    from rooflines.reports.document import Figure, Paragraph

    line = Paragraph(f"Figures need matplotlib: pip install 'rooflines[{EXTRA_OF['matplotlib']}]'.", "absent")
    sections = (
        replace(part, blocks=tuple(line if isinstance(block, Figure) else block for block in part.blocks))
        for part in page.sections
    )
    return replace(page, sections=tuple(sections))


def _module(name: str) -> Any:
    if name in FORMATS:
        return import_module(f"rooflines.reports.render.{FORMATS[name].module}")
    return load("formats", name, entries("formats")[name])
