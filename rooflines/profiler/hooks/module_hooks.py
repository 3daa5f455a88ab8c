"""Hooks on every forward that write the running module into the trace as a range.

The hooks are *global* ones. Hooks on the modules themselves would change what is measured: a
``TransformerEncoderLayer`` whose children carry hooks leaves its fused fast path. Global hooks do not, they
cover modules that are made during the run, and they are taken off in one place.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.replaced import replaced
from rooflines.profiler.read.work_ranges import profiler_range
from rooflines.profiler.tree.tree import module_annotation

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


class ModuleWatch:
    """Context manager: while it is open, ``entered`` and ``left`` are called around every module's forward,
    on the thread that runs it.

    Paths are those of ``named_modules()`` of the first outermost module with parameters or parts; those of
    other ones (a second network, a loss, a transform) begin with their class. A module reached otherwise is
    named by its class. Calls that ``torch.compile`` or ``torch.jit.trace`` is tracing are left alone. In a
    program of the user's, ``guard`` is for what goes wrong at a module.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        import torch

        about: Callable[[Any], Any] = guard.about if guard is not None else lambda ours: ours
        self._opening, self._closing = about(self._entering), about(self._leaving)
        # torch.jit.trace would write the ranges into what it makes.
        self._is_compiling: Callable[[], bool] = lambda: (
            torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
        )
        # What ``entered`` returned for the modules that each thread runs, outermost first.
        self._stacks: defaultdict[int, list[Any]] = defaultdict(list)
        # A range that another thread opens or closes while a session of the profiler ends would outlive it.
        self._lock, self._is_over = threading.RLock(), False
        self._named: dict[int, tuple[Callable[[], torch.nn.Module | None], str]] = {}
        self._around = contextlib.ExitStack()

    @property
    def names(self) -> dict[int, str]:
        """The path of every module found so far, by its ``id``."""
        return {identity: name for identity, (_, name) in self._named.items()}

    def entered(self, path: str, kind: str) -> Any:
        """A forward begins; what this returns is given to ``left``."""

    def left(self, token: Any) -> None:
        """The forward that ``entered`` returned ``token`` for has ended."""

    def found_root(self, module: torch.nn.Module) -> None:
        """A module is called from outside of all modules for the first time."""

    def __enter__(self) -> Self:
        self._is_over = False
        self._around.enter_context(global_hooks(self.before, self.after))
        return self

    def __exit__(self, *_: object) -> None:
        self._around.close()
        self.leave_all()

    def leave_all(self) -> None:
        """Leave what is open on all threads: Ctrl-C in a forward skips the hooks that would have done it."""
        with self._lock:
            self._is_over = True
            for is_open in [*self._stacks.values()]:  # other threads may begin modules
                while is_open:
                    self.left(is_open.pop())

    def before(self, module: torch.nn.Module, _: Any) -> None:
        """A module's forward begins."""
        if not self._is_compiling():  # first: compiled code must not depend on our state
            self._opening(module)

    def _entering(self, module: torch.nn.Module) -> None:
        # What torch.compile wraps keeps its name. A module takes a microsecond to say that it lacks an
        # attribute, and the parts of a scripted one are no dict.
        parts: Any = module._modules
        module = parts["_orig_mod"] if "_orig_mod" in parts else module  # noqa: SIM401
        kind = type(module).__name__
        is_open = self._stacks[threading.get_ident()]
        if not is_open and self._name(module) is None:
            is_network = any(True for _ in itertools.chain(module.parameters(), module.children()))
            used = {name for _, name in self._named.values()}
            above = "" if is_network and "" not in used else kind
            number = 1
            while above in used:
                number += 1
                above = f"{kind}-{number}"
            for path, child in module.named_modules():
                inside = path.replace("_orig_mod.", "").removesuffix("_orig_mod").rstrip(".")
                if self._name(child) is None:
                    self._named[id(child)] = weakref.ref(child), f"{above}.{inside}".strip(".")
            self.found_root(module)
        name = self._name(module)
        with self._lock:
            if not self._is_over:
                is_open.append(self.entered(kind if name is None else name, kind))

    def _name(self, module: torch.nn.Module) -> str | None:
        """The path of the module; None where it has none yet, or another one had its ``id``."""
        found, name = self._named.get(id(module), (lambda: None, ""))
        return name if found() is module else None

    def after(self, module: torch.nn.Module, *_: object) -> None:
        """A module's forward has ended."""
        if not self._is_compiling():
            self._closing(module)

    def _leaving(self, _: torch.nn.Module) -> None:
        with self._lock:
            if is_open := self._stacks[threading.get_ident()]:
                self.left(is_open.pop())


class ModuleRanges(ModuleWatch):
    """While it is open, every module's forward is a range ``nn.Module: path (Type)`` in the profiler's
    trace."""

    def entered(self, path: str, kind: str) -> Any:
        """Open the range."""
        span = profiler_range(module_annotation(path, kind))
        span.__enter__()
        return span

    def left(self, token: Any) -> None:
        """Close it."""
        # What was opened on an untraced thread is not open: torch refuses to close it on another one.
        with contextlib.suppress(RuntimeError):
            token.__exit__(None, None, None)


def range_cost_ns() -> float:
    """Measure how long the range of a module takes the host, the profiler being off: the difference of the
    least of five means.

    A program that has hooks of its own pays for calling hooks in its timed steps, too, and is not to see
    these calls.
    """
    import torch
    from torch.nn.modules import module as hooks

    ranges, module, calls = ModuleRanges(), torch.nn.Identity(), 20

    def least_ns(call: Callable[[], object]) -> float:
        def mean_ns() -> float:
            began = time.perf_counter_ns()
            for _ in range(calls):
                call()
            return (time.perf_counter_ns() - began) / calls

        return min(mean_ns() for _ in range(5))

    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:

        def both() -> None:
            ranges.before(module, None)
            ranges.after(module)

        return least_ns(both)
    bare_ns = least_ns(lambda: module(None))
    with ranges:
        return max(0.0, least_ns(lambda: module(None)) - bare_ns)


@contextlib.contextmanager
def global_hooks(
    before: Callable[[Any, Any], None], after: Callable[[Any, Any, Any], None]
) -> Iterator[None]:
    """Inside, ``before`` is called before every module's forward and ``after`` when it has ended, also by an
    exception.

    torch warns that global hooks see a compiled module as a separate call, which a recording handles: it is
    asked for others only.
    """
    from torch.nn.modules import module

    called_before = module.register_module_forward_pre_hook(before)
    called_after = module.register_module_forward_hook(after, always_call=True)
    tables: Any = [
        getattr(module, f"_global_{kind}_hooks", {})
        for kind in ("backward_pre", "backward", "forward_pre", "forward")
    ]

    def has_others() -> bool:
        return any(hook not in _OURS for table in tables for hook in table.values())

    _OURS.extend((before, after))
    try:
        with called_before, called_after, replaced("_has_any_global_hook", lambda _: has_others, module):
            yield
    finally:
        _OURS.remove(before)
        _OURS.remove(after)


_OURS: list[Callable[..., object]] = []
