"""Base of the records of the public API: shown as a dict, in a few lines (``print``), and as a notebook
cell."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.serial import from_plain, to_plain

if TYPE_CHECKING:
    from typing_extensions import Self

# By name: the reports show records and lie above them.
_GLANCE = "rooflines.reports.page.glance"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A record that shows itself. ``repr`` is a line, ``str`` the title, the verdict and what matters
    most."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python containers, as its JSON file has it; fields that were not
        measured are absent."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the record in ``plain``; raises msgspec.ValidationError naming the field that does not
        fit."""
        return from_plain(plain, cls)

    def __repr__(self) -> str:
        title, *more = str(self).splitlines()
        return (
            f"<{type(self).__name__}: {' · '.join((title, *(line.partition('. ')[0] for line in more[:1])))}>"
        )

    def __str__(self) -> str:
        text: str = import_module(_GLANCE).text(self)
        return text

    def _repr_html_(self) -> str:
        html: str = import_module(_GLANCE).html(self)
        return html
