"""A page as Markdown with its figures as files. Names are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

from rooflines.reports.document import Bar, Block, Facts, Figure, Findings, Page, Paragraph, Table, texts
from rooflines.reports.render.figures import DIRECTORY, write_figures
from rooflines.units import percent

_MARKUP = "\\`*_{}[]()#+|!<>~"


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path``, its figures into a directory next to it, and return ``path``."""
    path.write_text(render(page), encoding="utf-8")
    if page.figures():
        write_figures(page, path.parent / DIRECTORY)
    return path


def render(page: Page) -> str:
    """The page as text."""
    return "\n\n".join(_page(page)) + "\n"


def _page(page: Page) -> Iterator[str]:
    yield f"# {inert(page.title)}"
    if page.made:
        yield inert(page.made)
    yield f"**{inert(page.verdict)}**"
    if page.status:
        yield f"**{inert(page.status[1])}**"
    if page.label:
        yield f"> {inert(page.label)}"
    if page.said:
        yield "\n".join(f"- {inert(sentence)}" for sentence in page.said)
    for section in page.sections:
        blocks = section.of_full_form()
        if blocks:
            yield f"## {inert(section.title)}"
        for block in blocks:
            yield from markdown(block)


def markdown(block: Block, most: int | None = None) -> Iterator[str]:
    """The paragraphs of a block; ``most`` rows of a table."""
    match block:
        case Paragraph(kind="code"):
            yield "\n".join(f"    {line}" for line in block.text.splitlines())
        case Paragraph(kind="title"):
            yield f"### {inert(block.text)}"
        case Paragraph(kind="alert"):
            yield f"**!** {inert(block.text)}"
        case Paragraph():
            yield inert(block.text)
        case Facts():
            yield _rows(["", ""], [":--", ":--"], [[name, "  ".join(said)] for name, *said in block.rows])
        case Findings():
            for number, one in enumerate(block.items, start=1):
                steps = (f"\n   {at}. {inert(step)}" for at, step in enumerate(one.steps, start=1))
                text = f"{number}. **{inert(one.title)}**: {inert(one.saves)}. {inert(one.evidence)}."
                yield text + "".join(steps)
        case Bar():
            if block.title:
                yield f"### {inert(block.title)}"
            names = [part.name for part in block.key()]
            lines = []
            for row in block.rows:
                told = {part.name: f"{percent(part.share)} ({part.text})" for part in row.parts}
                lines.append([row.label, *(told.get(name, "") for name in names), row.text])
            yield _rows(["", *names, ""], [":--", *["--:"] * len(names), "--:"], lines)
        case Figure():
            yield f"![{inert(block.caption)}]({DIRECTORY}/{block.name}.svg)"
            if block.note:
                yield inert(block.note)
        case Table():
            if block.title:
                yield f"### {inert(block.title)}"
            yield table(block, most)
            if note := block.note_with(texts(block).columns):
                yield inert(note)


def table(block: Table, most: int | None = None) -> str:
    """A table; a heading row has its title in bold, a total stands last in bold."""
    rows = block.of_form(full=True)[:most]
    found = texts(block, rows=rows)
    ruler = ["--:" if column.numeric else ":--" for column in found.columns]
    lines: list[list[str]] = []
    for row, cells in zip(rows, found.rows, strict=True):
        indented = [inert("\u2003" * row.depth * (place == 1) + text) for place, text in enumerate(cells)]
        lines.append([f"**{inert(cells[0])}**", *[""] * (len(cells) - 1)] if row.heading else indented)
        lines += [["", inert(part.text), *[""] * (len(cells) - 2)][: len(cells)] for part in row.remarks]
    if found.total:
        lines.append([f"**{inert(text)}**" if text else "" for text in found.total])
    return _lines(found.titles(), ruler, lines)


def _rows(titles: list[str], ruler: list[str], rows: list[list[str]]) -> str:
    return _lines(list(map(inert, titles)), ruler, [list(map(inert, row)) for row in rows])


def _lines(titles: list[str], ruler: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ruler, *rows)).replace("|  |", "| |")


def inert(text: str) -> str:
    """``text`` with Markdown's markup characters escaped."""
    escaped = html.escape(" ".join(text.split()) if text.strip() == text else text, quote=False)
    return "".join(f"\\{character}" if character in _MARKUP else character for character in escaped)
