"""Trace files: how they are named (files, directories, patterns, URLs), and their bytes piece by piece
(plain, gzip or zstd).

A URL can hold credentials: ``user:password@``, a token or a presigned signature in the query or the fragment.
Opening needs them; every name, command line and message shows the URL without them. The first bytes give the
format of a file, not its name. A thread reads and decompresses one piece ahead: the decompressors release the
GIL, so that this costs a decoder with a second core nothing.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import select
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from rooflines.arguments import arg, escaped
from rooflines.errors import TraceError, UsageError

PIECE_BYTES = 4 << 20
# What a piece of a zstd file is in a partial reading: the piece that is being read is lost where the file is
# damaged.
_SMALL_PIECE_BYTES = 4 << 10
_Peekable: TypeAlias = "io.BufferedReader[Any]"
PARTIAL_HINT = f"Use {arg('partial', True)} to read the events before the damage."
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
# Traces shrink ten- to fortyfold, the same step repeated for ever up to two hundredfold. What expands more
# than this is a bomb.
_MOST_EXPANSION = 500
# What zstd itself decompresses without being told to take more (--long=27).
_LARGEST_WINDOW_LOG = 27
# Opening a pipe without a writer would block forever.
_PATIENCE_S = 10
_EXPANSION_COUNTS_FROM = 256 << 20

_USER = re.compile(r"(?<=://)[^/]*@")
_SECRET_FROM = re.compile(r"[?#]")
# In a sentence a URL ends at a space, a quote or a bracket; some libraries quote it without scheme and host.
_URL = re.compile(r"[^\s'\"<>]+://[^\s'\"<>]+")
_QUERY = re.compile(r"\?[^\s'\"<>]+")
_SUFFIXES = (".json", ".json.gz", ".json.zst")
# Other files next to traces: those of rooflines, and the last one of servers.
_NO_TRACES = frozenset(
    (
        "run.json",
        "analysis.json",
        "ranks.json",
        "report.json",
        "monitor.json",
        "python_memory.json",
        "execution_details.json",
        "trace.perfetto.json.gz",
    )
)
_NUMBER = re.compile(r"(\d+)")
_RANK = re.compile(r"(?:rank[_\-.=]?|TP-)(\d{1,7})(?!\d)", re.IGNORECASE)


def is_url(path: Path | str) -> bool:
    """Whether ``path`` names something that fsspec opens rather than a file here."""
    return isinstance(path, str) and "://" in path


def shown(source: Path | str) -> str:
    """``source`` as outputs and messages name it: of a URL no user, password, query or fragment; a file's
    name as ``escaped``."""
    text = escaped(str(source))
    if not is_url(text):
        return text
    scheme, mark, rest = _USER.sub("", text).partition("://")
    return scheme + mark + _SECRET_FROM.split(rest, maxsplit=1)[0]


def shown_reason(reason: str, source: str) -> str:
    """A library's sentence on why ``source`` cannot be opened, with every URL in it as ``shown``."""
    if not is_url(source):
        return reason
    return _QUERY.sub("", _URL.sub(lambda url: shown(url[0]), reason.replace(source, shown(source))))


def find_traces(sources: Sequence[str | Path], *, may_be_empty: bool = False) -> list[str]:
    """The trace files in ``sources`` in their order, those of a directory or a pattern by name, ``rank10``
    behind ``rank2``.

    A source is a file, a directory, a pattern with ``*`` (``**`` for directories in between), or a URL: of a
    file, of a directory where it ends in a slash, or with ``*``. A file need not exist: reading it raises the
    error. Raises UsageError for a directory or a pattern without traces, unless they ``may_be_empty``.
    """
    return [trace for source in sources for trace in _traces(str(source), may_be_empty)]


def is_trace_name(name: str) -> bool:
    """Whether a file of this name may be a trace: JSON, compressed or not, that is none of the files of
    rooflines and of servers."""
    return name.endswith(_SUFFIXES) and name not in _NO_TRACES


def rank_in_name(source: str | Path) -> int | None:
    """The rank in the path of a trace: ``rank0.json``, ``capture_rank_0.json.gz``,
    ``1785501977.97-TP-0.trace.json.gz``.

    The last one: a directory may be named after a rank as well.
    """
    numbers = _RANK.findall(str(source))
    return int(numbers[-1]) if numbers else None


def _traces(source: str, may_be_empty: bool) -> list[str]:
    if is_url(source):
        is_pattern = "*" in source
        if not is_pattern and not source.endswith("/"):
            return [source]
        paths: Iterable[str] = _behind(f"{source}*" if source.endswith("/") else source)
    else:
        is_pattern = not os.path.isdir(source)
        if is_pattern and (not glob.has_magic(source) or os.path.exists(source)):
            return [source]
        paths = filter(
            os.path.isfile,
            glob.glob(source, recursive=True) if is_pattern else map(str, Path(source).iterdir()),
        )
    traces = [
        path
        for path in paths
        if is_pattern
        or (is_trace_name(re.split(r"[/\\]", path)[-1]) and (is_url(source) or not _is_other(path)))
    ]
    if not traces and not may_be_empty:
        what = (
            f"no file matches the pattern {shown(source)!r}"
            if is_pattern
            else f"no traces in the directory {shown(source)!r}"
        )
        raise UsageError(f"{what}.", hint="Give one trace per rank: *.json, *.json.gz or *.json.zst.")
    return sorted(traces, key=_by_number)


def _is_other(path: str) -> bool:
    """Whether a file is whole and holds something else than a trace; large ones are read later."""
    with contextlib.suppress(OSError):  # which reading it tells
        if path.endswith(".json") and os.path.getsize(path) <= PIECE_BYTES:
            text = Path(path).read_bytes().strip()
            return text[:1] + text[-1:] == b"{}" and b'"traceEvents"' not in text
    return False


def _behind(pattern: str) -> list[str]:
    """The files behind a URL with ``*``."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(pattern)
        return [system.unstrip_protocol(name) for name in system.glob(path) if system.isfile(name)]
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise UsageError(
            f"cannot list {shown(pattern)!r}: {shown_reason(str(error), pattern)}.",
            hint="List the files explicitly.",
        ) from None


def _by_number(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(path)]


class _Damaged(Exception):
    """A compressed file ends early or cannot be decompressed any further."""


class TraceBytes:
    """The decompressed contents of ``path``, a file or any URL that fsspec opens (``s3://``, ``https://``,
    ``memory://``), piece by piece.

    The iteration raises TraceError for a file that is missing, unreadable, damaged, or expands without
    measure. A ``partial`` one of a damaged file ends at the damage, which ``damage`` then describes.
    """

    def __init__(self, path: Path | str, *, partial: bool = False) -> None:
        self.damage = ""
        self._source = str(path)
        self._partial = partial

    def __iter__(self) -> Iterator[bytes]:
        try:
            file = _open(self._source)
        except Exception as error:  # every store behind fsspec has its own
            raise _unreadable(self._source, error) from None
        with file:
            yield from _ahead(self._contents(file))

    def _contents(self, file: _Peekable) -> Iterator[bytes]:
        origin, total = shown(self._source), 0
        try:
            magic = file.peek(4)[:4]
            if magic == _ZIP:
                raise TraceError(
                    f"{origin!r} is a zip archive.", hint="Extract it and give the trace inside."
                )
            unpacked = _gunzip if magic.startswith(_GZIP) else _unzstd if magic == _ZSTD else _plain
            for piece in unpacked(file, self._partial):
                total += len(piece)
                if (
                    unpacked is not _plain
                    and total > _EXPANSION_COUNTS_FROM
                    and total > _MOST_EXPANSION * max(1, file.tell())
                ):
                    raise TraceError(
                        f"{origin!r} expands more than {_MOST_EXPANSION}-fold and is not read.",
                        hint="If you trust the file, decompress it and give the uncompressed trace.",
                    )
                yield piece
        except OSError as error:
            raise _unreadable(self._source, error) from None
        except _Damaged as error:
            if not (self._partial and total):
                raise TraceError(
                    f"the trace {origin!r} is a damaged {error}", hint="" if self._partial else PARTIAL_HINT
                ) from None
            self.damage = f"the trace is a damaged {error}"


def _open(source: str) -> _Peekable:
    if is_url(source):
        import fsspec

        return io.BufferedReader(fsspec.open(source, "rb").open(), PIECE_BYTES)
    return io.BufferedReader(io.FileIO(_descriptor(source)), PIECE_BYTES)


def _descriptor(path: str) -> int:
    """The open file at ``path``, which is a file, or a pipe that something comes through; raises OSError for
    others."""
    # Without O_NONBLOCK opening a pipe waits for who writes into it.
    flags = ("O_RDONLY", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC")
    descriptor = os.open(path, sum(getattr(os, flag, 0) for flag in flags))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise OSError("it is a directory")
        if stat.S_ISFIFO(mode):
            if not select.select([descriptor], [], [], _PATIENCE_S)[0]:
                raise OSError(f"no data arrived through the pipe within {_PATIENCE_S} seconds")
            os.set_blocking(descriptor, True)
        elif not stat.S_ISREG(mode):
            raise OSError("it is a device or a socket, not a file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unreadable(source: str, error: Exception) -> TraceError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return TraceError(f"cannot read the trace {shown(source)!r}: {shown_reason(reason, source)}")


def _plain(file: BinaryIO, partial: bool) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE_BYTES), b"")


def _gunzip(file: BinaryIO, partial: bool) -> Iterator[bytes]:
    """The members of a gzip file, which may be several behind each other, as ``cat a.gz b.gz`` makes them.
    With ``partial``, everything before a damage comes before the error."""
    inflate: Any = zlib
    if not partial:  # zlib's objects alone can be copied
        with contextlib.suppress(ImportError):  # no wheels for rarer processors
            from isal import isal_zlib as inflate
    member = inflate.decompressobj(wbits=31)
    rest = b""
    while True:
        if member.eof:
            rest = member.unused_data or file.read(PIECE_BYTES // 16)
            # Bytes after the last member, often zero padding, are not data.
            if not rest.startswith(_GZIP):
                return
            member = inflate.decompressobj(wbits=31)
        else:
            rest = member.unconsumed_tail or file.read(PIECE_BYTES // 16)
            if not rest:
                raise _Damaged("gzip file: unexpected end of file")
        before = member.copy() if partial else None
        try:
            piece = member.decompress(rest, PIECE_BYTES)
        except inflate.error as error:
            if before is not None:
                yield from _byte_by_byte(before, rest)
            raise _Damaged(f"gzip file: {error}") from None
        if piece:
            yield piece


def _byte_by_byte(member: Any, rest: bytes) -> Iterator[bytes]:
    """What ``rest`` decompresses to before its damage: the call of zlib that meets the damage returns
    nothing."""
    with contextlib.suppress(zlib.error):
        for at in range(len(rest)):
            if piece := member.decompress(rest[at : at + 1]):
                yield piece


def _unzstd(file: BinaryIO, partial: bool) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _LARGEST_WINDOW_LOG}
    frame, rest = zstd.ZstdDecompressor(options=options), b""
    try:
        while True:
            if frame.eof:
                rest = frame.unused_data
                frame = zstd.ZstdDecompressor(options=options)
            if not rest and frame.needs_input:
                rest = file.read(PIECE_BYTES // 16)
                # A frame that is cut off ends without an error here; the decoder then finds its JSON cut off.
                if not rest:
                    return
            piece = frame.decompress(rest, _SMALL_PIECE_BYTES if partial else PIECE_BYTES)
            rest = b""
            if piece:
                yield piece
    except zstd.ZstdError as error:
        raise _Damaged(f"zstd file: {error}") from None


def _ahead(contents: Iterator[bytes]) -> Iterator[bytes]:
    """``contents``, the next piece always being read by a second thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="rooflines-trace") as reader:
        coming = reader.submit(next, contents, b"")
        while piece := coming.result():
            coming = reader.submit(next, contents, b"")
            yield piece
