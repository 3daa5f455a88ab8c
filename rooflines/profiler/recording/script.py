"""Recording a program that knows nothing of us: it runs as under ``python``, and ``StepHooks`` tell where its steps end."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import Interrupted, RooflinesError, WorkloadError
from rooflines.profiler.options import Mode
from rooflines.profiler.recording.collect import Recording, interrupted, user_error
from rooflines.profiler.recording.step_hooks import Doing, StepHooks
from rooflines.profiler.records import Run
from rooflines.units import counted, seconds


class _Enough(BaseException):
    """Everything is recorded: unwind the script. Not an Exception, so that the script's own handlers let it pass."""


class Program:
    """A script or a module with its own command line; ``name`` is what it is called in messages."""

    def __init__(self, name: str, arguments: list[str], run: Callable[[], object], path: str) -> None:
        self.name = name
        self._argv = [name, *arguments]
        self._run = run
        self._path = path

    @classmethod
    def of_script(cls, script: Path, arguments: list[str]) -> Program:
        """``python SCRIPT ARGUMENTS``."""
        return cls(str(script), arguments, lambda: runpy.run_path(str(script), run_name="__main__"), str(script.resolve().parent))

    @classmethod
    def of_module(cls, module: str, arguments: list[str]) -> Program:
        """``python -m MODULE ARGUMENTS``."""
        return cls(module, arguments, lambda: runpy.run_module(module, run_name="__main__", alter_sys=True), os.getcwd())

    def run(self) -> None:
        """Run it to its end, in the directory and with the command line that it was given; both are put back."""
        argv, path, directory = sys.argv, list(sys.path), os.getcwd()
        sys.argv = list(self._argv)
        sys.path.insert(0, self._path)
        try:
            self._run()
        finally:
            sys.argv, sys.path[:] = argv, path
            with contextlib.suppress(OSError):
                os.chdir(directory)


class _Driver:
    """Passes on to a recording what the hooks see of a program, and ends the program when enough is recorded."""

    def __init__(self, recording: Recording, *, to_end: bool) -> None:
        self._recording = recording
        self._to_end = to_end
        self._paused_at = 0.0
        self.evaluating_s = 0.0
        self._made = 0  # steps of the present kind
        self.before = 0  # and of the kinds before, which were forgotten
        self.hooks = StepHooks(self._on_step, self._on_doing, self._may_change, lambda: recording.loading.is_under_way)

    def _may_change(self) -> bool:
        return not self._recording.passes.has_begun_timing

    def _on_doing(self, doing: Doing) -> None:
        recording = self._recording
        if doing == "call":
            if recording.passes.stage == "start-up":
                recording.passes.tell("call")
        elif doing == "pause":
            self._paused_at = time.perf_counter()
            recording.pause()
        elif doing == "resume":
            self.evaluating_s += time.perf_counter() - self._paused_at
            recording.resume()
        elif self._may_change() or self.hooks.mode != recording.workload.mode:
            self.before, self._made = self.before + self._made, 0
            recording.passes.restart()
        else:
            recording.notes.append("the program moved on to other steps before all of these were recorded")
            recording.passes.finish()
            self._end()

    def _on_step(self, mode: Mode) -> None:
        recording = self._recording
        self._made += 1
        if mode != recording.workload.mode:
            recording.workload = msgspec.structs.replace(recording.workload, mode=mode)
        if not recording.done:
            recording.step()
        # Inference in a program that is going to train: its training is what counts.
        if recording.done and (mode == "training" or not self.hooks.makes_optimizers):
            self._end()

    def _end(self) -> None:
        recording = self._recording
        if self._to_end:
            return
        # The script ends here, while its data is still there: what is asked of its loader now, it will not miss.
        if recording.loading.resident_step():
            return
        recording.loading.run_loader_alone(ends=True)
        raise _Enough

    def notes(self) -> Iterator[str]:
        """Warnings about the steps for the reader."""
        hooks = self.hooks
        if hooks.several > 1:
            what = "optimizers" if hooks.mode == "training" else "models"
            yield f"a step is one turn of {hooks.several} {what}, and ends with the last one"
        if hooks.evaluations:
            yield (
                f"the program evaluated its model {_times(hooks.evaluations)} between the steps ({seconds(self.evaluating_s)}): "
                "not part of any step"
            )
        if self.before:
            yield f"not counted: {counted(self.before, 'step')} before these began (an evaluation before training, or parts of a step)"


def collect_script(program: Program, recording: Recording, *, to_end: bool) -> Run:
    """Run ``program`` under ``recording``.

    It is stopped once everything is recorded, unless ``to_end``. Its exceptions come back as WorkloadError with the original as
    ``__cause__`` and the exit code that it would have had; what had been recorded is on disk (``recording.run``).
    """
    what, owner = f"the {'script' if program.name.endswith('.py') else 'module'} {program.name!r}", os.getpid()
    driver = _Driver(recording, to_end=to_end)
    recording.ranges = driver.hooks.ranges
    try:
        with recording, driver.hooks:
            try:
                program.run()
            except _Enough:
                pass
            except SystemExit as ending:
                if ending.code not in (None, 0) and not recording.loading.is_resident:
                    raise
            except Exception as error:
                if not recording.loading.is_resident:
                    raise
                recording.loading.end_resident_steps(error)  # everything is recorded, and to its own data it did not object
            if os.getpid() != owner:
                _end_child(0)
            if recording.loading.is_resident:
                recording.loading.end_resident_steps()
            recording.notes.extend(driver.notes())
            if not recording.passes.steps:
                if driver.hooks.makes_optimizers:
                    recording.workload = msgspec.structs.replace(recording.workload, mode="training")
                recording.passes.finish()
                if recording.passes.trace is None:
                    raise WorkloadError(
                        f"{what} ended without running a PyTorch operator.", hint="Use rooflines monitor for programs without PyTorch."
                    )
                recording.notes.append(
                    "no step was recognized, because no optimizer stepped and no module was called with gradients off: the whole "
                    "program is one step. To mark steps: with rooflines.record() as r: ... r.step()"
                )
    except KeyboardInterrupt:
        if recording.run is None:
            raise Interrupted("interrupted before anything was recorded.") from None
        raise interrupted(recording.directory) from None
    except SystemExit as ending:
        if os.getpid() != owner:
            _end_child(ending.code)
        how = f"exited with {ending.code!r}" if isinstance(ending.code, int) else f"exited: {ending.code}"
        raise _ended(WorkloadError(f"{what} {how}."), recording, ending.code if isinstance(ending.code, int) else 1) from ending
    except RooflinesError:
        raise  # as it is, with its own cause
    except Exception as error:
        if os.getpid() != owner:
            traceback.print_exc()
            _end_child(1)
        raise _ended(user_error(error, what, recording), recording, 1) from error
    assert recording.run is not None
    return recording.run


def _ended(error: RooflinesError, recording: Recording, code: int) -> RooflinesError:
    """``error`` with the program's exit code, and a hint that says what was recorded."""
    error.exit_code = code
    if recording.run is None:
        error.marked_hint = ""
    elif not error.hint:
        error.marked_hint = f"The recording so far is in {str(recording.directory)!r}."
    return error


def _end_child(code: Any) -> None:
    """End a child that the program forked and that has come to the program's end: what follows is for the parent."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 (as Python does)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
