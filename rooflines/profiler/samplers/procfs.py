"""Files of Linux's /proc and /sys; those of /proc at little cost: most of what a reading of the machine costs is in them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LINUX = sys.platform.startswith("linux")
_PIECE_BYTES = 1 << 16


def content(path: str) -> bytes:
    """Read a file at less cost than ``open``, which queries sizes and positions that have no meaning here."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(file, _PIECE_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(file)


def line_of(path: Path) -> str:
    """What a small file of the kernel says, empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class HeldFile:
    """A file that is read over and over: held open, it costs half. Raises OSError when it is not there."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def start(self) -> bytes:
        """The current contents, at most 64 KiB."""
        return os.pread(self._file, _PIECE_BYTES, 0)

    def close(self) -> None:
        os.close(self._file)
