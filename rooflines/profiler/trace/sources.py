"""Resolve files, directories of traces, patterns and URLs into a list of trace files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rooflines.errors import UsageError
from rooflines.profiler.trace.url import is_url, shown, shown_reason

_SUFFIXES = (".json", ".json.gz", ".json.zst")
# Files that rooflines writes, perhaps next to the traces.
_OURS = frozenset({"run.json", "analysis.json", "ranks.json", "report.json", "monitor.json", "python_memory.json"})
# What servers write next to theirs.
_OF_OTHERS = frozenset({"execution_details.json"})
_NUMBER = re.compile(r"(\d+)")
_RANK = re.compile(r"(?:rank[_\-.=]?|TP-)(\d{1,7})(?!\d)", re.IGNORECASE)


def find_traces(sources: Sequence[str | Path], *, may_be_empty: bool = False) -> list[str]:
    """The trace files in ``sources`` in their order, those of a directory or a pattern by name, ``rank10`` behind ``rank2``.

    A source is a file, a directory, a pattern with ``*`` (``**`` for directories in between), or a URL: of a file, of a directory where
    it ends in a slash, or with ``*``. A file need not exist: reading it raises the error. Raises UsageError for a directory or a
    pattern without traces, unless they ``may_be_empty``.
    """
    return [found for source in sources for found in _traces(str(source), may_be_empty)]


def rank_in_name(source: str | Path) -> int | None:
    """The rank in the path of a trace: ``rank0.json``, ``capture_rank_0.json.gz``, ``1785501977.97-TP-0.trace.json.gz``.

    The last one: a directory may be named after a rank as well.
    """
    found = _RANK.findall(str(source))
    return int(found[-1]) if found else None


def _is_several(source: str | Path) -> bool:
    """Whether ``source`` may name several files."""
    text = str(source)
    if is_url(text):
        return text.endswith("/") or "*" in text
    return os.path.isdir(text) or (glob.has_magic(text) and not os.path.exists(text))


def _traces(source: str, may_be_empty: bool) -> list[str]:
    if not _is_several(source):
        return [source]
    if is_url(source):
        found = _behind(f"{source}*" if source.endswith("/") else source)
        chosen = found if "*" in source else _with_suffix(found)
        what = "pattern" if "*" in source else "directory"
    elif os.path.isdir(source):
        chosen = _with_suffix(str(path) for path in Path(source).iterdir() if path.is_file())
        what = "directory"
    else:
        chosen = [path for path in glob.glob(source, recursive=True) if os.path.isfile(path)]
        what = "pattern"
    if not chosen and not may_be_empty:
        raise UsageError(
            f"no traces in the directory {shown(source)!r}."
            if what == "directory"
            else f"no file matches the pattern {shown(source)!r}.",
            hint="Give one trace per rank: *.json, *.json.gz or *.json.zst.",
        )
    return sorted(chosen, key=_by_number)


def _behind(pattern: str) -> list[str]:
    """The files behind a URL with ``*``."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(pattern)
        return [system.unstrip_protocol(found) for found in system.glob(path) if system.isfile(found)]
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise UsageError(
            f"cannot list {shown(pattern)!r}: {shown_reason(str(error), pattern)}.", hint="List the files explicitly."
        ) from None


def _with_suffix(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.endswith(_SUFFIXES) and re.split(r"[/\\]", path)[-1] not in _OURS | _OF_OTHERS]


def _by_number(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(path)]
