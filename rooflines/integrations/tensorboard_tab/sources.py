"""What can be analyzed below directories: our runs, monitored programs, traces of any program, and the traces of several ranks."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from rooflines.arguments import escaped
from rooflines.profiler.directory import JOURNAL_FILE, LINES_FILE, RUN_FILE, SAMPLES_FILE
from rooflines.profiler.monitor.monitored import MONITOR_FILE
from rooflines.profiler.trace.sources import is_trace_name, rank_in_name

# Limits for a log directory that holds far more than runs.
MOST_ENTRIES, MOST_DEPTH = 100_000, 16
# A trace that changed within this time may still be written; a run whose files did not for the longer time has been killed.
FRESH_S, KILLED_S = 5.0, 60.0
# More bytes on disk are analyzed only on request: compressed traces expand ten- to fortyfold.
LARGE_BYTES, LARGE_COMPRESSED_BYTES = 1 << 30, 64 << 20
_HEAD_BYTES = 64 << 10
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,7})')
_RECORD = (RUN_FILE, MONITOR_FILE, SAMPLES_FILE, LINES_FILE, JOURNAL_FILE)


class Source(NamedTuple):
    """A run, monitored program, trace, or traces of several ranks.

    ``name`` is its path below the log directory, ``stamp`` changes with its files, ``changed_ns`` is when the newest of them did
    (epoch). ``recording`` says that it is still being written, ``large`` that it is analyzed only on request.
    """

    name: str
    kind: Literal["run", "program", "trace", "ranks"]
    paths: tuple[str, ...]
    stamp: str
    changed_ns: int
    bytes: int
    recording: bool
    large: bool


class _Facts(msgspec.Struct):
    status: str = ""


class Scan:
    """Finds the sources below ``roots``; each call looks again, and reads only files that changed since the call before.

    ``cut`` says after a call that the limits ended it early.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = [os.path.abspath(os.path.expanduser(root)) for root in roots]
        self.cut = False
        self._known: dict[tuple[str, int, int], Any] = {}
        self._found: dict[tuple[str, int, int], Any] = {}

    def __call__(self) -> dict[str, Source]:
        """The sources by name. Links to directories are followed, each directory once; hidden directories are skipped."""
        self._found, self.cut = {}, False
        sources = {source.name: source for root in self.roots for source in self._below(root)}
        self._known = self._found
        return sources

    def _below(self, root: str) -> Iterator[Source]:
        from rooflines.pipeline.reading import captured_beside  # which loads NumPy: TensorBoard starts without it

        parent = root if len(self.roots) == 1 else os.path.dirname(root)
        jobs: dict[str, dict[int, list[Source]]] = {}
        for folder, below, names in self._walk(root):
            traces = [name for name in names if is_trace_name(name) or name.endswith(".pftrace")]
            if own := [name for name in _RECORD if name in names]:
                run = self._recorded(folder, [*own, *traces], parent)
                yield run
                if run.kind == "run" and re.fullmatch(r"rank\d+", os.path.basename(folder)):
                    jobs.setdefault(os.path.dirname(folder), {})[int(os.path.basename(folder)[4:])] = [run]
            elif traces and "capture_traces" in below and captured_beside(folder):
                below.remove("capture_traces")
                yield _source("trace", [folder], _stats(folder, traces), parent)
            else:
                for file, found in _stats(folder, traces).items():
                    is_trace, rank = self._once(os.path.join(folder, file), found, _head)
                    if is_trace:
                        trace = _source("trace", [os.path.join(folder, file)], {file: found}, parent)
                        yield trace
                        if rank is not None:
                            jobs.setdefault(folder, {}).setdefault(rank, []).append(trace)
        for folder, ranks in jobs.items():
            # Of several steps the last one, where every rank has as many.
            if len(ranks) > 1 and len({len(own) for own in ranks.values()}) == 1:
                yield _together(folder, [max(ranks[rank], key=lambda one: one.changed_ns) for rank in sorted(ranks)], parent)

    def _walk(self, root: str) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory with the names of its directories, which the caller may remove from the list, and files."""
        seen, entries = set(), 0
        for folder, below, names in os.walk(root, followlinks=True):
            itself = os.stat(folder) if os.path.isdir(folder) else None
            if itself is None or (itself.st_dev, itself.st_ino) in seen:
                below.clear()
                continue
            seen.add((itself.st_dev, itself.st_ino))
            entries += len(below) + len(names)
            below[:] = sorted(name for name in below if not name.startswith("."))
            if entries > MOST_ENTRIES or folder.count(os.sep) - root.count(os.sep) >= MOST_DEPTH:
                self.cut |= bool(below) or entries > MOST_ENTRIES
                below.clear()
            yield folder, below, sorted(names)
            if entries > MOST_ENTRIES:
                return

    def _recorded(self, folder: str, names: Sequence[str], parent: str) -> Source:
        """The run or monitored program in ``folder``."""
        files = _stats(folder, names)
        facts = next((name for name in (RUN_FILE, MONITOR_FILE) if name in files), None)
        status = self._once(os.path.join(folder, facts), files[facts], _status) if facts else "running"
        return _source("program" if facts == MONITOR_FILE else "run", [folder], files, parent, KILLED_S if status == "running" else 0.0)

    def _once(self, path: str, found: os.stat_result, read: Callable[[str], Any]) -> Any:
        """What ``read`` returns for the file, read again only if it has changed."""
        key = (path, found.st_mtime_ns, found.st_size)
        self._found[key] = self._known[key] if key in self._known else read(path)
        return self._found[key]


def _stats(folder: str, names: Sequence[str]) -> dict[str, os.stat_result]:
    """Those of the ``names`` that are regular files, with their times and sizes."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError):  # removed meanwhile
            found[name] = os.stat(os.path.join(folder, name))
    return {name: one for name, one in found.items() if stat.S_ISREG(one.st_mode)}


def _source(kind: Any, paths: Sequence[str], files: dict[str, os.stat_result], parent: str, fresh_s: float = FRESH_S) -> Source:
    size, now_s = sum(one.st_size for one in files.values()), time.time()
    stamp = hash(tuple((name, one.st_mtime_ns, one.st_size) for name, one in files.items()))
    # A clock that is ahead of ours, as a file server's may be, says nothing.
    recording = any(0 <= now_s - one.st_mtime < fresh_s for one in files.values())
    large = size > (LARGE_COMPRESSED_BYTES if any(name.endswith((".gz", ".zst")) for name in files) else LARGE_BYTES)
    changed_ns = max((one.st_mtime_ns for one in files.values()), default=0)
    return Source(_name(paths[0], parent), kind, tuple(paths), f"{stamp:x}", changed_ns, size, recording, large)


def _together(folder: str, ranks: Sequence[Source], parent: str) -> Source:
    """The ranks of one job, analyzed only on request: each is in the list by itself."""
    paths = (folder,) if ranks[0].kind == "run" else tuple(rank.paths[0] for rank in ranks)
    stamp, changed_ns = hash(tuple(rank.stamp for rank in ranks)), max(rank.changed_ns for rank in ranks)
    recording, size = any(rank.recording for rank in ranks), sum(rank.bytes for rank in ranks)
    return Source(f"{_name(folder, parent)} ({len(ranks)} ranks)", "ranks", paths, f"{stamp:x}", changed_ns, size, recording, True)


def _name(path: str, parent: str) -> str:
    name = os.path.relpath(path, parent)
    return escaped(os.path.basename(parent) if name == "." else name.replace(os.sep, "/"))


def _status(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Facts).status
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""  # the analysis says what is wrong


def _head(path: str) -> tuple[bool, int | None]:
    """Whether the file is a trace by its name or its first bytes, and its rank."""
    named, head = path.endswith((".zst", ".pftrace")) or ".trace.json" in os.path.basename(path), b""
    try:
        if not path.endswith((".zst", ".pftrace")):
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
                head = file.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return True, None  # damaged: the analysis says how
    rank = _RANK.search(head)
    return named or b'"traceEvents"' in head or b'"ph"' in head, int(rank[1]) if rank else rank_in_name(os.path.basename(path))
