"""The modules of formulas, each imported when one of its operators is first counted: families of PyTorch's operators, and those of
other libraries (``libraries.…``). Installed packages (entry points in the group ``rooflines.formulas``) and single files (``--formulas
FILE.py``) have more.

``families.json`` lists the operators of each. ``python tests/roofline/formulas/families.py`` writes it, and a test compares it with
what the modules register.
"""

from __future__ import annotations

import runpy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from rooflines.errors import UsageError
from rooflines.installed import explained, load_all

FILE: Final = Path(__file__).with_suffix(".json")
_LIBRARIES: Final = "libraries."


@cache
def modules() -> dict[str, str]:
    """Every operator that has a formula here, with the module that registers it."""
    families = msgspec.json.decode(FILE.read_bytes(), type=dict[str, list[str]])
    return {name: module for module, names in families.items() for name in names}


def is_torchs(name: str) -> bool:
    """Whether the operator has a formula here and is not one of another library."""
    return not modules().get(name, _LIBRARIES).startswith(_LIBRARIES)


def load_family_of(*names: str) -> None:
    """Import the modules with the formulas of these operators, as far as there are any."""
    for module in filter(None, map(modules().get, names)):
        load(module)


def load_families() -> None:
    """Import every module of formulas."""
    for module in sorted(set(modules().values())):
        load(module)


def load(module: str) -> None:
    import_module(f"{__package__}.{module}")


def load_installed() -> None:
    """Import the modules that installed packages name, once; each registers its formulas. Raises UsageError naming one that fails."""
    load_all("formulas")


def load_file(path: Path) -> None:
    """Run a Python file that registers formulas. Raises UsageError if the file is missing or fails."""
    if not path.is_file():
        raise UsageError(f"no such file: {str(path)!r}.", hint="Give a Python file that registers formulas with rooflines.formula.")
    with explained(f"{str(path)!r}"):
        runpy.run_path(str(path))
