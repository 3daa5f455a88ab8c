"""``rooflines whatif``: what a step would take with changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from rooflines.cli.app import app
from rooflines.cli.options import At, OtherCeilings, Output, format_option, option, reading_options
from rooflines.cli.output import check_at, destination, json_of, progress_bar
from rooflines.errors import UsageError

_MANY = "(repeatable)"
# Changes without a value, as arguments.
_FLAGS: Final = {
    "no-gaps": {"gaps": False},
    "no-waits": {"waits": False},
    "graphs": {"graphs": True},
    "compile": {"compiled": True},
}


@app.command()
@reading_options("capture", "partial", "memory_limit_bytes", "formulas", "inductor_cache")
def whatif(
    source: Annotated[str, typer.Argument(help="Run directory or trace.", metavar="RUN_OR_TRACE")],
    at_bound: Annotated[
        list[str] | None,
        option(f"Operators that run at their bound {_MANY}.", metavar="NAME[@MODULE]"),
    ] = None,
    scale: Annotated[
        list[str] | None,
        option(
            f"Operators whose time is multiplied by a factor {_MANY}.",
            metavar="NAME[@MODULE]=FACTOR",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        option(f"Operators that go, with their launches {_MANY}.", metavar="NAME[@MODULE]"),
    ] = None,
    no_gaps: Annotated[bool, option("The host is never late with a launch.", "--no-gaps")] = False,
    no_waits: Annotated[bool, option("The host waits for the device nowhere.", "--no-waits")] = False,
    precision: Annotated[
        str | None,
        option("Matrix work in this precision.", metavar="bf16|fp16|amp-bf16|..."),
    ] = None,
    graphs: Annotated[bool, option("Launches by CUDA graphs.", "--graphs")] = False,
    compiled: Annotated[bool, option("Operators fused by torch.compile.", "--compile")] = False,
    format: Annotated[str | None, format_option("table", "json")] = None,
    at: At = None,
    output: Output = None,
    ceilings: OtherCeilings = None,
    **reading: Any,
) -> None:
    """Replay the steps of a run or trace with changes, and print what a step would take.

    NAME is an operator, a pattern or a category. Changes add up in this order: --no-gaps, --no-waits,
    --precision, --compile, --graphs, --without, --at-bound, --scale.

    [bold]rooflines whatif trace.json.gz --at-bound attention --no-gaps[/bold]

    [bold]rooflines whatif RUN --scale 'aten::mm@layers.*=0.5' --without 'aten::copy_'[/bold]
    """
    from rooflines.pipeline import what_if
    from rooflines.reports.page.what_if import page

    flags = zip(_FLAGS, (no_gaps, no_waits, graphs, compiled), strict=True)
    given = {"at-bound": at_bound, "scale": scale, "without": without, "precision": precision and [precision]}
    changes = [name for name, is_given in flags if is_given]
    changes += [f"{name}={text}" for name, texts in given.items() for text in texts or ()]
    if not changes:
        raise UsageError("no change is given.", hint="For example: --at-bound attention, or --no-gaps")
    place = destination(format, output, {".json": "json"})
    check_at(at, place.format, output)
    with progress_bar(place.format == "json") as progress:
        found = what_if(source, **as_arguments(changes), ceilings=ceilings, progress=progress, **reading)
    place.show(lambda: page(found), "whatif", {"json": lambda: json_of(found, at)})


def as_arguments(changes: Iterable[str]) -> dict[str, Any]:
    """The arguments of ``what_if`` for changes written as options without ``--``, such as ``no-gaps`` and
    ``scale=aten::mm=0.5``. Raises UsageError for another."""
    found: dict[str, Any] = {"at_bound": [], "without": [], "scale": {}}
    for change in changes:
        name, _, value = change.partition("=")
        if change in _FLAGS:
            found.update(_FLAGS[change])
        elif value and name in ("at-bound", "without"):
            found[name.replace("-", "_")].append(value)
        elif value and name == "scale":
            found[name].update([_factor(value)])
        elif value and name == "precision":
            found[name] = value
        else:
            hint = "For example: no-gaps, at-bound=attention, precision=bf16"
            raise UsageError(f"{change!r} is not a change of rooflines whatif.", hint=hint)
    return found


def _factor(text: str) -> tuple[str, float]:
    """An operator and its factor."""
    name, _, factor = text.rpartition("=")
    try:
        return name, float(factor)
    except ValueError:
        hint = "For example: --scale 'aten::mm=0.5'"
        raise UsageError(f"--scale {text!r} is not NAME=FACTOR.", hint=hint) from None
