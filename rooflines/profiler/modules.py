"""Module names in the trace: a range around every module's forward.

The ranges come from *global* module hooks. Hooks on the modules themselves would change what is measured: a
``TransformerEncoderLayer`` whose children carry hooks leaves its fused fast path. Global hooks do not, they cover modules that are
made during the run, and they are taken off in one place.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rooflines.profiler.trace.calls import module_annotation

if TYPE_CHECKING:
    import torch


class ModuleRanges:
    """Context manager: while it is open, every module's forward is a range ``nn.Module: path (Type)`` in the profiler's trace.

    Paths are those of ``named_modules()`` of the outermost module called; a module reached otherwise is named by its class. Calls
    that ``torch.compile`` is tracing are left alone.
    """

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._threads = _Threads()
        self._names: dict[int, str] = {}
        self._roots: dict[int, Any] = {}
        self._quiet = contextlib.ExitStack()

    def __enter__(self) -> ModuleRanges:
        from torch.nn.modules import module

        self._quiet.enter_context(quiet_global_hooks())
        self._handles = [
            module.register_module_forward_pre_hook(self._before),
            module.register_module_forward_hook(self._after, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._quiet.close()
        # Ctrl-C in a forward skips the hooks that would have closed these; other threads close their own.
        while self._threads.open:
            self._threads.open.pop().__exit__(None, None, None)

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            return
        module = getattr(module, "_orig_mod", module)  # what torch.compile wraps keeps its name
        if not self._threads.open and id(module) not in self._roots:
            # The module itself is kept, so that its id cannot be given to another one meanwhile.
            self._roots[id(module)] = module
            for path, child in module.named_modules():
                self._names.setdefault(id(child), path)
        kind = type(module).__name__
        span = _range(module_annotation(self._names.get(id(module), kind), kind))
        span.__enter__()
        self._threads.open.append(span)

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        import torch

        if not torch.compiler.is_compiling() and self._threads.open:
            self._threads.open.pop().__exit__(None, None, None)


@contextlib.contextmanager
def quiet_global_hooks() -> Iterator[None]:
    """No warning of torch that global hooks see a compiled module as a call of its own: that is reckoned with."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        yield


class _Threads(threading.local):
    """The ranges that this thread has open, outermost first."""

    def __init__(self) -> None:
        self.open: list[Any] = []


def _range(name: str) -> Any:
    """A profiler range; the one written in C++ costs a tenth of the Python one and exists in every torch we support on Linux."""
    import torch

    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    return fast(name) if fast is not None else torch.profiler.record_function(name)
