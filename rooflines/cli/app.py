# ruff: noqa: T201 (a command line prints)
"""The Typer application. Commands register here, each when it runs; errors become one line, a hint and an
exit code."""

from __future__ import annotations

import atexit
import difflib
import gc
import inspect
import os
import re
import shlex
import sys
from importlib import import_module
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rooflines._version import __version__
from rooflines.arguments import as_options, escaped
from rooflines.errors import Interrupted, RooflinesError, UsageError, WorkloadError
from rooflines.extras import missing
from rooflines.installed import entries
from rooflines.installed import load as load_entry

if TYPE_CHECKING:
    import traceback

# Errors of typer, and what others call some values.
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_LIST = re.compile(r"'[^',]+(,[^',]+)+' is not a valid")
_MEANT = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "half": "fp16",
    "infer": "inference",
    "eval": "inference",
    "train": "training",
}

# Each is the file of that name, which registers it. Further ones are entry points (``rooflines.commands``).
COMMANDS = (
    "advise",
    "analyze",
    "calibrate",
    "ceilings",
    "check",
    "compare",
    "count",
    "devices",
    "doctor",
    "formulas",
    "mcp",
    "monitor",
    "predict",
    "profile",
    "report",
    "schema",
    "skill",
    "summary",
    "sweep",
    "train",
    "tune",
    "view",
    "whatif",
)
app = typer.Typer(
    name="rooflines",
    help="Profile deep-learning workloads and place every operator on the device's roofline.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_HERE = Path(__file__).parent.parent


def main() -> None:
    """Run the command line. RooflinesErrors print one line, a hint and exit; other exceptions are bugs and
    show a traceback."""
    atexit.register(gc.freeze)  # the interpreter would search all objects for cycles as it ends
    arguments = sys.argv[1:] or ["--help"]
    first = arguments[0]
    # A file, a directory or a URL instead of a command is to be analyzed.
    if "://" in first or (Path(first).exists() and not _is_command(first)):
        arguments = ["analyze", *arguments]
    try:
        load(arguments)
        # Not app(), which replaces sys.excepthook: a program that is profiled has its own, or Python's.
        sys.exit(typer.main.get_command(app)(arguments, prog_name="rooflines", standalone_mode=False))
    except RooflinesError as error:
        _print_cause(error)
        print_error(error)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted.", "No run was being recorded.", Interrupted.exit_code)
    except ModuleNotFoundError as error:
        if (lacks := missing(error)) is None:
            raise
        _fail(*lacks, UsageError.exit_code)
    except UnicodeEncodeError:
        if not any(escaped(argument) != argument for argument in arguments):
            raise
        _fail(
            "a file name that is not UTF-8 cannot be used here.",
            f"Rename it: {shlex.join(map(escaped, arguments))}",
            2,
        )
    except Exception as error:
        # A usage error of typer. Its class moved between the supported versions; this method did not.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", None) or "rooflines"
        message = " ".join(error.format_message().split())
        hint = f"See {command} --help."
        if "No such option" in message and any(argument.endswith(".py") for argument in sys.argv):
            hint = "Give a script's own options after --: rooflines profile train.py -- --epochs 2"
        if (meant := _meant(message)) is not None:
            hint = f"Did you mean {meant}? {hint}"
        elif command in ("rooflines profile", "rooflines train") and _LIST.search(message):
            kind = " --train" if command.endswith("train") else ""
            hint = f"A sweep takes lists: rooflines sweep{kind} {shlex.join(arguments[1:])}"
        _fail(message[:1].lower() + message[1:], hint, UsageError.exit_code)


def _meant(message: str) -> str | None:
    """The value that another one, which the error ``message`` says is not possible, may have been meant
    for."""
    found = _CHOICE.search(message)
    if found is None:
        return None
    choices = re.findall("'([^']+)'", found[2])
    close = [_MEANT.get(found[1].lower(), ""), *difflib.get_close_matches(found[1], choices, 1, 0.75)]
    return next((value for value in close if value in choices), None)


def load(arguments: list[str]) -> None:
    """Import the command that ``arguments`` begin with, none for the version, and every command in the order
    of the alphabet if they begin with anything else."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return
    further = {} if first in COMMANDS else entries("commands")
    for name in [first] if first in COMMANDS or first in further else sorted({*COMMANDS, *further}):
        if name in further:
            command = load_entry("command", name, further[name])
            app.add_typer(command, name=name) if isinstance(command, typer.Typer) else app.command(name)(
                command
            )
        else:
            import_module(f"rooflines.cli.{name}")
    for command in app.registered_commands:  # typer keeps the line breaks of docstrings
        paragraphs = inspect.cleandoc(command.help or command.callback.__doc__ or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _is_command(name: str) -> bool:
    return (
        name.startswith("-")
        or name in COMMANDS
        or (not {".", os.sep} & {*name} and name in entries("commands"))
    )


def print_error(error: RooflinesError) -> None:
    """Print its message and hint on standard error."""
    _complain(as_options(error.marked_message), as_options(error.marked_hint))


def _complain(message: str, hint: str) -> None:
    print(f"rooflines: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)


def _fail(message: str, hint: str, code: int) -> NoReturn:
    _complain(message, hint)
    sys.exit(code)


def _print_cause(error: RooflinesError) -> None:
    """Print the traceback of the user's code if that failed. Errors raised by torch for an input are already
    in the message."""
    import traceback

    cause = error.__cause__
    if not isinstance(error, WorkloadError) or cause is None or error.is_told:
        return
    shown = traceback.TracebackException.from_exception(cause)
    users = False
    chain: list[traceback.TracebackException] = []
    link: traceback.TracebackException | None = shown
    while link is not None and link not in chain:
        chain.append(link)
        # Without leading frames of rooflines and of Python's import machinery.
        of_users = dropwhile(
            lambda frame: _is_ours(frame) or frame.filename.startswith("<frozen"), link.stack
        )
        link.stack = traceback.StackSummary.from_list(list(of_users))
        users = users or any(
            "site-packages" not in frame.filename and not _is_ours(frame) for frame in link.stack
        )
        link = link.__cause__ or link.__context__
    if users or isinstance(cause, SyntaxError):
        print("".join(shown.format()), end="", file=sys.stderr)


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return _HERE in Path(frame.filename).parents


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Take the options of ``rooflines`` itself."""
