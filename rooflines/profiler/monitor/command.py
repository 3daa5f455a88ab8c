"""A command that runs as it would without us, but does not begin before its sampler samples, so that nothing
of it goes unseen."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rooflines.errors import CommandError, UsageError
from rooflines.profiler.monitor.monitored import Ending
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.host import own_peak_rss_bytes
from rooflines.profiler.samplers.process import children_left

if TYPE_CHECKING:
    import resource

# What reaches us alone and is meant for the command. Ctrl-C and Ctrl-\ are not among them: a terminal sends
# them to both.
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_LEFT_TO_THE_COMMAND = ("SIGINT", "SIGQUIT")
_NOT_FOUND, _NOT_RUNNABLE = 127, 126


class HeldCommand:
    """A command that waits, as a process with its own ``pid``, until it is released.

    ::

        with HeldCommand(["python", "train.py"]) as command:
            watch(command.pid)
            command.release()
            ending = command.wait()

    It has our standard input, output and error, ``environment`` or ours, and our process group, so that a
    terminal treats it as it would the command alone; with ``output``, what it would print to a terminal goes
    to that file. Within the context signals that are sent to us are passed on to it, and those of the
    terminal's keys, which it gets as well, are left to it. Leaving the context before it was released ends it
    without its having run; afterwards it is never touched. Raises CommandError when the program does not
    exist, from ``release`` also when the system cannot run it, and UsageError on a system without ``fork``.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, output: Path | None = None
    ) -> None:
        self._command = list(command)
        self._output = output
        self._environment = os.environ if environment is None else environment
        self._path = find_program(command[0])
        self.pid = 0
        self._hold = self._failed = -1
        self._released = self._reaped = False
        self._began_s = 0.0
        self._ignores_children = False
        self._signals = contextlib.ExitStack()

    def __enter__(self) -> HeldCommand:
        if not hasattr(os, "fork"):
            raise UsageError(
                "this system cannot start a command in a paused state.",
                hint="Start it first, then: rooflines monitor --pid N",
            )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # The system keeps how our children end until we ask, which it does not where SIGCHLD is ignored.
        kept = children_left(lambda handler: handler is signal.SIG_IGN)
        self._ignores_children = self._signals.enter_context(kept)
        held, self._hold = os.pipe()
        self._failed, failed = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_the_command(held, failed)
        os.close(held)
        os.close(failed)
        self._signals.enter_context(_handled(self._pass_on))
        return self

    def __exit__(self, *_: object) -> None:
        if not self._released:
            # The end of the pipe, without a byte, is the order to go.
            os.close(self._hold)
        os.close(self._failed)
        if not self._released and not self._reaped:
            os.waitpid(self.pid, 0)
            self._reaped = True
        self._signals.close()

    def release(self) -> int:
        """Let the command begin, and return when it has: nanoseconds since the epoch."""
        self._released = True
        self._began_s = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # a signal has ended it already
            os.write(self._hold, b".")
        os.close(self._hold)
        # Closed by the system at the moment that the program takes our place; a number in it says why it
        # could not.
        problem = os.read(self._failed, 16)
        began_ns = now_ns()
        if problem:
            os.waitpid(self.pid, 0)
            self._reaped = True
            reason = os.strerror(int(problem))
            raise command_error(
                f"cannot run {self._path!r}: {reason}.", "Put the interpreter before a script.", _NOT_RUNNABLE
            )
        return began_ns

    def wait(self) -> Ending:
        """Wait for its end."""
        import resource

        _, status, used = os.wait4(self.pid, 0)
        wall_s = time.perf_counter() - self._began_s
        self._reaped = True
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        largest = _largest_rss_bytes(used)
        # ``getrusage`` goes on from what this process held before it became this program.
        own = own_peak_rss_bytes() or _largest_rss_bytes(resource.getrusage(resource.RUSAGE_SELF))
        return Ending(
            exit_code=os.WEXITSTATUS(status) if killed_by is None else 128 + killed_by,
            signal=killed_by,
            wall_s=wall_s,
            user_cpu_s=used.ru_utime,
            system_cpu_s=used.ru_stime,
            # Linux goes on from what the process held before it became the command, which was a copy of us.
            largest_rss_bytes=largest if largest > own else None,
        )

    def _pass_on(self, number: int, _: Any) -> None:
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _become_the_command(self, held: int, failed: int) -> NoReturn:
        try:
            os.close(self._hold)
            # What Python or we have changed for ourselves. What we were started to ignore (nohup) stays
            # ignored.
            if self._ignores_children:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
                signal.signal(number, signal.SIG_DFL)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            if self._output is not None:
                output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
                for terminal in filter(os.isatty, (1, 2)):
                    os.dup2(output, terminal)
                os.close(output)
            if os.read(held, 1):
                os.execve(self._path, self._command, self._environment)
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(_NOT_FOUND)


def find_program(name: str) -> str:
    """The file that a shell would run for ``name``. Raises CommandError, with the exit code that a shell
    would give."""
    program = shutil.which(name)
    if program is not None:
        return program
    path = Path(name)
    if os.sep not in name or not path.exists():
        raise command_error(
            f"command not found: {name!r}.", "Give the program and its arguments after --.", _NOT_FOUND
        )
    what = "it is a directory" if path.is_dir() else "it is not executable"
    raise command_error(
        f"cannot run {name!r}: {what}.", "Put the interpreter before a script.", _NOT_RUNNABLE
    )


def command_error(message: str, hint: str, exit_code: int) -> CommandError:
    error = CommandError(message, hint=hint)
    error.exit_code = exit_code
    return error


@contextlib.contextmanager
def _handled(pass_on: Callable[[int, Any], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Python leaves signals to the main thread: who watches a program from another one keeps them.
        yield
        return
    wanted = dict.fromkeys(_PASSED_ON, pass_on) | dict.fromkeys(_LEFT_TO_THE_COMMAND, signal.SIG_IGN)
    with contextlib.ExitStack() as stack:
        for name, action in wanted.items():
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, action))
        yield


def _largest_rss_bytes(used: resource.struct_rusage) -> int:
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
