"""What can be analyzed below directories: our runs, monitored programs, traces of any program, and the traces of several ranks."""

from __future__ import annotations

import gzip
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from rooflines.arguments import escaped
from rooflines.pipeline.reading import captured_beside
from rooflines.profiler.directory import JOURNAL_FILE, LINES_FILE, RUN_FILE, SAMPLES_FILE
from rooflines.profiler.monitor.monitored import MONITOR_FILE
from rooflines.profiler.trace.sources import is_trace_name, rank_in_name

# Limits for a log directory that holds far more than runs.
MOST_ENTRIES, MOST_DEPTH, MOST_SOURCES = 100_000, 16, 5_000
# A trace that changed within this time may still be written; a run whose files did not for the longer time has been killed.
FRESH_S, KILLED_S = 5.0, 60.0
# More bytes on disk are analyzed only on request: compressed traces expand ten- to fortyfold.
LARGE_BYTES, LARGE_COMPRESSED_BYTES = 1 << 30, 64 << 20
_HEAD_BYTES = 64 << 10
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,7})')
_RANK_FOLDER = re.compile(r"rank\d+")
_RECORD = (RUN_FILE, MONITOR_FILE, SAMPLES_FILE, LINES_FILE, JOURNAL_FILE)


class Source(NamedTuple):
    """A run, monitored program, trace, or traces of several ranks.

    ``name`` is its path below the log directory, ``stamp`` changes with its files. ``changed_ns`` is when the newest of them did
    (epoch). ``recording`` says that it is still being written, ``large`` that it is analyzed only on request.
    """

    name: str
    kind: Literal["run", "program", "trace", "ranks"]
    paths: tuple[str, ...]
    stamp: str
    changed_ns: int
    bytes: int
    recording: bool = False
    large: bool = False


class _Status(msgspec.Struct):
    status: str = ""


class Scan:
    """Finds the sources below ``roots``; each call looks again, and reads only files that changed since the call before.

    ``cut`` says after a call that a limit ended it early.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = [os.path.abspath(os.path.expanduser(root)) for root in roots]
        self.cut = False
        self._known: dict[tuple[str, int, int], Any] = {}
        self._found: dict[tuple[str, int, int], Any] = {}

    def __call__(self) -> dict[str, Source]:
        """The sources by name. Links to directories are followed, each directory once; hidden directories are skipped."""
        self._found, self.cut, sources = {}, False, dict[str, Source]()
        for root in self.roots:
            for source in self._below(root):
                if len(sources) >= MOST_SOURCES:
                    self.cut = True
                    break
                name = f"{os.path.basename(root)}/{source.name}" if len(self.roots) > 1 else source.name
                sources.setdefault(name, source._replace(name=name))
        self._known = self._found
        return sources

    def _below(self, root: str) -> Iterator[Source]:
        runs: dict[str, list[Source]] = {}
        for folder, files, below in self._walk(root):
            if RUN_FILE in files or MONITOR_FILE in files or JOURNAL_FILE in files:
                made = self._recorded(folder, files, root)
                yield made
                if made.kind == "run" and _RANK_FOLDER.fullmatch(os.path.basename(folder)):
                    runs.setdefault(os.path.dirname(folder), []).append(made)
                continue
            traces = {name: stat for name, stat in files.items() if is_trace_name(name) or name.endswith(".pftrace")}
            if traces and "capture_traces" in below and captured_beside(folder):
                below.remove("capture_traces")
                yield _source("trace", [folder], traces, root, recording=_is_fresh(traces.values()))
                continue
            yield from self._traces(folder, traces, root)
        for job, ranks in runs.items():
            if len(ranks) > 1:
                yield _together([job], ranks, root)

    def _walk(self, root: str) -> Iterator[tuple[str, dict[str, os.stat_result], list[str]]]:
        """Each directory with its files and the names of its directories, which the caller may remove from the list."""
        stack, seen, entries = [(root, 0)], set(), 0
        while stack:
            folder, depth = stack.pop()
            try:
                itself = os.stat(folder)
                if (itself.st_dev, itself.st_ino) in seen:
                    continue
                seen.add((itself.st_dev, itself.st_ino))
                with os.scandir(folder) as listing:
                    listed = sorted(islice(listing, MOST_ENTRIES - entries), key=lambda entry: entry.name)
            except OSError:
                continue
            entries += len(listed)
            files, below = dict[str, os.stat_result](), list[str]()
            for entry in listed:
                try:
                    if entry.is_dir():
                        below += [] if entry.name.startswith(".") else [entry.name]
                    elif entry.is_file() and (entry.name in _RECORD or not entry.name.startswith(".")):
                        files[entry.name] = entry.stat()
                except OSError:
                    continue  # removed meanwhile
            yield folder, files, below
            self.cut |= entries >= MOST_ENTRIES or (depth == MOST_DEPTH and bool(below))
            if depth < MOST_DEPTH and entries < MOST_ENTRIES:
                stack += [(os.path.join(folder, name), depth + 1) for name in reversed(below)]

    def _recorded(self, folder: str, files: dict[str, os.stat_result], root: str) -> Source:
        """The run or monitored program in ``folder``."""
        facts = next((name for name in (RUN_FILE, MONITOR_FILE) if name in files), None)
        own = {name: stat for name, stat in files.items() if name in _RECORD or is_trace_name(name)}
        status = self._once(os.path.join(folder, facts), files[facts], _status) if facts else "running"
        recording = status == "running" and _is_fresh(own.values(), KILLED_S)
        return _source("program" if facts == MONITOR_FILE else "run", [folder], own, root, recording=recording)

    def _traces(self, folder: str, files: dict[str, os.stat_result], root: str) -> Iterator[Source]:
        """The traces in ``folder``, and where each rank has as many of them as the others, the last ones together."""
        ranks: dict[int, list[Source]] = {}
        for name, stat in files.items():
            path = os.path.join(folder, name)
            is_trace, rank = self._once(path, stat, _head)
            if not is_trace:
                continue
            made = _source("trace", [path], {name: stat}, root, recording=_is_fresh([stat]))
            yield made
            if rank is not None:
                ranks.setdefault(rank, []).append(made)
        if len(ranks) > 1 and len({len(traces) for traces in ranks.values()}) == 1:
            last = [max(traces, key=lambda trace: trace.changed_ns) for _, traces in sorted(ranks.items())]
            yield _together([trace.paths[0] for trace in last], last, root, folder)

    def _once(self, path: str, stat: os.stat_result, read: Any) -> Any:
        """What ``read`` returns for the file, read again only if it has changed."""
        key = (path, stat.st_mtime_ns, stat.st_size)
        self._found[key] = self._known[key] if key in self._known else read(path)
        return self._found[key]


def _source(kind: Any, paths: Sequence[str], files: dict[str, os.stat_result], root: str, *, recording: bool) -> Source:
    stats = files.values()
    size, compressed = sum(stat.st_size for stat in stats), any(name.endswith((".gz", ".zst")) for name in files)
    stamp = hash(tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in files.items()))
    changed_ns = max((stat.st_mtime_ns for stat in stats), default=0)
    large = size > (LARGE_COMPRESSED_BYTES if compressed else LARGE_BYTES)
    return Source(_name(paths[0], root), kind, tuple(paths), f"{stamp:x}", changed_ns, size, recording, large)


def _together(paths: Sequence[str], ranks: Sequence[Source], root: str, folder: str = "") -> Source:
    """The ranks of one job, analyzed only on request: each is in the list by itself."""
    name = f"{_name(folder or paths[0], root)} ({len(ranks)} ranks)"
    stamp, changed_ns = hash(tuple(rank.stamp for rank in ranks)), max(rank.changed_ns for rank in ranks)
    recording = any(rank.recording for rank in ranks)
    return Source(name, "ranks", tuple(paths), f"{stamp:x}", changed_ns, sum(rank.bytes for rank in ranks), recording, True)


def _name(path: str, root: str) -> str:
    name = os.path.relpath(path, root)
    return escaped(os.path.basename(root) if name == "." else name.replace(os.sep, "/"))


def _is_fresh(stats: Iterable[os.stat_result], within_s: float = FRESH_S) -> bool:
    # A clock that is ahead of ours, as a file server's may be, says nothing.
    now = time.time()
    return any(0 <= now - stat.st_mtime < within_s for stat in stats)


def _status(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Status).status
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""  # the analysis says what is wrong


def _head(path: str) -> tuple[bool, int | None]:
    """Whether the file is a trace by its name or its first bytes, and its rank."""
    named, head = path.endswith((".zst", ".pftrace")) or ".trace.json" in os.path.basename(path), b""
    try:
        if not path.endswith((".zst", ".pftrace")):
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
                head = file.read(_HEAD_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        return True, None  # damaged: the analysis says how
    rank = _RANK.search(head)
    return named or b'"traceEvents"' in head or b'"ph"' in head, int(rank[1]) if rank else rank_in_name(os.path.basename(path))
