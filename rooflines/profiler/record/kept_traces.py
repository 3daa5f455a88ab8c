"""The traces that a recording keeps in its directory: that of its steps, that of its lines, or the program's
own."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rooflines.errors import RooflinesError, first_line
from rooflines.profiler.hooks.line_marks import LineMarks
from rooflines.profiler.read.reader import read
from rooflines.profiler.record.tracer import TracedSteps, Tracer
from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.tree import tree

# A copy of the trace that the program's own profiler exported last.
_EXPORTED = ".exported.json"
# The trace of the step whose lines are marked.
_LINES = "lines.kineto.gz"
# A mark in the JSON of a trace, which the trace of other steps does not have.
_MARK_BYTES = 230


@dataclass(kw_only=True, eq=False)
class KeptTraces:
    """The files of the kept traces and what is known of them; a later trace of steps replaces an earlier
    one."""

    directory: Path
    name: str
    #: Sentences for the reader.
    notes: list[str]
    #: The file of the steps, and what was traced in it; None without one.
    steps: str | None = None
    traced: TracedSteps = field(default_factory=TracedSteps)
    #: The file of the step whose lines are marked, and these lines.
    of_lines: str | None = None
    lines: tuple[ProgramLine, ...] = ()
    #: The size of a step in it, uncompressed.
    step_bytes: int = 0

    def keep(self, tracer: Tracer, kind: Literal["steps", "early", "program"]) -> None:
        """Write the trace in place of an earlier one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.step_bytes = tracer.write(self.directory / self.name) // len(tracer.traced.times_ns)
        self.steps, self.traced = self.name, replace(tracer.traced, kind=kind)

    def keep_lines(self, marks: LineMarks) -> None:
        """Keep the trace of the steps as that of the lines, too, if it has all ``marks``."""
        self.step_bytes -= marks.count * _MARK_BYTES
        if self.steps and (places := marks.places):
            shutil.copyfile(self.directory / self.name, self.directory / _LINES)
            self.of_lines, self.lines = _LINES, places

    def keep_program(self, tracer: Tracer, *, cut: bool) -> None:
        """The trace from the program's start on, where it holds an operator."""
        self.keep(tracer, "program")
        if not self.traced.has_operators:
            (self.directory / self.name).unlink(missing_ok=True)
            self.steps, self.traced = None, TracedSteps(kind="program")
        elif cut:
            self.notes.append(
                "the trace was stopped before it became too large: later operators are not in it"
            )

    def take_exported(self, path: str) -> None:
        """Copy a trace that the program's own profiler has exported."""
        shutil.copyfile(path, self.directory / _EXPORTED)

    def keep_exported(self) -> None:
        """Keep the copied trace, where it has the shapes of operators in steps."""
        exported = self.directory / _EXPORTED
        if not exported.exists():
            return
        try:
            calls = tree(read(exported))
            if not len(calls.steps) or not calls.trace.shapes_recorded:
                self.notes.append(
                    "the trace of the program's own profiler has no steps, or no shapes (record_shapes=True)"
                )
                return
            with (
                exported.open("rb") as source,
                gzip.open(self.directory / self.name, "wb", compresslevel=6) as target,
            ):
                shutil.copyfileobj(source, target)
            self.steps = self.name
            self.traced = TracedSteps(
                times_ns=(calls.steps[:, 1] - calls.steps[:, 0]).tolist(), has_operators=True
            )
            self.notes.append("operators are those of the trace that the program's own profiler exported")
        except (RooflinesError, OSError) as error:
            self.notes.append(
                f"the trace of the program's own profiler could not be used: {first_line(error)}"
            )
        finally:
            exported.unlink(missing_ok=True)

    def check(self) -> None:
        """Note a trace that the program has deleted."""
        if self.steps is not None and not (self.directory / self.steps).exists():
            self.notes.append("the program deleted the trace of its steps")
            self.steps = None

    def delete(self) -> None:
        """Delete the traces of steps."""
        for name in (self.name, _LINES):
            (self.directory / name).unlink(missing_ok=True)
