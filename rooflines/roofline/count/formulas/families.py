"""The files of operators (``.rows``), each read when one of its operators is first counted: families of
PyTorch's operators beside this module, and those of other libraries in ``libraries/``. ``docs/rows.md`` is
their grammar. Installed packages (entry points in the group ``rooflines.formulas``) and single files
(``--formulas FILE.py``) have more.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rooflines.errors import UsageError
from rooflines.installed import explained, load_all
from rooflines.roofline.count.formulas.library_names import canonical

_FOLDER = Path(__file__).parent
_LIBRARIES = _FOLDER / "libraries"
_PARAGRAPH = re.compile(r"\n(?! )")


class Heading(NamedTuple):
    """What stands in brackets above paragraphs: a category, namespaces that every name below may have, and
    options."""

    category: str = ""
    namespaces: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class OperatorParagraph(NamedTuple):
    """Operators, each with what is marked behind its name; the operator behind ``like``, and the rest of the
    text."""

    place: str
    heading: Heading
    operators: dict[str, str]
    like: str
    text: str


def paragraphs(path: Path) -> Iterator[OperatorParagraph]:
    """The paragraphs of a file that have operators."""
    heading = Heading()
    constants = dict[str, str]()
    line = 1
    place = path.relative_to(_FOLDER) if path.is_relative_to(_FOLDER) else path
    for part in _PARAGRAPH.split(path.read_text(encoding="utf-8")):
        if part.startswith("["):
            heading = _heading(part)
        elif part.startswith("let "):
            name, _, value = " ".join(part.split()).removeprefix("let ").partition(" = ")
            constants[f"{{{name}}}"] = _filled(value, constants)
        elif part and not part.startswith("#"):
            head = _head(part)
            names, _, like = head.partition(" like ")
            marks = {_plain(word): word.partition("(")[2].rstrip(")") for word in names.split()}
            listed = {
                space + name: mark for space in heading.namespaces or ("",) for name, mark in marks.items()
            }
            operators = listed | {f"{name}{_ending(heading.options)}": mark for name, mark in listed.items()}
            yield OperatorParagraph(
                f"{place}:{line}", heading, operators, like.strip(), _filled(part[len(head) + 1 :], constants)
            )
        line += part.count("\n") + 1


def _ending(options: Collection[str]) -> str:
    """What every operator below a heading has another form with."""
    return "Backward" if "function" in options else "_" if "in_place" in options else ""


def _heading(text: str) -> Heading:
    category, *words = text.strip("[] \n").split() or [""]
    namespaces = tuple(word for word in words if "::" in word)
    return Heading(category, namespaces, tuple(word for word in words if "::" not in word))


def _head(paragraph: str) -> str:
    """What stands before the colon."""
    return f"{paragraph}\n".partition(":\n")[0].partition(": ")[0]


def _plain(word: str) -> str:
    """The name without its mark."""
    return word.partition("(")[0]


def _filled(text: str, constants: dict[str, str]) -> str:
    """The text with the constants in it."""
    if "{" in text:
        for name, value in constants.items():
            text = text.replace(name, value)
    return text


@cache
def _index() -> dict[str, Path]:
    """Every operator that has a formula here, with its file. It is asked in every analysis, and reads nothing
    but names."""
    index: dict[str, Path] = {}
    for path in files():
        _, *sections = path.read_text(encoding="utf-8").split("\n[")
        names: list[str] = []
        for section in sections:
            heading, _, rest = section.partition("]\n")
            words = []
            for part in _PARAGRAPH.split(rest):
                if part and part[0] != "#":
                    words += _head(part).partition(" like ")[0].split()
            if "::" in heading:
                words = [space + word for space in heading.split() if "::" in space for word in words]
            ending = _ending(heading.split())
            names += [*words, *(_plain(word) + ending for word in words)] if ending else words
        index.update(dict.fromkeys(names, path))
    marked = [name for name in index if "(" in name]
    return index | {_plain(name): index[name] for name in marked}


@cache
def files() -> tuple[Path, ...]:
    """Every file of operators."""
    return tuple(sorted(_FOLDER.rglob("*.rows")))


def is_librarys(path: Path) -> bool:
    """Whether the operators of a file are those of another library."""
    return path.parent == _LIBRARIES


def texts(function: str) -> dict[str, str]:
    """What the file of a family says to a function (``module.function``), by the operators that it counts."""
    path = _FOLDER / f"{function.partition('.')[0]}.rows"
    found = (paragraph for paragraph in paragraphs(path) if f"by={function}" in paragraph.heading.options)
    return {name: " ".join(paragraph.text.split()) for paragraph in found for name in paragraph.operators}


def is_torchs(name: str) -> bool:
    """Whether the operator has a formula here and is not one of another library."""
    path = _index().get(name)
    return path is not None and not is_librarys(path)


def evidence_of(name: str) -> str | None:
    """The evidence for the formula of a library's operator: it is "traced", where a recorded trace has it,
    "called" by a test, or "read", where there is only the source of the library. None for an operator of
    PyTorch or of a user."""
    known = name if name in _index() else canonical(name)
    path = _index().get(known)
    return _marks(path).get(known) or "read" if path is not None and is_librarys(path) else None


@cache
def _marks(path: Path) -> dict[str, str]:
    """The marks of a file by operators."""
    return {
        name: mark for paragraph in paragraphs(path) for name, mark in paragraph.operators.items() if mark
    }


def file_of(name: str) -> Path | None:
    """The file with the formula of an operator."""
    return _index().get(name)


def load_installed() -> None:
    """Import the modules that installed packages name, once; each registers its formulas. Raises UsageError
    naming one that fails."""
    load_all("formulas")


def load_file(path: Path) -> None:
    """Run a Python file that registers formulas. Raises UsageError if the file is missing or fails."""
    if not path.is_file():
        raise UsageError(
            f"no such file: {str(path)!r}.",
            hint="Give a Python file that registers formulas with rooflines.formula.",
        )
    with explained(f"{str(path)!r}"):
        runpy.run_path(str(path))
