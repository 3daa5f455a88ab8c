"""Recording a script that knows nothing of us: its steps are told from outside.

A training step ends with ``optimizer.step()``; in a script that never steps an optimizer, an inference step ends when an outermost
module's forward returns with gradients off. Both are seen through torch's global hooks.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import WorkloadError
from rooflines.profiler.collect import Recording, interrupted, user_error
from rooflines.profiler.records import Mode, Run


class _Enough(BaseException):
    """Everything is recorded: unwind the script. Not an Exception, so that the script's own handlers let it pass."""


class StepHooks:
    """Context manager that calls ``on_step(mode)`` whenever a step of the running program ends.

    Only the thread that entered it is watched: forked workers of a data loader inherit the hooks, and other threads have steps of
    their own.
    """

    def __init__(self, on_step: Callable[[Mode], None]) -> None:
        self._on_step = on_step
        self._owner = _here()
        self._depth = 0
        self._trains = False
        self._handles: list[Any] = []

    def __enter__(self) -> StepHooks:
        from torch.nn.modules import module
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handles = [
            register_optimizer_step_post_hook(self._after_optimizer),
            module.register_module_forward_pre_hook(self._before_forward),
            module.register_module_forward_hook(self._after_forward, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _after_optimizer(self, *_: Any) -> None:
        if self._watched():
            self._trains = True
            self._on_step("training")

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

        return not torch.compiler.is_compiling() and _here() == self._owner


def _here() -> tuple[int, int]:
    """This process and thread: a forked child's main thread has the same identifier as ours."""
    return os.getpid(), threading.get_ident()


def collect_script(script: Path, arguments: list[str], recording: Recording, device: Any, *, to_end: bool) -> Run:
    """Run ``script`` with ``arguments`` as its own command line under ``recording``.

    The script is stopped once everything is recorded, unless ``to_end``. Its exceptions come back as WorkloadError with the original
    as ``__cause__``; what had been recorded is on disk.
    """

    def on_step(mode: Mode) -> None:
        if mode != recording.workload.mode:
            recording.workload = msgspec.structs.replace(recording.workload, mode=mode)
        if not recording.done:
            recording.step()
        if recording.done and not to_end:
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
                if ending.code not in (None, 0):
                    raise
    except KeyboardInterrupt:
        raise interrupted(recording.directory) from None
    except SystemExit as ending:
        how = f"exited with {ending.code!r}" if isinstance(ending.code, int) else f"exited: {ending.code}"
        raise WorkloadError(
            f"the script {str(script)!r} {how}.", hint=f"What was recorded before is in {str(recording.directory)!r}."
        ) from ending
    except Exception as error:
        raise user_error(error, f"the script {str(script)!r}", recording, device) from error
    finally:
        sys.argv, sys.path[:] = argv, path
    assert recording.run is not None
    return recording.run
