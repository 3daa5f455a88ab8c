"""Reports as their readers see them: in a terminal, on a page, in TensorBoard, as a PDF."""

import base64
import io
import json
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

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


def unpacked(text: str) -> Any:
    """The data of a script of a page."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def strings(value: Any) -> Iterator[str]:
    """All texts in JSON data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


class HtmlPage(HTMLParser):
    """The page as a parser sees it: its sections in order, its elements, and the text outside scripts and styles. The rows that a
    script makes are text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.pieces: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._inside = tag if tag in ("script", "style") else ""
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self.sections.append(dict(attrs)["id"])
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
            if self.elements[-1][1].get("class") == "rows":
                self.pieces.extend(strings(unpacked(data)))
        elif not self._inside:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())


def curves(directory: Path, **options: Any) -> Any:
    """What TensorBoard reads from the event files of ``directory``."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), **options)
    accumulator.Reload()
    return accumulator


def pdf_text(path: Path) -> str:
    import pypdf

    return " ".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(path.read_bytes())).pages)
