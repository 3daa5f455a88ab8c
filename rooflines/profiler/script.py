"""Recording a script that knows nothing of us: its steps are told from outside.

A training step ends with ``optimizer.step()``; in a script that makes no optimizer, an inference step ends when an outermost module's
forward returns with gradients off.
"""

from __future__ import annotations

import contextlib
import functools
import os
import runpy
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import RooflinesError, WorkloadError
from rooflines.profiler.collect import Recording, interrupted, user_error
from rooflines.profiler.modules import quiet_global_hooks
from rooflines.profiler.records import Mode, Run


class _Enough(BaseException):
    """Everything is recorded: unwind the script. Not an Exception, so that the script's own handlers let it pass."""


class StepHooks:
    """Context manager that calls ``on_step(mode)`` whenever a step of the running program ends.

    From the moment that the program makes an optimizer, only optimizers make steps: what it evaluates before it trains is no step.
    Only the thread that entered is watched: forked workers of a data loader inherit the hooks, and other threads have steps of their
    own.
    """

    def __init__(self, on_step: Callable[[Mode], None]) -> None:
        self._on_step = on_step
        self._owner = _here()
        self._depth = 0
        self._optimizer_depth = 0
        self._trains = False
        self._on = False
        self._handles: list[Any] = []
        self._make: Any = None
        self._quiet = contextlib.ExitStack()

    def __enter__(self) -> StepHooks:
        from torch.nn.modules import module
        from torch.optim import Optimizer

        self._quiet.enter_context(quiet_global_hooks())
        self._handles = [
            module.register_module_forward_pre_hook(self._before_forward),
            module.register_module_forward_hook(self._after_forward, always_call=True),
        ]
        self._make = make = Optimizer.__init__

        @functools.wraps(make)
        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            make(optimizer, *arguments, **keywords)
            self._watch(optimizer)

        Optimizer.__init__ = made  # type: ignore[method-assign, assignment]
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        from torch.optim import Optimizer

        self._on = False
        Optimizer.__init__ = self._make  # type: ignore[method-assign]
        for handle in self._handles:
            handle.remove()
        self._quiet.close()

    def _watch(self, optimizer: Any) -> None:
        """Be told when ``optimizer`` has stepped.

        Not by torch's own post hook: that one runs inside the profiler's range ``Optimizer.step``, and a profiler that is stopped in
        an open range leaves a pointer to freed memory behind.
        """
        self._trains = True

        @functools.wraps(type(optimizer).step)
        def step(this: Any, *arguments: Any, **keywords: Any) -> Any:
            self._optimizer_depth += 1
            try:
                result = type(this).step(this, *arguments, **keywords)
            finally:
                self._optimizer_depth -= 1
            if self._optimizer_depth == 0 and self._watched():  # one optimizer may be made of others
                self._on_step("training")
            return result

        # A bound method, as learning-rate schedulers expect, which wrap it once more.
        optimizer.step = types.MethodType(step, optimizer)

    def _before_forward(self, *_: Any) -> None:
        if self._watched():
            self._depth += 1

    def _after_forward(self, *_: Any) -> None:
        import torch

        if self._watched():
            self._depth = max(0, self._depth - 1)
            if self._depth == 0 and not self._trains and not torch.is_grad_enabled():
                self._on_step("inference")

    def _watched(self) -> bool:
        import torch

        return self._on and not torch.compiler.is_compiling() and _here() == self._owner


def _here() -> tuple[int, int]:
    """This process and thread: a forked child's main thread has the same identifier as ours."""
    return os.getpid(), threading.get_ident()


def collect_script(script: Path, arguments: list[str], recording: Recording, device: Any, *, to_end: bool) -> Run:
    """Run ``script`` with ``arguments`` as its own command line under ``recording``.

    The script is stopped once everything is recorded, unless ``to_end``. Its exceptions come back as WorkloadError with the original
    as ``__cause__``; what had been recorded is on disk.
    """

    stepped = False

    def on_step(mode: Mode) -> None:
        nonlocal stepped
        if recording.loading.is_under_way:  # a module among the transforms of a data set
            return
        stepped = True
        if mode != recording.workload.mode:
            recording.workload = msgspec.structs.replace(recording.workload, mode=mode)
        if not recording.done:
            recording.step()
        if recording.done and not to_end:
            # The script ends here, while its data is still there: what is asked of its loader now, it will not miss.
            if recording.loading.resident_step():
                return
            recording.loading.run_loader_alone(ends=True)
            raise _Enough

    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with recording, StepHooks(on_step):
            try:
                runpy.run_path(str(script), run_name="__main__")
            except _Enough:
                pass
            except SystemExit as ending:
                if ending.code not in (None, 0) and not recording.loading.is_resident:
                    raise
            except Exception as error:
                if not recording.loading.is_resident:
                    raise
                recording.loading.end_resident_steps(error)  # everything is recorded, and to its own data it did not object
            if recording.loading.is_resident:
                recording.loading.end_resident_steps()
            if not stepped:
                raise WorkloadError(
                    f"the script {str(script)!r} ended without a step: no optimizer stepped, no module was called with gradients off.",
                    hint="Mark its steps yourself: with rooflines.record() as r: ... r.step()",
                )
    except KeyboardInterrupt:
        raise interrupted(recording.directory) from None
    except SystemExit as ending:
        how = f"exited with {ending.code!r}" if isinstance(ending.code, int) else f"exited: {ending.code}"
        raise WorkloadError(
            f"the script {str(script)!r} {how}.", hint=f"What was recorded before is in {str(recording.directory)!r}."
        ) from ending
    except RooflinesError:
        raise  # as it is, with its own cause
    except Exception as error:
        raise user_error(error, f"the script {str(script)!r}", recording, device) from error
    finally:
        sys.argv, sys.path[:] = argv, path
    assert recording.run is not None
    return recording.run
