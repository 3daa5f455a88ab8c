"""Suggested changes: the run's command with one option changed, or a change in the user's code."""

from __future__ import annotations

import shlex

from rooflines.arguments import arg, as_options, in_python
from rooflines.roofline.analysis import Analysis

# What a repeated run should not take over: its directory, its formats, its silence.
_DROPPED = {"--output": 1, "-o": 1, "--formats": 1, "--quiet": 0, "-q": 0, "--remeasure": 0}

# The equivalent of an option in the user's code.
_IN_CODE = {
    "compile": "in the code: torch.compile the model",
    "channels_last": "in the code: memory_format=torch.channels_last for the model and its images",
    "precision": "in the code: run the step under torch.autocast",
    "batch_size": "a larger batch",
}


def command(analysis: Analysis, argument: str, value: object) -> str:
    """The command that made the run with ``argument`` added or replaced; for a run made from Python, the argument alone.

    A script, a loop and a step function are the user's: for them it is what to change in the code.
    """
    if analysis.workload.source != "model":
        return _IN_CODE[argument]
    words = shlex.split(analysis.command)
    if words[:2] != ["rooflines", "profile"]:
        return in_python(arg(argument, value))
    flag, *given = as_options(arg(argument, value)).split()
    own = len(words) if "--" not in words else words.index("--")  # what follows -- is the script's
    kept: list[str] = []
    skip = 0
    for word in words[:own]:
        name = word.partition("=")[0]
        if skip:
            skip -= 1
        elif name == flag:
            skip = len(given) if "=" not in word else 0
        elif name in _DROPPED:
            skip = _DROPPED[name] if "=" not in word else 0
        else:
            kept.append(word)
    return shlex.join([*kept, flag, *given, *words[own:]])


def larger_batch(analysis: Analysis) -> str:
    """The same with twice the batch."""
    return command(analysis, "batch_size", 2 * (analysis.workload.batch_size or 1))


def channels_last(analysis: Analysis) -> str:
    """The same with images and weights in the layout that convolutions prefer."""
    return command(analysis, "channels_last", True)
