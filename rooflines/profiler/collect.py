"""Recording a run: warm-up until step times settle, a timed pass with the profiler off, a short traced pass.

``Recording`` is a state machine that is told when a step ends. A model, a loop that the user owns and a script all drive the same
one; they differ only in who calls ``step()``.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.errors import Interrupted, OutputError, RooflinesError, UsageError, WorkloadError
from rooflines.profiler.compiled import write_compiled
from rooflines.profiler.environment import collect_environment
from rooflines.profiler.inductor import InductorWatch
from rooflines.profiler.loader import LoaderWatch, Waited, WatchedLoader, may_begin_anew, run_alone
from rooflines.profiler.memory_shortage import memory_shortage
from rooflines.profiler.noted import NotedCall, leaves_out, note
from rooflines.profiler.peak_memory import PeakMemory, page_faults, since
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import (
    Counter,
    DeviceSample,
    LoaderAlone,
    Loading,
    Run,
    RunFile,
    Settings,
    Status,
    StepMemory,
    StepTimes,
    Workload,
)
from rooflines.profiler.run import JOURNAL_FILE, RUN_FILE, create_directory, file_stem, save
from rooflines.profiler.samplers.mps import MpsSampler
from rooflines.profiler.samplers.process import SamplerProcess, gpus_in_use, torch_gpus
from rooflines.profiler.tf32 import tf32_state
from rooflines.profiler.tracer import Tracer
from rooflines.units import binary_bytes, percent

if TYPE_CHECKING:
    import torch

Stage = Literal["warm-up", "timed", "traced", "done"]

# Warm-up ends when the medians of the last SETTLE_WINDOW steps and of as many before them differ by less than SETTLE_LIMIT.
SETTLE_WINDOW = 3
SETTLE_LIMIT = 0.05
WARMUP_MAX_STEPS = 50
WARMUP_MAX_S = 30.0
# The timed pass aims at this many seconds, within these numbers of steps.
TIMED_S = 5.0
TIMED_MIN_STEPS, TIMED_MAX_STEPS = 5, 100
TIMED_LEAST_STEPS = 3  # of steps so long that five of them would take longer than the whole warm-up may
# The traced pass: this many steps, fewer when their trace would be larger than the limit (uncompressed JSON).
TRACED_STEPS = 3
TRACE_LIMIT_BYTES = 200_000_000
# The loader alone runs for this long.
ALONE_S = 2.0
# The pass on resident data: about this many seconds, within these numbers of steps.
RESIDENT_S = 1.0
RESIDENT_MIN_STEPS, RESIDENT_MAX_STEPS = 4, 51  # the first one, which follows the profiler, is not kept


def quiet_profiler() -> None:
    """Keep Kineto's and torch's own start-up lines off the terminal; must run before torch is imported to take effect."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


class Recording:
    """A run being recorded into ``directory``: call ``step()`` after every step until ``done``.

    Use it as a context manager; leaving it, however it is left, writes a loadable run, except where an input was refused before the
    first step ended: then there is nothing to keep and the directory is removed. ``settings`` may fix the number of timed and warm-up
    steps; None lets the step times decide. ``workload`` may be corrected while recording; ``run`` is set when the context is left.
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
        self._times: dict[str, list[int]] = {"warm-up": [], "timed": [], "traced": []}
        self._settled: bool | None = None
        self._rule = ""
        self._timed_steps = 0
        self._spans: list[tuple[Any, Any]] = []  # begin and end of every timed step: CUDA events, or perf_counter_ns
        self._begun: Any = None
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
        self._watch = LoaderWatch()
        self._waited: dict[str, list[Waited]] = {"timed": [], "traced": []}
        self._loading = Loading()
        self._workers_cpu_s = 0.0
        self._resident_until = 0
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
                self._watch.__enter__()
            self._facts = RunFile(
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                workload=self.workload,
                environment=collect_environment(str(self._device)),
                settings=self._settings,
            )
            save(self.directory, self._facts)
            self._progress.stage("warming up", self._settings.warmup)
            if self._settings.warmup == 0:
                self._rule = "no warm-up, as asked"
                self._begin_timed()
            self._synchronise()
        except BaseException:
            Recording._active = None
            self._inductor.__exit__()
            self._watch.__exit__()
            self._stop_sampler()
            raise
        self._last = time.perf_counter_ns()
        return self

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
            if isinstance(error, WorkloadError) and not any(self._times.values()) and not self._spans:
                self._forget()
                return
            if status == "complete" and not self.done:
                self._notes.append(self._ended_early())
            self._finish(status)
            interrupt = self._at_end_of_loop() if status == "complete" and self.workload.source == "loop" else None
            self._label_batch()
            self._facts = msgspec.structs.replace(
                self._facts,
                status=status,
                workload=self.workload,
                steps=StepTimes(
                    warmup_ns=tuple(self._times["warm-up"]),
                    timed_ns=tuple(self._times["timed"]),
                    traced_ns=tuple(self._times["traced"]),
                    settled=self._settled,
                    rule=self._rule,
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
                loading=self._loading if self._loading.loader else None,
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
            self._watch.__exit__()

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
        self._synchronise()
        now = time.perf_counter_ns()
        times = self._times["warm-up"]
        times.append(now - self._last)
        self._last = now
        self._progress.advance()
        if self._warm():
            self._begin_timed()

    def _warm(self) -> bool:
        times = self._times["warm-up"]
        if self._settings.warmup is not None:
            self._rule = f"{_counted(self._settings.warmup, 'warm-up step')}, as asked"
            return len(times) >= self._settings.warmup
        compared = f"fewer than {2 * SETTLE_WINDOW} of them, too few to compare"
        if len(times) >= 2 * SETTLE_WINDOW:
            last = statistics.median(times[-SETTLE_WINDOW:])
            before = statistics.median(times[-2 * SETTLE_WINDOW : -SETTLE_WINDOW])
            change = abs(last - before) / before if before else 0.0
            compared = f"medians of the last {SETTLE_WINDOW} steps and the {SETTLE_WINDOW} before differ by {percent(change, 1)}"
            if change < SETTLE_LIMIT:
                self._settled = True
                self._rule = f"settled after {len(times)} warm-up steps: {compared} (limit {percent(SETTLE_LIMIT)})"
                return True
        if len(times) >= WARMUP_MAX_STEPS or sum(times) >= WARMUP_MAX_S * 1e9:
            self._settled = False
            self._rule = f"not settled after {_counted(len(times), 'warm-up step')}: {compared} (limit {percent(SETTLE_LIMIT)})"
            self._notes.append(f"step times had not settled when timing began: {compared}")
            return True
        return False

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
        self._synchronise()
        self._watch.forget()
        self._workers_cpu_s = self._watch.workers_cpu_s()
        self._faults = page_faults()
        self._timed_began_ns = time.time_ns()
        self._begun = self._mark()

    def _enough_steps(self) -> int:
        recent = self._times["warm-up"][-SETTLE_WINDOW:]
        if not recent:
            return TIMED_MIN_STEPS
        step_s = max(statistics.median(recent), 1) / 1e9
        least = TIMED_MIN_STEPS if step_s * TIMED_MIN_STEPS <= WARMUP_MAX_S else TIMED_LEAST_STEPS
        return max(least, min(TIMED_MAX_STEPS, round(TIMED_S / step_s)))

    def _after_timed_step(self) -> None:
        if self._device.type == "mps":
            self._synchronise()
        ended = self._mark()
        self._spans.append((self._begun, ended))
        self._waited["timed"].append(self._watch.take())
        self._progress.advance()
        if self._mps is not None:
            self._mps.note()
        # On the host, what the progress bar costs is not part of the next step; on CUDA the next step follows the last in the stream.
        self._begun = ended if self._device.type == "cuda" else self._mark()
        if len(self._spans) >= self._timed_steps:
            self._end_timed()
            self._begin_traced()

    def _mark(self) -> Any:
        """A point in time on the device's own clock: steps are not synchronised one by one on CUDA, as in real use."""
        if self._device.type == "cuda":
            import torch

            event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.perf_counter_ns()

    def _end_timed(self) -> None:
        if self._device.type == "cuda":
            self._synchronise()
        self._times["timed"] = self._durations_ns(self._spans)
        self._spans = []
        self._loading = self._seen_loading()
        self._page_faults["timed"] = since(self._faults)
        self._peak_bytes = self._peak.bytes()
        self._stop_sampler()

    def _durations_ns(self, spans: list[tuple[Any, Any]]) -> list[int]:
        if self._device.type == "cuda":
            return [round(begun.elapsed_time(ended) * 1e6) for begun, ended in spans]
        return [ended - begun for begun, ended in spans]

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
        # What the program does with a batch after its step is its own business: it is held only while it may be asked for again.
        self._watch.keep = self._watch.tracing = True
        self._tracer = Tracer(self._device, steps=1, probe=True)
        self._tracer.start()

    def _after_traced_step(self) -> None:
        tracer = self._tracer
        assert tracer is not None
        self._synchronise()
        waited = self._watch.take()
        if not tracer.probe:
            self._waited["traced"].append(waited)
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
            self._watch.keep = self._watch.tracing = False
            self.stage = "done"
            return
        steps = max(1, min(self._planned_trace_steps, TRACE_LIMIT_BYTES // max(size, 1)))
        if steps < self._planned_trace_steps:
            self._notes.append(
                f"traced {_counted(steps, 'step')} instead of {self._planned_trace_steps}: one step makes {binary_bytes(size)} of "
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
        self._times["traced"] = tracer.times_ns
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

    # --- data loading ----------------------------------------------------------------------------------------------------------

    def loader(self, iterable: Iterable[Any], *, again: bool = True) -> WatchedLoader:
        """``iterable`` so that waiting for its batches is seen; torch's ``DataLoader`` is seen without.

        After the recording it is iterated once more, for two seconds, to measure it alone, unless it is an iterator or ``again`` is
        False: iterating it would take the program's data.
        """
        return self._watch.wrap(iterable, again=again)

    @property
    def is_loading(self) -> bool:
        """Whether the program is in a data loader just now: what it runs there is no step."""
        return self._watch.is_loading

    @property
    def on_resident_data(self) -> bool:
        """Whether the step now running was given its last batch again."""
        return self._watch.resident

    def resident_step(self) -> bool:
        """To be called after a step of a program that ends with its recording: whether to make one more, on the batch that is there.

        Such steps tell what the program reaches when it does not wait for its data. False where no batch was seen, and when there are
        enough of them.
        """
        if not self.on_resident_data:
            if self._loading.resident_ns or not self._loading.loader or not self._watch.has_batch or _has_peers():
                return False
            self._progress.stage("timing the step on resident data", None)
            self._watch.resident = True
            self._synchronise()
        else:
            if self._device.type == "mps":
                self._synchronise()
            self._spans.append((self._begun, self._mark()))
        self._resident_until = self._resident_until or time.perf_counter_ns() + round(RESIDENT_S * 1e9)
        count = len(self._spans)
        if count < RESIDENT_MIN_STEPS or (count < RESIDENT_MAX_STEPS and time.perf_counter_ns() < self._resident_until):
            self._begun = self._mark()
            return True
        self.end_resident_steps()
        return False

    def end_resident_steps(self, error: Exception | None = None) -> None:
        """Keep what was measured on resident data; nothing where it made the program raise ``error``."""
        spans, self._spans = self._spans, []
        self._watch.resident = False
        if error is not None:
            reason = str(error).partition("\n")[0] or type(error).__name__
            self._notes.append(f"the step could not be run on its last batch again: {reason}")
            return
        self._synchronise()
        self._loading = msgspec.structs.replace(self._loading, resident_ns=tuple(self._durations_ns(spans[1:])))

    def run_loader_alone(self, *, ends: bool = False) -> None:
        """Iterate the loader that was waited for longest for two seconds, unless that would take data from the program it belongs to.

        ``ends`` says that the program will not go on afterwards, and so has no use for its data.
        """
        source = self._watch.longest
        if source is None or source.loader is None or not self._loading.loader or source.again is False:
            return
        if not ends and not may_begin_anew(source):
            return
        self._progress.stage("running the data loader alone", None)
        alone: LoaderAlone | None = None
        try:
            with self._watch.looking_away():
                alone = run_alone(source, limit_s=ALONE_S)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            self._notes.append(f"the data loader could not be run alone: {reason}")
        self._loading = msgspec.structs.replace(self._loading, alone=alone)

    def _at_end_of_loop(self) -> KeyboardInterrupt | None:
        """Run the loader alone. Ctrl-C meanwhile is for the caller, once the run, to which it makes no difference, is on disk."""
        try:
            self.run_loader_alone()
        except KeyboardInterrupt as interrupt:
            return interrupt
        return None

    def _seen_loading(self) -> Loading:
        """What the timed pass saw of data loading; without a name where it saw none."""
        source, waited = self._watch.longest, self._waited["timed"]
        if source is None:
            return Loading()
        samples = [one.samples for one in waited]
        return Loading(
            loader=source.name,
            timed_wait_ns=tuple(one.wait_ns for one in waited),
            timed_batches=tuple(one.batches for one in waited),
            timed_samples=tuple(count for count in samples if count is not None) if None not in samples else (),
            workers=source.workers,
            prefetched=source.prefetched,
            batch_size=source.batch_size,
            pin_memory=source.pin_memory,
            workers_cpu_s=self._watch.workers_cpu_s() - self._workers_cpu_s if source.workers else None,
        )

    def _label_batch(self) -> None:
        """Complete what was seen of data loading; every timed step with as many samples says the batch size where nobody did."""
        if not self._loading.loader:
            return
        self._loading = msgspec.structs.replace(self._loading, traced_wait_ns=tuple(one.wait_ns for one in self._waited["traced"]))
        sizes = set(self._loading.timed_samples)
        if self.workload.batch_size is None and len(sizes) == 1 and sizes != {0}:
            self.workload = msgspec.structs.replace(self.workload, batch_size=sizes.pop())

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
        timed = len(self._spans) or len(self._times["timed"])
        traced = len(self._tracer.times_ns) if self._tracer is not None and self._tracer.times_ns else len(self._times["traced"])
        taken = f"{_counted(len(self._times['warm-up']), 'warm-up step')}, {timed} timed, {traced} traced"
        if traced:
            return f"the steps ended in the traced pass ({taken}): its operators are those of fewer steps than planned."
        return (
            f"the steps ended in the {self.stage} pass ({taken}): no operators were traced. "
            "Ask for fewer warm-up and timed steps, or run more."
        )

    def _synchronise(self) -> None:
        synchronise(self._device)


def _has_peers() -> bool:
    """Whether other ranks make the same steps: one that makes more of them than the others waits for them forever."""
    import torch.distributed as ranks

    return ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished everything it was given."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
        while recording.resident_step():
            step()
    except Exception as error:
        recording.end_resident_steps(error)
    recording.run_loader_alone()


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
