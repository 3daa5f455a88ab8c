"""Recording a script that knows nothing of us: its steps are told from outside.

A training step ends with ``optimizer.step()``; in a script that never steps an optimizer, an inference step ends when an outermost
module's forward returns with gradients off. Both are seen through torch's global hooks.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import Interrupted, WorkloadError
from rooflines.profiler.collect import Recording, memory_shortage
from rooflines.profiler.records import Run, Workload


class _Enough(BaseException):
    """Everything is recorded: unwind the script. Not an Exception, so that the script's own handlers let it pass."""


class StepHooks:
    """Context manager that calls ``on_step(mode)`` whenever a step of the running program ends."""

    def __init__(self, on_step: Callable[[str], None]) -> None:
        self._on_step = on_step
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
        self._trains = True
        self._on_step("training")

    def _before_forward(self, *_: Any) -> None:
        self._depth += 1

    def _after_forward(self, *_: Any) -> None:
        import torch

        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._trains and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._on_step("inference")


def collect_script(script: Path, arguments: list[str], recording: Recording, workload: Workload, device: Any, *, to_end: bool) -> Run:
    """Run ``script`` with ``arguments`` as its own command line under ``recording``.

    The script is stopped once everything is recorded, unless ``to_end``. Its exceptions come back as WorkloadError with the original
    as ``__cause__``; what had been recorded is on disk.
    """

    def on_step(mode: str) -> None:
        if mode != recording.workload.mode:
            recording.workload = msgspec.structs.replace(recording.workload, mode=mode)  # type: ignore[arg-type]
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
            except (_Enough, SystemExit) as ending:
                if isinstance(ending, SystemExit) and ending.code not in (None, 0):
                    raise WorkloadError(f"the script {str(script)!r} exited with {ending.code!r}.") from ending
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the partial run is in {str(recording.directory)!r}.") from None
    except WorkloadError:
        raise
    except Exception as error:
        shortage = memory_shortage(error, workload, device)
        if shortage is not None:
            raise shortage from error
        raise WorkloadError(
            f"the script {str(script)!r} raised {type(error).__name__}: {error}",
            hint=f"What was recorded before is in {str(recording.directory)!r}.",
        ) from error
    finally:
        sys.argv, sys.path[:] = argv, path
    assert recording.run is not None
    return recording.run
