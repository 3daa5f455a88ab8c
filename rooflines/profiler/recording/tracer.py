"""torch.profiler over a few steps, written as the trace that PyTorch's own tools open."""

from __future__ import annotations

import errno
import gzip
import mmap
import os
import shutil
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rooflines.errors import OutputError
from rooflines.profiler.module_hooks import ModuleRanges
from rooflines.profiler.recording.process_memory import page_faults, since
from rooflines.profiler.recording.run_queue import RunQueue
from rooflines.profiler.trace.records import STEP_PREFIX
from rooflines.profiler.trace.stored_call import LOSSY

if TYPE_CHECKING:
    import torch

_CHUNK: Final = 1 << 22


class Tracer:
    """torch.profiler over a few steps, each in a range ``ProfilerStep#N`` that ends after a synchronise.

    ``modules`` writes the modules into the trace; None leaves them out. ``has_operators`` is known once the trace is written.
    ``cuda`` traces work of GPUs, too, wherever it runs; ``device`` gives the device to wait for when the profiler stops.
    """

    def __init__(self, device: Callable[[], torch.device], *, cuda: bool, steps: int, modules: ModuleRanges | None) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if cuda:
            activities.append(ProfilerActivity.CUDA)
        self._device = device
        self.has_operators = False
        self.times_ns: list[int] = []
        self.queue_ns: list[int | None] = []
        self._queue = RunQueue()
        self._steps = steps
        self._profiler: Any = profile(
            activities=activities, record_shapes=True, profile_memory=True, experimental_config=_without_events()
        )
        self._modules = modules
        self._optimizers: dict[int, int] = {}
        self._stepped: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._hook: Any = None
        self._range: Any = None
        self._unfinished = ""
        self._running = False
        self._last = 0
        self.page_faults: int | None = None
        self.step_faults: list[int | None] = []
        self._faults: int | None = None
        self._step_faults: int | None = None

    @property
    def parameter_elements(self) -> int | None:
        """Elements of the parameters that the optimizers of a step update together; None when none stepped."""
        return sum(self._optimizers.values()) or None

    @property
    def placed_elements(self) -> dict[str, int]:
        """Elements of the parameters that the optimizers of a step are for, by the device they are on."""
        placed: Counter[str] = Counter()
        for optimizer in filter(None, (one() for one in self._stepped.values())):
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

        with warnings.catch_warnings():  # torch 2.11 warns that a second trace drops the events of the first, which is in its file
            warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
            self._profiler.start()
        self._running = True
        if self._modules is not None:
            self._modules.__enter__()
        self._hook = register_optimizer_step_post_hook(self._after_optimizer)
        self._faults = page_faults()
        self._queue.watch()
        self._open_step()

    def step(self) -> bool:
        """End a step; True when it was the last one, or the tracer has been stopped (the profiler is off then)."""
        if self._range is None:
            return True
        self.times_ns.append(time.perf_counter_ns() - self._last)
        self.queue_ns.append(self._queue.since_ns())
        self.step_faults.append(since(self._step_faults))
        self._range.__exit__(None, None, None)
        self._range = None
        if len(self.times_ns) >= self._steps:
            self.stop()
            return True
        self._open_step()
        return False

    def write(self, path: Path) -> int:
        """Write the trace, gzipped, to ``path``, whole or not at all; returns its uncompressed size in bytes."""
        # On a full disk the profiler leaves a file that ends short, or none, without an error; gzip, which we write ourselves, has one.
        plain, packed = path.with_name(f".{path.name}.json"), path.with_name(f".{path.name}.gz")
        try:
            self._profiler.export_chrome_trace(str(plain))
            if path.parent.is_dir() and not _ends_whole(plain):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = plain.stat().st_size
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
                with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as text:
                    self.has_operators = text.find(b'"cpu_op"') >= 0
                if self._unfinished:  # its range is not a step; this is rare enough to hold the trace in memory
                    target.write(source.read().replace(f'"{self._unfinished}"'.encode(), b'"unfinished step"'))
                else:
                    shutil.copyfileobj(source, target)
            os.replace(packed, path)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"cannot write the trace {str(path)!r}: {reason}.", hint="Check that the disk is not full.") from None
        finally:
            for file in path.parent.glob(f".{path.name}.*"):  # Kineto writes a temporary file next to the one it is given
                file.unlink(missing_ok=True)
        return size

    def _open_step(self) -> None:
        from torch.profiler import record_function

        self._range = record_function(f"{STEP_PREFIX}{len(self.times_ns)}")
        self._range.__enter__()
        self._step_faults = page_faults()
        self._queue.mark()
        self._last = time.perf_counter_ns()

    def stop(self, *, keep_step: bool = False) -> None:
        """Profiler and hooks off; a step that has not ended is not counted, unless ``keep_step`` ends it here."""
        if self._range is not None and keep_step:
            self._steps = len(self.times_ns) + 1
            self.step()
        if self._range is not None:
            self._unfinished = f"{STEP_PREFIX}{len(self.times_ns)}"
            self._range.__exit__(None, None, None)
            self._range = None
        if self._running:
            self._running = False
            self.page_faults = since(self._faults)
            self._queue.close()
            self._hook.remove()
            if self._modules is not None:
                self._modules.__exit__()
            self._stop_profiler()

    def _stop_profiler(self) -> None:
        """Stop the profiler. Its wait for torch's current GPU would open a context there: it waits for the device, or not at all."""
        import torch

        device = self._device()
        if device.type != "cuda":
            self._profiler.profiler.use_device = None
            self._profiler.stop()
            return
        with torch.cuda.device(device):
            self._profiler.stop()

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizers[id(optimizer)] = sum(p.numel() for p in _parameters(optimizer) if p.grad is not None)
        self._stepped[id(optimizer)] = weakref.ref(optimizer)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _without_events() -> Any:
    """The profiler's setting that keeps it from making Python objects of all events, which takes longer than the steps."""
    import torch

    try:
        return torch._C._profiler._ExperimentalConfig(trace_only=True)
    except TypeError:  # before torch 2.12
        return None


def _ends_whole(trace: Path) -> bool:
    """Whether there is a Chrome JSON file ``trace`` that ends with the brace that closes it."""
    if not trace.is_file():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def leaves_out_arguments(trace: Path) -> bool:
    """Whether the trace holds a call of one of the ``LOSSY`` operators."""
    marks = [f'"name": "{name}'.encode() for name in LOSSY]
    kept = max(map(len, marks))
    tail = b""
    with gzip.open(trace, "rb") as file:
        while chunk := file.read(_CHUNK):
            window = tail + chunk
            if any(mark in window for mark in marks):
                return True
            tail = window[-kept:]
    return False
