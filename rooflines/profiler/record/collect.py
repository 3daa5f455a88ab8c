"""Recording a run and writing it to its directory, however it ends.

Call ``Recording.step()`` when a step ends; it drives the passes (``passes``). A model, a loop that the user
owns and a script all drive the same one; they differ only in who calls ``step()``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.errors import Interrupted, OutputError, RooflinesError, UsageError, WorkloadError, first_line
from rooflines.profiler.compiled.inductor import InductorWatch, compile_seconds
from rooflines.profiler.compiled.records import write_compiled
from rooflines.profiler.directory import (
    JOURNAL_FILE,
    RUN_FILE,
    STEPS_FILE,
    create_directory,
    discard,
    file_stem,
    save,
    timestamp,
)
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.read.signature import StoredCall
from rooflines.profiler.record.data_loading import DataLoading, WatchedLoader
from rooflines.profiler.record.device import RecordedDevice
from rooflines.profiler.record.own_profilers import OwnProfilers
from rooflines.profiler.record.passes import TRACED_STEPS, Passes
from rooflines.profiler.record.reported_steps import VARIABLE, StepReport
from rooflines.profiler.records import (
    FINDS_THE_OPERATOR,
    GenerationSizes,
    Run,
    RunFile,
    Settings,
    Status,
    StepMemory,
    Workload,
)
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.workloads.memory_shortage import memory_shortage
from rooflines.profiler.workloads.steps import Step
from rooflines.units import counted

if TYPE_CHECKING:
    import torch


class Recording:
    """A run being recorded into ``directory``: call ``step()`` after every step until ``done``.

    Use it as a context manager; leaving it, however it is left, writes a loadable run, except where there is
    nothing to keep: then the directory is removed. ``settings`` may fix the number of timed and warm-up
    steps; None lets the step times decide. ``workload`` may be corrected while recording; ``run`` is set when
    the context is left. ``pause()`` says that the program evaluates its model and ``resume()`` that it goes
    on training: what lies between belongs to no step. ``loading`` is what is seen of the program's data, and
    what asks its loader and its step for more once the rest is recorded. Without a ``device`` it is the one
    that the first step runs on. Without ``traced_steps`` it is timed only. Entering raises UsageError while
    another recording or torch profiler is on: each would be in the other's times.
    """

    _active: Recording | None = None
    _inherits_profiler = False  # stopped where it matters: that takes longer the more has been traced

    def __init__(
        self,
        directory: Path,
        workload: Workload,
        device: torch.device | None,
        *,
        settings: Settings | None = None,
        traced_steps: int = TRACED_STEPS,
        progress: Progress | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.run: Run | None = None
        self.workload = workload
        self.notes = list(notes)
        self.unrecorded: list[str] = []
        # Whether the losses of the first and the last step were finite, where the step is ours and returns
        # one.
        self.loss_finite: bool | None = None
        # What is known at the end of the network that generates text.
        self.sizes: Callable[[], GenerationSizes | None] = lambda: None
        self._device = RecordedDevice(device)
        self._settings = settings or Settings()
        self._progress = progress or Silent()
        # For what of ours runs inside of the program.
        self.guard = Guard(self.notes, lambda: self.passes.stop())
        self._inductor = InductorWatch()
        self._noted_calls: tuple[StoredCall, ...] = ()
        self._step_memory: StepMemory | None = None
        self._owner = os.getpid()
        self._report = StepReport(reports) if (reports := os.environ.get(VARIABLE)) else None
        self._compiled_s = 0.0
        self.loading = DataLoading(self._device, self._progress, self.notes, self.guard)
        # The program may change its directory, and remove ours.
        self.place, self._began_in = directory.absolute(), os.getcwd()
        self.passes = Passes(
            directory=self.place,
            trace_name=f"{file_stem(workload.name)}.pt.trace.json.gz",
            device=self._device,
            settings=self._settings,
            early=workload.source in ("script", "loop"),
            loading=self.loading,
            inductor=self._inductor,
            progress=self._progress,
            notes=self.notes,
            save=self._save_so_far,
            traced_steps=traced_steps,
        )

    @classmethod
    def is_active(cls) -> bool:
        """Whether a run is being recorded in this process."""
        return cls._active is not None

    @classmethod
    def leave(cls) -> None:
        """In a forked process: what is being recorded is recorded in another one, for which the profiler may
        be on here."""
        import torch.autograd.profiler

        # torch._C tells of this thread's own profiler only.
        cls._active, cls._inherits_profiler = None, torch.autograd.profiler._is_profiler_enabled

    @property
    def device(self) -> torch.device:
        """The device that is recorded, as far as it is known."""
        return self._device.torch_device

    @property
    def done(self) -> bool:
        """Whether everything has been recorded; further steps are neither timed nor traced."""
        return self.passes.done

    def __enter__(self) -> Recording:
        outer = Recording._active
        if (
            outer is not None and outer.workload.source != "script"
        ):  # a script that records itself does so as without us
            raise UsageError(
                f"a run is already being recorded into {str(outer.directory)!r}.",
                hint="Stop it before starting another.",
            )
        if Recording._inherits_profiler:
            import torch

            Recording._inherits_profiler = False
            torch._C._autograd._disable_profiler()
        with contextlib.ExitStack() as stack:
            if outer is not None:
                outer.notes.append(
                    f"the program records itself into {str(self.directory)!r}: steps meanwhile "
                    "are in that run only"
                )
                outer.passes.hold("recording")
                stack.callback(outer.passes.release, "recording")
            passes = self.passes
            profilers = stack.enter_context(
                OwnProfilers(passes.hold, passes.release, passes.take_exported, self.guard, passes.lock)
            )
            if profilers.active and self.workload.source in (
                "model",
                "step",
            ):  # a loop or a script may end its own
                raise UsageError(
                    "a torch profiler is already running; its overhead would be part of the step times.",
                    hint="Stop it first. rooflines starts its own profiler.",
                )
            self._made = not self.directory.exists()
            create_directory(self.directory)
            Recording._active = self
            stack.callback(setattr, Recording, "_active", outer)
            stack.enter_context(self._inductor)
            self._compiled_s = compile_seconds()
            if (
                self.workload.source != "model" or self.workload.data is not None
            ):  # others have their data already
                stack.enter_context(self.loading)
            self._facts = RunFile(
                created=timestamp(),
                workload=self.workload,
                environment=self._device.environment(),
                settings=self._settings,
            )
            try:
                save(self.place, self._facts)
                self._device.synchronize()
                self.passes.begin(held=profilers.active)
            except BaseException:
                self.passes.stop()
                raise
            self._open = stack.pop_all()
        return self

    def loader(self, iterable: Iterable[Any], *, again: bool = True) -> WatchedLoader:
        """``iterable`` so that waiting for its batches is seen; torch's ``DataLoader`` is seen without.

        After the recording it is iterated once more, for two seconds, to measure it alone, unless it is an
        iterator or ``again`` is False: iterating it would take the program's data.
        """
        return WatchedLoader(self.loading, iterable, again=again)

    def step(self) -> None:
        """Mark the end of a step."""
        self.passes.tell("step")
        if self._report is not None:
            self._report.step()

    def pause(self) -> None:
        """The program evaluates its model, or does something else not part of any step."""
        self.passes.tell("pause")

    def resume(self) -> None:
        """The next step begins."""
        self.passes.tell("resume")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if os.getpid() != self._owner:  # a child that the program forked has nothing to record
            return
        status: Status = "complete"
        if kind is not None:
            status = "interrupted" if issubclass(kind, (KeyboardInterrupt, Interrupted)) else "failed"
        passes = self.passes
        try:
            early = status == "complete" and not self.done
            try:
                passes.finish()
            except (RuntimeError, OSError, RooflinesError) as problem:
                if status == "complete":
                    raise
                self.notes.append(f"while ending the run: {first_line(problem)}")
            nothing = error is not None and not passes.steps and passes.kept.steps is None
            if nothing and (isinstance(error, WorkloadError) or self.workload.source == "script"):
                # Leave nothing behind: the same command can be given again with another input.
                discard(self.place, JOURNAL_FILE, STEPS_FILE, RUN_FILE, made=self._made)
                return
            if early and not passes.traced_enough:
                self.notes.append(self._ended_early())
            interrupt = None
            if status == "complete" and self.workload.source == "loop":
                try:
                    self.loading.run_loader_alone()
                except (
                    KeyboardInterrupt
                ) as ctrl_c:  # for the caller, once the run, to which it makes no difference, is on disk
                    interrupt = ctrl_c
            self.loading.finish()
            if self.workload.batch_size is None:
                self.workload = msgspec.structs.replace(
                    self.workload, batch_size=self.loading.samples_of_every_step
                )
            self._facts = msgspec.structs.replace(
                self._so_far(),
                status=status,
                noted_calls=self._noted_calls,
                step_memory=self._step_memory,
                compiled_code=self._write_compiled(),
                generation_sizes=self.sizes(),
                compile_s=(compile_seconds() - self._compiled_s) or None,
                counters=passes.counters,
                fields=passes.fields,
                error=None if error is None else str(error) or type(error).__name__,
            )
            self._save(status)
            if interrupt is not None:
                raise interrupt
        finally:
            self._open.close()

    def _so_far(self) -> RunFile:
        """What is known of the run at this moment."""
        passes, environment = self.passes, self._facts.environment
        if environment.device != str(self._device):
            environment = self._device.environment()
            self._facts = msgspec.structs.replace(self._facts, environment=environment)
        return msgspec.structs.replace(
            self._facts,
            workload=self.workload,
            steps=passes.times(),
            trace=passes.kept.steps,
            line_trace=passes.kept.of_lines,
            lines=passes.kept.lines,
            peak_memory_bytes=passes.peak_bytes,
            peak_memory_kind=passes.peak_kind,
            parameter_elements=passes.kept.traced.parameter_elements,
            other_processes=passes.other_processes,
            tf32=passes.tf32,
            loading=self.loading.seen if self.loading.seen.loader else None,
            loss_finite=self.loss_finite,
            notes=tuple(self.notes),
            unrecorded=tuple(self.unrecorded),
        )

    def _save_so_far(self) -> None:
        """What a process that is killed leaves behind. The final record is what must be written, so a failure
        waits for that."""
        with contextlib.suppress(OutputError):
            self._write(self._so_far())

    def _write(self, facts: RunFile, samples: tuple[DeviceSample, ...] = ()) -> Run:
        self.place.mkdir(parents=True, exist_ok=True)
        return save(self.place, facts, samples)

    def _write_compiled(self) -> str | None:
        """Write down what was compiled; returns the file's name."""
        code = self._inductor.code(self.passes.module_names)
        if code is None:
            return None
        try:
            return write_compiled(code, self.place)
        except OSError as error:
            self.notes.append(f"compiled.json could not be written: {error.strerror or error}")
            return None

    def _save(self, status: Status) -> None:
        try:
            run = self._write(self._facts, self.passes.samples)
            for name in (JOURNAL_FILE, STEPS_FILE):
                (self.place / name).unlink(missing_ok=True)
        except (OutputError, ImportError, MemoryError) as problem:
            if status == "complete":
                raise
            # What went wrong first is what the caller must hear of; where memory ran out the samples' library
            # may not even load.
            note = f"device samples could not be converted and stay in {JOURNAL_FILE}: {problem}"
            try:
                run = self._write(msgspec.structs.replace(self._facts, notes=(*self._facts.notes, note)))
            except OutputError:
                return
        # The shorter path, where it still leads there.
        self.run = (
            msgspec.structs.replace(run, directory=self.directory) if os.getcwd() == self._began_in else run
        )

    # --- once more, unmeasured ----------------------------------------------------------------------------

    def note_arguments(self, step: Step) -> None:
        """Run ``step`` once more, unmeasured, to record arguments that the trace leaves out."""
        if self.passes.kept.steps is None or not self.passes.kept.traced.lack_arguments:
            return
        from rooflines.profiler.calls.recorder import record_lossy_calls

        self._progress.stage("recording arguments that are missing in traces", 1)
        try:
            self._noted_calls = record_lossy_calls(step)
        except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
            # A tensor subclass or an operator that no dispatch mode may see: the run is whole without.
            self.notes.append(
                f"arguments that are missing in traces could not be recorded: {first_line(error)}"
            )
        self._progress.advance()

    def follow_memory(self, step: Step) -> None:
        """Follow the memory of ``step`` on fake tensors, unmeasured: what fills it at the peak. Not known
        where they cannot run it."""
        from rooflines.profiler.calls.fakes import fake_tensors
        from rooflines.profiler.calls.memory import record_with_memory

        self._progress.stage("tracking memory", 1)
        try:
            self._step_memory = record_with_memory(step, fake_tensors()).memory
        except Exception as error:
            self.notes.append(f"peak memory could not be attributed: {first_line(error)}")
        self._progress.advance()

    # --- the end ------------------------------------------------------------------------------------------

    def _ended_early(self) -> str:
        times = self.passes.times()
        taken = (
            f"{counted(len(times.warmup_ns), 'warm-up step')}, {len(times.timed_ns)} timed, "
            f"{len(times.traced_ns)} traced"
        )
        whose = {
            "program": "operators are those of the whole program, including start-up",
            "early": "operators are those of one step before the timed steps",
            "steps": "operators are those of fewer steps than planned",
        }[times.traced]
        return (
            f"the program ended early ({taken}): {whose if times.traced_ns else 'no operators were traced'}."
        )


def collect(step: Step, recording: Recording) -> Run:
    """Run ``step`` as often as ``recording`` needs and return the run.

    Raises WorkloadError when ``step`` raises (with its exception as ``__cause__``), OutOfMemoryError when the
    device or the host ran out of memory (what was asked, what was free) and Interrupted on Ctrl-C. In all
    three the partial run is on disk.
    """
    workload = recording.workload
    stepping, trains = False, workload.source == "model" and workload.mode == "training"
    try:
        with recording:
            first: Any = None
            loss: Any = None
            while not recording.done:
                stepping = True
                loss = step()
                if not trains:
                    loss = None  # an output that is kept would take memory in the next step
                first = loss if first is None else first
                stepping = False
                recording.step()
            if trains:
                losses = (("first", first), ("last", loss))
                wrong = [name for name, value in losses if not value.isfinite().all()]
                recording.loss_finite = not wrong
                if wrong:
                    recording.notes.append(
                        f"the loss of the {wrong[0]} step is not finite; {FINDS_THE_OPERATOR}"
                    )
            if (
                workload.source == "model"
                and not workload.compiled
                and not workload.cuda_graph
                and workload.data is None
            ):
                recording.note_arguments(step)
                if recording.passes.traced_steps:
                    recording.follow_memory(step)
            if workload.source == "step" or workload.data is not None:
                try:
                    while recording.loading.resident_step():
                        step()
                except Exception as error:
                    recording.loading.end_resident_steps(error)
                recording.loading.run_loader_alone()
    except KeyboardInterrupt:
        raise interrupted(recording.directory) from None
    except RooflinesError:
        raise  # as it is, with its own cause
    except Exception as error:
        # What a step does to a GPU goes wrong later than the step itself: wherever something next waits for
        # the GPU. torch raises AcceleratorError then, in older versions RuntimeError.
        if stepping or (
            isinstance(error, RuntimeError) and re.match(r"(CUDA|HIP)( driver)? error", str(error))
        ):
            raise user_error(error, workload.name, recording) from error
        raise
    assert recording.run is not None
    return recording.run


def interrupted(directory: Path) -> Interrupted:
    """Our error for Ctrl-C while a run was being recorded into ``directory``."""
    return Interrupted(
        f"interrupted; the partial run is in {str(directory)!r}.",
        hint=f"See what was recorded: rooflines analyze {directory}",
    )


def user_error(error: BaseException, what: str, recording: Recording) -> RooflinesError:
    """Our error for one of the user's code in ``recording``; ``what`` raised it."""
    kept = f"The recording so far is in {str(recording.directory)!r}."
    shortage = memory_shortage(error, recording.workload, recording.device)
    if shortage is not None:
        shortage.marked_hint += f" {kept}"
        return shortage
    message = str(error).strip().partition("\n")[0]
    return WorkloadError(f"{what} raised {type(error).__name__}: {message}".rstrip(": "), hint=kept)
