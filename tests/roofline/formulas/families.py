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


def registered_by_module() -> dict[str, list[str]]:
    """Import every module of the package in a process that has imported none, and note what each registers."""
    found: dict[str, list[str]] = {}
    register = registry._register

    def noting(names, *entry):
        frame = sys._getframe()
        while frame.f_globals["__name__"] in (__name__, registry.__name__):
            frame = frame.f_back
        found.setdefault(frame.f_globals["__name__"].removeprefix(f"{PACKAGE}."), []).extend(names)
        register(names, *entry)

    registry._register = noting
    families.operators = dict
    for path in sorted(Path(families.__file__).parent.glob("*.py")):
        families.load(path.stem)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    text = json.dumps(registered_by_module(), indent=1) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        families.FILE.write_text(text, encoding="utf-8")
