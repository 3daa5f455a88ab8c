"""The evidence for the formula of an operator of another library.

``evidence.json`` lists the operators for which there is more than the library's source: those of recorded traces and those that a test
calls with the library installed. ``python tests/roofline/formulas/families.py`` writes it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from rooflines.roofline.formulas.families import is_torchs, modules
from rooflines.roofline.formulas.libraries import canonical

FILE: Final = Path(__file__).with_suffix(".json")
# An operator of a recorded trace, one that a test calls, one whose figures an upstream test has, and one whose source was read only.
Evidence = Literal["trace", "call", "upstream", "read"]


@cache
def _operators() -> dict[str, Evidence]:
    lists = msgspec.json.decode(FILE.read_bytes(), type=dict[Evidence, list[str]])
    return {name: kind for kind, names in reversed(lists.items()) for name in names}


def evidence_of(name: str) -> Evidence | None:
    """The evidence for the formula of this operator, None for one of PyTorch or of a user."""
    known = name if name in modules() else canonical(name)
    return _operators().get(known, "read") if known in modules() and not is_torchs(known) else None
