"""Marks in a trace that say which line of the user's program runs from there on.

Python calls a trace function at every line of the program's own files, and at no line of torch, of installed
packages and of Python. Each new line leaves a range without length, ``rooflines.line: 17``, on its thread:
what comes behind it on that thread, up to the next one, runs for line 17 of ``places``. This takes the
host a microsecond or two a line, so it is part of a step whose times nobody uses.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rooflines.profiler.read.records import LINE_PREFIX
from rooflines.profiler.read.work_ranges import profiler_range
from rooflines.profiler.records import ProgramLine

_PACKAGES = ("site-packages", "dist-packages")
_OURS = Path(__file__).parents[2]
_PYTHON = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
# A step that runs more lines than this is one of Python: what they mark would fill the trace.
_MOST_MARKS = 100_000


@functools.cache
def is_of_program(file: str) -> bool:
    """Whether ``file`` is source code of the program: no package, module of Python, code from a string, or
    code that inductor made."""
    path, cache = Path(file), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    others = (_OURS, *_PYTHON, *([Path(cache)] if cache else []))
    return not (
        file.startswith("<")
        or any(part in _PACKAGES or part.startswith("torchinductor_") for part in path.parts)
        or any(folder in path.parents for folder in others)
    )


def program_line(file: str, line: int, function: str = "") -> ProgramLine:
    """The record of a line, with its text as the file has it now."""
    return ProgramLine(
        path=str(Path(file).absolute()),
        line=line,
        function=function,
        text=linecache.getline(file, line).strip()[:200],
    )


class LineMarks:
    """Context manager: while it is open, the lines of this thread leave marks, ``count`` of them; ``places``
    has the lines.

    Where the program is traced already, by a debugger or for its coverage, nothing is marked.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[CodeType, int], int] = {}
        self._last = -1
        self.count = 0
        self._is_over = True
        self._process = os.getpid()

    @property
    def places(self) -> tuple[ProgramLine, ...]:
        """The lines that were marked, by their number."""
        return tuple(program_line(code.co_filename, line, code.co_name) for code, line in self._numbers)

    def __enter__(self) -> LineMarks:
        if sys.gettrace() is None:
            self._is_over = False
            for frame in _of_program(sys._getframe(1)):
                frame.f_trace = self._at_line
            self._back_in(sys._getframe(1))
            sys.settrace(self._at_call)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_over:
            self._is_over = True
            sys.settrace(None)
            for frame in _of_program(sys._getframe(1)):
                frame.f_trace = None

    def _at_call(self, frame: FrameType, event: str, _: Any) -> Any:
        if self._is_over or os.getpid() != self._process:  # closed on another thread, or a child inherits it
            sys.settrace(None)
            return None
        return self._at_line if is_of_program(frame.f_code.co_filename) else None

    def _at_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if self._is_over or self.count > _MOST_MARKS or os.getpid() != self._process:
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":
            self._back_in(frame.f_back)
        return self._at_line

    def _back_in(self, frame: FrameType | None) -> None:
        """The line that called goes on."""
        if (caller := next(_of_program(frame), None)) is not None:
            self._mark(caller)

    def _mark(self, frame: FrameType) -> None:
        number = self._numbers.setdefault((frame.f_code, frame.f_lineno or 0), len(self._numbers))
        if number != self._last:
            self._last = number
            self.count += 1
            with profiler_range(f"{LINE_PREFIX}{number}"):
                pass


def _of_program(frame: FrameType | None) -> Any:
    """The frames of the program among ``frame`` and those that called it."""
    while frame is not None:
        if is_of_program(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back
