"""What to type: the command that made a run, with the option of a finding."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rooflines.arguments import arg, as_options
from rooflines.roofline.analysis import Finding

# What a repeated run should not take over: its directory, its formats, its silence.
_DROPPED = {"--output": 1, "-o": 1, "--format": 1, "--formats": 1, "--quiet": 0, "-q": 0, "--remeasure": 0}


def suggested(finding: Finding, command: str) -> str:
    """What to try: ``command``, which made the run, with the option of ``finding`` added or replaced, or its own suggestion.

    The option stays as in Python where ``command`` is not one of ``rooflines profile``.
    """
    words = shlex.split(command) if finding.option is not None else []
    if finding.option is None or words[:2] != ["rooflines", "profile"]:
        return finding.suggestion
    flag, *given = as_options(arg(finding.option, finding.value)).split()
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


def command_of(kind: str, options: Mapping[str, bool | int | float | str]) -> str:
    """Return the shell command of ``rooflines profile`` or ``train`` (``kind``) with ``options``; one that is off is left out."""
    words = [as_options(arg(name, value)) for name, value in options.items() if value is not False]
    return " ".join(["rooflines", kind, *words])
