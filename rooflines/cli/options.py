"""Options shared by several commands, and the panels of their help."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rooflines.errors import UsageError
from rooflines.reports.formats import FORMATS, check_formats

WHAT, HOW, MEASURE, OUTPUT = "Workload", "Execution", "Measurement", "Output"


class Mode(str, Enum):
    """What a step runs."""

    inference = "inference"
    training = "training"


class TableFormat(str, Enum):
    """Output formats of commands that print a table."""

    table = "table"
    json = "json"
    csv = "csv"


class Precision(str, Enum):
    """Precision of the arithmetic."""

    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"
    amp_bf16 = "amp-bf16"
    amp_fp16 = "amp-fp16"


def _load_formulas(paths: list[Path] | None) -> None:
    if paths:
        from rooflines.roofline.formulas.plugins import load_file

        for path in paths:
            load_file(path)


BatchSize = Annotated[int | None, typer.Option(help="Samples per step.", rich_help_panel=WHAT, show_default="1")]
ImageSize = Annotated[
    int | None,
    typer.Option(help="Image height and width in pixels.", rich_help_panel=WHAT, show_default="size of the published weights"),
]
SequenceLength = Annotated[int, typer.Option(help="Tokens per sequence (language models).", rich_help_panel=WHAT)]
PrecisionOption = Annotated[Precision, typer.Option(help="Precision of the network, or of autocast (amp-*).", rich_help_panel=HOW)]
CEILINGS_HELP = "Ceilings to use: `measured`, `spec`, a device name or a JSON file."
MemoryLimit = Annotated[str, typer.Option(help="Maximum memory for trace data.", metavar="SIZE")]
Partial = Annotated[bool, typer.Option("--partial", help="Read a truncated trace up to the cut.")]
Formulas = Annotated[
    list[Path] | None,
    typer.Option(
        "--formulas", metavar="FILE.py", help="Python file that registers formulas for custom operators (repeatable).",
        callback=_load_formulas, show_default=False,
    ),
]  # fmt: skip
ChannelsLast = Annotated[bool, typer.Option("--channels-last", help="Use channels-last memory format (NHWC).", rich_help_panel=HOW)]


FORMATS_HELP = f"Reports to write, separated by commas, of {', '.join(FORMATS)}."


Formats = Annotated[
    str | None,
    typer.Option(help=f"{FORMATS_HELP} --output is their directory then.", rich_help_panel=OUTPUT, show_default="none"),
]


Directory = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Directory for the reports.", rich_help_panel=OUTPUT, show_default="runs/NAME-TIME"),
]


def formats(text: str | None, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The formats that ``--formats`` names; raises UsageError for an unknown one."""
    return default if text is None else check_formats(name.strip() for name in text.split(",") if name.strip())


def size(text: str) -> int:
    from rooflines.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--memory-limit {text!r} is not a size: {error}.", hint="For example: --memory-limit 4GB") from None
