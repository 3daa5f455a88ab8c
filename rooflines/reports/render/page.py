"""The HTML pages: a template of ours, filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEMPLATES = Path(__file__).parent / "templates"
_PLOTLY = Path(__file__).parent / "vendor" / "plotly-basic.min.js"


def fill(template: str, **values: Any) -> str:
    """The text of ``templates/TEMPLATE`` with ``values``; what they hold is escaped, and a name that is not among them is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def plotly_source() -> str:
    """The script that draws the interactive charts: plotly.js with its basic traces only, a quarter of the whole library."""
    return _PLOTLY.read_text(encoding="utf-8")
