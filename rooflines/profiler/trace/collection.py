"""Python's garbage collector, paused while very many objects are made that refer to nothing that refers back to them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Without the collector of cycles, which goes through every object again and again while thousands are made; events have none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
