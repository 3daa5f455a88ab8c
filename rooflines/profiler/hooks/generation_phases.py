"""The phases of a generation: prefill computes the tokens of the prompts together, decode one token of each
sequence.

A phase is a range in the trace (``request_marks.phase_name``) and the phase of the calls that a dispatch mode
sees meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rooflines.profiler.read.request_marks import Kind, phase_name
from rooflines.profiler.read.work_ranges import profiler_range

_threads = threading.local()


@contextlib.contextmanager
def generating(kind: Kind, *, requests: int, tokens: int, keys: int) -> Iterator[None]:
    """Mark what runs inside as a phase: it computes ``tokens`` of ``requests`` sequences, which may attend to
    ``keys`` tokens, those in the KV cache included; all three are sums over the sequences."""
    before = current_phase()
    _threads.kind = kind
    try:
        with profiler_range(phase_name(kind, requests, tokens, keys)):
            yield
    finally:
        _threads.kind = before


def current_phase() -> Kind | None:
    """The phase that this thread is in."""
    return getattr(_threads, "kind", None)
