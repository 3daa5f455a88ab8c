"""What torch's libraries write to standard error: less while our own profiler runs, and otherwise what the
program has them write."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

# The levels from which on c10 (2: errors) and Kineto (nothing is so high) write.
_C10_QUIET, _KINETO_QUIET = 2, 99
# The level that Kineto sets for itself as it starts, unless this variable has another one.
_KINETO_LEVEL, _KINETO_VARIABLE = 4, "KINETO_LOG_LEVEL"


@contextlib.contextmanager
def quiet_logs() -> Iterator[contextlib.ExitStack]:
    """Without warnings in torch's C++ log, such as the allocator's about memory from before the profiler
    started, and without Kineto's lines about its stages. What it yields puts the levels back; take it over
    with ``pop_all`` to do so later."""
    with contextlib.ExitStack() as stack:
        if (c10 := _level("libc10", "FLAGS_caffe2_log_level")) is not None:
            stack.callback(setattr, c10, "value", c10.value)
            c10.value = max(c10.value, _C10_QUIET)
        kineto = _level("libtorch_cpu", "_ZN9libkineto6Logger14severityLevel_E")
        if kineto is not None and os.environ.get(_KINETO_VARIABLE, "") in (
            "",
            str(_KINETO_QUIET),
        ):  # else its lines were asked for
            level = kineto.value or int(os.environ.get(_KINETO_VARIABLE) or _KINETO_LEVEL)
            stack.callback(setattr, kineto, "value", level)
            kineto.value = _KINETO_QUIET
        yield stack


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Inside, Kineto starts, if it has not yet, at a level at which it writes nothing. Variables that torch
    adds are removed, too."""
    before = {*os.environ}
    os.environ.setdefault(_KINETO_VARIABLE, str(_KINETO_QUIET))
    try:
        yield
    finally:
        for name in os.environ.keys() - before:
            del os.environ[name]


@contextlib.contextmanager
def quiet_profiler() -> Iterator[None]:
    """Inside, torch's and Kineto's own start-up lines are not written; takes effect before torch is
    imported."""
    with quiet_start():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        yield


def _level(library: str, name: str) -> ctypes.c_int | None:
    """The variable of a library of torch's that has the level of its log; None in a build with another
    log."""
    import torch

    with contextlib.suppress(OSError, ValueError, StopIteration):
        path = next(Path(torch.__file__).parent.glob(f"lib/{library}.[sd]*"))
        return ctypes.c_int.in_dll(ctypes.CDLL(str(path)), name)
    return None
