"""Recording a run: warm-up until step times settle, a timed pass with the profiler off, a short traced pass.

``Recording`` is a state machine that is told when a step ends. A model, a loop that the user owns and a script all drive the same
one; they differ only in who calls ``step()``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.errors import Interrupted, OutputError, RooflinesError, UsageError, WorkloadError
from rooflines.profiler.compiled import write_compiled
from rooflines.profiler.data_loading import DataLoading
from rooflines.profiler.directory import JOURNAL_FILE, create_directory, file_stem
from rooflines.profiler.environment import collect_environment
from rooflines.profiler.inductor import InductorWatch
from rooflines.profiler.loader import WatchedLoader
from rooflines.profiler.memory_shortage import memory_shortage
from rooflines.profiler.noted import NotedCall, leaves_out, note
from rooflines.profiler.peak_memory import PeakMemory, page_faults, since
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import (
    Counter,
    DeviceSample,
    Run,
    RunFile,
    Settings,
    Status,
    StepMemory,
    StepTimes,
    Workload,
)
from rooflines.profiler.run import RUN_FILE, save
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.mps import MpsSampler
from rooflines.profiler.samplers.process import SamplerProcess, gpus_in_use, torch_gpus
from rooflines.profiler.step_clock import StepClock, synchronise
from rooflines.profiler.tf32 import tf32_state
from rooflines.profiler.tracer import Tracer
from rooflines.profiler.warmup import WARMUP_MAX_S, WarmUp
from rooflines.units import binary_bytes, counted

if TYPE_CHECKING:
    import torch

Stage = Literal["warm-up", "timed", "traced", "done"]

# The timed pass aims at this many seconds, within these numbers of steps.
TIMED_S = 5.0
TIMED_MIN_STEPS, TIMED_MAX_STEPS = 5, 100
TIMED_LEAST_STEPS = 3  # of steps so long that five of them would take longer than the whole warm-up may
# The traced pass: this many steps, fewer when their trace would be larger than the limit (uncompressed JSON).
TRACED_STEPS = 3
TRACE_LIMIT_BYTES = 200_000_000


def quiet_profiler() -> None:
    """Keep Kineto's and torch's own start-up lines off the terminal; must run before torch is imported to take effect."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


class Recording:
    """A run being recorded into ``directory``: call ``step()`` after every step until ``done``.

    Use it as a context manager; leaving it, however it is left, writes a loadable run, except where an input was refused before the
    first step ended: then there is nothing to keep and the directory is removed. ``settings`` may fix the number of timed and warm-up
    steps; None lets the step times decide. ``workload`` may be corrected while recording; ``run`` is set when the context is left.
    ``loading`` is what is seen of the program's data, and what asks its loader and its step for more once the rest is recorded.
    Entering raises UsageError while another recording or somebody else's torch profiler is on: each would be in the other's times.
    """

    _active: Recording | None = None

    def __init__(
        self,
        directory: Path,
        workload: Workload,
        device: torch.device,
        *,
        settings: Settings | None = None,
        traced_steps: int = TRACED_STEPS,
        progress: Progress | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.stage: Stage = "warm-up"
        self.run: Run | None = None
        self.workload = workload
        self._device = device
        self._settings = settings or Settings()
        self._planned_trace_steps = traced_steps
        self._progress = progress or Silent()
        self._notes = list(notes)
        self._warmup = WarmUp(self._settings.warmup)
        self._timed_ns: list[int] = []
        self._traced_ns: list[int] = []
        self._timed_steps = 0
        self._clock = StepClock(device)
        self._faults: int | None = None
        self._page_faults: dict[str, int | None] = {}
        self._peak = PeakMemory(device)
        self._peak_bytes: int | None = None
        self._sampler: SamplerProcess | None = None
        self._mps = MpsSampler() if device.type == "mps" else None
        self._samples: tuple[DeviceSample, ...] = ()
        self._counters: tuple[Counter, ...] = ()
        self._timed_began_ns: int | None = None
        self._tracer: Tracer | None = None
        self._trace_name: str | None = None
        self._parameter_elements: int | None = None
        self._noted_calls: tuple[NotedCall, ...] = ()
        self._step_memory: StepMemory | None = None
        self._inductor = InductorWatch()
        self._compiled_graphs = 0
        self._module_names: dict[int, str] = {}
        self._tf32: dict[str, bool] | None = None
        self.loading = DataLoading(device, self._progress, self._notes)
        self._last = 0

    @property
    def done(self) -> bool:
        """Whether everything has been recorded; further steps are neither timed nor traced."""
        return self.stage == "done"

    def __enter__(self) -> Recording:
        import torch

        if Recording._active is not None:
            raise UsageError(
                f"a run is already being recorded into {str(Recording._active.directory)!r}.", hint="End it before starting another."
            )
        if torch._C._autograd._profiler_enabled():
            raise UsageError(
                "a torch profiler is already on: its cost would be in the step times.", hint="Stop it first; rooflines starts its own."
            )
        self._made = not self.directory.exists()
        create_directory(self.directory)
        Recording._active = self
        try:
            self._inductor.__enter__()
            if self.workload.source != "model":  # what we run ourselves has its data already
                self.loading.__enter__()
            self._facts = RunFile(
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                workload=self.workload,
                environment=collect_environment(str(self._device)),
                settings=self._settings,
            )
            save(self.directory, self._facts)
            self._progress.stage("warming up", self._settings.warmup)
            if self._settings.warmup == 0:
                self._begin_timed()
            synchronise(self._device)
        except BaseException:
            Recording._active = None
            self._inductor.__exit__()
            self.loading.__exit__()
            self._stop_sampler()
            raise
        self._last = time.perf_counter_ns()
        return self

    def loader(self, iterable: Iterable[Any], *, again: bool = True) -> WatchedLoader:
        """``iterable`` so that waiting for its batches is seen (``DataLoading.loader``); torch's ``DataLoader`` is seen without."""
        return self.loading.loader(iterable, again=again)

    def step(self) -> None:
        """Mark the end of a step."""
        if self.stage == "warm-up":
            self._after_warmup_step()
        elif self.stage == "timed":
            self._after_timed_step()
        elif self.stage == "traced":
            self._after_traced_step()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        status: Status = "complete"
        if kind is not None:
            status = "interrupted" if issubclass(kind, (KeyboardInterrupt, Interrupted)) else "failed"
        try:
            if isinstance(error, WorkloadError) and not (self._warmup.times_ns or self._timed_ns or self._clock):
                self._forget()
                return
            if status == "complete" and not self.done:
                self._notes.append(self._ended_early())
            self._finish(status)
            interrupt = self._at_end_of_loop() if status == "complete" and self.workload.source == "loop" else None
            self.loading.finish()
            if self.workload.batch_size is None:
                self.workload = msgspec.structs.replace(self.workload, batch_size=self.loading.samples_of_every_step)
            self._facts = msgspec.structs.replace(
                self._facts,
                status=status,
                workload=self.workload,
                steps=StepTimes(
                    warmup_ns=tuple(self._warmup.times_ns),
                    timed_ns=tuple(self._timed_ns),
                    traced_ns=tuple(self._traced_ns),
                    settled=self._warmup.settled,
                    rule=self._warmup.rule,
                    clock="cuda events" if self._device.type == "cuda" else "perf_counter",
                    timed_page_faults=self._page_faults.get("timed"),
                    traced_page_faults=self._page_faults.get("traced"),
                    timed_began_ns=self._timed_began_ns,
                ),
                trace=self._trace_name,
                peak_memory_bytes=self._peak_bytes,
                parameter_elements=self._parameter_elements,
                noted_calls=self._noted_calls,
                step_memory=self._step_memory,
                compiled_code=self._write_compiled(),
                tf32=self._tf32,
                counters=self._counters,
                peak_memory_kind=self._peak.kind if self._peak_bytes is not None else None,
                loading=self.loading.seen if self.loading.seen.loader else None,
                notes=tuple(self._notes),
                error=None if error is None else str(error) or type(error).__name__,
            )
            self._save(status)
            if interrupt is not None:
                raise interrupt
        finally:
            self.stage = "done"
            Recording._active = None
            self._inductor.__exit__()
            self.loading.__exit__()

    def _write_compiled(self) -> str | None:
        """Write down what was compiled; returns the file's name."""
        code = self._inductor.code(self._module_names)
        if code is None:
            return None
        try:
            return write_compiled(code, self.directory)
        except OSError as error:
            self._notes.append(f"what was compiled could not be written: {error.strerror or error}")
            return None

    def _save(self, status: Status) -> None:
        try:
            self.run = save(self.directory, self._facts, self._samples)
            (self.directory / JOURNAL_FILE).unlink(missing_ok=True)
        except (OutputError, ImportError, MemoryError) as problem:
            if status == "complete":
                raise
            # What went wrong first is what the caller must hear of; where memory ran out the samples' library may not even load.
            self._facts = msgspec.structs.replace(
                self._facts,
                notes=(*self._facts.notes, f"device samples could not be made a table, they stay in {JOURNAL_FILE}: {problem}"),
            )
            with contextlib.suppress(OutputError):
                self.run = save(self.directory, self._facts)

    def _forget(self) -> None:
        """Leave nothing behind: the same command can be given again with another input."""
        self._stop_sampler()
        (self.directory / JOURNAL_FILE).unlink(missing_ok=True)
        (self.directory / RUN_FILE).unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):  # somebody put something there
                self.directory.rmdir()

    # --- warm-up ---------------------------------------------------------------------------------------------------------------

    def _after_warmup_step(self) -> None:
        synchronise(self._device)
        now = time.perf_counter_ns()
        step_ns, self._last = now - self._last, now
        self._progress.advance()
        if self._warmup.over_after(step_ns):
            if self._warmup.problem:
                self._notes.append(self._warmup.problem)
            self._begin_timed()

    # --- timed pass ------------------------------------------------------------------------------------------------------------

    def _begin_timed(self) -> None:
        self.stage = "timed"
        self._timed_steps = self._settings.steps or self._enough_steps()
        self._progress.stage("timing, profiler off", self._timed_steps)
        gpus = torch_gpus(*gpus_in_use(self._device)) if self._device.type == "cuda" else {}
        # Steps on a GPU keep one thread of the host busy, and leave cores for the sampler.
        sparing = self._device.type == "cpu"
        self._sampler = SamplerProcess(os.getpid(), self.directory / JOURNAL_FILE, gpus=gpus, sparing=sparing)
        self._sampler.start()
        self._peak.start()
        synchronise(self._device)
        self.loading.begin_timed()
        self._faults = page_faults()
        self._timed_began_ns = now_ns()
        self._clock.begin()

    def _enough_steps(self) -> int:
        step_s = self._warmup.step_s
        if step_s is None:
            return TIMED_MIN_STEPS
        least = TIMED_MIN_STEPS if step_s * TIMED_MIN_STEPS <= WARMUP_MAX_S else TIMED_LEAST_STEPS
        return max(least, min(TIMED_MAX_STEPS, round(TIMED_S / step_s)))

    def _after_timed_step(self) -> None:
        self._clock.end()
        self.loading.after_timed_step()
        self._progress.advance()
        if self._mps is not None:
            self._mps.note()
        self._clock.go_on()
        if len(self._clock) >= self._timed_steps:
            self._end_timed()
            self._begin_traced()

    def _end_timed(self) -> None:
        self._timed_ns = self._clock.take_ns()
        self.loading.end_timed()
        self._page_faults["timed"] = since(self._faults)
        self._peak_bytes = self._peak.bytes()
        self._stop_sampler()

    def _stop_sampler(self) -> None:
        if self._sampler is None:
            return
        sampler, self._sampler = self._sampler, None
        sampler.stop()
        taken_here = self._mps.noted if self._mps is not None else ()
        self._samples = tuple(sorted((*sampler.samples(), *taken_here), key=lambda sample: sample.time_ns))
        self._counters = sampler.counters()
        if sampler.problem:
            self._notes.append(f"device samples: {sampler.problem}")
        peaks = [s.process_rss_bytes for s in self._samples if s.process_rss_bytes is not None]
        if self._peak_bytes is None and self._device.type != "cuda" and peaks:
            self._peak_bytes = max(peaks)

    # --- traced pass -----------------------------------------------------------------------------------------------------------

    def _begin_traced(self) -> None:
        self.stage = "traced"
        if self._planned_trace_steps < 1:
            self.stage = "done"
            return
        self._progress.stage("tracing one step to see how large a trace is", None)
        self._compiled_graphs = self._inductor.graphs
        self.loading.begin_traced()
        self._tracer = Tracer(self._device, steps=1, probe=True)
        self._tracer.start()

    def _after_traced_step(self) -> None:
        tracer = self._tracer
        assert tracer is not None
        synchronise(self._device)
        self.loading.after_traced_step(probe=tracer.probe)
        finished = tracer.step()
        self._progress.advance()
        if not finished:
            return
        size = self._keep_trace(tracer)
        compiled, before = self._inductor.graphs, self._compiled_graphs
        self._compiled_graphs = compiled
        if not tracer.probe:
            if compiled > before:
                self._notes.append("code was compiled while the steps were traced: their times and operators include that")
            self.loading.end_traced()
            self.stage = "done"
            return
        steps = max(1, min(self._planned_trace_steps, TRACE_LIMIT_BYTES // max(size, 1)))
        if steps < self._planned_trace_steps:
            self._notes.append(
                f"traced {counted(steps, 'step')} instead of {self._planned_trace_steps}: one step makes {binary_bytes(size)} of "
                f"trace, the limit is {binary_bytes(TRACE_LIMIT_BYTES)}"
            )
        self._progress.stage("tracing", steps)
        # Some versions of torch compile anew when there are hooks on modules, and the trace would be one of the compiler.
        self._tracer = Tracer(self._device, steps=steps, probe=False, modules=not 0 < before < compiled)
        self._tracer.start()

    def _keep_trace(self, tracer: Tracer) -> int:
        """Write the trace in place of an earlier one; returns its size in bytes, uncompressed."""
        self._tracer = None
        name = f"{file_stem(self.workload.name)}.pt.trace.json.gz"
        size = tracer.write(self.directory / name)
        self._trace_name = name
        self._traced_ns = tracer.times_ns
        self._parameter_elements = tracer.parameter_elements
        self._module_names |= tracer.module_names
        self._tf32 = tf32_state() if self._device.type == "cuda" else None
        self._page_faults["traced"] = tracer.page_faults
        return size

    def note_arguments(self, step: Callable[[], object]) -> None:
        """Where the trace holds operators whose arguments it leaves out, run ``step`` once more, unmeasured, and keep them."""
        if self._trace_name is None or not leaves_out(self.directory / self._trace_name):
            return
        self._progress.stage("noting arguments that traces leave out", 1)
        try:
            self._noted_calls = note(step)
        except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
            # A tensor subclass or an operator that no dispatch mode may see: the run is whole without.
            self._notes.append(f"arguments that traces leave out could not be noted: {str(error).partition(chr(10))[0]}")
        self._progress.advance()

    def follow_memory(self, step: Callable[[], object]) -> None:
        """Follow the memory of ``step`` on fake tensors, unmeasured: what fills it at the peak. Not known where they cannot run it."""
        from rooflines.profiler.fakes import fake_tensors, needs_data
        from rooflines.profiler.memory import record_with_memory

        self._progress.stage("following memory", 1)
        try:
            self._step_memory = record_with_memory(step, fake_tensors()).memory
        except Exception as error:
            if not needs_data(error):
                self._notes.append(f"what fills the memory could not be followed: {str(error).partition(chr(10))[0]}")
        self._progress.advance()

    # --- the end ---------------------------------------------------------------------------------------------------------------

    def _finish(self, status: str) -> None:
        """Stop whatever is running and keep what is whole. Never raises for a second problem while one is being handled."""
        try:
            if self.stage == "timed":
                self._end_timed()
            if self._tracer is not None:
                self._tracer.stop()
                if self._tracer.times_ns:
                    self._keep_trace(self._tracer)
                self._tracer = None
        except (RuntimeError, OSError, RooflinesError) as error:
            if status == "complete":
                raise
            self._notes.append(f"while ending the run: {error}")
        finally:
            self._stop_sampler()

    def _ended_early(self) -> str:
        timed = len(self._clock) or len(self._timed_ns)
        traced = len(self._tracer.times_ns) if self._tracer is not None and self._tracer.times_ns else len(self._traced_ns)
        taken = f"{counted(len(self._warmup.times_ns), 'warm-up step')}, {timed} timed, {traced} traced"
        if traced:
            return f"the steps ended in the traced pass ({taken}): its operators are those of fewer steps than planned."
        return (
            f"the steps ended in the {self.stage} pass ({taken}): no operators were traced. "
            "Ask for fewer warm-up and timed steps, or run more."
        )

    def _at_end_of_loop(self) -> KeyboardInterrupt | None:
        """Run the loader alone. Ctrl-C meanwhile is for the caller, once the run, to which it makes no difference, is on disk."""
        try:
            self.loading.run_loader_alone()
        except KeyboardInterrupt as interrupt:
            return interrupt
        return None


def collect(
    step: Callable[[], object],
    directory: Path,
    workload: Workload,
    device: torch.device,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    notes: tuple[str, ...] = (),
) -> Run:
    """Run ``step`` as often as a recording needs and return the run.

    Raises WorkloadError when ``step`` raises (with its exception as ``__cause__``), OutOfMemoryError when the device or the host ran
    out of memory (what was asked, what was free) and Interrupted on Ctrl-C. In all three the partial run is on disk.
    """
    recording = Recording(directory, workload, device, settings=settings, progress=progress, notes=notes)
    stepping = False
    try:
        with recording:
            while not recording.done:
                stepping = True
                step()
                stepping = False
                recording.step()
            if workload.source == "model" and not workload.compiled:
                recording.note_arguments(step)
                recording.follow_memory(step)
            if workload.source == "step":
                _measure_input(recording, step)
    except KeyboardInterrupt:
        raise interrupted(directory) from None
    except RooflinesError:
        raise  # as it is, with its own cause
    except Exception as error:
        if stepping:
            raise user_error(error, workload.name, recording, device) from error
        raise
    assert recording.run is not None
    return recording.run


def _measure_input(recording: Recording, step: Callable[[], object]) -> None:
    """The step on resident data and its loader alone, where it has one."""
    try:
        while recording.loading.resident_step():
            step()
    except Exception as error:
        recording.loading.end_resident_steps(error)
    recording.loading.run_loader_alone()


def interrupted(directory: Path) -> Interrupted:
    """Our error for Ctrl-C while a run was being recorded into ``directory``."""
    return Interrupted(
        f"interrupted; the partial run is in {str(directory)!r}.", hint=f"rooflines analyze {directory} shows what was recorded."
    )


def user_error(error: Exception, what: str, recording: Recording, device: torch.device) -> RooflinesError:
    """Our error for one of the user's code in ``recording``; ``what`` raised it."""
    kept = f"What was recorded before is in {str(recording.directory)!r}."
    shortage = memory_shortage(error, recording.workload, device)
    if shortage is not None:
        shortage.hint += f" {kept}"
        return shortage
    first = str(error).strip().partition("\n")[0]
    return WorkloadError(f"{what} raised {type(error).__name__}: {first}".rstrip(": "), hint=kept)
