"""Copies of the standard streams that a program cannot close or redirect."""

from __future__ import annotations

import os
from typing import TextIO


def own_stream(stream: TextIO) -> TextIO:
    """A stream that writes to where ``stream`` does now, by a descriptor of its own; ``stream`` itself where it has none."""
    try:
        return open(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors=stream.errors, buffering=1)
    except (AttributeError, OSError, ValueError):  # None, closed, or in memory
        return stream
