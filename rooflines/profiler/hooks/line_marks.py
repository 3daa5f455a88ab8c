"""Marks in a trace that say which line of the user's program runs from there on.

Python calls a trace function at every line of the program's own files, and at no line of torch, of installed
packages and of Python. Each new line leaves a range without length, ``rooflines.line: 17``, on its thread:
what comes behind it on that thread, up to the next one, runs for line 17 of ``places``. Operators do not
become slower, but the time between them grows by some microseconds a line.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rooflines.profiler.read.records import LINE_PREFIX
from rooflines.profiler.read.work_ranges import profiler_range
from rooflines.profiler.records import ProgramLine

_PACKAGES = ("site-packages", "dist-packages")
_OURS = Path(__file__).parents[2]
_PYTHON = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "scripts"))
# A step that runs more lines than this is one of Python: what they mark would fill the trace.
_MOST_MARKS = 100_000
# And what does not mark, as a loop in one line, takes time without end.
_MOST_EVENTS = 10 * _MOST_MARKS
# A compiler calls millions of functions, each of which would be slower.
_COMPILER = str(Path("torch", "_dynamo", "convert_frame.py"))


@functools.cache
def is_of_program(file: str) -> bool:
    """Whether ``file`` is source code of the program: no package, command of one, module of Python, code from
    a string, or code that inductor made."""
    path, cache = Path(file), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    others = (_OURS, *_PYTHON, *([Path(cache)] if cache else []))
    return not (
        file.startswith("<")
        or path.name == _OURS.name  # the command, where a link to it is run
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
    """While it is on, the lines of this thread leave marks, ``count`` of them; ``places`` has the lines, and
    nothing where the marks end before ``stop``: what follows would have the last line.

    Where the program is traced already, by a debugger or for its coverage, nothing is marked, and a trace
    function that the program sets meanwhile stays. Nor is anything marked by Python 3.10, which writes old
    values back into variables of functions that it traces. ``notes`` gets a sentence where ours fails.
    """

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        # A line is one place, though a comprehension in it is a function of its own.
        self._numbers: dict[tuple[str, int], tuple[int, str]] = {}
        self._last = -1
        self.count = self._events = 0
        self._is_on = False
        self._is_whole = True
        self._process = os.getpid()
        # One object, which can be told from others: a method is another one each time.
        self._on_call, self._on_line = self._at_call, self._at_line

    @property
    def places(self) -> tuple[ProgramLine, ...]:
        """The lines that were marked, by their number."""
        lines = self._numbers.items() if self._is_whole else ()
        return tuple(program_line(*line, function) for line, (_, function) in lines)

    def start(self) -> None:
        """Mark the lines from here on."""
        if sys.version_info >= (3, 11) and sys.gettrace() is None:
            self._is_on = True
            for frame in _of_program(sys._getframe(1)):
                frame.f_trace = frame.f_trace or self._on_line
            self._on_line(sys._getframe(), "return", None)
            sys.settrace(self._on_call)

    def stop(self, *, with_trace: bool = False) -> None:
        """Mark no more lines: ``with_trace``, there is nothing behind them."""
        ours = sys.gettrace() is self._on_call
        # Another thread stops, or Python has dropped the trace function, or the program has set another one.
        self._is_whole &= ours or with_trace or not self._is_on
        self._is_on = False
        if ours:
            sys.settrace(None)
        for frame in _of_program(sys._getframe(1)):
            if frame.f_trace is self._on_line:
                frame.f_trace = None

    def _at_call(self, frame: FrameType, event: str, _: Any) -> Any:
        # Another thread has stopped it, or a child inherits it.
        if not self._is_on or os.getpid() != self._process:
            self._leave()
            return None
        file = frame.f_code.co_filename
        if frame.f_code.co_name == "_compile" and file.endswith(_COMPILER):
            self._is_on = self._is_whole = False
            self._leave()
        return self._on_line if self._is_on and is_of_program(file) else None

    def _at_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._is_on or os.getpid() != self._process:
            return None
        self._events += 1
        try:
            if event == "line":
                self._mark(frame)
            elif event == "return" and (caller := next(_of_program(frame.f_back), None)) is not None:
                self._mark(caller)  # the line that called goes on
            if self.count >= _MOST_MARKS or self._events >= _MOST_EVENTS:
                self._give_up(
                    f"the lines of the program are not known: a step runs more than {_MOST_MARKS:,}"
                )
        except Exception as error:
            self._give_up(f"the lines of the program are not known after {error!r}")
        return self._on_line

    def _mark(self, frame: FrameType) -> None:
        code = frame.f_code
        place = (code.co_filename, frame.f_lineno or 0)
        number, _ = self._numbers.setdefault(place, (len(self._numbers), code.co_name))
        if number != self._last:
            self._last = number
            self.count += 1
            with profiler_range(f"{LINE_PREFIX}{number}"):
                pass

    def _give_up(self, why: str) -> None:
        self._is_on = self._is_whole = False
        self._notes.append(why)
        self._leave()

    def _leave(self) -> None:
        if sys.gettrace() is self._on_call:
            sys.settrace(None)


def _of_program(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the program among ``frame`` and those that called it."""
    while frame is not None:
        if is_of_program(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back
