"""Samplers in a process of their own, so that they neither take the interpreter lock of the measured run nor
bend its times."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import psutil

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.installed import entries
from rooflines.profiler.samplers.clock import epoch_ns
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.host import runs
from rooflines.profiler.samplers.storage import Journal, Order, read_journal

if TYPE_CHECKING:
    import torch

# The longest period: nothing samples more slowly, and timers refuse much longer ones.
LONGEST_PERIOD_S = 3600.0
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 2.0


class SamplerProcess:
    """Device samples of the process ``pid``, taken every ``period_s`` seconds.

    ::

        with SamplerProcess(os.getpid(), directory / "samples.jsonl", gpus={}) as sampler:
            train()
        sampler.samples(), sampler.problem

    ``path`` is the file of JSON lines that the sampler writes; it replaces one that is there. ``gpus`` maps
    names to UUIDs (see ``torch_gpus``); None means every GPU that NVML sees, ``{}`` none. ``low_overhead`` is
    for steps timed on the CPU: where readings cost what these would feel, there are fewer. A ``detached``
    sampler is no child of this process, whose program may wait for all children (POSIX). Entering waits until
    the first reading is near, so that the sampler's start falls outside the measurement. Nothing that goes
    wrong with sampling raises: there are fewer samples then, or none, and ``problem`` says why. The sampler
    ends when told, when ``pid`` ends, when we are killed, or on SIGTERM; it ignores Ctrl-C. If we are killed,
    it prints ``farewell`` on our standard error.

    Raises UsageError for a ``period_s`` that ``check_period`` refuses.
    """

    def __init__(
        self,
        pid: int,
        path: str | Path,
        period_s: float = 0.1,
        gpus: Mapping[str, str] | None = None,
        *,
        low_overhead: bool = False,
        detached: bool = False,
    ) -> None:
        check_period(period_s)
        self._pid = pid
        self._path = Path(path).absolute()
        self._period_s = period_s
        self._gpus = gpus
        self._low_overhead = low_overhead
        self.farewell = ""
        self._detached = detached and hasattr(os, "fork")
        self._process: subprocess.Popen[bytes] | _Detached | None = None
        self._errors: IO[bytes] | None = None
        #: What went wrong with the sampler process; its own problems are in the journal.
        self.failure = ""

    def __enter__(self) -> SamplerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process id of the running sampler, None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def problem(self) -> str:
        """Sentences about what could not be sampled and why; empty without problems."""
        return " ".join(filter(None, (*self.journal().problems, self.failure)))

    def samples(self) -> tuple[DeviceSample, ...]:
        """Every sample written so far, in the order taken; while sampling as well as after."""
        return self.journal().samples

    def journal(self) -> Journal:
        """Everything written so far."""
        return read_journal(self._path)

    def start(self) -> None:
        """Start the sampler and wait until it samples, or until it is clear that it will not."""
        terminal: tuple[int, ...] = ()
        handled = contextlib.ExitStack()
        try:
            self._path.unlink(missing_ok=True)
            if self.farewell and os.name == "posix":
                terminal = (os.dup(2),)
            if self._detached:  # the program's own handler is not told of the one between
                handled.enter_context(children_left(callable))
            # A file, not a pipe: it is not read during the run, and a full pipe would block the writer.
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process runs)
            started = self._process = subprocess.Popen(
                self._command(*terminal),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self._detached else subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=terminal,
                # A module named like ours or like the standard library's in the user's directory must not be
                # imported.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                # Out of the terminal's foreground group: Ctrl-C is for the run, also before the sampler could
                # say that it ignores it.
                start_new_session=True,
            )
        except (OSError, UnicodeError) as error:
            self.failure = f"No device samples: the sampler did not start: {error}."
            handled.close()
            return
        finally:
            for descriptor in terminal:
                os.close(descriptor)
        if started.stdout is not None:
            with started.stdout as number, handled:
                pid = number.read(16)
                if started.wait() == 0 and pid:
                    self._process = _Detached(int(pid), started.stdin)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and not self.journal().started:
            if time.monotonic() > deadline:
                self.failure = f"No device samples: the sampler was not ready after {START_TIMEOUT_S:g} s."
                self.stop()
                return
            time.sleep(0.005)

    def stop(self) -> None:
        """Tell the sampler to end and wait for it; a second call does nothing."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        ended_early = process.poll() is not None
        with contextlib.suppress(OSError):
            # A byte as well as the end of the pipe: a forked worker may still hold a copy of our end.
            process.stdin.write(b".")
            process.stdin.close()
        code = _wait(process)
        if (code != 0 or (self._detached and ended_early)) and not self.failure:
            if code is None:
                how = "does not end, even when killed"
            else:
                cause = f" (signal {-code})" if code < 0 else f" (exit code {code})" if code else ""
                how = f"{'ended early' if ended_early else 'did not end when requested'}{cause}"
            self.failure = f"Device samples may be incomplete: the sampler {how}{self._last_words()}."
        if self._errors is not None:
            self._errors.close()

    def _command(self, *terminal: int) -> list[str]:
        # Entry points are looked up here: it takes 50 ms and 2 MB, which the sampler process is spared.
        order = Order(
            pid=self._pid,
            output=str(self._path),
            period_s=self._period_s,
            epoch_ns=epoch_ns(),
            low_overhead=self._low_overhead,
            gpus=None if self._gpus is None else dict(self._gpus),
            plugins=entries("samplers"),
            farewell=self.farewell if terminal else "",
            terminal=max(terminal, default=2),
            detached=self._detached,
        )
        return [sys.executable, "-m", "rooflines.profiler.samplers", msgspec.json.encode(order).decode()]

    def _last_words(self) -> str:
        """The last line that the sampler wrote to standard error: of a traceback, the exception."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1].rstrip('.')}" if lines else ""


def check_period(period_s: float) -> None:
    """Raise UsageError unless it is more than 0 and at most ``LONGEST_PERIOD_S`` seconds."""
    if not 0 < period_s <= LONGEST_PERIOD_S:
        raise UsageError(
            f"{arg('period_s')} must be above 0 and at most {LONGEST_PERIOD_S:g} s, got {period_s:g} s.",
            hint=f"For example: {arg('period_s', 0.1)}",
        )


def torch_gpus(*devices: str) -> dict[str, str]:
    """The UUIDs of torch's CUDA devices (all of them, or those named ``cuda:0``, ...), as ``SamplerProcess``
    takes them.

    By UUID because torch numbers the visible GPUs by speed and NVML all of them by bus. Empty without a
    usable GPU.
    """
    import torch

    if not torch.cuda.is_available():
        return {}
    names = devices or tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return {name: str(torch.cuda.get_device_properties(name).uuid) for name in names}


def gpus_in_use(device: torch.device) -> tuple[str, ...]:
    """``device`` and every other GPU on which torch holds memory for this process, as it does for
    DataParallel and split models."""
    import torch

    used = [
        f"cuda:{index}" for index in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(index)
    ]
    return tuple(dict.fromkeys((str(device), *used)))


@contextlib.contextmanager
def children_left(applies: Callable[[Any], bool]) -> Iterator[bool]:
    """Inside, the system does nothing when a child of ours ends, if what it did ``applies``; yields whether
    it did."""
    handler = signal.getsignal(signal.SIGCHLD)
    applied = threading.current_thread() is threading.main_thread() and applies(handler)
    if applied:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield applied
    finally:
        if applied:
            signal.signal(signal.SIGCHLD, handler)


class _Detached(psutil.Process):
    """A sampler that is no child of this process: how it ends is not known, and its code is 0."""

    def __init__(self, pid: int, stdin: IO[bytes] | None) -> None:
        super().__init__(pid)
        self.stdin = stdin

    def poll(self) -> int | None:
        return None if runs(self) else 0


def _wait(process: subprocess.Popen[bytes] | _Detached) -> int | None:
    """Its exit code once it has ended, which is insisted on; None where it survives being killed.

    A process does while one of its threads is in a driver's call that no signal interrupts: do not wait for
    that.
    """
    stopped = getattr(signal, "SIGCONT", signal.SIGTERM)  # a stopped process (SIGSTOP) reacts to nothing else
    for signals in ((signal.SIGTERM, stopped), (getattr(signal, "SIGKILL", signal.SIGTERM),), ()):
        until = time.monotonic() + STOP_TIMEOUT_S
        while (code := process.poll()) is None and time.monotonic() < until:
            time.sleep(0.002)
        if code is not None:
            return code
        for number in signals:
            with contextlib.suppress(psutil.Error):  # it has ended just now
                process.send_signal(number)
    return None
