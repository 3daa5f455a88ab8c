"""The families of formulas, one module each, imported when one of their operators is first counted.

``families.json`` lists the operators of each. ``python tests/roofline/formulas/families.py`` writes it, and a test compares it with
what the modules register.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).with_suffix(".json")


@cache
def operators() -> dict[str, str]:
    """Every operator that has a formula here, with its family."""
    families = msgspec.json.decode(FILE.read_bytes(), type=dict[str, list[str]])
    return {name: family for family, names in families.items() for name in names}


def load_family_of(name: str) -> None:
    """Import the family with the formula of the operator ``name``, if there is one."""
    family = operators().get(name)
    if family:
        load(family)


def load_families() -> None:
    """Import every family."""
    for family in sorted(set(operators().values())):
        load(family)


def load(family: str) -> None:
    import_module(f"{__package__}.{family}")
