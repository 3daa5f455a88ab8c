"""Record a program that knows nothing of us: it runs as under ``python``, and hooks find the ends of its
steps.

A training step ends with ``optimizer.step()``. In a program that makes no optimizer, an inference step ends
when an outermost module returns with gradients off, or where it generates text, when ``generate()`` does
(``generate_calls.py``). Of several optimizers or modules that take turns, one ends the step. A model that is
trained, called in evaluation mode with gradients off, is being evaluated: that belongs to no training step.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from rooflines.errors import Interrupted, RooflinesError, WorkloadError
from rooflines.profiler.distributed import Agreement, rank_here
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.module_hooks import ModuleRanges, global_hooks
from rooflines.profiler.hooks.replaced import Function, replaced
from rooflines.profiler.options import Mode
from rooflines.profiler.record.children import Children
from rooflines.profiler.record.collect import Recording, interrupted, user_error
from rooflines.profiler.record.generate_calls import GenerateCalls
from rooflines.profiler.record.hard_end import HardEnds
from rooflines.profiler.record.process import is_listening
from rooflines.profiler.record.program import Enough, Program
from rooflines.profiler.records import Run
from rooflines.units import counted, seconds

# What the program does: a step ends, of its kind; an outermost module is called; an evaluation begins, and
# training goes on; others than before begin to end the steps; another thread runs PyTorch, and several make
# steps at the same time.
Doing = Mode | Literal["call", "pause", "resume", "change", "thread", "threads"]

# What ends the steps has not been called while others were called this often: the program has gone on to
# something else.
_GONE_AFTER = 50
# Steps are not told from this many calls on that overlap those of another thread.
_AT_ONCE = 3
# After this many calls of other threads than the main one, none of which overlap, the calling thread makes
# the steps.
_ADOPTED_AFTER = 10


class StepHooks:
    """Context manager that calls ``on_doing`` with what the running program does.

    Others may begin to end the steps while ``may_change()``, or when the former have not been seen for long.
    From the first training step on, only optimizers end steps. One thread at a time makes them: another one
    takes over only where their calls do not overlap, and where they do, there are no steps. Forked workers of
    a data loader inherit the hooks, but are not watched; what runs inside a loader (``is_away``) is not a
    step. ``elsewhere`` is how often other threads have called modules. ``mode`` is the kind of steps that the
    program makes, None before the first one; ``evaluations`` between them took ``evaluating_s`` seconds.
    ``guard`` is for our code in the program.
    """

    def __init__(
        self,
        on_doing: Callable[[Doing], None],
        may_change: Callable[[], bool],
        is_away: Callable[[], bool],
        may_move: Callable[[], bool],
        guard: Guard,
    ) -> None:
        self.evaluations = 0
        self.evaluating_s = 0.0
        self.mode: Mode | None = None
        self.elsewhere = Counter[int]()
        self._on_doing = on_doing
        self._may_change = may_change
        self._is_away, self._may_move = is_away, may_move
        self._guard = guard
        self._process = os.getpid()
        self._owner: int | None = None  # the thread that makes the steps
        # calls that would end a step and overlapped those of another thread; none ends one from _AT_ONCE on
        self.at_once = 0
        self._tentative = 0  # calls of other threads than the main one that would have made the first step
        self._depths = _Depths()
        self.calls: dict[int, list[float]] = {}  # when the latest one of each thread began and ended
        self._optimizers: list[weakref.ref[Any]] = []
        self._steps: set[Any] = set()  # ours, in place of those of classes of optimizers
        self._turns = _Turns()
        self._evaluating_since: float | None = None
        self._pending: Any = (
            None  # the optimizer that stepped in a backward pass or in compiled code, where no step may end
        )
        self._is_trained: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._on = False
        self._ranges: ModuleRanges | None = None
        self.generates = GenerateCalls(self._after_generate, self._watched, self._guard)
        self._hooks = contextlib.ExitStack()

    def __enter__(self) -> StepHooks:
        from torch.optim import Optimizer

        before, after = self._guard.about(self._before_forward), self._guard.about(self._after_forward)
        self._hooks.enter_context(global_hooks(before, after))
        self._hooks.enter_context(replaced("__init__", self._making, Optimizer))
        self._hooks.enter_context(self.generates)
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._hooks.close()

    def _making(self, make: Function) -> Function:
        watch = self._guard.about(self._watch)

        @functools.wraps(make)
        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            make(optimizer, *arguments, **keywords)
            watch(optimizer)

        return made

    @property
    def makes_optimizers(self) -> bool:
        """Whether the program has made an optimizer, and so is likely to train."""
        return bool(self._optimizers)

    @property
    def several(self) -> int:
        """The number of optimizers or modules that take turns in a step."""
        return self._turns.taking

    def ranges(self, guard: Guard) -> ModuleRanges:
        """Ranges around modules by these hooks."""
        return _RangesHere(self, guard)

    # --- optimizers ---------------------------------------------------------------------------------------

    def _watch(self, optimizer: Any) -> None:
        """Be told when ``optimizer`` has stepped.

        Not by torch's own post hook: that one runs inside the profiler's range ``Optimizer.step``, which a
        step of ours would cut. Its class is changed, as torch does it: the optimizer itself is what the
        program made, also where it is copied or stored.
        """
        self._optimizers.append(weakref.ref(optimizer))
        self._is_trained.clear()
        kind, theirs = type(optimizer), type(optimizer).step
        if theirs in self._steps:
            return
        after = self._guard.about(self._after_optimizer)

        @functools.wraps(theirs)
        def step(this: Any, *arguments: Any, **keywords: Any) -> Any:
            self._depths.optimizers += 1
            try:
                result = theirs(this, *arguments, **keywords)
            finally:
                self._depths.optimizers -= 1
            if self._depths.optimizers == 0:  # one optimizer may be made of others
                after(this)
            return result

        def restore() -> None:
            if (
                vars(kind).get("step") is step
            ):  # else the program has changed it again, and ours only passes calls on
                if is_own:
                    kind.step = theirs
                else:
                    del kind.step

        is_own = "step" in vars(kind)
        kind.step = step
        self._steps.add(step)
        self._hooks.callback(restore)

    def _after_optimizer(self, optimizer: Any) -> None:
        import torch

        if not self._makes_step("training", optimizer):
            return
        self._resume()
        if torch._C._current_graph_task_id() != -1 or _in_compiled_code():
            self._pending = optimizer
        else:
            self._pending = None
            self._ended("training", optimizer)

    # --- modules ------------------------------------------------------------------------------------------

    def _before_forward(self, module: Any, inputs: Any) -> None:
        import torch

        if (
            torch.compiler.is_compiling() or torch._C._get_tracing_state()
        ):  # first: compiled code must not depend on our state
            return
        here = self._is_here()
        if here and not self._depths.modules and self._watched():
            self._outermost(module)  # may end a trace or begin one, which then holds the range of this module
        if self._ranges is not None and os.getpid() == self._process:
            self._ranges.before(module, inputs)
        if here:  # last: of a module that we fail at, there is no call to end
            self._depths.modules += 1
            if self._depths.modules == 1:
                self.calls[threading.get_ident()] = [time.perf_counter(), math.inf]
                if len(self.calls) == 2:
                    self._on_doing("thread")

    def _outermost(self, module: Any) -> None:
        import torch

        if self._pending is not None:
            optimizer, self._pending = self._pending, None
            self._ended("training", optimizer)
        if self._evaluating_since is not None and not torch.is_grad_enabled():
            return  # a loss, or an average of the model
        if not self._evaluates(module):
            self._resume()
            self._on_doing("call")
        elif self.mode == "training":
            self._evaluating_since = time.perf_counter()
            self.evaluations += 1
            self._on_doing("pause")

    def _after_forward(self, module: Any, inputs: Any, output: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or torch._C._get_tracing_state():
            return
        if self._ranges is not None and os.getpid() == self._process:
            self._ranges.after(module)
        if self._is_here():
            self._depths.modules = max(0, self._depths.modules - 1)
            thread = threading.get_ident()
            if self._depths.modules or thread not in self.calls:
                return
            self.calls[thread][1] = time.perf_counter()
            infers = not torch.is_grad_enabled() and not self.generates.is_active and self._infers(module)
            if infers and self._makes_step("inference", module):
                self._ended("inference", module)
            elif self._owner != thread and threading.current_thread() is not threading.main_thread():
                self.elsewhere[thread] += 1

    def _makes_step(self, mode: Mode, by: Any) -> bool:
        """Whether this thread makes the steps, or takes over: what it called, ``by``, ends one."""
        thread = threading.get_ident()
        if self.at_once >= _AT_ONCE or not self._is_here():
            return False
        if not self._watched() and not self._may_move():
            return False
        known = mode == self.mode and (mode == "training" or self._turns.knows(by))
        began, _ = self.calls.get(thread, (math.inf, 0))
        if any(other != thread and ended > began for other, (_, ended) in [*self.calls.items()]):
            if self._owner != thread and (known or self._tentative):
                self.at_once += 1
                if self.at_once == _AT_ONCE:
                    self._on_doing("threads")
            return self._owner == thread
        if self._owner is None and not self._watched():
            # A pool of threads begins with one, too.
            self._tentative += 1
            return self._tentative > _ADOPTED_AFTER
        return known or self._watched()

    def _after_generate(self, model: Any) -> None:
        if self._infers(model):
            self._ended("generate", model)

    def _infers(self, module: Any) -> bool:
        """Until there is an optimizer, each call is a step; then only what evaluates the model before it is
        trained."""
        return self.mode != "training" and (not self._optimizers or self._evaluates(module))

    def _evaluates(self, module: Any) -> bool:
        """Whether a call of ``module`` at this moment evaluates what the program trains."""
        import torch

        if torch.is_grad_enabled() or module.training or not self._optimizers:
            return False
        is_trained = self._is_trained.get(module)
        if is_trained is None:
            optimizers = [
                optimizer for reference in self._optimizers if (optimizer := reference()) is not None
            ]
            trained = {
                id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
            }
            is_trained = self._is_trained[module] = any(
                id(parameter) in trained for parameter in module.parameters()
            )
        return is_trained

    # --- steps --------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        if self._evaluating_since is not None:
            self.evaluating_s += time.perf_counter() - self._evaluating_since
            self._evaluating_since = None
            self._on_doing("resume")

    def _ended(self, mode: Mode, by: Any) -> None:
        """``by``, an optimizer or a module, has done what may end a step."""
        first = self.mode is None
        self._owner = threading.get_ident()
        if mode != self.mode:
            self.mode, self._turns = mode, _Turns()
            if not first:
                self._turns.begin_with(by)
                self._on_doing("change")
                return
        turn = self._turns.take(by, may_change=self._may_change())
        if turn != "inside":
            self._on_doing(mode if turn == "end" else "change")

    def _is_here(self) -> bool:
        """Whether this process is watched at this moment."""
        return self._on and os.getpid() == self._process and not self._is_away()

    def _watched(self) -> bool:
        """Whether this thread makes the steps: before the first one, the main one."""
        return self._is_here() and (self._owner or threading.main_thread().ident) == threading.get_ident()


class _Turns:
    """Which of the optimizers, or modules, that take turns ends a step: the one that was the last to come for
    the first time.

    ``taking`` is how many took turns in a step that has ended.
    """

    def __init__(self) -> None:
        self.taking = 1
        self._last: weakref.ref[Any] | None = None
        self._ended = 0  # steps, by that one
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._between: list[int] = []  # since the last step ended

    def begin_with(self, ending: Any) -> None:
        """``ending`` ends the steps."""
        self._last = self._seen[id(ending)] = weakref.ref(ending)
        self._ended, self.taking, self._between = 0, 1, []

    def knows(self, ending: Any) -> bool:
        """Whether ``ending`` has had a turn."""
        seen = self._seen.get(id(ending))
        return seen is not None and seen() is ending

    def take(self, ending: Any, *, may_change: bool) -> Literal["end", "inside", "change"]:
        """It is the turn of ``ending``: whether that ends a step, lies inside one, or another kind of step
        begins behind it."""
        new = not self.knows(ending)
        last = self._last and self._last()
        # A function may make its module in every call: what ended one step and is gone has a successor.
        is_successor = last is None and self._ended <= 1
        self._seen[id(ending)] = weakref.ref(ending)
        if last is ending or is_successor:
            self._last = self._seen[id(ending)]
            self._ended = 1 if is_successor else self._ended + 1
            self.taking, self._between = max(self.taking, len({*self._between}) + 1), []
            return "end"
        self._between.append(id(ending))
        if (new and may_change) or len(self._between) > _GONE_AFTER:
            self.begin_with(ending)
            return "change"
        return "inside"


class _RangesHere(ModuleRanges):
    """Ranges around modules, written by the hooks that are there anyway: no others come and go, on which
    compiled code depends."""

    def __init__(self, hooks: StepHooks, guard: Guard) -> None:
        super().__init__(guard)
        self._hooks = hooks

    def __enter__(self) -> _RangesHere:
        self._hooks._ranges = self
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks._ranges = None
        self.leave_all()
        self._hooks.generates.leave_phase()


def _in_compiled_code() -> bool:
    """Whether a function of ``torch.compile`` has called us: it is a range of the profiler, which must not be
    stopped in it."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        code = frame.f_code
        if "callback" in code.co_freevars and code.co_filename.endswith("eval_frame.py"):
            return True
    return False


class _Depths(threading.local):
    """How many modules and optimizers a thread is in."""

    modules = optimizers = 0


class ProgramDriver:
    """Passes on to a recording what the hooks see of a program, and ends the program when enough is
    recorded."""

    def __init__(self, recording: Recording, *, to_end: bool) -> None:
        self._recording = recording
        self._to_end = to_end
        self._is_rank = rank_here() is not None
        self._made = 0  # steps of the present kind
        self.before = 0  # and of the kinds before, which were forgotten
        self.others: dict[str, None] = {}  # programs that were started and are not recorded
        self.file = ""  # the script
        passes, loading = recording.passes, recording.loading
        on_doing = recording.guard.around(self._on_doing)
        self.hooks = StepHooks(
            on_doing, self._may_change, lambda: loading.is_loading, passes.may_move, recording.guard
        )
        recording.passes.generations = self.hooks.generates.generations
        recording.sizes = lambda: self.hooks.generates.sizes

    def _may_change(self) -> bool:
        return self._recording.passes.stage not in ("timed", "traced", "done")

    def _on_doing(self, doing: Doing) -> None:
        with self._recording.passes.lock:
            self._take(doing)

    def _take(self, doing: Doing) -> None:
        recording = self._recording
        if doing == "training" or doing == "inference" or doing == "generate":
            self._on_step(doing)
        elif doing == "thread":
            recording.passes.others_work = True
        elif doing == "threads":
            recording.passes.served = True
            recording.passes.follow_threads()
        elif doing != "change":
            recording.passes.tell(doing)
        elif self._may_change() or self.hooks.mode != recording.workload.mode:
            self.before, self._made = self.before + self._made, 0
            recording.passes.restart()
        else:
            recording.notes.append("the program moved on to other steps before all of these were recorded")
            recording.passes.finish()
            self._end()

    def _on_step(self, mode: Mode) -> None:
        recording = self._recording
        recording.loading.follow(threading.get_ident())
        self._made += 1
        if mode != recording.workload.mode:
            recording.workload = replace(recording.workload, mode=mode)
        recording.passes.served = mode != "training" and (
            threading.current_thread() is not threading.main_thread() or is_listening()
        )
        if mode == "generate":
            recording.workload = self.hooks.generates.described(recording.workload)
        if not recording.done:
            recording.step()
        # Inference in a program that is going to train: its training is what counts.
        if recording.done and (mode == "training" or not self.hooks.makes_optimizers):
            self._end()

    def _end(self) -> None:
        recording = self._recording
        if self._to_end or threading.current_thread() is not threading.main_thread():
            return  # another thread cannot end the program
        if not self._is_rank and Agreement().has_peers:  # its children wait for it in every step
            return
        # The script ends here, while its data is still there: what is asked of its loader now, it will not
        # miss.
        if recording.loading.resident_step():
            return
        recording.loading.run_loader_alone(ends=True)
        raise Enough

    def _tell_of_threads(self) -> None:
        """Say what other threads did: it is in the trace, or it was not recorded."""
        hooks, recording = self.hooks, self._recording
        called = (
            f"modules {counted(sum(hooks.elsewhere.values()), 'time')} on "
            f"{counted(len(hooks.elsewhere), 'other thread')}"
        )
        if hooks.at_once >= _AT_ONCE:
            recording.notes.append(
                "several threads make steps at the same time, so no step is timed and no rate is given"
            )
        if hooks.elsewhere and recording.passes.kept.traced.all_threads:
            recording.notes.append(f"the program called {called}; operators of all threads are in the trace")
        elif hooks.elsewhere:
            recording.unrecorded.append(f"the program called {called}, and the trace has one thread")

    def called(self, module: Any, inputs: Any) -> None:
        """``module`` is called, and its call is the first that is seen."""
        self.hooks._before_forward(module, inputs)

    def leave(self) -> None:
        """In a forked process: the program is recorded in another one."""
        self.hooks.__exit__(None, None, None)
        Recording.leave()

    def close(self, what: str) -> None:
        """End the recording of a program, ``what``, that ends before it comes back to us."""
        self.hooks.__exit__(None, None, None)
        with contextlib.ExitStack() as open_recording:
            open_recording.push(self._recording)
            self.conclude(what)

    def conclude(self, what: str) -> None:
        """The program, ``what``, has ended. Raises NoOperators where there is nothing to keep."""
        recording = self._recording
        recording.notes.extend(self._notes())
        if recording.passes.steps:
            self._tell_of_threads()
            return
        if self.hooks.makes_optimizers:
            recording.workload = replace(recording.workload, mode="training")
        recording.passes.finish()
        if recording.passes.kept.steps is None:
            if self.hooks.calls or self.hooks.makes_optimizers:
                on = " while its own profiler was on" if recording.passes.is_held else ""
                raise NoOperators(
                    f"{what} called modules or made optimizers{on}, and none of its operators were recorded.",
                    hint=(
                        "If it has a profiler of its own, run it without, or analyze the trace that "
                        "this exports."
                    ),
                )
            started = (
                f" in this process; what it started was not recorded ({', '.join(self.others)})"
                if self.others
                else ""
            )
            factory = _factory(self.file)
            raise NoOperators(
                f"{what} ended without running a PyTorch operator{started}.",
                hint=f"If {factory}() makes a model: rooflines profile --model {self.file}:{factory}"
                if factory
                else "Use rooflines monitor for programs without PyTorch.",
            )
        why = (
            ""
            if self.hooks.calls
            else ", because no optimizer stepped and no module was called with gradients off"
        )
        recording.notes.append(
            f"no step was recognized{why}: the whole program is one step. To mark steps: with "
            "rooflines.record() as r: ... r.step()"
        )
        self._tell_of_threads()

    def _notes(self) -> Iterator[str]:
        """Warnings about the steps for the reader."""
        hooks = self.hooks
        if hooks.several > 1:
            what = "optimizers" if hooks.mode == "training" else "models"
            yield f"a step is one turn of {hooks.several} {what}, and ends with the last one"
        if hooks.evaluations:
            times = {1: "once", 2: "twice"}.get(hooks.evaluations, f"{hooks.evaluations:,} times")
            yield (
                f"the program evaluated its model {times} between the steps "
                f"({seconds(hooks.evaluating_s)}): "
                "not part of any step"
            )
        if self.before:
            yield (
                f"not counted: {counted(self.before, 'step')} before these began (an evaluation "
                "before training, or parts of a step)"
            )


class NoOperators(WorkloadError):
    """The program has run no PyTorch operator: there is nothing to report, and it ended as it does alone."""

    exit_code = 0


def collect_script(
    program: Program,
    recording: Recording,
    *,
    to_end: bool,
    children: Children,
    on_hard_end: Callable[[RooflinesError | None], object],
) -> Run:
    """Run ``program`` under ``recording``, and its ``children``.

    It is stopped once everything is recorded, unless ``to_end``. Its exceptions come back as WorkloadError
    with the original as ``__cause__`` and the exit code that it would have had; what had been recorded is on
    disk (``recording.run``). ``on_hard_end`` is called, with our error if any, before it ends this process
    without coming back to us.
    """
    what = f"the {'script' if program.name.endswith('.py') else 'module'} {program.name!r}"
    driver = ProgramDriver(recording, to_end=to_end)
    driver.file = program.name
    recording.passes.ranges = driver.hooks.ranges
    theirs: BaseException | None = None
    recording.passes.farewell = (
        f"rooflines: {what} was killed before its run was complete.\n  See what was recorded: "
        f"rooflines analyze {recording.directory}\n"
    )

    def end_hard(how: str) -> None:
        recording.notes.append(f"the program ended with {how}")
        try:
            driver.close(f"{what} ({how})")
        except RooflinesError as error:
            on_hard_end(error)
        else:
            on_hard_end(None)

    def end_elsewhere() -> None:
        if recording.done:  # else the sampler does it
            sys.stderr.write(recording.passes.farewell)

    children.recorder = driver
    try:
        with recording, driver.hooks, children, HardEnds(end_hard, end_elsewhere):
            try:
                program.run(lambda: recording.loading.resident)
            except Enough:
                pass
            except SystemExit as ending:
                if ending.code not in (None, 0) and not recording.loading.resident:
                    raise
            except Exception as error:
                if not recording.loading.resident:
                    theirs = error
                    raise
                recording.loading.end_resident_steps(
                    error
                )  # everything is recorded, and to its own data it did not object
            if recording.loading.resident:
                recording.loading.end_resident_steps()
            driver.conclude(what)
    except KeyboardInterrupt:
        if recording.run is None:
            raise Interrupted("interrupted before anything was recorded.") from None
        raise interrupted(recording.directory) from None
    except SystemExit as ending:
        how, code = f"exited: {ending.code}", 1
        if isinstance(ending.code, int):
            how, code = f"exited with {ending.code!r}", ending.code
        raise _ended(WorkloadError(f"{what} {how}."), recording, code) from ending
    except BaseException as error:
        if isinstance(error, RooflinesError) and error is not theirs:
            raise  # as it is, with its own cause
        raise _ended(user_error(error, what, recording), recording, 1) from error
    assert recording.run is not None
    return recording.run


def _ended(error: RooflinesError, recording: Recording, code: int) -> RooflinesError:
    """``error`` with the program's exit code, and a hint that says what was recorded."""
    error.exit_code, error.is_told = code, True
    if recording.run is None:
        error.marked_hint = ""
    elif not error.hint:
        error.marked_hint = f"The recording so far is in {str(recording.directory)!r}."
    return error


def _factory(file: str) -> str | None:
    """The first function at the top of a script that can be called without arguments; None without any."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    functions = [one for one in body if isinstance(one, ast.FunctionDef)]
    plain = (one.name for one in functions if len(one.args.args) == len(one.args.defaults))
    return next((name for name in plain if not name.startswith("_") and name != "main"), None)
