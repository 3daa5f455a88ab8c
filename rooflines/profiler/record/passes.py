"""The passes of a recording, in an order that gives the best report after any number of steps.

How many steps a program makes is known only when it ends. The user's own program (a script, a loop) is
therefore traced from its start to the end of its first step, which is all there is when no second step
follows, and its second step is traced as well. Then come warm-up, the timed pass with the profiler off, the
traced pass, and on a GPU more timed steps. When the program ends early, the report rests on the passes that
had ended. What we run ourselves makes as many steps as we like, and is traced after the timed pass only.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from rooflines.kernels.micro.page_fault import page_s
from rooflines.profiler.compiled.inductor import InductorWatch
from rooflines.profiler.directory import JOURNAL_FILE, STEPS_FILE, add_step
from rooflines.profiler.distributed import Agreement
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.line_marks import LineMarks
from rooflines.profiler.hooks.module_hooks import ModuleRanges, range_cost_ns
from rooflines.profiler.machine.others import OTHERS_CORES, OthersMeter
from rooflines.profiler.progress import Live, LiveProgress, Progress
from rooflines.profiler.record.data_loading import DataLoading, Waited
from rooflines.profiler.record.device import MpsMemory, RecordedDevice, wall_step_ns
from rooflines.profiler.record.kept_traces import KeptTraces
from rooflines.profiler.record.own_profilers import python_profiler
from rooflines.profiler.record.process import HeapReserve, RunQueue, page_faults, since
from rooflines.profiler.record.step_counts import (
    BUSY_MAX_STEPS,
    BUSY_S,
    EARLY_PART,
    IDLE_S,
    PROGRAM_WARMUP_STEPS,
    TIMED_LEAST_STEPS,
    TIMED_MIN_STEPS,
    TIMED_PART,
    TRACED_DILATION,
    WARMUP_MAX_S,
    WARMUP_MAX_STEPS,
    WARMUP_PART,
    Budget,
    Patience,
    WarmUp,
    known,
    planned_steps,
    quiet,
)
from rooflines.profiler.record.tracer import TraceBound, Tracer
from rooflines.profiler.records import WALL_CLOCK, Numbers, Settings, StepTimes, TimedStretch
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.units import binary_bytes, counted, seconds

Stage = Literal["start-up", "early", "warm-up", "timed", "traced", "done"]
# What a program tells: a step has ended; it evaluates its model, and goes on training; it calls a module.
Event = Literal["step", "pause", "resume", "call"]
Plan: TypeAlias = Generator[None, Event | None, None]

# The traced pass: this many steps, from which a comparison knows the noise of an operator
# (benchmarks/compare_noise.py). Fewer where they would take longer than this, and fewer still when their
# trace would be larger than the limit (uncompressed JSON).
TRACED_STEPS, TRACED_MIN_STEPS = 20, 3
TRACED_S = 2.0
TRACE_LIMIT_BYTES = 200_000_000
# Steps that take at most this many pages from the system are traced with a reserve of memory, so that the
# profiler adds none.
_FEW_PAGES = 500
# Steps that together take less are not announced.
_WORTH_SAYING_S = 5.0
# What the program does that is part of no step; and how many of our own steps may go by while it profiles.
_EVALUATING, _PROFILING = "evaluating", "profiling"
_MOST_HELD = 1000


@dataclass(kw_only=True)
class TimedStep:
    """A step that was made with the profiler off."""

    #: Its duration; the clock of a GPU tells it when the pass is over.
    ns: int = 0
    #: When it began (epoch): of steps of the warm-up.
    began_ns: int = 0
    #: When its tokens were ready, if it is one generation.
    tokens: Numbers = ()
    #: How long threads waited for a processor; None where the system does not count it.
    queue_ns: int | None = None
    #: Its waiting for data.
    loaded: Waited = field(default_factory=Waited)
    #: Whether no evaluation cut off its beginning.
    whole: bool = True


@dataclass(kw_only=True, eq=False)
class Passes:
    """Runs the passes of one recording on ``tell``, and holds their results."""

    directory: Path
    trace_name: str
    device: RecordedDevice
    settings: Settings
    #: Whether the program may end after any step.
    early: bool
    loading: DataLoading
    inductor: InductorWatch
    progress: Progress
    #: Sentences for the reader.
    notes: list[str]
    #: Called whenever there is more that a killed process should leave.
    save: Callable[[], None]
    #: Makes the context manager that writes modules into a trace.
    ranges: Callable[[Guard], ModuleRanges] = ModuleRanges
    traced_steps: int = TRACED_STEPS
    #: Printed if the process is killed while steps are timed.
    farewell: str = ""

    #: Token times of steps that generate text, added when they end.
    generations: list[Numbers] = field(default_factory=list)
    module_names: dict[int, str] = field(default_factory=dict)
    samples: tuple[DeviceSample, ...] = ()
    counters: tuple[Counter, ...] = ()
    fields: dict[str, Field] = field(default_factory=dict)
    other_processes: dict[str, float] = field(default_factory=dict)
    tf32: dict[str, bool] | None = None

    def __post_init__(self) -> None:
        # Without warm-up the first step is to be timed, so nothing may be traced before.
        self.early = self.early and self.settings.warmup != 0
        self.lock = (
            threading.RLock()
        )  # held by the thread that tells something: the plan takes one event after another
        self._agreement = Agreement()
        self._guard = Guard(self.notes)  # for what traces show of modules and optimizers
        self._take_clock()
        self._peak = self.device.peak_memory()
        self._mps = MpsMemory() if self.device.type == "mps" else None
        self._sampler: SamplerProcess | None = None
        self._queue = RunQueue()
        self._patience = Patience(self.settings, self._samples_of_steps, program=self.early)
        self._others: OthersMeter | None = None
        self._beside: OthersMeter | None = None
        self._beside_s = 0.0
        self._program: Tracer | None = (
            None  # from the program's start to the end of its first step; kept while there is nothing better
        )
        self._program_cut, self._program_marks = False, LineMarks([])
        self._latest: Tracer | None = None
        self._first_tracer: Tracer | None = (
            None  # of the first and the second step, while they show the device
        )
        self._pauses: set[str] = (
            set()
        )  # what the program does that is part of no step: it evaluates, it profiles
        self._held_ns: list[int] = []  # when steps ended while the program's own profiler was on
        self.served = False
        self.others_work = False  # threads besides the one that makes the steps run PyTorch
        self._begin_again(first=True)

    def _begin_again(self, *, first: bool) -> None:
        """Forget what steps have told so far, to begin with the ``first`` one of the program or with one of
        another kind."""
        self.kept = KeptTraces(directory=self.directory, name=self.trace_name, notes=self.notes)
        self.stage: Stage = "warm-up"
        self.steps = 0
        most = PROGRAM_WARMUP_STEPS if self.early else WARMUP_MAX_STEPS
        busy_s = BUSY_S if self._on_gpu and not self.early else 0.0
        most_s = min(WARMUP_MAX_S, WARMUP_PART * self.settings.budget_s)
        self.warmup = WarmUp(
            self.settings.warmup, most, lambda: self._agreement.has_peers, busy_s=busy_s, most_s=most_s
        )
        self._budget = Budget(self.settings.budget_s)
        self.timed: list[TimedStep] = []
        self.peak_bytes: int | None = None
        self._timed_faults: int | None = None
        self._faults: int | None = None
        self._range_ns: float | None = None
        self._page_s: float | None = None
        self._stretches: list[TimedStretch] = []
        self._timed_began_ns: int | None = None
        self._slowed_by: str | None = None
        self._compiles_under_hooks = False
        self._plan = self._in_order(first=first)
        self._live = Live(self.directory / JOURNAL_FILE)
        if isinstance(self.progress, LiveProgress):
            self.progress.follow(self._live)

    # --- what the program tells ---------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether everything has been recorded; further steps are neither timed nor traced."""
        return self.stage == "done"

    @property
    def is_held(self) -> bool:
        """Whether the program's own profiler is on."""
        return _PROFILING in self._pauses

    @property
    def traced_enough(self) -> bool:
        """Whether the trace holds as many steps as any traced pass has at least."""
        traced = self.kept.traced
        return traced.kind == "steps" and len(traced.times_ns) >= TRACED_MIN_STEPS

    def begin(self, *, held: bool = False) -> None:
        """The first step begins, ``held`` where the program's own profiler is on."""
        if held:
            self._pauses.add(_PROFILING)
            self.loading.pause()
        if not self.early and not self.device.is_found and self.device.has_work:
            self._find_device()  # the first step is timed; what the program has done so far must do
        self._peak.start()
        self._advance(None)

    def tell(self, event: Event) -> None:
        """Take in an event of the program."""
        if self.stage == "done" or (event == "call" and self.stage != "start-up"):
            return
        if event == "step":
            self.steps += 1
            if self.steps == 1:  # what was before is the program's own start
                self._budget = Budget(self.settings.budget_s)
            # A program may show its model a batch on the CPU before it moves it: the second step has the last
            # word.
            if not self.device.is_found or self._may_move:
                self._find_device()
            if self._pauses - {_EVALUATING}:
                self._held_ns.append(time.perf_counter_ns())
                if (
                    not self.early and len(self._held_ns) > _MOST_HELD
                ):  # our own steps, of which there is no end
                    self.finish()
                return
        elif event == "pause":
            self._pause(_EVALUATING)
            return
        elif event == "resume":
            self.release(_EVALUATING)
            return
        self._advance(event)

    def hold(self, why: str = _PROFILING) -> None:
        """The program's own profiler begins, or what else ``why`` names: ours stops, and steps do not count
        until ``release``."""
        with self.lock:
            self._held_ns.clear()
            self._pause(why)

    def take_exported(self, path: str) -> None:
        """The program has exported a trace of its own profiler to ``path``: it is kept as long as there is
        none of ours."""
        if self.kept.steps is None and not self.done:
            self.kept.take_exported(path)

    def _pause(self, why: str) -> None:
        first = not self._pauses
        self._pauses.add(why)
        if first and self.stage != "done":
            self.loading.pause()
            self._advance("pause")

    def release(self, why: str = _PROFILING) -> None:
        """What ``why`` names has ended, by default the program's own profiler."""
        with self.lock:
            self._pauses.discard(why)
            if not self._pauses and self.stage != "done":
                self.loading.resume()
                self._advance("resume")

    def may_move(self) -> bool:
        """Whether another thread may make the steps from here on: it could not stop a profiler of one
        thread."""
        return self._latest is None or not self._latest.is_bound

    def follow_threads(self) -> None:
        """Several threads make steps at the same time: there are none to tell, and what all of them do is
        traced until it is too much.

        While the first step is traced, which began with the program, that trace goes on.
        """
        if self.stage == "done" or (self.stage == "start-up" and self.steps == 0):
            return
        self._forget()
        self._plan = self._of_threads()
        self._advance(None)

    def restart(self) -> None:
        """A step begins that is of another kind than the steps so far, which are forgotten."""
        self._forget()
        self._advance(None)

    def _forget(self) -> None:
        self._plan.close()
        self._stop_sampler()
        self.loading.restart()
        self.kept.delete()
        self._begin_again(first=False)

    def finish(self) -> None:
        """The program makes no more steps: stop what is running and keep what is whole."""
        with self.lock:
            try:
                if not self.device.is_found:
                    self._find_device()
                self._plan.close()
                self.kept.check()
                program = self._program
                if self.kept.steps is None and program is not None and program.traced.times_ns:
                    self.kept.keep_program(program, cut=self._program_cut)
                    self.kept.keep_lines(self._program_marks)
                    self._take_from(program)
                if not self.timed and len(self._held_ns) > 1:
                    # The program's own profiler was on in all steps: their times include what it takes.
                    self.timed = [
                        TimedStep(ns=ended - began) for began, ended in itertools.pairwise(self._held_ns)
                    ]
                    self._clock_name, self._slowed_by = "perf_counter", "the program's own profiler"
                if self.kept.steps is None:
                    self.kept.keep_exported()
                if self.kept.steps is not None and self.peak_bytes is None:
                    self.peak_bytes = self._peak.bytes()
            finally:
                self.stage = "done"
                self._program = None
                self._stop_sampler()

    def stop(self) -> None:
        """Stop what is running and keep nothing."""
        with self.lock:
            self.early, self.stage = False, "done"
            with contextlib.suppress(Exception):
                self._plan.close()
            self._stop_sampler()

    def _find_device(self) -> None:
        """The program shows which device it runs on: clocks and memory from here on are that one's."""
        before = str(self.device)
        self.device.find(self._first_tracer.placed_elements if self._first_tracer is not None else {})
        if str(self.device) == before:
            return
        self._peak = self.device.peak_memory()
        if self.stage != "timed":  # else the pass that has begun stays on the clock of the host
            self._take_clock()

    def _take_clock(self) -> None:
        self._clock = self.device.step_clock()
        self._clock_name = "cuda events" if self._on_gpu else "perf_counter"

    @property
    def _may_move(self) -> bool:
        """Whether the program's steps still show its device."""
        return self.device.follows_program and self.stage in ("start-up", "early")

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def _advance(self, event: Event | None) -> None:
        try:
            self._plan.send(event)
        except StopIteration:
            self.stage = "done"

    # --- the plan -----------------------------------------------------------------------------------------

    def _in_order(self, *, first: bool) -> Plan:
        if self.early:
            if first:
                yield from self._first_step()
            self.stage = "early"
            yield from self._traced_pass(1, "early", lines=True)
        yield from self._warm_up()
        yield from self._timed_pass()
        self.stage = "traced"
        if self.traced_steps < 1:
            self._stop_sampler()
            return
        if not self.early:
            self.progress.stage("tracing one step to estimate the trace size", None)
            yield from self._traced_pass(1, "probe", lines=True)
        steps = self._agreement.on(self._affordable_steps(), 1)
        before = self.steps
        yield from self._traced_pass(steps, "steps")
        while (
            self._agreement.has_peers and self.steps < before + steps
        ):  # an evaluation ended the pass, perhaps on this rank only
            yield
        yield from self._traced_again(steps)
        if self.early and self._on_gpu and self.settings.steps is None:
            yield from self._timed_further()
        self._stop_sampler()

    def _first_step(self) -> Plan:
        """From the program's start to the end of its first step, traced as long as the trace stays small
        enough."""
        self.stage = "start-up"
        self.progress.stage("running the first step", None)
        began = time.perf_counter_ns()
        self.warmup.first_step((yield from self._trace_program(marked=True)) - began)
        self.progress.advance()

    def _of_threads(self) -> Plan:
        """Several threads make steps at the same time: from here on all they do is traced, as long as the
        trace stays small enough."""
        self.stage = "start-up"
        self.progress.stage("tracing the threads of the program", None)
        self._start_sampler()
        yield from self._trace_program(marked=False)

    def _trace_program(self, *, marked: bool) -> Generator[None, Event | None, int]:
        """Trace until a step has ended, of a program whose steps are not ``marked`` to its end; returns when
        that was."""
        bound = self._begin_program(marked)
        try:
            while (event := (yield)) != "step" or not marked:
                if event == "pause" and self._program is not None:
                    bound.stop()
                    self._program_marks.stop()
                    self._program.stop()
                    self._program = None
                elif event == "resume" or (event == "call" and marked and bound.reached):
                    # The trace was full before the first step had called a module: it is worth more from here
                    # on.
                    bound = self._begin_program(marked)
            self.device.synchronize()
            return time.perf_counter_ns()
        finally:
            bound.stop()
            self._program_marks.stop(with_trace=True)
            self._program_cut = bound.reached
            if self._program is not None:
                self._program.stop(keep_step=True)

    def _begin_program(self, marked: bool) -> TraceBound:
        tracer, marks = self._tracer(1, marked=marked), LineMarks([])

        def stop() -> None:
            marks.stop(with_trace=True)
            tracer.stop(keep_step=True)

        bound = TraceBound(stop, on_any_thread=tracer.traced.all_threads)
        if bound.possible and not self._pauses:
            self._program, self._program_marks = tracer, marks
            tracer.start()
            marks.start()
            bound.start()
        return bound

    def _warm_up(self) -> Plan:
        """Steps until their times have settled. If the program ends meanwhile, they count as timed steps."""
        self.stage, self._first_tracer = "warm-up", None  # it holds a trace
        alone = not (self._on_gpu or self._agreement.has_peers or self.settings.wait_quiet)
        self._beside, self._beside_s = (OthersMeter() if alone else None), time.monotonic()
        if self.warmup.is_over():
            return
        asked = self.settings.warmup
        self.progress.stage("warming up", None if asked is None else asked - len(self.warmup.times_ns))
        if self.early or (self._on_gpu and asked == 1):
            self._start_sampler()
        self._begin_stretch()
        steps: list[TimedStep] = []
        try:
            while not self.warmup.is_over():
                self.generations.clear()
                step_ns = yield from self._one_step()
                began_ns = now_ns() - step_ns
                steps.append(
                    TimedStep(
                        ns=step_ns,
                        began_ns=began_ns,
                        tokens=self._tokens_of_step(),
                        loaded=self.loading.take(),
                    )
                )
                self.progress.advance()
                self.warmup.add(step_ns)
                if self._on_gpu and not self.warmup.is_over():
                    # Here and not before the timed pass, which would find the device idle. The first step has
                    # taken memory on every GPU that is to be sampled.
                    self._start_sampler()
            step_s = self.warmup.step_s
            fits = step_s is None or self._budget.steps(step_s, EARLY_PART) > 1
            if self.early and asked is None and (fits or self._agreement.has_peers):
                # The program's second step, which was traced, may take much longer than its later ones.
                yield from self._traced_pass(1, "early")
                self.warmup.times_ns.append((yield from self._one_step()))
        except GeneratorExit:
            if self.early:
                self._let_warmup_stand_in(steps)
            raise
        if self.warmup.problem:
            self.notes.append(self.warmup.problem)

    def _one_step(self) -> Generator[None, Event | None, int]:
        """Until a step has ended, from now or from where an evaluation in it has; returns its nanoseconds."""
        event: Event | None = "resume"
        while event != "step":
            if event == "resume":
                self._queue.mark()
                began = time.perf_counter_ns()
            event = yield
        self.device.synchronize()
        return time.perf_counter_ns() - began

    def _tokens_of_step(self) -> Numbers:
        """When the tokens of the step that has just ended were ready; empty unless it is one generation."""
        ready = self.generations[:]
        self.generations.clear()
        return ready[0] if len(ready) == 1 else ()

    def _let_warmup_stand_in(self, steps: list[TimedStep]) -> None:
        """The program ended before the timed pass: its last untraced ``steps`` are the best that is known of
        its pace."""
        if not steps:
            return
        kept = self.timed = steps[len(steps) > 2 :]  # the one after a traced step may be slower
        del self.warmup.times_ns[-len(kept) :]
        self._clock_name = "perf_counter"
        self.warmup.rule = (
            f"the program ended during warm-up; timed steps are its last {counted(len(kept), 'step')}"
        )
        self._timed_began_ns = kept[0].began_ns
        ended_ns = kept[-1].began_ns + kept[-1].ns
        self._stretches = [TimedStretch(began_ns=self._timed_began_ns, ended_ns=ended_ns, steps=len(kept))]
        self._add_memory()
        self.loading.end_timed([step.loaded for step in kept])

    def _timed_pass(self) -> Plan:
        self.stage = "timed"
        enough = planned_steps(self.warmup.step_s, gpu=self._on_gpu, program=self.early)
        if self.warmup.step_s is not None:
            enough = min(enough, max(TIMED_LEAST_STEPS, self._budget.steps(self.warmup.step_s, TIMED_PART)))
        planned = self.settings.steps or self._agreement.on(enough, TIMED_MIN_STEPS)
        if not self._on_gpu and (busy := self._patience.wait_for_idle(self.progress)) is not None:
            self.notes.append(busy)
        self._announce(planned)
        self.progress.stage("timing steps with the profiler off", planned)
        self._start_sampler()
        self._others = OthersMeter()
        (self.directory / STEPS_FILE).unlink(missing_ok=True)
        self.save()
        self._begin_stretch()
        self._timed_began_ns = now_ns()
        yield from self._timed_steps(planned)

    def _announce(self, steps: int) -> None:
        """Say how long these steps will take, where that is long, and what other programs do meanwhile."""
        whole_s = steps * (self.warmup.step_s or 0.0)
        watched = self._beside is not None and time.monotonic() - self._beside_s >= IDLE_S
        cores = self._beside.cores() if self._beside is not None and watched else 0.0
        told = [
            f"the timed steps take about {seconds(whole_s)}" if whole_s >= _WORTH_SAYING_S else "",
            f"other programs use {cores:.1f} processors, which delays the steps"
            if cores >= OTHERS_CORES
            else "",
        ]
        if any(told):
            self.progress.stage("; ".join(filter(None, told)), None)

    def _timed_further(self) -> Plan:
        """More timed steps of a program on a GPU, which has been traced and may end now: as many as a timed
        pass of ours has.

        Steps that are not timed come first: while the trace was written the device was idle, and workers
        loaded batches.
        """
        done, step_s = len(self.timed), statistics.median(step.ns for step in self.timed) / 1e9
        missing = planned_steps(step_s, gpu=True, program=False) - done
        planned = self._agreement.on(missing if missing >= done else 0, 0)  # fewer would tell nothing new
        if not planned:
            return
        self.stage = "timed"
        self.progress.stage("timing more steps with the profiler off", planned)
        busy = self._agreement.on(
            max(min(BUSY_MAX_STEPS, math.ceil(BUSY_S / step_s)), self.loading.seen.prefetched), 1
        )
        while busy:
            busy -= (yield) == "step"
        self.device.synchronize()
        self.loading.begin_timed(more=True)
        yield from self._timed_steps(planned, further=True)

    def _timed_steps(self, planned: int, *, further: bool = False) -> Plan:
        """``planned`` steps, timed one after another; ``further`` ones are added to those before, and their
        memory does not count."""
        self._queue.watch()
        steps: list[TimedStep] = []
        self.generations.clear()
        self._begin_step()
        whole, ended, journal, goal = True, False, str(self.directory / STEPS_FILE), planned
        stretch: tuple[int, int] | None = (now_ns(), 0)  # when it began, and the steps before it
        try:
            while len(self._clock) < goal:
                event = yield
                if event == "step":
                    self._clock.end()
                    tokens, queue_ns = self._tokens_of_step(), self._queue.since_ns()
                    steps.append(
                        TimedStep(tokens=tokens, queue_ns=queue_ns, loaded=self.loading.take(), whole=whole)
                    )
                    self.progress.advance()
                    if self._mps is not None:
                        self._mps.note()
                    if not self._on_gpu and whole:
                        self._live.timed_ns.append(self._clock.last_ns())
                        add_step(journal, self._live.timed_ns[-1])
                    whole = True
                    if len(self._clock) == goal:
                        goal += self._patience.further_timed(
                            planned, self._clock.so_far_ns(), [step.queue_ns for step in steps]
                        )
                    self._queue.mark()
                    self._clock.go_on()
                elif event == "pause" and stretch is not None:
                    self._end_stretch(*stretch, memory=not further)
                    stretch = None
                elif event == "resume":
                    # The step that follows an evaluation has lost its beginning, perhaps the loading of its
                    # data.
                    whole = False
                    self._begin_stretch(more=True)
                    stretch = (now_ns(), len(self._clock))
                    self._begin_step()
            ended = True
        finally:
            if stretch is not None:
                self._end_stretch(*stretch, memory=not further)
            # Ctrl-C may come between the end of a step and what is noted of it; that step does not count.
            for step, ns in zip(steps, self._clock.take_ns(), strict=False):
                step.ns = ns
            wall_ns = (
                self._wall_step_ns([step.ns for step in steps]) if ended and stretch is not None else None
            )
            if wall_ns is not None:  # only the last stretch ended with a step, so only its wall time is known
                self.timed = [
                    replace(step, ns=wall_ns, tokens=()) for step in steps[-self._stretches[-1].steps :]
                ]
            else:
                self.timed = [*self.timed, *([step for step in steps if step.whole] or steps)]
            self._live.timed_ns = [step.ns for step in self.timed]
            self._queue.close()
            self._slowed_by = python_profiler()
            self.loading.end_timed([step.loaded for step in self.timed])

    def _begin_step(self) -> None:
        self._queue.mark()
        self._clock.begin()

    def _wall_step_ns(self, times_ns: list[int]) -> int | None:
        """The time of a step of the stretch that has just ended, if the device worked on other streams than
        the timed one, too."""
        stretch = self._stretches[-1]
        events_ns, wall_ns = times_ns[len(times_ns) - stretch.steps :], stretch.ended_ns - stretch.began_ns
        step_ns = wall_step_ns(events_ns, wall_ns) if self._clock_name != "perf_counter" else None
        if step_ns is not None:
            self._clock_name = WALL_CLOCK
            self.notes.append(
                f"CUDA events of {counted(stretch.steps, 'step')} add up to "
                f"{seconds(sum(events_ns) / 1e9)}, but the steps took "
                f"{seconds(wall_ns / 1e9)}: they use other streams as well, so the step time is "
                "the wall time divided by the steps"
            )
        return step_ns

    def _traced_again(self, steps: int) -> Plan:
        """Trace again while other programs delay most of the traced steps; the trace with the most quiet
        steps is kept.

        Programs that disturb come and go: untraced steps pass until one of them is quiet.
        """
        enough, until = (
            max(min(steps, TRACED_MIN_STEPS), steps // 2),
            time.perf_counter() + self._patience.limit_s,
        )
        most = self.steps + self._patience.most_traced_again(steps)

        def over() -> bool:
            return time.perf_counter() > until or self.steps > most

        while (
            quiet(self.kept.traced.times_ns, self.kept.traced.queue_ns) < enough
            and not over()
            and self._patience.is_disturbed()
        ):
            self._queue.watch()
            while not quiet([(yield from self._one_step())], [self._queue.since_ns()]):
                if over():
                    return
            yield from self._traced_pass(steps, "steps", again=True)

    def _samples_of_steps(self) -> Sequence[DeviceSample]:
        """The device samples since the timed pass began, of a run on the CPU of one process."""
        if self._on_gpu or self._agreement.has_peers or self._sampler is None:
            return ()
        return [sample for sample in self._sampler.samples() if sample.time_ns >= (self._timed_began_ns or 0)]

    def _traced_pass(
        self,
        steps: int,
        kind: Literal["steps", "early", "probe"],
        *,
        again: bool = False,
        lines: bool = False,
    ) -> Plan:
        """``steps`` under the profiler; an evaluation in between ends the pass, or lets it begin again where
        no step had ended.

        With ``again`` the trace is kept only if it has more quiet steps than the one before. With ``lines``
        the lines of the program are marked in it: a later pass gives the times, unless the program ends
        before.
        """
        if kind != "probe":
            self.progress.stage("tracing", steps)
        while self._pauses:
            yield
        before = self.inductor.graphs
        self.loading.begin_traced(keep_batches=kind == "steps")
        pages = self._timed_faults
        if kind == "steps" and pages and not self._on_gpu:
            self._page_s = page_s()
        reserve = (
            HeapReserve()
            if kind == "steps" and pages is not None and pages < _FEW_PAGES * len(self.timed)
            else None
        )
        tracer, loaded = self._tracer(steps), list[Waited]()
        self._range_ns = None if kind == "probe" or self._on_gpu else range_cost_ns()
        tracer.start()
        marks = LineMarks(self.notes)
        try:
            if lines:
                marks.start()
            while (event := (yield)) != "pause" or not tracer.traced.times_ns:
                if event == "pause":
                    marks.stop()
                    tracer.stop()
                elif event == "resume":
                    tracer = self._tracer(steps)
                    tracer.start()
                    if lines:
                        marks = LineMarks(self.notes)
                        marks.start()
                elif event == "step":
                    self.device.synchronize()
                    loaded.append(self.loading.take())
                    self.progress.advance()
                    if tracer.step():
                        break
        finally:
            marks.stop()
            tracer.stop()
            if reserve is not None:
                reserve.release()
            kept = bool(tracer.traced.times_ns)
            if again:
                earlier = self.kept.traced
                kept = quiet(tracer.traced.times_ns, tracer.traced.queue_ns) > quiet(
                    earlier.times_ns, earlier.queue_ns
                )
            self.loading.end_traced(loaded if kept else None)
            if kept:
                self.kept.keep(tracer, "early" if kind == "early" else "steps")
                self.kept.keep_lines(marks)
                self._take_from(tracer)
        compiled = self.inductor.graphs > before
        if compiled and kind == "steps":
            self.notes.append(
                "code was compiled during the traced steps: their times and operators include compilation"
            )
        # Some versions of torch compile again when there are hooks on modules, and the trace would be one of
        # the compiler.
        self._compiles_under_hooks = compiled and before > 0 and self.ranges is ModuleRanges
        self.save()

    # --- the timed pass -----------------------------------------------------------------------------------

    def _begin_stretch(self, *, more: bool = False) -> None:
        """Steps are timed from here on, ``more`` of them after a pause."""
        self._peak.start()
        self.device.synchronize()
        if not more:
            self.peak_bytes = None
            self.loading.begin_timed()
            self._timed_faults = None
        self._faults = page_faults()

    def _end_stretch(self, began_ns: int, steps_before: int, *, memory: bool) -> None:
        """A pause, or the end of the pass: add up what was measured since the last one."""
        self.device.synchronize()
        self._stretches.append(
            TimedStretch(began_ns=began_ns, ended_ns=now_ns(), steps=len(self._clock) - steps_before)
        )
        if memory:
            self._add_memory()

    def _add_memory(self) -> None:
        peak, faults = self._peak.bytes(), since(self._faults)
        self.peak_bytes = max(filter(None, (self.peak_bytes, peak)), default=None)
        if faults is not None:
            self._timed_faults = (self._timed_faults or 0) + faults

    def _start_sampler(self) -> None:
        if self._sampler is None:
            self._sampler = self.device.sampler(self.directory / JOURNAL_FILE)
            self._sampler.farewell = self.farewell
            self._sampler.start()

    def _stop_sampler(self) -> None:
        if self._sampler is None:
            return
        sampler, self._sampler = self._sampler, None
        sampler.stop()
        journal, taken_here = sampler.journal(), self._mps.noted if self._mps is not None else ()
        self.samples = tuple(sorted((*journal.samples, *taken_here), key=lambda sample: sample.time_ns))
        self.counters, self.fields = journal.counters, journal.fields
        if self._others is not None:
            self.other_processes, self._others = self._others.by_name(), None
        if sampler.problem:
            self.notes.append(f"device samples: {sampler.problem}")
        timed_ns = self._stretches[-1].ended_ns if self._stretches else now_ns()
        if self.peak_bytes is None and self.device.type != "cuda":
            resident = (sample.process_rss_bytes for sample in self.samples if sample.time_ns <= timed_ns)
            self.peak_bytes = max(filter(None, resident), default=None)

    # --- traces -------------------------------------------------------------------------------------------

    def _tracer(self, steps: int, *, marked: bool = True) -> Tracer:
        ranges = None if self._compiles_under_hooks else self.ranges(self._guard)
        tracer = self.device.tracer(
            steps=steps, modules=ranges, marked=marked, all_threads=self.others_work, guard=self._guard
        )
        self._latest = tracer
        self._first_tracer = tracer if self._may_move else None
        return tracer

    def _affordable_steps(self) -> int:
        planned = self.traced_steps
        if self.timed:
            step_s = statistics.median(step.ns for step in self.timed) / 1e9
            planned = min(planned, max(TRACED_MIN_STEPS, round(TRACED_S / step_s)))
            planned = min(planned, max(1, self._budget.steps(TRACED_DILATION * step_s)))
        steps = max(1, min(planned, TRACE_LIMIT_BYTES // max(self.kept.step_bytes, 1)))
        if steps < planned:
            self.notes.append(
                f"traced {counted(steps, 'step')} instead of {planned}: one step takes "
                f"{binary_bytes(self.kept.step_bytes)} of "
                f"trace, the limit is {binary_bytes(TRACE_LIMIT_BYTES)}"
            )
        return steps

    def _take_from(self, tracer: Tracer) -> None:
        """What a kept trace tells besides its events."""
        alone = len(tracer.traced.times_ns) == 1
        self._live.step_trace = self.directory / self.trace_name if alone else None
        self.module_names |= tracer.module_names
        self.tf32 = self.device.tf32()
        self._program = None

    # --- records ------------------------------------------------------------------------------------------

    @property
    def peak_kind(self) -> str | None:
        """The memory that ``peak_bytes`` counts; None if unknown."""
        return self._peak.kind if self.peak_bytes is not None else None

    def times(self) -> StepTimes:
        """The steps recorded so far."""
        longest = max(self._stretches, key=lambda stretch: stretch.ended_ns - stretch.began_ns, default=None)
        timed, traced = self.timed, self.kept.traced
        return StepTimes(
            warmup_ns=tuple(self.warmup.times_ns),
            timed_ns=tuple(step.ns for step in timed),
            traced_ns=tuple(traced.times_ns),
            traced=traced.kind,
            settled=self.warmup.settled,
            rule=self.warmup.rule,
            clock=self._clock_name,
            timed_page_faults=self._timed_faults,
            traced_page_faults=traced.page_faults,
            traced_step_faults=known(traced.step_faults, len(traced.times_ns)),
            page_ns=None if self._page_s is None else self._page_s * 1e9,
            timed_began_ns=self._timed_began_ns,
            timed_stretch=longest if len(self._stretches) > 1 else None,
            range_ns=self._range_ns,
            timed_token_ns=tuple(step.tokens for step in timed) if all(step.tokens for step in timed) else (),
            timed_queue_ns=known([step.queue_ns for step in timed], len(timed)),
            traced_queue_ns=known(traced.queue_ns, len(traced.times_ns)),
            slowed_by=self._slowed_by,
            served=self.served,
        )
