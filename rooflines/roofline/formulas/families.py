"""The files of operators (``.rows``), each read when one of its operators is first counted: families of PyTorch's operators beside this
module, and those of other libraries in ``libraries/``. ``docs/rows.md`` is their grammar. Installed packages (entry points in the group
``rooflines.formulas``) and single files (``--formulas FILE.py``) have more.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from rooflines.errors import UsageError
from rooflines.installed import explained, load_all

_FOLDER: Final = Path(__file__).parent
_LIBRARIES: Final = _FOLDER / "libraries"
_NAMES: Final = re.compile(r"(.+?)(?:\s+like\s+(\S+))?\s*:(?:\s|\Z)", re.DOTALL)
_MARKED: Final = re.compile(r"(.+?)(?:\((traced|called)\))?\Z")


class Paragraph(NamedTuple):
    """The operators of one paragraph of a file, its heading, the operator behind ``like``, and the rest of its text."""

    place: str
    category: str
    options: tuple[str, ...]
    operators: dict[str, str]
    like: str
    text: str

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those of the heading, an empty one where it has none."""
        return tuple(option for option in self.options if "::" in option) or ("",)


def place_of(path: Path, line: int) -> str:
    """The file, from this folder on where it is one of ours, and the line."""
    return f"{path.relative_to(_FOLDER) if path.is_relative_to(_FOLDER) else path}:{line}"


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """The paragraphs that have operators, each operator with what is written behind its name; ValueError names the line of another."""
    category, options, constants, next_line = "", tuple[str, ...](), dict[str, str](), 1
    for text in re.split(r"\n(?! )", path.read_text(encoding="utf-8")):
        line, next_line = next_line, next_line + text.count("\n") + 1
        if text.startswith("["):
            category, *words = text.strip("[] \n").split() or [""]
            options = tuple(words)
        elif text.startswith("let "):
            name, _, value = " ".join(text.split()).removeprefix("let ").partition(" = ")
            constants[f"{{{name}}}"] = _filled(value, constants)
        elif text and not text.startswith("#"):
            found = _NAMES.match(text)
            if found is None:
                raise ValueError(f"{place_of(path, line)}: no colon behind the names of the operators")
            listed = _filled(found[1], constants) if "[" in found[1] else found[1]
            marked = [_MARKED.findall(name)[0] for word in listed.split() for name in _each(word)]
            namespaces = [option for option in options if "::" in option] or [""]
            operators = {space + name: evidence for space, (name, evidence) in product(namespaces, marked)}
            ending = "Backward" if "function" in options else "_" if "in_place" in options else ""
            if ending:
                operators |= {f"{name}{ending}": evidence for name, evidence in operators.items()}
            yield Paragraph(place_of(path, line), category, options, operators, found[2] or "", _filled(text[found.end() :], constants))


def _each(word: str) -> Iterator[str]:
    """The names of a word with alternatives: ``a[b,c]`` is ``ab`` and ``ac``."""
    before, bracket, rest = word.partition("[")
    if not bracket:
        return iter((word,))
    alternatives, _, after = rest.partition("]")
    return (name for one in alternatives.split(",") for name in _each(before + one + after))


def _filled(text: str, constants: dict[str, str]) -> str:
    """The text with the constants in it."""
    if "{" in text:
        for name, value in constants.items():
            text = text.replace(name, value)
    return text


class _Known(NamedTuple):
    path: Path
    evidence: str


@cache
def _index() -> dict[str, _Known]:
    return {
        name: _Known(path, evidence)
        for path in files()
        for paragraph in paragraphs(path)
        for name, evidence in paragraph.operators.items()
    }


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
    found = (paragraph for paragraph in paragraphs(path) if f"by={function}" in paragraph.options)
    return {name: " ".join(paragraph.text.split()) for paragraph in found for name in paragraph.operators}


def is_torchs(name: str) -> bool:
    """Whether the operator has a formula here and is not one of another library."""
    known = _index().get(name)
    return known is not None and not is_librarys(known.path)


def evidence_of(name: str) -> str | None:
    """What there is for the formula of a library's operator besides the source of the library: "traced", where a recorded trace has
    it, "called", where a test calls it, and "" for nothing. None for an operator of PyTorch or of a user."""
    from rooflines.roofline.formulas.libraries import canonical

    known = _index().get(name) or _index().get(canonical(name))
    return known.evidence if known is not None and is_librarys(known.path) else None


def load_family_of(*names: str) -> None:
    """Read the files with the formulas of these operators, as far as there are any."""
    for known in filter(None, map(_index().get, names)):
        load(known.path)


def load_families() -> None:
    """Read every file of operators."""
    for path in files():
        load(path)


@cache
def load(path: Path) -> None:
    """Register the operators of a file, once."""
    from rooflines.roofline.formulas.tables import register_file

    register_file(path)


def load_installed() -> None:
    """Import the modules that installed packages name, once; each registers its formulas. Raises UsageError naming one that fails."""
    load_all("formulas")


def load_file(path: Path) -> None:
    """Run a Python file that registers formulas. Raises UsageError if the file is missing or fails."""
    if not path.is_file():
        raise UsageError(f"no such file: {str(path)!r}.", hint="Give a Python file that registers formulas with rooflines.formula.")
    with explained(f"{str(path)!r}"):
        runpy.run_path(str(path))
