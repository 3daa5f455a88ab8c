"""What can be analyzed below a directory: our runs, monitored programs, traces of any program, and the traces
of several ranks."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import stat
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from rooflines.arguments import escaped
from rooflines.profiler.directory import JOURNAL_FILE, LINES_FILE, RUN_FILE, SAMPLES_FILE
from rooflines.profiler.monitor.monitored import MONITOR_FILE
from rooflines.profiler.read.sources import is_trace_name, rank_in_name

# The limit for a log directory that holds far more than runs.
MOST_ENTRIES = 100_000
# A trace that changed within this time may still be written; a run whose files did not for the longer time
# has been killed.
FRESH_S, KILLED_S = 5.0, 60.0
# More bytes on disk are analyzed only on request: compressed traces expand ten- to fortyfold.
LARGE_BYTES, LARGE_COMPRESSED_BYTES = 1 << 30, 64 << 20
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,7})')
_CREATED = re.compile(rb'"created"\s*:\s*"([^"]{1,40})"')
_RUNNING = re.compile(rb'"status"\s*:\s*"running"')
_RECORD = {RUN_FILE, MONITOR_FILE, SAMPLES_FILE, LINES_FILE, JOURNAL_FILE}


class TabSource(NamedTuple):
    """A run, monitored program, trace, or traces of several ranks.

    ``name`` is its path below the log directory, ``changed_ns`` is when the newest of its files changed
    (epoch), ``created`` when a run began, as it says. ``recording`` says that it is still being written,
    ``large`` that it is analyzed only on request.
    """

    name: str
    kind: Literal["run", "program", "trace", "ranks"]
    paths: tuple[str, ...]
    changed_ns: int
    bytes: int
    recording: bool
    large: bool
    created: str = ""


class Scan:
    """Finds the sources below ``root``; each call looks again, and reads only files that changed since the
    call before.

    ``sources`` is what the last complete one found, ``cut`` says that the limit ended it early.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root)) if root else ""
        self.cut, self.sources = False, dict[str, TabSource]()

    def __call__(self) -> dict[str, TabSource]:
        """The sources by name. Links to directories are followed, each directory once; hidden directories are
        skipped."""
        from rooflines.pipeline.captures import (
            captured_beside,
        )  # which loads NumPy: TensorBoard starts without it

        self.cut, sources = False, list[TabSource]()
        jobs: dict[str, dict[int, list[TabSource]]] = defaultdict(lambda: defaultdict(list))
        for folder, below, names in self._walk():
            files = _stats(folder, names)
            if not _RECORD.isdisjoint(files):
                sources.append(self._recorded(folder, files))
                if sources[-1].kind == "run" and (
                    of_job := re.fullmatch(r"rank(\d+)", os.path.basename(folder))
                ):
                    jobs[os.path.dirname(folder)][int(of_job[1])].append(sources[-1])
            elif files and "capture_traces" in below and captured_beside(folder):
                below.remove("capture_traces")
                sources.append(self._source("trace", folder, files))
            else:
                for name, found in files.items():
                    path = os.path.join(folder, name)
                    is_trace, rank, *_ = _head(path, found.st_mtime_ns, found.st_size)
                    if is_trace:
                        sources.append(self._source("trace", path, {name: found}))
                        if rank is not None:
                            jobs[folder][rank].append(sources[-1])
        for folder, ranks in jobs.items():
            if len(ranks) > 1 and len(set(map(len, ranks.values()))) == 1:
                sources.append(self._together(folder, ranks))
        self.sources = {source.name: source for source in sorted(sources)}
        return self.sources

    def _walk(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory with the names of its directories, which the caller may remove from the list, and
        files."""
        seen, entries = set[str](), 0
        for folder, below, names in os.walk(self.root, followlinks=True):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if os.path.realpath(folder) in seen:
                below.clear()
                continue
            if entries > MOST_ENTRIES:
                self.cut = True
                return
            seen.add(os.path.realpath(folder))
            entries += len(below) + len(names)
            yield folder, below, names

    def _recorded(self, folder: str, files: Mapping[str, os.stat_result]) -> TabSource:
        """The run or monitored program in ``folder``."""
        record = next((name for name in (MONITOR_FILE, RUN_FILE) if name in files), None)
        is_running, created = True, ""
        if record is not None:
            found = files[record]
            *_, is_running, created = _head(os.path.join(folder, record), found.st_mtime_ns, found.st_size)
        kind = "program" if record == MONITOR_FILE else "run"
        return self._source(kind, folder, files, KILLED_S if is_running else 0.0)._replace(created=created)

    def _source(
        self, kind: Any, path: str, files: Mapping[str, os.stat_result], fresh_s: float = FRESH_S
    ) -> TabSource:
        size = sum(one.st_size for one in files.values())
        changed_ns = max(one.st_mtime_ns for one in files.values())
        # A clock that is ahead of ours, as a file server's may be, says nothing.
        recording = 0 <= time.time() - changed_ns / 1e9 < fresh_s
        large = size > (
            LARGE_COMPRESSED_BYTES if any(name.endswith((".gz", ".zst")) for name in files) else LARGE_BYTES
        )
        return TabSource(self._name(path), kind, (path,), changed_ns, size, recording, large)

    def _together(self, folder: str, ranks: Mapping[int, list[TabSource]]) -> TabSource:
        """The ranks of one job, of several steps the last one; analyzed only on request: each is in the list
        by itself."""
        last = [max(ranks[rank], key=lambda source: source.changed_ns) for rank in sorted(ranks)]
        paths = (folder,) if last[0].kind == "run" else tuple(source.paths[0] for source in last)
        changed_ns, size = max(source.changed_ns for source in last), sum(source.bytes for source in last)
        return TabSource(
            f"{self._name(folder)} ({len(ranks)} ranks)",
            "ranks",
            paths,
            changed_ns,
            size,
            any(source.recording for source in last),
            large=True,
        )

    def _name(self, path: str) -> str:
        name = os.path.relpath(path, self.root)
        return escaped(os.path.basename(path) if name == "." else name.replace(os.sep, "/"))


def _stats(folder: str, names: Iterable[str]) -> dict[str, os.stat_result]:
    """Those of the files that may be traces or belong to a recording, with their times and sizes."""
    found = {}
    for name in sorted(names):
        if is_trace_name(name) or name.endswith(".pftrace") or name in _RECORD:
            with contextlib.suppress(OSError):  # removed meanwhile
                found[name] = os.stat(os.path.join(folder, name))
    return {name: one for name, one in found.items() if stat.S_ISREG(one.st_mode)}


@lru_cache(MOST_ENTRIES)
def _head(path: str, changed_ns: int, size: int) -> tuple[bool, int | None, bool, str]:
    """Whether the file that changed then is a trace by its name or its first bytes, its rank, whether a
    recording is running, and when it began."""
    is_packed, head = path.endswith((".zst", ".pftrace")), b""
    try:
        if not is_packed:
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
                head = file.read(64 << 10)
    except (OSError, EOFError, zlib.error):
        return True, None, False, ""  # damaged: the analysis says how
    rank, name = _RANK.search(head), os.path.basename(path)
    is_trace = is_packed or ".trace.json" in name or b'"traceEvents"' in head or b'"ph"' in head
    created = _CREATED.search(head)
    return (
        is_trace,
        int(rank[1]) if rank else rank_in_name(name),
        _RUNNING.search(head) is not None,
        created[1].decode(errors="replace") if created else "",
    )
