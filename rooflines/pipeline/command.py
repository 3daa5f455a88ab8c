"""The command that started this process."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rooflines.profiler.read.sources import shown


def default_command() -> str:
    """The shell line that started this process, with the programs' names instead of their paths and no
    credentials in URLs; empty in a notebook."""
    program, *arguments = map(shown, sys.argv or [""])
    path = Path(program)
    if path.name in ("rooflines", "rooflines.exe") or (
        path.name == "__main__.py" and path.parent.name == "rooflines"
    ):
        return shlex.join(["rooflines", *arguments])
    if path.name.startswith(("ipykernel", "colab_kernel")):
        return ""
    module = getattr(sys.modules.get("__main__"), "__spec__", None)  # of python -m
    if module is not None and module.origin == sys.argv[0]:
        return shlex.join(["python", "-m", module.name.removesuffix(".__main__"), *arguments])
    return shlex.join(["python", program, *arguments]) if program else "python"
