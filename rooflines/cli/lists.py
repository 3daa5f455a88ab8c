"""Every option of ``profile`` and ``train`` as a list of values, for the commands that make many runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from rooflines.pipeline.options import ProfileOptions
from rooflines.profiler.training.options import TrainOptions

F = TypeVar("F", bound=Callable[..., Any])
_LISTS = "Options of profile or train (one value, or several separated by commas)"
_TRAIN_ONLY = ("train_samples", "test_samples", "epochs", "seeds", "learning_rate", "weight_decay", "lr_steps", "weights", "variants")
_NOT_SWEPT = ("output", "formats", "progress", "to_end", "trace", "remeasure")


def lists_of_options(command: F) -> F:
    """Give a command every option of ``profile`` and ``train`` as text, instead of its ``**lists``."""
    hints = get_type_hints(TrainOptions, include_extras=True) | get_type_hints(ProfileOptions, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    found = []
    for name, hint in hints.items():
        if name in _NOT_SWEPT or not hasattr(hint, "__metadata__"):
            continue
        words = f"{hint.__metadata__[0].help}{' (--train)' if name in _TRAIN_ONLY else ''}"
        option = typer.Option(
            f"--{name.replace('_', '-')}", help=words, metavar="VALUE,...", rich_help_panel=_LISTS, show_default=False
        )
        found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]))
    command.__signature__ = signature.replace(parameters=[*own, *found])  # type: ignore[attr-defined]
    return command
