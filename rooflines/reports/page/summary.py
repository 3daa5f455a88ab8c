"""A summary for people and programs: the verdict, then statements in the order of their weight, each with the
figures it rests on.

A summary has the same statements whenever it is made from the same record, so that each can be checked.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from rooflines.errors import UsageError
from rooflines.reports.document import Page
from rooflines.reports.page.statements import Said, answer, statements
from rooflines.reports.words.text import given
from rooflines.roofline.analysis import Analysis
from rooflines.serial import part, to_plain
from rooflines.units import sentence

SCHEMA: Final = "rooflines.summary/1"
# Characters of English text and of names for a token, on average, in the vocabularies of today's language
# models.
_CHARACTERS_OF_TOKEN: Final = 4


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence."""

    #: What it is about.
    about: str
    text: str
    #: The figures that it rests on, by their JSON pointers.
    figures: dict[str, Any] = {}
    #: The command that prints them.
    verify: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says in few words."""

    schema: str = SCHEMA
    #: The kind of record.
    of: str
    source: str
    #: What was asked; empty for the overview.
    question: str = ""
    title: str
    verdict: str
    #: The most important ones first.
    statements: tuple[Statement, ...] = ()
    #: The number of statements that the budget had no room for.
    left_out: int = 0


def summarize(
    record: Any, page: Page, source: str, command: str, question: str = "", said: Iterable[Said] = ()
) -> Summary:
    """The summary of ``record``: of an analysis the answer to ``question``, of any other what is ``said`` or
    known of its kind.

    ``source`` is what was read and ``command`` what prints the record as JSON, as a user types them.
    """
    if isinstance(record, Analysis):
        said = answer(record, question)
    elif question:
        raise UsageError(
            f"a question needs one run or trace, and {source} is not.", hint="Give one of its runs or traces."
        )
    else:
        status = [Said("confidence", page.status[1])] if page.status else []
        noted = enumerate(getattr(record, "notes", ()))
        notes = [
            Said("confidence", sentence(note.rstrip(".")), (f"/notes/{number}",)) for number, note in noted
        ]
        said = [*status, *statements(record), *said, *notes]
    plain, found = to_plain(record), []
    for about, text, pointers in said:
        verify = f"{command} --at {shlex.quote(_above(pointers))}" if pointers else command
        found.append(Statement(about=about, text=text, figures=_figures(plain, pointers), verify=verify))
    return Summary(
        of=page.kind,
        source=source,
        question=question,
        title=page.title,
        verdict=page.verdict,
        statements=tuple(found),
    )


def _figures(plain: Any, pointers: Iterable[str]) -> dict[str, Any]:
    """The parts of a record that are there, by their pointers."""
    found = {}
    for pointer in pointers:
        with contextlib.suppress(KeyError):
            found[pointer] = part(plain, pointer)
    return found


def _above(pointers: tuple[str, ...]) -> str:
    """The pointer of the smallest part of the record that holds all of ``pointers``; of a folded row, its
    times."""
    if len(pointers) == 1 or re.search(r"/\d+[-,]", pointers[0]):
        return pointers[0]
    parts = [pointer.split("/") for pointer in pointers]
    return "/".join([names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1])


# --- in the size that was asked for -----------------------------------------------------------------------


def within(
    summary: Summary, budget: int, *, lines: bool = False, render: Callable[[Summary], str] | None = None
) -> Summary:
    """The summary with as many of its first statements as have room in ``budget`` tokens, or ``lines``, of
    the text of ``render``.

    That is by default ``markdown``. A token is taken as four characters. The verdict always stays.
    """

    def size(kept: int) -> int:
        text = (render or markdown)(_with(summary, kept))
        return text.count("\n") if lines else math.ceil(len(text) / _CHARACTERS_OF_TOKEN)

    whole = len(summary.statements)
    # Without its last line, which counts what is left out, the whole may have room where one statement less
    # has not.
    return (
        summary
        if size(whole) <= budget
        else _with(summary, max(0, bisect_right(range(whole), budget, key=size) - 1))
    )


def _with(summary: Summary, kept: int) -> Summary:
    return msgspec.structs.replace(
        summary, statements=summary.statements[:kept], left_out=len(summary.statements) - kept
    )


def markdown(summary: Summary) -> str:
    """The summary as Markdown: a heading, the verdict, and a list of statements, each with the pointer of
    what it rests on."""
    # The name of a file or the command of a program can have line breaks.
    lines = [f"# {' '.join(summary.title.split())}", "", summary.verdict, ""]
    for statement in summary.statements:
        place = statement.verify.partition(" --at ")[2]
        lines.append(f"- {statement.text}{given(' [{}]', place)}")
    command = next(
        (one.verify.partition(" --at ")[0] for one in summary.statements if " --at " in one.verify), ""
    )
    if command:
        lines += ["", f"To check a statement, with the pointer in its brackets: `{command} --at POINTER`"]
    if summary.left_out:
        every = summary.left_out + len(summary.statements)
        lines.append(f"{summary.left_out} of {every} statements are left out (--budget).")
    return "\n".join(lines) + "\n"
