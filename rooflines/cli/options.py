"""Options shared by several commands, and the panels of their help."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import typer

from rooflines.errors import UsageError
from rooflines.pipeline.options import CEILINGS_HELP, NOT_REPEATED
from rooflines.profiler.options import OUTPUT, WHAT_GROUP, Compile, PointOptions, split_list
from rooflines.reports.render.formats import FORMATS, OF_PAGES, check_formats, usable

# What commands write by default: those whose packages are installed.
PAGE_FORMATS, SEARCH_FORMATS, MONITOR_FORMATS = (
    ",".join(usable(names))
    for names in (("html", "pdf"), ("html", "pdf", "tensorboard"), ("html", "json", "csv", "tensorboard"))
)
FORMATS_HELP, _PAGES_HELP = (
    f"Reports to write, separated by commas, of {', '.join(names)}; or all." for names in (FORMATS, OF_PAGES)
)

By = Literal["operator", "module"]

_RANKS = "Several ranks"

At = Annotated[
    str | None,
    typer.Option(
        help=(
            "Print only this part of the JSON: a JSON pointer, for example /totals or "
            "/operators/0,3-5/time_s."
        ),
        rich_help_panel=OUTPUT,
        metavar="POINTER",
        show_default="all of it",
    ),
]

F = TypeVar("F", bound=Callable[..., Any])
_keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
# What an option has on the command line only: its type, its help, or another name.
_TYPES: dict[str, Any] = {"device": str, "output": Path | None, "formats": str, "compile": Compile}
FORMAT_FLAGS = ("--format", "--formats")
_FLAGS = {"output": ("--output", "-o"), "formats": FORMAT_FLAGS}
_LISTS = "Options of profile or train (one value, or several separated by commas)"


def option(help: str, *flags: str, group: str | None = None, **more: Any) -> Any:
    """An option of a command: its line of help, its ``flags`` where they differ from its name, and its group
    in the help."""
    return typer.Option(*flags, help=help, rich_help_panel=group, **more)


def options_of(
    record: type[PointOptions], *names: str, without: tuple[str, ...] = (), lists: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Give a command the options that the fields of ``record`` declare, all or those in ``names``, but
    ``without`` some, instead of its ``**options``.

    They are listed before the command's own keyword-only options. Those in ``lists`` are text, for one value
    or several.
    """
    hints = get_type_hints(record, include_extras=True)
    found = [
        _parameter(field.name, field.default, hints[field.name], listed=field.name in lists)
        for field in dataclasses.fields(record)
        if (not names or field.name in names) and field.name not in without
        if get_origin(hints[field.name]) is Annotated
    ]
    return lambda command: _with_options(command, found, before=True)


def lists_of_options(command: F) -> F:
    """Give a command every option of ``profile`` and ``train`` as text, for lists of values, instead of its
    ``**lists``."""
    from rooflines.pipeline.options import ProfileOptions
    from rooflines.profiler.training.options import TrainOptions

    training, profiling = (
        get_type_hints(record, include_extras=True) for record in (TrainOptions, ProfileOptions)
    )
    found = []
    for name, hint in (training | profiling).items():
        if name not in NOT_REPEATED and hasattr(hint, "__metadata__"):
            words = f"{hint.__metadata__[0].help}{'' if name in profiling else ' (--train)'}"
            declared = option(words, f"--{name.replace('_', '-')}", group=_LISTS, metavar="VALUE,...")
            found.append(_keyword(name, default=None, annotation=Annotated[str | None, declared]))
    return _with_options(command, found)


def _with_options(command: F, found: list[inspect.Parameter], *, before: bool = False) -> F:
    """``command`` with the options ``found`` instead of its variable ones: behind its own, or ``before`` the
    keyword-only ones."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    at = len([one for one in own if not before or one.kind is not inspect.Parameter.KEYWORD_ONLY])
    parameters = [*own[:at], *found, *own[at:]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _parameter(name: str, default: Any, hint: Any, *, listed: bool) -> inspect.Parameter:
    """The field ``name`` as Typer reads it."""
    kind, declared = get_args(hint)
    if listed:
        words, shown = f"{declared.help.rstrip('.')}; several give curves.", declared.unset or str(default)
        made = option(
            words, f"--{name.replace('_', '-')}", group=declared.group, metavar="N,...", show_default=shown
        )
        return _keyword(name, default=None, annotation=Annotated[str | None, made])
    kind = _TYPES.get(name, kind)
    flag = f"--{name.replace('_', '-')}"
    flags = _FLAGS.get(name, (f"{flag}/--no-{flag[2:]}" if default is True else flag,))
    text = FORMATS_HELP if name == "formats" else declared.help
    check = check_directory_name if name == "output" else None
    made = option(text, *flags, group=declared.group, callback=check, show_default=declared.unset or True)
    shown = ",".join(default) if isinstance(default, tuple) else default
    return _keyword(name, default=shown, annotation=Annotated[kind, made])


def is_file_name(output: Path) -> bool:
    """Whether ``--output`` names a file, by its suffix; a directory that is there stays one."""
    return bool(output.suffix) and not output.is_dir()


def check_directory_name(output: Path | None) -> Path | None:
    """``--output`` of a command that fills a directory. Raises UsageError for the name of a report."""
    for name, (_, file, *_) in FORMATS.items():
        if output is not None and output.suffix.lower() == Path(file).suffix and not output.is_dir():
            raise UsageError(
                f"--output {str(output)!r} is the name of a file; this command fills a directory.",
                hint=f"Give a directory, with --formats {name} for {Path(file).name}.",
            )
    return output


def format_option(*printed: str, traced: bool = False) -> Any:
    """The option ``--format`` of a command whose page is printed as a table or in one of the formats
    ``printed``, or written."""
    names = ", ".join(FORMATS if traced else OF_PAGES)
    words = (
        f"Print it as {', '.join(printed)}, or write reports ({names}; several separated by commas; or all)."
    )
    return option(words, *FORMAT_FLAGS, group=OUTPUT, show_default="table, or by the suffix of --output")


def output_directory(words: str, unset: str) -> Any:
    """The option ``--output`` of a command that fills a directory, ``unset`` by default."""
    return option(words, "--output", "-o", group=OUTPUT, callback=check_directory_name, show_default=unset)


OtherCeilings = Annotated[str | None, option(CEILINGS_HELP, show_default="as in rooflines analyze")]
ReportsOption = Annotated[str, option(_PAGES_HELP, *FORMAT_FLAGS, group=OUTPUT)]
QuietOption = Annotated[bool, option("Print only the path of the report.", "--quiet", "-q", group=OUTPUT)]
Format = Annotated[str | None, format_option("table", "json", "csv")]
Target = Annotated[str | None, typer.Argument(help="Same as --model.")]
Model = Annotated[
    str | None,
    option(
        "Torchvision model (resnet50), timm:NAME, hf:NAME, hf:PATH/config.json or path/to/file.py:factory.",
        group=WHAT_GROUP,
    ),
]
TrainFlag = Annotated[
    bool, option("Train to accuracy instead of profiling steps.", "--train", group=WHAT_GROUP)
]
Output = Annotated[
    Path | None,
    option(
        "Write to a file, in the format of its suffix, or into a directory.",
        "--output",
        "-o",
        group=OUTPUT,
        metavar="PATH",
        show_default="the terminal",
    ),
]


def only_model(target: str | None, model: str | None, example: str) -> str:
    """The model that a command was given as its argument or as ``--model``. Raises UsageError for both or
    none."""
    if (model is None) == (target is None):
        raise UsageError("exactly one model is required.", hint=f"For example: {example}")
    return model or target or ""


def parse_formats(text: str | None, *, traced: bool | None = False) -> tuple[str, ...]:
    """The formats that ``--formats`` names, checked by ``check_formats``."""
    return check_formats(split_list(text or ""), traced=traced)


# --- reading traces ---------------------------------------------------------------------------------------


def _load_formulas(paths: list[Path] | None) -> list[Path]:
    if paths:
        from rooflines.roofline.count.formulas.families import load_file

        for path in paths:
            load_file(path)
    return paths or []  # Typer 0.19 takes the length of what a callback returns


Formulas = Annotated[
    list[Path] | None,
    option(
        "Python file that registers formulas for custom operators (repeatable).",
        "--formulas",
        metavar="FILE.py",
        callback=_load_formulas,
    ),
]


class _Reading(TypedDict):
    """The options of reading a trace, under the names of the arguments of ``rooflines.analyze``."""

    capture: Annotated[
        list[Path] | None,
        option(
            "Capture trace of the CUDA or HIP graphs in SOURCE: a file or a folder (repeatable).",
            show_default="SOURCE/capture_traces, if SOURCE is a directory with a trace",
        ),
    ]
    jobs: Annotated[
        int | None,
        option(
            "Number of processes that read traces.",
            group=_RANKS,
            show_default="number of processors; fewer for small traces",
        ),
    ]
    dask: Annotated[
        str | None,
        option(
            "Read the traces on the workers of a Dask scheduler.", "--dask", group=_RANKS, metavar="ADDRESS"
        ),
    ]
    partial: Annotated[bool, option("Read a truncated trace up to the cut.", "--partial")]
    memory_limit_bytes: Annotated[
        str, option("Maximum memory for trace data.", "--memory-limit", metavar="SIZE")
    ]
    keep_paths: Annotated[
        bool, option("Name source files by their whole paths, which may contain your name.", "--keep-paths")
    ]
    formulas: Formulas
    inductor_cache: Annotated[
        Path | None,
        option(
            "Count compiled kernels from this inductor cache (the TORCHINDUCTOR_CACHE_DIR of the "
            "recorded program).",
            "--inductor-cache",
            metavar="DIR",
        ),
    ]


# Those of a comparison, which reads one trace of each side.
TRACE_OPTIONS = ("partial", "memory_limit_bytes", "formulas")


def _import_numpy() -> None:
    """Import NumPy without the threads of its BLAS, which no analysis uses: starting them takes as long as
    the rest of the import."""
    name = "OPENBLAS_NUM_THREADS"
    if "numpy" in sys.modules or name in os.environ:
        return
    os.environ[name] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[name]  # torch reads it as well, when it is loaded


def reading_options(*names: str, profiles: bool = False) -> Callable[[F], F]:
    """Give a command the options of reading a trace, all or those in ``names``, and pass them on as its
    ``**reading``.

    A command that ``profiles`` runs the user's program in this process, which has to be as the program would
    find it.
    """
    hints = get_type_hints(_Reading, include_extras=True)
    chosen = names or tuple(hints)
    defaults = {"partial": False, "keep_paths": False, "memory_limit_bytes": "4GB"}
    found = [_keyword(name, default=defaults.get(name), annotation=hints[name]) for name in chosen]

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(**options: Any) -> Any:
            options["memory_limit_bytes"] = _size(options["memory_limit_bytes"])
            options.pop("formulas")  # which are loaded
            if "capture" in options:
                options["capture"] = options["capture"] or None
            if profiles:
                return command(**options)
            _import_numpy()
            from rooflines.profiler.read.reader import paused

            with paused():
                return command(**options)

        run.__signature__ = inspect.signature(_with_options(command, found))  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def _size(text: str) -> int:
    from rooflines.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(
            f"--memory-limit {text!r} is not a size: {error}.", hint="For example: --memory-limit 4GB"
        ) from None
