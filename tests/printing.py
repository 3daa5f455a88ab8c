"""Pages as a terminal shows them."""

import io

from rich.console import Console

from rooflines.reports.document import Page
from rooflines.reports.render.terminal import print_page


def in_terminal(page: Page, width: int = 80, encoding: str = "utf-8", **options: object) -> str:
    """The text of ``page`` on a console of ``width`` columns."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_page(page, Console(file=file, width=width, legacy_windows=False, **options))
    file.flush()
    return raw.getvalue().decode(encoding)
