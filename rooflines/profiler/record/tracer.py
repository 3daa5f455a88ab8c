"""torch.profiler over a few steps, written as the trace that PyTorch's own tools open; and a bound for traces
of unknown length.

torch's profiler keeps every operator in memory and cannot say how many there are. What it keeps are small
blocks of the C heap, a few kilobytes an operator, so the growth of that heap bounds their number; large
tensors are not part of it.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import gzip
import mmap
import os
import re
import shutil
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from rooflines.errors import OutputError
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.module_hooks import ModuleRanges
from rooflines.profiler.hooks.replaced import replaced
from rooflines.profiler.read.records import STEP_PREFIX
from rooflines.profiler.read.signature import LOSSY
from rooflines.profiler.record.own_profilers import OURS, own_session
from rooflines.profiler.record.process import RunQueue, page_faults, since
from rooflines.profiler.record.torch_logs import quiet_logs, quiet_start

if TYPE_CHECKING:
    import torch


# About 40,000 operators, at 2.5 kB each: a second or two to write, some 150 MB of JSON.
HEAP_LIMIT_BYTES = 100 << 20
# Where the heap cannot be asked, a trace ends after this time: tens of thousands of operators a second are
# usual.
BLIND_LIMIT_S = 5.0
_PERIOD_S = 0.1
# Ignored by default, so that a run without a handler is not disturbed.
_SIGNAL = getattr(signal, "SIGURG", None)
_ALL_THREADS = "profile_all_threads"


# Ranges of ours are written as operators.
_OPERATOR = re.compile(rb'"cpu_op",\s*"name": "(?!rooflines\.)')


class TraceBound:
    """Calls ``stop`` once the C heap has grown by ``HEAP_LIMIT_BYTES`` since ``start``; ``reached`` says
    whether.

    A profiler of all threads may be stopped ``on_any_thread``; another one only on the thread that started
    it, which a signal interrupts. On another thread than the main one, or where Python cannot interrupt that,
    nothing is bounded and ``possible`` is False: do not trace there without knowing that the trace ends.
    """

    def __init__(self, stop: Callable[[], object], *, on_any_thread: bool = False) -> None:
        self.reached = False
        self.possible = on_any_thread or (
            _SIGNAL is not None and threading.current_thread() is threading.main_thread()
        )
        self._on_any_thread = on_any_thread
        self._stop = stop
        self._over = threading.Event()
        self._before: Any = None

    def start(self) -> None:
        """Watch from here on."""
        if not self._on_any_thread:
            assert _SIGNAL is not None
            self._before = signal.signal(_SIGNAL, self._on_limit)
        # Not a threading.Thread: the program would see it in threading.enumerate().
        _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """Stop watching."""
        if not self._over.is_set():
            self._over.set()
            ours = signal.getsignal(_SIGNAL) == self._on_limit  # type: ignore[arg-type]
            if self._before is not None and ours:
                signal.signal(_SIGNAL, self._before)  # type: ignore[arg-type]

    def _watch(self) -> None:
        heap, began = heap_bytes(), time.monotonic()
        while not self._over.wait(_PERIOD_S):
            now = heap_bytes()
            too_long = heap is None and time.monotonic() - began > BLIND_LIMIT_S
            if too_long or (heap is not None and now is not None and now - heap > HEAP_LIMIT_BYTES):
                if self._on_any_thread:
                    self._on_limit()
                else:
                    _thread.interrupt_main(_SIGNAL)  # type: ignore[arg-type]
                return

    def _on_limit(self, *_: object) -> None:
        if not self._over.is_set():
            self.stop()
            self.reached = True
            self._stop()


def heap_bytes() -> int | None:
    """The bytes in use in the C heap, without blocks so large that they are mapped by themselves; None
    without glibc and psutil 7.2."""
    ask: Any = getattr(psutil, "heap_info", None)
    return int(ask().heap_used) if ask is not None and sys.platform == "linux" else None


@dataclass
class TracedSteps:
    """What a tracer measured besides its trace, step by step."""

    #: Time of each step.
    times_ns: list[int] = field(default_factory=list)
    #: How long threads waited for a processor in each step.
    queue_ns: list[int | None] = field(default_factory=list)
    #: Pages that each step took from the system.
    step_faults: list[int | None] = field(default_factory=list)
    #: Pages that all steps took.
    page_faults: int | None = None
    #: Elements of parameters that the optimizers of a step updated.
    parameter_elements: int | None = None
    kind: Literal["steps", "early", "program"] = "steps"
    #: Whether the trace has operators, known once it is written.
    has_operators: bool = False
    #: Whether it has the operators of every thread.
    all_threads: bool = False
    #: Whether it has operators that traces do not hold whole (``LOSSY``), known once it is written.
    lack_arguments: bool = False


class Tracer:
    """torch.profiler over a few steps, each in a range ``ProfilerStep#N`` that ends after a synchronize.

    ``modules`` writes the modules into the trace; None leaves them out. Steps that are not ``marked`` have no
    range. ``cuda`` traces work of GPUs, too, wherever it runs; ``device`` gives the device to wait for when
    the profiler stops. ``all_threads`` traces the operators of every thread, where this version of torch can
    (2.7), else those of the thread that starts it, which alone may stop it then. ``guard`` is for our hook on
    optimizers.
    """

    def __init__(
        self,
        device: Callable[[], torch.device],
        *,
        cuda: bool,
        steps: int,
        modules: ModuleRanges | None,
        marked: bool = True,
        all_threads: bool = False,
        guard: Guard,
    ) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if cuda:
            activities.append(ProfilerActivity.CUDA)
        self.traced = TracedSteps()
        self._device = device
        self._queue = RunQueue()
        self._steps = steps
        self.traced.all_threads = all_threads and _has_setting(_ALL_THREADS)
        self._profiler: Any = profile(
            activities=activities,
            record_shapes=True,
            profile_memory=True,
            experimental_config=_settings(self.traced.all_threads),
        )
        OURS.add(self._profiler)
        self._modules = modules
        self._on_optimizer = guard.about(self._after_optimizer)
        self._marked = marked
        self._one_at_a_time = threading.RLock()
        self._optimizers: dict[int, int] = {}
        self._stepped: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._open = contextlib.ExitStack()
        self._quiet = contextlib.ExitStack()
        self._range: Any = None
        self._unfinished = ""
        self._running = False
        self._last = 0
        self._faults: int | None = None
        self._step_faults: int | None = None

    @property
    def is_bound(self) -> bool:
        """Whether only the thread that started it may stop it."""
        return self._running and not self.traced.all_threads

    @property
    def placed_elements(self) -> dict[str, int]:
        """Elements of the parameters that the optimizers of a step are for, by the device they are on."""
        placed: Counter[str] = Counter()
        for optimizer in filter(None, (reference() for reference in self._stepped.values())):
            for parameter in _parameters(optimizer):
                placed[str(parameter.device)] += parameter.numel()
        return dict(placed)

    @property
    def module_names(self) -> dict[int, str]:
        """The path of every module that was named, by its ``id``."""
        return self._modules.names if self._modules is not None else {}

    def start(self) -> None:
        """Profiler and hooks on."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        # else torch 2.11 warns that a second trace drops the events of the first, which is in its file
        self._profiler.profiler = None
        with own_session(), quiet_logs() as quiet, quiet_start(), _inductor_unloaded():
            self._profiler.start()
            self._quiet = quiet.pop_all()
        self._running = True
        self._open.enter_context(_open_ranges_ended())
        if self._modules is not None:
            self._open.enter_context(self._modules)
        self._open.callback(register_optimizer_step_post_hook(self._on_optimizer).remove)
        self._faults = page_faults()
        self._queue.watch()
        self._open_step()

    def step(self) -> bool:
        """End a step; True when it was the last one, or the tracer has been stopped (the profiler is off
        then)."""
        with self._one_at_a_time:
            if self._range is None:
                return True
            self.traced.times_ns.append(time.perf_counter_ns() - self._last)
            self.traced.queue_ns.append(self._queue.since_ns())
            self.traced.step_faults.append(since(self._step_faults))
            self._close_step()
            if len(self.traced.times_ns) >= self._steps:
                self.stop()
                return True
            self._open_step()
            return False

    def write(self, path: Path) -> int:
        """Write the trace, gzipped, to ``path``, whole or not at all; returns its uncompressed size in
        bytes."""
        # On a full disk the profiler leaves a file that ends short, or none, without an error; gzip, which we
        # write ourselves, has one.
        plain, packed = path.with_name(f".{path.name}.json"), path.with_name(f".{path.name}.gz")
        try:
            with own_session(), quiet_logs():
                self._profiler.export_chrome_trace(str(plain))
            if path.parent.is_dir() and not _ends_whole(plain):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = plain.stat().st_size
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
                with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as text:
                    self.traced.has_operators = _OPERATOR.search(text) is not None
                    self.traced.lack_arguments = any(
                        text.find(f'"name": "{name}'.encode()) >= 0 for name in LOSSY
                    )
                if (
                    self._unfinished
                ):  # its range is not a step; this is rare enough to hold the trace in memory
                    target.write(
                        source.read().replace(f'"{self._unfinished}"'.encode(), b'"unfinished step"')
                    )
                else:
                    shutil.copyfileobj(source, target)
            os.replace(packed, path)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(
                f"cannot write the trace {str(path)!r}: {reason}.", hint="Check that the disk is not full."
            ) from None
        finally:
            for file in path.parent.glob(
                f".{path.name}.*"
            ):  # Kineto writes a temporary file next to the one it is given
                file.unlink(missing_ok=True)
        return size

    def _open_step(self) -> None:
        from torch.profiler import record_function

        step = f"{STEP_PREFIX}{len(self.traced.times_ns)}"
        self._range = record_function(step) if self._marked else contextlib.nullcontext()
        with _unseen():
            self._range.__enter__()
        self._step_faults = page_faults()
        self._queue.mark()
        self._last = time.perf_counter_ns()

    def _close_step(self) -> None:
        with _unseen():
            self._range.__exit__(None, None, None)
        self._range = None

    def stop(self, *, keep_step: bool = False) -> None:
        """Profiler and hooks off; a step that has not ended is not counted, unless ``keep_step`` ends it
        here."""
        with self._one_at_a_time:
            if self._range is not None and keep_step:
                self._steps = len(self.traced.times_ns) + 1
                self.step()
            if self._range is not None:
                self._unfinished = f"{STEP_PREFIX}{len(self.traced.times_ns)}"
                self._close_step()
            if self._running:
                self._running = False
                self.traced.page_faults = since(self._faults)
                self.traced.parameter_elements = sum(self._optimizers.values()) or None
                self._queue.close()
                self._open.close()
                with own_session(), self._quiet:
                    self._stop_profiler()

    def _stop_profiler(self) -> None:
        """Stop the profiler. Its wait for torch's current GPU would open a context there: it waits for the
        device, or not at all."""
        import torch

        device = self._device()
        if device.type != "cuda":
            self._profiler.profiler.use_device = None
            self._profiler.stop()
            return
        with torch.cuda.device(device):
            self._profiler.stop()

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        with _unseen():
            self._optimizers[id(optimizer)] = sum(
                p.numel() for p in _parameters(optimizer) if p.grad is not None
            )
        self._stepped[id(optimizer)] = weakref.ref(optimizer)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _settings(all_threads: bool) -> Any:
    """The profiler's settings: no Python objects of events, which take longer to make than the steps, which
    threads, and the streams that work and threads wait for."""
    import torch

    # from torch 2.12, 2.7 and 2.1 on
    wanted: dict[str, Any] = {"trace_only": True, _ALL_THREADS: all_threads, "enable_cuda_sync_events": True}
    return torch._C._profiler._ExperimentalConfig(
        **{name: value for name, value in wanted.items() if _has_setting(name)}
    )


def _has_setting(name: str) -> bool:
    import torch

    return f"{name}: bool" in (torch._C._profiler._ExperimentalConfig.__init__.__doc__ or "")


@contextlib.contextmanager
def _inductor_unloaded() -> Iterator[None]:
    """Inside, what asks torch for Inductor on this thread does not load it: the profiler does, which takes
    seconds and, by SymPy's filters, has Python write warnings of the program once where it writes them
    twice."""
    import torch

    class Names(set[str]):
        def __contains__(self, name: object) -> bool:
            return super().__contains__(name) and (name != "_inductor" or threading.get_ident() != thread)

    thread = threading.get_ident()
    with (
        contextlib.nullcontext()
        if "torch._inductor" in sys.modules
        else replaced("_lazy_modules", Names, torch)
    ):
        yield


@contextlib.contextmanager
def _open_ranges_ended() -> Iterator[None]:
    """The program's ``record_function`` ranges that begin inside end inside; when it ends one itself later,
    nothing happens.

    A range that begins in one session of the profiler and ends in a later one writes into freed memory. They
    are followed, because ``gc.get_objects`` breaks tuples that other threads are just making.
    """
    import torch
    from torch.autograd.profiler import record_function

    opened, lock, owner, is_over = dict[int, Any](), threading.RLock(), os.getpid(), False
    enter: Any = record_function.__enter__
    leave: Any = record_function.__exit__

    @functools.wraps(enter)
    def entered(span: Any) -> Any:
        if os.getpid() != owner:  # forked while another thread had the lock, perhaps
            return enter(span)
        with lock:
            result = enter(span)
            if not is_over:
                opened[id(span)] = span
        return result

    @functools.wraps(leave)
    def left(span: Any, *error: Any) -> Any:
        if os.getpid() != owner:
            return leave(span, *error)
        with lock:
            opened.pop(id(span), None)
            return leave(span, *error)

    try:
        with (
            replaced("__enter__", lambda _: entered, record_function),
            replaced("__exit__", lambda _: left, record_function),
        ):
            yield
    finally:
        with lock, _unseen():
            is_over = True
            for span in opened.values():
                if span.record is not None:
                    torch.ops.profiler._record_function_exit._RecordFunction(span.record)


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Inside, the program's own modes do not see what we call."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    without: Any = torch._C.DisableTorchFunction
    with without(), _disable_current_modes():
        yield


def _ends_whole(trace: Path) -> bool:
    """Whether there is a Chrome JSON file ``trace`` that ends with the brace that closes it."""
    if not trace.is_file():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")
