"""A study's page: what every study says around its own sections."""

from __future__ import annotations

from collections.abc import Sequence

from rooflines._version import __version__
from rooflines.reports.document import Facts, Page, Paragraph, Section


def page(
    *,
    title: str,
    machine: str,
    created: str,
    command: str,
    label: str,
    findings: Sequence[str],
    interrupted: bool,
    sections: Sequence[Section],
    missing: Sequence[tuple[str, str]],
    notes: Sequence[str],
) -> Page:
    """The page of a study. ``label`` says what data the numbers are of, ``missing`` what did not run and why, ``notes`` the method."""
    verdict, *said = findings or ("Nothing was measured.",)
    absent = (
        Facts(rows=tuple(missing), kind="definitions", show="always") if missing else Paragraph("Everything that was asked for ran.")
    )
    return Page(
        kind="study",
        name=title,
        title=f"{title} · {machine}",
        created=created,
        rooflines=__version__,
        verdict=verdict,
        status=("interrupted", "Interrupted: what had been measured by then is shown.") if interrupted else None,
        label=label,
        said=tuple(said),
        sections=(
            *(section for section in sections if section.blocks),
            Section(name="missing", title="What did not run, or not to the end", blocks=(absent,)),
            Section(name="method", title="Method", blocks=(*map(Paragraph, notes), Paragraph(command, "code"))),
        ),
    )
