"""The bytes of a trace file piece by piece: plain, gzip or zstd, on this machine or behind a URL.

The first bytes give the format, not the name. A thread reads and decompresses one piece ahead: zlib and zstandard release the
GIL, so that this costs a decoder with a second core nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from rooflines.arguments import arg
from rooflines.errors import TraceError
from rooflines.profiler.trace.url import is_url, shown, shown_reason

PIECE_BYTES = 4 << 20
# What a piece of a zstd file is with ``problems``: the piece that is being read is lost where the file is damaged.
_SMALL_PIECE_BYTES = 4 << 10

_Peekable: TypeAlias = "io.BufferedReader[Any]"

PARTIAL_HINT = f"Use {arg('partial', True)} to read the events before the damage."

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
# Traces shrink ten- to fortyfold, the same step repeated for ever up to two hundredfold. What expands more than this is a bomb.
_MOST_EXPANSION = 500
# What zstd itself decompresses without being told to take more (--long=27).
_LARGEST_WINDOW = 128 << 20
# Opening a pipe without a writer would block forever.
_PATIENCE_S = 10
_EXPANSION_COUNTS_FROM = 256 << 20


class _Damaged(Exception):
    """A compressed file ends early or cannot be decompressed any further."""


def pieces(path: Path | str, problems: list[str] | None = None) -> Iterator[bytes]:
    """The decompressed contents of ``path``, a file or any URL that fsspec opens (``s3://``, ``https://``, ``memory://``).

    Raises TraceError for a file that is missing, unreadable, damaged, or expands without measure. With ``problems``, a damaged file is
    decompressed up to the damage, which is then described in ``problems``.
    """
    source, origin = str(path), shown(path)
    try:
        file = _open(source)
    except (OSError, ValueError, ImportError) as error:
        raise TraceError(f"cannot read the trace {origin!r}: {shown_reason(_reason(error), source)}") from None
    with file:
        yield from _ahead(_contents(file, source, problems))


def _open(source: str) -> _Peekable:
    if not is_url(source):
        return io.BufferedReader(io.FileIO(_descriptor(source)), PIECE_BYTES)
    import fsspec

    try:
        return io.BufferedReader(fsspec.open(source, "rb").open(), PIECE_BYTES)
    except (OSError, ValueError, ImportError):
        raise
    except Exception as error:  # every store behind fsspec has its own
        raise OSError(_reason(error)) from None


def _descriptor(path: str) -> int:
    """The open file at ``path``, which is a file, or a pipe that something comes through; raises OSError for others."""
    # Without O_NONBLOCK opening a pipe waits for who writes into it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
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


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _contents(file: _Peekable, source: str, problems: list[str] | None) -> Iterator[bytes]:
    origin = shown(source)
    some = False
    try:
        magic = file.peek(4)[:4]
        if magic.startswith(_GZIP):
            for piece in _measured(_gunzip(file, problems is not None), file, origin):
                some = True
                yield piece
        elif magic == _ZSTD:
            for piece in _measured(_unzstd(file, problems is not None), file, origin):
                some = True
                yield piece
        elif magic == _ZIP:
            raise TraceError(f"{origin!r} is a zip archive.", hint="Extract it and give the trace inside.")
        else:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise TraceError(f"cannot read the trace {origin!r}: {shown_reason(_reason(error), source)}") from None
    except _Damaged as error:
        if problems is None or not some:
            raise TraceError(f"the trace {origin!r} is a damaged {error}", hint=PARTIAL_HINT if problems is None else "") from None
        problems.append(f"the trace is a damaged {error}")


def _gunzip(file: BinaryIO, partial: bool) -> Iterator[bytes]:
    """The members of a gzip file, which may be several behind each other, as ``cat a.gz b.gz`` makes them. With ``partial``,
    everything before a damage comes before the error."""
    member = zlib.decompressobj(wbits=31)
    rest = b""
    while True:
        if member.eof:
            rest = member.unused_data or file.read(PIECE_BYTES // 16)
            # Bytes after the last member, often zero padding, are not data.
            if not rest.startswith(_GZIP):
                return
            member = zlib.decompressobj(wbits=31)
        else:
            rest = member.unconsumed_tail or file.read(PIECE_BYTES // 16)
            if not rest:
                raise _Damaged("gzip file: unexpected end of file")
        before = member.copy() if partial else None
        try:
            piece = member.decompress(rest, PIECE_BYTES)
        except zlib.error as error:
            if before is not None:
                yield from _byte_by_byte(before, rest)
            raise _Damaged(f"gzip file: {error}") from None
        if piece:
            yield piece


def _byte_by_byte(member: Any, rest: bytes) -> Iterator[bytes]:
    """What ``rest`` decompresses to before its damage: the call of zlib that meets the damage returns nothing."""
    with contextlib.suppress(zlib.error):
        for at in range(len(rest)):
            if piece := member.decompress(rest[at : at + 1]):
                yield piece


def _unzstd(file: BinaryIO, partial: bool) -> Iterator[bytes]:
    import zstandard

    # A frame that is cut off ends without an error here; the decoder then finds its JSON cut off.
    try:
        with zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(file, read_across_frames=True) as reader:
            while piece := reader.read(_SMALL_PIECE_BYTES if partial else PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise _Damaged(f"zstd file: {error}") from None


def _measured(contents: Iterator[bytes], file: BinaryIO, origin: str) -> Iterator[bytes]:
    """Pass through ``contents`` while their size is plausible for the compressed bytes read so far."""
    total = 0
    for piece in contents:
        total += len(piece)
        if total > _EXPANSION_COUNTS_FROM and total > _MOST_EXPANSION * max(1, file.tell()):
            raise TraceError(
                f"{origin!r} expands more than {_MOST_EXPANSION}-fold and is not read.",
                hint="If you trust the file, decompress it and give the uncompressed trace.",
            )
        yield piece


def _ahead(contents: Iterator[bytes]) -> Iterator[bytes]:
    """``contents``, the next piece always being read by a second thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="rooflines-trace") as reader:
        coming = reader.submit(next, contents, b"")
        while piece := coming.result():
            coming = reader.submit(next, contents, b"")
            yield piece
