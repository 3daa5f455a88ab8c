"""Stored records to and from JSON: absent instead of null, types checked on the way in, written atomically.

A field that is None was not measured; it is left out of the file, so that a reader can tell "zero" from "not
measured".
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rooflines.arguments import escaped

T = TypeVar("T")
# Places in a list: 3,5-7
_SELECTED: Final = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")

#: schemas that are read as another, whose spelling of some names they do not have
OLDER_SCHEMAS: Final = {"rooflines.analysis/1": "rooflines.analysis/2"}
_BRITISH: Final = re.compile(rb'"(?:unmodelled|modelled|synchronisation)\w*"')
_RENAMED: Final = {b'"far"': b'"inefficient"'}


def to_plain(record: Any) -> Any:
    """``record`` as dicts, lists and scalars, without the fields that are None."""
    return _without_none(msgspec.to_builtins(record))


def from_plain(plain: Any, kind: type[T]) -> T:
    """The record of ``kind`` in ``plain``; raises msgspec.ValidationError naming the field that does not
    fit."""
    if isinstance(plain, dict) and plain.get("schema") in OLDER_SCHEMAS:
        return msgspec.json.decode(_renewed(msgspec.json.encode(plain)), type=kind)
    return msgspec.convert(plain, kind)


def to_json(record: Any) -> str:
    """``record`` as the text that ``write_json`` writes."""
    return msgspec.json.format(msgspec.json.encode(to_plain(record)), indent=1).decode() + "\n"


def part(plain: Any, pointer: str) -> Any:
    """What the JSON pointer (RFC 6901) names in ``plain`` containers; raises KeyError with what is there
    instead.

    Commas and ranges select several: ``/operators/3,5-7/time_s`` is a list of four times,
    ``/operators/3/calls,time_s`` an object.
    """
    whole = pointer
    while pointer:
        head, slash, rest = pointer.removeprefix("/").partition("/")
        name = head.replace("~1", "/").replace("~0", "~")
        if isinstance(plain, list) and not name.isdigit() and _SELECTED.fullmatch(name):
            return [part(plain, f"/{place}{slash}{rest}") for place in _places(name)]
        if isinstance(plain, dict) and "," in name and name not in plain:
            return {one: part(plain, f"/{one}{slash}{rest}") for one in head.split(",")}
        try:
            plain = plain[int(name) if isinstance(plain, list) else name]
        except (KeyError, IndexError, ValueError, TypeError):
            there = (
                f"a list of {len(plain)}"
                if isinstance(plain, list)
                else ", ".join(plain)
                if isinstance(plain, dict)
                else "a value"
            )
            raise KeyError(f"{whole!r}: there is no {name!r} in {there}") from None
        pointer = f"/{rest}" if slash else ""
    return plain


def _places(selected: str) -> Iterator[int]:
    """The places in a list that ``3,5-7`` stands for."""
    for one in selected.split(","):
        first, dash, last = one.partition("-")
        yield from range(int(first), int(last if dash else first) + 1)


def write_json(path: Path, record: Any) -> None:
    """Write ``record`` to ``path`` so that a reader sees the old file or the whole new one, never half of
    it."""
    write_text(path, to_json(record))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as ``write_json`` does its record."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def read_json(path: Path, kind: type[T]) -> T:
    """The record of ``kind`` in the file at ``path``; raises OSError, or msgspec.DecodeError with what does
    not fit."""
    return msgspec.json.decode(_renewed(path.read_bytes()), type=kind)


def read_json_if_whole(path: Path, kind: type[T]) -> T | None:
    """The record in the file at ``path``; None where there is no such file, or it is broken or of another
    version."""
    try:
        return read_json(path, kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _renewed(text: bytes) -> bytes:
    """The JSON of a record as this version writes it."""
    for older, newer in OLDER_SCHEMAS.items():
        if f'"{older}"'.encode() in text[:1024]:
            text = _BRITISH.sub(lambda name: name[0].replace(b"ll", b"l").replace(b"is", b"iz"), text)
            for name, new in (*_RENAMED.items(), (older.encode(), newer.encode())):
                text = text.replace(name, new)
    return text


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    if isinstance(value, str):
        return escaped(value)
    if type(value) is float and not math.isfinite(value):
        raise ValueError(f"{value} cannot be written as JSON")
    return value
