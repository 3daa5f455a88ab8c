"""Options shared by several commands, and the panels of their help."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import typer

from rooflines.errors import UsageError
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.options import OUTPUT, Compile, Options
from rooflines.reports.formats import FORMATS, check_formats

FORMATS_HELP = f"Reports to write, separated by commas, of {', '.join(FORMATS)}; or all."

RecordFormat: TypeAlias = Literal["table", "json"]
By: TypeAlias = Literal["operator", "module"]

_RANKS = "Several ranks"

F = TypeVar("F", bound=Callable[..., Any])
# What an option has on the command line only: its type, its help, or another name.
_TYPES: dict[str, Any] = {"device": str, "output": Path | None, "formats": str, "compile": Compile}
_FLAGS = {"output": ("--output", "-o")}


def options_of(record: type[Options], *names: str) -> Callable[[F], F]:
    """Give a command the options that the fields of ``record`` declare, all or those in ``names``, instead of its ``**options``.

    They are listed before the command's own keyword-only options.
    """
    hints = get_type_hints(record, include_extras=True)
    fields = [field for field in dataclasses.fields(record) if not names or field.name in names]
    found = [_parameter(field.name, field.default, hints[field.name]) for field in fields if get_origin(hints[field.name]) is Annotated]

    def decorate(command: F) -> F:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        first = [one for one in own if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        command.__signature__ = signature.replace(parameters=[*first, *found, *own[len(first) :]])  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(name: str, default: Any, hint: Any) -> inspect.Parameter:
    """The field ``name`` as Typer reads it."""
    kind, declared = get_args(hint)
    kind = _TYPES.get(name, kind)
    flag = f"--{name.replace('_', '-')}"
    flags = _FLAGS.get(name, (f"{flag}/--no-{flag[2:]}" if default is True else flag,))
    text = FORMATS_HELP if name == "formats" else declared.help
    check = check_directory_name if name == "output" else None
    option = typer.Option(*flags, callback=check, help=text, rich_help_panel=declared.group, show_default=declared.unset or True)
    shown = ",".join(default) if isinstance(default, tuple) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=Annotated[kind, option])


def check_directory_name(output: Path | None) -> Path | None:
    """``--output`` of a command that fills a directory. Raises UsageError for the name of a report."""
    for name, (_, file, *_) in FORMATS.items():
        if output is not None and output.suffix.lower() == Path(file).suffix and not output.is_dir():
            hint = f"Give a directory, with --formats {name} for {Path(file).name}."
            raise UsageError(f"--output {str(output)!r} is the name of a file; this command fills a directory.", hint=hint)
    return output


def output_directory(words: str, unset: str) -> Any:
    """The option ``--output`` of a command that fills a directory, ``unset`` by default."""
    return typer.Option("--output", "-o", callback=check_directory_name, help=words, rich_help_panel=OUTPUT, show_default=unset)


def _load_formulas(paths: list[Path] | None) -> list[Path]:
    if paths:
        from rooflines.roofline.formulas.plugins import load_file

        for path in paths:
            load_file(path)
    return paths or []  # Typer 0.19 takes the length of what a callback returns


Jobs = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that read traces.",
        rich_help_panel=_RANKS,
        show_default="number of processors; fewer for small traces",
    ),
]
Capture = Annotated[
    list[Path] | None,
    typer.Option(
        help="Capture trace of the CUDA or HIP graphs in SOURCE: a file or a folder (repeatable).",
        show_default="SOURCE/capture_traces, if SOURCE is a directory with a trace",
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", help="Read the traces on the workers of a Dask scheduler.", metavar="ADDRESS", rich_help_panel=_RANKS),
]
OtherCeilings = Annotated[str | None, typer.Option(help=CEILINGS_HELP, show_default="as in rooflines analyze")]
MemoryLimit = Annotated[str, typer.Option(help="Maximum memory for trace data.", metavar="SIZE")]
Partial = Annotated[bool, typer.Option("--partial", help="Read a truncated trace up to the cut.")]
InductorCache = Annotated[
    Path | None,
    typer.Option(
        "--inductor-cache", metavar="DIR", show_default=False,
        help="Count compiled kernels from this inductor cache (the TORCHINDUCTOR_CACHE_DIR of the recorded program).",
    ),
]  # fmt: skip
Formulas = Annotated[
    list[Path] | None,
    typer.Option(
        "--formulas", metavar="FILE.py", help="Python file that registers formulas for custom operators (repeatable).",
        callback=_load_formulas, show_default=False,
    ),
]  # fmt: skip


Reports = Annotated[str, typer.Option(help=FORMATS_HELP, rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the report.", rich_help_panel=OUTPUT)]


Formats = Annotated[
    str | None,
    typer.Option(help=f"{FORMATS_HELP} --output is their directory then.", rich_help_panel=OUTPUT, show_default="none"),
]


TextFormat = Annotated[
    Literal["table", "json", "csv"] | None,
    typer.Option(help="Output format.", rich_help_panel=OUTPUT, show_default="table, or by the suffix of --output"),
]


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to a file instead of the terminal.", metavar="FILE", rich_help_panel=OUTPUT),
]


def formats(text: str | None) -> tuple[str, ...]:
    """The formats that ``--formats`` names; raises UsageError for an unknown one."""
    return () if text is None else check_formats(name.strip() for name in text.split(",") if name.strip())


def size(text: str) -> int:
    from rooflines.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--memory-limit {text!r} is not a size: {error}.", hint="For example: --memory-limit 4GB") from None
