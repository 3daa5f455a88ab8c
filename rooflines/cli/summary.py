# ruff: noqa: T201 (a command line prints)
"""``rooflines summary``: what a run or trace says, in few words that can be checked."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from rooflines.cli.app import app
from rooflines.cli.options import OtherCeilings, option, reading_options
from rooflines.errors import UsageError

if TYPE_CHECKING:
    from rooflines.reports.document import Page
    from rooflines.reports.page.statements import Said

# Options of reading a trace, with the number of their values.
_READING: Final = {
    "--ceilings": 1,
    "--capture": 1,
    "--formulas": 1,
    "--inductor-cache": 1,
    "--memory-limit": 1,
    "--partial": 0,
}


@app.command()
@reading_options("capture", "partial", "memory_limit_bytes", "formulas", "inductor_cache")
def summary(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run, trace, traces of several ranks, monitored program, or directory of a sweep.",
            metavar="SOURCE...",
        ),
    ],
    question: Annotated[
        str,
        option(
            "Ask about one thing: operators, lines, memory, communication, idle, host, 'kernel NAME' or "
            "'module PATH'.",
            "--question",
            "-q",
        ),
    ] = "",
    against: Annotated[
        str | None, option("Compare SOURCE with this baseline (run or trace).", metavar="BASELINE")
    ] = None,
    changes: Annotated[
        list[str] | None,
        option(
            "Replay it with a change of rooflines whatif: no-gaps, at-bound=attention (repeatable).",
            "--whatif",
            metavar="CHANGE",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "Largest length: a number of tokens (estimated as 4 characters each), or of lines "
            "with the word lines (40lines).",
            show_default="14 lines as Markdown without a question",
        ),
    ] = None,
    format: Annotated[
        Literal["md", "json"], option("Markdown, or JSON (rooflines schema summary describes it).")
    ] = "md",
    ceilings: OtherCeilings = None,
    **reading: Any,
) -> None:
    """Summarize a run, a trace, ranks, a comparison or a sweep for people and programs.

    Each statement names the figures that it rests on and the command that prints them.

    [bold]rooflines summary trace.json.gz --budget 500[/bold]

    [bold]rooflines summary trace.json.gz --question idle --format json[/bold]
    """
    from rooflines import serial
    from rooflines.reports.page.summary import markdown, summarize, within

    if changes and question:
        raise UsageError("--whatif cannot be used with --question.", hint="Ask without it.")
    # Without a budget, the overview leaves room on the screen for what was printed before.
    default = None if question or format == "json" else "14 lines"
    limit = _limit(default if budget is None else budget)
    record, page, command, said = _read(sources, against, changes or (), {"ceilings": ceilings, **reading})
    shown = " ".join(([against] if against else []) + sources)
    prints = shlex.join([*command, *_as_typed(sys.argv), "--format", "json"])
    found = summarize(record, page, shown, prints, question, said)
    render = serial.to_json if format == "json" else markdown
    if limit:
        found = within(found, limit[0], lines=limit[1], render=render)
    print(render(found), end="")


def _as_typed(arguments: Sequence[str]) -> Iterator[str]:
    """The options of reading a trace among the arguments of this command, for one that reads the same
    trace."""
    following = 0
    for argument in arguments:
        name = argument.partition("=")[0]
        if following or name in _READING:
            yield argument
            following = 0 if following or "=" in argument else _READING[name]


def _limit(budget: str | None) -> tuple[int, bool] | None:
    """The number of tokens, or of lines, of a budget."""
    if budget is None:
        return None
    match = re.fullmatch(r"([1-9]\d*) *(?:tokens?|(lines?))?", budget.strip())
    if match is None:
        raise UsageError(
            f"--budget {budget!r} is not a number of tokens or lines.",
            hint="For example: --budget 500, --budget 40lines",
        )
    return int(match[1]), bool(match[2])


def _read(
    sources: list[str], against: str | None, changes: Sequence[str], reading: dict[str, Any]
) -> tuple[Any, Page, list[str], Iterable[Said]]:
    """The record of the sources, its page, the command that prints it, and of a sweep what is said of it."""
    from rooflines import pipeline
    from rooflines.cli.output import page_of, sweep_of

    if changes:
        from rooflines.cli.whatif import as_arguments
        from rooflines.reports.page import what_if

        if against is not None or len(sources) > 1:
            raise UsageError("--whatif replays one run or trace.", hint="Give one source, without --against.")
        replayed = pipeline.what_if(sources[0], **as_arguments(changes), **reading)
        prints = ["rooflines", "whatif", *sources, *(f"--{change}" for change in changes)]
        return replayed, what_if.page(replayed), prints, what_if.said(replayed)
    if against is not None:
        from rooflines.reports.page.comparison import page

        if len(sources) > 1:
            raise UsageError("--against compares one source with its baseline.", hint="Give one source.")
        for name in ("capture", "inductor_cache"):
            if reading[name]:
                raise UsageError(
                    f"--{name.replace('_', '-')} cannot be used with --against.", hint="Compare without it."
                )
        options = {name: reading[name] for name in ("ceilings", "partial", "memory_limit_bytes")}
        pair = [against, sources[0]]
        compared = pipeline.compare_all(pair, anyway=True, **options)
        return compared[0], page(compared), ["rooflines", "compare", "--anyway", *pair], ()
    swept = sweep_of(sources)
    if swept is not None:
        from rooflines.sweeps.page import said

        return swept, page_of(swept), ["rooflines", "analyze", *sources], said(swept.rows)
    analysis = pipeline.analyze_source(pipeline.open_source(sources), **reading).analysis
    return analysis, page_of(analysis), ["rooflines", "analyze", *sources], ()
