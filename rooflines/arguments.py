"""Arguments in sentences: ``steps=8`` in Python, ``--steps 8`` on the command line.

Errors name arguments with ``arg``, which marks them, so that each reader is shown the spelling to use.
"""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

# Between characters that no text has. The second group is empty, or ``=`` and the value.
_ARGUMENT = re.compile("\x02(\\w+)(=[^\x03]*)?\x03")


def arg(name: str, value: Any = None) -> str:
    """Return the argument ``name``, or ``name=value``, marked for ``in_python`` and ``as_options``."""
    return f"\x02{name}\x03" if value is None else f"\x02{name}={value!r}\x03"


def in_python(text: str) -> str:
    """Return ``text`` with each argument as in Python: ``batch_size=8``."""
    return _ARGUMENT.sub(r"\1\2", text)


def as_options(text: str) -> str:
    """Return ``text`` with each argument as an option: ``--batch-size 8``, and without its unit ``--period``
    (``period_s``)."""
    return _ARGUMENT.sub(_option, text)


def escaped(name: str) -> str:
    """The name of a file as text that every format can hold: bytes that are not UTF-8 as ``\\xe9``."""
    return (
        name
        if name.isascii()
        else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    )


def _option(argument: re.Match[str]) -> str:
    name = "--" + argument[1].removesuffix("_s").removesuffix("_bytes").replace("_", "-")
    value = ast.literal_eval(argument[2][1:]) if argument[2] else True
    return name if value is True else f"{name} {shlex.quote(str(value))}"
