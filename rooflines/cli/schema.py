# ruff: noqa: T201 (a command line prints)
"""``rooflines schema``: the JSON Schemas of what rooflines writes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rooflines.cli.app import app

# By name, because only the record that is asked for is imported; tests/test_package.py reads these names as imports.
HOMES = {
    "analysis": "rooflines.roofline.analysis:Analysis",
    "ranks": "rooflines.roofline.ranks.records:RankAnalysis",
    "comparison": "rooflines.roofline.comparison.records:Comparison",
    "monitor": "rooflines.roofline.usage.device_usage:MonitorAnalysis",
    "sweep": "rooflines.sweeps.records:SweepAnalysis",
    "summary": "rooflines.reports.summary:Summary",
    "prediction": "rooflines.roofline.forecast.forecast:Forecast",
}


@app.command()
def schema(
    record: Annotated[
        Literal["analysis", "ranks", "comparison", "monitor", "sweep", "summary", "prediction"],
        typer.Argument(help="What analyze (run or trace, ranks, monitored program, sweep), compare, summary and predict print."),
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
    print(msgspec.json.format(msgspec.json.encode(published), indent=1).decode())
