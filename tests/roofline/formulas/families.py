"""Writes ``families.json``: which module registers the formula of each operator.

python tests/roofline/formulas/families.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rooflines.roofline.formulas
from rooflines.roofline.formulas import families, registry

PACKAGE = rooflines.roofline.formulas.__name__
PREFIX = f"{PACKAGE}."


def registered_by_module() -> dict[str, list[str]]:
    """Import every module of the package in a process that has imported none, and note what each registers."""
    operators: dict[str, list[str]] = {}
    register = registry._register

    def noting(names, *rest):
        frame = sys._getframe()
        while frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith(PREFIX):
            frame = frame.f_back
        operators.setdefault(frame.f_globals["__name__"].removeprefix(PREFIX), []).extend(names)
        register(names, *rest)

    registry._register = noting
    folder = Path(families.__file__).parent
    for path in sorted(path.relative_to(folder) for path in folder.rglob("*.py") if path.stem != "__init__"):
        if path.parts[0] != "kernels":
            families.load(".".join(path.with_suffix("").parts))
    return dict(sorted(operators.items()))


if __name__ == "__main__":
    text = json.dumps(registered_by_module(), indent=1) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        families.FILE.write_text(text, encoding="utf-8")
