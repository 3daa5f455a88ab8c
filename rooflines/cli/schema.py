# ruff: noqa: T201 (a command line prints)
"""``rooflines schema``: the JSON Schemas of what rooflines writes."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any, Literal

import typer

from rooflines.cli.app import app

# By name, because only the record that is asked for is imported; tests/test_package.py reads these names as
# imports.
HOMES = {
    "analysis": "rooflines.roofline.analysis:Analysis",
    "ranks": "rooflines.roofline.ranks.records:RankAnalysis",
    "comparison": "rooflines.roofline.compare.records:Comparison",
    "monitor": "rooflines.roofline.judge.usage.device_usage:MonitorAnalysis",
    "sweep": "rooflines.sweeps.records:SweepAnalysis",
    "summary": "rooflines.reports.page.summary:Summary",
    "prediction": "rooflines.roofline.predict.forecast:Forecast",
    "whatif": "rooflines.roofline.predict.what_if:WhatIf",
}
# A field below the lines that explain it.
_EXPLAINED = re.compile(r"((?:^ +#: .*\n)+) +(\w+):", re.MULTILINE)


@app.command()
def schema(
    record: Annotated[
        Literal["analysis", "ranks", "comparison", "monitor", "sweep", "summary", "prediction", "whatif"],
        typer.Argument(
            help=(
                "What analyze (run or trace, ranks, monitored program, sweep), compare, summary, "
                "predict and whatif print."
            )
        ),
    ] = "analysis",
) -> None:
    """Print the JSON Schema of a record that rooflines writes.

    [bold]rooflines schema summary[/bold]
    """
    from importlib import import_module

    import msgspec

    home, _, name = HOMES[record].partition(":")
    kind = getattr(import_module(home), name)
    published = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    # A record of another version does not fit.
    fields = published["$defs"][name]["properties"]
    fields["schema"] = {"const": fields["schema"]["default"]}
    for record_name, record_kind in records_in(kind).items():
        for field, text in explanations(record_kind).items():
            published["$defs"][record_name]["properties"][field]["description"] = text
    print(msgspec.json.format(msgspec.json.encode(published), indent=1).decode())


def records_in(kind: type) -> dict[str, type]:
    """The record ``kind`` and those in its fields, by name."""
    import msgspec.inspect

    found: dict[str, type] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif isinstance(part, msgspec.inspect.StructType) and part.cls.__name__ not in found:
            found[part.cls.__name__] = part.cls
            waiting += (field.type for field in part.fields)
        elif isinstance(part, msgspec.inspect.Type) and not isinstance(part, msgspec.inspect.StructType):
            waiting += msgspec.structs.astuple(part)
    return found


def explanations(kind: type) -> dict[str, str]:
    """What the comments above the fields of a record say (``#:``), those that it inherits included."""
    sources = (inspect.getsource(base) for base in kind.__mro__ if base.__module__.startswith("rooflines"))
    found = [pair for source in sources for pair in _EXPLAINED.findall(source)]
    return {name: " ".join(text.replace("#:", "").replace("``", "`").split()) for text, name in found}
